//! `fednmf prepare`: a matrix for factorisation from raw data, by tf-idf weights, quantiles of the columns, or indicators of
//! the values of a table.
//!
//! The rules that it computes from the data can be saved (`--save-rules`) and applied to other data (`--rules`). They are
//! never computed over several parties: document frequencies, quantiles and lists of values reveal something about the rows.

mod matrix;
mod one_hot;
mod rules;
mod weights;
mod write;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_comm::Communicator;
use fednmf_data::{Layout, NanRemedy};
use fednmf_driver::progress::Progress;
use fednmf_files as data;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_files::{InputSpec, Source, TableFormat, TableOptions, names};
use fednmf_linalg::Block;
use fednmf_methods::parameters;

use crate::cli::features::FeatureArgs;
use crate::cli::parameters::Group;

use self::matrix::Prepared;
use self::rules::Rules;

/// `fednmf prepare`.
#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// What to do with the matrix
    #[arg(value_enum)]
    pub how: How,
    /// Any matrix that a run takes, of one owner; for one-hot a table in text with a header
    pub input: String,
    /// The file to write: .mtx (sparse), .npy (dense) or .csv (dense, with the names of rows and columns)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,
    /// For quantile: entries above this quantile of their column, zeros included, become 1, all others 0 [default: 0.95]
    #[arg(long, value_name = "Q", value_parser = share, conflicts_with = "rules")]
    pub quantile: Option<f64>,
    /// For one-hot: divide numeric columns with more than N values at their quantiles into N intervals
    #[arg(long, value_name = "N", value_parser = bins, conflicts_with = "rules")]
    pub bins: Option<usize>,
    /// Apply the rules in this file, which --save-rules wrote, in the place of those of the data
    #[arg(long, value_name = "F.json", conflicts_with = "save_rules")]
    pub rules: Option<PathBuf>,
    /// Write the rules that were found: document frequencies, thresholds of the columns, or their values. They tell of the
    /// data
    #[arg(long, value_name = "F.json")]
    pub save_rules: Option<PathBuf>,
    /// Transpose the matrix first (not for one-hot)
    #[arg(long)]
    pub transpose: bool,
    #[command(flatten)]
    pub table: Group<TableOptions>,
    #[command(flatten)]
    pub features: FeatureArgs,
}

/// The kinds of preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// Counts of terms (columns) in documents (rows) times ln((1 + m)/(1 + df)) + 1, with rows at norm 1
    TfIdf,
    /// 1 for the entries above a quantile of their column
    Quantile,
    /// A column of 0 and 1 for each value of each column
    OneHot,
}

fn share(text: &str) -> std::result::Result<f64, String> {
    let parsed = text.parse().ok().filter(|q: &f64| *q > 0.0 && *q < 1.0);
    parsed.ok_or_else(|| "must be between 0 and 1, such as 0.95".to_string())
}

fn bins(text: &str) -> std::result::Result<usize, String> {
    let parsed = parameters::whole_number(text).ok().filter(|bins| (2..=1000).contains(bins));
    parsed.ok_or_else(|| "must be a whole number from 2 to 1000".to_string())
}

/// Prepares a matrix; the only rank reads and writes. Collective.
///
/// # Errors
/// With more than one rank or party, where the input or the rules cannot be used, or an output cannot be written.
pub fn prepare(args: &PrepareArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("prepare: works on one rank; start it without mpirun").on_all_ranks().into());
    }
    let mut spec = InputSpec::parse(&args.input)?;
    if spec.by_party() {
        return Err(Error::input(format!(
            "prepare {}: document frequencies, quantiles and values of several parties together would tell each of the others' \
             data; prepare each party's file by itself, with --rules of public data if all are to be treated alike",
            args.input
        )));
    }
    check_options(args)?;
    check_outputs(args, &spec)?;
    let given = args.rules.as_deref().map(Rules::read).transpose()?;
    let (prepared, rules) = if args.how == How::OneHot {
        let Source::File { path, .. } = &spec.source else { return Err(one_hot::no_table(&args.input)) };
        one_hot::prepare(path, args.table.0, args.bins, given)?
    } else {
        spec.transpose = args.transpose;
        spec.table = args.table.0;
        spec.features = args.features.choice();
        spec.nan_remedy = NanRemedy::FillIn;
        // Negative entries have quantiles too, and the result is 0 or 1.
        spec.allow_negative = args.how == How::Quantile;
        if !spec.transpose {
            // New transactions need not have every item.
            spec.items = given.as_ref().and_then(Rules::names).and_then(names::items);
        }
        let mut progress = Progress::new(true, None);
        let input = data::open(&spec, comm)?;
        spec.complete(input.header());
        let names = names::of_input(&spec);
        progress.notes(&input.header().notes);
        progress.warnings(&input.header().warnings);
        let loaded = input.load::<f64>(&Layout::Grid { pr: 1, pc: 1 }, comm, &mut |part| progress.loading(part))?;
        progress.finish();
        let mut matrix = Prepared {
            rows: loaded.blocks.iter().flat_map(nonzeros).collect(),
            cols: loaded.header.cols,
            row_names: names.rows,
            column_names: names.columns,
        };
        let rules = match args.how {
            How::TfIdf => weights::tf_idf(&mut matrix, given)?,
            _ => weights::quantile(&mut matrix, args.quantile.unwrap_or(0.95), given)?,
        };
        (matrix, rules)
    };
    write::matrix(&prepared, &args.output)?;
    if let Some(path) = &args.save_rules {
        rules.write(path)?;
    }
    Ok(EXIT_DONE)
}

fn nonzeros(block: &Block<f64>) -> Vec<Vec<(usize, f64)>> {
    let row = |i: usize| {
        let mut row = Vec::new();
        block.for_each_nonzero(i, |j, x| row.push((j, x)));
        row
    };
    (0..block.shape().0).map(row).collect()
}

/// Refuses options of another kind of preparation.
fn check_options(args: &PrepareArgs) -> Result<()> {
    let one_hot = args.how == How::OneHot;
    let wrong = [
        (args.quantile.is_some() && args.how != How::Quantile, "--quantile: belongs to 'prepare quantile'"),
        (args.bins.is_some() && !one_hot, "--bins: belongs to 'prepare one-hot'"),
        (args.transpose && one_hot, "--transpose: one-hot makes columns of the values of a table"),
        (
            one_hot && !args.features.words().is_empty(),
            "--feature-type, --highly-variable: one-hot makes columns of the values of a table",
        ),
        (
            args.table.0.format == TableFormat::Triples && one_hot,
            "--format triples: one-hot makes columns of the values of a table",
        ),
    ];
    match wrong.into_iter().find(|(given, _)| *given) {
        Some((_, why)) => Err(Error::input(format!("{why}; leave the option out"))),
        None => Ok(()),
    }
}

/// Refuses outputs of an unknown kind, and those that would replace other files than prepared ones.
fn check_outputs(args: &PrepareArgs, spec: &InputSpec) -> Result<()> {
    write::check_name(&args.output)?;
    let mut sources: Vec<_> = spec.files().into_iter().map(|path| ("the matrix", path)).collect();
    sources.extend(args.rules.clone().map(|path| ("--rules", path)));
    let mut targets = vec![Target { option: "--output", path: &args.output, content: Content::Marked }];
    targets.extend(args.save_rules.as_deref().map(|path| Target {
        option: "--save-rules",
        path,
        content: Content::Marked,
    }));
    targets::check(&targets, &sources)
}

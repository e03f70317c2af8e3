//! `fednmf prepare`: a matrix for factorisation from raw data, by counts at a common total, tf-idf weights, quantiles of the
//! columns, or indicators of the values of a table.
//!
//! The rules that it computes from the data can be saved (`--save-rules`) and applied to other data (`--rules`). Rules for counts
//! and for tf-idf follow from sums over rows, so parties can compute them together ([`sums`]), and each writes its own rows.
//! Quantiles and lists of values do not.

#[cfg(feature = "sites")]
mod at_site;
mod counts;
mod loess;
mod matrix;
mod one_hot;
pub mod read;
mod rules;
pub mod sums;
mod variable;
mod weights;
mod write;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use fednmf_base::error::{EXIT_DONE, Error, Result, SharedResult};
use fednmf_base::unfinished::Access;
use fednmf_base::units::parse_bytes;
use fednmf_base::warning::note;
use fednmf_comm::Communicator;
use fednmf_data::{NanRemedy, Sharing};
use fednmf_driver::progress::Progress;
use fednmf_files::features;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_files::{InputSpec, PARTY, Source, TableFormat, TableOptions, names};
use fednmf_methods::parameters;
use fednmf_methods::shared::disclosure::DisclosureParams;

use crate::cli::features::FeatureArgs;
use crate::cli::parameters::Group;

#[cfg(feature = "sites")]
pub use self::at_site::sent;
use self::counts::CountsArgs;
use self::matrix::{Matrix, Transform};
use self::read::{Checks, Columns, Matrices};
use self::rules::Rules;
use self::sums::ColumnSums;

/// `fednmf prepare`.
#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// What to do with the matrix
    #[arg(value_enum)]
    pub how: How,
    /// Any matrix that a run takes; for one-hot a table in text with a header. {party} in a path stands for 0, 1, ...: one file per
    /// party, for counts and tf-idf
    pub input: String,
    /// The file to write: .h5ad (sparse, with the names of rows and columns), .npz or .mtx (sparse), .npy (dense) or .csv (dense,
    /// with the names); with {party} in its name if the input has it
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,
    /// For quantile: entries above this quantile of their column, zeros included, become 1, all others 0 [default: 0.95]
    #[arg(long, value_name = "Q", value_parser = share, conflicts_with = "rules")]
    pub quantile: Option<f64>,
    /// For one-hot: divide numeric columns with more than N values at their quantiles into N intervals
    #[arg(long, value_name = "N", value_parser = bins, conflicts_with = "rules")]
    pub bins: Option<usize>,
    /// Memory that may be used: 4G, 512M [default: what is free]. Rows that do not fit are read from the file a panel at a time, in
    /// several passes, except for one-hot, files of parties and quantiles without --rules
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Apply the rules in this file, which --save-rules wrote, instead of those of the data. For counts, columns are found by
    /// their names
    #[arg(long, value_name = "F.json", conflicts_with = "save_rules")]
    pub rules: Option<PathBuf>,
    /// Write the rules that were found: which columns are used and what divides them, document frequencies, thresholds of the
    /// columns, or their values. They tell of the data
    #[arg(long, value_name = "F.json")]
    pub save_rules: Option<PathBuf>,
    /// Transpose the matrix first (not for one-hot)
    #[arg(long)]
    pub transpose: bool,
    #[command(flatten)]
    pub counts: CountsArgs,
    #[command(flatten)]
    pub table: Group<TableOptions>,
    #[command(flatten)]
    pub features: FeatureArgs,
    /// Number of parties [default: that of the files]
    #[arg(long, value_name = "N", value_parser = parameters::count(1), help_heading = "Parties")]
    pub parties: Option<usize>,
    /// Use only the columns whose names are in the files of all parties, in the order of party 0. Parties send digests of the names,
    /// which can confirm a guessed name
    #[arg(long, help_heading = "Parties")]
    pub common_columns: bool,
    /// Use all columns that the file of any party has; a party has zeros in those that it lacks. All parties learn the names of all
    /// columns
    #[arg(long, conflicts_with = "common_columns", help_heading = "Parties")]
    pub all_columns: bool,
    #[command(flatten)]
    pub disclosure: Group<DisclosureParams>,
}

/// The kinds of preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// Counts of genes (columns) in cells (rows): rows with a common total, columns that enough rows have, the most variable ones,
    /// logarithms, unit variance
    Counts,
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

/// A preparation whose options are checked.
pub struct Preparation {
    pub args: PrepareArgs,
    pub spec: InputSpec,
}

/// Prepares a matrix of one owner on one rank, or the files of parties. Collective.
///
/// # Errors
/// Where the input or the rules cannot be used, or an output cannot be written.
pub fn prepare(args: PrepareArgs, comm: &Communicator) -> Result<i32> {
    let preparation = comm.agree_on_error(Preparation::check(args, false))?;
    if comm.size() > 1 && !preparation.spec.by_party() {
        let why = "prepare: several ranks prepare the files of parties; name them with {party}, or start one process without mpirun";
        return Err(Error::input(why).on_all_ranks().into());
    }
    preparation.perform(comm)
}

impl Preparation {
    /// Checks the options; `at_site`: the input is the own file of a site, which is one of the parties.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    pub fn check(args: PrepareArgs, at_site: bool) -> Result<Preparation> {
        let mut spec = InputSpec::parse(&args.input)?;
        check_options(&args)?;
        if args.how != How::OneHot {
            spec.transpose = args.transpose;
            spec.table = args.table.0;
            spec.features = args.features.choice();
            spec.nan_remedy = NanRemedy::FillIn;
            // Negative entries have quantiles too, and the result is 0 or 1.
            spec.allow_negative = args.how == How::Quantile;
        }
        spec.own_disk = at_site;
        spec.memory = args.memory;
        spec.common_columns = args.common_columns;
        spec.parties = args.parties;
        if spec.by_party() {
            spec.private = true;
            spec.kept = true;
            spec.sharing = Sharing::Nothing;
            spec.suppress = args.disclosure.0.suppress_rare.as_ref().copied();
        }
        let preparation = Preparation { args, spec };
        preparation.check_parties(at_site)?;
        preparation.check_outputs(at_site)?;
        Ok(preparation)
    }

    /// Refuses what parties cannot do together, and options of parties where there are none.
    fn check_parties(&self, at_site: bool) -> Result<()> {
        let Preparation { args, spec } = self;
        let of_input = args.input.contains(PARTY);
        let of_output = args.output.to_string_lossy().contains(PARTY);
        let why = match (at_site, spec.by_party()) {
            (true, _) if of_input || of_output => "INPUT and --output: a site names its own files, without {party}",
            (true, _) if args.parties.is_some() => "--parties: each site is a party; leave the option out",
            (false, true) if !of_output => "--output: each party gets a file of its own; put {party} into its name",
            (false, false) if of_output => {
                "--output: {party} belongs to files of parties, and the input is one file; leave it out"
            }
            (_, false)
                if args.common_columns || args.all_columns || args.disclosure.0 != DisclosureParams::default() =>
            {
                "--common-columns, --all-columns, --colluding, --min-rows, --suppress-rare, --accept-risk: are about files of \
                 parties, with {party} in INPUT; leave them out"
            }
            (_, false) if args.parties.is_some() => {
                "--parties: is about a file for each party; name the files with {party}, or leave the option out"
            }
            _ => "",
        };
        if !why.is_empty() {
            return Err(Error::input(why));
        }
        match args.how {
            How::Quantile | How::OneHot if spec.by_party() => Err(Error::input(format!(
                "prepare {}: quantiles and values of several parties together would tell each of the others' data; prepare each \
                 party's file by itself, with --rules of public data if all are to be treated alike",
                if args.how == How::OneHot { "one-hot" } else { "quantile" }
            ))),
            _ => Ok(()),
        }
    }

    /// The file that a party's rows are written to.
    fn output_of(&self, party: usize) -> PathBuf {
        self.args.output.to_string_lossy().replace(PARTY, &party.to_string()).into()
    }

    /// Refuses outputs of an unknown kind, and those that would replace other files than prepared ones.
    fn check_outputs(&self, at_site: bool) -> Result<()> {
        let Preparation { args, spec } = self;
        write::check_name(&args.output)?;
        let mut sources: Vec<_> = spec.files().into_iter().map(|path| ("the matrix", path)).collect();
        sources.extend(args.rules.clone().map(|path| ("--rules", path)));
        let parties = if spec.by_party() && !at_site { spec.files().len() } else { 1 };
        let outputs: Vec<PathBuf> = (0..parties).map(|party| self.output_of(party)).collect();
        let marked = |option, path| Target { option, path, content: Content::Marked };
        let mut targets: Vec<_> = outputs.iter().map(|path| marked("--output", path)).collect();
        targets.extend(args.save_rules.as_deref().map(|path| marked("--save-rules", path)));
        targets::check(&targets, &sources)
    }

    /// The number of sums over the rows that are opened.
    fn opened_sums(&self) -> usize {
        if self.args.how == How::Counts { self.args.counts.opened_sums() } else { 1 }
    }

    /// Prepares and writes. Collective.
    ///
    /// # Errors
    /// As [`prepare`].
    pub fn perform(self, comm: &Communicator) -> Result<i32> {
        let args = &self.args;
        let given = comm.agree_on_error(args.rules.as_deref().map(Rules::read).transpose())?;
        let (own, rules) = if args.how == How::OneHot {
            let Source::File { path, .. } = &self.spec.source else { return Err(one_hot::no_table(&args.input)) };
            let (prepared, rules) = one_hot::prepare(path, args.table.0, args.bins, given)?;
            (vec![(0, prepared)], rules)
        } else {
            self.matrices(given, comm)?
        };
        if let (Rules::Counts(rules), true) = (&rules, comm.reports()) {
            rules.left_out().iter().for_each(|text| note(text));
        }
        let transforms = own.iter().map(|(_, matrix)| self.transform(matrix, &rules)).collect::<Result<Vec<_>>>();
        let transforms = comm.agree_on_error(transforms)?;
        // The rows of a party.
        let access = match self.spec.by_party() {
            true => Access::OwnerOnly,
            false => Access::as_of(self.spec.files().into_iter().chain(args.rules.clone())),
        };
        let written = own.iter().zip(&transforms).try_for_each(|((party, matrix), transform)| {
            write::matrix(matrix, transform, &self.output_of(*party), access)
        });
        comm.agree_on_error(written)?;
        let save = args.save_rules.as_ref().filter(|_| comm.reports());
        comm.agree_on_error(save.map_or(Ok(()), |path| rules.write(path)))?;
        Ok(EXIT_DONE)
    }

    /// What the rules make of a matrix.
    fn transform<'a>(&self, matrix: &Matrix, rules: &'a Rules) -> Result<Transform<'a>> {
        match (self.args.how, rules) {
            (How::OneHot, _) => Ok(Transform::none(matrix)),
            (How::Counts, Rules::Counts(rules)) => rules.transform(matrix),
            (How::Counts, other) => Err(other.another_kind("counts")),
            (How::TfIdf, rules) => weights::tf_idf(matrix, rules),
            (How::Quantile, rules) => weights::above_quantiles(matrix, rules),
        }
    }

    /// Whether the file says that its rows, as they are read, are features: those of 10x are.
    fn has_genes_as_rows(&self) -> bool {
        let Source::File { path, dataset } = &self.spec.source else { return false };
        let plain = !self.spec.transpose && !self.spec.by_party();
        plain && features::are_rows(path, dataset.as_deref())
    }

    /// The matrices of the hosted parties, and the rules. Collective.
    fn matrices(&self, given: Option<Rules>, comm: &Communicator) -> SharedResult<(Vec<(usize, Matrix)>, Rules)> {
        let mut spec = self.spec.clone();
        if !spec.transpose {
            // New transactions need not have every item.
            spec.items = given.as_ref().and_then(Rules::names).and_then(names::items);
        }
        let mut progress = Progress::new(comm.reports(), None);
        if self.args.how == How::Counts && self.has_genes_as_rows() {
            progress.warn(&format!(
                "{}: has genes as rows, and counts prepares cells as rows; add --transpose if that is not meant",
                self.args.input
            ));
        }
        let checks = Checks {
            shapes: &|counts, columns| self.check_shapes(counts, columns, comm),
            entries: &|matrix| match self.args.how {
                How::Counts if spec.by_party() => counts::check_whole(matrix),
                How::Counts => counts::check_whole(matrix).map_err(|e| e.at(&self.args.input)),
                _ => Ok(()),
            },
            streaming: match (self.args.how, &given) {
                (How::Quantile, None) => Err("quantiles need all entries; --rules does not"),
                _ => Ok(()),
            },
        };
        let columns = match (self.args.all_columns, self.args.common_columns) {
            (true, _) => Some(Columns::All),
            (false, true) => Some(Columns::Common),
            (false, false) => None,
        };
        let Matrices { own, parties, shape } = match columns {
            Some(columns) => read::aligned(columns, &spec, comm, &mut progress, checks)?,
            None => read::matrices(&spec, comm, &mut progress, checks)?,
        };
        let hosted = parties.hosted(comm.rank());
        if parties.count == 2 && given.is_none() {
            progress.warn("masks hide nothing between two parties: each can subtract its own term from the sum; use three or more");
        }
        let rules = match (given, self.args.how) {
            (Some(given), _) => given,
            // Of one owner.
            (None, How::Quantile) => {
                weights::quantiles(&own[0], self.args.quantile.unwrap_or(0.95)).map_err(Error::on_all_ranks)?
            }
            (None, _) => self.sum(&own, &mut ColumnSums::new(comm, parties, shape)?, &mut progress)?,
        };
        Ok((hosted.zip(own).collect(), rules))
    }

    /// The rules that follow from sums over the rows of all parties. Collective.
    fn sum(&self, own: &[Matrix], sums: &mut ColumnSums, progress: &mut Progress) -> SharedResult<Rules> {
        let args = &self.args;
        if args.how != How::Counts {
            let columns = own.first().and_then(|matrix| matrix.column_names.clone());
            return Ok(Rules::TfIdf { documents: sums.rows, frequencies: sums.carriers(own)?, columns });
        }
        let least = args.counts.min_rows_per_column.unwrap_or(if self.spec.by_party() { 3 } else { 1 });
        let rules = counts::derive(own, &args.counts, least, sums)?;
        if let Some(count) = args.counts.variable_columns.filter(|count| rules.written() < *count) {
            progress.warn(&format!(
                "--variable-columns {count}: there are only {} columns, and all are written",
                rules.written()
            ));
        }
        Ok(Rules::Counts(rules))
    }

    /// Refuses ranks without a party, and sums that would tell more of a party's rows than its parties allow; `counts`: their rows,
    /// of `length` entries.
    fn check_shapes(&self, counts: &[usize], length: usize, comm: &Communicator) -> Result<()> {
        let (ranks, parties) = (comm.size(), counts.len());
        if parties < ranks {
            return Err(Error::input(format!(
                "prepare: {ranks} ranks, but {parties} parties; start at most a rank for each"
            )));
        }
        if self.args.rules.is_some() {
            return Ok(());
        }
        sums::check_opened(&self.args.disclosure.0, counts, length, self.opened_sums())
    }
}

/// Refuses options of another kind of preparation.
fn check_options(args: &PrepareArgs) -> Result<()> {
    let one_hot = args.how == How::OneHot;
    let counts_only = format!("{}: belongs to 'prepare counts'", args.counts.first_given().unwrap_or_default());
    let wrong = [
        (args.quantile.is_some() && args.how != How::Quantile, "--quantile: belongs to 'prepare quantile'"),
        (args.counts.first_given().is_some() && args.how != How::Counts, counts_only.as_str()),
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

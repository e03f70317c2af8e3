//! The arguments of `fednmf sweep`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use fednmf_base::error::{Error, Result};
use fednmf_base::units::parse_bytes;
use fednmf_data::Resample;
use fednmf_driver::model_selection::{Criterion, SweepMissing, sweepable, sweepable_method};
use fednmf_driver::spec::Scale;
use fednmf_files::{TableOptions, Threshold};
use fednmf_methods::distributed::divergence::beta::Beta;
use fednmf_methods::distributed::divergence::volume::VolumeParams;
use fednmf_methods::method::{ConfiguredMethod, SweepSettings};
use fednmf_methods::parameters;
use fednmf_methods::parameters::ParamType as _;
use fednmf_methods::shared::missing::MissingParams;
use fednmf_methods::shared::regularization::RegularizationParams;

use crate::cli::features::FeatureArgs;
use crate::cli::parameters::{Group, words};

/// A method by its name or an alias.
fn sweepable_methods() -> impl TypedValueParser<Value = Arc<dyn ConfiguredMethod>> {
    let value = |method: &Arc<dyn ConfiguredMethod>| {
        PossibleValue::new(method.description().name).aliases(method.description().aliases)
    };
    PossibleValuesParser::new(sweepable().map(value)).try_map(|name| sweepable_method(&name))
}

/// The name or number of a loss.
fn loss(text: &str) -> parameters::Parsed<String> {
    Beta::parse(text).map(|_| text.to_string())
}

/// `fednmf sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Numbers of components: 5..50, 5..50:5 (in steps of 5) or 4,8,12
    #[arg(long = "k", short = 'k', value_name = "KS", required = true)]
    pub components: Vec<String>,
    /// Matrix: any input that a run takes
    #[arg(short = 'i', long, value_name = "PATH")]
    pub input: String,
    /// Directory for the results: the factors of each run, the consensus of those with the recommended k, sweep.json and
    /// sweep.html. What is there already is not done again
    #[arg(short = 'o', long, value_name = "DIR")]
    pub output: PathBuf,
    /// Write the components of each run as the spectra of cNMF's step factorize, into the directory OUTPUT/NAME that
    /// `cnmf prepare` made; after 4 runs or more also the programmes of each k, as its step consensus does
    #[arg(long, value_name = "DIR")]
    pub cnmf: Option<PathBuf>,
    /// Leave spectra out of cNMF's programmes whose mean distance to their nearest neighbours is not below X; 2: none
    #[arg(long, value_name = "X", requires = "cnmf", default_value_t = 0.5, value_parser = parameters::number(0.0, 2.0))]
    pub density_threshold: f64,
    /// Runs for each k, with different starts and entries held out
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parameters::whole_number)]
    pub runs: usize,
    /// Method [default: hals; auto with --loss]
    #[arg(long, value_name = "NAME", value_parser = sweepable_methods())]
    pub algo: Option<Arc<dyn ConfiguredMethod>>,
    /// Loss to minimise, by the method that auto chooses for it: frobenius (the squared error), kullback-leibler or kl (for
    /// counts), itakura-saito or is (for spectra, without zeros), or the number β of another β-divergence
    #[arg(long, value_name = "LOSS", allow_hyphen_values = true, value_parser = loss)]
    pub loss: Option<String>,
    /// Share of the observed entries that a run does not see; k is chosen by the error on them, which is the divergence for the
    /// Kullback-Leibler divergence. 0: none, each run is faster, and k is chosen by stability and error [default: 0.05; 0 for
    /// divergences, and for online and kl-online, which see all entries]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = parameters::number(0.0, 0.9))]
    pub holdout: Option<f64>,
    /// Factorise in each run a copy of the counts, drawn by its seed around them: each count from a Poisson distribution, or those of
    /// a row from the multinomial distribution with its total. Errors are those of the factors on the counts themselves
    #[arg(long, value_name = "HOW", value_parser = words::<Resample>())]
    pub resample: Option<Resample>,
    /// Choose k as another program does [default: by held-out entries or the elbow of the loss, and stability]
    #[arg(long, value_name = "NAME", value_parser = words::<Criterion>())]
    pub criterion: Option<Criterion>,
    /// Missing entries
    #[arg(long, value_name = "WHICH", value_parser = words::<SweepMissing>(), default_value_t = SweepMissing::None)]
    pub missing: SweepMissing,
    /// Most iterations of a run [default: 200; 1000 for divergences]
    #[arg(long, value_name = "N", value_parser = parameters::whole_number)]
    pub max_iters: Option<usize>,
    /// A run ends when in ten iterations the error falls by less than X times the first error, or the divergence by less than X
    /// times itself
    #[arg(long, value_name = "X", default_value_t = 1e-4, value_parser = parameters::any_number)]
    pub tol: f64,
    /// Seed of the first run; the next ones count on
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true, value_parser = parameters::seed)]
    pub seed: u64,
    /// Groups of ranks, each with the whole matrix and one run at a time [default: one for each rank; fewer if memory does not
    /// hold the matrix as often]
    #[arg(long, value_name = "N", value_parser = parameters::whole_number)]
    pub groups: Option<usize>,
    /// Memory that the ranks of a node may use together: 4G, 512M [default: what is free there]. Rows that do not fit are
    /// read from the file a panel at a time, and no entries are held out
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Factorise the transposed matrix
    #[arg(long)]
    pub transpose: bool,
    /// Divide the data by its largest entry
    #[arg(long, value_name = "HOW", value_parser = words::<Scale>(), default_value_t = Scale::None)]
    pub scale: Scale,
    /// Convert to 0/1: entries of at least T become 1. T is a number, or a quantile such as q0.95 (the largest 5 %)
    #[arg(long, allow_negative_numbers = true, value_name = "T")]
    pub binarize: Option<Threshold>,
    #[command(flatten)]
    pub regularization: Group<RegularizationParams>,
    #[command(flatten)]
    pub volume: Group<VolumeParams>,
    #[command(flatten)]
    pub table: Group<TableOptions>,
    #[command(flatten)]
    pub features: FeatureArgs,
    /// No progress on stderr
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl SweepArgs {
    /// What the arguments set in the parameters of a method, with these entries left out.
    pub fn settings(&self, left_out: &MissingParams) -> SweepSettings {
        SweepSettings {
            missing: left_out.clone(),
            regularization: self.regularization.0.clone(),
            volume: self.volume.0.clone(),
        }
    }
}

/// `5..50`, `5..50:5`, `4,8,12`: numbers of components, ascending.
///
/// # Errors
/// If the text has another form.
pub fn numbers(text: &str) -> Result<Vec<usize>> {
    let wrong = || Error::input(format!("--k {text}: write 5..50, 5..50:5 (steps of 5) or 4,8,12"));
    let count = |t: &str| t.trim().parse::<usize>().ok().filter(|&k| k > 0).ok_or_else(wrong);
    let mut all = Vec::new();
    for part in text.split(',') {
        let Some((from, rest)) = part.split_once("..") else {
            all.push(count(part)?);
            continue;
        };
        let (to, step) = rest.split_once(':').unwrap_or((rest, "1"));
        let (from, to, step) = (count(from)?, count(to)?, count(step)?);
        if from > to {
            return Err(Error::input(format!(
                "--k {text}: the range is empty, since {from} > {to}; write {to}..{from}"
            )));
        }
        if to - from > 100_000 {
            return Err(wrong());
        }
        all.extend((from..=to).step_by(step));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_components() {
        assert_eq!(numbers("5..8"), Ok(vec![5, 6, 7, 8]));
        assert_eq!(numbers("2..9:3"), Ok(vec![2, 5, 8]));
        assert_eq!(numbers("8, 4,4"), Ok(vec![4, 8]));
        assert_eq!(numbers("2..4,10"), Ok(vec![2, 3, 4, 10]));
        for wrong in ["", "0..3", "5..", "5..3", "a", "3..9:0", "1..999999999"] {
            assert!(numbers(wrong).is_err_and(|e| e.exit_code() == 2 && e.message.contains("--k")), "{wrong}");
        }
    }
}

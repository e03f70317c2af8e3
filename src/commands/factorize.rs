//! `fednmf` without a subcommand: a factorisation. Its arguments in addition to those of the method, and their checks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use fednmf_base::error::{Error, Result};
use fednmf_base::units::parse_bytes;
use fednmf_comm::watchdog::DEFAULT_LIMIT;
use fednmf_driver::precision::{check_mixed, check_noise};
use fednmf_driver::spec::{
    Consent, Every, Kernel, OnLostParty, Outputs, Place, PrecisionChoice, Requested, SAMPLE_INPUT, Scale, Spec,
    apply_method_requirements,
};
use fednmf_driver::{FactorScale, Limits};
use fednmf_files as data;
use fednmf_files::output::matrices::Format;
use fednmf_files::{InputSpec, TableOptions, Threshold};
use fednmf_methods::federated::columns::asyn::ClockParams;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::parameters;
use fednmf_methods::parameters::count;

use super::report::DisplayArgs;
use crate::cli::features::FeatureArgs;
use crate::cli::parameters::{Group, words};

/// Maximum number of parties of a run; the state of each must fit in memory.
const MOST_PARTIES: usize = 1 << 20;

/// Why zeros cannot be both results of a threshold and missing.
pub const ZEROS_OF_BINARIZE: &str = "--binarize makes 0 of observed entries below the threshold, which --missing zero-unobserved \
                                     would take as missing; mark the missing entries in a file (--missing FILE)";

/// The options of a run that hold for every algorithm.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Method ('fednmf list'). auto: by --loss and the sizes
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = "What to factorise, and how")]
    pub algo: String,

    /// Matrix to factorise: a file, or synthetic:KIND,key=value,... {party} in a path stands for 0, 1, ...: one file per party
    #[arg(short = 'i', long, value_name = "PATH", default_value = SAMPLE_INPUT, help_heading = "What to factorise, and how")]
    pub input: String,

    /// Number of components k
    #[arg(short = 'k', long, aliases = ["k", "n-components"], value_name = "K", default_value = "10", allow_hyphen_values = true,
          value_parser = count(1), help_heading = "What to factorise, and how")]
    pub components: usize,

    /// Factorise the transposed matrix
    #[arg(long, help_heading = "What to factorise, and how")]
    pub transpose: bool,

    #[command(flatten)]
    pub table: Group<TableOptions>,

    #[command(flatten, next_help_heading = "What to factorise, and how")]
    pub features: FeatureArgs,

    /// Divide the data by its largest entry
    #[arg(long, value_name = "HOW", value_parser = words::<Scale>(), default_value_t = Scale::None, help_heading = "What to factorise, and how")]
    pub scale: Scale,

    /// Convert to 0/1: entries of at least T become 1. T is a number, or a quantile such as q0.95: the largest 5 % of all
    /// entries, or fewer where equal ones would exceed them
    #[arg(long, allow_negative_numbers = true, value_name = "T", help_heading = "What to factorise, and how")]
    pub binarize: Option<Threshold>,

    /// Number of parties, each with a block of the data [default: one for each rank]
    #[arg(long, value_name = "N", help_heading = "Parties", value_parser = parameters::whole_number)]
    pub parties: Option<usize>,

    /// Use only the columns whose names are in the files of all parties, in the order of party 0. Parties send keyed digests of the
    /// names, with which other parties can confirm a guessed name
    #[arg(long, help_heading = "Parties")]
    pub common_columns: bool,

    /// Share of the data that party 0 holds; the others share the rest evenly [default: equal shares]
    #[arg(long, allow_negative_numbers = true, value_name = "F", help_heading = "Parties",
          value_parser = parameters::any_number)]
    pub skew: Option<f64>,

    /// File with the number of columns or rows of each party, one per line, party 0 first
    #[arg(long, value_name = "FILE", conflicts_with = "skew", help_heading = "Parties")]
    pub split: Option<PathBuf>,

    /// Stop after N iterations ('fednmf list NAME' defines them) [default: 100; with auto, kl-mu, kl-cd and beta-mu
    /// 1000, and --tol stops earlier]
    #[arg(long, value_name = "N", help_heading = "When to stop, whichever comes first",
          value_parser = parameters::whole_number)]
    pub max_iters: Option<usize>,

    /// Stop when the measure hardly falls: between two evaluations by less than X times its first value. A divergence or an
    /// objective must fall by X times its last value. The measure is the relative error, divergence, RMSD or 1 - F1; with
    /// penalties the objective, with --holdout the error on held-out entries [default: 1e-5 with auto, kl-mu, kl-cd and
    /// beta-mu without --max-iters]
    #[arg(long, allow_negative_numbers = true, value_name = "X", help_heading = "When to stop, whichever comes first",
          value_parser = parameters::any_number)]
    pub tol: Option<f64>,

    /// Stop when the relative error is at most X at an evaluation (--eval-every)
    #[arg(long, allow_negative_numbers = true, value_name = "X", help_heading = "When to stop, whichever comes first",
          value_parser = parameters::any_number)]
    pub target_error: Option<f64>,

    /// Stop at the end of the iteration in which this time of solving has passed: seconds, or as in 90s, 30m, 2h, 1d,
    /// 01:30:00; a resumed run gets as much again
    #[arg(long, allow_negative_numbers = true, value_name = "TIME", help_heading = "When to stop, whichever comes first",
          value_parser = parameters::duration)]
    pub time_limit: Option<f64>,

    /// Evaluate the error every N iterations, and at both ends; 0: never (not part of the trace's seconds) [default: 10; 0 with
    /// --dp, which does not cover evaluations]
    #[arg(long, value_name = "N", help_heading = "Running", value_parser = parameters::whole_number)]
    pub eval_every: Option<usize>,

    /// Seed of all random choices that are not secret: start, sketches, held-out entries. Synthetic data have one of their own
    /// (seed=N)
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true, value_parser = parameters::seed, help_heading = "Running")]
    pub seed: u64,

    /// Arithmetic of the factorisation. mixed: f32 for as long as it lowers the error, then f64. auto: f32 for whole numbers
    /// and for data in f32; f64 for all else, for parties, and for tolerances that f32 cannot resolve
    #[arg(long, value_name = "P", value_parser = words::<PrecisionChoice>(), default_value_t = PrecisionChoice::F64, help_heading = "Running")]
    pub precision: PrecisionChoice,

    /// Threads per rank (provide cores: mpirun --bind-to none, or srun --cpus-per-task)
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Running",
          value_parser = parameters::whole_number)]
    pub threads: usize,

    /// Kernels for products with the data. native: fednmf's own. mkl: those of Intel MKL, if it is built in. auto: mkl
    /// for dense data and k of 32 or more on processors by Intel, otherwise native
    #[arg(long, alias = "sparse-kernel", value_name = "K", value_parser = words::<Kernel>(), default_value_t = Kernel::Native, help_heading = "Running")]
    pub kernel: Kernel,

    /// Write factors and provenance to this file: .h5 (HDF5), .h5ad (AnnData: obsm/X_nmf, varm/NMF) or .npz (NumPy)
    #[arg(short = 'o', long, value_name = "F.h5", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// Scale of the written components: columns of V (or of U) of norm 1, both of equal norm, or as the iterations left them
    /// (sorted, as-found). All but as-found sort them by weight, too [default: unit-v; sorted with --alpha-u or --alpha-v; as-found
    /// for methods with parties]
    #[arg(long, value_name = "HOW", value_parser = words::<FactorScale>(), help_heading = "Output")]
    pub factor_scale: Option<FactorScale>,

    /// Add the factors to this AnnData file, which keeps everything else: obsm/X_nmf, varm/NMF and uns/nmf; may be the input
    #[arg(long, value_name = "F.h5ad", conflicts_with = "output", help_heading = "Output")]
    pub add_to: Option<PathBuf>,

    /// Write the history of the run to this file, one JSON object per line
    #[arg(long, value_name = "F.jsonl", help_heading = "Output")]
    pub trace: Option<PathBuf>,

    /// Record what this rank and its parties send: kind, protection, size and digest of each message, in a signed chain. `fednmf
    /// audit verify` reads it. With several ranks each writes its own file, F.rank-00.jsonl, …
    #[arg(long, value_name = "F.jsonl", help_heading = "Output")]
    pub transcript: Option<PathBuf>,

    /// The file of the key that signs --transcript, which is made if it does not exist [default: F.jsonl.key]
    #[arg(long, value_name = "F.key", requires = "transcript", help_heading = "Output")]
    pub transcript_key: Option<PathBuf>,

    /// Each rank records what it receives, its own data and its factors in F.rank-NN, for 'fednmf audit attack'. The file is as
    /// secret as all of it; slow, for tests of what a method gives away
    #[arg(long, value_name = "F.npz", conflicts_with = "resume", help_heading = "Output")]
    pub record_view: Option<PathBuf>,

    /// Write an HTML report of the run: error, time, traffic, components, command
    #[arg(long, value_name = "F.html", help_heading = "Output")]
    pub report: Option<PathBuf>,

    #[command(flatten)]
    pub display: DisplayArgs,

    /// Save the state of the run in this HDF5 file, for --resume
    #[arg(long, value_name = "F.h5", help_heading = "Output")]
    pub checkpoint: Option<PathBuf>,

    /// Write the checkpoint every N iterations, or after a time (300s, 5m, 1h). A signal or the time limit also writes one
    /// [default: 300s, less often if that takes more than 2 % of the time]
    #[arg(long, value_name = "N|TIME", requires = "checkpoint", help_heading = "Output")]
    pub checkpoint_every: Option<String>,

    /// Continue from the file of --checkpoint; start from the beginning if there is none
    #[arg(long, requires = "checkpoint", help_heading = "Output")]
    pub resume: bool,

    /// End the job when a rank makes no progress for S seconds; 0: never
    #[arg(long, allow_negative_numbers = true, value_name = "S", default_value_t = DEFAULT_LIMIT.as_secs_f64(),
          help_heading = "Running", value_parser = parameters::any_number)]
    pub stall_timeout: f64,

    /// With --clock real (asyn-*): abort the job when a rank hangs, or continue without it (and without checkpoints)
    #[arg(long, value_name = "WHAT", value_parser = words::<OnLostParty>(), default_value_t = OnLostParty::Abort, help_heading = "Running")]
    pub on_lost_party: OnLostParty,

    /// Memory that the ranks of a node may use together: 4G, 512M [default: what is free there]. If data and the
    /// larger one of factors and start need more, methods that can do so read the rows from the file in each iteration. Other runs
    /// are refused. fednmf estimate --json predicts these numbers for each rank (data_bytes, factor_bytes, start_bytes,
    /// streamed_bytes). Not counted: the program itself, and copies while it loads, saves or evaluates
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Running")]
    pub memory: Option<u64>,

    /// Print time and traffic of each phase in the summary
    #[arg(long, short = 'v', conflicts_with = "json", help_heading = "Output")]
    pub verbose: bool,

    /// No progress on stderr; warnings remain
    #[arg(long, short = 'q', help_heading = "Output")]
    pub quiet: bool,

    /// Print the summary as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Iterations between two evaluations, if they are not off by default.
const EVAL_EVERY: usize = 10;

impl RunArgs {
    /// Checks the arguments.
    ///
    /// # Errors
    /// Naming the option that is wrong, and what it should be.
    pub fn check(self, method: Arc<dyn ConfiguredMethod>, words: Vec<String>) -> Result<Spec> {
        let args = self;
        let stop = method.description().stop;
        let requested = Requested::new(method);
        let method = requested.assumed();
        let description = method.description();
        let parties_of_files = args.input.contains("{party}");
        if !description.partition.is_private() {
            if args.parties.is_some() && !parties_of_files {
                return Err(Error::input(format!(
                    "--parties: {} splits the data over ranks, not parties; leave it out, or give one file a party with \
                     {{party}} in --input",
                    description.name
                )));
            }
            if args.skew.is_some() {
                return Err(Error::input(format!(
                    "--skew: {} has no parties to share the data unevenly",
                    description.name
                )));
            }
            if args.split.is_some() {
                return Err(Error::input(format!(
                    "--split: {} has no parties to share the data out to",
                    description.name
                )));
            }
        }
        let factor_scale = FactorScale::of_run(args.factor_scale, method)?;
        if args.factor_scale.is_some() && args.output.is_none() && args.add_to.is_none() && args.report.is_none() {
            return Err(Error::input("--factor-scale: is about the written factors; add --output, or leave it out"));
        }
        positive("--threads", args.threads)?;
        if let Some(parties) = args.parties.filter(|parties| !(1..=MOST_PARTIES).contains(parties)) {
            return Err(Error::input(format!("--parties {parties}: must be from 1 to {MOST_PARTIES}")));
        }
        if let Some(skew) = args.skew.filter(|s| !(*s > 0.0 && *s < 1.0)) {
            return Err(Error::input(format!("--skew {skew}: a share of the data, above 0 and below 1")));
        }
        let RunArgs { tol, target_error, time_limit, .. } = args;
        let noised = method.groups().is_noised();
        if noised && args.eval_every.is_none() && (tol.is_some() || target_error.is_some()) {
            return Err(Error::input(
                "--tol and --target-error need evaluations, which --dp does not cover and which are therefore off; with \
                 --eval-every 10 the run has them, and no formal guarantee as a whole",
            ));
        }
        let eval_every = args.eval_every.unwrap_or(if noised { 0 } else { EVAL_EVERY });
        let (max_iters, tol) = stop.resolve(args.max_iters, tol, eval_every > 0);
        let limits = Limits { max_iters, tol, target_error, time_limit, eval_every };
        limits.check()?;
        limits.check_for(description)?;
        if description.on_shares && args.eval_every.is_some_and(|every| every > 0) {
            return Err(Error::input(format!(
                "--eval-every: {} opens nothing before the end, when it is evaluated once; omit the option, or use \
                 --eval-every 0 for no evaluation",
                description.name
            )));
        }
        // Ten years are practically unlimited, and a clock can represent them.
        if args.stall_timeout != 0.0 && !(1.0..=3e8).contains(&args.stall_timeout) {
            return Err(Error::input(format!(
                "--stall-timeout {}: must be a number of seconds of at least 1, or 0 for no limit",
                args.stall_timeout
            )));
        }
        if args.on_lost_party == OnLostParty::Continue && !method.groups().clock.is_some_and(ClockParams::is_real) {
            return Err(Error::input(
                "--on-lost-party continue: only asyn-sd and asyn-ssd-v with --clock real continue without a rank that hangs; \
                 elsewhere, and whenever a process ends, the MPI libraries that fednmf works with (MPI 3.1) end the whole \
                 job: use --checkpoint and --resume instead",
            ));
        }
        if args.precision == PrecisionChoice::Mixed {
            check_mixed(description, eval_every)?;
        }
        if args.precision == PrecisionChoice::F32 {
            check_noise(method)?;
        }
        if args.report.is_none() && args.display.any() {
            return Err(Error::input(
                "--image, --terms and --report-rows say what a report shows: give --report F.html too",
            ));
        }
        let option = if args.add_to.is_some() { "--add-to" } else { "--output" };
        // A link is followed, so that the file gets the factors and stays where it is.
        let add_to = args.add_to.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
        let output = args.output.or(add_to);
        if let Some(path) = &args.add_to
            && Format::of(path)? != Format::AnnData
        {
            return Err(Error::input(format!(
                "--add-to {}: factors can be added to AnnData files (.h5ad) alone; use --output for a file of its own",
                path.display()
            )));
        }
        if let Some(path) = &output
            && Format::of(path)? == Format::AnnData
            && description.partition.is_private()
        {
            return Err(Error::input(format!(
                "{option} {}: {} works on data of parties, and AnnData is one file for all of it; use --output with a \
                 name that ends in .h5 or .npz",
                path.display(),
                description.name
            )));
        }
        let mut input = InputSpec::parse(&args.input)?;
        input.transpose = args.transpose;
        input.table = args.table.0;
        input.features = args.features.choice();
        input.common_columns = args.common_columns;
        input.scale = if args.scale == Scale::Max { data::Scale::Max } else { data::Scale::None };
        input.binarize = args.binarize;
        apply_method_requirements(&mut input, method, eval_every > 0);
        if input.allow_nan && args.binarize.is_some() {
            return Err(Error::input("--binarize makes 0 of what is missing: it does not go with --missing nan"));
        }
        if method.groups().zeros_are_missing() && args.binarize.is_some() {
            return Err(Error::input(ZEROS_OF_BINARIZE));
        }
        let has_marks = method.groups().missing.is_some_and(|group| group.missing.marks().is_some());
        if has_marks && matches!(args.binarize, Some(Threshold::Quantile(_))) {
            return Err(Error::input(
                "--binarize: a quantile would count the entries that --missing FILE marks; give the threshold itself",
            ));
        }
        input.parties = args.parties;
        input.memory = args.memory;
        input.ask_values = args.precision.given().is_none() && !input.private;
        let report = args.report.map(|path| args.display.check().map(|display| (path, display))).transpose()?;
        Ok(Spec {
            method: requested,
            input,
            input_text: args.input,
            k: args.components,
            parties: args.parties,
            skew: args.skew,
            split: args.split,
            max_iters,
            tol,
            target_error: args.target_error,
            time_limit: args.time_limit,
            continue_on_loss: args.on_lost_party == OnLostParty::Continue,
            eval_every,
            seed: args.seed,
            precision: args.precision.given(),
            kernel: args.kernel.given()?,
            threads: args.threads,
            factor_scale,
            outputs: Outputs { factors: output, add: args.add_to.is_some(), report, place: Place::Anywhere },
            trace: args.trace,
            transcript: args.transcript,
            transcript_key: args.transcript_key,
            record_view: args.record_view,
            checkpoint: args.checkpoint,
            checkpoint_every: args.checkpoint_every.as_deref().map_or(Ok(Every::Auto), every)?,
            stall_timeout: (args.stall_timeout > 0.0).then(|| Duration::from_secs_f64(args.stall_timeout)),
            resume: args.resume,
            quiet: args.quiet,
            verbose: args.verbose,
            json: args.json,
            consent: Consent::default(),
            words,
        })
    }
}

fn positive(name: &str, value: usize) -> Result<()> {
    if value == 0 { Err(Error::input(format!("{name} 0: must be at least 1"))) } else { Ok(()) }
}

/// `50` iterations or `300s`.
fn every(text: &str) -> Result<Every> {
    let iterations = text.parse().ok().filter(|&n| n > 0).map(Every::Iterations);
    let is_number = text.parse::<f64>().is_ok();
    let time =
        || parameters::duration(text).ok().filter(|s| !is_number && *s > 0.0 && s.is_finite()).map(Every::Seconds);
    iterations.or_else(time).ok_or_else(|| {
        Error::input(format!("--checkpoint-every {text}: must be a number of iterations, or a time as in 300s, 5m, 1h"))
    })
}

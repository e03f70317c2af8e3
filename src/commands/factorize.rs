//! `fednmf` without a subcommand: a factorisation. Its arguments beside those of the method, and their checks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::report::WishArgs;
use crate::algorithms::description::Partition;
use crate::algorithms::method::ConfiguredMethod;
use crate::algorithms::parameters::Missing;
use crate::data::{self, InputSpec, Stack, Threshold};
use crate::driver::settings::{Every, Kernel, OnLostParty, Precision, SAMPLE_INPUT, Scale, Settings};
use crate::error::{Error, Result};
use crate::linalg::SparseKernel;
use crate::output::matrices::Format;

/// The options of a run that hold for every algorithm.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Algorithm; `fednmf list` shows them all. auto chooses by the sizes: hals with several sweeps for a product and
    /// extrapolation, or dsanls for very large dense data, and says which and why
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = "What to factorise, and how")]
    pub algo: String,

    /// Matrix: a file, or synthetic:KIND,key=value,... to make one up. {party} in a path stands for 0, 1, ...: one file
    /// for each party
    #[arg(long, value_name = "PATH", default_value = SAMPLE_INPUT, help_heading = "What to factorise, and how")]
    pub input: String,

    /// Number of components k
    #[arg(short = 'k', long, value_name = "K", default_value_t = 10, help_heading = "What to factorise, and how")]
    pub components: usize,

    /// Factorise the transposed matrix
    #[arg(long, help_heading = "What to factorise, and how")]
    pub transpose: bool,

    /// Divide the data by its largest entry
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Scale::None, help_heading = "What to factorise, and how")]
    pub scale: Scale,

    /// Turn the data into 0 and 1: an entry counts from T on, or from the quantile q0.95 (say) of all entries on
    #[arg(long, allow_negative_numbers = true, value_name = "T", help_heading = "What to factorise, and how")]
    pub binarize: Option<Threshold>,

    /// Number of parties, each with a block of the data [default: one for each rank]
    #[arg(long, value_name = "N", help_heading = "Parties")]
    pub parties: Option<usize>,

    /// Share of the data that party 0 holds; the others share the rest evenly [default: all the same]
    #[arg(long, allow_negative_numbers = true, value_name = "F", help_heading = "Parties")]
    pub skew: Option<f64>,

    /// How much of the data each party holds: a file with one count (of columns or rows) on each line, party 0's first
    #[arg(long, value_name = "FILE", conflicts_with = "skew", help_heading = "Parties")]
    pub split: Option<PathBuf>,

    /// Stop after N iterations ('fednmf list NAME' says what one is)
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "When to stop, whichever comes first")]
    pub max_iters: usize,

    /// Stop when from one evaluation to the next the error falls by less than X times the first error
    #[arg(long, allow_negative_numbers = true, value_name = "X", help_heading = "When to stop, whichever comes first")]
    pub tol: Option<f64>,

    /// Stop when the relative error is at most X
    #[arg(long, allow_negative_numbers = true, value_name = "X", help_heading = "When to stop, whichever comes first")]
    pub target_error: Option<f64>,

    /// Stop after S seconds of solving
    #[arg(long, allow_negative_numbers = true, value_name = "S", help_heading = "When to stop, whichever comes first")]
    pub time_limit: Option<f64>,

    /// Evaluate the error every N iterations, and at both ends; 0: never (its time is not part of the trace's seconds)
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Running")]
    pub eval_every: usize,

    /// Seed of all public randomness: start, sketches, synthetic data. The same on any number of ranks
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Running")]
    pub seed: u64,

    /// Arithmetic of the factorisation
    #[arg(long, value_name = "P", value_enum, default_value_t = Precision::F64, help_heading = "Running")]
    pub precision: Precision,

    /// Threads of each rank, beside the ranks of mpirun (let them have cores: --bind-to none, or srun --cpus-per-task)
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Running")]
    pub threads: usize,

    /// Who multiplies sparse blocks: Intel MKL, fednmf's own loops, or for each of the two products whoever is faster on
    /// a million nonzeros at the start (the last digits then hang on a stopwatch; a resumed run keeps the choice)
    #[arg(long, value_name = "K", value_enum, default_value_t = Kernel::Native, help_heading = "Running")]
    pub sparse_kernel: Kernel,

    /// Write the factors and how they were made to this file: HDF5 (.h5), AnnData (.h5ad: obsm/X_nmf, varm/NMF, with the
    /// input's names) or for NumPy (.npz), by its ending
    #[arg(long, value_name = "F.h5", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// Write the course of the run to this file, one JSON object a line
    #[arg(long, value_name = "F.jsonl", help_heading = "Output")]
    pub trace: Option<PathBuf>,

    /// Write a page with everything about the run to this HTML file: error, time, traffic, components, how to run it again
    #[arg(long, value_name = "F.html", help_heading = "Output")]
    pub report: Option<PathBuf>,

    #[command(flatten)]
    pub wishes: WishArgs,

    /// Keep the state of the run in this HDF5 file, so that --resume can go on from it
    #[arg(long, value_name = "F.h5", help_heading = "Output")]
    pub checkpoint: Option<PathBuf>,

    /// Write the checkpoint every N iterations, or every N seconds with an s behind it [default: 300s, more rarely where
    /// that would take more than 2 % of the run's time]; it is also written when a signal or the time limit stops the run
    #[arg(long, value_name = "N|Ns", requires = "checkpoint", help_heading = "Output")]
    pub checkpoint_every: Option<String>,

    /// Go on from the file of --checkpoint; where there is none yet, start afresh
    #[arg(long, requires = "checkpoint", help_heading = "Output")]
    pub resume: bool,

    /// End the job when a rank has done nothing and heard nothing for S seconds, and say where each rank was; 0: never
    #[arg(long, allow_negative_numbers = true, value_name = "S", default_value_t = 600.0, help_heading = "Running")]
    pub stall_timeout: f64,

    /// With --clock real (asyn-*), what to do when a rank keeps silent for --party-timeout: abort the job, or continue with
    /// the others (no checkpoint is written any more). A process that ends, rather than hangs, ends the job in any case:
    /// MPI's launchers see to that
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLostParty::Abort, help_heading = "Running")]
    pub on_lost_party: OnLostParty,

    /// No progress on stderr
    #[arg(long, short = 'q', help_heading = "Output")]
    pub quiet: bool,

    /// Print the summary as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

impl RunArgs {
    /// Checks what was typed.
    ///
    /// # Errors
    /// Naming the option that is wrong, and what it should be.
    pub fn check(self, asked: Arc<dyn ConfiguredMethod>, words: Vec<String>) -> Result<Settings> {
        let args = self;
        let chosen = asked.choose(None);
        let automatic = chosen.as_ref().map(|choice| choice.why);
        let method = chosen.map_or_else(|| asked.clone(), |choice| choice.method);
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
                return Err(Error::input(format!("--skew: {} has no parties to share the data unevenly", description.name)));
            }
            if args.split.is_some() {
                return Err(Error::input(format!("--split: {} has no parties to share the data out to", description.name)));
            }
        }
        positive("--components", args.components)?;
        positive("--threads", args.threads)?;
        if args.parties == Some(0) {
            return Err(Error::input("--parties 0: at least one party has the data"));
        }
        if let Some(skew) = args.skew.filter(|s| !(*s > 0.0 && *s < 1.0)) {
            return Err(Error::input(format!("--skew {skew}: a share of the data, above 0 and below 1")));
        }
        for (name, value) in
            [("--tol", args.tol), ("--target-error", args.target_error), ("--time-limit", args.time_limit)]
        {
            if let Some(x) = value.filter(|x| !(*x >= 0.0 && x.is_finite())) {
                return Err(Error::input(format!("{name} {x}: must be a number of at least 0")));
            }
        }
        // Ten years are as good as for ever, and a clock can count them.
        if !(0.0..=3e8).contains(&args.stall_timeout) {
            return Err(Error::input(format!(
                "--stall-timeout {}: must be a number of seconds, 0 for no limit",
                args.stall_timeout
            )));
        }
        if args.on_lost_party == OnLostParty::Continue && !method.groups().real_time {
            return Err(Error::input(
                "--on-lost-party continue: only asyn-sd and asyn-ssd-v with --clock real go on without a rank that hangs; \
                 elsewhere, and whenever a process ends, the MPI libraries that fednmf works with (MPI 3.1) end the whole \
                 job: use --checkpoint and --resume instead",
            ));
        }
        if args.eval_every == 0 && (args.tol.is_some() || args.target_error.is_some()) {
            return Err(Error::input("--tol and --target-error need evaluations: --eval-every must not be 0"));
        }
        if args.report.is_none() && args.wishes.any() {
            return Err(Error::input(
                "--image, --terms and --report-rows say what a report shows: give --report F.html too",
            ));
        }
        if let Some(path) = &args.output
            && Format::of(path)? == Format::AnnData
            && description.partition.is_private()
        {
            return Err(Error::input(format!(
                "--output {}: of the factors of {} one stays with each party, and AnnData has one file for all; end the name in \
                 .h5 or .npz",
                path.display(),
                description.name
            )));
        }
        let mut input = InputSpec::parse(&args.input)?;
        input.transpose = args.transpose;
        input.scale = if args.scale == Scale::Max { data::Scale::Max } else { data::Scale::None };
        input.allow_negative = description.allows_negative;
        input.binarize = args.binarize;
        input.allow_nan = method.groups().missing.is_some_and(|group| group.missing == Missing::Nan);
        if input.allow_nan && args.binarize.is_some() {
            return Err(Error::input("--binarize makes 0 of what is missing: it does not go with --missing nan"));
        }
        input.parties = args.parties;
        input.stack = if description.partition == Partition::PartyColumns { Stack::Columns } else { Stack::Rows };
        Ok(Settings {
            method,
            automatic,
            chooser: asked,
            input,
            input_text: args.input,
            k: args.components,
            parties: args.parties,
            skew: args.skew,
            split: args.split,
            max_iters: args.max_iters,
            tol: args.tol,
            target_error: args.target_error,
            time_limit: args.time_limit,
            carry_on: args.on_lost_party == OnLostParty::Continue,
            eval_every: args.eval_every,
            seed: args.seed,
            precision: args.precision,
            kernel: match args.sparse_kernel {
                Kernel::Mkl => Some(SparseKernel::Mkl),
                Kernel::Native => Some(SparseKernel::Native),
                Kernel::Auto => None,
            },
            threads: args.threads,
            output: args.output,
            trace: args.trace,
            report: args.report.map(|path| args.wishes.check().map(|wishes| (path, wishes))).transpose()?,
            checkpoint: args.checkpoint,
            checkpoint_every: args.checkpoint_every.as_deref().map_or(Ok(Every::Auto), every)?,
            stall_timeout: (args.stall_timeout > 0.0).then(|| Duration::from_secs_f64(args.stall_timeout)),
            resume: args.resume,
            quiet: args.quiet,
            json: args.json,
            words,
        })
    }
}

fn positive(name: &str, value: usize) -> Result<()> {
    if value == 0 { Err(Error::input(format!("{name} 0: must be at least 1"))) } else { Ok(()) }
}

/// `50` iterations or `300s`.
fn every(text: &str) -> Result<Every> {
    let parsed = match text.strip_suffix('s') {
        Some(seconds) => seconds.parse().ok().filter(|s: &f64| *s > 0.0 && s.is_finite()).map(Every::Seconds),
        None => text.parse().ok().filter(|&n| n > 0).map(Every::Iterations),
    };
    parsed.ok_or_else(|| {
        Error::input(format!("--checkpoint-every {text}: must be a number of iterations, or of seconds as in 300s"))
    })
}

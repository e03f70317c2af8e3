//! What can be typed: the options every algorithm understands, and the subcommands. The options of single algorithms
//! are added from the registry.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{AccountArgs, EstimateArgs};
use crate::data::Threshold;
use crate::data::names;
use crate::error::Result;
use crate::report::{Wishes, image_size};

#[derive(Debug, Parser)]
#[command(
    name = "fednmf",
    version,
    about = "Nonnegative and Boolean matrix factorisation over MPI ranks, and over parties that may not show each other \
             their data",
    long_about = "Factorises M (m x n) into U V' with U (m x k) and V (n x k), both without negative entries.\n\n\
                  Run it alone or under MPI:\n  \
                  fednmf --input counts.mtx -k 20 --output factors.h5\n  \
                  mpirun -n 16 fednmf --algo dsanls --input images.npy -k 40 --trace run.jsonl",
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 75 stopped early with a good checkpoint (run \
                  again with --resume).\n'fednmf list' shows the algorithms; 'fednmf list NAME' one of them with its \
                  options and defaults.",
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// What is factorised where no matrix is named.
pub const SAMPLE_INPUT: &str = "synthetic:planted";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    F64,
    F32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scale {
    None,
    Max,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    Mkl,
    Native,
    Auto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnLostParty {
    Abort,
    Continue,
}

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

/// What `fednmf attack` is told.
#[derive(Debug, Args)]
pub struct AttackArgs {
    /// The file of --record-releases
    pub releases: PathBuf,
    /// The matrix to compare with [default: the run's own --input]
    #[arg(long, value_name = "PATH")]
    pub input: Option<String>,
    /// Write what was found as the matrix M of this HDF5 file
    #[arg(long, value_name = "F.h5")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a report shows of factors and data.
#[derive(Debug, Args)]
pub struct WishArgs {
    /// Report: show components as images of this height and width, where a row or column of the matrix is one
    #[arg(long, value_name = "HxW", help_heading = "Output")]
    pub image: Option<String>,

    /// Report: show components by their top terms, with the names in this file, one a line (FILE:2: its second column,
    /// between tabs); AnnData and 10x files bring names along
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub terms: Option<String>,

    /// Report: number of rows to show beside their reconstruction [default: 6]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub report_rows: Option<usize>,
}

impl WishArgs {
    /// What was typed, checked; the list of names is read.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    pub fn check(&self) -> Result<Wishes> {
        let image = self.image.as_deref().map(image_size).transpose()?;
        let names = self.terms.as_deref().map(names::list).transpose()?;
        Ok(Wishes { image, names, rows: self.report_rows.unwrap_or(6) })
    }

    /// Whether anything was typed.
    pub fn any(&self) -> bool {
        self.image.is_some() || self.terms.is_some() || self.report_rows.is_some()
    }
}

/// `fednmf project`.
#[derive(Debug, Args)]
pub struct ProjectArgs {
    /// File with V, as --output writes it (.h5, .h5ad, .npz)
    pub factors: PathBuf,
    /// The new matrix: any input that a run takes, with the columns of the old one
    #[arg(long, value_name = "PATH")]
    pub input: String,
    /// Write the new U, and V as it was, to this file (.h5, .h5ad, .npz)
    #[arg(long, value_name = "F.h5")]
    pub output: Option<PathBuf>,
    /// Transpose the new matrix
    #[arg(long)]
    pub transpose: bool,
    /// No progress on stderr
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `fednmf sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Numbers of components: 5..50, 5..50:5 (in steps of 5) or 4,8,12
    #[arg(long = "k", short = 'k', value_name = "KS")]
    pub components: String,
    /// Matrix: any input that a run takes
    #[arg(long, value_name = "PATH")]
    pub input: String,
    /// Directory for the results: the factors of each run, sweep.json and sweep.html. What is there already is not done
    /// again
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Runs for each k, with different starts and entries held out
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub runs: usize,
    /// hals or mu
    #[arg(long, value_name = "NAME", default_value = "hals")]
    pub algo: String,
    /// Share of the observed entries that a run does not see; 0: none, and each run is faster
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub holdout: f64,
    /// Entries that say nothing: none, nan, zero-unobserved
    #[arg(long, value_name = "WHICH", default_value = "none")]
    pub missing: String,
    /// Most iterations of a run
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_iters: usize,
    /// A run ends when in ten iterations the error falls by less than X times the first error
    #[arg(long, value_name = "X", default_value_t = 1e-4)]
    pub tol: f64,
    /// Seed of the first run; the next ones count on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Groups of ranks, each with the whole matrix and one run at a time [default: one for each rank]
    #[arg(long, value_name = "N")]
    pub groups: Option<usize>,
    /// Factorise the transposed matrix
    #[arg(long)]
    pub transpose: bool,
    /// No progress on stderr
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `fednmf report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files that --trace wrote, one for each run
    #[arg(required = true)]
    pub traces: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "F.html")]
    pub output: PathBuf,
    /// Factors of the run, as --output wrote them [default: where the trace says that they are; several runs: each its own]
    #[arg(long, value_name = "F.h5")]
    pub factors: Option<PathBuf>,
    /// The matrix, for rows beside their reconstruction [default: the one that the trace names, unless it is large]
    #[arg(long, value_name = "PATH")]
    pub input: Option<String>,
    #[command(flatten)]
    pub wishes: WishArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the algorithms: paper, partition, what leaves a party; with a NAME also its options and their defaults
    List {
        /// One algorithm
        name: Option<String>,
        /// The whole reference as Markdown: algorithms, and every option with its default for each of them
        #[arg(long, conflicts_with = "name")]
        markdown: bool,
        /// With a NAME: only what leaves a party, as a table
        #[arg(long, requires = "name")]
        wire: bool,
    },
    /// Write a synthetic matrix to a file
    Generate {
        /// synthetic:KIND,key=value,... (the word synthetic: may be left out)
        spec: String,
        /// .mtx, .mtx.gz, .npy
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Tell what a matrix is: shape, density, range, zero rows and columns
    Inspect {
        /// Any input that a run takes
        input: String,
        /// Look at the transposed matrix
        #[arg(long)]
        transpose: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compute the relative error of factors against a matrix
    Evaluate {
        /// File with U and V, as --output writes it (.h5, .h5ad, .npz)
        factors: PathBuf,
        /// Any input that a run takes
        #[arg(long, value_name = "PATH")]
        input: String,
        /// Compare with the transposed matrix
        #[arg(long)]
        transpose: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Find U for the rows of a new matrix, with the V of an earlier run: least squares with nonnegative weights, exactly
    Project(ProjectArgs),
    /// Try several numbers of components with several seeds each, in one job: error on entries held out, stability of the
    /// components, and which k they speak for
    Sweep(SweepArgs),
    /// Make one page of one or several runs: error over time and iterations, time per phase and rank, traffic, components
    Report(ReportArgs),
    /// Compute the data from the sketches that a dsanls-secure run has released (--record-releases), as any of its parties
    /// could, and tell after each release how much of it is known: Theorem 3 of the paper
    Attack(AttackArgs),
    /// Tell memory, work, traffic and time of an iteration before it is run, and how many ranks are worth asking for.
    /// Rates are measured on the spot: start it with mpirun -n 2 to measure the way between ranks too
    Estimate(Box<EstimateArgs>),
    /// Tell what releases under differential privacy cost, or how much noise a budget asks for; needs no data
    Account(AccountArgs),
    /// Print a completion script for a shell
    Completions {
        /// bash, zsh, fish, elvish, powershell
        shell: clap_complete::Shell,
    },
    /// Print the man page
    Man,
}

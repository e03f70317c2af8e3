//! The subcommands, and the arguments of a run that hold for every method.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands::account::AccountArgs;
use crate::commands::attack::AttackArgs;
use crate::commands::estimate::EstimateArgs;
use crate::commands::factorize::RunArgs;
use crate::commands::project::ProjectArgs;
use crate::commands::report::ReportArgs;
use crate::commands::sweep::SweepArgs;

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

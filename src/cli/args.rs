//! The subcommands, and the arguments of a run that hold for every method.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use fednmf_base::units::parse_bytes;
use fednmf_files::TableOptions;

use super::parameters::Group;
use super::reference::Page;
use crate::commands::account::AccountArgs;
use crate::commands::audit::AuditArgs;
use crate::commands::choose::ChooseArgs;
use crate::commands::clusters::ClustersArgs;
use crate::commands::estimate::EstimateArgs;
use crate::commands::evaluate::EvaluateArgs;
use crate::commands::factorize::RunArgs;
use crate::commands::predict::PredictArgs;
use crate::commands::prepare::PrepareArgs;
use crate::commands::programs::ProgramsArgs;
use crate::commands::project::ProjectArgs;
use crate::commands::report::ReportArgs;
use crate::commands::sweep::SweepArgs;
use crate::commands::top::TopArgs;
#[cfg(feature = "sites")]
use crate::commands::{approve::ApproveArgs, join::JoinArgs, keygen::KeygenArgs, serve::ServeArgs};

#[derive(Debug, Parser)]
#[command(
    name = "fednmf",
    version,
    about = "Nonnegative and Boolean matrix factorisation over MPI ranks and private parties: M (m x n) into U V' with \
             U (m x k) and V (n x k)\n\n  fednmf --input counts.mtx -k 20 --output factors.h5\n  mpirun -n 16 fednmf \
             --input images.npy -k 40 --trace run.jsonl",
    override_usage = "fednmf FILE [OPTIONS]\n       fednmf COMMAND [OPTIONS]",
    after_help = "'fednmf --algo NAME --help' shows the options of a method too, and 'fednmf list' all methods.\n\
                  If an option is given twice, the last one counts, so that scripts can have defaults; the values of a list \
                  are joined.\n\
                  Exit codes: 0 done, 1 failed, 2 wrong usage or input, 75 stopped early with a checkpoint (continue with \
                  --resume).",
    disable_help_flag = true,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: RunArgs,
    /// Print help
    #[arg(long, short, action = clap::ArgAction::HelpShort, global = true, help_heading = "Help and colours")]
    help: Option<bool>,
    /// Colours of messages; auto: on terminals, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_short_help = true,
        help_heading = "Help and colours"
    )]
    color: clap::ColorChoice,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the methods: with a NAME one of them, with its options, limits and messages
    List {
        /// One method
        name: Option<String>,
        /// A page of the reference as Markdown, or a table for another page
        #[arg(
            long,
            value_name = "PAGE",
            value_enum,
            conflicts_with = "name",
            num_args = 0..=1,
            require_equals = true,
            default_missing_value = "methods"
        )]
        markdown: Option<Page>,
        /// With a NAME: only the messages that leave a rank or party, as a table
        #[arg(long, requires = "name")]
        wire: bool,
    },
    /// Write a synthetic matrix to a file
    Generate {
        /// synthetic:KIND,key=value,... (the word synthetic: may be left out): planted, blocks, tiles, sparse,
        /// exponential or graph. Keys are m, n, k, seed, noise (0: none), density and others, which an unknown key lists. The noise of
        /// exponential makes some entries negative, which only ppdnmf and admm take
        spec: String,
        /// The file; its name says the format: .npy or .mtx for a dense matrix, .npz (SciPy), .mtx or .h5ad for a sparse one
        #[arg(short = 'o', long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Make a matrix from raw data: counts at a common total, tf-idf weights, ones above a quantile of each column, or a column for
    /// each value of a table (one-hot). Parties prepare their files together, by masked sums
    Prepare(Box<PrepareArgs>),
    /// Write the files of cNMF from finished runs: programmes of cells, their usages, spectra and scores of genes.
    /// Parties need masked sums only
    Programs(Box<ProgramsArgs>),
    /// Describe a matrix: shape, density, range, zero rows and columns
    Inspect {
        /// Any input that a run takes
        input: String,
        /// Look at the transposed matrix
        #[arg(long)]
        transpose: bool,
        #[command(flatten)]
        table: Group<TableOptions>,
        /// Memory that the ranks of a node may use together: 4G, 512M [default: what is free there]. Rows that do not fit are read
        /// from the file a panel at a time
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        memory: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure how factors fit a matrix: relative error, and F1 or divergence where the method is about these
    Evaluate(EvaluateArgs),
    /// Compute U for new rows with V of an earlier run: the best one by the loss of that run
    Project(ProjectArgs),
    /// Predict single entries of U V': what a user would give an item, for pairs of a row and a column
    Predict(PredictArgs),
    /// List the top columns of each component: those with the largest weights, or those that mark it (terms, marker genes)
    Top(TopArgs),
    /// Assign each row to a component: the one that it belongs to most; compares with known clusters
    Clusters(ClustersArgs),
    /// Compare numbers of components: error on held-out entries and stability over several runs of each, and which k they support
    Sweep(Box<SweepArgs>),
    /// Choose k from finished runs, by the rules of sweep: for methods of parties, which it does not run
    Choose(ChooseArgs),
    /// Write an HTML report of runs: error over time and iterations, phases, traffic, components
    Report(ReportArgs),
    /// Verify what a site sent, judge and release its results, or attack what a party received in a run with --record-view
    Audit(AuditArgs),
    /// Take part in a run of parties on different machines, each with its own data: the options of a run, and where the hub is
    #[cfg(feature = "sites")]
    Join(Box<JoinArgs>),
    /// Show a proposed run (join --propose): what it does and sends; with --as a person approves or refuses it, with a key for the site's name
    #[cfg(feature = "sites")]
    Approve(ApproveArgs),
    /// Run the hub of such a run: it relays messages between the sites, which dial out to it, and reads none of them
    #[cfg(feature = "sites")]
    Serve(ServeArgs),
    /// Make a CA and certificates for testing: for a hub and its sites
    #[cfg(feature = "sites")]
    Keygen(KeygenArgs),
    /// Predict memory, traffic and time: work per iteration and a recommended number of ranks too. Rates are measured on this
    /// machine; under mpirun -n 2 those of messages too
    Estimate(Box<EstimateArgs>),
    /// Compute the privacy loss of releases, or the noise that a budget requires; needs no data
    Account(AccountArgs),
    /// Print a completion script for a shell
    Completions {
        /// bash, zsh, fish, elvish, powershell
        shell: clap_complete::Shell,
    },
    /// Print the man page
    Man {
        /// Write the man pages of the program and of each command into this directory
        #[arg(short = 'o', long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}

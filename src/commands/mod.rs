//! One file or folder for each subcommand; [`perform`] dispatches to them.

mod attack;
pub mod estimate;
mod project;
mod report;
mod sweep;
mod tools;

use crate::cli::{Command, Settings, Typed};
use crate::comm::Communicator;
use crate::error::{EXIT_DONE, Result};

/// Does what was typed, on all ranks of `comm`; the exit code. Collective.
///
/// # Errors
/// As the run or the subcommand.
pub fn perform(typed: Typed, comm: &Communicator) -> Result<i32> {
    match typed {
        Typed::Run(args, matches) => {
            let words = std::env::args().collect();
            let settings = Settings::check(*args, &matches, words).map_err(|e| e.on_all_ranks())?;
            crate::driver::run(&settings, comm)
        }
        Typed::Command(Command::Generate { spec, output }) => tools::generate(&spec, &output, comm),
        Typed::Command(Command::Inspect { input, transpose, json }) => tools::inspect(&input, transpose, json, comm),
        Typed::Command(Command::Evaluate { factors, input, transpose, json }) => {
            tools::evaluate(&factors, &input, transpose, json, comm)
        }
        Typed::Command(Command::Attack(args)) => attack::attack(&args, comm),
        Typed::Command(Command::Project(args)) => project::project(&args, comm),
        Typed::Command(Command::Sweep(args)) => sweep::sweep(&args, comm),
        Typed::Command(Command::Report(args)) => report::report(&args, comm),
        Typed::Command(Command::Estimate(args)) => {
            let question = args.check().map_err(|e| e.on_all_ranks())?;
            estimate::estimate(&question, comm)
        }
        Typed::Command(_) | Typed::Text(_) => Ok(EXIT_DONE),
    }
}

//! From what was typed to what is done.

use crate::cli::{Command, Settings, Typed};
use crate::comm::Door;
use crate::error::{EXIT_DONE, Result};
use crate::estimate;

/// Does what was typed, on all ranks of `door`; the exit code. Collective.
///
/// # Errors
/// As the run or the subcommand.
pub fn perform(typed: Typed, door: &Door) -> Result<i32> {
    match typed {
        Typed::Run(args, matches) => {
            let words = std::env::args().collect();
            let settings = Settings::check(*args, &matches, words).map_err(|e| e.on_all_ranks())?;
            super::run(&settings, door)
        }
        Typed::Command(Command::Generate { spec, output }) => super::generate(&spec, &output, door),
        Typed::Command(Command::Inspect { input, transpose, json }) => super::inspect(&input, transpose, json, door),
        Typed::Command(Command::Evaluate { factors, input, transpose, json }) => {
            super::evaluate(&factors, &input, transpose, json, door)
        }
        Typed::Command(Command::Attack(args)) => super::attack(&args, door),
        Typed::Command(Command::Project(args)) => super::project(&args, door),
        Typed::Command(Command::Sweep(args)) => super::sweep(&args, door),
        Typed::Command(Command::Report(args)) => super::report(&args, door),
        Typed::Command(Command::Estimate(args)) => {
            let question = args.check().map_err(|e| e.on_all_ranks())?;
            estimate::estimate(&question, door)
        }
        Typed::Command(_) | Typed::Text(_) => Ok(EXIT_DONE),
    }
}

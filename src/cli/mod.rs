//! The command line: from what was typed ([`args`]) to checked settings ([`check`]), before anything is read.

mod account;
mod args;
mod check;
mod estimate;
mod info;
mod reference;

pub use account::AccountArgs;
pub use args::{
    AttackArgs, Cli, Command, Kernel, Precision, ProjectArgs, ReportArgs, RunArgs, SAMPLE_INPUT, Scale, SweepArgs,
};
pub use check::{Every, Settings};
pub use estimate::EstimateArgs;
pub use info::print_info;
pub use reference::algorithms;

use std::io::IsTerminal as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::algorithms::options;
use crate::algorithms::options::Check;
use crate::algorithms::registry;
use crate::error::{Error, Result};

/// The whole parser: the derived part and every option of the registry.
pub fn command() -> clap::Command {
    let mut command = Cli::command();
    for opt in options::ALL {
        let takers: Vec<&str> =
            registry::ALL.iter().filter(|m| m.options.iter().any(|t| t.opt.name == opt.name)).map(|m| m.name).collect();
        let mut arg = clap::Arg::new(opt.name)
            .long(opt.name)
            .help(format!("{} (for {})", opt.help, takers.join(", ")))
            .help_heading("Options of some algorithms");
        arg = match opt.check {
            Check::Flag => arg.action(clap::ArgAction::SetTrue),
            // Negative numbers reach our own check, which says what the option wants.
            _ => arg.value_name(opt.value).allow_hyphen_values(true),
        };
        command = command.arg(arg);
    }
    command
}

/// What was typed, parsed.
pub enum Typed {
    /// Nothing to run: print this and end with 0 (`--help`, `--version`).
    Text(String),
    Command(Command),
    Run(Box<RunArgs>, ArgMatches),
}

/// Parses the command line.
///
/// # Errors
/// With clap's own message, which names the option and what to do.
pub fn parse(words: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Typed> {
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(e) if !e.use_stderr() => {
            let text = e.render();
            let terminal = std::io::stdout().is_terminal();
            return Ok(Typed::Text(if terminal { text.ansi().to_string() } else { text.to_string() }));
        }
        Err(e) => {
            // Who types `fednmf counts.mtx` means a matrix.
            if let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) =
                (e.kind(), e.get(ContextKind::InvalidSubcommand))
                && (word.contains(['.', '/']) || std::path::Path::new(word).exists())
            {
                return Err(Error::input(format!(
                    "{word}: is no subcommand; to factorise a file: fednmf --input {word}, to look at it: fednmf inspect {word}"
                )));
            }
            let text = e.render().to_string();
            return Err(Error::input(text.trim_start_matches("error: ").trim_end().to_string()));
        }
    };
    let cli = Cli::from_arg_matches(&matches).map_err(|e| Error::input(e.render().to_string()))?;
    Ok(match cli.command {
        Some(command) => Typed::Command(command),
        None => Typed::Run(Box::new(cli.run), matches),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn wrong_options_are_refused_in_words() {
        let parse = |words: &str| parse(words.split(' ').map(Into::into));
        assert!(matches!(parse("fednmf counts.mtx"), Err(e) if e.message.contains("--input counts.mtx")));
        assert!(matches!(parse("fednmf --algo hals"), Ok(Typed::Run(..))));
        assert!(matches!(parse("fednmf --help"), Ok(Typed::Text(t)) if t.contains("--sketch-size")));
        for wrong in ["fednmf --nosuch", "fednmf -k x", "fednmf --precision f16", "fednmf nosuch", "fednmf --resume"] {
            assert!(matches!(parse(wrong), Err(e) if e.exit_code() == 2), "{wrong}");
        }
    }
}

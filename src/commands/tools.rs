//! The subcommands that make or describe a matrix: `generate`, `inspect`.

use std::io::IsTerminal as _;
use std::path::Path;

use serde_json::json;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::printable::printable;
use fednmf_base::stdout::{for_people, print_line};
use fednmf_comm::{Communicator, Signals};
use fednmf_driver::inspect;
use fednmf_driver::progress::Progress;
use fednmf_files as data;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_files::{InputSpec, Source, TableOptions};

/// `fednmf generate`: rank 0 writes, the others wait.
///
/// # Errors
/// When the specification is wrong or the file cannot be written.
pub fn generate(spec: &str, output: &Path, comm: &Communicator) -> Result<i32> {
    let text = if spec.starts_with("synthetic:") { spec.to_string() } else { format!("synthetic:{spec}") };
    let parsed = InputSpec::parse(&text).map_err(Error::on_all_ranks)?;
    let Source::Synthetic(synthetic) = &parsed.source else {
        return Err(Error::input(format!("{spec}: no kind of synthetic matrix")).on_all_ranks().into());
    };
    let mut progress = Progress::new(comm.is_root(), None);
    let generate = |progress: &mut Progress| {
        targets::check(&[Target { option: "--output", path: output, content: Content::Marked }], &[])?;
        let signals = Signals::catch()?;
        let mut step = |part| {
            progress.loading(part);
            signals.check()
        };
        data::generate(synthetic, output, &mut step).map_err(|e| signals.or_stopped(output, e))
    };
    let written = if comm.is_root() { generate(&mut progress) } else { Ok(()) };
    comm.agree_on_error(written)?;
    progress.finish();
    if synthetic.may_be_negative() {
        progress.note(
            "the noise makes some entries negative, as in the data of the PPDNMF paper: only ppdnmf and admm take them; with noise=0 \
             there are none",
        );
    }
    Ok(EXIT_DONE)
}

/// The matrix that the arguments of `inspect` name.
///
/// # Errors
/// If the name cannot be parsed.
pub fn matrix(input: &str, transpose: bool, table: TableOptions, memory: Option<u64>) -> Result<InputSpec> {
    Ok(InputSpec { transpose, table, memory, ..InputSpec::parse(input)? })
}

/// `fednmf inspect`: describes a matrix.
///
/// # Errors
/// When it cannot be read.
pub fn inspect(spec: &InputSpec, as_json: bool, comm: &Communicator) -> Result<i32> {
    let mut progress = Progress::new(comm.is_root(), None);
    let summary = inspect::inspect(spec, comm, &mut |part| progress.loading(part))?;
    progress.notes(&summary.notes);
    progress.finish();
    if comm.is_root() {
        let value = json!(summary);
        if as_json {
            print_line(&value.to_string())?;
        } else {
            let terminal = std::io::stdout().is_terminal();
            for (name, value) in value.as_object().into_iter().flatten() {
                let plain = match value.as_str() {
                    Some(text) => printable(text),
                    None if terminal => for_people(&value.to_string()),
                    None => value.to_string(),
                };
                print_line(&format!("{:<12} {plain}", name.replace('_', " ")))?;
            }
        }
    }
    Ok(EXIT_DONE)
}

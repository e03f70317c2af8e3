//! What accompanies the factors of a run in its output: names of rows and columns, and the history of evaluations.

use serde_json::{Map, Value};

use super::report;
use super::settings::Settings;
use crate::comm::Communicator;
use crate::data::{InputSpec, names};
use crate::output::matrices::{Annotations, Format};
use crate::output::trace::Trace;

/// The input's names of rows and columns, for an output in AnnData's format; empty for other formats, and on ranks other
/// than 0.
pub fn annotations(output: Option<&std::path::Path>, input: &InputSpec, comm: &Communicator) -> Annotations {
    let wanted = output.is_some_and(|path| Format::of(path) == Ok(Format::AnnData)) && comm.is_root();
    let names = if wanted { names::of_input(input) } else { names::Names::default() };
    Annotations { rows: names.rows, columns: names.columns, transposed: names.turned, history: Map::new() }
}

/// Whether an output needs the events of the trace at the end of the run.
pub fn needs_history(settings: &Settings) -> bool {
    let output = settings.output.as_deref();
    settings.report.is_some() || output.is_some_and(|path| Format::of(path) == Ok(Format::AnnData))
}

/// The evaluations so far: one list per measure.
pub fn history(settings: &Settings, trace: &Trace) -> Map<String, Value> {
    let Ok(history) = report::history(settings, trace) else { return Map::new() };
    let mut lists = Map::<String, Value>::new();
    let names = history.evaluations.iter().filter_map(Value::as_object).flat_map(Map::iter);
    for name in names.filter(|(_, x)| x.is_number()).map(|(name, _)| name) {
        if !lists.contains_key(name) {
            lists.insert(name.clone(), history.evaluations.iter().map(|e| e[name].clone()).collect());
        }
    }
    lists
}

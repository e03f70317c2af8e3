//! What goes with the factors of a run into its output.

use serde_json::{Map, Value};

use super::report;
use super::settings::Settings;
use crate::comm::Communicator;
use crate::data::{InputSpec, names};
use crate::output::matrices::{Cells, Kind};
use crate::output::trace::Trace;

/// The names that the input brings along, for an output in AnnData's format; nothing for another, and on other ranks
/// than rank 0.
pub fn cells(output: Option<&std::path::Path>, input: &InputSpec, comm: &Communicator) -> Cells {
    let wanted = output.is_some_and(|path| Kind::of(path) == Ok(Kind::AnnData)) && comm.is_root();
    let names = if wanted { names::of_input(input) } else { names::Names::default() };
    Cells { rows: names.rows, columns: names.columns, turned: names.turned, course: Map::new() }
}

/// Whether events of the trace must be kept in memory for what is written at the end.
pub fn wants_course(settings: &Settings) -> bool {
    let output = settings.output.as_deref();
    settings.report.is_some() || output.is_some_and(|path| Kind::of(path) == Ok(Kind::AnnData))
}

/// The evaluations so far, a list for each measure.
pub fn course(settings: &Settings, trace: &Trace) -> Map<String, Value> {
    let Ok(course) = report::course(settings, trace) else { return Map::new() };
    let mut lists = Map::<String, Value>::new();
    let names = course.evaluations.iter().filter_map(Value::as_object).flat_map(Map::iter);
    for name in names.filter(|(_, x)| x.is_number()).map(|(name, _)| name) {
        if !lists.contains_key(name) {
            lists.insert(name.clone(), course.evaluations.iter().map(|e| e[name].clone()).collect());
        }
    }
    lists
}

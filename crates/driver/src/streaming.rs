//! Data that do not fit into memory: their rows are read from the file in each pass.

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::loaded::check_nonzero;
use fednmf_data::memory;
use fednmf_data::{GridChooser, Layout, Loaded, Panels};
use fednmf_files::{EntryCheck, Input};
use fednmf_linalg::Real;

use super::plan::{Storage, storage};

/// Loads a matrix as planned. If its rows stay in the file, the panels have as many rows as memory has room for, and a note
/// says so. Collective.
///
/// # Errors
/// On all ranks, if not even the smallest panels fit, all entries are zero, or as [`Input::load_checked`].
pub fn load<T: Real>(
    input: Input,
    requested: (&Layout, Option<GridChooser>),
    storage: &Storage,
    check: Option<EntryCheck<'_, T>>,
    comm: &Communicator,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<(Loaded<T>, Option<String>)> {
    let (loaded, note) = load_any::<T>(input, requested, storage, check, comm, progress)?;
    check_nonzero(&loaded.statistics).map_err(Error::on_all_ranks)?;
    Ok((loaded, note))
}

/// As [`load`], but accepts a matrix of zeros.
fn load_any<T: Real>(
    input: Input,
    (layout, choose): (&Layout, Option<GridChooser>),
    storage: &Storage,
    check: Option<EntryCheck<'_, T>>,
    comm: &Communicator,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<(Loaded<T>, Option<String>)> {
    let Storage::Streamed { lack, besides_panels } = storage else {
        return Ok((input.load_checked::<T>(layout, choose, check, comm, progress)?, None));
    };
    let rows = input.rows::<T>(comm)?;
    let nodes = memory::nodes(besides_panels + rows.beside + rows.least(), input.spec().memory, comm);
    if let Some(node) = nodes.iter().find(|node| node.lacks()) {
        let (least, remedy) = (node.lack(), node.remedy());
        let message = format!("{lack}; even if the rows are read from the file in each iteration, {least}; {remedy}");
        return Err(Error::input(message).on_all_ranks());
    }
    let spare = nodes.iter().map(|node| (node.free - node.need) / node.ranks() as f64).fold(f64::INFINITY, f64::min);
    let room = rows.least() + spare;
    let loaded = input.stream::<T>(rows, room, comm, progress)?;
    let in_panel = loaded.panels.as_ref().map_or(0, Panels::rows);
    let note = format!("the rows are read from the file in each pass, {in_panel} at a time: {lack}");
    Ok((loaded, Some(note)))
}

/// Loads the whole rows of each rank for a computation that holds `beside` bytes in addition. Rows that do not fit into memory
/// are read in panels, unless `streaming` says why they cannot be; then a note says so. Collective.
///
/// # Errors
/// As [`load`], and on all ranks, if memory is lacking.
pub fn load_rows<T: Real>(
    input: Input,
    beside: f64,
    streaming: Result<(), String>,
    comm: &Communicator,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<(Loaded<T>, Option<String>)> {
    let (loaded, note) = load_any_rows::<T>(input, beside, streaming, comm, progress)?;
    check_nonzero(&loaded.statistics).map_err(Error::on_all_ranks)?;
    Ok((loaded, note))
}

/// As [`load_rows`], but accepts a matrix of zeros.
///
/// # Errors
/// As [`load_rows`].
pub fn load_any_rows<T: Real>(
    input: Input,
    beside: f64,
    streaming: Result<(), String>,
    comm: &Communicator,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<(Loaded<T>, Option<String>)> {
    let layout = Layout::Grid { pr: comm.size(), pc: 1 };
    let data = input.least_bytes(&layout, comm, size_of::<T>());
    let need = (data + beside).max(data * input.header().copies_while_loading(&layout, size_of::<T>()));
    let streaming = streaming.and_then(|()| input.check_streaming()).map(|()| beside);
    let nodes = memory::nodes(0.0, input.spec().memory, comm);
    let storage = storage(&nodes, |_| need, streaming)?;
    load_any::<T>(input, (&layout, None), &storage, None, comm, progress)
}

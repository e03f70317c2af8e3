//! Data that do not fit into memory: decides whether a run can read its rows from the file in each pass instead, and
//! with how much memory.

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::memory;
use fednmf_data::{GridChooser, Header, Layout, Loaded, Panels};
use fednmf_files::Input;
use fednmf_linalg::Real;
use fednmf_methods::cost::Workload;
use fednmf_methods::registry;
use fednmf_methods::shared::missing::MissingParams;
use fednmf_methods::shared::row_exchange::Exchange;

use super::settings::{Precision, Settings};

/// Loads the input, or where that lacks memory takes its rows as panels. `need` is what a rank holds at least with its data,
/// and `streamed` what it holds beside panels, or why it cannot have them; of the first node that lacks memory a note is returned. Collective.
///
/// # Errors
/// On all ranks, if not even panels fit, or as [`Input::load_on_grid`].
pub fn load<T: Real>(
    input: Input,
    (plan, choose): (&Layout, Option<GridChooser>),
    (need, streamed): (f64, std::result::Result<f64, String>),
    comm: &Communicator,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<(Loaded<T>, Option<String>)> {
    let limit = input.spec().memory;
    let nodes = memory::nodes(need, limit, comm);
    let Some(node) = nodes.iter().find(|node| node.lacks()) else {
        return Ok((input.load_on_grid::<T>(plan, choose, comm, progress)?, None));
    };
    let beside = streamed.and_then(|beside| input.check_streaming().map(|()| beside)).map_err(|why| {
        Error::input(format!(
            "{}; the rows cannot be read from the file in each iteration instead: {why}; or use more nodes, a smaller part of \
             the matrix or --precision f32, or set --memory if more can be used",
            node.lack()
        ))
        .on_all_ranks()
    })?;
    let rows = input.rows::<T>(comm)?;
    let nodes = memory::nodes(beside + rows.beside + rows.least(), limit, comm);
    if let Some(node) = nodes.iter().find(|node| node.lacks()) {
        let refusal = node.refusal();
        let message = format!("even if the rows are read from the file in each iteration, {}", refusal.message);
        return Err(Error::input(message).on_all_ranks());
    }
    let spare = nodes.iter().map(|node| (node.free - node.need) / node.ranks as f64).fold(f64::INFINITY, f64::min);
    let room = rows.least() + spare;
    let loaded = input.stream::<T>(rows, room, comm, progress)?;
    let panels = loaded.panels.as_ref().map_or(0, Panels::rows);
    let note = format!("{}: the rows are read from the file in each pass over them, {panels} at a time", node.lack());
    Ok((loaded, Some(note)))
}

/// What a rank of a run holds beside its panels, in bytes.
///
/// # Errors
/// Why the method needs its data in memory, with what to do. The same on all ranks.
pub fn bytes_besides_panels<T: Real>(
    settings: &Settings,
    header: &Header,
    ranks: usize,
    resuming: bool,
) -> std::result::Result<f64, String> {
    let groups = settings.method.groups();
    if groups.missing.is_some_and(MissingParams::any) {
        return Err("--missing and --holdout need the whole matrix in memory".into());
    }
    if settings.precision == Some(Precision::Mixed) {
        return Err("--precision mixed holds the matrix twice, in f32 and f64; use one of them".into());
    }
    let (m, n) = (header.rows, header.cols);
    let stored = header.stored.filter(|_| header.sparse).map_or(m as f64 * n as f64, |stored| stored as f64);
    let word = size_of::<T>();
    let workload = Workload { m, n, stored, sparse: header.sparse, k: settings.k, parties: None, word, traffic: None };
    let Some(cost) = settings.method.streamed_cost(&workload, ranks) else {
        let able = registry::ALL.iter().filter(|entry| entry.defaults().streamed_cost(&workload, 1).is_some());
        let able: Vec<&str> = able.map(|entry| entry.description().name).collect();
        return Err(format!(
            "{} needs the whole matrix in memory; {} do not (--algo {})",
            settings.description().name,
            able.join(", "),
            able.first().unwrap_or(&"hals")
        ));
    };
    if let Some(grid) = groups.grid {
        if let Some(shape) = grid.grid.given().filter(|shape| shape.cols > 1) {
            return Err(format!("--grid {}x{} cuts the columns too; leave it out", shape.rows, shape.cols));
        }
        if grid.exchange == Exchange::Sparse {
            return Err("--exchange sparse looks at the whole matrix; leave it out".into());
        }
    }
    Ok(cost.factors.max(if resuming { 0.0 } else { cost.start }))
}

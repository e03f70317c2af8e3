//! The grid of ranks for sparse data, which is chosen when it is known where the nonzeros are, and the record of why.

use serde_json::{Value, json};

use fednmf_base::units::bytes;
use fednmf_comm::Communicator;
use fednmf_data::{GridTraffic, Layout, memory};
use fednmf_linalg::Real;
use fednmf_methods::description::Partition;
use fednmf_methods::shared::grid::GridChoice;
use fednmf_methods::shared::row_exchange::Exchange;

use super::settings::Settings;

/// The share of a rank's memory that rows of factors may occupy that it gathers: the data needs the rest.
const SHARE: f64 = 0.5;

/// How the grid is chosen, if it is left to the nonzeros; `layout` has the one by size. Collective.
pub fn choice<T: Real>(settings: &Settings, sparse: bool, layout: &Layout, comm: &Communicator) -> Option<GridChoice> {
    let Layout::Grid { pr, pc } = *layout else { return None };
    let asked = settings.method.groups().grid?;
    let is_open = settings.description().partition == Partition::Grid
        && asked.grid.given().is_none()
        && asked.exchange != Exchange::Dense;
    (sparse && comm.size() > 1 && is_open).then(|| GridChoice {
        by_size: (pr, pc),
        exchange: asked.exchange,
        row: (settings.k * size_of::<T>()) as u64,
        room: SHARE * memory::room(settings.input.memory, comm),
    })
}

/// The counts of each grid, for the trace.
pub fn counted(choice: &GridChoice, grids: &[GridTraffic]) -> Value {
    let of_grid = |grid: &GridTraffic| {
        let exchange = |side| json!(choice.of_side(side).map(|(how, _)| how));
        json!({
            "grid": name(grid), "largest_block": grid.entries, "bytes": choice.bytes(grid),
            "exchange_v": exchange(&grid.v), "exchange_u": exchange(&grid.u),
        })
    };
    grids.iter().map(of_grid).collect()
}

/// A note if the nonzeros led to a grid other than the one by size.
pub fn note(choice: &GridChoice, grids: &[GridTraffic], taken: &Layout) -> Option<String> {
    let of = |shape: (usize, usize)| grids.iter().find(|grid| (grid.pr, grid.pc) == shape);
    let (usual, taken) = (of(choice.by_size)?, of(taken.parts())?);
    let told = |grid: &GridTraffic| {
        let (entries, sent) = (grid.entries, bytes(choice.bytes(grid)));
        format!("{}: {entries} nonzeros and {sent} an iteration", name(grid))
    };
    (taken != usual)
        .then(|| format!("--grid auto: {} for the busiest rank; the grid by size, {}", told(taken), told(usual)))
}

/// A table of what [`counted`] recorded, for the detailed summary; empty where no grid was chosen.
pub fn table(counted: &Value) -> String {
    let rows = counted.as_array().into_iter().flatten().map(|grid| {
        let entries = &grid["largest_block"];
        let sent = bytes(grid["bytes"].as_u64().unwrap_or(0));
        format!("  {:>9}  {entries:>12}  {sent:>12}\n", grid["grid"].as_str().unwrap_or_default())
    });
    let rows: String = rows.collect();
    match rows.is_empty() {
        true => rows,
        false => {
            format!("grids, counted for the busiest rank: nonzeros, bytes sent or received in an iteration\n{rows}")
        }
    }
}

fn name(grid: &GridTraffic) -> String {
    format!("{}x{}", grid.pr, grid.pc)
}

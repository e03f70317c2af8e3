//! Records of a grid that was chosen by the positions of the nonzeros.

use serde_json::{Value, json};

use fednmf_base::units::bytes;
use fednmf_data::{GridTraffic, Layout};
use fednmf_methods::shared::grid::GridChoice;

/// Largest block, bytes and exchange of each candidate grid, for the trace.
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
    let shown = |grid: &GridTraffic| {
        let (entries, sent) = (grid.entries, bytes(choice.bytes(grid)));
        format!("{}: {entries} nonzeros and {sent} an iteration", name(grid))
    };
    (taken != usual)
        .then(|| format!("--grid auto: {} for the busiest rank; the grid by size, {}", shown(taken), shown(usual)))
}

/// A table of the counts of [`counted`], for the detailed summary; empty if no grid was chosen.
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
            format!(
                "grids, counted for the busiest rank: nonzeros, bytes exchanged with others in an iteration\n{rows}"
            )
        }
    }
}

fn name(grid: &GridTraffic) -> String {
    format!("{}x{}", grid.pr, grid.pc)
}

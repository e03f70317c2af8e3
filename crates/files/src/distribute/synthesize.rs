//! Synthetic matrices: every rank generates its own tiles, and no entry is sent.

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::even_part;
use fednmf_data::assemble::{Combine, LocalBlock, TileBuilder, zeros};
use fednmf_data::layout::Tile;
use fednmf_data::messages::COUNTS;
use fednmf_data::policy::position;
use fednmf_data::synthetic::{Generator, Synthetic};
use fednmf_data::tally::Tally;
use fednmf_linalg::Real;

use crate::distribute::request::{LocalBlocks, Request};

/// Rows generated between two progress reports.
const STEP: usize = 256;

/// Generates this rank's tiles.
///
/// # Errors
/// On all ranks, if there are negative entries that are not accepted.
pub fn synthesize<T: Real>(
    spec: &Synthetic,
    request: &Request,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<LocalBlocks<T>> {
    let generator = Generator::new(spec);
    let counts = request.balances().then(|| count(spec, &generator, request));
    let (layout, grids, cuts) = request.settle(counts, &|sink| {
        own_part(spec, &generator, request, &mut |i, j| if request.transpose { sink(j, i) } else { sink(i, j) });
    });
    let tiles = layout.tiles(&cuts, request.comm.rank());
    let mut blocks = Vec::with_capacity(tiles.len());
    let result = tiles.iter().enumerate().try_for_each(|(done, tile)| {
        let mut part = |share: f64| progress((done as f64 + share) / tiles.len() as f64);
        blocks.push(if spec.sparse() {
            sparse(&generator, tile, request.transpose)?
        } else {
            dense(&generator, tile, request, &mut part)?
        });
        part(1.0);
        Ok(())
    });
    request.comm.agree_on_error(result)?;
    let tallies = tiles.iter().map(Tally::new).collect();
    Ok(LocalBlocks { layout, grids, cuts, blocks, tallies, duplicates: 0, stored_zeros: 0 })
}

/// The number of entries in each row and column of the matrix, summed over the ranks.
fn count(spec: &Synthetic, generator: &Generator, request: &Request) -> (Vec<u64>, Vec<u64>) {
    let (mut rows, mut cols) = (vec![0u64; spec.m], vec![0u64; spec.n]);
    own_part(spec, generator, request, &mut |i, j| {
        rows[i] += 1;
        cols[j] += 1;
    });
    request.comm.sum(COUNTS, &mut rows);
    request.comm.sum(COUNTS, &mut cols);
    if request.transpose { (cols, rows) } else { (rows, cols) }
}

/// Passes the positions of this rank's share of the entries to `sink`: those in some rows of the generator's matrix.
fn own_part(spec: &Synthetic, generator: &Generator, request: &Request, sink: &mut dyn FnMut(usize, usize)) {
    let rows = even_part(spec.m, request.comm.size(), request.comm.rank());
    generator.entries(rows, 0..spec.n, &mut |i, j, _| sink(i, j));
}

fn sparse<T: Real>(generator: &Generator, tile: &Tile, transpose: bool) -> Result<LocalBlock<T>> {
    let (rows, cols) = if transpose { (&tile.cols, &tile.rows) } else { (&tile.rows, &tile.cols) };
    let mut entries = 0;
    generator.entries(rows.clone(), cols.clone(), &mut |_, _, _| entries += 1);
    let mut builder = TileBuilder::sparse(tile, entries);
    generator.entries(rows.clone(), cols.clone(), &mut |i, j, value| {
        let (i, j) = if transpose { (j, i) } else { (i, j) };
        builder.push(i, j, T::from_f64(value));
    });
    Ok(builder.finish(Combine::Sum)?.0)
}

fn dense<T: Real>(
    generator: &Generator,
    tile: &Tile,
    request: &Request,
    progress: &mut dyn FnMut(f64),
) -> Result<LocalBlock<T>> {
    let mut block = zeros::<T>(tile);
    let mut view = block.view_mut();
    if tile.transposed != request.transpose {
        view = view.reversed_axes(); // Now rows × columns of the generator's matrix.
    }
    let (mut first_row, mut first_col) = (tile.rows.start, tile.cols.start);
    if request.transpose {
        (first_row, first_col) = (first_col, first_row);
    }
    let rows = view.nrows();
    for (step, mut part) in view.axis_chunks_iter_mut(ndarray::Axis(0), STEP).enumerate() {
        let row = first_row + step * STEP;
        generator.fill(row, first_col, &mut part);
        if !request.policy.allow_negative
            && let Some(((i, j), x)) = part.indexed_iter().find(|(_, x)| **x < T::zero())
        {
            return Err(Error::input(format!(
                "the synthetic entry in {} is {x}: negative, but the factorisation requires a nonnegative matrix; add noise=0",
                position(row + i, first_col + j)
            )));
        }
        progress(((step + 1) * STEP).min(rows) as f64 / rows as f64);
    }
    Ok(LocalBlock::Dense(block.into()))
}

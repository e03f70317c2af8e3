//! `--missing FILE`: the nonzeros of the file mark missing entries; each mark goes to the ranks that own its row and its
//! column.

use std::collections::HashSet;
use std::ops::Range;

use fednmf_base::error::{Error, Result, SharedError, SharedResult};
use fednmf_base::warning::warn;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::totals::entry_hash;
use fednmf_data::{Cuts, Layout, Loaded, NAMES, NanRemedy, STATISTICS};
use fednmf_files as data;
use fednmf_files::names::{Match, Names};
use fednmf_files::{InputSpec, names};
use fednmf_linalg::{Block, Real};
use fednmf_methods::algorithm::Places;
use fednmf_methods::parameters::Missing;

const PLACES: MessageTag = MessageTag::new("places of missing entries", Payload::Data);

/// Parameters of a run in addition to its options: the checksum of the marks of `--missing FILE`; if entries are held
/// out, whether the matrix is sparse; and, if entries are excluded by position, digests of the names of rows and
/// columns.
pub const MARKS: &str = "missing_checksum";
pub const HELD_OUT_OF_SPARSE: &str = "holdout_of_sparse";
pub const ROW_ORDER: &str = "row_names_digest";
pub const COLUMN_ORDER: &str = "column_names_digest";

/// The number of held-out entries in trace, output and evaluation.
pub const HELD_OUT: &str = "heldout_entries";

/// A checksum as it is stored.
pub fn checksum_text(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// The content of a file of marks.
pub struct Marks {
    pub places: Places,
    /// Checksum of the marks in the order of the file, independent of the file format.
    of_file: u64,
    /// Whether rows, and columns, are matched with those of the data by their position, since the file has no names of
    /// them.
    by_position: [bool; 2],
}

impl Marks {
    /// Checksum of the marks in the order of the matrix. Collective.
    pub fn checksum(&self, comm: &Communicator) -> u64 {
        self.checksum_in([&|i| i, &|j| j], comm)
    }

    /// Whether `checksum` is that of the marks, with each row, and column, of the matrix at its place in `orders`. That of
    /// the file is accepted too, for places that are not those of the run. Collective.
    pub fn agree_with(&self, checksum: &str, orders: [&dyn Fn(usize) -> usize; 2], comm: &Communicator) -> bool {
        let found = self.checksum_in(orders, comm);
        [found, self.of_file].into_iter().any(|found| checksum_text(found) == checksum)
    }

    fn checksum_in(&self, [row, column]: [&dyn Fn(usize) -> usize; 2], comm: &Communicator) -> u64 {
        let hashes = self.places.rows.iter().map(|&(i, j)| entry_hash(row(i), column(j), 1.0));
        let mut sum = [hashes.fold(0, u64::wrapping_add)];
        comm.sum(STATISTICS, &mut sum);
        sum[0]
    }

    /// Checks that a matrix in another order of rows or columns than in the run (`reordered`) has marks with names.
    ///
    /// # Errors
    /// If it has none.
    pub fn check_order(&self, file: &str, reordered: [bool; 2]) -> Result<()> {
        if self.by_position.iter().zip(reordered).any(|(by_position, reordered)| *by_position && reordered) {
            return Err(Error::input(format!(
                "--missing {file}: has no names, and the matrix is in another order than in the run; give the marks \
                 with names, or the matrix in the order of the run"
            )));
        }
        Ok(())
    }
}

/// Positions of the nonzeros of the file, a matrix of the data's shape (m × n), in this rank's rows and columns. If both
/// have names (those of the data are on rank 0), rows and columns are matched by name. Collective.
///
/// # Errors
/// The same on all ranks, if the file cannot be read, or has another shape or other names.
pub fn read(path: &str, (m, n): (usize, usize), data: &Names, cuts: &Cuts, comm: &Communicator) -> SharedResult<Marks> {
    let at = |e: Error| e.at("--missing").on_all_ranks();
    let shared_at = |e: SharedError| e.at("--missing");
    let mut spec = InputSpec::parse(path).map_err(at)?;
    spec.allow_negative = true;
    spec.nan_remedy = NanRemedy::Mark;
    let input = data::open(&spec, comm).map_err(shared_at)?;
    spec.complete(input.header());
    let (rows, cols) = (input.header().rows, input.header().cols);
    if (rows, cols) != (m, n) {
        let hint = if (cols, rows) == (m, n) { ": it is turned, so transpose it" } else { "" };
        return Err(at(Error::input(format!(
            "{path}: is {rows} x {cols}, but the data, after --transpose if that is given, {m} x {n}; it marks the missing entries of a matrix of \
             the same shape{hint}"
        ))));
    }
    let places = if comm.is_root() { places(path, data, &names::of_input(&spec)) } else { Ok(Default::default()) };
    let ([of_rows, of_cols], by_position) =
        comm.broadcast_value(NAMES, comm.agree_on_error(places).map_err(shared_at)?);
    let placed = |places: &Option<Vec<usize>>, i: usize| places.as_ref().map_or(i, |places| places[i]);
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let loaded = input.load_any::<f64>(&plan, comm, &mut |_| ()).map_err(shared_at)?;
    if loaded.statistics.nonzeros == 0 {
        return Err(at(Error::input(format!(
            "{path}: marks no entry, since all of its entries are zero; missing entries are those that are not zero in it"
        ))));
    }
    let first = loaded.cuts.rows[comm.rank()].start;
    // For each rank, pairs of row and column.
    let mut outgoing = [vec![Vec::<u64>::new(); comm.size()], vec![Vec::new(); comm.size()]];
    let mut mark = |i: usize, j: usize| {
        let (i, j) = (placed(&of_rows, i), placed(&of_cols, j));
        for (by_rank, (cuts, x)) in outgoing.iter_mut().zip([(&cuts.rows, i), (&cuts.cols, j)]) {
            if let Some(pairs) = owner(cuts, x).and_then(|rank| by_rank.get_mut(rank)) {
                pairs.extend([i as u64, j as u64]);
            }
        }
    };
    match loaded.blocks.first() {
        Some(Block::Dense(x)) => {
            x.indexed_iter().filter(|(_, x)| **x != 0.0).for_each(|((a, j), _)| mark(first + a, j))
        }
        Some(Block::Sparse(x)) => {
            for (a, row) in x.matrix().outer_iterator().enumerate() {
                row.iter().filter(|(_, x)| **x != 0.0).for_each(|(j, _)| mark(first + a, j));
            }
        }
        _ => {}
    }
    let [rows, cols] = outgoing.map(|by_rank| {
        let flat = comm.all_to_all(PLACES, &by_rank);
        flat.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect()
    });
    Ok(Marks { places: Places { rows, cols }, of_file: loaded.statistics.checksum, by_position })
}

/// Checks that an observed entry is the largest, by which `--scale max` has divided the `data`. Collective.
///
/// # Errors
/// On all ranks, if all that are as large are marked as missing.
pub fn check_largest<T: Real>(marks: &Marks, data: &Loaded<T>, divisor: f64, comm: &Communicator) -> SharedResult<()> {
    let tiles = data.layout.tiles(&data.cuts, comm.rank());
    let (first, turned) =
        tiles.first().map_or(((0, 0), false), |tile| ((tile.rows.start, tile.cols.start), tile.transposed));
    let hidden: HashSet<(usize, usize)> = marks.places.rows.iter().copied().collect();
    let is_seen = |a: usize, b: usize, x: T| {
        let (i, j) = if turned { (b, a) } else { (a, b) };
        x >= T::one() && !hidden.contains(&(first.0 + i, first.1 + j))
    };
    let any = match data.blocks.first() {
        Some(Block::Dense(x)) => x.indexed_iter().any(|((a, j), x)| is_seen(a, j, *x)),
        Some(Block::Sparse(x)) => {
            let mut rows = x.matrix().outer_iterator().enumerate();
            rows.any(|(a, row)| row.iter().any(|(j, x)| is_seen(a, j, *x)))
        }
        _ => true,
    };
    let mut seen = [f64::from(u8::from(any))];
    comm.max(STATISTICS, &mut seen);
    if seen[0] > 0.0 {
        return Ok(());
    }
    Err(Error::input(format!(
        "--scale max: the largest entry, {divisor}, is one that --missing FILE marks; write 0 in its place"
    ))
    .on_all_ranks())
}

/// A warning if the user declared NaN as missing but the matrix has none. `block` is the block of this rank.
/// Collective.
pub fn warning_without_nan<T: Real>(block: Option<&Block<T>>, comm: &Communicator) -> Option<String> {
    let mut count = [block.map_or(0, Block::nan_count) as u64];
    comm.sum(STATISTICS, &mut count);
    let zeros = match block {
        Some(Block::Sparse(_)) => "; zeros count as observed, unless --missing zero-unobserved takes them as missing",
        _ => "",
    };
    (count[0] == 0).then(|| format!("--missing nan: no entry is NaN, so none is missing{zeros}"))
}

/// A warning if zeros count as missing but the input stores some (`zeros` of them), as a file of ratings may.
pub fn warning_of_stored_zeros(missing: &Missing, zeros: u64) -> Option<String> {
    (*missing == Missing::ZeroUnobserved && zeros > 0).then(|| {
        format!(
            "--missing zero-unobserved: {zeros} entries of the input are given as 0, and are missing like all zeros; \
             to observe them, add a constant to all values, or mark the missing entries in a file (--missing FILE)"
        )
    })
}

/// For each row, and column, of the file its index in the data; `None` if the order is the same.
type Order = [Option<Vec<usize>>; 2];

/// That order, and whether rows and columns are matched by position.
fn places(path: &str, data: &Names, marks: &Names) -> Result<(Order, [bool; 2])> {
    for (what, data, marks) in [("row", &data.rows, &marks.rows), ("column", &data.columns, &marks.columns)] {
        if marks.is_some() && data.is_none() {
            warn(&format!("{path} has names of {what}s, the matrix has none: {what}s are matched by position"));
        }
    }
    let place = |what: &str, data: Option<&[String]>, marks: Option<&[String]>| match names::compare(marks, data) {
        Match::Equal => Ok(None),
        Match::Reordered(places) => Ok(Some(places)),
        Match::Repeated(name) => Err(Error::input(format!("{path}: {}", names::repeated(what, &name)))),
        Match::Different(at, marks, data) => Err(Error::input(format!(
            "{path}: its {what} {at} is {marks}, which is no {what} of the data ({data} is there); mark the entries of the same \
             {what}s"
        ))),
    };
    let order = [
        place("row", data.rows.as_deref(), marks.rows.as_deref())?,
        place("column", data.columns.as_deref(), marks.columns.as_deref())?,
    ];
    Ok((order, [marks.rows.is_none(), marks.columns.is_none()]))
}

/// The rank whose part contains x. Parts ascend and may be empty.
fn owner(cuts: &[Range<usize>], x: usize) -> Option<usize> {
    let at = cuts.partition_point(|part| part.end <= x);
    cuts.get(at).filter(|part| part.contains(&x)).map(|_| at)
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn every_position_has_one_owner() {
        let cuts = [0..3, 3..3, 3..7, 7..7];
        assert_eq!([0, 2, 3, 6].map(|x| owner(&cuts, x)), [Some(0), Some(0), Some(2), Some(2)]);
        assert_eq!(owner(&cuts, 7), None);
    }
}

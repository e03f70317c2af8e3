//! Reads the files of a matrix and brings their entries to the blocks.

use std::ops::Range;

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::assemble::LocalBlock;
use fednmf_data::layout::{Cuts, Layout};
use fednmf_data::messages::COUNTS;
use fednmf_data::panels::Counts;
use fednmf_data::policy::position;
use fednmf_data::split::{PartySplit, whole};
use fednmf_data::tally::Tally;
use fednmf_linalg::{CsrMatrix, Real};

use crate::distribute::dense;
use crate::distribute::dense::DenseFile;
use crate::distribute::request::{LocalBlocks, Request};
use crate::distribute::route::Route;
use crate::distribute::scatter::scatter;
use crate::distribute::triplets::{Exchange, Held, Triplets};
use crate::formats::file::MatrixFile;
use crate::panel_source::Source;

/// A file and its place in the matrix.
pub struct PlacedFile {
    /// `None` if only its owner, another rank, knows more than its shape.
    pub content: Option<MatrixFile>,
    /// The only rank that may read it, or `None` if all ranks may.
    pub owner: Option<usize>,
    /// Its rectangle of the matrix, after transposition.
    pub rows: Range<usize>,
    pub cols: Range<usize>,
}

impl PlacedFile {
    /// The number of ranks that read it.
    fn readers(&self, comm: &Communicator) -> usize {
        let divisible = self.owner.is_none() && self.content.as_ref().is_some_and(MatrixFile::divisible);
        if divisible { comm.size() } else { 1 }
    }
}

/// Reads the files into this rank's blocks; `by_position`: some file's entries have positions. If the layout gives each party
/// its own file, no entry is sent.
///
/// # Errors
/// On all ranks, if the content of a file is invalid, or the layout does not fit the parties' files.
pub fn read<T: Real>(
    (files, by_position): (&[PlacedFile], bool),
    request: &Request,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<LocalBlocks<T>> {
    let comm = request.comm;
    let party_cuts = party_cuts(files, request)?;
    let of_parties = party_cuts.is_some();
    let stays_local = of_parties || comm.size() == 1;
    if !by_position {
        let cuts = party_cuts.unwrap_or_else(|| request.cuts(request.layout, None));
        let (blocks, tallies) = read_dense(files, request, &cuts, stays_local, progress)?;
        let layout = request.layout.clone();
        return Ok(LocalBlocks { layout, grids: Vec::new(), cuts, blocks, tallies, duplicates: 0, stored_zeros: 0 });
    }
    let of_rows = read_rows::<T>(files, request, &mut |done| progress(0.6 * done))?;
    let (mut entries, mut counts, of_ranks) = match of_rows {
        Some((held, counts, cuts)) => (held, [counts.duplicates, counts.stored_zeros], cuts.rows),
        None => {
            let (entries, zeros) = read_entries::<T>(files, request, &mut |done| progress(0.6 * done))?;
            (Held::Triplets(entries), [0, zeros], Vec::new())
        }
    };
    let (layout, grids, cuts) = match party_cuts {
        Some(cuts) => (request.layout.clone(), Vec::new(), cuts),
        None => {
            let counts = request.balances().then(|| entries.counts(comm, request.header.rows, request.header.cols));
            request.settle(counts, &|sink| entries.for_each(|i, j, _| sink(i, j)))
        }
    };
    let tiles = layout.tiles(&cuts, comm.rank());
    let mut blocks = Vec::with_capacity(tiles.len());
    let mut routes = Route::all(&layout, &cuts);
    // The rows that each rank has read are its block, or transposed the first of two.
    if cuts.rows == of_ranks {
        if let (Held::Rows(_, rows), Layout::RowsAndColumns { .. }) = (&entries, &layout) {
            blocks.push(LocalBlock::Sparse(transposed(rows)));
            routes.remove(0);
        }
        entries = match (entries, &layout) {
            (Held::Rows(_, rows), Layout::Grid { pc: 1, .. } | Layout::RowsAndColumns { ranks: 1 }) => {
                blocks.push(LocalBlock::Sparse(rows));
                routes.clear();
                Held::Triplets(Triplets::new())
            }
            (entries, _) => entries,
        };
    }
    let exchange =
        Exchange { comm, stays_local, sparse: request.header.sparse, combine: request.combine, tiles: &tiles };
    for (pass, route) in routes.iter().enumerate() {
        let last = pass + 1 == routes.len();
        let done = |x: f64| 0.6 + 0.4 * (pass as f64 + x) / routes.len() as f64;
        let built = exchange.run(route, &mut entries, last, &mut |x| progress(done(x)));
        let (built, more) = comm.agree_on_error(built)?;
        match request.counts_zeros {
            true => blocks.extend(built.into_iter().map(LocalBlock::without_zeros)),
            false => blocks.extend(built),
        }
        if pass == 0 {
            counts[0] += more;
        }
    }
    // The counts of a party's own file are not sent.
    if !of_parties {
        comm.sum(COUNTS, &mut counts);
    }
    let [duplicates, stored_zeros] = counts;
    let tallies = tiles.iter().map(Tally::new).collect();
    Ok(LocalBlocks { layout, grids, cuts, blocks, tallies, duplicates, stored_zeros })
}

fn transposed<T: Real>(rows: &CsrMatrix<T>) -> CsrMatrix<T> {
    let shape = (rows.cols(), rows.rows());
    let (starts, columns, values) = rows.transpose_view().to_csr().into_raw_storage();
    CsrMatrix::new(shape, starts, columns.into(), values.into())
}

/// The cuts between the parties, if the layout gives each party its own file.
fn party_cuts(files: &[PlacedFile], request: &Request) -> SharedResult<Option<Cuts>> {
    let (parties, split, by_rows) = match request.layout {
        Layout::PartyRows { parties, split } => (parties, split, true),
        Layout::PartyColumns { parties, split } => (parties, split, false),
        _ => return Ok(None),
    };
    let (m, n) = (request.header.rows, request.header.cols);
    let stacked_alike = files.iter().all(|f| if by_rows { f.cols.len() == n } else { f.rows.len() == m });
    if request.header.files.is_none() || !stacked_alike {
        return Ok(None);
    }
    if files.len() != parties.count {
        return Err(Error::input(format!("{} files for {} parties", files.len(), parties.count)).on_all_ranks());
    }
    if *split != PartySplit::Even {
        return Err(
            Error::input("--skew, --split: the parties' files determine how much of the data each has").on_all_ranks()
        );
    }
    Ok(Some(if by_rows {
        Cuts { rows: files.iter().map(|f| f.rows.clone()).collect(), cols: whole(n) }
    } else {
        Cuts { rows: whole(m), cols: files.iter().map(|f| f.cols.clone()).collect() }
    }))
}

fn read_dense<T: Real>(
    files: &[PlacedFile],
    request: &Request,
    cuts: &Cuts,
    stays_local: bool,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<(Vec<LocalBlock<T>>, Vec<Tally>)> {
    let comm = request.comm;
    let known: Vec<(&PlacedFile, &MatrixFile)> =
        files.iter().filter_map(|file| Some((file, file.content.as_ref()?))).collect();
    let dense_files: Vec<DenseFile> = known
        .iter()
        .map(|(file, content)| {
            let shares = content.shares(file.readers(comm)).into_iter().enumerate();
            DenseFile {
                rows: file.rows.clone(),
                cols: file.cols.clone(),
                by_columns: content.by_columns() != request.transpose,
                together: content.together(),
                readers: shares.map(|(part, share)| (file.owner.unwrap_or(part), share)).collect(),
            }
        })
        .collect();
    let stays_local = stays_local || reads_own_lines(&dense_files, request, cuts);
    let tiles = request.layout.tiles(cuts, comm.rank());
    let open = |file: usize, share: Range<usize>| {
        let (file, content) = known[file];
        let parts = file.readers(comm);
        let part = if parts == 1 { 0 } else { comm.rank() };
        content.dense_reader(part, parts, share, request.policy)
    };
    dense::exchange(comm, stays_local, &Route::all(request.layout, cuts), &tiles, &dense_files, open, progress)
}

/// Whether each rank reads the rows that it holds and no others, or the columns of a file that is stored by columns.
fn reads_own_lines(files: &[DenseFile], request: &Request, cuts: &Cuts) -> bool {
    let ([file], Layout::Grid { pr, pc }) = (files, request.layout) else { return false };
    let (others, lines, width) = match file.by_columns {
        true => (*pr, &cuts.cols, request.header.rows),
        false => (*pc, &cuts.rows, request.header.cols),
    };
    let own = lines.iter().map(|lines| lines.start * width..lines.end * width).enumerate();
    others == 1 && file.readers.iter().cloned().eq(own)
}

/// The only file, if it is stored by rows of the matrix.
pub fn file_of_rows(files: &[PlacedFile], transpose: bool) -> Option<&MatrixFile> {
    let [PlacedFile { content: Some(file), owner: None, .. }] = files else { return None };
    Some(file).filter(|file| file.stores_lines(transpose))
}

/// Reads this rank's share of a file that is stored by rows, cut so that all ranks have about as many entries. Usually these rows are
/// its block. Also returns the cuts between the ranks. `None` for other files.
fn read_rows<T: Real>(
    files: &[PlacedFile],
    request: &Request,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<Option<(Held<T>, Counts, Cuts)>> {
    let (comm, header) = (request.comm, request.header);
    let file = file_of_rows(files, request.transpose).filter(|file| comm.size() == 1 || file.divisible());
    let Some(file) = file else { return Ok(None) };
    let mut read = || {
        let source = Source::new(file.clone(), request.transpose, request.policy);
        let counts = if comm.size() > 1 { source.counts()? } else { None };
        let cuts = Layout::Grid { pr: comm.size(), pc: 1 }.cuts(header.rows, header.cols, counts.as_deref(), None);
        let own = cuts.rows[comm.rank()].clone();
        let (rows, counts) = source.read(&own, progress)?;
        Ok(Some((Held::Rows(own.start, rows), counts, cuts)))
    };
    comm.agree_on_error(read())
}

/// Reads this rank's part of the files whose entries have positions: the nonzero entries, and the number of stored zeros.
fn read_entries<T: Real>(
    files: &[PlacedFile],
    request: &Request,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<(Triplets<T>, u64)> {
    let comm = request.comm;
    let mut entries = Triplets::new();
    let mut zeros = 0;
    let mut own = Ok(());
    for file in files {
        let Some(content) = &file.content else { continue };
        // A dense file stores zeros at positions that other formats omit.
        let stores_zeros = content.sparse();
        let selected = content.selection.as_ref().map(|selection| (selection.of_rows, selection.places()));
        let mut sink = |i: usize, j: usize, value: f64| {
            let (i, j) = match &selected {
                None => (i, j),
                Some((of_rows, places)) => match places.get(if *of_rows { i } else { j }) {
                    Some(Some(place)) => {
                        if *of_rows {
                            (*place, j)
                        } else {
                            (i, *place)
                        }
                    }
                    _ => return Ok(()),
                },
            };
            zeros += u64::from(stores_zeros && value == 0.0);
            if value != 0.0 || request.counts_zeros {
                let checked = request.policy.check::<T>(value);
                let value = checked.map_err(|why| format!("the entry in {} {why}", position(i, j)))?;
                let (i, j) = if request.transpose { (j, i) } else { (i, j) };
                entries.push(file.rows.start + i, file.cols.start + j, value);
            }
            Ok(())
        };
        let parts = file.readers(comm);
        match file.owner {
            // Owners read independently, and agree on an error when all have finished.
            Some(owner) if owner == comm.rank() && own.is_ok() => {
                let found = content.entries(0, 1, &mut sink, progress);
                own = found.and_then(|found| content.check_count(found));
            }
            Some(_) => {}
            None if parts == 1 && comm.size() > 1 => scatter(content, comm, &mut sink, progress)?,
            None => {
                let found = content.entries(comm.rank(), parts, &mut sink, progress);
                let mut total = [comm.agree_on_error(found)?];
                comm.sum(COUNTS, &mut total);
                content.check_count(total[0]).map_err(Error::on_all_ranks)?;
            }
        }
    }
    comm.agree_on_error(own)?;
    Ok((entries, zeros))
}

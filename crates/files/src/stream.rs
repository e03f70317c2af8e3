//! Streams an opened input instead of loading it: its rows are read in panels ([`Panels`]) in each pass.

use std::ops::Range;
use std::sync::Arc;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::Loaded;
use fednmf_data::assemble::Entries;
use fednmf_data::layout::{Cuts, Layout, Tile};
use fednmf_data::loaded::check_largest;
use fednmf_data::messages::{COUNTS, LARGEST_ENTRY};
use fednmf_data::panels::{Counts, Panels};
use fednmf_data::statistics::Statistics;
use fednmf_linalg::{Block, Real};

use crate::distribute::files::PlacedFile;
use crate::open::{Input, Origin};
use crate::panel_source::{Preparation, Source};
use crate::spec::{Scale, Threshold};

/// Maximum size of a panel in bytes; longer reads are not faster.
const ENOUGH: f64 = (32 << 20) as f64;

/// Memory requirement in panels: the two of [`Panels`], and the undecoded entries of a reader, up to three panels in size.
pub const PANELS: f64 = 5.0;

/// The rows of this rank in an input that is read in panels.
pub struct Rows {
    source: Source,
    cuts: Cuts,
    /// This rank's rows.
    own: Range<usize>,
    /// Number of rows that are unpacked together.
    together: usize,
    /// The number of entries of each of this rank's rows, if the matrix is sparse.
    counts: Option<Vec<u64>>,
    /// Bytes required in addition to the panels.
    pub beside: f64,
    /// Bytes of the largest run of rows that must be read together, and of all rows.
    pub smallest: f64,
    pub all: f64,
}

impl Rows {
    /// The bytes of some rows, counted from this rank's first row.
    fn bytes<T: Real>(&self, rows: &Range<usize>) -> f64 {
        let word = size_of::<T>() as f64;
        match &self.counts {
            None => (rows.len() * self.source.cols()) as f64 * word,
            Some(counts) => {
                let entries: u64 = counts[rows.clone()].iter().sum();
                entries as f64 * (word + size_of::<i32>() as f64) + (size_of::<usize>() * (rows.len() + 1)) as f64
            }
        }
    }

    /// The shortest runs of rows that can be a panel, counted from this rank's first row.
    fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let (first, count) = (self.own.start, self.own.len());
        let together = self.together;
        std::iter::successors(Some(0..0), move |last: &Range<usize>| {
            let start = last.end;
            (start < count).then(|| start..count.min(start + together - (first + start) % together))
        })
        .skip(1)
    }

    /// Panels of at most `most` bytes, but at least one run each.
    fn panels<T: Real>(&self, most: f64) -> Vec<Range<usize>> {
        let mut all: Vec<Range<usize>> = Vec::new();
        let mut size = 0.0;
        for run in self.runs() {
            let more = self.bytes::<T>(&run);
            match all.last_mut() {
                Some(last) if size + more <= most => {
                    last.end = run.end;
                    size += more;
                }
                _ => {
                    all.push(run);
                    size = more;
                }
            }
        }
        all
    }

    /// The minimum memory that its panels need, in bytes.
    pub fn least(&self) -> f64 {
        PANELS * self.smallest
    }
}

impl Input {
    /// Checks that its rows can be read from the file in each pass.
    ///
    /// # Errors
    /// If they cannot: the reason and a remedy.
    pub fn check_streaming(&self) -> std::result::Result<(), String> {
        let file = match &self.origin {
            Origin::Synthetic(_) => return Err("it is generated; write it to a file (fednmf generate)".into()),
            Origin::Files { files, .. } => match &files[..] {
                [PlacedFile { content: Some(only), owner: None, .. }] => only,
                _ => return Err("it consists of several files; write it as one".into()),
            },
        };
        file.check_lines(self.spec.transpose).map_err(|why| format!("{} {why}", file.path()))?;
        if matches!(self.spec.binarize, Some(Threshold::Quantile(_))) {
            return Err("--binarize takes a quantile, which needs all entries; give the threshold as a number".into());
        }
        if self.spec.suppress.is_some() {
            return Err("--suppress-rare compares all rows; leave it out".into());
        }
        Ok(())
    }

    /// This rank's part of the rows, for an input that [`Input::check_streaming`] accepts. Collective.
    ///
    /// # Errors
    /// On all ranks, if the file cannot be opened or is damaged.
    pub fn rows<T: Real>(&self, comm: &Communicator) -> SharedResult<Rows> {
        comm.agree_on_error(self.own_rows::<T>(comm))
    }

    fn own_rows<T: Real>(&self, comm: &Communicator) -> Result<Rows> {
        let file = self.origin.files().first().and_then(|file| file.content.clone());
        let file = file.ok_or_else(|| Error::failed("a matrix without a file that all ranks read"))?;
        let policy = self.spec.entry_policy();
        let source = Source::new(file, self.spec.transpose, policy);
        let (m, n) = (self.header.rows, self.header.cols);
        let (shape, counts) = (source.shape()?, source.counts()?);
        let cuts = Layout::Grid { pr: comm.size(), pc: 1 }.cuts(m, n, counts.as_deref(), None);
        let own = cuts.rows[comm.rank()].clone();
        // The reader keeps the start of each row of the file.
        let starts = counts.as_ref().map_or(0, |counts| size_of::<u64>() * (counts.len() + 1));
        let counts = counts.map(|counts| counts[own.clone()].to_vec());
        let listed = counts.as_ref().map_or(0, |counts| size_of::<u64>() * counts.len());
        let beside = (starts + listed + shape.scratch) as f64;
        let mut rows = Rows { source, cuts, own, together: shape.together, counts, beside, smallest: 0.0, all: 0.0 };
        rows.smallest = rows.runs().map(|run| rows.bytes::<T>(&run)).fold(0.0, f64::max);
        rows.all = rows.bytes::<T>(&(0..rows.own.len()));
        Ok(rows)
    }

    /// Reads the rows in panels, which together with their copies take at most `bytes` of memory, but at least
    /// [`Rows::least`]. The statistics need two passes over the file, and a third with `--scale max`. `progress` is called
    /// with the completed fraction of these passes. Collective.
    ///
    /// # Errors
    /// The same on all ranks, as [`Input::load_any`].
    pub fn stream<T: Real>(
        self,
        rows: Rows,
        bytes: f64,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> SharedResult<Loaded<T>> {
        let cuts = rows.panels::<T>((bytes / PANELS).min(ENOUGH));
        let threshold = self.spec.binarize.map(|given| given.for_entries(size_of::<T>(), self.header.values));
        let preparation = Preparation { divisor: None, threshold: threshold.and_then(Threshold::given) };
        let panels_of = |preparation: Preparation| {
            Panels::<T>::new(Arc::new(rows.source.prepared(preparation)), rows.own.start, cuts.clone())
        };
        let passes = if self.spec.scale == Scale::Max { 3.0 } else { 2.0 };
        let mut done = 0.0;
        let mut pass = |panels: &mut Panels<T>, f: &mut dyn FnMut(Range<usize>, &Block<T>)| -> SharedResult<Counts> {
            let own = rows.own.len().max(1) as f64;
            let read = panels.pass(comm, |at, block| {
                let end = at.end as f64;
                f(at, block);
                progress((done + end / own) / passes);
                Ok(())
            });
            done += 1.0;
            comm.agree_on_error(read)
        };
        let divisor = match self.spec.scale {
            Scale::None => None,
            Scale::By(divisor) => Some(divisor),
            Scale::Max => {
                let mut most = [f64::NEG_INFINITY];
                pass(&mut panels_of(Preparation::default()), &mut |_, block| {
                    let values = Entries::of(block).map_or(&[][..], Entries::values);
                    most[0] = values.iter().fold(most[0], |most, x| most.max(x.as_f64()));
                })?;
                comm.max(LARGEST_ENTRY, &mut most);
                Some(check_largest::<T>(most[0]).map_err(Error::on_all_ranks)?)
            }
        };
        let mut panels = panels_of(Preparation { divisor, ..preparation });
        let (m, n) = (self.header.rows, self.header.cols);
        let mut counts = Counts::default();
        let statistics = Statistics::of_passes::<T>(comm, (m, n), |add| {
            counts = pass(&mut panels, &mut |at, block| {
                let rows = rows.own.start + at.start..rows.own.start + at.end;
                if let Some(entries) = Entries::of(block) {
                    add(entries, &Tile { rows, cols: 0..n, transposed: false });
                }
            })?;
            Ok(())
        })?;
        let mut sums = [counts.duplicates, counts.stored_zeros];
        comm.sum(COUNTS, &mut sums);
        let [duplicates, stored_zeros] = sums;
        Ok(Loaded {
            header: self.header,
            statistics,
            duplicates,
            stored_zeros,
            layout: Layout::Grid { pr: comm.size(), pc: 1 },
            grids: Vec::new(),
            cuts: rows.cuts,
            blocks: Vec::new(),
            panels: Some(panels),
            signal: None,
            threshold: preparation.threshold,
            divisor,
            fingerprints: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ndarray::{Array2, s};

    use super::*;
    use crate::formats::npy;
    use crate::open::open;
    use crate::spec::InputSpec;

    /// A .npy of an m × n matrix, and its entries.
    fn written(m: usize, n: usize) -> (tempfile::NamedTempFile, Array2<f64>) {
        let x = Array2::from_shape_fn((m, n), |(i, j)| ((7 * i + 3 * j) % 11) as f64);
        let mut file = tempfile::Builder::new().suffix(".npy").tempfile().unwrap();
        npy::write_header(&mut file, "<f8", &format!("{m}, {n}")).unwrap();
        x.iter().for_each(|x| file.write_all(&x.to_le_bytes()).unwrap());
        (file, x)
    }

    fn input(file: &tempfile::NamedTempFile, comm: &Communicator) -> Input {
        open(&InputSpec::parse(file.path().to_str().unwrap()).unwrap(), comm).unwrap()
    }

    #[test]
    fn panels_cover_the_rows_and_end_where_rows_are_unpacked_together() {
        let comm = Communicator::local();
        let (file, _) = written(53, 4);
        let mut rows = input(&file, &comm).rows::<f64>(&comm).unwrap();
        assert_eq!((rows.smallest, rows.all), (32.0, 53.0 * 32.0));
        for (together, first, most) in
            [(1, 0, 100.0), (1, 0, 1.0), (1, 0, 1e9), (7, 10, 500.0), (7, 10, 1.0), (64, 10, 1.0)]
        {
            (rows.together, rows.own) = (together, first..first + 43);
            let panels = rows.panels::<f64>(most);
            assert!(panels.iter().try_fold(0, |end, p| (p.start == end && !p.is_empty()).then_some(p.end)) == Some(43));
            for panel in &panels {
                assert!(panel.end == 43 || (first + panel.end) % together == 0, "{panel:?}");
                assert!(panel.len() <= together || rows.bytes::<f64>(panel) <= most, "{panel:?}");
            }
            // No two consecutive panels would fit into one.
            assert!(panels.windows(2).all(|w| rows.bytes::<f64>(&(w[0].start..w[1].end)) > most), "{panels:?}");
        }
        rows.own = 5..5;
        assert!(rows.panels::<f64>(100.0).is_empty());
    }

    #[test]
    fn each_pass_reads_all_rows_in_order() {
        let comm = Communicator::local();
        let (file, x) = written(53, 4);
        for room in [1.0, 5.0 * 32.0 * 10.0, 1e9] {
            let input = input(&file, &comm);
            let rows = input.rows::<f64>(&comm).unwrap();
            let mut loaded = input.stream::<f64>(rows, room, &comm, &mut |_| ()).unwrap();
            assert_eq!(loaded.statistics.norm2, x.iter().map(|x| x * x).sum::<f64>());
            let panels = loaded.panels.as_mut().unwrap();
            for _ in 0..3 {
                let mut end = 0;
                panels
                    .pass(&comm, |rows, block| {
                        assert_eq!(rows.start, end);
                        let Block::Dense(panel) = block else { panic!("dense") };
                        assert_eq!(panel.view(), x.slice(s![rows.clone(), ..]));
                        end = rows.end;
                        Ok(())
                    })
                    .unwrap();
                assert_eq!(end, 53);
            }
            // A pass that fails is the last.
            let failed =
                panels.pass(&comm, |rows, _| if rows.end > 20 { Err(Error::failed("enough")) } else { Ok(()) });
            assert_eq!(failed.unwrap_err().message, "enough");
            assert!(panels.pass(&comm, |_, _| Ok(())).is_err());
        }
    }

    #[test]
    fn a_copy_reads_by_itself_whatever_the_order_of_the_first() {
        let comm = Communicator::local();
        let (file, x) = written(53, 4);
        let input = input(&file, &comm);
        let rows = input.rows::<f64>(&comm).unwrap();
        let mut loaded = input.stream::<f64>(rows, 5.0 * 32.0 * 10.0, &comm, &mut |_| ()).unwrap();
        loaded.panels.as_mut().unwrap().reorder(&[30..53, 0..30], 1);
        let mut copy = loaded.copy().panels.unwrap();
        for _ in 0..2 {
            let (mut end, mut sum) = (0, 0.0);
            copy.pass(&comm, |rows, block| {
                assert_eq!(rows.start, end);
                end = rows.end;
                sum += block.norm2();
                loaded.panels.as_mut().unwrap().read_next(&comm, 1, |_, _| Ok(())).map(drop)
            })
            .unwrap();
            assert_eq!((end, sum), (53, x.iter().map(|x| x * x).sum()));
        }
        loaded.release();
        let panels = loaded.panels.as_mut().unwrap();
        panels.pass(&comm, |rows, _| if rows.end > 20 { Err(Error::failed("enough")) } else { Ok(()) }).unwrap_err();
        assert_eq!(panels.copy().pass(&comm, |_, _| Ok(())).map(|_| ()), Ok(()), "a failure is not copied");
    }

    #[test]
    fn rows_are_read_in_the_order_of_parts() {
        let comm = Communicator::local();
        let (file, x) = written(53, 4);
        let input = input(&file, &comm);
        let rows = input.rows::<f64>(&comm).unwrap();
        let mut panels = input.stream::<f64>(rows, 5.0 * 32.0 * 10.0, &comm, &mut |_| ()).unwrap().panels.unwrap();
        let longest = panels.rows();
        let parts = [30..41, 0..7, 41..53, 7..30];
        for first in [0, 2, 3] {
            let counts = panels.reorder(&parts, first);
            assert_eq!(counts.iter().sum::<usize>(), panels.count());
            assert!(panels.rows() <= longest && counts[3] > 1, "{counts:?}");
            // Twice round, a part at a time.
            for at in (first..first + 8).map(|at| at % 4) {
                let mut end = parts[at].start;
                panels
                    .read_next(&comm, counts[at], |rows, block| {
                        assert_eq!(rows.start, end);
                        let Block::Dense(panel) = block else { panic!("dense") };
                        assert_eq!(panel.view(), x.slice(s![rows.clone(), ..]));
                        end = rows.end;
                        Ok(())
                    })
                    .unwrap();
                assert_eq!(end, parts[at].end);
            }
        }
    }

    #[test]
    fn a_file_that_shrinks_is_no_end_of_the_process() {
        let comm = Communicator::local();
        let (file, _) = written(2000, 40);
        let input = input(&file, &comm);
        let rows = input.rows::<f64>(&comm).unwrap();
        let mut panels = input.stream::<f64>(rows, 1e5, &comm, &mut |_| ()).unwrap().panels.unwrap();
        file.as_file().set_len(10_000).unwrap();
        let mut message = String::new();
        // Panels that were read ahead are still valid.
        for _ in 0..2 {
            message = panels.pass(&comm, |_, _| Ok(())).map_or_else(|e| e.message, |_| String::new());
            if !message.is_empty() {
                break;
            }
        }
        assert!(message.contains("changed"), "{message}");
    }
}

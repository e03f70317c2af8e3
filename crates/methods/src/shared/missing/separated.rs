//! A rank's data of a distributed method, separated from the excluded entries: those of `--missing` and the held-out ones.

use ndarray::ArrayView2;

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::{Loaded, STATISTICS};
use fednmf_linalg::{Block, Real};

use super::lists::{Counted, Holdout, Listed, Lists, each, held_out, kept};
use super::{HELD, MissingParams};
use crate::Measures;
use crate::algorithm::Places;
use crate::decision::Decision;
use crate::metrics;
use crate::metrics::Measure;
use crate::parameters::Missing;
use crate::shared::blocks_of_own_lines;

/// The data of a rank, with lists of its observed or missing entries.
pub struct Separated<T: Real> {
    /// What the lists contain.
    pub listed: Listed,
    /// Own rows × n, with zeros at excluded entries, and the list of each row.
    pub rows: (Block<T>, Lists<T>),
    /// Own columns × m, in the same way.
    pub cols: (Block<T>, Lists<T>),
    pub tally: Tally<T>,
}

/// Statistics of the observed entries of the whole matrix, and this rank's held-out ones.
pub struct Tally<T> {
    sum: f64,
    norm2: f64,
    observed: f64,
    held: f64,
    held_above_zero: f64,
    /// Own row, column and value of each held-out entry.
    places: Vec<(u32, u32, T)>,
}

impl<T: Real> Separated<T> {
    /// Separates the excluded entries from the rows and columns of this rank (n × own rows, m × own columns). `marked` are
    /// the positions of `--missing FILE`. Collective.
    ///
    /// # Errors
    /// If no observed entry is positive.
    pub fn take(
        data: &mut Loaded<T>,
        marked: Option<Places>,
        args: &MissingParams,
        seed: u64,
        comm: &Communicator,
    ) -> SharedResult<Self> {
        let (m, n) = (data.header.rows, data.header.cols);
        let [rows, cols] = blocks_of_own_lines(std::mem::take(&mut data.blocks), comm.size());
        let places = marked.unwrap_or_default();
        let [of_rows, of_cols] = [&data.cuts.rows, &data.cuts.cols].map(|cuts| cuts[comm.rank()].clone());
        let sparse = matches!(rows, Block::Sparse(_));
        let only_stored = args.missing == Missing::ZeroUnobserved;
        let counted = Counted { shape: (m, n), nonzeros: data.statistics.nonzeros, sparse, only_stored };
        let holdout = Holdout::new(seed, args.holdout, counted);
        let drawn = holdout.is_drawn();
        let hashed = !drawn && holdout.any();
        let side = |block: Block<T>, first: usize, mut gone: Vec<(u32, u32)>, by_rows: bool| {
            let place = |a: usize, b: u32| if by_rows { (first + a, b as usize) } else { (b as usize, first + a) };
            let own = block.shape().0;
            for a in 0..own {
                each(&block, a, |b, x| {
                    let (i, j) = place(a, b);
                    let counts = !only_stored || x != T::zero();
                    if x.is_nan() || !counts || (hashed && holdout.takes(i, j)) {
                        gone.push((a as u32, b));
                    }
                });
            }
            match (drawn, by_rows) {
                (true, true) => {
                    (0..own).for_each(|a| holdout.columns(first + a, n, |j| gone.push((a as u32, j as u32))))
                }
                (true, false) => (0..m).for_each(|i| {
                    holdout.columns(i, n, |j| {
                        if (first..first + own).contains(&j) {
                            gone.push(((j - first) as u32, i as u32));
                        }
                    });
                }),
                _ => {}
            }
            let absent = Lists::<T>::of_places(own, gone);
            (block, absent)
        };
        let local = |(i, j): (usize, usize), first: usize| ((i - first) as u32, j as u32);
        let gone = places.rows.iter().map(|&place| local(place, of_rows.start)).collect();
        let (rows, absent_in_rows) = side(rows, of_rows.start, gone, true);
        let gone = places.cols.iter().map(|&(i, j)| local((j, i), of_cols.start)).collect();
        let (cols, absent_in_cols) = side(cols, of_cols.start, gone, false);

        let held = held_out(&rows, &absent_in_rows, only_stored);
        let above_zero = held.iter().filter(|(.., x)| *x > T::zero()).count();
        let mut total = [absent_in_rows.len() as f64, held.len() as f64, above_zero as f64];
        comm.sum(STATISTICS, &mut total);
        if args.holdout > 0.0 && total[1] == 0.0 {
            return Err(Error::input(format!(
                "--holdout {}: so small a share of the {m} x {n} matrix holds no entry out; give a larger one, or 0",
                args.holdout
            ))
            .on_all_ranks());
        }
        // A list of observed entries costs about twice as much per entry as one of missing entries, but saves the
        // product.
        let few = !sparse && total[0] > 2.0 / 3.0 * (m as f64 * n as f64);
        let listed = if only_stored || few { Listed::Observed } else { Listed::Missing };
        let finish = |block: Block<T>, absent: Lists<T>| {
            let lists = if listed == Listed::Observed { Lists::of_block(&block, &absent) } else { absent };
            let gone = |a: usize, b: u32| lists.row(a).0.binary_search(&b).is_ok() != (listed == Listed::Observed);
            (kept(block, |a, b, _| !gone(a, b)), lists)
        };
        let rows = finish(rows, absent_in_rows);
        let cols = finish(cols, absent_in_cols);

        let (block, lists) = &rows;
        let mut sums = [0.0, block.norm2(), if listed == Listed::Observed { lists.len() as f64 } else { 0.0 }];
        (0..block.shape().0).for_each(|a| each(block, a, |_, x| sums[0] += x.as_f64()));
        comm.sum(STATISTICS, &mut sums);
        let observed = if listed == Listed::Observed { sums[2] } else { m as f64 * n as f64 - total[0] };
        let tally =
            Tally { sum: sums[0], norm2: sums[1], observed, held: total[1], held_above_zero: total[2], places: held };
        if tally.norm2 <= 0.0 || observed <= 0.0 {
            return Err(Error::input("no observed entry is above zero: there is nothing to factorise").on_all_ranks());
        }
        Ok(Separated { listed, rows, cols, tally })
    }

    /// The sum of an m × n matrix whose entries have the mean of the observed ones.
    pub fn sum(&self, (m, n): (usize, usize)) -> f64 {
        let Tally { sum, observed, .. } = self.tally;
        sum / observed * m as f64 * n as f64
    }
}

impl<T: Real> Tally<T> {
    /// Σ m_ij² over the observed entries.
    pub fn norm2(&self) -> f64 {
        self.norm2
    }

    /// Sums `squared`, the squared errors on the observed entries, over all ranks; returns the sum and the measures.
    /// Collective.
    pub fn errors(&self, comm: &Communicator, squared: f64) -> (f64, Measures) {
        let mut sum = [squared];
        comm.sum(metrics::RESIDUAL, &mut sum);
        let error = metrics::relative(sum[0], self.norm2);
        (sum[0], vec![("rel_error", error), ("rmse", (sum[0] / self.observed).sqrt())])
    }

    /// The error on the held-out entries, and also the mean divergence of the fit from them if that is what is minimised, for the
    /// own rows of U and the whole V; empty if none are held out. Collective.
    pub fn heldout(
        &self,
        comm: &Communicator,
        u: &ArrayView2<'_, T>,
        v: &ArrayView2<'_, T>,
        by_divergence: bool,
    ) -> Measures {
        if self.held <= 0.0 {
            return Vec::new();
        }
        let fit = |a: u32, b: u32| -> f64 {
            u.row(a as usize).iter().zip(v.row(b as usize)).map(|(x, y)| x.as_f64() * y.as_f64()).sum()
        };
        let mean = self.sum / self.observed;
        let mut off = vec![0.0; 1 + usize::from(by_divergence)];
        for &(a, b, x) in &self.places {
            let (x, fit) = (x.as_f64(), fit(a, b));
            off[0] += (x - fit).powi(2);
            if let Some(sum) = off.get_mut(1) {
                *sum += metrics::heldout_divergence_of(x, fit, mean);
            }
        }
        comm.sum(HELD, &mut off);
        let mut found = vec![(Measure::HeldoutRmse.key(), (off[0] / self.held).sqrt())];
        found.extend(off.get(1).map(|sum| (Measure::HeldoutDivergence.key(), metrics::not_negative(*sum) / self.held)));
        found
    }

    /// The decisions about missing entries, with the numbers of rows and columns without an observed entry.
    pub fn decisions(&self, listed: Listed, [rows, columns]: [f64; 2]) -> Vec<Decision> {
        vec![
            Decision::Listed(listed),
            Decision::Observed(self.observed),
            Decision::HeldOut { entries: self.held, above_zero: Some(self.held_above_zero) },
            Decision::Unobserved { rows, columns },
        ]
    }
}

//! Stored factors for a report: the whole factor whose components are shown, and what the other one says of each line.

use ndarray::{Array2, ArrayView2, Axis, s};

use fednmf_base::error::{Error, Result};
use fednmf_files::names;
use fednmf_files::output::matrices::Stored;
use fednmf_methods::federated::rows::fnmf::align::Assignment;

/// Lines of the matrix: its rows, which the components of V resemble, or its columns, which the components of U resemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Lines {
    Rows,
    Columns,
}

impl Lines {
    /// Name of the factor whose components resemble the lines, and of the other one.
    fn factors(self) -> (&'static str, &'static str) {
        match self {
            Lines::Rows => ("V", "U"),
            Lines::Columns => ("U", "V"),
        }
    }

    /// Number and length of the lines of an m × n matrix.
    pub fn shape(self, (m, n): (usize, usize)) -> (usize, usize) {
        match self {
            Lines::Rows => (m, n),
            Lines::Columns => (n, m),
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Lines::Rows => "row",
            Lines::Columns => "column",
        }
    }

    /// The lines across these, one for each entry of a component.
    pub fn across(self) -> Self {
        match self {
            Lines::Rows => Lines::Columns,
            Lines::Columns => Lines::Rows,
        }
    }
}

/// Sample lines of the matrix.
#[derive(Debug, Clone)]
pub struct Sample {
    pub lines: Lines,
    /// The number of lines of the matrix.
    pub total: usize,
    /// Their indices.
    pub at: Vec<usize>,
    /// Their entries, one line per row.
    pub values: Array2<f64>,
}

impl Sample {
    /// The relative error of each line: ‖x − f‖ / ‖x‖ over the entries that are not missing; NaN for a line of zeros.
    pub fn errors(&self, reconstruction: &Array2<f64>) -> Vec<f64> {
        // Missing entries are NaN.
        let norm = |v: &mut dyn Iterator<Item = f64>| v.filter(|x| !x.is_nan()).map(|x| x * x).sum::<f64>().sqrt();
        let of = |(x, f): (ndarray::ArrayView1<'_, f64>, ndarray::ArrayView1<'_, f64>)| {
            let size = norm(&mut x.iter().copied());
            let off = norm(&mut x.iter().zip(f).map(|(a, b)| a - b));
            if size > 0.0 { off / size } else { f64::NAN }
        };
        self.values.rows().into_iter().zip(reconstruction.rows()).map(of).collect()
    }
}

/// The places of up to `count` lines in a list of errors, each with its rank in words: the smallest errors, those around the
/// median, the largest. NaN is no error.
pub fn extremes(errors: &[f64], count: usize) -> Vec<(usize, &'static str)> {
    let mut order: Vec<usize> = (0..errors.len()).filter(|&i| errors[i].is_finite()).collect();
    order.sort_by(|&a, &b| errors[a].total_cmp(&errors[b]));
    let n = order.len();
    let count = count.min(n);
    let worst = count.div_ceil(3);
    let best = (count - worst).div_ceil(2);
    let middle = count - worst - best;
    // Between the others, so that no line is shown twice.
    let from = (n.saturating_sub(middle) / 2).clamp(best, n - worst - middle);
    let ranges = [(0..best, "best"), (from..from + middle, "median"), (n - worst..n, "worst")];
    ranges
        .into_iter()
        .flat_map(|(range, word)| range.map(move |i| (i, word)))
        .map(|(i, word)| (order[i], word))
        .collect()
}

/// Maximum number of lines of which a report chooses some, and of their entries.
const CANDIDATES: usize = 2048;
const CANDIDATE_ENTRIES: usize = 1 << 22;

/// The lines of which a report shows `shown`: spread evenly over `total` lines of `length` entries, or all of them.
pub fn candidates(shown: usize, (total, length): (usize, usize)) -> Vec<usize> {
    let many = CANDIDATES.min(CANDIDATE_ENTRIES / length.max(1));
    let count = if shown == 0 { 0 } else { many.max(shown).min(total) };
    (0..count).map(|i| (2 * i + 1) * total / (2 * count)).collect()
}

/// Maximum number of entries of a factor that a report reads.
const MOST: usize = 1 << 28;
/// Rows read at a time to compute norms.
const STEP: usize = 1 << 14;

/// Factors with their components in descending order of weight.
pub struct Factors {
    pub lines: Lines,
    /// The shown factor, length of a line × number of components.
    pub shown: Array2<f64>,
    /// Names of the rows of `shown`, if they are known.
    pub names: Option<Vec<String>>,
    /// Index of each component in the file.
    pub number: Vec<usize>,
    /// The sum of the entries of u_j v_jᵀ divided by that of U Vᵀ; `None` if a factor is not in the file.
    pub share: Option<Vec<f64>>,
}

impl Factors {
    /// Reads the factor to show; if the other one is private and only one is in the file, that one.
    ///
    /// # Errors
    /// If the file has no factor, or one that is too large to show.
    pub fn read(stored: &Stored, wanted: Option<Lines>) -> Result<Factors> {
        let has = |lines: Lines| stored.has(lines.factors().0);
        let lines = wanted.unwrap_or(Lines::Rows);
        let lines = if has(lines) || wanted.is_some() { lines } else { Lines::Columns };
        let (name, other) = lines.factors();
        let (rows, k) = stored.matrix(name)?;
        if rows.saturating_mul(k) > MOST {
            return Err(Error::input(format!(
                "{name} is {rows} x {k}: too large for a report; at most {MOST} numbers are read"
            )));
        }
        let mut shown = Array2::zeros((rows, k));
        stored.as_f64(name, 0, shown.view_mut())?;
        let mut weight: Vec<f64> = shown.columns().into_iter().map(|c| c.dot(&c).sqrt()).collect();
        let mut share = None;
        if stored.has(other) {
            let (norms, sums) = norms_and_sums(stored, other, k)?;
            weight.iter_mut().zip(norms).for_each(|(w, n)| *w *= n);
            share = Some(shares(absolute_sums(&shown.view()).iter().zip(&sums).map(|(a, b)| a * b)));
        }
        let mut number: Vec<usize> = (0..k).collect();
        number.sort_by(|&a, &b| weight[b].total_cmp(&weight[a]));
        let share = share.map(|share| number.iter().map(|&j| share[j]).collect());
        let shown = shown.select(Axis(1), &number);
        let names = stored.names();
        let names = if lines == Lines::Rows { names.columns } else { names.rows };
        let names = names.filter(|names| names.len() == rows);
        Ok(Factors { lines, shown, names, number, share })
    }

    /// The reconstruction of the lines `at` in ascending order, |at| × length; `None` if the other factor is not in the file.
    ///
    /// # Errors
    /// If it cannot be read or belongs to another matrix.
    pub fn reconstruct(&self, stored: &Stored, at: &[usize], boolean: bool) -> Result<Option<Array2<f64>>> {
        let (_, other) = self.lines.factors();
        if !stored.has(other) {
            return Ok(None);
        }
        let mut weights = Array2::<f64>::zeros((at.len(), self.number.len()));
        each_part(stored, other, self.number.len(), |first, part| {
            let inside = first..first + part.nrows();
            for (mut row, i) in weights.rows_mut().into_iter().zip(at).filter(|(_, i)| inside.contains(*i)) {
                row.iter_mut().zip(&self.number).for_each(|(w, &j)| *w = part[[i - first, j]]);
            }
        })?;
        let mut out = weights.dot(&self.shown.t());
        if boolean {
            out.mapv_inplace(|x| x.min(1.0));
        }
        Ok(Some(out))
    }

    /// How the lines use the components; `None` if the other factor is not in the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn usage(&self, stored: &Stored, cells: usize) -> Result<Option<Usage>> {
        let (_, other) = self.lines.factors();
        if !stored.has(other) {
            return Ok(None);
        }
        let k = self.number.len();
        let sums = absolute_sums(&self.shown.view());
        let shares = |part: &ArrayView2<'_, f64>, i: usize| {
            shares(self.number.iter().zip(&sums).map(|(&j, sum)| part[[i, j]].abs() * sum))
        };
        // The dominant component of each line, k for a line without any, and its share.
        let mut dominant = Vec::<(usize, f64)>::new();
        each_part(stored, other, k, |_, part| {
            for i in 0..part.nrows() {
                let first =
                    shares(&part, i).into_iter().enumerate().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
                dominant.push(first.filter(|(_, share)| *share > 0.0).unwrap_or((k, 0.0)));
            }
        })?;
        let mut counts = vec![0; k + 1];
        dominant.iter().for_each(|(j, _)| counts[*j] += 1);
        counts.truncate(k);
        let mut order: Vec<usize> = (0..dominant.len()).collect();
        order.sort_by(|&a, &b| dominant[a].0.cmp(&dominant[b].0).then(dominant[b].1.total_cmp(&dominant[a].1)));
        let (total, cells) = (order.len(), cells.min(order.len()));
        let mut cell = vec![0; total];
        order.iter().enumerate().for_each(|(place, &i)| cell[i] = place * cells / total);
        let (mut means, mut sizes) = (Array2::<f64>::zeros((k, cells)), vec![0.0; cells]);
        each_part(stored, other, k, |first, part| {
            for i in 0..part.nrows() {
                let at = cell[first + i];
                sizes[at] += 1.0;
                means.column_mut(at).iter_mut().zip(shares(&part, i)).for_each(|(mean, share)| *mean += share);
            }
        })?;
        means.columns_mut().into_iter().zip(sizes).for_each(|(mut mean, size)| mean /= size);
        Ok(Some(Usage { counts, means, total }))
    }

    /// The cosines between these components and those of another run, which are matched one to one. Both have the order of
    /// their factors.
    ///
    /// # Errors
    /// Why the components cannot be compared.
    pub fn matched(&self, other: &Factors) -> std::result::Result<Matches, String> {
        let (own_entries, other_entries) = self.common_entries(other)?;
        let normalised = |factor: &Array2<f64>, entries: &[usize]| {
            let mut factor = factor.select(Axis(0), entries);
            for mut column in factor.columns_mut() {
                let norm = column.dot(&column).sqrt();
                column /= if norm > 0.0 { norm } else { 1.0 };
            }
            factor
        };
        let cosines = normalised(&self.shown, &own_entries).t().dot(&normalised(&other.shown, &other_entries));
        let (own, others) = cosines.dim();
        let size = own.max(others);
        // A component too many is matched with nothing, at the cost of a cosine of zero.
        let cost: Vec<f64> =
            (0..size * size).map(|i| cosines.get((i / size, i % size)).map_or(0.0, |cosine| -cosine)).collect();
        let pairs = Assignment::new(size).solve(&cost).iter().take(own).map(|&j| (j < others).then_some(j)).collect();
        Ok(Matches { cosines, pairs, entries: own_entries.len() })
    }

    /// The entries that components of both runs have, as their places in this factor and in the other: those with the same
    /// names, or without names in both those at the same places.
    ///
    /// # Errors
    /// Why there are none.
    fn common_entries(&self, other: &Factors) -> std::result::Result<(Vec<usize>, Vec<usize>), String> {
        let word = self.lines.across().word();
        if self.lines != other.lines {
            return Err(format!("their entries are {word}s there and {}s here", other.lines.across().word()));
        }
        let named = self.names.as_ref().zip(other.names.as_ref()).filter(|(own, others)| own != others);
        let Some((own, others)) = named else {
            let [own, others] = [self, other].map(|factors| factors.shown.nrows());
            return match own == others {
                true => Ok(((0..own).collect(), (0..own).collect())),
                false => Err(format!("that run has {own} {word}s and this one {others}, without names in both")),
            };
        };
        let places = names::places(own, others).map_err(|name| names::repeated(word, &name))?;
        let common: (Vec<usize>, Vec<usize>) =
            places.into_iter().enumerate().filter_map(|(i, place)| Some((i, place?))).unzip();
        if common.0.is_empty() {
            return Err(format!("the runs have no name of a {word} in common"));
        }
        Ok(common)
    }
}

/// How the lines of a matrix use the components.
pub struct Usage {
    /// For each component the number of lines in which it is dominant: has the largest share of the line's sum in U Vᵀ.
    pub counts: Vec<usize>,
    /// The mean shares of the components (k × cells) in lines that follow each other in the order of their dominant component.
    pub means: Array2<f64>,
    pub total: usize,
}

/// How the components of two runs correspond.
pub struct Matches {
    /// Cosine of each component with each of the other run.
    pub cosines: Array2<f64>,
    /// The counterpart of each component.
    pub pairs: Vec<Option<usize>>,
    /// The number of entries of a component that both runs have. The cosines are of these.
    pub entries: usize,
}

/// Calls `of` with the rows of a factor, block by block, and the index of the first one.
fn each_part(stored: &Stored, name: &str, k: usize, mut of: impl FnMut(usize, ArrayView2<'_, f64>)) -> Result<()> {
    let (rows, cols) = stored.matrix(name)?;
    if cols != k {
        return Err(Error::input(format!(
            "{name} has {cols} components, and the other factor {k}; is the file damaged?"
        )));
    }
    let mut part = Array2::zeros((STEP.min(rows), k));
    for first in (0..rows).step_by(STEP) {
        let mut part = part.slice_mut(s![..STEP.min(rows - first), ..]);
        stored.as_f64(name, first, part.view_mut())?;
        of(first, part.view());
    }
    Ok(())
}

/// The norm of each component of a factor, and the sum of its magnitudes.
fn norms_and_sums(stored: &Stored, name: &str, k: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut squares, mut sums) = (vec![0.0; k], vec![0.0; k]);
    each_part(stored, name, k, |_, part| {
        part.columns().into_iter().zip(&mut squares).for_each(|(c, square)| *square += c.dot(&c));
        absolute_sums(&part).iter().zip(&mut sums).for_each(|(own, sum)| *sum += own);
    })?;
    Ok((squares.into_iter().map(f64::sqrt).collect(), sums))
}

/// The sum of the magnitudes in each column: noise may have left negative entries.
fn absolute_sums(factor: &ArrayView2<'_, f64>) -> Vec<f64> {
    factor.columns().into_iter().map(|c| c.iter().map(|x| x.abs()).sum()).collect()
}

/// Each term divided by the sum of all; zeros if that is zero.
fn shares(terms: impl Iterator<Item = f64>) -> Vec<f64> {
    let terms: Vec<f64> = terms.collect();
    let total: f64 = terms.iter().sum();
    terms.iter().map(|x| if total > 0.0 { x / total } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn candidates_are_spread_and_never_too_many() {
        assert_eq!(candidates(6, (5, 3)), [0, 1, 2, 3, 4]);
        assert_eq!(candidates(2, (30, 1 << 22)), [7, 22]);
        assert_eq!(candidates(1, (1 << 40, 4)).len(), CANDIDATES);
        assert!(candidates(0, (9, 9)).is_empty() && candidates(3, (0, 9)).is_empty());
    }

    #[test]
    fn the_best_the_median_and_the_worst_lines_are_chosen() {
        let errors = [0.5, 0.1, f64::NAN, 0.9, 0.3, 0.7, 0.2, 0.8, 0.4];
        let found = |count: usize| -> Vec<(f64, &str)> {
            extremes(&errors, count).into_iter().map(|(i, word)| (errors[i], word)).collect()
        };
        assert_eq!(found(3), [(0.1, "best"), (0.4, "median"), (0.9, "worst")]);
        assert_eq!(found(1), [(0.9, "worst")]);
        let all = found(20);
        assert_eq!(all.len(), 8);
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "{all:?}");
        assert!(extremes(&[f64::NAN], 3).is_empty() && extremes(&[], 3).is_empty());
    }

    #[test]
    fn errors_of_lines_leave_out_what_is_missing() {
        let values = array![[3.0, 4.0, f64::NAN], [0.0, 0.0, 0.0]];
        let sample = Sample { lines: Lines::Rows, total: 2, at: vec![0, 1], values };
        let errors = sample.errors(&array![[3.0, 3.0, 9.0], [1.0, 0.0, 0.0]]);
        assert!((errors[0] - 0.2).abs() < 1e-12 && errors[1].is_nan(), "{errors:?}");
    }

    fn factors(shown: Array2<f64>) -> Factors {
        let number = (0..shown.ncols()).collect();
        Factors { lines: Lines::Rows, shown, names: None, number, share: None }
    }

    #[test]
    fn components_are_matched_whatever_their_order_scale_and_number() {
        let one = factors(array![[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]);
        let other = factors(array![[0.0, 5.0], [3.0, 0.0], [0.0, 0.5]]);
        let found = one.matched(&other).unwrap();
        assert_eq!(found.pairs, [Some(1), Some(0), None]);
        assert!((found.cosines[[1, 0]] - 1.0).abs() < 1e-12 && found.cosines[[0, 0]] == 0.0);
        assert!(one.matched(&factors(array![[1.0]])).is_err_and(|why| why.contains("3 columns") && why.contains("1,")));
    }

    #[test]
    fn components_with_names_are_matched_by_them() {
        let named = |shown: Array2<f64>, names: &[&str]| Factors {
            names: Some(names.iter().map(|name| (*name).to_string()).collect()),
            ..factors(shown)
        };
        let one = named(array![[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]], &["a", "b", "c"]);
        let turned = named(array![[0.0, 3.0], [1.0, 0.0], [2.0, 1.0]], &["c", "a", "b"]);
        let found = one.matched(&turned).unwrap();
        assert_eq!((found.pairs, found.entries), (vec![Some(0), Some(1)], 3));
        assert!((0..2).all(|j| (found.cosines[[j, j]] - 1.0).abs() < 1e-12), "{}", found.cosines);
        // Of the columns that both have, whatever the others are.
        let more = named(array![[9.0, 9.0], [0.0, 3.0], [7.0, 0.0], [2.0, 1.0]], &["x", "c", "y", "b"]);
        let found = one.matched(&more).unwrap();
        assert_eq!((found.pairs, found.entries), (vec![Some(0), Some(1)], 2));
        assert!((0..2).all(|j| (found.cosines[[j, j]] - 1.0).abs() < 1e-12), "{}", found.cosines);
        // Without names in both: by position.
        assert_eq!(one.matched(&factors(turned.shown.clone())).unwrap().entries, 3);
        let refused = |names: &[&str], word: &str| {
            let found = one.matched(&named(turned.shown.clone(), names));
            assert!(found.as_ref().is_err_and(|why| why.contains(word)), "{names:?}");
        };
        refused(&["x", "y", "z"], "no name of a column in common");
        refused(&["c", "a", "a"], "several columns are called a");
    }

    #[test]
    fn lines_follow_their_dominant_component() {
        use fednmf_comm::Communicator;
        use fednmf_data::state::Piece;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.h5");
        let u = array![[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [0.0, 0.0]];
        let v = array![[1.0, 0.0], [0.0, 1.0]];
        let pieces = [Piece::shared("U", 4, 0, u.view()), Piece::shared("V", 2, 0, v.view())];
        fednmf_files::output::matrices::write(&Communicator::local(), &path, &pieces, &serde_json::Map::new()).unwrap();
        let stored = Stored::open(&path).unwrap();
        let factors = Factors::read(&stored, None).unwrap();
        let usage = factors.usage(&stored, 480).unwrap().unwrap();
        assert_eq!((usage.counts, usage.total), (vec![2, 1], 4));
        assert_eq!(factors.share, Some(vec![4.0 / 7.0, 3.0 / 7.0]));
        // Rows 0 and 2, of component 0, in descending order of its share; row 1; the row of zeros.
        assert_eq!(usage.means, array![[1.0, 0.75, 0.0, 0.0], [0.0, 0.25, 1.0, 0.0]]);
        let found = factors.reconstruct(&stored, &[1, 2], false).unwrap().unwrap();
        assert_eq!(found, array![[0.0, 2.0], [3.0, 1.0]]);
    }
}

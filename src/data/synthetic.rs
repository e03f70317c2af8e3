//! Synthetic matrices. Any rectangle of one is made anywhere with the same bits: all random numbers are keyed on the
//! global index, so each rank makes its own tiles and nothing is sent.

use std::ops::Range;

use ndarray::{Array2, ArrayViewMut2};

use super::pattern::Pattern;
use crate::comm::even_part;
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::random::{Purpose, Stream, mix};

/// What kind of matrix is made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// max(0, UVᵀ + noise · mean(UVᵀ) · N(0, 1)); entries of U, V are U(0, 1), each kept with probability `density`.
    Planted,
    /// Independent entries of probability `density`, uniform over the columns or by a power law.
    Sparse,
    /// `k` blocks on the diagonal with entries from U(½, 1½) over a background of |noise · N(0, 1)|.
    Blocks,
    /// Boolean: `k` overlapping tiles, each cell kept with probability `density`, then flipped with probability `noise`.
    Tiles,
    /// XY + N(0, noise), X entries exponential of mean 0.033, Y of mean 0.8: the made-up spectra of PPDNMF's paper, a few
    /// negative entries kept. `noise` is a variance.
    Exponential,
}

/// How columns share the entries of [`Kind::Sparse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    Uniform,
    /// Column j has a density ∝ (j + 1)^-0.7, as words in texts have.
    Power,
}

/// What the entries of [`Kind::Sparse`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// U(0, 1], never zero.
    Uniform,
    /// 1, 2, 3, … with probabilities ½, ¼, ⅛, …
    Counts,
    Ones,
}

/// A synthetic matrix, m × n.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    pub kind: Kind,
    pub m: usize,
    pub n: usize,
    /// Number of components planted.
    pub k: usize,
    pub density: f64,
    pub noise: f64,
    pub seed: u64,
    pub law: Law,
    pub values: Values,
    /// Blocks of rows that [`Kind::Tiles`] may keep tiles to.
    pub clients: usize,
    /// Share of the tiles that only one of them has.
    pub private: f64,
}

/// A kind's name, what it is by default, and the keys it takes.
const KINDS: [(&str, Synthetic, &[&str]); 5] = [
    ("planted", base(Kind::Planted, [2000, 1000, 10], 0.6, 0.05), &["m", "n", "k", "density", "noise", "seed"]),
    ("sparse", base(Kind::Sparse, [20_000, 5000, 1], 0.005, 0.0), &["m", "n", "density", "law", "values", "seed"]),
    ("blocks", base(Kind::Blocks, [1000, 500, 5], 1.0, 0.1), &["m", "n", "k", "noise", "seed"]),
    ("tiles", base(Kind::Tiles, [1000, 200, 10], 0.9, 0.1), TILES),
    ("exponential", base(Kind::Exponential, [30, 200, 5], 1.0, 3.6e-4), &["m", "n", "k", "noise", "seed"]),
];

const TILES: &[&str] = &["m", "n", "k", "density", "noise", "seed", "clients", "private"];

const fn base(kind: Kind, [m, n, k]: [usize; 3], density: f64, noise: f64) -> Synthetic {
    Synthetic {
        kind,
        m,
        n,
        k,
        density,
        noise,
        seed: 1,
        law: Law::Uniform,
        values: Values::Uniform,
        clients: 1,
        private: 0.0,
    }
}

impl Synthetic {
    /// Reads `KIND,key=value,…`.
    ///
    /// # Errors
    /// On an unknown kind or key, or a value out of its range; the message names what is allowed.
    pub fn parse(text: &str) -> Result<Self> {
        let mut words = text.split(',').map(str::trim);
        let name = words.next().unwrap_or_default();
        let Some((_, base, keys)) = KINDS.iter().find(|(kind, ..)| *kind == name) else {
            let kinds: Vec<&str> = KINDS.iter().map(|(kind, ..)| *kind).collect();
            return Err(Error::input(format!("synthetic:{name}: unknown kind; there are {}", kinds.join(", "))));
        };
        let mut made = base.clone();
        for word in words.filter(|w| !w.is_empty()) {
            let wrong = |why: String| Error::input(format!("synthetic:{name}: {word}: {why}"));
            let (key, value) = word.split_once('=').ok_or_else(|| wrong("write key=value".into()))?;
            if !keys.contains(&key) {
                return Err(wrong(format!("unknown key; {name} takes {}", keys.join(", "))));
            }
            let count = || match value.parse::<usize>() {
                Ok(count) if count > 0 && count <= i32::MAX as usize => Ok(count),
                _ => Err(wrong("must be a whole number from 1 to 2147483647".into())),
            };
            let share = |most: f64, least_open: bool| match value.parse::<f64>() {
                Ok(x) if x <= most && (x > 0.0 || !least_open && x == 0.0) => Ok(x),
                _ => Err(wrong(format!(
                    "must be a number {} 0, at most {most}",
                    if least_open { "above" } else { "from" }
                ))),
            };
            match key {
                "m" => made.m = count()?,
                "n" => made.n = count()?,
                "k" => made.k = count()?,
                "clients" => made.clients = count()?,
                "private" => made.private = share(1.0, false)?,
                "density" => made.density = share(1.0, true)?,
                "noise" => made.noise = share(if made.kind == Kind::Tiles { 1.0 } else { 1e9 }, false)?,
                "seed" => made.seed = value.parse().map_err(|_| wrong("must be a whole number from 0".into()))?,
                "law" => {
                    made.law = match value {
                        "uniform" => Law::Uniform,
                        "power" => Law::Power,
                        _ => return Err(wrong("must be uniform or power".into())),
                    }
                }
                _ => {
                    made.values = match value {
                        "uniform" => Values::Uniform,
                        "counts" => Values::Counts,
                        "ones" => Values::Ones,
                        _ => return Err(wrong("must be uniform, counts or ones".into())),
                    }
                }
            }
        }
        if made.kind == Kind::Blocks && made.k > made.m.min(made.n) {
            return Err(Error::input(format!(
                "synthetic:blocks: k={} blocks need at least as many rows and columns",
                made.k
            )));
        }
        Ok(made)
    }

    /// The kind's name.
    pub fn name(&self) -> &'static str {
        KINDS.iter().find(|(_, base, _)| base.kind == self.kind).map_or("synthetic", |(name, ..)| name)
    }

    /// Whether its blocks are stored sparse.
    pub fn sparse(&self) -> bool {
        self.kind == Kind::Sparse
    }
}

/// Makes rectangles of a synthetic matrix.
pub struct Generator {
    spec: Synthetic,
    form: Form,
    noise: Stream,
}

enum Form {
    /// U (m × k) and V stored as k × n, and the standard deviation of the noise; negatives are cut off unless `signed`.
    Product {
        u: Array2<f64>,
        vt: Array2<f64>,
        sigma: f64,
        signed: bool,
    },
    Blocks,
    Tiles(Tiles),
    Sparse(Pattern),
}

impl Generator {
    /// Prepares what every rectangle needs: (m + n)·k numbers for the kinds with factors.
    pub fn new(spec: &Synthetic) -> Self {
        let form = match spec.kind {
            Kind::Planted => {
                let u = factor(spec, Purpose::SyntheticU, spec.m);
                let vt = factor(spec, Purpose::SyntheticV, spec.n).reversed_axes().as_standard_layout().into_owned();
                // mean(UVᵀ) = Σ_l mean(U_l) mean(V_l), added up in index order on every rank
                let mean: f64 = (0..spec.k)
                    .map(|l| {
                        let u: f64 = u.column(l).iter().sum();
                        let v: f64 = vt.row(l).iter().sum();
                        u / spec.m as f64 * (v / spec.n as f64)
                    })
                    .sum();
                Form::Product { u, vt, sigma: spec.noise * mean, signed: false }
            }
            Kind::Exponential => {
                let draw = |purpose, rows: usize, mean: f64| {
                    let mut cursor = Stream::new(spec.seed, purpose, 0).at(0);
                    Array2::from_shape_simple_fn((rows, spec.k), || -mean * (1.0 - cursor.uniform()).ln())
                };
                let vt = draw(Purpose::SyntheticV, spec.n, 0.8).reversed_axes().as_standard_layout().into_owned();
                let u = draw(Purpose::SyntheticU, spec.m, 0.033);
                Form::Product { u, vt, sigma: spec.noise.sqrt(), signed: true }
            }
            Kind::Blocks => Form::Blocks,
            Kind::Tiles => Form::Tiles(Tiles::drawn(spec)),
            Kind::Sparse => Form::Sparse(Pattern::new(spec)),
        };
        Generator { spec: spec.clone(), form, noise: Stream::new(spec.seed, Purpose::SyntheticNoise, 0) }
    }

    /// The entries of `rows` × `cols` that are not zero, by rows. Only for sparse kinds.
    pub fn entries(&self, rows: Range<usize>, cols: Range<usize>, sink: &mut dyn FnMut(usize, usize, f64)) {
        if let Form::Sparse(pattern) = &self.form {
            pattern.entries(rows, cols, sink);
        }
    }

    /// Fills `out` with the rectangle that starts at (`first_row`, `first_col`). Only for dense kinds.
    pub fn fill<T: Real>(&self, first_row: usize, first_col: usize, out: &mut ArrayViewMut2<T>) {
        let mut row = vec![0.0; out.ncols()];
        for (i, mut out) in out.rows_mut().into_iter().enumerate() {
            self.row(first_row + i, first_col, &mut row);
            out.iter_mut().zip(&row).for_each(|(out, &x)| *out = T::of(x));
        }
    }

    /// Entries (i, first_col …) of row i.
    fn row(&self, i: usize, first_col: usize, out: &mut [f64]) {
        let mut cursor = self.noise.at(i as u128 * self.spec.n as u128 + first_col as u128);
        match &self.form {
            Form::Product { u, vt, sigma, signed } => {
                out.fill(0.0);
                for (l, &u) in u.row(i).iter().enumerate() {
                    if u != 0.0 {
                        let v = vt.slice(ndarray::s![l, first_col..first_col + out.len()]);
                        out.iter_mut().zip(v).for_each(|(x, v)| *x += u * v);
                    }
                }
                if *sigma > 0.0 {
                    out.iter_mut().for_each(|x| *x += sigma * cursor.normal());
                }
                if !signed {
                    out.iter_mut().for_each(|x| *x = x.max(0.0));
                }
            }
            Form::Blocks => {
                let block = |at: usize, total: usize| (at as u128 * self.spec.k as u128 / total as u128) as usize;
                let own = block(i, self.spec.m);
                for (j, x) in out.iter_mut().enumerate() {
                    // one draw an entry: the value inside, the background outside
                    *x = if block(first_col + j, self.spec.n) == own {
                        0.5 + cursor.uniform()
                    } else {
                        (self.spec.noise * cursor.normal()).abs()
                    };
                }
            }
            Form::Tiles(Tiles { rows, cols }) => {
                for (j, x) in out.iter_mut().enumerate() {
                    let j = first_col + j;
                    // tiles with both this row and this column; each keeps the cell independently
                    let both = rows[i].iter().filter(|&t| cols[j].contains(t)).count() as i32;
                    let on = 1.0 - (1.0 - self.spec.density).powi(both);
                    // One draw decides both the cell and its flip: P(1) = on (1 − noise) + (1 − on) noise.
                    let one = on * (1.0 - self.spec.noise) + (1.0 - on) * self.spec.noise;
                    *x = f64::from(u8::from(cursor.uniform() < one));
                }
            }
            Form::Sparse(_) => out.fill(0.0),
        }
    }
}

/// A rows × k factor with entries from U(0, 1), each kept with probability `density`.
fn factor(spec: &Synthetic, purpose: Purpose, rows: usize) -> Array2<f64> {
    let mut value = Stream::new(spec.seed, purpose, 0).at(0);
    let mut kept = Stream::new(spec.seed, Purpose::SyntheticPattern, purpose as u64).at(0);
    Array2::from_shape_simple_fn((rows, spec.k), || {
        let (value, kept) = (value.uniform(), kept.uniform());
        if kept < spec.density { value } else { 0.0 }
    })
}

/// The signal of [`Kind::Tiles`]: the matrix before noise and with whole tiles has a one where a row and a column share a
/// tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiles {
    /// The tiles of each row, ascending.
    pub rows: Vec<Vec<u32>>,
    /// The tiles of each column, ascending.
    pub cols: Vec<Vec<u32>>,
}

impl Tiles {
    /// The tiles of a synthetic matrix, if it is of that kind.
    pub fn new(spec: &Synthetic) -> Option<Self> {
        (spec.kind == Kind::Tiles).then(|| Tiles::drawn(spec))
    }

    /// Tiles of 10 to 30 % of the rows and 5 to 20 % of the columns, as random subsets; a private tile's rows are one
    /// client's.
    fn drawn(spec: &Synthetic) -> Self {
        let subset = |among: Range<usize>, purpose: Purpose, tile: usize, least: f64, most: f64| {
            let mut cursor = Stream::new(spec.seed, purpose, tile as u64).at(0);
            let share = least + (most - least) * cursor.uniform();
            let total = among.len();
            let size = ((share * total as f64).round() as usize).max(1).min(total);
            // the first `size` places of a Fisher-Yates shuffle
            let mut order: Vec<u32> = among.map(|at| at as u32).collect();
            for at in 0..size {
                order.swap(at, at + cursor.below((total - at) as u64) as usize);
            }
            order.truncate(size);
            order
        };
        let members = |total: usize, purpose: Purpose, least: f64, most: f64| {
            let mut of = vec![Vec::new(); total];
            for tile in 0..spec.k {
                let among = if purpose == Purpose::SyntheticU { Tiles::home(spec, tile) } else { 0..total };
                subset(among, purpose, tile, least, most).into_iter().for_each(|at| of[at as usize].push(tile as u32));
            }
            of
        };
        Tiles {
            rows: members(spec.m, Purpose::SyntheticU, 0.1, 0.3),
            cols: members(spec.n, Purpose::SyntheticV, 0.05, 0.2),
        }
    }

    /// The rows that a tile may have: all, or one client's.
    fn home(spec: &Synthetic, tile: usize) -> Range<usize> {
        let mut cursor = Stream::new(spec.seed, Purpose::SyntheticPattern, tile as u64).at(0);
        if cursor.uniform() < spec.private {
            even_part(spec.m, spec.clients, cursor.below(spec.clients as u64) as usize)
        } else {
            0..spec.m
        }
    }
}

/// The stream key of a cell of the sparse pattern.
pub(super) fn cell_key(row: usize, strip: usize) -> u64 {
    mix(row as u64) ^ (strip as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_are_refused_and_the_allowed_ones_named() {
        for (text, names) in [
            ("plante", "planted, sparse"),
            ("planted,law=power", "m, n, k"),
            ("sparse,law=cubic", "uniform or power"),
            ("sparse,density=0", "above 0"),
            ("planted,m=0", "from 1"),
            ("planted,m", "key=value"),
            ("planted,noise=nan", "from 0"),
            ("blocks,m=3,k=4", "at least as many"),
        ] {
            let message = Synthetic::parse(text).unwrap_err().message;
            assert!(message.contains(names), "{text}: {message}");
        }
        let made = Synthetic::parse("sparse,m=7,law=power,values=counts,seed=3").unwrap();
        assert_eq!((made.m, made.law, made.values, made.seed), (7, Law::Power, Values::Counts, 3));
        assert_eq!(made.name(), "sparse");
    }

    #[test]
    fn a_rectangle_is_the_same_whoever_makes_it() {
        for text in ["planted,m=30,n=20,k=3", "blocks,m=30,n=20", "tiles,m=30,n=20", "exponential,n=20"] {
            let generator = Generator::new(&Synthetic::parse(text).unwrap());
            let mut whole = Array2::<f64>::zeros((30, 20));
            generator.fill(0, 0, &mut whole.view_mut());
            let mut part = Array2::<f64>::zeros((5, 11));
            generator.fill(7, 4, &mut part.view_mut());
            assert_eq!(whole.slice(ndarray::s![7..12, 4..15]), part, "{text}");
            // and straight into a transposed tile
            let mut turned = Array2::<f64>::zeros((11, 5));
            generator.fill(7, 4, &mut turned.view_mut().reversed_axes());
            assert_eq!(turned.t(), part);
        }
    }

    #[test]
    fn planted_has_its_rank_without_noise_and_its_noise_with_it() {
        let make = |noise: f64| {
            let text = format!("planted,m=40,n=30,k=2,noise={noise}");
            let mut out = Array2::<f64>::zeros((40, 30));
            Generator::new(&Synthetic::parse(&text).unwrap()).fill(0, 0, &mut out.view_mut());
            out
        };
        let (clean, noisy) = (make(0.0), make(0.05));
        // every 3 × 3 minor of a rank-2 matrix vanishes
        for (i, j) in [(0, 0), (10, 20), (30, 7)] {
            let a = clean.slice(ndarray::s![i..i + 3, j..j + 3]);
            let det = a[[0, 0]] * (a[[1, 1]] * a[[2, 2]] - a[[1, 2]] * a[[2, 1]])
                - a[[0, 1]] * (a[[1, 0]] * a[[2, 2]] - a[[1, 2]] * a[[2, 0]])
                + a[[0, 2]] * (a[[1, 0]] * a[[2, 1]] - a[[1, 1]] * a[[2, 0]]);
            assert!(det.abs() < 1e-12);
        }
        let mean = clean.mean().unwrap();
        let off = (&noisy - &clean).mapv(|x| x * x).mean().unwrap().sqrt() / mean;
        assert!(off > 0.02 && off < 0.06, "{off}");
        assert!(noisy.iter().all(|&x| x >= 0.0));
    }

    #[test]
    fn private_tiles_stay_with_one_client() {
        let spec = Synthetic::parse("tiles,m=60,n=40,k=8,clients=3,private=1").unwrap();
        let tiles = Tiles::new(&spec).unwrap();
        let mut homes = vec![None; 8];
        for (i, of) in tiles.rows.iter().enumerate() {
            for &t in of {
                assert_eq!(*homes[t as usize].get_or_insert(i / 20), i / 20);
            }
        }
        let mut all: Vec<usize> = homes.into_iter().flatten().collect();
        assert_eq!(all.len(), 8, "every tile has rows");
        all.dedup();
        assert!(all.len() > 1, "several clients have tiles");
    }

    #[test]
    fn tiles_flip_nothing_without_noise() {
        let mut out = Array2::<f64>::zeros((1000, 200));
        let spec = Synthetic::parse("tiles,noise=0,density=1").unwrap();
        Generator::new(&spec).fill(0, 0, &mut out.view_mut());
        let share = out.mean().unwrap();
        assert!(out.iter().all(|&x| x == 0.0 || x == 1.0) && share > 0.08 && share < 0.5, "{share}");
    }
}

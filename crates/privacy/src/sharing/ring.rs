//! Products of words modulo 2⁶⁴, vectorised by the compiler. A pair holds two words for each entry: those of the data are the
//! components of a party, x_i and x_{i+1}, and those of the other factor y_i + y_{i+1} and y_i, so that a party's term of x y is
//! the sum of two products.

use pulp::{Simd, WithSimd};

use fednmf_linalg::simd::dispatch;

/// Two words for each entry.
pub type Pair<'a> = (&'a [u64], &'a [u64]);

/// Words that are multiplied at once.
const LANES: usize = 8;
/// Vectors that a row is multiplied with at once, and rows that are added at once.
const VECTORS: usize = 4;
const ROWS: usize = 4;

/// out ← a + b.
pub fn add(out: &mut Vec<u64>, a: &[u64], b: &[u64]) {
    out.clear();
    out.extend(a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)));
}

/// x y, for both words.
#[inline(always)]
fn product(x: (u64, u64), y: (u64, u64)) -> u64 {
    x.0.wrapping_mul(y.0).wrapping_add(x.1.wrapping_mul(y.1))
}

/// The words of a group.
#[inline(always)]
fn group(x: Pair<'_>, at: usize) -> ([u64; LANES], [u64; LANES]) {
    let (mut a, mut b) = ([0; LANES], [0; LANES]);
    a.copy_from_slice(&x.0[at..at + LANES]);
    b.copy_from_slice(&x.1[at..at + LANES]);
    (a, b)
}

/// The products of R vectors with V others.
#[inline(always)]
fn dots<const R: usize, const V: usize>(x: [Pair; R], y: [Pair; V]) -> [[u64; V]; R] {
    let length = x[0].0.len();
    let whole = length - length % LANES;
    let mut lanes = [[[0u64; LANES]; V]; R];
    for at in (0..whole).step_by(LANES) {
        for (v, y) in y.iter().enumerate() {
            let y = group(*y, at);
            for r in 0..R {
                let x = group(x[r], at);
                for lane in 0..LANES {
                    let found = product((x.0[lane], x.1[lane]), (y.0[lane], y.1[lane]));
                    lanes[r][v][lane] = lanes[r][v][lane].wrapping_add(found);
                }
            }
        }
    }
    for (x, sums) in x.iter().zip(&mut lanes) {
        for (y, sums) in y.iter().zip(sums) {
            sums[0] = (whole..length).fold(sums[0], |sum, j| sum.wrapping_add(product(word(*x, j), word(*y, j))));
        }
    }
    lanes.map(|sums| sums.map(|lanes| lanes.into_iter().fold(0, u64::wrapping_add)))
}

/// out ← out + Σ_r x_r y_r for words y_r.
#[inline(always)]
fn combine<const R: usize>(out: &mut [u64], x: [Pair; R], y: [(u64, u64); R]) {
    let x = x.map(|(a, b)| (&a[..out.len()], &b[..out.len()]));
    for (j, out) in out.iter_mut().enumerate() {
        let mut sum = *out;
        for r in 0..R {
            sum = sum.wrapping_add(product(word(x[r], j), y[r]));
        }
        *out = sum;
    }
}

#[inline(always)]
fn part(x: Pair<'_>, place: usize, length: usize) -> Pair<'_> {
    let range = place * length..(place + 1) * length;
    (&x.0[range.clone()], &x.1[range])
}

#[inline(always)]
fn word(x: Pair<'_>, place: usize) -> (u64, u64) {
    (x.0[place], x.1[place])
}

/// out ← out + x y for a word y.
pub fn scaled(out: &mut [u64], x: Pair<'_>, y: (u64, u64)) {
    dispatch(Scaled { out, x, y });
}

/// out ← out + x y, entry by entry.
pub fn products(out: &mut [u64], x: Pair<'_>, y: Pair<'_>) {
    for (j, out) in out.iter_mut().enumerate() {
        *out = out.wrapping_add(product(word(x, j), word(y, j)));
    }
}

/// Adds to out (k × rows) the products of the rows of X (rows × width) with the vectors of Y (k × width).
pub fn rows_times(out: &mut [u64], x: Pair<'_>, y: Pair<'_>, shape: (usize, usize, usize)) {
    dispatch(RowsTimes { out, x, y, shape });
}

/// Adds to out (k × width) Σ_i y_li x_i for the rows of X (rows × width) and Y (k × rows).
pub fn combined_rows(out: &mut [u64], x: Pair<'_>, y: Pair<'_>, shape: (usize, usize, usize)) {
    dispatch(CombinedRows { out, x, y, shape });
}

/// Adds to out the lower triangle, row by row, of the Gram matrix of k vectors (k × width): X and Y are two forms of them.
pub fn triangle(out: &mut [u64], x: Pair<'_>, y: Pair<'_>, shape: (usize, usize)) {
    dispatch(Triangle { out, x, y, shape });
}

struct Scaled<'a> {
    out: &'a mut [u64],
    x: Pair<'a>,
    y: (u64, u64),
}

impl WithSimd for Scaled<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        combine(self.out, [self.x], [self.y]);
    }
}

struct RowsTimes<'a> {
    out: &'a mut [u64],
    x: Pair<'a>,
    y: Pair<'a>,
    shape: (usize, usize, usize),
}

impl RowsTimes<'_> {
    /// Rows i .. i + R with vectors l .. l + V.
    #[inline(always)]
    fn block<const R: usize, const V: usize>(&mut self, i: usize, l: usize) {
        let RowsTimes { out, x, y, shape: (rows, width, _) } = self;
        let x = std::array::from_fn(|r| part(*x, i + r, *width));
        let y = std::array::from_fn(|v| part(*y, l + v, *width));
        for (r, found) in dots::<R, V>(x, y).into_iter().enumerate() {
            for (v, found) in found.into_iter().enumerate() {
                let out = &mut out[(l + v) * *rows + i + r];
                *out = out.wrapping_add(found);
            }
        }
    }

    #[inline(always)]
    fn rows<const R: usize>(&mut self, i: usize) {
        let k = self.shape.2;
        let whole = k - k % VECTORS;
        for l in (0..whole).step_by(VECTORS) {
            self.block::<R, VECTORS>(i, l);
        }
        for l in whole..k {
            self.block::<R, 1>(i, l);
        }
    }
}

impl WithSimd for RowsTimes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let rows = self.shape.0;
        let whole = rows - rows % 2;
        for i in (0..whole).step_by(2) {
            self.rows::<2>(i);
        }
        for i in whole..rows {
            self.rows::<1>(i);
        }
    }
}

struct CombinedRows<'a> {
    out: &'a mut [u64],
    x: Pair<'a>,
    y: Pair<'a>,
    shape: (usize, usize, usize),
}

impl CombinedRows<'_> {
    /// Rows i .. i + R.
    #[inline(always)]
    fn rows<const R: usize>(&mut self, i: usize) {
        let CombinedRows { out, x, y, shape: (rows, width, k) } = self;
        let x: [Pair<'_>; R] = std::array::from_fn(|r| part(*x, i + r, *width));
        for l in 0..*k {
            let y = std::array::from_fn(|r| word(*y, l * *rows + i + r));
            combine(&mut out[l * *width..(l + 1) * *width], x, y);
        }
    }
}

impl WithSimd for CombinedRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let rows = self.shape.0;
        let whole = rows - rows % ROWS;
        for i in (0..whole).step_by(ROWS) {
            self.rows::<ROWS>(i);
        }
        for i in whole..rows {
            self.rows::<1>(i);
        }
    }
}

struct Triangle<'a> {
    out: &'a mut [u64],
    x: Pair<'a>,
    y: Pair<'a>,
    shape: (usize, usize),
}

impl WithSimd for Triangle<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Triangle { out, x, y, shape: (width, k) } = self;
        let mut place = 0;
        for a in 0..k {
            for b in 0..=a {
                let [[found]] = dots([part(x, a, width)], [part(y, b, width)]);
                out[place] = out[place].wrapping_add(found);
                place += 1;
            }
        }
    }
}

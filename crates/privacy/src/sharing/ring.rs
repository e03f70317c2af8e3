//! Products of words modulo 2⁶⁴, vectorised by the compiler. A pair holds two words for each entry: those of the data are the
//! components of a party, x_i and x_{i+1}, and those of the other factor y_i + y_{i+1} and y_i, so that a party's term of x y is
//! the sum of two products.

use fednmf_linalg::simd::dispatch_fn;

/// Two words for each entry.
pub type Pair<'a> = (&'a [u64], &'a [u64]);

/// Words that are multiplied at once.
const LANES: usize = 8;

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

/// The products of R vectors with V others.
#[inline(always)]
fn dots<const R: usize, const V: usize>(x: [Pair; R], y: [Pair; V]) -> [[u64; V]; R] {
    let mut lanes = [[[0u64; LANES]; V]; R];
    let length = x[0].0.len();
    let whole = length - length % LANES;
    for at in (0..whole).step_by(LANES) {
        let load = |words: &[u64]| -> [u64; LANES] { std::array::from_fn(|lane| words[at + lane]) };
        let y = y.map(|(a, b)| (load(&a[..whole]), load(&b[..whole])));
        for (x, lanes) in x.iter().zip(&mut lanes) {
            let x = (load(&x.0[..whole]), load(&x.1[..whole]));
            for (y, lanes) in y.iter().zip(lanes) {
                for (lane, sum) in lanes.iter_mut().enumerate() {
                    *sum = sum.wrapping_add(product((x.0[lane], x.1[lane]), (y.0[lane], y.1[lane])));
                }
            }
        }
    }
    std::array::from_fn(|r| {
        std::array::from_fn(|v| {
            let rest = (whole..length).map(|j| product((x[r].0[j], x[r].1[j]), (y[v].0[j], y[v].1[j])));
            lanes[r][v].iter().copied().chain(rest).fold(0, u64::wrapping_add)
        })
    })
}

/// out ← out + Σ_r x_r y_r for words y_r, for V sets of them.
#[inline(always)]
fn combine<const R: usize, const V: usize>(out: [&mut [u64]; V], x: [Pair; R], y: [[(u64, u64); R]; V]) {
    for (out, y) in out.into_iter().zip(y) {
        let x = x.map(|(a, b)| (&a[..out.len()], &b[..out.len()]));
        for (j, out) in out.iter_mut().enumerate() {
            *out = (0..R).fold(*out, |sum, r| sum.wrapping_add(product((x[r].0[j], x[r].1[j]), y[r])));
        }
    }
}

fn part(x: Pair<'_>, place: usize, length: usize) -> Pair<'_> {
    let range = place * length..(place + 1) * length;
    (&x.0[range.clone()], &x.1[range])
}

fn word(x: Pair<'_>, place: usize) -> (u64, u64) {
    (x.0[place], x.1[place])
}

/// out ← out + x y for a word y.
pub fn scaled(out: &mut [u64], x: Pair<'_>, y: (u64, u64)) {
    dispatch_fn(|| combine([&mut *out], [x], [[y]]));
}

/// out ← out + x y, entry by entry.
pub fn products(out: &mut [u64], x: Pair<'_>, y: Pair<'_>) {
    for (j, out) in out.iter_mut().enumerate() {
        *out = out.wrapping_add(product(word(x, j), word(y, j)));
    }
}

/// Adds to out (k × rows) the products of the rows of X (rows × width) with the vectors of Y (k × width).
pub fn rows_times(out: &mut [u64], x: Pair<'_>, y: Pair<'_>, (rows, width, k): (usize, usize, usize)) {
    #[inline(always)]
    fn block<const R: usize, const V: usize>(
        out: &mut [u64],
        (x, y): (Pair<'_>, Pair<'_>),
        (rows, width): (usize, usize),
        (i, l): (usize, usize),
    ) {
        let found = dots::<R, V>(
            std::array::from_fn(|r| part(x, i + r, width)),
            std::array::from_fn(|v| part(y, l + v, width)),
        );
        for (r, found) in found.into_iter().enumerate() {
            for (v, found) in found.into_iter().enumerate() {
                let out = &mut out[(l + v) * rows + i + r];
                *out = out.wrapping_add(found);
            }
        }
    }
    dispatch_fn(|| {
        for i in (0..rows).step_by(2) {
            let mut l = 0;
            while l < k {
                let (shape, at) = ((rows, width), (i, l));
                l += match (rows - i, k - l) {
                    (1, 4..) => {
                        block::<1, 4>(out, (x, y), shape, at);
                        4
                    }
                    (1, _) => {
                        block::<1, 1>(out, (x, y), shape, at);
                        1
                    }
                    (_, 4..) => {
                        block::<2, 4>(out, (x, y), shape, at);
                        4
                    }
                    _ => {
                        block::<2, 1>(out, (x, y), shape, at);
                        1
                    }
                };
            }
        }
    });
}

/// Adds to out (k × width) Σ_i y_li x_i for the rows of X (rows × width) and Y (k × rows).
pub fn combined_rows(out: &mut [u64], x: Pair<'_>, y: Pair<'_>, (rows, width, k): (usize, usize, usize)) {
    /// Rows that are added at once.
    const ROWS: usize = 4;
    #[inline(always)]
    fn block<const R: usize>(
        out: &mut [u64],
        (x, y): (Pair<'_>, Pair<'_>),
        (rows, width, k): (usize, usize, usize),
        i: usize,
    ) {
        let x: [Pair; R] = std::array::from_fn(|r| part(x, i + r, width));
        for l in 0..k {
            let y = std::array::from_fn(|r| word(y, l * rows + i + r));
            combine([&mut out[l * width..(l + 1) * width]], x, [y]);
        }
    }
    dispatch_fn(|| {
        let whole = rows - rows % ROWS;
        (0..whole).step_by(ROWS).for_each(|i| block::<ROWS>(out, (x, y), (rows, width, k), i));
        (whole..rows).for_each(|i| block::<1>(out, (x, y), (rows, width, k), i));
    });
}

/// Adds to out the lower triangle, row by row, of the Gram matrix of k vectors (k × width): X and Y are two forms of them.
pub fn triangle(out: &mut [u64], x: Pair<'_>, y: Pair<'_>, (width, k): (usize, usize)) {
    dispatch_fn(|| {
        let pairs = (0..k).flat_map(|a| (0..=a).map(move |b| (a, b)));
        for (out, (a, b)) in out.iter_mut().zip(pairs) {
            let [[found]] = dots([part(x, a, width)], [part(y, b, width)]);
            *out = out.wrapping_add(found);
        }
    });
}

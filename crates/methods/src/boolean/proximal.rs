//! One step towards Boolean factors, which FELB and ELBMF share. For the rows x of a factor, its right-hand side r, and the
//! Gram matrix G of the other factor, it is
//!
//! x ← prox(y − η ∘ (yG − r)),  y = x + β (x − x_before),
//!
//! The prox is that of the two elastic nets around 0 and 1 (FELB, Eqs. (3) and (6)), with κ and λ scaled by the step
//! length. It is followed by a cut to [0, 1] or to nonnegative numbers, and by the proximal step towards the shared factor
//! (Eq. (7)), scaled likewise. Zhang's method uses another step with the same G and r. The memory is read once, in tiles of
//! rows. The result of a row does not depend on its position, and the order of summation is fixed.

use pulp::{Simd, WithSimd};

use fednmf_linalg::Real;
use fednmf_linalg::simd::{Lanes, dispatch, lanes, load, store};

/// Number of rows of a tile.
const TILE: usize = 64;

/// Number of tiles whose products are summed in the precision of the factor; these partial sums are added in f64.
const TILES_OF_SUM: usize = 32;

/// Avoids 0/0 in multiplicative steps.
const TINY: f64 = 1e-12;

/// The kind of step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ProximalRule {
    /// η = 1 / ‖G‖_F, a lower bound of 1 / the Lipschitz constant; entries are cut to [0, 1].
    Lipschitz,
    /// η = 2 (1 − β) / (1 + 2β) / ‖G‖_F, the step of iPALM, or 1 / (1.1 ‖G‖_F) without inertia (β = 0), as in the code of
    /// ELBMF's authors; entries are cut at 0 only.
    Ipalm,
    /// η = x ⊘ (xG), as in the updates of Lee and Seung.
    Multiplicative,
    /// Lee and Seung's update of ½‖A − UVᵀ‖² + ½λ Σ (x² − x)² (Zhang et al., ICDM 2007), without prox.
    Penalty,
}

/// Parameters of a step.
#[derive(Debug, Clone, Copy)]
pub struct ProximalStep {
    pub rule: ProximalRule,
    pub kappa: f64,
    pub lambda: f64,
    /// The inertia β.
    pub inertia: f64,
}

/// The prox of the two elastic nets with weights `kappa` and `lambda`, cut to [0, 1].
#[inline(always)]
pub fn prox<T: Real>(x: T, kappa: T, lambda: T) -> T {
    let one = T::one();
    // A soft threshold around 0 below ½, and around 1 above it. The cut replaces the outer branches of both.
    let y = if x <= T::from_f64(0.5) { x - kappa } else { x + kappa + lambda } / (one + lambda);
    let y = if y > T::zero() { y } else { T::zero() };
    if y < one { y } else { one }
}

/// As [`prox`], but cut at 0 only, so that entries may exceed 1.
#[inline(always)]
fn prox_nonnegative<T: Real>(x: T, kappa: T, lambda: T) -> T {
    let one = T::one();
    let above = x - one - kappa;
    if above > T::zero() { one + above / (one + lambda) } else { prox(x, kappa, lambda) }
}

/// The step length for this ‖G‖_F.
fn length(rule: ProximalRule, norm: f64, inertia: f64) -> f64 {
    // If the factor is zero, the gradient vanishes; the step is then only the prox, in the unit of the data.
    let norm = if norm > 0.0 { norm } else { 1.0 };
    match rule {
        ProximalRule::Ipalm if inertia > 0.0 => 2.0 * (1.0 - inertia) / (1.0 + 2.0 * inertia) / norm,
        ProximalRule::Ipalm => 1.0 / (1.1 * norm),
        ProximalRule::Lipschitz | ProximalRule::Multiplicative | ProximalRule::Penalty => 1.0 / norm,
    }
}

/// out = FᵀF (k × k) for the rows of F, each of length k.
pub fn gram<T: Real>(f: &[T], k: usize, out: &mut [T]) {
    assert!(f.len().is_multiple_of(k.max(1)) && out.len() == k * k, "shapes of a Gram matrix");
    dispatch(Gram { f, k, out });
}

/// One step, see the [module](self). `x`, `before` and `r` are rows × k; `before` becomes the old x. `target` holds the
/// shared factor, of the same shape, and the weight γ of its proximal term.
pub fn step<T: Real>(
    x: &mut [T],
    before: &mut [T],
    r: &[T],
    g: &[T],
    k: usize,
    step: ProximalStep,
    target: Option<(&[T], f64)>,
) {
    assert!(x.len() == before.len() && x.len() == r.len() && g.len() == k * k, "shapes of a step");
    assert!(target.is_none_or(|(v, _)| v.len() == x.len()), "shape of the shared factor");
    dispatch(Advance { x, before, r, g, k, step, target });
}

/// c (4 × N vectors, rows `stride` apart) += a b with a(i, t) = a[i·(row of a) + t·(step of a)] and the rows of b
/// `stride` apart, for `terms` values of t.
#[inline(always)]
fn micro<T: Real, S: Simd, const N: usize>(
    s: S,
    (a, a_row, a_step): (&[T], usize, usize),
    b: &[T],
    terms: usize,
    c: &mut [T],
    stride: usize,
) {
    let width = lanes::<T, S>();
    let mut sums = [[T::splat_v(s, T::zero()); N]; 4];
    for (i, sums) in sums.iter_mut().enumerate() {
        for (v, sum) in sums.iter_mut().enumerate() {
            *sum = load::<T, S>(&c[i * stride + v * width..]);
        }
    }
    for t in 0..terms {
        let b = T::vectors::<S>(&b[t * stride..][..N * width]).0;
        for (i, sums) in sums.iter_mut().enumerate() {
            let a = T::splat_v(s, a[i * a_row + t * a_step]);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = T::mul_add_v(s, a, *b, *sum);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            store::<T, S>(&mut c[i * stride + v * width..], *sum);
        }
    }
}

/// c (4·fours × wide, rows `wide` apart) += a b, as [`micro`].
#[inline(always)]
fn panel<T: Real, S: Simd>(
    s: S,
    a: &[T],
    (a_row, a_step): (usize, usize),
    b: &[T],
    terms: usize,
    c: &mut [T],
    (fours, wide): (usize, usize),
) {
    let width = lanes::<T, S>();
    let mut first = 0;
    while first < wide {
        let vectors = ((wide - first) / width).min(3);
        for i in 0..fours {
            let a = (&a[4 * i * a_row..], a_row, a_step);
            let (b, c) = (&b[first..], &mut c[4 * i * wide + first..]);
            match vectors {
                1 => micro::<T, S, 1>(s, a, b, terms, c, wide),
                2 => micro::<T, S, 2>(s, a, b, terms, c, wide),
                _ => micro::<T, S, 3>(s, a, b, terms, c, wide),
            }
        }
        first += vectors * width;
    }
}

/// k rounded up to whole vectors and to a multiple of four.
#[inline(always)]
fn padded<T: Real, S: Simd>(k: usize) -> usize {
    k.next_multiple_of(lanes::<T, S>().max(4))
}

struct Gram<'a, T> {
    f: &'a [T],
    k: usize,
    out: &'a mut [T],
}

impl<T: Real> WithSimd for Gram<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let k = self.k;
        let wide = padded::<T, S>(k);
        T::with_buffer(|buffer| {
            buffer.clear();
            buffer.resize((TILE + wide) * wide, T::zero());
            let (tile, sums) = buffer.split_at_mut(TILE * wide);
            let mut add = |part: &[T], sums: &mut [T]| {
                for rows in part.chunks(TILE * k.max(1)) {
                    let count = rows.len() / k;
                    for (to, from) in tile.chunks_exact_mut(wide).zip(rows.chunks_exact(k)) {
                        to[..k].copy_from_slice(from);
                    }
                    panel(s, tile, (1, wide), tile, count, sums, (wide / 4, wide));
                }
            };
            if size_of::<T>() == size_of::<f64>() {
                add(self.f, sums);
                for (out, sums) in self.out.chunks_exact_mut(k).zip(sums.chunks_exact(wide)) {
                    out.copy_from_slice(&sums[..k]);
                }
                return;
            }
            f64::with_buffer(|totals| {
                totals.clear();
                totals.resize(wide * wide, 0.0);
                for part in self.f.chunks(TILES_OF_SUM * TILE * k.max(1)) {
                    sums.fill(T::zero());
                    add(part, sums);
                    totals.iter_mut().zip(&*sums).for_each(|(total, sum)| *total += sum.as_f64());
                }
                for (out, totals) in self.out.chunks_exact_mut(k).zip(totals.chunks_exact(wide)) {
                    out.iter_mut().zip(totals).for_each(|(out, &total)| *out = T::from_f64(total));
                }
            });
        });
    }
}

/// The rows of a tile and all operands of their update.
struct Tile<'a, T> {
    r: &'a [T],
    /// y and yG, in rows of length `wide`.
    ys: &'a [T],
    products: &'a [T],
    shared: Option<&'a [T]>,
    k: usize,
    wide: usize,
}

impl<T: Real> Tile<'_, T> {
    /// x ← f(y, yG, r, shared), entry by entry.
    #[inline(always)]
    fn each(&self, x: &mut [T], f: impl Fn(T, T, T, T) -> T) {
        let k = self.k;
        let tiles = self.ys.chunks_exact(self.wide).zip(self.products.chunks_exact(self.wide));
        for (i, ((x, r), (y, p))) in x.chunks_exact_mut(k).zip(self.r.chunks_exact(k)).zip(tiles).enumerate() {
            let shared = self.shared.map_or(r, |v| &v[i * k..(i + 1) * k]);
            for ((x, r), ((y, p), v)) in x.iter_mut().zip(r).zip(y.iter().zip(p).zip(shared)) {
                *x = f(*y, *p, *r, *v);
            }
        }
    }
}

struct Advance<'a, T> {
    x: &'a mut [T],
    before: &'a mut [T],
    r: &'a [T],
    g: &'a [T],
    k: usize,
    step: ProximalStep,
    target: Option<(&'a [T], f64)>,
}

impl<T: Real> WithSimd for Advance<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Advance { x, before, r, g, k, step, target } = self;
        let wide = padded::<T, S>(k);
        let norm = g.iter().map(|g| g.as_f64() * g.as_f64()).sum::<f64>().sqrt();
        let length = T::from_f64(length(step.rule, norm, step.inertia));
        let multiplicative = matches!(step.rule, ProximalRule::Multiplicative | ProximalRule::Penalty);
        let [kappa, lambda, inertia, tiny] = [step.kappa, step.lambda, step.inertia, TINY].map(T::from_f64);
        let (shared, gamma) = target.map_or((None, T::zero()), |(v, gamma)| (Some(v), T::from_f64(gamma)));
        T::with_buffer(|buffer| {
            buffer.clear();
            buffer.resize((2 * TILE + wide) * wide, T::zero());
            let (gram, tiles) = buffer.split_at_mut(wide * wide);
            let (ys, products) = tiles.split_at_mut(TILE * wide);
            for (to, from) in gram.chunks_exact_mut(wide).zip(g.chunks_exact(k)) {
                to[..k].copy_from_slice(from);
            }
            let rows = x.chunks_mut(TILE * k).zip(before.chunks_mut(TILE * k)).zip(r.chunks(TILE * k));
            for (at, ((x, before), r)) in rows.enumerate() {
                let count = x.len() / k;
                let old = x.chunks_exact(k).zip(before.chunks_exact_mut(k));
                for (y, (x, before)) in ys.chunks_exact_mut(wide).zip(old) {
                    for ((y, x), before) in y.iter_mut().zip(x).zip(before) {
                        let moved = *x + inertia * (*x - *before);
                        // A multiplicative step is defined only for y ≥ 0.
                        *y = if multiplicative && moved < T::zero() { T::zero() } else { moved };
                        *before = *x;
                    }
                }
                products.fill(T::zero());
                panel(s, ys, (wide, 1), gram, k, products, (count.div_ceil(4), wide));
                let shared = shared.map(|v| &v[at * TILE * k..]);
                let near = |y: T, p: T, r: T, v: T, eta: T| {
                    let near = prox(y - eta * (p - r), eta * kappa, eta * lambda);
                    (near + eta * gamma * v) / (T::one() + eta * gamma)
                };
                let tile = Tile { r, ys, products, shared, k, wide };
                match step.rule {
                    ProximalRule::Lipschitz => tile.each(x, |y, p, r, v| near(y, p, r, v, length)),
                    ProximalRule::Ipalm => tile.each(x, |y, p, r, v| {
                        let near = prox_nonnegative(y - length * (p - r), length * kappa, length * lambda);
                        (near + length * gamma * v) / (T::one() + length * gamma)
                    }),
                    ProximalRule::Multiplicative => tile.each(x, |y, p, r, v| near(y, p, r, v, y / (p + tiny))),
                    ProximalRule::Penalty => tile.each(x, |y, p, r, _| {
                        let [two, three] = [2.0, 3.0].map(T::from_f64);
                        y * (r + three * lambda * y * y) / (p + two * lambda * y * y * y + lambda * y + tiny)
                    }),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ArrayView2};

    use fednmf_linalg::random::{Purpose, Stream, uniform_factor};
    use fednmf_linalg::simd::with_each_arch;

    use super::*;

    fn slice(a: &Array2<f64>) -> &[f64] {
        a.as_slice().unwrap()
    }

    /// argmin_y ½(y − x)² + min of the two elastic nets, by search.
    fn prox_by_search(x: f64, kappa: f64, lambda: f64, upper: f64) -> f64 {
        let centre = if x <= 0.5 { 0.0 } else { 1.0 };
        let cost = |y: f64| {
            let d: f64 = y - centre;
            0.5 * (y - x) * (y - x) + kappa * d.abs() + 0.5 * lambda * d * d
        };
        let grid = (0..=200_000).map(|i| upper * f64::from(i) / 200_000.0);
        grid.min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap()
    }

    #[test]
    fn the_prox_is_the_minimum_it_says() {
        for (kappa, lambda) in [(0.0, 0.0), (0.1, 0.3), (0.02, 5.0)] {
            for x in [-0.3, -0.01, 0.0, 0.01, 0.2, 0.499, 0.501, 0.8, 0.99, 1.0, 1.05, 1.7] {
                for (found, upper) in [(prox(x, kappa, lambda), 1.0), (prox_nonnegative(x, kappa, lambda), 2.0)] {
                    let expected = prox_by_search(x, kappa, lambda, upper);
                    assert!((found - expected).abs() < 1e-5, "{x} {kappa} {lambda} {upper}: {found} {expected}");
                }
            }
        }
    }

    /// There are more equal terms than f32 can count.
    #[test]
    fn long_sums_lose_no_terms() {
        let rows = (1 << 24) + (1 << 21);
        let mut out = [0.0f32];
        gram(&vec![1.0; rows], 1, &mut out);
        assert_eq!(out[0], rows as f32);
    }

    #[test]
    fn a_step_is_what_the_formulas_say() {
        with_each_arch(|| {
            for (rows, k) in [(1, 1), (5, 3), (64, 10), (130, 20), (67, 33)] {
                let draw = |at: u64, rows| uniform_factor::<f64>(&Stream::new(at, Purpose::Probe, 0), 0..rows, k, 1.0);
                let (x, old, v) = (draw(1, rows), draw(2, rows), draw(4, rows));
                let f = draw(3, 40);
                let r = draw(5, rows).mapv(|r| 10.0 * r);
                let mut g = Array2::zeros((k, k));
                gram(slice(&f), k, g.as_slice_mut().unwrap());
                let expected = f.t().dot(&f);
                assert!((&g - &expected).iter().all(|d| d.abs() < 1e-12));
                for rule in [ProximalRule::Lipschitz, ProximalRule::Ipalm, ProximalRule::Multiplicative] {
                    let parameters = ProximalStep { rule, kappa: 0.01, lambda: 0.2, inertia: 0.1 };
                    for gamma in [0.0, 2.0] {
                        let (mut found, mut before) = (x.clone(), old.clone());
                        step(
                            found.as_slice_mut().unwrap(),
                            before.as_slice_mut().unwrap(),
                            slice(&r),
                            slice(&g),
                            k,
                            parameters,
                            (gamma > 0.0).then_some((slice(&v), gamma)),
                        );
                        assert_eq!(before, x);
                        let multiplicative = rule == ProximalRule::Multiplicative;
                        let lower = if multiplicative { 0.0 } else { -9.0 };
                        let y = (&x + &(0.1 * (&x - &old))).mapv(|y| y.max(lower));
                        let p = y.dot(&g);
                        let norm = g.iter().map(|g| g * g).sum::<f64>().sqrt();
                        let entry = |(i, j): (usize, usize), y: &ArrayView2<f64>| {
                            let eta = match rule {
                                ProximalRule::Lipschitz => 1.0 / norm,
                                // 2 (1 − 0.1) / (1 + 2 · 0.1)
                                ProximalRule::Ipalm => 1.5 / norm,
                                _ => y[[i, j]] / (p[[i, j]] + 1e-12),
                            };
                            let prox = if rule == ProximalRule::Ipalm { prox_nonnegative } else { prox };
                            let near = prox(y[[i, j]] - eta * (p[[i, j]] - r[[i, j]]), eta * 0.01, eta * 0.2);
                            (near + eta * gamma * v[[i, j]]) / (1.0 + eta * gamma)
                        };
                        for ((i, j), x) in found.indexed_iter() {
                            assert!((x - entry((i, j), &y.view())).abs() < 1e-12, "{rows} {k} {rule:?} {gamma}");
                        }
                    }
                }
            }
            Ok::<(), proptest::test_runner::TestCaseError>(())
        })
        .unwrap();
    }
}

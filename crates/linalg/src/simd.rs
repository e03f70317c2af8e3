//! Vector operations for kernels that are generic over the precision.
//!
//! [`pulp`] compiles a kernel for each instruction set (AVX-512, AVX2 with FMA, or neither; NEON on ARM) and selects one at run
//! time.
//! This file gives generic code access to its f32 and f64 operations. Kernels must be `#[inline(always)]` down to here:
//! code that is not inlined is compiled without the instruction set.

use pulp::bytemuck::Pod;
use pulp::{Arch, Simd, WithSimd};

use crate::Real;

/// An element type with vector operations.
pub trait Lanes: Pod {
    /// A vector of the instruction set `S`.
    type Vector<S: Simd>: Pod;

    fn splat_v<S: Simd>(s: S, x: Self) -> Self::Vector<S>;
    fn add_v<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn mul_v<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn div_v<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// a·b + c, with one rounding if the machine has FMA.
    fn mul_add_v<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// c − a·b, with one rounding if the machine has FMA.
    fn mul_sub_v<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// The maximum; b where a is NaN.
    fn max_v<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn min_v<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn sum_v<S: Simd>(s: S, a: Self::Vector<S>) -> Self;
    /// Transposes groups of four consecutive elements in four vectors: the first elements of all groups, the second ones,
    /// and so on. The order of the groups depends on the machine; [`Lanes::interleave`] is the inverse.
    fn deinterleave<S: Simd>(s: S, groups: [Self::Vector<S>; 4]) -> [Self::Vector<S>; 4];
    fn interleave<S: Simd>(s: S, vectors: [Self::Vector<S>; 4]) -> [Self::Vector<S>; 4];
    /// A vector from a slice that is shorter than it, filled up with zeros.
    fn load_short<S: Simd>(s: S, slice: &[Self]) -> Self::Vector<S>;
    fn store_short<S: Simd>(s: S, slice: &mut [Self], a: Self::Vector<S>);
    /// The slice as whole vectors and the remaining elements.
    fn vectors<S: Simd>(slice: &[Self]) -> (&[Self::Vector<S>], &[Self]);
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> (&mut [Self::Vector<S>], &mut [Self]);
    /// Calls `f` with a buffer of this thread that is reused between calls, so that kernels do not allocate.
    fn with_buffer<R>(f: impl FnOnce(&mut Vec<Self>) -> R) -> R;
}

/// Number of elements in a vector.
#[inline(always)]
pub const fn lanes<T: Lanes, S: Simd>() -> usize {
    size_of::<T::Vector<S>>() / size_of::<T>()
}

/// The first vector of a slice.
#[inline(always)]
pub fn load<T: Lanes, S: Simd>(slice: &[T]) -> T::Vector<S> {
    T::vectors::<S>(&slice[..lanes::<T, S>()]).0[0]
}

/// Overwrites the first vector of a slice.
#[inline(always)]
pub fn store<T: Lanes, S: Simd>(slice: &mut [T], a: T::Vector<S>) {
    T::vectors_mut::<S>(&mut slice[..lanes::<T, S>()]).0[0] = a;
}

/// The sums of some vectors. Those of four are computed together: their groups of four are added up at once.
#[inline(always)]
pub fn sums<T: Real, S: Simd, const N: usize>(s: S, vectors: [T::Vector<S>; N]) -> [T; N] {
    let (lanes, mut sums) = (lanes::<T, S>(), [T::zero(); N]);
    if N != 4 || lanes < 4 {
        for n in 0..N {
            sums[n] = T::sum_v(s, vectors[n]);
        }
        return sums;
    }
    let [a, b, c, d] = T::deinterleave(s, [vectors[0], vectors[1], vectors[2], vectors[3]]);
    let mut groups = [T::zero(); 16];
    store::<T, S>(&mut groups, T::add_v(s, T::add_v(s, a, b), T::add_v(s, c, d)));
    // A group of each vector, then the next group of each; eight f64 have both groups of two vectors first.
    if lanes == 8 && size_of::<T>() == size_of::<f64>() {
        for n in 0..N {
            sums[n] = groups[n + 2 * (n / 2)] + groups[n + 2 * (n / 2) + 2];
        }
        return sums;
    }
    for group in groups[..lanes].as_chunks::<N>().0 {
        for n in 0..N {
            sums[n] += group[n];
        }
    }
    sums
}

/// Runs a kernel with the best instruction set of the processor.
pub fn dispatch<K: WithSimd>(kernel: K) -> K::Output {
    #[cfg(any(test, feature = "testing"))]
    if let Some(arch) = FORCED.get() {
        return arch.dispatch(kernel);
    }
    Arch::new().dispatch(kernel)
}

/// As [`dispatch`], for a closure that the compiler vectorises. Of a closure passed to `dispatch` itself, `call_once` is not inlined,
/// and so it is compiled without the instruction set.
pub fn dispatch_fn<R>(f: impl FnMut() -> R) -> R {
    struct Call<F>(F);
    impl<R, F: FnMut() -> R> WithSimd for Call<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, _: S) -> R {
            (self.0)()
        }
    }
    dispatch(Call(f))
}

/// As [`dispatch`], for a kernel whose vectors run along rows of `bytes` bytes: with AVX2 if rows do not fill an AVX-512
/// vector.
pub fn dispatch_along<K: WithSimd>(bytes: usize, kernel: K) -> K::Output {
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
    #[cfg(target_arch = "x86_64")]
    if bytes < 64
        && let (Some(short), Arch::V4(_)) = (pulp::x86::V3::try_new(), Arch::new())
    {
        #[cfg(any(test, feature = "testing"))]
        if FORCED.get().is_some() {
            return dispatch(kernel);
        }
        return Arch::V3(short).dispatch(kernel);
    }
    dispatch(kernel)
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static FORCED: std::cell::Cell<Option<Arch>> = const { std::cell::Cell::new(None) };
}

/// Runs a test with each instruction set of the processor.
#[cfg(any(test, feature = "testing"))]
pub fn with_each_arch<R, E>(mut f: impl FnMut() -> Result<R, E>) -> Result<(), E> {
    #[allow(unused_mut)]
    let mut all = vec![Arch::new(), Arch::Scalar];
    #[cfg(target_arch = "x86_64")]
    all.extend(pulp::x86::V3::try_new().map(Arch::V3));
    for arch in all {
        FORCED.set(Some(arch));
        let result = f();
        FORCED.set(None);
        result?;
    }
    Ok(())
}

macro_rules! lanes {
    ($t:ty, $vector:ident,
     [$splat:ident $add:ident $mul:ident $div:ident $mul_add:ident $mul_sub:ident $max:ident $min:ident $sum:ident],
     [$deinterleave:ident $interleave:ident $load:ident $store:ident $vectors:ident $vectors_mut:ident]) => {
        impl Lanes for $t {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn splat_v<S: Simd>(s: S, x: $t) -> S::$vector {
                s.$splat(x)
            }
            #[inline(always)]
            fn add_v<S: Simd>(s: S, a: S::$vector, b: S::$vector) -> S::$vector {
                s.$add(a, b)
            }
            #[inline(always)]
            fn mul_v<S: Simd>(s: S, a: S::$vector, b: S::$vector) -> S::$vector {
                s.$mul(a, b)
            }
            #[inline(always)]
            fn div_v<S: Simd>(s: S, a: S::$vector, b: S::$vector) -> S::$vector {
                s.$div(a, b)
            }
            #[inline(always)]
            fn mul_add_v<S: Simd>(s: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                s.$mul_add(a, b, c)
            }
            #[inline(always)]
            fn mul_sub_v<S: Simd>(s: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                s.$mul_sub(a, b, c)
            }
            #[inline(always)]
            fn max_v<S: Simd>(s: S, a: S::$vector, b: S::$vector) -> S::$vector {
                s.$max(a, b)
            }
            #[inline(always)]
            fn min_v<S: Simd>(s: S, a: S::$vector, b: S::$vector) -> S::$vector {
                s.$min(a, b)
            }
            #[inline(always)]
            fn sum_v<S: Simd>(s: S, a: S::$vector) -> $t {
                s.$sum(a)
            }
            #[inline(always)]
            fn deinterleave<S: Simd>(s: S, groups: [S::$vector; 4]) -> [S::$vector; 4] {
                s.$deinterleave(groups)
            }
            #[inline(always)]
            fn interleave<S: Simd>(s: S, vectors: [S::$vector; 4]) -> [S::$vector; 4] {
                s.$interleave(vectors)
            }
            #[inline(always)]
            fn load_short<S: Simd>(s: S, slice: &[$t]) -> S::$vector {
                s.$load(slice)
            }
            #[inline(always)]
            fn store_short<S: Simd>(s: S, slice: &mut [$t], a: S::$vector) {
                s.$store(slice, a);
            }
            #[inline(always)]
            fn vectors<S: Simd>(slice: &[$t]) -> (&[S::$vector], &[$t]) {
                S::$vectors(slice)
            }
            #[inline(always)]
            fn vectors_mut<S: Simd>(slice: &mut [$t]) -> (&mut [S::$vector], &mut [$t]) {
                S::$vectors_mut(slice)
            }
            fn with_buffer<R>(f: impl FnOnce(&mut Vec<$t>) -> R) -> R {
                thread_local! {
                    static BUFFERS: std::cell::RefCell<Vec<Vec<$t>>> = const { std::cell::RefCell::new(Vec::new()) };
                }
                // Taken out and put back: a nested kernel has a buffer of its own.
                let mut buffer = BUFFERS.with_borrow_mut(|free| free.pop().unwrap_or_default());
                let result = f(&mut buffer);
                BUFFERS.with_borrow_mut(|free| free.push(buffer));
                result
            }
        }
    };
}

lanes!(
    f32,
    f32s,
    [splat_f32s add_f32s mul_f32s div_f32s mul_add_e_f32s negate_mul_add_e_f32s max_f32s min_f32s reduce_sum_f32s],
    [deinterleave_shfl_f32s interleave_shfl_f32s partial_load_f32s partial_store_f32s as_simd_f32s as_mut_simd_f32s]
);
lanes!(
    f64,
    f64s,
    [splat_f64s add_f64s mul_f64s div_f64s mul_add_e_f64s negate_mul_add_e_f64s max_f64s min_f64s reduce_sum_f64s],
    [deinterleave_shfl_f64s interleave_shfl_f64s partial_load_f64s partial_store_f64s as_simd_f64s as_mut_simd_f64s]
);

#[cfg(test)]
mod tests {
    use super::*;

    struct Sums<T>(std::marker::PhantomData<T>);

    impl<T: Real> WithSimd for Sums<T> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, s: S) {
            let lanes = lanes::<T, S>();
            let number = |n: usize, lane: usize| T::from_f64((1 + 7 * lane) as f64 * 100f64.powi(n as i32));
            let vectors = std::array::from_fn(|n| {
                let all: [T; 16] = std::array::from_fn(|lane| number(n, lane));
                load::<T, S>(&all)
            });
            let expected: [f64; 4] = std::array::from_fn(|n| (0..lanes).map(|lane| number(n, lane).as_f64()).sum());
            assert_eq!(sums::<T, S, 4>(s, vectors).map(T::as_f64), expected);
            assert_eq!(sums::<T, S, 1>(s, [vectors[2]]).map(T::as_f64), [expected[2]]);
        }
    }

    #[test]
    fn sums_of_vectors_are_in_their_order() {
        let both = || {
            dispatch(Sums::<f32>(std::marker::PhantomData));
            dispatch(Sums::<f64>(std::marker::PhantomData));
            Ok::<(), ()>(())
        };
        with_each_arch(both).unwrap();
    }
}

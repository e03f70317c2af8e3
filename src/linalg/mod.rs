//! The numerical primitives: products of a local block, Gram matrices, norms. Generic over f32 and f64, on MKL.
//!
//! Factors are `Array2` of shape rows × k. Their memory order is the block's choice ([`Block::order`]): dense products
//! and the sweep want each component contiguous ([`Order::Components`]), sparse products want each row contiguous
//! ([`Order::Rows`]). The shape, and so everything that is not a kernel, is the same for both.

mod bits;
mod block;
mod cholesky;
mod csr;
mod csr_native;
mod dense;
mod element;
pub mod flops;
#[allow(unsafe_code)]
mod mkl;
mod real;
mod residual;
pub(crate) mod simd;
#[cfg(test)]
mod tests;
mod thin;
mod threads;

pub use bits::Bits;
pub use block::Block;
pub use cholesky::Cholesky;
pub use csr::{Csr, SparseKernel, SparseKernels};
pub use dense::{Dense, gemm, gram};
pub use element::{Element, ElementType};
pub(crate) use mkl::prefetch;
pub use mkl::{large_pages, version as mkl_version};
pub use real::Real;
pub(crate) use threads::over_rows;
pub use threads::{even_part, start_threads};

use ndarray::{Array2, ShapeBuilder};

/// Memory order of a rows × k factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each row's k entries are contiguous.
    Rows,
    /// Each component's entries are contiguous (Fortran order of the same shape).
    Components,
}

impl Order {
    /// Zeros of shape rows × k in this order.
    pub fn zeros<T: Real>(self, rows: usize, k: usize) -> Array2<T> {
        let zeros = Array2::zeros((rows, k).set_f(self == Order::Components));
        large_pages(zeros.as_slice_memory_order().unwrap_or_default());
        zeros
    }
}

//! The numerical primitives, generic over f32 and f64: blocks of the data and their products with factors, Gram matrices,
//! residuals, and a Cholesky factorisation.
//!
//! Factors are `Array2` of shape rows × k. The block of the data determines their memory order ([`Block::order`]): dense
//! products and row-wise updates are fastest with contiguous components ([`Order::ColumnMajor`]), sparse products need
//! contiguous rows ([`Order::RowMajor`]). Only kernels depend on the order.
//!
//! From the bottom up: bindings to MKL (`mkl`) and vectors (`simd`), the context of a run and its threads, the kernels
//! (`tall_skinny`, `csr_kernels`), the three kinds of blocks (`dense`, `csr`, `bits`), and [`Block`] over them.

pub mod nls;
pub mod random;
pub mod sketch;

mod bits;
mod block;
mod cholesky;
mod context;
mod contiguous;
mod csr;
mod csr_kernels;
mod csr_matrix;
mod dense;
mod element;
pub mod flops;
mod kernel;
#[allow(unsafe_code)]
mod mkl;
mod order;
mod real;
mod residual;
pub mod simd;
mod tall_skinny;
mod threads;

pub use bits::Bits;
pub use block::Block;
pub use cholesky::Cholesky;
pub use context::{Context, ContextOptions};
pub use contiguous::{Contiguous, ContiguousMut};
pub use csr::Csr;
pub use csr_matrix::{CowSlice, CsrMatrix, owned_rows};
pub use dense::{Dense, gram};
pub use element::{Element, ElementType};
pub use kernel::{ProductKernel, ProductKernels};
pub use mkl::prefetch;
pub use mkl::{gemm, large_pages, version as mkl_version};
pub use order::Order;
pub use real::Real;
pub use residual::{residual2_of_products, squares};
pub use threads::{PerThread, even_part, over_rows};

#[cfg(test)]
mod tests;

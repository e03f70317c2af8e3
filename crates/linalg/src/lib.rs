//! The numerical primitives, generic over f32 and f64: blocks of the data and their products with factors, Gram matrices,
//! residuals, and a Cholesky factorisation.
//!
//! Factors are `Array2` of shape rows × k. The block of the data determines their memory order ([`Block::order`]): dense
//! products and row-wise updates are fastest with contiguous components ([`Order::ColumnMajor`]), sparse products need
//! contiguous rows ([`Order::RowMajor`]). Only kernels depend on the order.
//!
//! From the bottom up: bindings to BLAS (`blas`, and `mkl` for MKL's sparse products) and vectors (`simd`), the context of a run and its threads, the kernels
//! (`tall_skinny`, `csr_kernels`), the three kinds of blocks (`dense`, `csr`, `bits`), and [`Block`] over them.

#[cfg(all(feature = "mkl", feature = "openblas"))]
compile_error!("the features mkl and openblas exclude each other: with openblas, use --no-default-features");
#[cfg(not(any(feature = "mkl", feature = "openblas")))]
compile_error!("no BLAS: one of the features mkl and openblas is needed");

pub mod nls;
pub mod random;
pub mod sketch;

mod bits;
#[allow(unsafe_code)]
mod blas;
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
mod memory;
#[cfg(feature = "mkl")]
#[allow(unsafe_code)]
mod mkl;
mod order;
mod real;
mod residual;
pub mod simd;
mod tall_skinny;
mod threads;

pub use bits::Bits;
pub use blas::{gemm, sequential as sequential_blas, version as blas_version};
pub use block::Block;
pub use cholesky::Cholesky;
pub use context::{Context, ContextOptions};
pub use contiguous::{Contiguous, ContiguousMut};
pub use csr::Csr;
pub use csr_matrix::{CowSlice, CsrMatrix, owned_rows};
pub use dense::{Dense, gram};
pub use element::{Element, ElementType};
pub use kernel::{ProductKernel, ProductKernels};
pub use memory::{large_pages, prefetch};
pub use order::Order;
pub use real::Real;
pub use residual::{residual2_of_products, squares};
pub use threads::{PerThread, even_part, over_rows};

#[cfg(test)]
mod tests;

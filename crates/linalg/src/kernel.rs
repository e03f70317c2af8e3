//! The choice of an implementation for the products of blocks with factors.

/// The kernel of a product (`--kernel`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductKernel {
    /// MKL: gemm for dense blocks, the inspector-executor routines on row blocks for sparse ones.
    Mkl,
    /// Our own loops.
    Native,
}

/// The kernel of each of the two products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductKernels {
    /// For X·B.
    pub mul: ProductKernel,
    /// For XᵀU.
    pub tmul: ProductKernel,
}

impl ProductKernels {
    /// Our own loops for both products.
    pub const NATIVE: ProductKernels = ProductKernels { mul: ProductKernel::Native, tmul: ProductKernel::Native };
}

impl From<ProductKernel> for ProductKernels {
    fn from(kernel: ProductKernel) -> Self {
        ProductKernels { mul: kernel, tmul: kernel }
    }
}

//! The choice of an implementation for the products of blocks with factors.

use fednmf_base::error::{Error, Result};

/// The kernel of a product (`--kernel`), of those that this build has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductKernel {
    /// MKL: gemm for dense blocks, the inspector-executor routines on row blocks for sparse ones.
    #[cfg(feature = "mkl")]
    Mkl,
    /// Our own loops.
    Native,
}

impl ProductKernel {
    /// All kernels of this build.
    pub const ALL: &[ProductKernel] = &[
        #[cfg(feature = "mkl")]
        ProductKernel::Mkl,
        ProductKernel::Native,
    ];

    /// Its name in `--kernel`.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "mkl")]
            ProductKernel::Mkl => "mkl",
            ProductKernel::Native => "native",
        }
    }

    /// The kernel of MKL.
    ///
    /// # Errors
    /// If this build has no MKL.
    pub fn mkl() -> Result<Self> {
        let mkl = ProductKernel::ALL.iter().find(|kernel| kernel.name() == "mkl");
        mkl.copied()
            .ok_or_else(|| Error::input("--kernel mkl: this build has OpenBLAS and not MKL; use native or auto"))
    }
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

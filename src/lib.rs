//! Nonnegative and Boolean matrix factorisation M ≈ U Vᵀ, of one matrix, or of the private blocks of several parties.
//!
//! A method is a value with its parameters. [`fit`](Estimator::fit) takes `ndarray` and `sprs` views in `f32` or `f64`, and
//! files ([`Matrix::open`]):
//!
//! ```
//! use fednmf::prelude::*;
//! use ndarray::Array2;
//!
//! let x = Array2::from_shape_fn((60, 40), |(i, j)| ((1 + i % 5) * (1 + j % 7)) as f64);
//! let fit = Hals::new(3).seed(1).max_iters(200).tol(1e-5).fit(&x)?;
//! println!("{:.4} after {} iterations: {:?}", fit.relative_error(), fit.iterations(), fit.stopped_by());
//! let (u, v) = (fit.u(), fit.v()); // 60 × 3 and 40 × 3
//! let w = fit.project(&x.slice(ndarray::s![..5, ..]))?; // U of new rows, 5 × 3
//! # assert_eq!((u.dim(), v.dim(), w.dim()), ((60, 3), (40, 3), (5, 3)));
//!
//! let parties: Vec<_> = x.axis_chunks_iter(ndarray::Axis(0), 20).collect();
//! let shared = Federated::new(Fnmf::new(3)).secure_sum(true).fit(&parties)?;
//! for sent in shared.ledger() {
//!     println!("{sent}"); // what left the parties, and how it was protected
//! }
//! # Ok::<(), fednmf::Error>(())
//! ```
//!
//! - [`prelude`] has the names that programs use;
//! - [`Hals`], [`Automatic`], [`KlMu`] and others factorise one matrix, [`Federated`] runs [`Fnmf`], [`SynSd`] and others
//!   for several parties; [`Options`] are the settings that all runs have;
//! - [`Fit`] and [`FederatedFit`] are the results;
//! - [`Search`] chooses the number of components.
//!
//! # Features
//!
//! One of `mkl` (Intel MKL, the default) and `openblas` (OpenBLAS of the system). The others are on by default, and the library needs
//! none of them: `cli` (the program), `mpi` (ranks of the program), `sites` (parties of the program on machines of their own), `hdf5`
//! (files of HDF5), `paillier` (the encryption of [`Ppdnmf`]).

#![warn(missing_docs)]

#[cfg(feature = "cli")]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod cli;
#[cfg(feature = "cli")]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod commands;
mod library;
pub mod prelude;

pub use library::*;

/// The git revision that the library was built from, or `unknown`.
pub const REVISION: &str = env!("FEDNMF_GIT");

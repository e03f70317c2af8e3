//! The names that most programs use: `use fednmf::prelude::*;`.

pub use crate::library::methods::*;
pub use crate::{
    Auto, Beta, Criterion, Error, Extrapolation, FactorScale, Federated, FederatedFit, Fit, Init, Matrix, MatrixView,
    Missing, Options, Payload, ProductKernel, Protection, Resample, Risk, Search, Size, Sizes, Stop,
};

//! The names that most programs use: `use fednmf::prelude::*;`.

pub use crate::{
    Admm, Asso, AsynSd, AsynSsdV, Auto, Automatic, Beta, BetaMu, Bpp, Dsanls, DsanlsSecure, Elbmf, Extrapolation,
    FactorScale, FedAvg, FedProx, Federated, FederatedFit, Felb, FelbMu, Fit, Fnmf, Grecond, Hals, Init, Inmf, Ipalm,
    KlCd, KlMu, Matrix, MatrixView, Mebf, Missing, Mu, Mur, Options, Payload, Penalty, Ppdnmf, ProductKernel,
    Protection, Search, SecureHals, Size, Sizes, Stop, SymNmf, SynSd, SynSsdU, SynSsdUv, SynSsdV, VrDsanls, Zhang,
};

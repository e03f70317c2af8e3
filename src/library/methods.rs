//! The methods: each an [`Estimator`] of its parameters, with a setter for each that users change.

use fednmf_methods::boolean::asso;
use fednmf_methods::boolean::elbmf_zhang;
use fednmf_methods::boolean::felb::{Felb as FelbParams, FelbMu as FelbMuParams};
use fednmf_methods::boolean::grecond;
use fednmf_methods::boolean::mebf;
use fednmf_methods::boolean::vote::Voted;
use fednmf_methods::distributed::auto::Automatic as AutoParams;
use fednmf_methods::distributed::bpp::Bpp as BppParams;
use fednmf_methods::distributed::divergence::beta::{Beta, BetaMu as BetaMuParams};
use fednmf_methods::distributed::divergence::cd::KlCd as KlCdParams;
use fednmf_methods::distributed::divergence::mu::KlMu as KlMuParams;
use fednmf_methods::distributed::divergence::online::KlOnline as KlOnlineParams;
use fednmf_methods::distributed::dsanls::Dsanls as DsanlsParams;
use fednmf_methods::distributed::hals::Hals as HalsParams;
use fednmf_methods::distributed::mu::Mu as MuParams;
use fednmf_methods::distributed::online::Online as OnlineParams;
use fednmf_methods::distributed::symnmf::SymNmf as SymNmfParams;
use fednmf_methods::distributed::vr_dsanls::VrDsanls as VrDsanlsParams;
use fednmf_methods::federated::columns::asyn::{AsynSd as AsynSdParams, AsynSsdV as AsynSsdVParams};
use fednmf_methods::federated::columns::dsanls_secure::DsanlsSecure as DsanlsSecureParams;
use fednmf_methods::federated::columns::secure_hals::SecureHals as SecureHalsParams;
use fednmf_methods::federated::columns::syn::{
    SynSd as SynSdParams, SynSsdU as SynSsdUParams, SynSsdUv as SynSsdUvParams, SynSsdV as SynSsdVParams,
};
use fednmf_methods::federated::graph::admm::Admm as AdmmParams;
use fednmf_methods::federated::graph::ppdnmf::Ppdnmf as PpdnmfParams;
use fednmf_methods::federated::mpc::{MpcColumns as MpcColumnsParams, MpcRows as MpcRowsParams};
use fednmf_methods::federated::rows::baselines::{
    FedAvg as FedAvgParams, FedProx as FedProxParams, Ipalm as IpalmParams, Mur as MurParams,
};
use fednmf_methods::federated::rows::divergence::{FedBeta as FedBetaParams, FedKl as FedKlParams};
use fednmf_methods::federated::rows::fnmf::Fnmf as FnmfParams;
use fednmf_methods::federated::rows::inmf::Inmf as InmfParams;
use fednmf_methods::parameters::{Auto, Init, Missing, Sizes};
use fednmf_methods::shared::disclosure::Risk;
use fednmf_methods::shared::dp::DpParams;
use fednmf_methods::shared::extrapolation::Extrapolation;
use fednmf_methods::shared::regularization::{RegularizationParams, Weight};
use fednmf_methods::shared::secure_sum::SecureSumParams;

use super::estimator::{Estimator, OneMatrix, Parties};
use super::federated::{Noise, SecureSums};

/// Penalties on the factors, as those of scikit-learn's `NMF`: with weights α_U and α_V and a share r of L1,
/// n α_U (r ‖U‖₁ + ½(1 − r) ‖U‖_F²) + m α_V (r ‖V‖₁ + ½(1 − r) ‖V‖_F²) is added to ½‖M − U Vᵀ‖_F² or the divergence.
///
/// ```
/// use fednmf::prelude::*;
///
/// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| (1 + (i * j) % 7) as f64);
/// let sparse = Hals::new(4).penalty(Penalty::l1(0.05)).fit(&x)?;
/// let free = Hals::new(4).fit(&x)?;
/// assert!(sparse.u().sum() + sparse.v().sum() < free.u().sum() + free.v().sum());
/// assert!(sparse.measure("objective").is_some());
/// # Ok::<(), fednmf::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalty {
    /// α_U, at least 0.
    pub u: f64,
    /// α_V, at least 0.
    pub v: f64,
    /// r, from 0 to 1.
    pub l1_ratio: f64,
}

impl Penalty {
    /// L1 penalties of this weight on both factors.
    pub fn l1(weight: f64) -> Self {
        Penalty::elastic_net(weight, 1.0)
    }

    /// L2 penalties of this weight on both factors.
    pub fn l2(weight: f64) -> Self {
        Penalty::elastic_net(weight, 0.0)
    }

    /// Penalties of this weight on both factors, with a share of L1.
    pub fn elastic_net(weight: f64, l1_ratio: f64) -> Self {
        Penalty { u: weight, v: weight, l1_ratio }
    }
}

impl From<Penalty> for RegularizationParams {
    fn from(Penalty { u, v, l1_ratio }: Penalty) -> Self {
        RegularizationParams { alpha_u: u, alpha_v: Weight::Given(v), l1_ratio }
    }
}

type ElbmfParams = Voted<elbmf_zhang::Elbmf>;
type ZhangParams = Voted<elbmf_zhang::Zhang>;
type AssoParams = Voted<asso::Asso>;
type GrecondParams = Voted<grecond::Grecond>;
type MebfParams = Voted<mebf::Mebf>;

/// The example of a method of parties with blocks along this axis.
macro_rules! example {
    (OneMatrix $name:ident) => {
        ""
    };
    // With an example of its own.
    (Blocks $name:ident) => {
        ""
    };
    (Rows $name:ident) => {
        example!(@along "0" $name)
    };
    (Columns $name:ident) => {
        example!(@along "1" $name)
    };
    (@along $axis:literal $name:ident) => {
        concat!(
            "\n```\nuse fednmf::prelude::*;\n",
            "use ndarray::{Array2, Axis};\n\n",
            "let x = Array2::from_shape_fn((12, 12), |(i, j)| if i / 4 == j / 4 { 1.0 } else { 0.0 });\n",
            "let blocks: Vec<_> = x.axis_chunks_iter(Axis(", $axis, "), 4).collect(); // of three parties\n",
            "let fit = Federated::new(", stringify!($name), "::new(3).max_iters(5)).fit(&blocks)?;\n",
            "assert!(fit.relative_error().is_finite() && !fit.ledger().is_empty());\n",
            "# Ok::<(), fednmf::Error>(())\n```\n"
        )
    };
}

macro_rules! implement {
    (OneMatrix $parameters:ident) => {
        impl OneMatrix for $parameters {}
    };
    ($axis:ident $parameters:ident) => {
        impl Parties for $parameters {}
    };
}

/// A method: its name here, what it takes (`OneMatrix`, or blocks of `Rows` or `Columns`), its parameters, and setters of
/// single ones.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $kind:ident $parameters:ident {
        $($(#[$note:meta])* $setter:ident: $type:ty => $($field:ident).+;)*
    })*) => {
        $(
            $(#[$doc])*
            #[doc = example!($kind $name)]
            pub type $name = Estimator<$parameters>;

            implement!($kind $parameters);

            impl Estimator<$parameters> {
                $(
                    $(#[$note])*
                    #[must_use]
                    pub fn $setter(mut self, $setter: $type) -> Self {
                        self.method.$($field).+ = $setter.into();
                        self
                    }
                )*
            }
        )*
    };
}

methods! {
    /// Hierarchical alternating least squares (Cichocki and Phan 2009): the components of U in turn, each the exact
    /// minimiser of ‖M − U Vᵀ‖_F² with all others fixed, then those of V. The choice for most matrices.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| ((1 + i % 3) * (1 + j % 4)) as f64);
    /// let fit = Hals::new(1).inner_sweeps(Auto::Auto).seed(1).max_iters(200).tol(1e-5).fit(&x)?;
    /// assert!(fit.relative_error() < 1e-6 && fit.stopped_by() == Stop::Tolerance);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    Hals = OneMatrix HalsParams {
        /// Sweeps of a factor for each product with the data (accelerated HALS, Gillis and Glineur 2012); `auto`: by
        /// their flops.
        inner_sweeps: Auto<usize> => inner_sweeps;
        /// The point at which a factor's update starts (Ang and Gillis 2019).
        extrapolation: Extrapolation => extrapolation;
        /// The start.
        start: Init => exact.init.init;
        /// Penalties on the factors.
        penalty: Penalty => exact.regularization;
        /// Which entries are missing.
        missing: Missing => missing.missing;
        /// Share of the entries to hold out.
        holdout: f64 => missing.holdout;
    }

    /// Chooses the method by loss and matrix: accelerated HALS, or DSANLS for very large dense matrices; for divergences
    /// multiplicative updates with extrapolation.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| (1 + (i * j) % 7) as f64);
    /// assert_eq!(Automatic::new(4).fit(&x)?.method(), "hals");
    /// assert_eq!(Automatic::new(4).loss(Beta::KULLBACK_LEIBLER).fit(&x)?.method(), "kl-mu");
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    Automatic = OneMatrix AutoParams {
        /// The loss: the squared error (the default), or another β-divergence.
        loss: Beta => loss;
        /// The start.
        start: Init => exact.init.init;
        /// Penalties on the factors.
        penalty: Penalty => exact.regularization;
        /// Which entries are missing.
        missing: Missing => missing.missing;
        /// Share of the entries to hold out.
        holdout: f64 => missing.holdout;
    }

    /// Alternating nonnegative least squares by block principal pivoting (Kim and Park 2011): each factor in turn is the
    /// exact minimiser with the other fixed.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| (1 + (i * j) % 7) as f64);
    /// assert!(Bpp::new(7).max_iters(50).fit(&x)?.relative_error() < 0.2);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    Bpp = OneMatrix BppParams {
        /// The point at which a factor's update starts.
        extrapolation: Extrapolation => extrapolation;
        /// The start.
        start: Init => exact.init.init;
        /// Penalties on the factors.
        penalty: Penalty => exact.regularization;
        /// Which entries are missing.
        missing: Missing => missing.missing;
        /// Share of the entries to hold out.
        holdout: f64 => missing.holdout;
    }

    /// Multiplicative updates for the Frobenius norm (Lee and Seung 2001): U ← U ∘ (M V) / (U VᵀV), then V.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| (1 + (i * j) % 7) as f32);
    /// assert!(Mu::new(7).max_iters(50).fit(&x)?.relative_error() < 0.4);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    Mu = OneMatrix MuParams {
        /// The start.
        start: Init => exact.init.init;
        /// Penalties on the factors.
        penalty: Penalty => exact.regularization;
        /// Which entries are missing.
        missing: Missing => missing.missing;
        /// Share of the entries to hold out.
        holdout: f64 => missing.holdout;
    }

    /// Online NMF (Mairal, Bach, Ponce and Sapiro 2010): V is updated after each batch of rows, from statistics of all batches
    /// so far. An iteration is a batch.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((300, 20), |(i, j)| (1 + (i * j) % 7) as f64);
    /// let fit = Online::new(7).batch_size(50).max_iters(60).fit(&x)?;
    /// assert!(fit.relative_error() < 0.1);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    Online = OneMatrix OnlineParams {
        /// Rows of a batch.
        batch_size: usize => batch_size;
        /// Weight of what was learnt before a pass over all rows, at its end; 1 forgets nothing.
        forget_factor: f64 => forget_factor;
        /// The start.
        start: Init => init.init;
        /// Penalties on the factors.
        penalty: Penalty => regularization;
    }

    /// Online NMF for the Kullback-Leibler divergence (Lefèvre, Bach and Févotte 2011), as [`Online`] for counts.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((300, 20), |(i, j)| ((i * j) % 7) as f64);
    /// let fit = KlOnline::new(7).batch_size(50).max_iters(60).fit(&x)?;
    /// assert!(fit.measure("kl_divergence").unwrap() > 0.0);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    KlOnline = OneMatrix KlOnlineParams {
        /// Rows of a batch.
        batch_size: usize => batch_size;
        /// Weight of what was learnt before a pass over all rows, at its end; 1 forgets nothing.
        forget_factor: f64 => forget_factor;
        /// The start.
        start: Init => init.init;
        /// Penalties on the factors.
        penalty: Penalty => regularization;
    }

    /// Multiplicative updates for the generalised Kullback-Leibler divergence Σ (m ln(m / f) − m + f) of f = (U Vᵀ)_ij from
    /// m = M_ij (Lee and Seung 2001): for counts.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| ((i * j) % 7) as f64);
    /// let fit = KlMu::new(4).max_iters(50).fit(&x)?;
    /// assert!(fit.measure("kl_divergence").unwrap() > 0.0);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    KlMu = OneMatrix KlMuParams {
        /// The point at which a factor's update starts (Hien, Leplat and Gillis, arXiv 2401.06646).
        extrapolation: Extrapolation => extrapolation;
        /// The start.
        start: Init => kl.init.init;
        /// Penalties on the factors.
        penalty: Penalty => kl.regularization;
        /// Weight of the minimum-volume penalty on V, relative to the sum of the matrix.
        min_volume: f64 => volume.min_volume;
        /// Which entries are missing.
        missing: Missing => kl.missing.missing;
        /// Share of the entries to hold out.
        holdout: f64 => kl.missing.holdout;
    }

    /// Coordinate descent for the Kullback-Leibler divergence (Hsieh and Dhillon 2011): Newton steps on single entries,
    /// fewer iterations than [`KlMu`].
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| ((i * j) % 7) as f64);
    /// assert!(KlCd::new(4).max_iters(20).fit(&x)?.relative_error() < 0.6);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    KlCd = OneMatrix KlCdParams {
        /// Sweeps of a row for each product with the data.
        inner_sweeps: usize => inner_sweeps;
        /// The start.
        start: Init => kl.init.init;
        /// Penalties on the factors.
        penalty: Penalty => kl.regularization;
        /// Which entries are missing.
        missing: Missing => kl.missing.missing;
        /// Share of the entries to hold out.
        holdout: f64 => kl.missing.holdout;
    }

    /// Multiplicative updates for any β-divergence (Févotte and Idier 2011), such as that of Itakura and Saito (β = 0): for
    /// spectra.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| (1 + (i * j) % 7) as f64);
    /// let fit = BetaMu::new(4).beta(Beta(0.5)).fit(&x)?;
    /// assert!(fit.measure("beta_divergence").unwrap() > 0.0);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    BetaMu = OneMatrix BetaMuParams {
        /// The divergence.
        beta: Beta => beta;
        /// The point at which a factor's update starts, for β from 1 to 2 (Hien, Leplat and Gillis, arXiv 2401.06646).
        extrapolation: Extrapolation => extrapolation;
        /// The start.
        start: Init => init.init;
        /// Penalties on the factors.
        penalty: Penalty => regularization;
    }

    /// Distributed sketched alternating nonnegative least squares (Qian, Tan, Ding, Li and Mamoulis, Fast and
    /// Secure Distributed Nonnegative Matrix Factorization): each update works on a random sketch of the matrix.
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((60, 50), |(i, j)| (1 + (i * j) % 7) as f64);
    /// assert!(Dsanls::new(3).max_iters(50).fit(&x)?.relative_error() < 1.0);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    Dsanls = OneMatrix DsanlsParams {
        /// Columns of the sketches.
        sketch_size: Auto<Sizes> => sketch.sketch_size;
        /// The start.
        start: Init => init.init;
        /// Penalties on the factors.
        penalty: Penalty => regularization;
        /// Which entries are missing.
        missing: Missing => missing.missing;
        /// Share of the entries to hold out.
        holdout: f64 => missing.holdout;
    }

    /// DSANLS with variance reduction: sampled iterations around a snapshot with exact products, as SVRMU (Kasai 2018) and
    /// LvS-SymNMF (Hayashi, Aksoy, Ballard and Park 2024).
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((60, 50), |(i, j)| (1 + (i * j) % 7) as f64);
    /// assert!(VrDsanls::new(3).max_iters(50).fit(&x)?.relative_error() < 1.0);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    VrDsanls = OneMatrix VrDsanlsParams {}

    /// Symmetric factorisation M ≈ U Uᵀ of a symmetric matrix, such as similarities (Kuang, Yun and Park 2015).
    ///
    /// ```
    /// use fednmf::prelude::*;
    ///
    /// let x = ndarray::Array2::from_shape_fn((20, 20), |(i, j)| if i / 10 == j / 10 { 1.0 } else { 0.0 });
    /// let fit = SymNmf::new(2).max_iters(200).fit(&x)?;
    /// assert!(fit.relative_error() < 0.1);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    SymNmf = OneMatrix SymNmfParams {
        /// Weight of ‖U − V‖_F²; `auto`: by the largest entry.
        symmetry_weight: Auto<f64> => symmetry_weight;
        /// The start.
        start: Init => init.init;
    }

    /// Federated NMF with barycenters (Dalleiger and Gionis, Creating Coherence in Federated Non-Negative Matrix
    /// Factorization): parties with blocks of rows share V; their U_i stay with them.
    ///
    Fnmf = Rows FnmfParams {
        /// Weight of the pull of a party's V to the shared one.
        gamma: f64 => local.gamma;
        /// Components that only one party has stay with it.
        personalize: bool => aggregate.personalize;
        /// Steps of a party between two exchanges.
        local_iters: usize => local.rounds.local_iters;
        /// Penalties on the factors.
        penalty: Penalty => federated.regularization;
    }

    /// Parties with blocks of rows average their V (McMahan et al. 2017), a baseline for [`Fnmf`].
    FedAvg = Rows FedAvgParams {
        /// Steps of a party between two exchanges.
        local_iters: usize => local.local_iters;
        /// Penalties on the factors.
        penalty: Penalty => federated.regularization;
    }

    /// [`FedAvg`] with a proximal term (Li et al. 2020).
    FedProx = Rows FedProxParams {
        /// Weight of the proximal term.
        gamma: f64 => local.gamma;
        /// Steps of a party between two exchanges.
        local_iters: usize => local.rounds.local_iters;
        /// Penalties on the factors.
        penalty: Penalty => federated.regularization;
    }

    /// Every party on its own by inertial proximal steps (Pock and Sabach 2016), and the mean of all V once, at the end; a
    /// baseline for [`Fnmf`].
    Ipalm = Rows IpalmParams {
        /// Share of the last change that a step repeats.
        inertia: f64 => local.inertia;
        /// Penalties on the factors.
        penalty: Penalty => federated.regularization;
    }

    /// Every party on its own by multiplicative updates (Lee and Seung 2001), and the mean of all V once, at the end; a baseline
    /// for [`Fnmf`].
    Mur = Rows MurParams {
        /// Penalties on the factors.
        penalty: Penalty => federated.regularization;
    }

    /// Multiplicative updates for the Kullback-Leibler divergence of all parties' rows, by exact sums: the factors of [`KlMu`]
    /// for all rows (Lee and Seung 2001).
    FedKl = Rows FedKlParams {
        /// The point at which a factor's update starts (Hien, Leplat and Gillis, arXiv 2401.06646).
        extrapolation: Extrapolation => extrapolation;
    }

    /// Multiplicative updates for a β-divergence of all parties' rows, by exact sums: the factors of [`BetaMu`] for all rows
    /// (Févotte and Idier 2011).
    FedBeta = Rows FedBetaParams {
        /// The divergence.
        beta: Beta => beta;
    }

    /// Integrative NMF (Yang and Michailidis 2016; LIGER, Welch et al. 2019): M_i ≈ U_i (V + V_i)ᵀ with V shared and V_i
    /// the party's own.
    Inmf = Rows InmfParams {
        /// Penalty on what the parties' own V_i contribute.
        own_penalty: f64 => own_penalty;
        /// Steps of a party between two exchanges.
        local_iters: usize => local_iters;
    }

    /// Syn-SD (Qian et al.): parties with blocks of columns average U after local iterations; V_i stays with party i.
    SynSd = Columns SynSdParams {
        /// Steps of a party between two averages.
        local_iters: usize => syn.local.local_iters;
        /// Penalties on the factors.
        penalty: Penalty => syn.local.regularization;
    }

    /// [`SynSd`] with sketches of the subproblem of U.
    SynSsdU = Columns SynSsdUParams {
        /// Steps of a party between two averages.
        local_iters: usize => syn.local.local_iters;
        /// Columns of the sketches.
        sketch_size: Auto<Sizes> => sketch.sketch_size;
    }

    /// [`SynSd`] with sketches of the subproblem of V.
    SynSsdV = Columns SynSsdVParams {
        /// Steps of a party between two averages.
        local_iters: usize => syn.local.local_iters;
        /// Columns of the sketches.
        sketch_size: Auto<Sizes> => sketch.sketch_size;
    }

    /// [`SynSd`] with sketches of both subproblems.
    SynSsdUv = Columns SynSsdUvParams {
        /// Steps of a party between two averages.
        local_iters: usize => syn.local.local_iters;
        /// Columns of the sketches.
        sketch_size: Auto<Sizes> => sketch.sketch_size;
    }

    /// Asyn-SD (Qian et al.): as [`SynSd`], but a server merges each party's U as it comes.
    AsynSd = Columns AsynSdParams {
        /// Steps of a party between two merges.
        local_iters: usize => asyn.local.local_iters;
    }

    /// [`AsynSd`] with sketches of the subproblem of V.
    AsynSsdV = Columns AsynSsdVParams {
        /// Steps of a party between two merges.
        local_iters: usize => asyn.local.local_iters;
        /// Columns of the sketches.
        sketch_size: Auto<Sizes> => sketch.sketch_size;
    }

    /// HALS on the exact sums over parties with blocks of columns.
    SecureHals = Columns SecureHalsParams {
        /// Steps of a party between two sums.
        local_iters: usize => local_iters;
        /// Penalties on the factors.
        penalty: Penalty => regularization;
    }

    /// HALS on secret shares of the parties' columns: three of them compute, and only U is opened, at the end.
    MpcColumns = Columns MpcColumnsParams {}

    /// HALS on secret shares of the parties' rows: three of them compute, and only V is opened, at the end.
    MpcRows = Rows MpcRowsParams {}

    /// DSANLS among parties with blocks of columns (Qian et al.), which reveals the data after enough releases.
    ///
    /// ```
    /// use fednmf::prelude::*;
    /// use ndarray::{Array2, Axis};
    ///
    /// let x = Array2::from_shape_fn((12, 12), |(i, j)| if i / 4 == j / 4 { 1.0 } else { 0.1 });
    /// let blocks: Vec<_> = x.axis_chunks_iter(Axis(1), 4).collect(); // of three parties
    /// let fit = Federated::new(DsanlsSecure::new(3).accept_risk(Risk::Sketches).max_iters(5)).fit(&blocks)?;
    /// assert!(fit.relative_error().is_finite());
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    DsanlsSecure = Blocks DsanlsSecureParams {
        /// Largest number of releases.
        max_releases: usize => max_releases;
        /// Allows releases that reveal the data ([`Risk::Sketches`]).
        accept_risk: Risk => secure_sum.disclosure.accept_risk;
        /// Penalties on the factors.
        penalty: Penalty => regularization;
    }

    /// Agents on a graph agree on U; neighbours exchange ciphertexts (Lari, Arablouei and Werner, Privacy-Preserving
    /// Distributed Nonnegative Matrix Factorization). Encryption needs the feature `paillier`.
    ///
    /// ```
    /// use fednmf::prelude::*;
    /// use ndarray::{Array2, Axis};
    ///
    /// let x = Array2::from_shape_fn((12, 12), |(i, j)| if i / 4 == j / 4 { 1.0 } else { 0.1 });
    /// let blocks: Vec<_> = x.axis_chunks_iter(Axis(1), 4).collect(); // of three parties
    /// let fit = Federated::new(Ppdnmf::new(3).plain(true).max_iters(2)).fit(&blocks)?;
    /// assert!(fit.relative_error().is_finite() && !fit.edges().is_empty());
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    Ppdnmf = Blocks PpdnmfParams {
        /// Compute the same numbers without encryption.
        plain: bool => plain;
    }

    /// The same problem solved centrally by ADMM (Lari, Arablouei and Werner), a baseline for [`Ppdnmf`].
    ///
    /// ```
    /// use fednmf::prelude::*;
    /// use ndarray::{Array2, Axis};
    ///
    /// let x = Array2::from_shape_fn((12, 12), |(i, j)| if i / 4 == j / 4 { 1.0 } else { 0.1 });
    /// let blocks: Vec<_> = x.axis_chunks_iter(Axis(1), 4).collect(); // of three parties
    /// let fit = Federated::new(Admm::new(3).max_iters(2)).fit(&blocks)?;
    /// assert!(fit.relative_error().is_finite());
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    Admm = Blocks AdmmParams {}

    /// Federated Boolean factorisation (Dalleiger, Vreeken and Kamp, Federated Binary Matrix Factorization using Proximal
    /// Optimization): parties with blocks of rows of a Boolean matrix share V.
    Felb = Rows FelbParams {
        /// Steps of a party between two exchanges.
        local_iters: usize => local_iters;
    }

    /// [`Felb`] with multiplicative steps.
    FelbMu = Rows FelbMuParams {
        /// Steps of a party between two exchanges.
        local_iters: usize => felb.local_iters;
    }

    /// Boolean factorisation by proximal gradients (Dalleiger and Vreeken, Efficiently Factorizing
    /// Boolean Matrices using Proximal Gradient Descent); the parties vote on V.
    Elbmf = Rows ElbmfParams {}

    /// Boolean factorisation by a penalty method (Zhang, Li, Ding and Zhang, Binary Matrix
    /// Factorization with Applications); the parties vote on V.
    Zhang = Rows ZhangParams {}

    /// Boolean factorisation from associations of columns (Miettinen et al., The Discrete Basis Problem); the parties vote on V.
    Asso = Rows AssoParams {
        /// Threshold of the association confidence.
        tau: f64 => local.tau;
    }

    /// Boolean factorisation by formal concepts (Belohlavek and Vychodil, Discovery of Optimal Factors in Binary
    /// Matrices via a Novel Method of Matrix Decomposition); the parties vote on V.
    Grecond = Rows GrecondParams {}

    /// Boolean factorisation by geometric segmentation (Wan et al., Fast and Efficient Boolean Matrix Factorization by
    /// Geometric Segmentation); the parties vote on V.
    Mebf = Rows MebfParams {
        /// Threshold of an expansion.
        tau: f64 => local.tau;
    }
}

macro_rules! protected {
    ($trait:ident, $function:ident, $group:ident: $($parameters:ident => $($field:ident).+;)*) => {
        $(impl $trait for $parameters {
            fn $function(&mut self) -> &mut $group {
                &mut self.$($field).+
            }
        })*
    };
}

protected! { SecureSums, secure_sums, SecureSumParams:
    FnmfParams => federated.sum;
    FedAvgParams => federated.sum;
    FedProxParams => federated.sum;
    IpalmParams => federated.sum;
    MurParams => federated.sum;
    FedKlParams => secure_sum;
    FedBetaParams => secure_sum;
    InmfParams => secure_sum;
    SynSdParams => syn.secure_sum;
    SynSsdUParams => syn.secure_sum;
    SynSsdVParams => syn.secure_sum;
    SynSsdUvParams => syn.secure_sum;
    SecureHalsParams => secure_sum;
    DsanlsSecureParams => secure_sum;
    FelbParams => sum;
    FelbMuParams => felb.sum;
    ElbmfParams => vote.sum;
    ZhangParams => vote.sum;
    AssoParams => vote.sum;
    GrecondParams => vote.sum;
    MebfParams => vote.sum;
}

protected! { Noise, noise, DpParams:
    FnmfParams => federated.dp;
    FedAvgParams => federated.dp;
    FedProxParams => federated.dp;
    IpalmParams => federated.dp;
    MurParams => federated.dp;
    SynSdParams => dp;
    SynSsdVParams => dp;
    SecureHalsParams => dp;
    FelbParams => dp;
    FelbMuParams => felb.dp;
    ElbmfParams => vote.dp;
    ZhangParams => vote.dp;
    AssoParams => vote.dp;
    GrecondParams => vote.dp;
    MebfParams => vote.dp;
}

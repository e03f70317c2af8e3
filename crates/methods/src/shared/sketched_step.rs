//! The step of DSANLS and related methods on a (sketched) subproblem, given its Gram matrix and right-hand side.

use ndarray::{ArrayView2, ArrayViewMut1, ArrayViewMut2};

use fednmf_base::words::Words;
use fednmf_linalg::Real;
use fednmf_linalg::nls::{Penalty, Sweep, gradient_step_below, spectral_bound, sweep_below};
use fednmf_linalg::sketch::SketchKind;

use crate::parameters::{Auto, ParamType, Parsed, Sizes, auto, number};

fednmf_base::parameters! {
    /// How subproblems are sketched, where parties keep their data to themselves.
    pub struct SketchParams {
        /// Random matrix that shrinks each subproblem. Only subsample saves much time: the others read the whole data
        pub sketch: SketchKind = SketchKind::Subsample, "KIND", oblivious;
        /// Columns kept for U's update and rows kept for V's: counts, or shares with %; one value is for both. auto:
        /// 10 % of a dimension, more where it is small
        pub sketch_size: Auto<Sizes> = Auto::Auto, "D_U[,D_V]";
    }
}

/// Parses a kind of sketch that does not depend on the data.
///
/// # Errors
/// If the kind is unknown, or is `weighted`; the message gives the reason.
pub fn oblivious<K: Words>(text: &str) -> Parsed<K> {
    if text == "weighted" {
        return Err(
            "its draws would show other parties which rows and columns of the data are large; choose another kind, \
                    or use --algo dsanls on data that all ranks may see"
                .into(),
        );
    }
    ParamType::parse(text)
}

/// How the subproblems of DSANLS are sketched: by a [`SketchKind`], or by importance sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sketching {
    /// Chosen by the form of the data.
    Auto,
    /// Importance sampling, with weights from the data.
    Weighted,
    Oblivious(SketchKind),
}

impl Sketching {
    /// Resolves `auto` for data of this form whose N rows are reduced to d. Importance sampling pays off on sparse data. A
    /// full sketch is exact and needs no weights.
    #[must_use]
    pub fn resolve(self, sparse: bool, d: usize, n: usize) -> Self {
        match self {
            Sketching::Auto if sparse && d < n => Sketching::Weighted,
            Sketching::Auto => Sketching::Oblivious(SketchKind::Subsample),
            given => given,
        }
    }
}

impl Words for Sketching {
    const ALL: &'static [Self] = &[
        Sketching::Auto,
        Sketching::Weighted,
        Sketching::Oblivious(SketchKind::Subsample),
        Sketching::Oblivious(SketchKind::Count),
        Sketching::Oblivious(SketchKind::Gaussian),
        Sketching::Oblivious(SketchKind::Uniform),
        Sketching::Oblivious(SketchKind::Srht),
    ];

    fn name(self) -> &'static str {
        match self {
            Sketching::Auto => "auto",
            Sketching::Weighted => "weighted",
            Sketching::Oblivious(kind) => kind.name(),
        }
    }

    fn doc(self) -> &'static str {
        match self {
            Sketching::Auto => "Weighted on sparse data, otherwise subsample",
            Sketching::Weighted => "Picks large rows or columns more often (importance sampling)",
            Sketching::Oblivious(kind) => kind.doc(),
        }
    }
}

fednmf_base::parameters! {
    /// How the subproblems of DSANLS are sketched.
    pub struct DsanlsSketchParams {
        /// Random matrix that shrinks each subproblem. Only subsample and weighted save much time: the others read the
        /// whole data
        pub sketch: Sketching = Sketching::Auto, "KIND";
        /// Columns kept for U's update and rows kept for V's: counts, or shares with %; one value is for both. auto:
        /// 10 % of a dimension, more where it is small
        pub sketch_size: Auto<Sizes> = Auto::Auto, "D_U[,D_V]";
    }
}

fednmf_base::words! {
    /// The step on a sketched subproblem.
    pub enum Solver {
        /// Proximal coordinate descent
        Pcd = "pcd",
        /// Projected gradient
        Pgd = "pgd",
    }
}

fednmf_base::words! {
    /// The unit of the proximal weight.
    pub enum MuUnit {
        /// Relative to the fixed factor, so that it fits any data
        Scaled = "scaled",
        /// As printed in the paper
        Absolute = "absolute",
    }
}

fednmf_base::parameters! {
    /// What a [`SketchedStep`] is made from.
    pub struct StepParams {
        /// Step on the sketched subproblem
        pub solver: Solver = Solver::Pcd, "NAME";
        /// Unit of the proximal weight mu_t = alpha + beta*t (pgd: of the step alpha/(1+beta*t))
        pub mu: MuUnit = MuUnit::Scaled, "UNIT";
        /// alpha of --mu. auto: 0.1 for pcd, 2 for pgd (1 and 0.001 with --mu absolute)
        pub mu_alpha: Auto<f64> = Auto::Auto, "X", auto(number(0.0, f64::INFINITY));
        /// beta of --mu
        pub mu_beta: f64 = 0.01, "X", number(0.0, f64::INFINITY);
    }
}

impl StepParams {
    /// Whether the scale of a component can drift between sketches: it grows in one factor and vanishes in the other,
    /// because each sketch fits the component to other entries.
    pub fn lets_scales_drift(&self) -> bool {
        self.solver == Solver::Pcd && self.mu_alpha.given() == Some(0.0) && self.mu_beta == 0.0
    }
}

/// The step of DSANLS (Qian et al. 2019): proximal coordinate descent (Alg. 3) or projected gradient (Eq. 14), with the
/// weights of iteration t.
#[derive(Debug, Clone, Copy)]
pub struct SketchedStep {
    gradient: bool,
    scaled: bool,
    alpha: f64,
    beta: f64,
    /// Upper bound on the entries; infinity without one.
    most: f64,
}

impl SketchedStep {
    pub fn new(args: &StepParams) -> Self {
        let gradient = args.solver == Solver::Pgd;
        let scaled = args.mu == MuUnit::Scaled;
        let alpha = args.mu_alpha.given().unwrap_or(match (gradient, scaled) {
            (false, true) => 0.1,
            (false, false) => 1.0,
            (true, true) => 2.0,
            (true, false) => 1e-3,
        });
        SketchedStep { gradient, scaled, alpha, beta: args.mu_beta, most: f64::INFINITY }
    }

    /// The same step with entries bounded by `most` (Eq. 22 of the DSANLS paper).
    #[must_use]
    pub fn below(self, most: f64) -> Self {
        SketchedStep { most, ..self }
    }

    /// The effective α.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// One step on X (rows × k), which has this penalty, for the right-hand side r (rows × k), the Gram matrix g (k × k) and the
    /// squared norm of the fixed factor. `probe` has 2k elements and is overwritten.
    pub fn apply<T: Real>(
        &self,
        x: &mut ArrayViewMut2<T>,
        r: &ArrayView2<T>,
        (g, penalty): (&ArrayView2<T>, Penalty),
        norm2: f64,
        t: usize,
        probe: &mut ArrayViewMut1<T>,
    ) {
        let t = t as f64;
        if self.gradient {
            // (14) moves by 2η; with η in units of 1/(2‖BᵀB‖₂) this is α/(1+βt)/‖BᵀB‖₂.
            let unit = if self.scaled { (spectral_bound(g, probe) + penalty.weights::<T>().1).as_f64() } else { 0.5 };
            let eta = if unit > 0.0 { self.alpha / (1.0 + self.beta * t) / unit } else { 0.0 };
            gradient_step_below(x, r, g, T::from_f64(eta), penalty, T::from_f64(self.most));
        } else {
            let unit = if self.scaled { norm2 / g.ncols() as f64 } else { 1.0 };
            let mu = T::from_f64((self.alpha + self.beta * t) * unit);
            sweep_below(x, r, g, Sweep { mu, passes: 1, penalty }, T::from_f64(self.most));
        }
    }
}

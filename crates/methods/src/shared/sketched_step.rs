//! The step of DSANLS and related methods on a (sketched) subproblem, given its Gram matrix and right-hand side.

use std::ffi::OsStr;
use std::marker::PhantomData;

use clap::ValueEnum as _;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use ndarray::{ArrayView2, ArrayViewMut1, ArrayViewMut2};

use fednmf_linalg::Real;
use fednmf_linalg::nls::{Penalty, Sweep, gradient_step_below, spectral_bound, sweep_below};
use fednmf_linalg::sketch::SketchKind;

use crate::parameters;
use crate::parameters::{Auto, Sizes};

/// How subproblems are sketched, where parties keep their data to themselves.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct SketchArgs {
    /// Random matrix that shrinks each subproblem. gaussian, uniform and srht cost as much as the exact product
    #[arg(long, value_name = "KIND", value_parser = oblivious::<SketchKind>(), default_value = "subsample")]
    pub sketch: SketchKind,
    /// Columns kept for U's update and rows kept for V's: counts, or shares with %. auto: 10 % of a dimension, more where
    /// it is small
    #[arg(long, value_name = "D_U[,D_V]", default_value = "auto", value_parser = parameters::auto(parameters::sizes))]
    pub sketch_size: Auto<Sizes>,
}

/// Parses kinds of sketches K that do not depend on the data, and tells why there is no `weighted` among them.
#[derive(Debug)]
pub struct Oblivious<K>(PhantomData<K>);

/// A parser of the values of K.
pub const fn oblivious<K>() -> Oblivious<K> {
    Oblivious(PhantomData)
}

impl<K> Clone for Oblivious<K> {
    fn clone(&self) -> Self {
        oblivious()
    }
}

impl<K: clap::ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for Oblivious<K> {
    type Value = K;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<K, clap::Error> {
        if value == "weighted" {
            return Err(clap::Error::raw(
                clap::error::ErrorKind::ValueValidation,
                "--sketch weighted: its draws would show other parties which rows and columns of the data are large; \
                 choose another kind, or use --algo dsanls on data that all ranks may see\n",
            ));
        }
        EnumValueParser::<K>::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(K::value_variants().iter().filter_map(K::to_possible_value)))
    }
}

/// How the subproblems of DSANLS are sketched: as [`SketchKind`], or by weights from the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sketching {
    /// The kind that suits the data.
    Auto,
    /// By importance sampling.
    Weighted,
    Oblivious(SketchKind),
}

impl Sketching {
    /// The kind for data of this form whose N rows are sketched to d. Weights pay off on sparse data. A full sketch is
    /// exact without them.
    #[must_use]
    pub fn resolve(self, sparse: bool, d: usize, n: usize) -> Self {
        match self {
            Sketching::Auto if sparse && d < n => Sketching::Weighted,
            Sketching::Auto => Sketching::Oblivious(SketchKind::Subsample),
            given => given,
        }
    }

    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }
}

impl clap::ValueEnum for Sketching {
    fn value_variants<'a>() -> &'a [Self] {
        use SketchKind::{Count, Gaussian, Srht, Subsample, Uniform};
        use Sketching::{Auto, Oblivious, Weighted};
        &[
            Auto,
            Weighted,
            Oblivious(Subsample),
            Oblivious(Count),
            Oblivious(Gaussian),
            Oblivious(Uniform),
            Oblivious(Srht),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Sketching::Auto => Some(PossibleValue::new("auto").help("Weighted on sparse data, otherwise subsample")),
            Sketching::Weighted => Some(
                PossibleValue::new("weighted").help("Picks large rows or columns more often (importance sampling)"),
            ),
            Sketching::Oblivious(kind) => kind.to_possible_value(),
        }
    }
}

impl serde::Serialize for Sketching {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

/// How the subproblems of DSANLS are sketched.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct DsanlsSketchArgs {
    /// Random matrix that shrinks each subproblem. gaussian, uniform and srht cost as much as the exact product
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Sketching::Auto)]
    pub sketch: Sketching,
    /// Columns kept for U's update and rows kept for V's: counts, or shares with %. auto: 10 % of a dimension, more where
    /// it is small
    #[arg(long, value_name = "D_U[,D_V]", default_value = "auto", value_parser = parameters::auto(parameters::sizes))]
    pub sketch_size: Auto<Sizes>,
}

/// The step on a sketched subproblem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Solver {
    /// Proximal coordinate descent
    Pcd,
    /// Projected gradient
    Pgd,
}

/// The unit of the proximal weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MuUnit {
    /// Relative to the fixed factor, so that it fits any data
    Scaled,
    /// As printed in the paper
    Absolute,
}

/// What a [`SketchedStep`] is made from.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct StepArgs {
    /// Step on the sketched subproblem
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Solver::Pcd)]
    pub solver: Solver,
    /// Unit of the proximal weight mu_t = alpha + beta*t (pgd: of the step alpha/(1+beta*t))
    #[arg(long, value_name = "UNIT", value_enum, default_value_t = MuUnit::Scaled)]
    pub mu: MuUnit,
    /// alpha of --mu. auto: 0.1 for pcd, 2 for pgd (1 and 0.001 with --mu absolute)
    #[arg(long, value_name = "X", default_value = "auto",
          value_parser = parameters::auto(parameters::number(0.0, f64::INFINITY)))]
    pub mu_alpha: Auto<f64>,
    /// beta of --mu
    #[arg(long, value_name = "X", default_value = "0.01", value_parser = parameters::number(0.0, f64::INFINITY))]
    pub mu_beta: f64,
}

impl StepArgs {
    /// Whether nothing holds the scale of a component where subproblems are sketched: it then grows in one factor and vanishes
    /// in the other, since each sketch fits the component to other entries.
    pub fn lets_scales_drift(&self) -> bool {
        self.solver == Solver::Pcd && self.mu_alpha.given() == Some(0.0) && self.mu_beta == 0.0
    }
}

/// Proximal coordinate descent (Alg. 3) or projected gradient (14), with the weights of iteration t.
#[derive(Debug, Clone, Copy)]
pub struct SketchedStep {
    gradient: bool,
    scaled: bool,
    alpha: f64,
    beta: f64,
    /// The largest value of an entry; infinity for none.
    most: f64,
}

impl SketchedStep {
    pub fn new(args: &StepArgs) -> Self {
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

    /// The same step for entries of at most `most`: the bound (22).
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
            // (14) moves by 2η; with η in units of 1/(2‖BᵀB‖₂) that is α/(1+βt)/‖BᵀB‖₂.
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

//! The step of DSANLS and its kin on a (sketched) subproblem, given its Gram matrix and right-hand side.

use ndarray::{ArrayView2, ArrayViewMut1, ArrayViewMut2};

use crate::algorithms::options::{MU, MU_ALPHA, MU_BETA, Options, SOLVER, Taken};
use crate::linalg::Real;
use crate::nls::{Sweep, gradient_step_below, spectral_bound, sweep_below};

/// The options that a [`Step`] is made from, with their defaults.
pub const OPTIONS: [Taken; 4] = [SOLVER.or("pcd"), MU.or("scaled"), MU_ALPHA.or("auto"), MU_BETA.or("0.01")];

/// Proximal coordinate descent (Alg. 3) or projected gradient (14), with the weights of iteration t.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    gradient: bool,
    scaled: bool,
    alpha: f64,
    beta: f64,
    /// The largest value of an entry; infinity for none.
    most: f64,
}

impl Step {
    /// As the options say.
    pub fn new(options: &Options) -> Self {
        let gradient = options.word(&SOLVER) == "pgd";
        let scaled = options.word(&MU) == "scaled";
        let alpha = options.number_or_auto(&MU_ALPHA).unwrap_or(match (gradient, scaled) {
            (false, true) => 0.1,
            (false, false) => 1.0,
            (true, true) => 2.0,
            (true, false) => 1e-3,
        });
        Step { gradient, scaled, alpha, beta: options.number(&MU_BETA), most: f64::INFINITY }
    }

    /// The same step for entries of at most `most`: the bound (22).
    #[must_use]
    pub fn below(self, most: f64) -> Self {
        Step { most, ..self }
    }

    /// The effective α.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// One step on X (rows × k) for the right-hand side r (rows × k), the Gram matrix g (k × k) and the squared norm
    /// of the fixed factor. `probe` has 2k elements and is overwritten.
    pub fn apply<T: Real>(
        &self,
        x: &mut ArrayViewMut2<T>,
        r: &ArrayView2<T>,
        g: &ArrayView2<T>,
        norm2: f64,
        t: usize,
        probe: &mut ArrayViewMut1<T>,
    ) {
        let t = t as f64;
        if self.gradient {
            // (14) moves by 2η; with η in units of 1/(2‖BᵀB‖₂) that is α/(1+βt)/‖BᵀB‖₂.
            let unit = if self.scaled { spectral_bound(g, probe).as_f64() } else { 0.5 };
            let eta = if unit > 0.0 { self.alpha / (1.0 + self.beta * t) / unit } else { 0.0 };
            gradient_step_below(x, r, g, T::from_f64(eta), T::from_f64(self.most));
        } else {
            let unit = if self.scaled { norm2 / g.ncols() as f64 } else { 1.0 };
            let mu = T::from_f64((self.alpha + self.beta * t) * unit);
            sweep_below(x, r, g, Sweep { mu, passes: 1 }, T::from_f64(self.most));
        }
    }
}

//! A party's local steps on its own columns, which update its copy of U and its V_r.

use std::fmt;

use ndarray::{Array1, Array2};

use fednmf_base::error::{Error, Result};
use fednmf_linalg::random::Stream;
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::{Sketch, SketchKind};
use fednmf_linalg::{Block, Contiguous, Real, gram, squares};

use super::{Party, PublicInfo};
use crate::parameters::{Parameters, Sizes, count};
use crate::shared::dp::DpParams;
use crate::shared::missing;
use crate::shared::missing::{PartyMissing, PartyMissingParams, Side};
use crate::shared::regularization::{Penalties, RegularizationParams};
use crate::shared::sketched_step::{SketchParams, SketchedStep, StepParams};

fednmf_base::words! {
    /// The factor that a party updates first.
    pub enum UpdateOrder {
        /// V, which then fits the U that the party received
        VFirst = "v-first",
        /// U, as printed in the paper
        UFirst = "u-first",
    }
}

fednmf_base::parameters! {
    /// A party's local steps.
    pub struct LocalParams {
        /// Steps of a party between two exchanges
        pub local_iters: usize = 10, "N", count(1);
        /// Factor that a party updates first
        pub order: UpdateOrder = UpdateOrder::VFirst, "ORDER";
        group step: StepParams;
        group regularization: RegularizationParams;
        group missing: PartyMissingParams;
    }
}

impl LocalParams {
    /// Checks that a sketch is compatible with missing entries.
    ///
    /// # Errors
    /// If it is not; the message names the sketch.
    pub fn check_sketch(&self, kind: SketchKind) -> Result<()> {
        if self.missing.missing == PartyMissing::None { Ok(()) } else { missing::check_sketch(kind, "subsample") }
    }
}

/// A group of parameters `G`, or [`NoGroup`] in methods without it.
pub trait OptionalGroup<G>: Parameters + Default + fmt::Debug + Clone + PartialEq + Send + Sync + 'static {
    fn group(&self) -> Option<&G>;
}

fednmf_base::parameters! {
    /// The place of a group of parameters that a method does not have.
    pub struct NoGroup {}
}

impl<G> OptionalGroup<G> for NoGroup {
    fn group(&self) -> Option<&G> {
        None
    }
}

impl OptionalGroup<SketchParams> for SketchParams {
    fn group(&self) -> Option<&SketchParams> {
        Some(self)
    }
}

impl OptionalGroup<DpParams> for DpParams {
    fn group(&self) -> Option<&DpParams> {
        Some(self)
    }
}

/// A party with its copy of U.
pub struct LocalParty<T: Real> {
    pub party: Party<T>,
    /// U_r, m × k
    pub u: Array2<T>,
    /// Penalties on V_r and on the party's copy of U. The latter is a share, such that the shares of all parties add up to
    /// the penalty on U.
    penalties: Penalties,
    own: Option<OwnSketch<T>>,
}

/// The state that a party needs to sketch its own columns.
struct OwnSketch<T: Real> {
    /// S₁, |J_r| × d
    sketch: Box<dyn Sketch<T>>,
    /// M_rᵀ
    across: Block<T>,
    /// S₁ᵀV_r, d × k
    v: Array2<T>,
}

/// Scratch memory that the parties of a rank share.
pub struct Scratch<T> {
    pub rhs: Array2<T>,
    pub gram: Array2<T>,
    pub probe: Array1<T>,
}

impl<T: Real> Scratch<T> {
    pub fn new(public: &PublicInfo) -> Self {
        let PublicInfo { m, k, order, .. } = *public;
        Scratch { rhs: order.zeros(m, k), gram: Array2::zeros((k, k)), probe: Array1::zeros(2 * k) }
    }
}

/// The public random streams of the sketches; each draw has its own stream.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    pub seed: u64,
    pub parties: usize,
}

impl Draws {
    /// The stream of S₂ at local step t, the same for all parties.
    pub fn shared(&self, t: usize) -> Stream {
        sketch::stream(self.seed, false, t)
    }

    /// The stream of a party's own S₁ at its local step t.
    pub fn of_party(&self, party: usize, t: usize) -> Stream {
        sketch::stream(self.seed, true, t * self.parties + party)
    }
}

/// d_U as a function of a party's number of columns, and d_V (of m).
///
/// # Errors
/// If d_V exceeds m.
pub fn sketch_sizes(requested: Option<Sizes>, public: &PublicInfo) -> Result<(impl Fn(usize) -> usize + use<>, usize)> {
    let k = public.k;
    let d_v = requested.map_or(sketch::default_size(public.m, k), |sizes| sizes.v.of(public.m));
    if d_v > public.m {
        return Err(Error::input(format!(
            "--sketch-size: {d_v} rows for V's update, but the matrix has {} of them",
            public.m
        )));
    }
    // A count may exceed the number of columns of a small party, which then uses all of them.
    let d_u = move |columns: usize| match requested {
        Some(sizes) => sizes.u.of(columns).min(columns),
        None => sketch::default_size(columns, k).min(columns),
    };
    Ok((d_u, d_v))
}

impl<T: Real> LocalParty<T> {
    /// A party that starts with this U. With a `sketch` (its kind, and d_U as a function of the number of columns), U's
    /// steps are sketched.
    pub fn new(
        party: Party<T>,
        u: &Array2<T>,
        public: &PublicInfo,
        sketch: Option<(SketchKind, &dyn Fn(usize) -> usize)>,
    ) -> Self {
        let columns = party.cols.len();
        let own = sketch.filter(|_| columns > 0).map(|(kind, d_u)| {
            let sketch = sketch::make(kind, columns, d_u(columns), public.k, public.order);
            let v = public.order.zeros(sketch.size(), public.k);
            OwnSketch { sketch, across: party.block.transposed(), v }
        });
        let share = columns as f64 / public.n.max(1) as f64;
        let penalties = Penalties { u: public.penalties.u.times(share), v: public.penalties.v };
        LocalParty { u: u.clone(), penalties, own, party }
    }

    /// One local step of V_r and of the own copy of U, in this order or the other.
    pub fn local_step(
        &mut self,
        v_first: bool,
        step: &SketchedStep,
        t: usize,
        draws: &Draws,
        scratch: &mut Scratch<T>,
    ) {
        if v_first {
            self.step_v(step, t, scratch);
        }
        self.step_u(step, t, draws, scratch);
        if !v_first {
            self.step_v(step, t, scratch);
        }
    }

    /// V_r's step against the party's own copy of U.
    pub fn step_v(&mut self, step: &SketchedStep, t: usize, scratch: &mut Scratch<T>) {
        let penalty = self.penalties.v;
        let Party { block, missing, v, rhs, .. } = &mut self.party;
        gram(&self.u.view(), &mut scratch.gram.view_mut());
        block.tmul(&self.u.view(), &mut rhs.view_mut());
        if let Some(missing) = missing {
            missing.complete(Side::Columns, &v.view(), &self.u.view(), &scratch.gram.view(), rhs);
        }
        let (r, g) = (&rhs.view(), (&scratch.gram.view(), penalty));
        step.apply(&mut v.view_mut(), r, g, trace(&scratch.gram), t, &mut scratch.probe.view_mut());
    }

    /// The step of the party's copy of U against V_r, sketched if the party has a sketch.
    pub fn step_u(&mut self, step: &SketchedStep, t: usize, draws: &Draws, scratch: &mut Scratch<T>) {
        let Party { block, missing, v, index, .. } = &mut self.party;
        if v.nrows() == 0 {
            return;
        }
        let Scratch { rhs, gram: g, probe } = scratch;
        let norm2 = match &mut self.own {
            Some(OwnSketch { sketch, across, v: sketched }) => {
                sketch.draw(&draws.of_party(*index, t));
                sketch.sketch_rows(0, &v.view(), &mut sketched.view_mut());
                gram(&sketched.view(), &mut g.view_mut());
                sketch.product(across, &sketched.view(), &mut rhs.view_mut());
                if let (Some(missing), Some(picked)) = (missing, sketch.picked()) {
                    let picked = (picked, &sketched.view());
                    missing.complete_sample(Side::Rows, &self.u.view(), picked, &g.view(), rhs);
                }
                squares(v.entries())
            }
            None => {
                gram(&v.view(), &mut g.view_mut());
                block.mul(&v.view(), &mut rhs.view_mut());
                if let Some(missing) = missing {
                    missing.complete(Side::Rows, &self.u.view(), &v.view(), &g.view(), rhs);
                }
                trace(g)
            }
        };
        let g = (&g.view(), self.penalties.u);
        step.apply(&mut self.u.view_mut(), &rhs.view(), g, norm2, t, &mut probe.view_mut());
    }
}

/// ‖Y‖_F² from YᵀY.
pub fn trace<T: Real>(gram: &Array2<T>) -> f64 {
    gram.diag().iter().map(|x| x.as_f64()).sum()
}

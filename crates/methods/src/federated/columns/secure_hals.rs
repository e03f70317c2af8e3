//! `secure-hals`: exact HALS with the same iterates as on pooled columns.
//!
//! Of the data, the update of U needs only Σ_r M_r V_r (m × k) and Σ_r V_rᵀV_r (k × k); the update of V_r needs M_r and U.
//! The parties therefore compute these two sums. Each party computes the same update of U and updates its own V_r. Nothing
//! is averaged, and the iterates are those of `hals`. With `--secure-sum`, no single term of the sums is visible to others.
//!
//! `--local-iters` sweeps for each sum, or `--update bpp` (the exact minimiser), make better use of a sum than one sweep
//! does. `--extrapolation restart` needs fewer sums for the same error. It sends nothing more: the objective at the new U
//! follows from the two sums and ‖M‖², which all parties know.
//!
//! `--sketch subsample` sums and updates only some rows of U in an iteration
//! ([`rows`](crate::federated::columns::row_subsample)): a sum costs d k words instead of m k, and every V_r is updated after
//! it.
//!
//! With `--dp` ([`noised_hals`](crate::federated::columns::noised_hals)) each sum has noise that hides single columns.

use ndarray::Array2;
use rand::Rng as _;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{Joint, KEYS, PartySum, masked};
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::random::secret_rng;
use fednmf_linalg::{Real, gram};
use fednmf_privacy::NoisePlan;

use super::{PAPER, PRODUCT, Party, PublicInfo, fit, hosted_parties, pieces, restore, start_u, summed};
use crate::cost::{Cost, Kernel, Shape, Workload};
use crate::decision::Decision;
use crate::description::{Description, DifferentialPrivacy, LARGEST_TERM, MessageSpec, Partition, ProtectedUnit};
use crate::federated::columns::local::{sketch_sizes, trace};
use crate::federated::columns::noised_hals;
use crate::federated::columns::row_subsample::Rows;
use crate::method::Method;
use crate::metrics;
use crate::parameters::{Auto, SecretSource, Sizes, count};
use crate::shared::alternating::Factor;
use crate::shared::disclosure::{OpenedSums, Risk};
use crate::shared::dp;
use crate::shared::dp::{DpParams, Expected};
use crate::shared::extrapolation::{Extrapolation, Momentum, extrapolate, inner, rounding};
use crate::shared::least_squares::{LeastSquaresUpdate, Update};
use crate::shared::missing::PartyMissing;
use crate::shared::regularization::RegularizationParams;
use crate::shared::secure_sum::{SURVIVING, SecureSumParams, ThresholdParams, party_sum};
use crate::shared::sketched_step::oblivious;
use crate::{Algorithm, Measures, Problem};

fednmf_base::words! {
    /// How a party's V starts.
    pub enum StartOfV {
        /// Drawn by the party, unknown to the others
        Private = "private",
        /// Drawn by --seed
        Public = "public",
    }
}

fednmf_base::words! {
    /// The rows of U that an iteration sums for.
    pub enum RowSketch {
        /// All rows
        None = "none",
        /// Some rows, in turn: less traffic for a sum
        Subsample = "subsample",
    }
}

fednmf_base::parameters! {
    /// Parameters of secure HALS.
    pub struct SecureHals {
        /// Sweeps of a factor between two sums
        #[unless(|p| p.update == Auto::Given(Update::Bpp), "counts steps of --update hals; --update bpp solves for the factor")]
        pub local_iters: usize = 1, "N", count(1);
        /// Update of a factor from its sums. auto: hals; with --dp bpp, since each sum costs privacy
        pub update: Auto<Update> = Auto::Auto, "NAME";
        /// Start of a party's V: private, drawn by the party, or public, drawn by --seed, with which the first sum gives k exact
        /// equations for each row of the data. auto: private with --secure-sum
        pub start: Auto<StartOfV> = Auto::Auto, "HOW";
        /// Where a factor's update starts
        pub extrapolation: Extrapolation = Extrapolation::None, "HOW";
        /// Rows of U that an iteration sums for and updates
        pub sketch: RowSketch = RowSketch::None, "KIND", oblivious;
        /// With --sketch subsample, number of rows (D_V) of an iteration: a count, or a share with %. auto: 10 %, at least
        /// 2 k
        #[unless(|p| p.sketch == RowSketch::None, "nothing is sketched with --sketch none; leave it out, or choose a sketch, as --sketch subsample")]
        pub sketch_size: Auto<Sizes> = Auto::Auto, "D_U[,D_V]";
        group regularization: RegularizationParams;
        group secure_sum: SecureSumParams;
        group threshold: ThresholdParams;
        group dp: DpParams;
    }
}

impl Method for SecureHals {
    const DESCRIPTION: &'static Description = &Description {
        name: "secure-hals",
        summary: "exact HALS: the parties sum what U's update needs, in the clear or masked",
        paper: PAPER,
        partition: Partition::PartyColumns,
        dp: DifferentialPrivacy::Offered(ProtectedUnit::Column),
        limits: Some([
            "Without --dp there is no formal guarantee: no bound is known on what exact sums reveal; --secure-sum hides their terms.",
            "--dp bounds what they reveal of one column, not of a party, without loading and evaluations (--eval-every 0).",
        ]),
        messages: &[
            PRODUCTS[0],
            PRODUCTS[1],
            GRAM_IN_CLEAR,
            RESIDUALS[0],
            RESIDUALS[1],
            NOISED[0],
            NOISED[1],
            dp::MESSAGES,
            dp::MESSAGES_MASKED,
            LARGEST_TERM,
            MessageSpec::control(KEYS, "32 bytes", "once, with --secure-sum"),
            SURVIVING[0],
            SURVIVING[1],
            SURVIVING[2],
        ],
        ..Description::USUAL
    };

    fn check(&self) -> Result<()> {
        if self.dp.is_on() {
            let with = |option: &str, why: &str| Err(Error::input(format!("--{option}: {why}; omit it or --dp")));
            if self.start.given().is_some() {
                return with("start", "with --dp V starts as the fit of each column to the public U");
            }
            if self.sketch != RowSketch::None {
                return with("sketch", "with --dp each sum costs privacy, and one of some rows as much as one of all");
            }
            if self.secure_sum.disclosure.suppress_rare.as_ref().is_some() {
                return with(
                    "suppress-rare",
                    "one person decides with it which entries of others change, so no epsilon holds for one",
                );
            }
            if self.extrapolation != Extrapolation::None {
                return with("extrapolation", "it depends on the objective, which noise hides");
            }
            if self.update_or_default() == Update::Bpp && self.local_iters > 1 {
                return with("local-iters", "it counts sweeps of --update hals, and with --dp --update is bpp");
            }
            if self.regularization.is_on() {
                return Err(Error::input(
                    "--alpha-u, --alpha-v: with --dp the columns of U have norm 1 after each update, which changes the \
                     penalties; omit them or --dp",
                ));
            }
        }
        if self.extrapolation == Extrapolation::Restart && self.regularization.has_l1_on_v() {
            return Err(Error::input(
                "--extrapolation restart: it depends on the objective, and the L1 penalty on V would need another sum; omit it, \
                 or use --l1-ratio 0 or --alpha-v 0",
            ));
        }
        let accepted = self.secure_sum.disclosure.accept_risk.contains(Risk::FewValues);
        if self.secure_sum.secure_sum && self.start.given() == Some(StartOfV::Public) && !accepted {
            return Err(Error::input(
                "--start public: the first sum is then one of the parties' columns with factors that all know, from which whole numbers \
                 and sparse entries follow, however many columns there are; leave it out; --accept-risk few-values runs it anyway",
            ));
        }
        if self.sketch == RowSketch::None && self.sketch_size.given().is_some() {
            return Err(Error::input("--sketch-size: secure-hals sums all rows; add --sketch subsample"));
        }
        if self.sketch != RowSketch::None && self.extrapolation == Extrapolation::Restart {
            return Err(Error::input(
                "--extrapolation restart: it depends on the objective, which needs the sums of all rows; omit --sketch",
            ));
        }
        Ok(())
    }

    fn why_not(name: &str) -> Option<&'static str> {
        (name == "missing").then_some(
            "its sums less what U and V say are sums over the observed entries, so a row that few columns have would show \
             which, and their entries; use syn-ssd-u",
        )
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, stored: all_stored, .. } = *workload;
        let (parties, hosted) = workload.parties(ranks);
        let cols = n.div_ceil(parties) * hosted;
        let mut cost = Cost::default();
        let (product, square) = (2.0 * k as f64, 2.0 * (k * k) as f64);
        let stored = workload.part(m, cols);
        cost.add(Kernel::Mul, product * stored, product * all_stored);
        cost.add(Kernel::Tmul, product * stored, product * all_stored);
        let grams = if self.extrapolation == Extrapolation::Restart { 2 } else { 1 };
        cost.add(Kernel::Gram, square * (grams * m + cols) as f64, square * (grams * m * ranks + n) as f64);
        let (kernel, passes) = match self.update_or_default() {
            Update::Bpp => (Kernel::Pivot, 1.0),
            Update::Hals => (Kernel::Sweep, self.local_iters as f64),
        };
        // Every rank updates the whole U.
        cost.add(kernel, passes * square * (m + cols) as f64, passes * square * (m * ranks + n) as f64);
        let sums: &[(MessageTag, usize)] = if self.dp.is_on() {
            &[(noised_hals::RELEASE, noised_hals::release_length(m, k))]
        } else {
            &[(PRODUCT, m * k), (GRAM, k * k)]
        };
        self.secure_sum.add_cost(Some(&self.threshold), &mut cost, (ranks, parties), sums, (word, 1));
        cost.data = workload.block(m * hosted, stored);
        cost.shape = Shape { block: (m, cols / hosted), updated: m, gram: m, ..Shape::default() };
        cost.factors = workload.bytes((2 * cols + (2 + hosted) * m) * k) + (16 * m * k) as f64;
        Ok(Some(cost))
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        Some(OpenedSums::ExactProducts(1))
    }

    fn sends(&self, kind: &str) -> bool {
        // Without a bound of its own, all columns are scaled, and nobody counts them.
        kind != dp::MESSAGES.kind || self.dp.clip.given().is_some()
    }

    fn noise(&self, run: Expected) -> Result<Option<NoisePlan>> {
        noised_hals::noise(&self.dp, self.secure_sum.secure_sum, run)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        if self.dp.is_on() {
            let update = LeastSquaresUpdate::new(self.update_or_default() == Update::Bpp, self.local_iters, problem.k);
            return noised_hals::build(&self.dp, &self.secure_sum, update, problem);
        }
        build(self, problem)
    }
}

impl SecureHals {
    pub fn update_or_default(&self) -> Update {
        self.update.given().unwrap_or(if self.dp.is_on() { Update::Bpp } else { Update::Hals })
    }

    /// Without masks, each party's term is visible anyway.
    fn start_or_default(&self) -> StartOfV {
        let hidden = if self.secure_sum.secure_sum { StartOfV::Private } else { StartOfV::Public };
        self.start.given().unwrap_or(hidden)
    }
}

const GRAM: MessageTag = MessageTag::new("sum of V_r'V_r", Payload::Gram);

const PRODUCTS: [MessageSpec; 2] = [
    MessageSpec::new(PRODUCT, "m x k; with --sketch d_V x k", "each iteration"),
    MessageSpec::new(
        masked(PRODUCT),
        "the same and k x k, the Gram matrix, as one",
        "each iteration, with --secure-sum",
    ),
];
const NOISED: [MessageSpec; 2] = [
    MessageSpec::new(noised_hals::RELEASE, "m k + k (k + 1)/2", "each iteration, with --dp").noised(),
    MessageSpec::new(masked(noised_hals::RELEASE), "the same", "each iteration, with --dp and --secure-sum"),
];
const GRAM_IN_CLEAR: MessageSpec = MessageSpec::new(GRAM, "k x k", "each iteration");
const RESIDUALS: [MessageSpec; 2] = summed(metrics::RESIDUAL, "1; 2 with penalties", "each evaluation");

/// Distinguishes the private start from other secrets of a party.
const START: u64 = 0x5354_4152_5400_0000;

/// A party and its terms of the sums.
struct SecureParty<T: Real> {
    party: Party<T>,
    /// With extrapolation, the extrapolated V_r: the start of its next update, and what U is fitted to.
    v_extrapolated: Option<Array2<T>>,
    product: Array2<T>,
    gram: Array2<T>,
    /// With a sketch, the change of the right-hand side, |J_r| × k.
    change: Option<Array2<T>>,
}

struct SecureHalsRun<T: Real> {
    comm: PartyCommunicator,
    party_sum: PartySum,
    public: PublicInfo,
    update: LeastSquaresUpdate,
    members: Vec<SecureParty<T>>,
    /// With extrapolation, the extrapolated U; V_r is fitted to it, so it is the result.
    u: Array2<T>,
    extrapolated: Option<Extrapolated<T>>,
    /// With a sketch, the rows of U that are updated.
    rows: Option<Rows<T>>,
    rhs: Array2<T>,
    gram: Array2<T>,
    iteration: usize,
}

/// State of an extrapolated run in addition to the extrapolated factors.
struct Extrapolated<T: Real> {
    momentum: Momentum,
    /// U after its last update.
    u_new: Array2<T>,
    /// UᵀU of it, and of the extrapolated one.
    grams: [Array2<T>; 2],
}

impl<T: Real> Extrapolated<T> {
    /// Extrapolates the new U, unless the objective at it has risen, or is far higher at the extrapolated one; r = Σ M_r V_r and
    /// g = Σ V_rᵀV_r are the sums that U was updated with. g becomes UᵀU. Returns whether U is extrapolated; if not, V's extrapolation
    /// must be undone too. V has no L1 penalty, and its L2 penalty follows from the trace of g.
    fn advance(&mut self, u: &mut Array2<T>, r: &Array2<T>, g: &mut Array2<T>, public: &PublicInfo) -> bool {
        let PublicInfo { norm2, penalties, .. } = *public;
        let objective = |u: &Array2<T>, own_gram: &mut Array2<T>| {
            gram(&u.view(), &mut own_gram.view_mut());
            let fit = norm2 + inner(&own_gram.view(), &g.view()) - 2.0 * inner(&u.view(), &r.view());
            fit + 2.0 * penalties.u.value(&u.view()) + penalties.v.l2 * trace(g)
        };
        let [gram_new, gram_beyond] = &mut self.grams;
        let new = objective(u, gram_new);
        extrapolate(u, &mut self.u_new, self.momentum.beta());
        let beyond = objective(u, gram_beyond);
        let accepted = self.momentum.accept_unless_far(new, beyond, rounding::<T>(norm2));
        if !accepted {
            u.assign(&self.u_new);
        }
        g.assign(if accepted { gram_beyond } else { gram_new });
        accepted
    }
}

fn build<T: Real>(args: &SecureHals, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let public = PublicInfo::of(&data, k, Some(&args.regularization));
    let u = start_u(&public, seed);
    let extrapolates = args.extrapolation == Extrapolation::Restart;
    let rows = match args.sketch {
        RowSketch::None => None,
        RowSketch::Subsample => {
            let size = match args.sketch_size.given() {
                Some(sizes) => sketch_sizes(Some(sizes), &public).map_err(Error::on_all_ranks)?.1,
                // A tenth of the rows, but enough that they outweigh the k × k words of the Gram matrix.
                None => (public.m / 10).max(2 * k).min(public.m),
            };
            Some(Rows::new(public.m, size, k, seed, public.order))
        }
    };
    let summed_rows = rows.as_ref().map_or(public.m, Rows::size);
    let cuts = data.cuts.cols.clone();
    let mut hosted = hosted_parties(data, &public, PartyMissing::None, seed, (&comm, parties))?;
    if args.start_or_default() == StartOfV::Private {
        let drawn = hosted.iter_mut().try_for_each(|party| draw_private(party, &public, args.dp.secret_seed));
        comm.agree_on_error(drawn)?;
    }
    let members = hosted
        .into_iter()
        .map(|party| {
            let v_extrapolated = extrapolates.then(|| party.v.clone());
            let change = rows.as_ref().map(|_| public.order.zeros(party.cols.len(), k));
            SecureParty {
                party,
                v_extrapolated,
                product: public.order.zeros(summed_rows, k),
                gram: Array2::zeros((k, k)),
                change,
            }
        })
        .collect();
    let extrapolated = extrapolates.then(|| Extrapolated {
        momentum: Momentum::default(),
        u_new: u.clone(),
        grams: [(); 2].map(|()| Array2::zeros((k, k))),
    });
    let rhs_rows = if rows.is_some() { 0 } else { public.m };
    Ok(Box::new(SecureHalsRun {
        party_sum: party_sum(&comm, parties, &args.secure_sum, Some((&args.threshold, &cuts)))?,
        comm,
        update: LeastSquaresUpdate::new(args.update_or_default() == Update::Bpp, args.local_iters, k),
        members,
        u,
        extrapolated,
        rows,
        rhs: public.order.zeros(rhs_rows, k),
        gram: Array2::zeros((k, k)),
        public,
        iteration: 0,
    }))
}

/// Draws a party's start from its own secret randomness, uniform as the public one.
fn draw_private<T: Real>(party: &mut Party<T>, public: &PublicInfo, source: SecretSource) -> Result<()> {
    let mut rng = secret_rng(source.seed(), START ^ party.index as u64)?;
    // Row by row in any memory order, so that it is the same for dense and sparse data.
    for mut row in party.v.rows_mut() {
        for x in &mut row {
            let bits = rng.next_u64() >> 11;
            *x = T::from_f64(public.scales[1] * bits as f64 / (1u64 << 53) as f64);
        }
    }
    Ok(())
}

/// Expected size of an entry of M V, with V as large as at its start.
fn product_size(public: &PublicInfo) -> f64 {
    let n = public.n as f64;
    n * (public.norm2 / (public.m as f64 * n)).sqrt() * public.scales[1]
}

/// Expected size of an entry of VᵀV.
fn gram_size(public: &PublicInfo) -> f64 {
    public.n as f64 * public.scales[1].powi(2)
}

/// rhs ← Σ M_r V_r and g ← Σ V_rᵀV_r, both over the same parties.
fn sums<T: Real>(
    comm: &PartyCommunicator,
    party_sum: &mut PartySum,
    public: &PublicInfo,
    members: &[SecureParty<T>],
    rhs: &mut Array2<T>,
    g: &mut Array2<T>,
) -> Result<()> {
    let product = |hosted: usize| members[hosted].product.entries();
    let gram = |hosted: usize| members[hosted].gram.entries();
    party_sum.sum_together(
        comm,
        &mut [
            Joint { tag: PRODUCT, expected: product_size(public), term: &product, out: rhs.entries_mut() },
            Joint { tag: GRAM, expected: gram_size(public), term: &gram, out: g.entries_mut() },
        ],
    )
}

impl<T: Real> SecureHalsRun<T> {
    /// An iteration for the chosen rows of U.
    fn iterate_rows(&mut self) -> Result<()> {
        let t = self.iteration;
        let SecureHalsRun { comm, party_sum, public, update, members, u, rows, gram: g, .. } = self;
        let Some(rows) = rows else { return Ok(()) };
        rows.select_rows(t);
        comm.work("product", || {
            for SecureParty { party, product, gram: term, .. } in members.iter_mut() {
                rows.product(party, &party.v.view(), product);
                gram(&party.v.view(), &mut term.view_mut());
            }
        });
        sums(comm, party_sum, public, members, &mut rows.rhs, g)?;
        comm.work("update", || {
            rows.pick(u);
            update.apply(&mut rows.u, &rows.rhs, g, public.penalties.u);
            rows.put(u);
        });
        comm.work("product", || {
            gram(&u.view(), &mut g.view_mut());
            for SecureParty { party, change, .. } in members.iter_mut() {
                match change {
                    Some(change) if !rows.recomputes(t) => rows.update_rhs(party, change),
                    _ => party.block.tmul(&u.view(), &mut party.rhs.view_mut()),
                }
            }
        });
        comm.work("update", || {
            let penalty = public.penalties.v;
            members.iter_mut().for_each(|x| update.apply(&mut x.party.v, &x.party.rhs, g, penalty));
        });
        self.iteration += 1;
        Ok(())
    }

    fn iterate(&mut self) -> Result<()> {
        if self.rows.is_some() {
            return self.iterate_rows();
        }
        let SecureHalsRun { comm, party_sum, public, update, members, u, extrapolated, rhs, gram: g, .. } = self;
        comm.work("product", || {
            for SecureParty { party, v_extrapolated, product, gram: term, .. } in members.iter_mut() {
                let v = v_extrapolated.as_ref().unwrap_or(&party.v).view();
                party.block.mul(&v, &mut product.view_mut());
                gram(&v, &mut term.view_mut());
            }
        });
        sums(comm, party_sum, public, members, rhs, g)?;
        comm.work("update", || {
            update.apply(u, rhs, g, public.penalties.u);
            let Some(x) = extrapolated else {
                return gram(&u.view(), &mut g.view_mut());
            };
            if !x.advance(u, rhs, g, public) {
                for SecureParty { party, v_extrapolated, .. } in members.iter_mut() {
                    if let Some(v) = v_extrapolated {
                        v.assign(&party.v);
                    }
                }
            }
        });

        comm.work("product", || {
            for SecureParty { party, .. } in members.iter_mut() {
                party.block.tmul(&u.view(), &mut party.rhs.view_mut());
            }
        });
        comm.work("update", || {
            for SecureParty { party, v_extrapolated, .. } in members.iter_mut() {
                match (v_extrapolated, &*extrapolated) {
                    (Some(v), Some(x)) => {
                        update.apply(v, &party.rhs, g, public.penalties.v);
                        extrapolate(v, &mut party.v, x.momentum.beta());
                    }
                    _ => update.apply(&mut party.v, &party.rhs, g, public.penalties.v),
                }
            }
        });
        self.iteration += 1;
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for SecureHalsRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let parts = self.members.iter().map(|x| (&x.party, &*x.party.v));
        let mut all = fit(&self.comm, &mut self.party_sum, &self.public, parts, &self.u.view())?;
        all.extend(self.party_sum.losses());
        Ok(all)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        pieces(&self.u, self.members.iter().map(|x| (&x.party, &*x.party.v)))
    }

    fn state(&self) -> State<'_, T> {
        let mut state = State::from(self.factors());
        if let Some(x) = &self.extrapolated {
            state.matrices.push(Piece::shared("U_new", x.u_new.nrows(), 0, x.u_new.view()));
            state = state.with(Owner::Shared, &x.momentum);
        }
        for SecureParty { party, v_extrapolated, change, .. } in &self.members {
            // The right-hand side is updated incrementally; recomputing it would change its last digits.
            state.matrices.extend(change.as_ref().map(|_| Piece::private("rhs", party.index, party.rhs.view())));
            state.matrices.extend(v_extrapolated.as_ref().map(|v| Piece::private("V_beyond", party.index, v.view())));
        }
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        restore(saved, &mut self.u, self.members.iter_mut().map(|x| &mut x.party))?;
        if let Some(x) = &mut self.extrapolated {
            saved.rows("U_new", Owner::Shared, 0, x.u_new.view_mut())?;
            x.momentum = saved.read(Owner::Shared)?;
        }
        for SecureParty { party, v_extrapolated, change, .. } in &mut self.members {
            if change.is_some() && saved.is_consistent() {
                saved.rows("rhs", Owner::Party(party.index), 0, party.rhs.view_mut())?;
            } else if change.is_some() {
                // A right-hand side from an older checkpoint belongs to another U.
                party.block.tmul(&self.u.view(), &mut party.rhs.view_mut());
            }
            if let Some(v) = v_extrapolated {
                saved.rows("V_beyond", Owner::Party(party.index), 0, v.view_mut())?;
            }
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        self.rows.iter().map(|rows| Decision::SketchSize(Factor::V, rows.size())).collect()
    }
}

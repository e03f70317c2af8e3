//! `secure-hals`: exact HALS as if the columns of all parties were in one place.
//!
//! U's update needs of the data only Σ_r M_r V_r (m × k) and Σ_r V_rᵀV_r (k × k); V_r's update needs M_r and U. So the
//! parties sum the two, each does the same update of U, and updates its own V_r: nothing is averaged, and the iterates
//! are those of `hals`. With `--secure-sum` nobody sees a single share of the sums.
//!
//! `--local-iters` sweeps for each sum, or `--update bpp` (the exact minimiser), use a sum better than one sweep does.
//! `--extrapolation restart` needs fewer of them for an error, and nothing more leaves a party: the objective at the new U
//! is made of the two sums and of ‖M‖², which all know.
//!
//! `--sketch subsample` sums and updates only some rows of U in an iteration ([`rows`](crate::algorithms::columns::rows)): a sum costs d k words
//! in the place of m k, and every V_r gets an update for it.

use ndarray::Array2;

use super::{
    FORMS, Facts, PAPER, Party, SUMMING, entries, entries_mut, parties, pieces, relative_error, restore, start_u,
    summed, summer,
};
use crate::algorithms::columns::local::sketch_sizes;
use crate::algorithms::columns::rows::Rows;
use crate::algorithms::options::{EXTRAPOLATION, LOCAL_ITERS, SKETCH, SKETCH_SIZE, UPDATE};
use crate::algorithms::registry::{LARGEST_TERM, MessageSpec, Method, Partition, Unit};
use crate::algorithms::shared::dp::SURVIVING;
use crate::algorithms::shared::extrapolation::{Momentum, extrapolate, inner};
use crate::algorithms::{Algorithm, Measures, Problem};
use crate::comm::{Communicator, MessageTag, Payload};
use crate::error::{Error, Result};
use crate::linalg::{Real, gram};
use crate::metrics;
use crate::nls::{Pivoting, Sweep, sweep};
use crate::privacy::{KEYS, Summer};
use crate::state::{Owner, Piece, SavedState, State};

pub static METHOD: Method = Method {
    name: "secure-hals",
    aliases: &[],
    summary: "exact HALS over private columns: the parties sum what U's update needs, in the clear or masked",
    paper: PAPER,
    partition: Partition::PartyColumns,
    unit: Unit::Update,
    forms: FORMS,
    allows_negative: false,
    options: &[
        LOCAL_ITERS.or("1"),
        UPDATE.among(&["hals", "bpp"], "hals"),
        EXTRAPOLATION.or("none"),
        SKETCH.among(&["none", "subsample"], "none"),
        SKETCH_SIZE.or("auto"),
        SUMMING[0],
        SUMMING[1],
        SUMMING[2],
    ],
    messages: MESSAGES,
    build64: build,
    build32: build,
};

const PRODUCT: MessageTag = MessageTag::new("sum of M_r V_r", Payload::Product);
const GRAM: MessageTag = MessageTag::new("sum of V_r'V_r", Payload::Gram);

const PRODUCTS: [MessageSpec; 2] = summed(PRODUCT, "m x k; with --sketch d_V x k", "each iteration");
const GRAMS: [MessageSpec; 2] = summed(GRAM, "k x k", "each iteration");
const RESIDUALS: [MessageSpec; 2] = summed(metrics::RESIDUAL, "1", "each evaluation");
static MESSAGES: &[MessageSpec] = &[
    PRODUCTS[0],
    PRODUCTS[1],
    GRAMS[0],
    GRAMS[1],
    RESIDUALS[0],
    RESIDUALS[1],
    LARGEST_TERM,
    MessageSpec::new(KEYS, "32 bytes", "once, with --secure-sum"),
    SURVIVING[0],
    SURVIVING[1],
    SURVIVING[2],
];

/// A party, and its shares of the sums.
struct Member<T: Real> {
    party: Party<T>,
    /// With extrapolation, where the next update of V_r starts, and what U is fitted to.
    v_beyond: Option<Array2<T>>,
    product: Array2<T>,
    gram: Array2<T>,
    /// With a sketch, what the right-hand side changes by, |J_r| × k.
    change: Option<Array2<T>>,
}

struct SecureHals<T: Real> {
    comm: Communicator,
    summer: Summer,
    facts: Facts,
    passes: usize,
    exact: Option<Pivoting>,
    members: Vec<Member<T>>,
    /// With extrapolation beyond the last update: that V_r is fitted to it makes it the result.
    u: Array2<T>,
    extrapolated: Option<Extrapolated<T>>,
    /// With a sketch, the rows of U that are updated.
    rows: Option<Rows<T>>,
    rhs: Array2<T>,
    gram: Array2<T>,
    iteration: usize,
}

/// What an extrapolated run has beside the points beyond.
struct Extrapolated<T: Real> {
    momentum: Momentum,
    /// U as its last update left it.
    u_new: Array2<T>,
    /// UᵀU.
    gram: Array2<T>,
}

impl<T: Real> Extrapolated<T> {
    /// Takes the new U beyond, as far as the objective at it allows, from the sums r = Σ M_r V_r and g = Σ V_rᵀV_r that it
    /// was updated with; whether it did: else U is back where the update left it, and so must V be.
    fn advance(&mut self, u: &mut Array2<T>, r: &Array2<T>, g: &Array2<T>, norm2: f64) -> bool {
        gram(&u.view(), &mut self.gram.view_mut());
        let objective = norm2 + inner(&self.gram.view(), &g.view()) - 2.0 * inner(&u.view(), &r.view());
        extrapolate(u, &mut self.u_new, self.momentum.beta);
        let falls = self.momentum.judge(objective);
        if !falls {
            u.assign(&self.u_new);
        }
        falls
    }
}

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, kernel, options, parties: who, comm, .. } = problem;
    let facts = Facts::of(&data, k);
    let u = start_u(&facts, seed);
    let beyond = options.word(&EXTRAPOLATION) == "restart";
    let rows = match options.word(&SKETCH) {
        "none" if options.sizes(&SKETCH_SIZE).is_some() => {
            return Err(Error::input("--sketch-size: without --sketch subsample secure-hals sums all rows"));
        }
        "none" => None,
        _ if beyond => {
            return Err(Error::input(
                "--extrapolation restart: it judges by the objective, which needs the sums of all rows; leave out --sketch",
            ));
        }
        _ => {
            let (_, d) = sketch_sizes(options.sizes(&SKETCH_SIZE), &facts)?;
            // Nothing asks for more rows than a tenth, except that k × k words of the Gram matrix go with them.
            let d = if options.sizes(&SKETCH_SIZE).is_some() { d } else { (facts.m / 10).max(2 * k).min(facts.m) };
            Some(Rows::new(facts.m, d, k, seed, facts.order))
        }
    };
    let summed_rows = rows.as_ref().map_or(facts.m, Rows::size);
    let members = parties(data, &facts, kernel, seed, who.hosted(comm.rank()))?
        .into_iter()
        .map(|party| {
            let v_beyond = beyond.then(|| party.v.clone());
            let change = rows.as_ref().map(|_| facts.order.zeros(party.cols.len(), k));
            Member { party, v_beyond, product: facts.order.zeros(summed_rows, k), gram: Array2::zeros((k, k)), change }
        })
        .collect();
    let extrapolated =
        beyond.then(|| Extrapolated { momentum: Momentum::default(), u_new: u.clone(), gram: Array2::zeros((k, k)) });
    let summer = summer(&comm, who, options)?;
    let exact = (options.word(&UPDATE) == "bpp").then(|| Pivoting::new(k));
    let whole = if rows.is_some() { 0 } else { facts.m };
    let (rhs, gram) = (facts.order.zeros(whole, k), Array2::zeros((k, k)));
    let passes = options.count(&LOCAL_ITERS);
    let iteration = 0;
    Ok(Box::new(SecureHals {
        comm,
        summer,
        facts,
        passes,
        exact,
        members,
        u,
        extrapolated,
        rows,
        rhs,
        gram,
        iteration,
    }))
}

/// Of an entry of M V as large as with V at its start: at most the row's sum times that.
fn product_size(facts: &Facts) -> f64 {
    let n = facts.n as f64;
    n * (facts.norm2 / (facts.m as f64 * n)).sqrt() * facts.scale
}

/// The same of an entry of VᵀV.
fn gram_size(facts: &Facts) -> f64 {
    facts.n as f64 * facts.scale * facts.scale
}

/// rhs ← Σ M_r V_r and g ← Σ V_rᵀV_r, over the same parties.
fn sums<T: Real>(
    comm: &Communicator,
    summer: &mut Summer,
    facts: &Facts,
    members: &[Member<T>],
    rhs: &mut Array2<T>,
    g: &mut Array2<T>,
) -> Result<()> {
    summer.together(|summer| {
        let products = members.iter().map(|x| entries(&x.product));
        summer.sum(comm, PRODUCT, product_size(facts), products, entries_mut(rhs))?;
        summer.sum(comm, GRAM, gram_size(facts), members.iter().map(|x| entries(&x.gram)), entries_mut(g))
    })
}

/// X ← its update for the right-hand side r and the Gram matrix g.
fn update<T: Real>(exact: &mut Option<Pivoting>, passes: usize, x: &mut Array2<T>, r: &Array2<T>, g: &Array2<T>) {
    match exact {
        Some(solver) => solver.solve(&mut x.view_mut(), &r.view(), &g.view()),
        None => sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: T::zero(), passes }),
    }
}

impl<T: Real> SecureHals<T> {
    /// An iteration for the rows of U whose turn it is.
    fn iterate_rows(&mut self) -> Result<()> {
        let t = self.iteration;
        let SecureHals { comm, summer, facts, passes, exact, members, u, rows, gram: g, .. } = self;
        let Some(rows) = rows else { return Ok(()) };
        rows.turn_to(t);
        comm.work("product", || {
            for Member { party, product, gram: share, .. } in members.iter_mut() {
                rows.product(party, &party.v.view(), product);
                gram(&party.v.view(), &mut share.view_mut());
            }
        });
        sums(comm, summer, facts, members, &mut rows.rhs, g)?;
        comm.work("update", || {
            rows.pick(u);
            update(exact, *passes, &mut rows.u, &rows.rhs, g);
            rows.put(u);
        });
        comm.work("product", || {
            gram(&u.view(), &mut g.view_mut());
            for Member { party, change, .. } in members.iter_mut() {
                match change {
                    Some(change) if !rows.begins_anew(t) => rows.carry(party, change),
                    _ => party.block.tmul(&u.view(), &mut party.rhs.view_mut()),
                }
            }
        });
        comm.work("update", || {
            members.iter_mut().for_each(|x| update(exact, *passes, &mut x.party.v, &x.party.rhs, g));
        });
        self.iteration += 1;
        Ok(())
    }

    fn iterate(&mut self) -> Result<()> {
        if self.rows.is_some() {
            return self.iterate_rows();
        }
        let SecureHals { comm, summer, facts, passes, exact, members, u, extrapolated, rhs, gram: g, .. } = self;
        comm.work("product", || {
            for Member { party, v_beyond, product, gram: share, .. } in members.iter_mut() {
                let v = v_beyond.as_ref().unwrap_or(&party.v).view();
                party.block.mul(&v, &mut product.view_mut());
                gram(&v, &mut share.view_mut());
            }
        });
        sums(comm, summer, facts, members, rhs, g)?;
        comm.work("update", || {
            update(exact, *passes, u, rhs, g);
            if let Some(x) = extrapolated
                && !x.advance(u, rhs, g, facts.norm2)
            {
                for Member { party, v_beyond, .. } in members.iter_mut() {
                    if let Some(v) = v_beyond {
                        v.assign(&party.v);
                    }
                }
            }
        });

        comm.work("product", || {
            gram(&u.view(), &mut g.view_mut());
            for Member { party, .. } in members.iter_mut() {
                party.block.tmul(&u.view(), &mut party.rhs.view_mut());
            }
        });
        comm.work("update", || {
            for Member { party, v_beyond, .. } in members.iter_mut() {
                match (v_beyond, &*extrapolated) {
                    (Some(v), Some(x)) => {
                        update(exact, *passes, v, &party.rhs, g);
                        extrapolate(v, &mut party.v, x.momentum.beta);
                    }
                    _ => update(exact, *passes, &mut party.v, &party.rhs, g),
                }
            }
        });
        self.iteration += 1;
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for SecureHals<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let parts = self.members.iter().map(|x| (&x.party, &x.party.v));
        let error = relative_error(&self.comm, &mut self.summer, self.facts.norm2, parts, &self.u.view())?;
        Ok([("rel_error", error)].into_iter().chain(self.summer.losses()).collect())
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        pieces(&self.u, self.members.iter().map(|x| (&x.party, &x.party.v)))
    }

    fn state(&self) -> State<'_, T> {
        let mut state = State::from(self.factors());
        if let Some(x) = &self.extrapolated {
            state.matrices.push(Piece::shared("U_new", x.u_new.nrows(), 0, x.u_new.view()));
            state = state.with(Owner::Shared, &x.momentum);
        }
        for Member { party, v_beyond, change, .. } in &self.members {
            // It is updated incrementally; recomputed, its last digits would differ.
            state.matrices.extend(change.as_ref().map(|_| Piece::private("rhs", party.index, party.rhs.view())));
            state.matrices.extend(v_beyond.as_ref().map(|v| Piece::private("V_beyond", party.index, v.view())));
        }
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        restore(saved, &mut self.u, self.members.iter_mut().map(|x| &mut x.party))?;
        if let Some(x) = &mut self.extrapolated {
            saved.rows("U_new", Owner::Shared, 0, x.u_new.view_mut())?;
            x.momentum = saved.read(Owner::Shared)?;
        }
        for Member { party, v_beyond, change, .. } in &mut self.members {
            if change.is_some() {
                saved.rows("rhs", Owner::Party(party.index), 0, party.rhs.view_mut())?;
            }
            if let Some(v) = v_beyond {
                saved.rows("V_beyond", Owner::Party(party.index), 0, v.view_mut())?;
            }
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        self.rows.iter().map(|rows| ("sketch_size_v", rows.size().into())).collect()
    }
}

//! `secure-hals`: the sums Σ M_r V_r and Σ V_rᵀV_r of all iterations.

use ndarray::{Array2, ArrayView2};

use fednmf_audit::dynamics;
use fednmf_audit::dynamics::Step;
use fednmf_audit::lattice::{Outcome, System};
use fednmf_audit::linear::Recovery;
use fednmf_audit::pursuit;
use fednmf_base::error::Result;
use fednmf_comm::party_sum::SUMMED;
use fednmf_linalg::Real;
use fednmf_linalg::nls::{Pivoting, Sweep, sweep};
use fednmf_methods::federated::columns::secure_hals::SecureHals;
use fednmf_methods::shared::init;
use fednmf_methods::shared::least_squares::Update;

use super::finding::Finding;
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;
use super::spaces;

const PRODUCT: &str = "sum of M_r V_r";
/// Maximum numbers of hidden columns, and of rounds of fitting, for the fit of the iterations.
const MOST_COLUMNS: usize = 400;
const ROUNDS: usize = 80;
/// Maximum number of rounds of basis pursuit, and of multiplications in all of them.
const PURSUIT_ROUNDS: usize = 2000;
const MOST_WORK: usize = 20_000_000_000;

/// All attacks on the sums.
pub fn attacks(pooled: &PooledView, method: &SecureHals, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let sums = pooled.sums(PRODUCT);
    let Some(&first) = sums.first() else { return Ok(Vec::new()) };
    let (m, k, hidden) = (pooled.m, pooled.k, pooled.hidden());
    let ground_truth = inputs.ground_truth.hidden(pooled);
    let Some(sum) = pooled.shaped(&pooled.views[0], first, (m, k))? else {
        let only = Finding::new("linear", "").note("--sketch: each sum is about some rows only; not attacked");
        return Ok(vec![only]);
    };
    // The own terms of a sum are V of the iteration before it.
    let own = |iteration: usize| {
        move |party: usize, data: &Array2<f64>| {
            for kind in [SUMMED, "V_beyond", "V"] {
                if let Some(v) = pooled.known(kind, Some(party), iteration)? {
                    return Ok(Some(data.dot(&v)));
                }
            }
            Ok(None)
        }
    };
    let sum = pooled.without_own(sum, own(0))?;
    let mut products = Vec::new();
    for &at in &sums {
        let iteration = pooled.views[0].records[at].iteration;
        if let Some(sum) = pooled.shaped(&pooled.views[0], at, (m, k))? {
            products.push((iteration, pooled.without_own(sum, own(iteration))?));
        }
    }
    let start = if pooled.is_single() { start::<f32>(pooled) } else { start::<f64>(pooled) };
    let start = start.select(ndarray::Axis(0), &hidden);
    let assumed = "V starts as with --start public; the first sum";
    let mut findings = on_equations(&start.t(), &sum.t(), pooled, ground_truth.as_ref(), assumed);

    let mut steps = Vec::new();
    for (iteration, product) in &products {
        let Some(u) = pooled.known("U", None, iteration + 1)? else { continue };
        steps.push(Step { product: product.clone(), u });
    }
    findings.push(fit(pooled, method, &steps, hidden.len(), ground_truth.as_ref()));
    let products: Vec<Array2<f64>> = products.into_iter().map(|(_, product)| product).collect();
    findings.extend(spaces::of_columns(pooled, &products, inputs)?);
    Ok(findings)
}

/// The public start of V, n × k.
pub fn start<T: Real>(pooled: &PooledView) -> Array2<f64> {
    let scale = init::scale(pooled.statistic("sum"), (pooled.m, pooled.n), pooled.k);
    let mut v = Array2::<T>::zeros((pooled.n, pooled.k));
    init::v(pooled.seed, &(0..pooled.n), scale, v.view_mut());
    v.mapv(Real::as_f64)
}

/// The linear attack, basis pursuit and the lattice attack on equations (e × n) for every row of the hidden columns, with their values (e × m).
pub fn on_equations(
    equations: &ArrayView2<f64>,
    values: &ArrayView2<f64>,
    pooled: &PooledView,
    ground_truth: Option<&Array2<f64>>,
    assumed: &str,
) -> Vec<Finding> {
    let (n, m) = (equations.ncols(), values.ncols());
    let tolerance = if pooled.is_coarse() { 1e-3 } else { 1e-6 };
    let mut recovery = Recovery::new(m, n);
    recovery.add(&mut equations.to_owned().view_mut(), &mut values.to_owned().view_mut());
    let rank = recovery.rank();
    let mut linear = Finding::new("linear", assumed).note(format!("{rank} equations for {n} unknowns of each row"));
    if let Some(ground_truth) = ground_truth {
        linear = linear.compared(&recovery.estimate().view(), &ground_truth.view(), tolerance);
    } else if rank == n {
        linear.recovered = Some((m, m));
    }

    let pursuit = of_pursuit(&recovery, pooled, ground_truth, assumed, tolerance);
    let prior = pooled.whole_numbers();
    let assumed = format!("{assumed}; entries are whole numbers from {} to {}", prior.low, prior.high);
    let system = System::new(equations, values, pooled.bits());
    let rows: Vec<usize> = (0..m).collect();
    // A wrong assumption is detected on a few rows.
    let few = &rows[..m.min(20)];
    let mut outcome = system.solve(prior, few);
    if matches!(&outcome, Outcome::Found { rows, .. } if rows.iter().any(Option::is_some)) && few.len() < m {
        outcome = system.solve(prior, &rows);
    }
    let lattice = Finding::new("lattice", assumed);
    vec![
        linear,
        pursuit,
        match outcome {
            Outcome::TooFew { known, needed } => {
                lattice.note(format!("{known:.0} bits are known of {needed:.0} for each row: not determined"))
            }
            Outcome::TooLarge { dimension } => {
                lattice.note(format!("a lattice of dimension {dimension}: not reduced here"))
            }
            Outcome::Found { dimension, rows } => of_rows(lattice, dimension, &rows, m, prior.mean, ground_truth),
        },
    ]
}

/// Basis pursuit; for data of low rank in the span of the releases.
fn of_pursuit(
    recovery: &Recovery,
    pooled: &PooledView,
    ground_truth: Option<&Array2<f64>>,
    assumed: &str,
    tolerance: f64,
) -> Finding {
    let (m, n) = recovery.estimate().dim();
    let high = pooled.statistic("max");
    let found = Finding::new("basis pursuit", format!("{assumed}; entries from 0 to {high}, many of them zero"));
    let rounds = (MOST_WORK / (m * n * recovery.rank().max(1)).max(1)).min(PURSUIT_ROUNDS);
    if rounds < 10 {
        return found.note(format!("{m} x {n} with {} equations: not tried", recovery.rank()));
    }
    let (estimate, rank) = pursuit::least_sum(recovery, high, rounds);
    let note = rank.map_or("the releases have full rank".to_string(), |rank| format!("the releases have rank {rank}"));
    let found = found.note(note);
    match ground_truth {
        Some(ground_truth) => found.compared(&estimate.view(), &ground_truth.view(), tolerance),
        None => found,
    }
}

fn of_rows(
    lattice: Finding,
    dimension: usize,
    rows: &[Option<Vec<f64>>],
    m: usize,
    mean: f64,
    ground_truth: Option<&Array2<f64>>,
) -> Finding {
    let found = rows.iter().flatten().count();
    let mut lattice =
        lattice.note(format!("dimension {dimension}; {found} of {} rows tried satisfy all equations", rows.len()));
    lattice.recovered = Some((found, m));
    if let Some(ground_truth) = ground_truth {
        let guess = |i: usize, j: usize| rows.get(i).and_then(Option::as_ref).map_or(mean, |row| row[j]);
        let estimate = Array2::from_shape_fn(ground_truth.dim(), |(i, j)| guess(i, j));
        lattice = lattice.compared(&estimate.view(), &ground_truth.view(), 1e-9);
    }
    lattice
}

/// Fits hidden columns and their V to all sums.
fn fit(
    pooled: &PooledView,
    method: &SecureHals,
    steps: &[Step],
    n: usize,
    ground_truth: Option<&Array2<f64>>,
) -> Finding {
    let found = Finding::new("dynamics", "how V follows from U; nothing of V's start");
    if n > MOST_COLUMNS || steps.len() < 2 {
        return found.note(format!("{n} hidden columns and {} sums: not tried", steps.len()));
    }
    let (passes, exact) = (method.local_iters, method.update_or_default() == Update::Bpp);
    let scale = init::scale(pooled.statistic("sum"), (pooled.m, pooled.n), pooled.k);
    // Any start in the range of starts: by another seed than the run's.
    let mut guess = Array2::<f64>::zeros((n, pooled.k));
    init::v(pooled.seed ^ 0x5eed, &(0..n), scale, guess.view_mut());
    let prior = dynamics::Prior {
        low: pooled.statistic("min").min(0.0),
        high: pooled.statistic("max"),
        mean: pooled.statistic("sum") / (pooled.m as f64 * pooled.n as f64),
    };
    let penalty = method.regularization.penalties((pooled.m, pooled.n)).v;
    let advance = |v: &mut Array2<f64>, r: &Array2<f64>, g: &Array2<f64>| {
        if exact {
            Pivoting::new(g.nrows()).solve_penalized(&mut v.view_mut(), &r.view(), &g.view(), penalty);
        } else {
            sweep(&mut v.view_mut(), &r.view(), &g.view(), Sweep { mu: 0.0, passes, penalty });
        }
    };
    let note =
        format!("{} sums, {} equations for {n} unknowns of each row and for V", steps.len(), steps.len() * pooled.k);
    let Some(estimate) = dynamics::fit(steps, &guess, prior, ROUNDS, advance) else {
        return found.note(format!("{note}; no fit"));
    };
    let fitted = found.note(format!("{note}; columns in the best order"));
    let Some(ground_truth) = ground_truth else { return fitted };
    // The order of columns is not known to the attacker, and says little.
    let ordered = dynamics::matched(&estimate, ground_truth);
    fitted.compared(&ordered.view(), &ground_truth.view(), 1e-2)
}

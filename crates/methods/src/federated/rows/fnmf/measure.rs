//! The fit of the shared V̄ to every party's data: the paper's measures, with the last local U_j and with U_j refitted.

use ndarray::Array2;

use fednmf_base::error::Result;
use fednmf_comm::party_sum::{Joint, PartySum};
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_linalg::nls::Pivoting;
use fednmf_linalg::{Real, gram};

use crate::Measures;
use crate::federated::rows::fnmf::align::{Aligner, Alignment};
use crate::federated::rows::fnmf::client::Client;
use crate::shared::regularization::Penalties;

/// The scalars of each party's measures, summed.
pub const ERRORS: MessageTag = MessageTag::of_evaluation("evaluation: errors of the parties", Payload::Scalar);

/// The scalars of a party: two squared errors, three in the unit of the data, three without a unit, three squared differences of V,
/// and a number of entries.
const COUNT: usize = 12;
const UNITS: [usize; 5] = [2, 3, 3, 3, 1];

/// What is public of the data and of the run.
#[derive(Debug, Clone, Copy)]
pub struct Scales {
    /// ‖M‖_F².
    pub norm2: f64,
    /// The number of entries.
    pub entries: f64,
    /// Whether components have norm 1; otherwise ‖V‖² has the unit of the data.
    pub unit: bool,
    pub penalties: Penalties,
}

/// All measures for V̄ = `mean` (k × n) over all parties, of which `clients` are hosted here. Collective.
///
/// # Errors
/// If an error is not finite.
pub fn measure<T: Real>(
    comm: &PartyCommunicator,
    party_sum: &mut PartySum,
    Scales { norm2, entries, unit, penalties }: Scales,
    clients: &[Client<T>],
    mean: &Array2<T>,
    aligner: &mut Aligner<T>,
) -> Result<Measures> {
    let k = mean.nrows();
    let mut solver = Pivoting::new(k);
    let mut g = Array2::zeros((k, k));
    let mut aligners = [aligner, &mut Aligner::new(Alignment::Lap, k)];
    let own: Vec<[f64; COUNT]> =
        clients.iter().map(|c| of_client(c, mean, &mut aligners, &mut solver, &mut g)).collect();
    let mut sums = [0.0; COUNT];
    // Each unit has a scale of its own, so that a sum neither loses precision nor leaves the range because of another.
    let sizes = [norm2, norm2.sqrt(), k as f64, if unit { k as f64 } else { norm2.sqrt() }, entries];
    let mut ends = UNITS;
    (1..ends.len()).for_each(|at| ends[at] += ends[at - 1]);
    let term = |at: usize| {
        let (own, from) = (&own, ends[at] - UNITS[at]);
        move |hosted: usize| &own[hosted][from..from + UNITS[at]]
    };
    let terms = [0, 1, 2, 3, 4].map(term);
    let mut rest = &mut sums[..];
    let mut joint = Vec::with_capacity(UNITS.len());
    for ((count, expected), term) in UNITS.into_iter().zip(sizes).zip(&terms) {
        let (out, others) = rest.split_at_mut(count);
        joint.push(Joint { tag: ERRORS, expected, term, out });
        rest = others;
    }
    party_sum.sum_together(comm, &mut joint)?;
    let norm2 = norm2 * party_sum.share_left();
    let [residual2, penalty, rmsd, refit, distance, gap, working, personal, drift, aligned, loss, observed] = sums;
    let rel_error = if norm2 > 0.0 {
        (residual2 / norm2).sqrt()
    } else if residual2 > 0.0 {
        f64::INFINITY
    } else {
        0.0
    };
    let working = working.max(1.0);
    let mut all = vec![
        ("rel_error", rel_error),
        ("rmsd", rmsd),
        ("rmsd_refit", refit),
        ("rmsd_mean", rmsd / working),
        ("rmsd_overall", (residual2 / observed.max(1.0)).sqrt()),
        ("distance", distance),
        ("drift", drift),
        ("drift_aligned", aligned),
        ("barycenter_loss", loss),
        ("orthogonality_gap", gap / working),
        ("personal_components", personal),
    ];
    all.extend(penalties.objective(0.5 * residual2, penalty));
    Ok(all)
}

/// The terms of one party; a party without rows has none.
fn of_client<T: Real>(
    client: &Client<T>,
    mean: &Array2<T>,
    [aligner, one_to_one]: &mut [&mut Aligner<T>; 2],
    solver: &mut Pivoting,
    g: &mut Array2<T>,
) -> [f64; COUNT] {
    if client.is_empty() {
        return [0.0; COUNT];
    }
    let block = &client.block;
    let (rows, n) = block.shape();
    let (order, k) = (block.order(), mean.nrows());
    // The effective V of this party, in the block's memory order.
    let effective = client.effective(mean);
    let mut v = order.zeros(n, k);
    v.assign(&effective.t());
    let residual2 = client.residual2(&client.u, &v);

    let (mut refitted, mut rhs) = (client.u.clone(), order.zeros(rows, k));
    block.mul(&v.view(), &mut rhs.view_mut());
    gram(&v.view(), &mut g.view_mut());
    let Penalties { u: penalty_u, v: penalty_v } = client.penalties;
    client.fit(&mut refitted, &v, (&rhs.view(), g), solver);
    let refit2 = client.residual2(&refitted, &v);

    let squares =
        |f: &dyn Fn(usize, usize) -> f64| -> f64 { (0..k).map(|l| (0..n).map(|j| f(l, j).powi(2)).sum::<f64>()).sum() };
    let drift = squares(&|l, j| client.v[[j, l]].as_f64() - mean[[l, j]].as_f64());
    aligner.reset();
    aligner.align(&client.v.t(), &mean.view());
    let mut moved = Array2::zeros((k, n));
    aligner.apply(&mean.view(), &mut moved.view_mut());
    let aligned = squares(&|l, j| {
        if aligner.is_aligned(l) { client.v[[j, l]].as_f64() - moved[[l, j]].as_f64() } else { 0.0 }
    });
    // Eq. (4) is a minimum over all alignments. It is computed with one-to-one alignment for every method, so that methods
    // are comparable.
    one_to_one.reset();
    one_to_one.align(&client.v.t(), &mean.view());
    one_to_one.apply(&mean.view(), &mut moved.view_mut());
    let loss = 0.5 * squares(&|l, j| client.v[[j, l]].as_f64() - moved[[l, j]].as_f64());
    let gap = aligner.orthogonality_gap();
    let personal = client.own_count() as f64;
    let observed = client.observed() as f64;
    let (rmsd, refit) = ((residual2 / observed.max(1.0)).sqrt(), (refit2 / observed.max(1.0)).sqrt());
    // A personal component is penalised instead of the shared one.
    let penalty = penalty_u.value(&client.u.view()) + penalty_v.value(&v.view());
    [residual2, penalty, rmsd, refit, residual2.sqrt(), gap, 1.0, personal, drift, aligned, loss, observed]
}

//! `fednmf audit attack`: computes what ranks with recorded views can learn about the other parties' data.

mod dsanls_secure;
mod finding;
mod ground_truth;
mod inputs;
mod losses;
mod noised_sums;
mod pooled_view;
mod ppdnmf;
mod rare_entries;
mod report;
mod rows;
mod secure_hals;
mod shares;
mod small_parties;
mod spaces;

use std::path::PathBuf;

use clap::Args;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print;
use fednmf_comm::Communicator;
use fednmf_files::output::view::RecordedView;
use fednmf_methods::federated::columns::dsanls_secure::DsanlsSecure;
use fednmf_methods::federated::columns::secure_hals::SecureHals;
use fednmf_methods::federated::graph::ppdnmf::Ppdnmf;

use self::finding::Finding;
use self::ground_truth::GroundTruth;
use self::inputs::AttackInputs;
use self::pooled_view::PooledView;
use self::report::{as_json, table};

/// Arguments of `fednmf audit attack`.
#[derive(Debug, Args)]
pub struct AttackArgs {
    /// Files of --record-view: of one rank, of several that collude, or of a run and the same one started again
    #[arg(required = true, value_name = "VIEW")]
    pub views: Vec<PathBuf>,
    /// The matrix to compare with [default: the run's own --input]
    #[arg(long = "truth", value_name = "MATRIX")]
    pub ground_truth: Option<String>,
    /// For membership inference: rows that were in nobody's data, or columns where parties hold these; the attack on all sums
    /// compares with the attackers' own without them
    #[arg(long, value_name = "MATRIX")]
    pub candidates: Option<String>,
    /// The view of the party that is attacked, to compare with its copies of X (ppdnmf) or with what it added to sums
    #[arg(long, value_name = "VIEW")]
    pub victim: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Rank 0 attacks, the others wait. Collective.
///
/// # Errors
/// When a file cannot be read, is no view, or does not belong to the others.
pub fn attack(args: &AttackArgs, comm: &Communicator) -> Result<i32> {
    let alone = comm.split(comm.rank());
    let report = if comm.is_root() { on_rank_0(args, &alone) } else { Ok(String::new()) };
    let text = comm.agree_on_error(report)?;
    if comm.is_root() {
        print(&text)?;
    }
    Ok(EXIT_DONE)
}

fn on_rank_0(args: &AttackArgs, alone: &Communicator) -> Result<String> {
    let pooled = PooledView::open(&args.views)?;
    let victim = args.victim.as_deref().map(RecordedView::open).transpose()?;
    if let Some(victim) = &victim
        && pooled.views.iter().any(|view| view.about().get("rank") == victim.about().get("rank"))
    {
        return Err(Error::input("--victim: is one of the attackers' own views; give that of another rank"));
    }
    let ground_truth = if pooled.private() {
        GroundTruth::load(&pooled, args.ground_truth.as_deref(), alone)?
    } else {
        GroundTruth::default()
    };
    let inputs = AttackInputs { ground_truth, candidates: args.candidates.as_deref(), victim, alone };
    let mut findings = attacks(&pooled, &inputs)?;
    findings.extend(pooled.in_the_clear());
    Ok(if args.json { format!("{}\n", as_json(&pooled, &findings)) } else { table(&pooled, &findings) })
}

/// Runs the attacks that apply to the method.
fn attacks(pooled: &PooledView, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    if !pooled.private() {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    if let Some(method) = pooled.method::<SecureHals>() {
        findings.extend(secure_hals::attacks(pooled, method, inputs)?);
        findings.extend(noised_sums::attacks(pooled, method, inputs)?);
    } else if let Some(method) = pooled.method::<DsanlsSecure>() {
        findings.extend(dsanls_secure::attacks(pooled, method, inputs)?);
    } else if let Some(method) = pooled.method::<Ppdnmf>() {
        findings.extend(ppdnmf::attacks(pooled, method, inputs)?);
    } else if pooled.method.description().on_shares {
        findings.extend(shares::attacks(pooled, inputs)?);
    }
    findings.extend(losses::attacks(pooled, inputs)?);
    findings.extend(rows::attacks(pooled, inputs)?);
    findings.extend(spaces::of_factors(pooled, inputs)?);
    findings.extend(small_parties::attacks(pooled, inputs)?);
    findings.extend(rare_entries::attacks(pooled, inputs)?);
    Ok(findings)
}

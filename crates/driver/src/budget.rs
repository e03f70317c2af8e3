//! The `--budget` file: epsilon is reserved before the first release, and what was spent is noted at the end.

use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::file_lock::{FileLock, lock_of};
use fednmf_base::unfinished::{Access, replace};
use fednmf_comm::{Communicator, Parties};
use fednmf_data::Cuts;
use fednmf_files::PARTY;
use fednmf_methods::description::{Partition, ProtectedUnit};
use fednmf_methods::shared::dp::BudgetPath;
use fednmf_privacy::{BudgetFile, BudgetScope, BudgetUnit, Charge, Covers, Division, Lines, Releases};

use super::plan::Planned;

/// The privacy units that the run's epsilon protects, if the run has a `--budget` file; `cuts` are those of its data.
pub fn scope(planned: &Planned, comm: &Communicator, cuts: &Cuts) -> Option<BudgetScope> {
    let (budget, unit) = budget_of(planned).zip(planned.description().protects())?;
    let transposed = planned.input.transpose;
    let unit = match (unit, transposed) {
        (ProtectedUnit::Party, _) => BudgetUnit::Party,
        (ProtectedUnit::Column, false) => BudgetUnit::Column,
        (ProtectedUnit::Column, true) => BudgetUnit::Row,
    };
    let covers = if each_has_one(budget.path, comm) { Covers::OneParty } else { Covers::AllParties };
    let by_rows = planned.description().partition == Partition::PartyRows;
    let division = match planned.input.by_party() {
        true => Division::OwnFiles,
        false => {
            let along = if by_rows == transposed { Lines::Columns } else { Lines::Rows };
            Division::cut(along, if by_rows { &cuts.rows } else { &cuts.cols })
        }
    };
    Some(BudgetScope::new(unit, covers, division))
}

/// Reserves the run's epsilon, which `protects` these units, in the budget of all parties. Collective.
///
/// # Errors
/// On all ranks, if a budget protects other units or has too little left, or its file cannot be read or written;
/// nothing is reserved then.
pub fn reserve(
    planned: &Planned,
    comm: &Communicator,
    protects: Option<&BudgetScope>,
    releases: Option<&Releases>,
) -> SharedResult<()> {
    let Some(((budget, protects), releases)) = budget_of(planned).zip(protects).zip(releases) else { return Ok(()) };
    let mut limit = budget.limit;
    let (epsilon, delta) = releases.budget();
    let epsilon = epsilon.unwrap_or(f64::INFINITY);
    let name = planned.description().name;
    let mut done = Vec::new();
    let reserved = files(budget.path, comm, planned.parties).try_for_each(|(place, path)| {
        let run = releases.run(place);
        let (is_new, mut before) = (!path.exists(), None);
        change(&path, &mut limit, |file| {
            let loss = Some(releases.reserved_loss());
            let (run, method) = (run.clone(), name.into());
            let charge = Charge { run, method, epsilon, delta, loss, ended: false, killed: false, resumed: false };
            before = file.reserve(charge, protects)?;
            Ok(())
        })?;
        done.push((path, run, before, is_new));
        Ok(())
    });
    comm.agree_on_error(reserved).inspect_err(|_| {
        for (path, run, before, is_new) in done {
            // A reservation that cannot be withdrawn stays: then too little is left, never too much.
            let _ = withdraw(&path, &run, before, is_new);
        }
    })
}

/// Withdraws a reservation, and removes a file that has no other.
fn withdraw(path: &Path, run: &str, before: Option<Charge>, is_new: bool) -> Result<()> {
    let mut empty = false;
    change(path, &mut None, |file| {
        file.withdraw(run, before);
        empty = file.runs.is_empty();
        Ok(())
    })?;
    if is_new && empty {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Records what the run has spent. Collective.
///
/// # Errors
/// On all ranks, if a file cannot be written.
pub fn settle(planned: &Planned, comm: &Communicator, releases: Option<&Releases>) -> SharedResult<()> {
    let Some((budget, releases)) = budget_of(planned).zip(releases) else { return Ok(()) };
    let opened = files(budget.path, comm, planned.parties).try_for_each(|(place, path)| {
        change(&path, &mut None, |file| {
            file.settle(&releases.run(place), releases.spent(), releases.spent_loss());
            Ok(())
        })
    });
    comm.agree_on_error(opened)
}

fn budget_of(planned: &Planned) -> Option<BudgetPath<'_>> {
    planned.method.groups().dp.and_then(|dp| dp.budget_path())
}

/// The budget files that this rank keeps, each with the index of its party among the hosted ones: one file for each party,
/// or one for all, kept by the host of party 0.
fn files(path: &Path, comm: &Communicator, parties: Parties) -> impl Iterator<Item = (usize, PathBuf)> {
    let hosted: Range<usize> = parties.hosted(comm.rank());
    let text = path.display().to_string();
    let own = each_has_one(path, comm);
    let kept = hosted.clone().filter(move |&party| own || party == 0);
    kept.map(move |party| (party - hosted.start, PathBuf::from(text.replace(PARTY, &party.to_string()))))
}

/// Whether each party has a budget of its own.
fn each_has_one(path: &Path, comm: &Communicator) -> bool {
    path.display().to_string().contains(PARTY) || comm.has_owners()
}

/// Changes a budget file under its lock.
fn change(path: &Path, limit: &mut Option<f64>, f: impl FnOnce(&mut BudgetFile) -> Result<()>) -> Result<()> {
    let at = |e: Error| e.at(format!("--budget {}", path.display()));
    let failed =
        |e: std::io::Error| at(Error::failed(format!("cannot be written ({e}); choose a directory of your own")));
    let unknown = || at(Error::input("does not exist; say what all runs may spend together, --budget-limit EPSILON"));
    if limit.is_none() && !path.exists() {
        return Err(unknown());
    }
    let _lock = FileLock::acquire(&lock_of(path, "lock")).map_err(failed)?;
    let mut file = match std::fs::read_to_string(path) {
        Ok(text) => BudgetFile::parse(&text).map_err(at)?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => BudgetFile::new(limit.ok_or_else(unknown)?),
        Err(e) => return Err(at(Error::input(format!("cannot be read ({e})")))),
    };
    if limit.is_some_and(|limit| limit != file.limit) {
        return Err(at(Error::input(format!(
            "its limit is {}; a limit is set once, so leave --budget-limit out",
            file.limit
        ))));
    }
    f(&mut file).map_err(at)?;
    replace(path, Access::OwnerOnly, |out| out.write_all(file.text().as_bytes())).map_err(failed)
}

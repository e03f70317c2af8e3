//! The `--budget` file: epsilon is reserved before the first release, and what was spent is noted at the end.

use std::io::{ErrorKind, Write as _};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rand::Rng as _;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::file_lock::{FileLock, lock_of};
use fednmf_base::unfinished::{Access, replace};
use fednmf_comm::{Communicator, Parties};
use fednmf_data::Cuts;
use fednmf_files::PARTY;
use fednmf_linalg::random::secret_rng;
use fednmf_methods::description::Partition;
use fednmf_methods::shared::dp::BudgetPath;
use fednmf_privacy::dp::ReleasedAt;
use fednmf_privacy::{BudgetFile, BudgetKey, BudgetScope, Charge, Covers, Division, Lines, NoisePlan, Releases};

use super::plan::Planned;
use super::spec::Spec;

/// The privacy units that the run's epsilon protects, if the run has a `--budget` file; `cuts` are those of its data.
pub fn scope(planned: &Planned, comm: &Communicator, cuts: &Cuts) -> Option<BudgetScope> {
    let (budget, unit) = budget_of(planned).zip(planned.description().protects())?;
    let transposed = planned.input.transpose;
    let unit = unit.of_input(transposed);
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

/// Reserves the run's epsilon, which `protects` these units, in the budget of all parties, and sees to it that each release is
/// noted before it is made. Returns notes for the user. Collective.
///
/// # Errors
/// On all ranks, if a budget protects other units or has too little left, or its file cannot be read or written, or was
/// changed by something else; nothing is reserved then.
pub fn reserve(
    planned: &Planned,
    comm: &Communicator,
    protects: Option<&BudgetScope>,
    releases: Option<&mut Releases>,
) -> SharedResult<Vec<String>> {
    let Some(((budget, protects), releases)) = budget_of(planned).zip(protects).zip(releases) else {
        return Ok(Vec::new());
    };
    let mut limit = budget.limit;
    let (epsilon, delta) = releases.budget();
    let epsilon = epsilon.unwrap_or(f64::INFINITY);
    let name = planned.description().name;
    let plan = *releases.plan();
    let kept: Vec<(String, PathBuf)> =
        files(budget.path, comm, planned.parties).map(|(place, path)| (releases.run(place), path)).collect();
    let (mut done, mut notes) = (Vec::new(), Vec::new());
    let reserved = kept.iter().try_for_each(|(run, path)| {
        let (is_new, mut before) = (!path.exists(), None);
        let taken_over = change(path, &mut limit, |file| {
            let (run, method) = (run.clone(), name.into());
            let loss = Some(plan.loss_of(plan.releases()).1);
            let (ended, killed, resumed, releases) = (false, false, false, Vec::new());
            let logged = planned.spec.consent.logged.iter().cloned().collect();
            let charge = Charge { run, method, epsilon, delta, loss, ended, killed, resumed, releases, logged };
            before = file.reserve(charge, protects)?;
            Ok(After::Write)
        })?;
        if taken_over {
            notes.push(format!(
                "--budget {}: is of an earlier version, and is taken over with all its runs; from now on a key beside it shows \
                 whether it was changed",
                path.display()
            ));
        }
        done.push((path, run, before, is_new));
        Ok(())
    });
    comm.agree_on_error(reserved).inspect_err(|_| {
        for (path, run, before, is_new) in done {
            // A reservation that cannot be withdrawn stays: then too little is left, never too much.
            let _ = withdraw(path, run, before, is_new);
        }
    })?;
    let everyone = comm.clone();
    releases.before_release(Box::new(move |number, state| {
        let noted = kept.iter().try_for_each(|(run, path)| {
            let at = ReleasedAt { number, state: state.text() };
            change(path, &mut None, |file| {
                file.release(run, at, |releases| plan.loss_of(releases))?;
                Ok(After::Write)
            })
            .map(drop)
        });
        everyone.agree_on_error(noted)
    }));
    Ok(notes)
}

/// Refuses a run of one site for which its budget has too little left, as [`reserve`] would; nothing is written. A run that is
/// resumed has its place already.
///
/// # Errors
/// As [`reserve`].
pub fn check_left(spec: &Spec, plan: &NoisePlan) -> Result<()> {
    let dp = spec.method.assumed().groups().dp.filter(|_| !spec.resume);
    let Some((dp, budget)) = dp.and_then(|dp| dp.budget_path().map(|budget| (dp, budget))) else { return Ok(()) };
    let Some((epsilon, unit)) = dp.epsilon.given().zip(spec.description().protects()) else { return Ok(()) };
    let mut file = match budget.limit {
        Some(limit) if !budget.path.exists() => BudgetFile::new(limit),
        _ => read(budget.path)?,
    };
    let (delta, loss) = (dp.delta, Some(plan.loss_of(plan.releases()).1));
    let (run, method) = (String::new(), spec.description().name.into());
    let (ended, killed, resumed, releases, logged) = (false, false, false, Vec::new(), Vec::new());
    let charge = Charge { run, method, epsilon, delta, loss, ended, killed, resumed, releases, logged };
    let protects = BudgetScope::new(unit.of_input(spec.input.transpose), Covers::OneParty, Division::OwnFiles);
    file.reserve(charge, &protects).map_err(|e| e.at(format!("--budget {}", budget.path.display()))).map(drop)
}

/// Withdraws a reservation, and removes a file that has no other.
fn withdraw(path: &Path, run: &str, before: Option<Charge>, is_new: bool) -> Result<()> {
    change(path, &mut None, |file| {
        file.withdraw(run, before);
        Ok(if is_new && file.runs.is_empty() { After::Remove } else { After::Write })
    })
    .map(drop)
}

/// Records what the run has spent. Collective.
///
/// # Errors
/// On all ranks, if a file cannot be written.
pub fn settle(planned: &Planned, comm: &Communicator, releases: Option<&Releases>) -> SharedResult<()> {
    let Some((budget, releases)) = budget_of(planned).zip(releases) else { return Ok(()) };
    let opened = files(budget.path, comm, planned.parties).try_for_each(|(place, path)| {
        change(&path, &mut None, |file| {
            file.settle(&releases.run(place), |count| releases.plan().loss_of(count));
            Ok(After::Write)
        })
        .map(drop)
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

/// What becomes of a budget file that was changed.
enum After {
    Write,
    /// It is removed, with its key.
    Remove,
}

/// Changes a budget file under its lock; a new file gets a key. Returns whether the file is of a version without a key.
///
/// # Errors
/// If the file cannot be read or written, or was changed by something else.
fn change(path: &Path, limit: &mut Option<f64>, f: impl FnOnce(&mut BudgetFile) -> Result<After>) -> Result<bool> {
    let at = |e: Error| e.at(format!("--budget {}", path.display()));
    let failed =
        |e: std::io::Error| at(Error::failed(format!("cannot be written ({e}); choose a directory of your own")));
    let unknown = || at(Error::input("does not exist; say what all runs may spend together, --budget-limit EPSILON"));
    check_names(path).map_err(at)?;
    if limit.is_none() && !path.exists() && !key_of(path).exists() {
        return Err(unknown());
    }
    let _lock = FileLock::acquire(&lock_of(path, "lock")).map_err(failed)?;
    let key = key(path)?;
    let mut file = match std::fs::read_to_string(path) {
        Ok(text) => BudgetFile::read(&text, key.as_ref()).map_err(at)?,
        Err(e) if e.kind() == ErrorKind::NotFound && key.is_some() => {
            return Err(at(Error::input(format!(
                "was removed, but its key {} is still there; restore the file, or remove the key, too, and forget what was spent",
                key_of(path).display()
            ))));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => BudgetFile::new(limit.ok_or_else(unknown)?),
        Err(e) => return Err(at(Error::input(format!("cannot be read ({e})")))),
    };
    if limit.is_some_and(|limit| limit != file.limit) {
        return Err(at(Error::input(format!(
            "its limit is {}; a limit is set once, so leave --budget-limit out",
            file.limit
        ))));
    }
    let taken_over = file.code.is_none() && !file.runs.is_empty();
    let key = match key {
        None if file.code.is_some() => {
            return Err(at(Error::input(format!(
                "its key {} is missing, without which it cannot be told whether it was changed; restore the key, with the file, \
                 from a backup",
                key_of(path).display()
            ))));
        }
        known => known,
    };
    match f(&mut file).map_err(at)? {
        After::Remove => {
            std::fs::remove_file(path).map_err(failed)?;
            std::fs::remove_file(key_of(path)).map_err(failed)?;
        }
        After::Write => {
            let key = key.map_or_else(|| new_key(path), Ok)?;
            replace(path, Access::OwnerOnly, |out| out.write_all(file.text(&key).as_bytes())).map_err(failed)?;
        }
    }
    Ok(taken_over)
}

/// Reads a budget file, and checks it if its key is beside it.
///
/// # Errors
/// If it cannot be read, is no budget, or was changed by something else than a run.
pub fn read(path: &Path) -> Result<BudgetFile> {
    let at = |e: Error| e.at(format!("--budget {}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|e| at(Error::input(format!("cannot be read ({e}); name a file that a run with --budget wrote"))))?;
    BudgetFile::read(&text, key(path)?.as_ref()).map_err(at)
}

/// Refuses what is no regular file, and a file with several names: a change would replace the file at this one, and
/// leave the others as they are.
fn check_names(path: &Path) -> Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let why = match (found.is_symlink(), found.nlink()) {
        (true, _) => "is a symbolic link; name the file that it points to",
        (false, _) if !found.is_file() => "is no regular file",
        (false, 2..) => "has another name (a hard link), under which it would not change; remove that",
        _ => return Ok(()),
    };
    Err(Error::input(why))
}

/// The file with the key of a budget file.
fn key_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".key");
    path.with_file_name(name)
}

/// The key beside a budget file; `None` if there is none.
fn key(path: &Path) -> Result<Option<BudgetKey>> {
    let path = key_of(path);
    let wrong = |why: String| Error::input(format!("the key of --budget, {}: {why}", path.display()));
    let text = match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| wrong(format!("cannot be read ({e})")))?,
    };
    let mode = std::fs::metadata(&path).map_err(|e| wrong(e.to_string()))?.mode();
    if mode & 0o077 != 0 {
        return Err(wrong("other users may read or change it; chmod 600 it if they have not".into()));
    }
    BudgetKey::parse(&text).map(Some).ok_or_else(|| wrong("holds no key; restore it from a backup".into()))
}

/// Makes the key of a budget file.
fn new_key(path: &Path) -> Result<BudgetKey> {
    let path = key_of(path);
    let mut secret = [0; 32];
    secret_rng(None, 0)?.fill_bytes(&mut secret);
    let key = BudgetKey::new(secret);
    replace(&path, Access::OwnerOnly, |out| out.write_all(key.text().as_bytes()))
        .map_err(|e| Error::failed(format!("the key of --budget, {}: cannot be written ({e})", path.display())))?;
    Ok(key)
}

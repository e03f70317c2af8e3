//! What a site remembers of the sums that go on without lost sites: who was in which. The same state of a run, opened over
//! two sets of parties, would tell the terms of those that are in one set only. So a site answers for one set alone: it
//! refuses a second one before the sum can be opened.
//!
//! A run without checkpoint never returns to a state, because the next one has another nonce. The record is therefore kept
//! beside the checkpoint, readable by its owner only. A state is the nonce of the run, the iteration and the number of the sum
//! in it. With these and the parties of all sums before, the shared factor is determined; it is no part of the key, since
//! a rounding error would then make a new state of an old one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished::{Access, create_part, part_of};
use fednmf_comm::{CONTROL, Communicator};
use fednmf_privacy::Public;

use super::plan::Planned;

/// What the sums of an iteration are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    Evaluation,
    Update,
}

/// Iterations before, the purpose, and the number among these sums.
type Position = (usize, Stage, u64);

/// Sums one after the other, all over the same parties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stretch {
    first: Position,
    last: Position,
    parties: Vec<usize>,
}

/// What the file beside the checkpoint says, and where this run is.
#[derive(Debug)]
struct Remembered {
    path: PathBuf,
    /// The runs by their nonces; the content of the file.
    runs: BTreeMap<String, Vec<Stretch>>,
    nonce: String,
    at: Position,
}

/// The record of this run, shared with the guard of its sums.
#[derive(Debug)]
pub struct SumRecord {
    shared: Rc<RefCell<Remembered>>,
    /// The iteration whose evaluation is left out, if any.
    unevaluated: Option<usize>,
}

impl SumRecord {
    /// Begins or continues the record, if the run has one, and lets it guard the sums from `iteration` on.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the run resumes and the record of what it has summed is not there.
    pub fn begin(planned: &Planned, iteration: usize, comm: &Communicator) -> Result<Option<SumRecord>> {
        let goes_on = planned.method.groups().threshold.is_some_and(|group| group.secure_threshold.as_ref().is_some());
        let nonce = planned.nonce.as_ref().filter(|_| goes_on && comm.has_owners());
        let Some((checkpoint, nonce)) = planned.spec.checkpoint.as_deref().zip(nonce) else { return Ok(None) };
        let mut remembered = Remembered::open(&beside(checkpoint), nonce.text(), planned.resuming)?;
        remembered.at.0 = iteration;
        let shared = Rc::new(RefCell::new(remembered));
        let guard = shared.clone();
        comm.set_sum_guard(Box::new(move |summed| guard.borrow_mut().check(summed)));
        Ok(Some(SumRecord { shared, unevaluated: None }))
    }

    /// Leaves out the evaluation with which a resumed run begins, if some site remembers it over other parties than all: one of
    /// them has come back. Collective.
    pub fn agree_on_evaluation(&mut self, planned: &Planned, iteration: usize, comm: &Communicator) {
        let all: Vec<usize> = (0..planned.parties.count).collect();
        let before = self.shared.borrow();
        let differs = before.parties_at((iteration, Stage::Evaluation, 0)).is_some_and(|parties| parties != all);
        drop(before);
        let mut any = HasOthers([u32::from(differs)]);
        comm.max_public(CONTROL, &mut any);
        self.unevaluated = (any.0[0] > 0).then_some(iteration);
    }

    /// The next sums are those of this stage, after `iteration` iterations.
    pub fn turn_to(&self, iteration: usize, stage: Stage) {
        self.shared.borrow_mut().at = (iteration, stage, 0);
    }

    /// Whether the evaluation after this iteration is left out.
    pub fn leaves_out(&self, iteration: usize) -> bool {
        self.unevaluated == Some(iteration)
    }
}

/// Whether a site remembers an evaluation over other parties.
struct HasOthers([u32; 1]);

impl Public for HasOthers {
    const WHY: &'static str = "which sites were lost when";
}

impl AsMut<[u32]> for HasOthers {
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }
}

/// The name of the record of a checkpoint.
fn beside(checkpoint: &Path) -> PathBuf {
    checkpoint.with_extension("sums.json")
}

impl Remembered {
    fn open(path: &Path, nonce: String, resuming: bool) -> Result<Remembered> {
        let wrong = |why: String| Error::input(format!("--checkpoint: its record of sums {}: {why}", path.display()));
        let mut runs: BTreeMap<String, Vec<Stretch>> = match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| {
                wrong(format!("is damaged ({e}); name another checkpoint, and start all sites without --resume"))
            })?,
            Err(e) if e.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(wrong(format!("cannot be read ({e})"))),
        };
        if resuming && !runs.contains_key(&nonce) {
            return Err(wrong(
                "does not know the run of the checkpoint, so sums could be repeated over other parties; put it back beside the \
                 checkpoint, or start all sites without --resume"
                    .into(),
            ));
        }
        runs.entry(nonce.clone()).or_default();
        let remembered = Remembered { path: path.to_path_buf(), runs, nonce, at: (0, Stage::Evaluation, 0) };
        remembered.write()?;
        Ok(remembered)
    }

    /// The parties over which a sum was opened.
    fn parties_at(&self, at: Position) -> Option<&[usize]> {
        let stretch =
            self.runs.get(&self.nonce)?.iter().find(|stretch| (stretch.first..=stretch.last).contains(&at))?;
        Some(&stretch.parties)
    }

    /// Remembers the parties of the next sum.
    ///
    /// # Errors
    /// If it was opened before over other parties, or cannot be remembered.
    fn check(&mut self, summed: &[bool]) -> Result<()> {
        let at = self.at;
        self.at.2 += 1;
        let parties: Vec<usize> = (0..summed.len()).filter(|&party| summed[party]).collect();
        if let Some(before) = self.parties_at(at) {
            if before == parties {
                return Ok(());
            }
            return Err(Error::failed(format!(
                "iteration {}: this sum was opened before over parties {before:?}, and now it would be over {parties:?}; the \
                 difference would tell what some of them have sent. Start all sites again without --resume, or wait for the \
                 lost one and resume",
                at.0 + 1
            )));
        }
        let stretches = self.runs.entry(self.nonce.clone()).or_default();
        match stretches.last_mut().filter(|last| last.parties == parties && last.last < at) {
            Some(stretch) => stretch.last = at,
            None => stretches.push(Stretch { first: at, last: at, parties }),
        }
        self.write()
    }

    /// Replaces the file. It is not flushed to the disk, which would take longer than a sum: it outlives the process, and
    /// the checkpoint alone outlives the machine.
    fn write(&self) -> Result<()> {
        let path = &self.path;
        let text = serde_json::to_vec(&self.runs).map_err(std::io::Error::other);
        let written = text.and_then(|text| create_part(path, Access::OwnerOnly)?.write_all(&text));
        written.and_then(|()| std::fs::rename(part_of(path), path)).map_err(|e| {
            Error::failed(format!("--checkpoint: its record of sums {}: cannot be written ({e})", path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const ALL: [bool; 3] = [true; 3];
    const TWO: [bool; 3] = [true, false, true];

    #[test]
    fn a_second_set_at_one_state_is_refused_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = beside(&dir.path().join("c.h5"));
        let open = |nonce: &str, resuming| Remembered::open(&path, nonce.into(), resuming);
        let mut first = open("a", false).unwrap();
        let sum = |run: &mut Remembered, iteration, stage, set: &[bool]| {
            run.at = (iteration, stage, 0);
            run.check(set)
        };
        for iteration in 0..5 {
            sum(&mut first, iteration, Stage::Update, &ALL).unwrap();
        }
        first.check(&ALL).unwrap();
        sum(&mut first, 5, Stage::Evaluation, &TWO).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // From a checkpoint at iteration 3, without party 1.
        let mut resumed = open("a", true).unwrap();
        let refused = sum(&mut resumed, 3, Stage::Update, &TWO).unwrap_err().message;
        assert!(refused.contains("iteration 4") && refused.contains("[0, 1, 2]"), "{refused}");
        assert!(sum(&mut resumed, 4, Stage::Update, &ALL).is_ok());
        assert!(resumed.check(&TWO).is_err(), "the second sum of iteration 5");
        assert!(sum(&mut resumed, 5, Stage::Evaluation, &ALL).is_err(), "over more parties");
        assert!(sum(&mut resumed, 5, Stage::Evaluation, &TWO).is_ok());
        assert!(sum(&mut resumed, 5, Stage::Update, &ALL).is_ok(), "a later state");
        // Another run has other states, and forgets nothing of this one.
        assert!(sum(&mut open("b", false).unwrap(), 3, Stage::Update, &TWO).is_ok());
        assert!(sum(&mut open("a", true).unwrap(), 3, Stage::Update, &TWO).is_err());
    }

    #[test]
    fn a_resume_needs_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = beside(&dir.path().join("c.h5"));
        assert!(Remembered::open(&path, "a".into(), true).unwrap_err().message.contains("put it back"));
        std::fs::write(&path, "{").unwrap();
        assert!(Remembered::open(&path, "a".into(), false).unwrap_err().message.contains("is damaged"));
    }
}

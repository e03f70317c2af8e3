//! The files of a checkpoint: everything that `--resume` needs, complete at any moment.
//!
//! `F.h5` holds the shared state and is the manifest: it names its generation and, if parties have private state, their
//! files `F.party-03.g17.h5`. A new generation is written next to the old one and becomes valid when the manifest is
//! renamed, after everything else is on disk. Then the parties' older files are removed. A crash at any moment leaves the
//! manifest of one complete generation.
//!
//! If each rank has its own owner, each writes a manifest. A run that is lost between their renames leaves some manifests at
//! the new generation and some at the old one, so each rank also keeps the previous manifest, as `F.previous.h5`.

use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ndarray::ArrayViewMut2;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_comm::Communicator;
use fednmf_data::messages::{CHECKPOINT, CHECKPOINT_SHAPES};
use fednmf_data::state::{Owner, ReadRows, SavedState, State};
use fednmf_linalg::Real;
use fednmf_privacy::Public;

use crate::output::attributes::VERSION;
use crate::output::gather::Job;
use crate::output::party_files;
use crate::output::sink::Encoding;
use crate::output::stored::{GENERATION, Stored};
use crate::output::values::after_storage;

/// The format that this version writes, and the only one that it reads.
const FORMAT: u64 = 2;
/// The root attribute with the format. Checkpoints of format 1 have none.
const FORMAT_NAME: &str = "checkpoint_format";

/// The root attribute with the parties that were lost when the checkpoint was written, and have no file of its generation.
pub const LOST: &str = "lost_parties";

/// The checkpoints of a run: their path, and the last generation.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    /// 0: not yet known.
    generation: u64,
}

impl Checkpoint {
    /// Checkpoints at `path`; reads and writes nothing.
    pub fn new(path: &Path) -> Self {
        Checkpoint { path: path.to_path_buf(), generation: 0 }
    }

    /// The manifest's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the next generation. Collective; `attributes` are rank 0's.
    ///
    /// # Errors
    /// On all ranks, if a file of any rank cannot be written; the previous generation then remains.
    pub fn save<T: Real>(
        &mut self,
        comm: &Communicator,
        state: &State<'_, T>,
        attributes: &Map<String, Value>,
    ) -> SharedResult<()> {
        if self.generation == 0 {
            // Files that the current manifest names must not be overwritten; files of an incomplete generation may.
            let mut found = Generation([if comm.reports() { generation(&self.path) } else { 0 }]);
            comm.max_public(CHECKPOINT_SHAPES, &mut found);
            self.generation = found.0[0];
        }
        if comm.has_owners() {
            comm.agree_on_error(keep_previous(&self.path))?;
        }
        let generation = self.generation + 1;
        let mut attributes = attributes.clone();
        attributes.insert(FORMAT_NAME.into(), FORMAT.into());
        attributes.insert("version".into(), VERSION.into());
        let job = Job {
            path: &self.path,
            pieces: &state.matrices,
            scalars: &state.scalars,
            attributes: &attributes,
            of_parties: &std::collections::BTreeMap::new(),
            generation: Some(generation),
            tag: CHECKPOINT,
            // It contains values that must not be disclosed: iterates, and keys of parties on this rank.
            access: Access::OwnerOnly,
            encoding: Encoding::Hdf5,
        };
        job.write(comm)?.publish(comm)?;
        self.generation = generation;
        let oldest = if comm.has_owners() { generation - 1 } else { generation };
        remove_others(&self.path, oldest..=generation, &job.hosted());
        Ok(())
    }

    /// Opens the checkpoint and checks that it is complete; matrices are checked when they are read. Not collective.
    ///
    /// # Errors
    /// If there is no checkpoint, or it is damaged or in another format.
    pub fn open(path: &Path) -> Result<(Stored, Map<String, Value>)> {
        if !path.exists() {
            return Err(Error::input(format!(
                "{}: no checkpoint here to resume from; check the name, or start without --resume",
                path.display()
            )));
        }
        let stored = Stored::open_sealed(path)?;
        let attributes = stored.attributes().clone();
        if !attributes.contains_key(GENERATION) {
            return Err(Error::input(format!(
                "{}: is no checkpoint (perhaps the --output of a run); give the file of --checkpoint, or start without \
                 --resume",
                path.display()
            )));
        }
        check_format(path, &attributes)?;
        Ok((stored, attributes))
    }
}

/// Refuses a checkpoint whose format is not [`FORMAT`].
fn check_format(path: &Path, attributes: &Map<String, Value>) -> Result<()> {
    let found = attributes.get(FORMAT_NAME).and_then(Value::as_u64).unwrap_or(1);
    if found == FORMAT {
        return Ok(());
    }
    let writer = attributes.get("version").and_then(Value::as_str);
    let writer = writer.map_or_else(|| "an earlier fednmf".to_string(), |version| format!("fednmf {version}"));
    let age = if found < FORMAT { "an older" } else { "a newer" };
    Err(Error::input(format!(
        "{}: the checkpoint was written by {writer} in {age} format ({found}; this is fednmf {VERSION}, format {FORMAT}); \
         finish the run with that version, or start again without --resume",
        path.display()
    )))
}

/// Whether a checkpoint at `path` would replace a file with content.
pub fn has_content(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0)
}

/// The generation of the manifest at `path`; 0 if it cannot be read.
pub fn generation(path: &Path) -> u64 {
    let read = || Stored::open_sealed(path).ok()?.attributes().get(GENERATION)?.as_u64();
    if path.exists() { read().unwrap_or(0) } else { 0 }
}

/// The path of the previous manifest.
fn previous(path: &Path) -> PathBuf {
    let extension = path.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()));
    path.with_extension(format!("previous{extension}"))
}

/// Gives the current manifest a second name, before a new one replaces it.
fn keep_previous(path: &Path) -> Result<()> {
    let failed = |e: std::io::Error| Error::failed(format!("{}: cannot be kept ({e})", path.display()));
    if !path.exists() {
        return Ok(());
    }
    let previous = previous(path);
    match std::fs::remove_file(&previous) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    // Some file systems have no hard links.
    std::fs::hard_link(path, &previous).or_else(|_| std::fs::copy(path, &previous).map(drop)).map_err(failed)
}

/// A save point: generation, iteration, and the parties that were lost.
type Moment = (u64, u64, Vec<usize>);

/// The current and the previous save point of a site.
#[derive(Serialize, Deserialize)]
struct Moments([Option<Moment>; 2]);

impl Public for Moments {
    const WHY: &'static str = "numbers of checkpoints and iterations, and the sites that were lost";
}

/// The save point of the manifest at `path`, if it can be read.
fn moment(path: &Path) -> Option<Moment> {
    let stored = Stored::open_sealed(path).ok()?;
    let number = |name: &str| stored.attributes().get(name).and_then(Value::as_u64);
    let lost = stored.attributes().get(LOST).and_then(Value::as_array).into_iter().flatten();
    Some((number(GENERATION)?, number("iteration")?, lost.filter_map(|p| Some(p.as_u64()? as usize)).collect()))
}

/// The generation of a manifest.
struct Generation([u64; 1]);

impl Public for Generation {
    const WHY: &'static str = "the number of checkpoints so far";
}

impl AsMut<[u64]> for Generation {
    fn as_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

/// The path at which a returning rank, which was lost, stores the shared state of the other ranks.
fn returned(path: &Path) -> PathBuf {
    let extension = path.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()));
    path.with_extension(format!("returned{extension}"))
}

/// If each rank has its own manifest and hosts the party of its number: rolls back to the newest save point that all
/// ranks have, except those that were already lost. These receive the shared state of that save point from another
/// rank. Collective.
///
/// # Errors
/// On all ranks, if there is no such save point.
pub fn roll_back_to_common(path: &Path, comm: &Communicator) -> SharedResult<()> {
    if !comm.has_owners() {
        return Ok(());
    }
    let mine = [moment(path), moment(&previous(path))];
    let all = comm.all_gather_public(CHECKPOINT_SHAPES, &Moments(mine.clone()));
    let all: Vec<[Option<Moment>; 2]> = all.into_iter().map(|Moments(of)| of).collect();
    let has = |rank: usize, moment: &Moment| all[rank].iter().flatten().any(|of| of == moment);
    let fits = |moment: &&Moment| (0..all.len()).all(|rank| has(rank, moment) || moment.2.contains(&rank));
    let Some(common) = all.iter().flatten().flatten().filter(fits).max() else {
        return Err(Error::input(format!(
            "{}: the sites' checkpoints are not of the same moment of the same run; start all without --resume",
            path.display()
        ))
        .on_all_ranks());
    };
    let failed = |e: std::io::Error| Error::failed(format!("{}: cannot be replaced ({e})", path.display()));
    let is_present = mine[0].as_ref() == Some(common);
    let back = match has(comm.rank(), common) && !is_present {
        true => std::fs::rename(previous(path), path).map_err(failed),
        false => Ok(()),
    };
    comm.agree_on_error(back)?;
    let _ = std::fs::remove_file(returned(path));
    if (0..all.len()).all(|rank| has(rank, common)) {
        return Ok(());
    }
    let from = (0..all.len()).find(|&rank| has(rank, common)).expect("some rank has it");
    let text = if comm.rank() == from { std::fs::read(path).map_err(failed) } else { Ok(Vec::new()) };
    let text = comm.agree_on_error(text)?;
    let returning = |rank: usize| !has(rank, common);
    let mut written = Ok(());
    if comm.rank() == from {
        for rank in (0..all.len()).filter(|&rank| returning(rank)) {
            comm.send(CHECKPOINT, rank, &[text.len() as u64]);
            comm.send(CHECKPOINT, rank, &text);
        }
    } else if returning(comm.rank()) {
        let mut length = [0u64];
        comm.receive(CHECKPOINT, from, &mut length);
        let mut text = vec![0u8; length[0] as usize];
        comm.receive(CHECKPOINT, from, &mut text);
        let file = returned(path);
        written = unfinished::replace(&file, Access::OwnerOnly, |out| out.write_all(&text)).map_err(failed);
    }
    comm.agree_on_error(written)
}

/// The state from which a run resumes.
pub struct Resumed {
    /// The state of this rank's parties; also the shared state, if `shared` is `None`.
    own: Stored,
    /// The shared state, if this rank was lost and the others continued.
    shared: Option<Stored>,
}

impl Resumed {
    /// Opens the checkpoint at `path`, after [`roll_back_to_common`]; also returns the attributes of its save point.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open(path: &Path, comm: &Communicator) -> Result<(Resumed, Map<String, Value>)> {
        let (own, attributes) = Checkpoint::open(path)?;
        let file = returned(path);
        if !(comm.has_owners() && file.exists()) {
            return Ok((Resumed { own, shared: None }, attributes));
        }
        let (shared, attributes) = Checkpoint::open(&file)?;
        // The file is open, so its name is no longer needed.
        let _ = std::fs::remove_file(&file);
        Ok((Resumed { own, shared: Some(shared) }, attributes))
    }

    fn of(&self, owner: Owner) -> &Stored {
        match (&self.shared, owner) {
            (Some(shared), Owner::Shared) => shared,
            _ => &self.own,
        }
    }
}

impl<T: Real> ReadRows<T> for Resumed {
    fn rows(&self, name: &str, owner: Owner, first_row: usize, out: ArrayViewMut2<'_, T>) -> Result<()> {
        self.of(owner).rows(name, owner, first_row, out)
    }
}

impl<T: Real> SavedState<T> for Resumed {
    fn scalars(&self, owner: Owner) -> Result<Value> {
        SavedState::<T>::scalars(self.of(owner), owner)
    }

    fn is_consistent(&self) -> bool {
        self.shared.is_none()
    }
}

/// Removes the files of `parties` outside the generations `kept`, if fednmf wrote them. A file that remains does no harm.
fn remove_others(path: &Path, kept: RangeInclusive<u64>, parties: &[usize]) {
    if parties.is_empty() {
        return;
    }
    for (file, name) in party_files::beside(path) {
        let other = name.generation.is_some_and(|found| !kept.contains(&found)) && parties.contains(&name.party);
        if other && name.is_own(&file) {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Refuses a checkpoint of another run: every entry of `expected` must be in `found` with the same value. Objects are
/// compared entry by entry. Entries that only `found` has (iteration, version) do not matter.
///
/// # Errors
/// If there are differences; the message names all of them.
pub fn compare(found: &Map<String, Value>, expected: &Map<String, Value>) -> Result<()> {
    let mut differences = Vec::new();
    collect(found, &after_storage(expected), "", &mut differences);
    // Parameters that are not set are not stored, so the file must not contain them.
    for name in expected.iter().filter(|(_, now)| now.is_null()).map(|(name, _)| name) {
        differences.extend(found.get(name).map(|then| format!("{name} was {then}, now is not set")));
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::input(format!(
        "the checkpoint is of another run: {}; resume with the arguments and the matrix that it was made with, or give another \
         name",
        differences.join(", ")
    )))
}

fn collect(found: &Map<String, Value>, expected: &Map<String, Value>, prefix: &str, differences: &mut Vec<String>) {
    for (name, now) in expected {
        match (found.get(name).unwrap_or(&Value::Null), now) {
            (Value::Object(then), Value::Object(now)) => {
                collect(then, now, &format!("{prefix}{name}."), differences);
                let gone = then.iter().filter(|(key, _)| !now.contains_key(*key));
                differences
                    .extend(gone.map(|(key, value)| format!("{prefix}{name}.{key} was {value}, now is not set")));
            }
            (Value::Null, Value::Null) => {}
            (Value::Null, now) => differences.push(format!("{prefix}{name} was not set, now is {now}")),
            (then, now) if then != now => differences.push(format!("{prefix}{name} was {then}, now is {now}")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ndarray::{Array2, array};
    use serde_json::json;

    use fednmf_data::state::Piece;

    use super::*;
    use crate::output::gather::write_alone;
    use crate::output::stored::{PARTY, PARTY_FILES, PARTY_WIDTH, STATE, party_file, pattern};

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { unreachable!() };
        map
    }

    /// Writes a generation with two parties as `save` does, up to `steps` renames of three.
    fn save(path: &Path, generation: u64, steps: usize) {
        let mut attributes = map(json!({"iteration": 10 * generation, "seed": 1, FORMAT_NAME: FORMAT}));
        attributes.insert(GENERATION.into(), generation.into());
        attributes.insert(PARTY_FILES.into(), pattern(path, Some(generation)).into());
        attributes.insert(PARTY_WIDTH.into(), 2.into());
        let values = state(generation);
        let piece = |name| Piece::shared(name, 3, 0, values.view());
        let mut parts = Vec::new();
        for party in 0..2 {
            let mut attributes = attributes.clone();
            attributes.insert(PARTY.into(), party.into());
            attributes.insert(STATE.into(), json!({"key": [party, generation]}));
            let file = path.with_file_name(party_file(&pattern(path, Some(generation)), party, 2));
            parts.push(write_alone(&file, &[&piece("U")], &attributes).unwrap());
        }
        parts.push(write_alone(path, &[&piece("V")], &attributes).unwrap());
        for (step, part) in parts.into_iter().enumerate() {
            if step < steps {
                part.publish().unwrap();
            } else {
                // As after a crash.
                std::mem::forget(part);
            }
        }
    }

    fn state(generation: u64) -> Array2<f64> {
        array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]] * generation as f64
    }

    fn check(path: &Path, generation: u64) {
        let (stored, attributes) = Checkpoint::open(path).unwrap();
        assert_eq!(attributes["iteration"], 10 * generation);
        for (name, owner) in [("V", Owner::Shared), ("U", Owner::Party(0)), ("U", Owner::Party(1))] {
            let mut out = Array2::<f64>::zeros((2, 2));
            stored.rows(name, owner, 1, out.view_mut()).unwrap();
            assert_eq!(out, state(generation).slice(ndarray::s![1.., ..]));
        }
        let saved: &dyn SavedState<f64> = &stored;
        assert_eq!(saved.scalars(Owner::Shared).unwrap(), Value::Null);
        assert_eq!(saved.scalars(Owner::Party(1)).unwrap(), json!({"key": [1, generation]}));
    }

    #[test]
    fn a_crash_at_any_moment_leaves_a_complete_generation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("F.h5");
        assert_eq!(generation(&path), 0);
        save(&path, 4, 3);
        for steps in 0..3 {
            save(&path, 5, steps);
            check(&path, 4);
            assert_eq!(generation(&path), 4);
        }
        save(&path, 5, 3);
        // Killed before the old files were removed.
        check(&path, 5);
        fs::write(dir.path().join("F.party-01.g4.h5.txt"), "not ours").unwrap();
        remove_others(&path, 5..=5, &[1]);
        let mut names: Vec<String> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let left = ["F.h5", "F.party-00.g4.h5", "F.party-00.g5.h5", "F.party-01.g4.h5.txt", "F.party-01.g5.h5"];
        assert_eq!(names, left);
        check(&path, 5);
    }

    #[test]
    fn all_damage_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("F.h5");
        save(&path, 1, 3);
        let good = fs::read(&path).unwrap();
        let read = || -> Result<()> {
            let (stored, _) = Checkpoint::open(&path)?;
            stored.rows("V", Owner::Shared, 0, Array2::<f64>::zeros((3, 2)).view_mut())
        };
        read().unwrap();
        for length in (0..good.len()).step_by(97) {
            fs::write(&path, &good[..length]).unwrap();
            assert_eq!(read().unwrap_err().exit_code(), 2, "cut to {length} bytes");
        }
        for place in (0..good.len()).step_by(11) {
            let mut bad = good.clone();
            bad[place] ^= 1 << (place % 8);
            fs::write(&path, &bad).unwrap();
            let message = read().expect_err(&format!("byte {place}")).message;
            assert!(message.contains("F.h5"), "{message}");
        }
        // Each bit of the matrix values.
        let first = good.windows(8).position(|w| w == 6.5f64.to_le_bytes()).unwrap();
        for bit in 0..64 {
            let mut bad = good.clone();
            bad[first + bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bad).unwrap();
            assert!(read().unwrap_err().message.contains("checksum"));
        }
    }

    #[test]
    fn files_of_different_generations_or_parties_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("F.h5");
        save(&path, 1, 3);
        save(&path, 2, 3);
        let (stored, _) = Checkpoint::open(&path).unwrap();
        let read = || stored.rows("U", Owner::Party(0), 0, Array2::<f64>::zeros((3, 2)).view_mut()).unwrap_err();
        let file = |name: &str| dir.path().join(name);
        fs::copy(file("F.party-00.g1.h5"), file("F.party-00.g2.h5")).unwrap();
        assert!(read().message.contains("its generation is 1, not 2"));
        fs::copy(file("F.party-01.g2.h5"), file("F.party-00.g2.h5")).unwrap();
        assert!(read().message.contains("its party is 1, not 0"));
        fs::remove_file(file("F.party-00.g2.h5")).unwrap();
        assert!(read().message.contains("F.party-00.g2.h5"));
    }

    #[test]
    fn an_output_is_no_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.h5");
        assert!(Checkpoint::open(&path).unwrap_err().message.contains("no checkpoint here"));
        write_alone::<f64>(&path, &[], &Map::new()).unwrap().publish().unwrap();
        assert!(Checkpoint::open(&path).unwrap_err().message.contains("is no checkpoint"));
    }

    #[test]
    fn another_format_is_refused_with_its_version() {
        let path = Path::new("F.h5");
        let check = |value| check_format(path, &map(value));
        check(json!({FORMAT_NAME: FORMAT, "version": "9.9.9"})).unwrap();
        for (value, words) in [
            (json!({GENERATION: 3}), "an earlier fednmf in an older format (1;"),
            (json!({FORMAT_NAME: FORMAT + 1, "version": "9.9.9"}), "fednmf 9.9.9 in a newer format"),
        ] {
            let error = check(value).unwrap_err();
            assert!(error.exit_code() == 2 && error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn another_run_is_refused_by_name() {
        let found = map(json!({"seed": 1, "ranks": 4, "params": {"mu": 0.1, "old": 1, "same": [1, 2]}, "k": 3}));
        compare(&found, &found).unwrap();
        compare(&found, &map(json!({"seed": 1, "absent": null}))).unwrap();
        let now = map(json!({"seed": 2, "params": {"mu": 0.2, "same": [1, 2]}, "k": 3, "precision": "f32"}));
        let message = compare(&found, &now).unwrap_err().message;
        for part in [
            "seed was 1, now is 2",
            "params.mu was 0.1, now is 0.2",
            "params.old was 1, now is not set",
            "precision was not set, now is \"f32\"",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!message.contains("same") && !message.contains("ranks") && !message.contains(" k "), "{message}");
    }
}

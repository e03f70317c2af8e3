//! Collective writing: shared rows are sent to rank 0 in small blocks, private rows are written by their hosts. If each
//! rank has its own owner, shared rows are sent to all ranks, and each writes its own copy.
//!
//! No rank may wait for one that has failed. Therefore all ranks agree before rows are sent, rank 0 keeps receiving if
//! its file fails midway, and all agree again before a file is renamed to its final name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ndarray::s;
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::unfinished::Access;
use fednmf_comm::{Communicator, ControlTag, MessageTag};
use fednmf_data::state::{Owner, Piece};
use fednmf_linalg::Real;
use fednmf_linalg::random::secret_rng;
use fednmf_privacy::Public;

use super::plan;
use crate::output::part::Part;
use crate::output::party_files;
use crate::output::plan::{Head, Matrix, block_rows, blocks};
use crate::output::sink::{Encoding, Sink};
use crate::output::stored::{GENERATION, PARTY, PARTY_FILES, PARTY_WIDTH, SET, STATE, party_file, pattern};

/// The matrices and attributes to be written, and the files for them.
pub struct Job<'a, 'p, T> {
    /// The shared file; the parties' files are written to the same directory.
    pub path: &'a Path,
    pub pieces: &'a [Piece<'p, T>],
    /// For a checkpoint, the method's scalars, each written only to the file of its owner.
    pub scalars: &'a [(Owner, Value)],
    pub attributes: &'a Map<String, Value>,
    /// Additional attributes of hosted parties, each only for that party's file.
    pub of_parties: &'a BTreeMap<usize, Map<String, Value>>,
    /// For a checkpoint: its generation, which is part of the names of the parties' files.
    pub generation: Option<u64>,
    pub tag: MessageTag,
    /// Who may read the shared file.
    pub access: Access,
    /// The format, and the data that it needs.
    pub encoding: Encoding<'a>,
}

/// Complete, synced files under their temporary names.
pub struct Written {
    shared: Option<Part>,
    private: Vec<Part>,
    /// For an output that is replaced: its path and the names of its party files; other party files are of earlier runs.
    complete: Option<(PathBuf, Vec<String>)>,
}

/// The parties among `owners`, each once, in ascending order.
pub fn parties(owners: impl Iterator<Item = Owner>) -> Vec<usize> {
    let party = |owner| if let Owner::Party(party) = owner { Some(party) } else { None };
    let mut parties: Vec<usize> = owners.filter_map(party).collect();
    parties.sort_unstable();
    parties.dedup();
    parties
}

/// The number of digits of the party's number in file names; `None` if no party has a file.
///
/// # Errors
/// If two ranks have rows of the same party.
fn width(parties: &[Vec<usize>]) -> Result<Option<usize>> {
    let mut all: Vec<usize> = parties.iter().flatten().copied().collect();
    all.sort_unstable();
    if let Some(twice) = all.windows(2).find(|w| w[0] == w[1]) {
        return Err(Error::failed(format!(
            "party {} has private rows on two ranks; this is a bug, please report it",
            twice[0]
        )));
    }
    Ok(all.last().map(|last| last.to_string().len().max(2)))
}

/// The common properties of the parties' files that are written together.
struct PartyFiles {
    /// Digits of the party's number in their names.
    width: usize,
    /// The mark of the run, which distinguishes its files from those of other runs.
    set: String,
}

/// Draws a random mark that no other run has. Collective.
fn draw(comm: &Communicator, tag: ControlTag) -> SharedResult<String> {
    let own = if comm.is_root() { secret_rng(None, 0).map(|mut rng| rng.next_u64()) } else { Ok(0) };
    let Mark(mark) = comm.broadcast_public(tag, Mark(comm.agree_on_error(own)?));
    Ok(format!("{mark:016x}"))
}

/// The random mark of a run's files.
#[derive(Serialize, Deserialize)]
struct Mark(u64);

impl Public for Mark {
    const WHY: &'static str = "a random number";
}

/// The shapes of a rank's shared pieces, and the parties whose files it writes; none of a rank that is lost.
#[derive(Default, Serialize, Deserialize)]
struct Notice {
    heads: Vec<Head>,
    hosted: Vec<usize>,
}

impl Public for Notice {
    const WHY: &'static str = "the shapes of the factors that all may see, and which rank hosts which party";
}

impl<'p, T: Real> Job<'_, 'p, T> {
    /// The parties whose files this rank writes.
    pub fn hosted(&self) -> Vec<usize> {
        let owners = self.pieces.iter().map(|p| p.owner).chain(self.scalars.iter().map(|(owner, _)| *owner));
        parties(owners.chain(self.of_parties.keys().map(|&party| Owner::Party(party))))
    }

    /// Writes all files under their temporary names. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file of any rank cannot be written.
    pub fn write(&self, comm: &Communicator) -> SharedResult<Written> {
        let shared: Vec<&Piece<'p, T>> = self.pieces.iter().filter(|p| p.owner == Owner::Shared).collect();
        let heads: Vec<Head> = shared.iter().map(|p| Head::of(p)).collect();
        // The other ranks learn only the owners of private pieces.
        let notice = ControlTag::new(self.tag.kind);
        let all = comm.gather_public_present(notice, &Notice { heads, hosted: self.hosted() });
        let present: Vec<usize> = (0..all.len()).filter(|&rank| all[rank].is_some()).collect();
        let all = all.into_iter().map(Option::unwrap_or_default);
        let (heads, hosted): (Vec<Vec<Head>>, Vec<Vec<usize>>) = all.map(|of| (of.heads, of.hosted)).unzip();
        let plan = plan::matrices(&heads).map_err(Error::on_all_ranks)?;
        let width = width(&hosted).map_err(Error::on_all_ranks)?;
        let files = match width {
            Some(width) => Some(PartyFiles { width, set: draw(comm, notice)? }),
            None => None,
        };

        let private = self.private(files.as_ref());
        let writer = comm.reports().then(|| self.shared_file(files.as_ref())).transpose();
        // In this order an error of the shared file takes precedence over errors of the parties' files.
        let (writer, private) = comm.agree_on_error(writer.and_then(|w| Ok((w, private?))))?;
        let shared = self.shared_rows(comm, (&plan, &heads, &present), &shared, writer);
        let shared = comm.agree_on_error(shared)?;
        // Ranks that write nothing need not check.
        let looks = self.generation.is_none() && (comm.reports() || !private.is_empty());
        let names = || {
            let all = hosted.iter().flatten();
            all.map(|&party| party_file(&pattern(self.path, None), party, width.unwrap_or(0))).collect()
        };
        // Old party files are only removed if an output is replaced; files of an output that was moved stay.
        let replaces = looks && self.path.exists();
        Ok(Written { shared, private, complete: replaces.then(|| (self.path.to_path_buf(), names())) })
    }

    /// The root attributes of the file of `owner`: its scalars, and the names that a reader needs to find all files.
    fn root(&self, owner: Owner, files: Option<&PartyFiles>) -> Map<String, Value> {
        let mut map = self.attributes.clone();
        if let Some(generation) = self.generation {
            map.insert(GENERATION.into(), generation.into());
        }
        if let Some(PartyFiles { width, set }) = files {
            map.insert(PARTY_FILES.into(), pattern(self.path, self.generation).into());
            map.insert(PARTY_WIDTH.into(), (*width).into());
            map.insert(SET.into(), set.clone().into());
        }
        if let Owner::Party(party) = owner {
            map.insert(PARTY.into(), party.into());
            map.extend(self.of_parties.get(&party).cloned().unwrap_or_default());
        }
        let own = self.scalars.iter().find(|(of, _)| *of == owner);
        map.extend(own.map(|(_, scalars)| (STATE.to_string(), scalars.clone())));
        map
    }

    fn shared_file(&self, files: Option<&PartyFiles>) -> Result<Sink<'_>> {
        Sink::create(self.encoding, self.path, self.root(Owner::Shared, files), self.access)
    }

    /// Sends this rank's rows to the writing ranks that do not have them and are not lost, and returns the finished file.
    fn shared_rows(
        &self,
        comm: &Communicator,
        (plan, heads, present): (&[Matrix], &[Vec<Head>], &[usize]),
        pieces: &[&Piece<'p, T>],
        mut sink: Option<Sink<'_>>,
    ) -> Result<Option<Part>> {
        let mut failure = None;
        // Nothing is written after the first failure.
        let mut attempt = |step: &mut dyn FnMut(&mut Sink<'_>) -> Result<()>| {
            if let (Some(sink), None) = (&mut sink, &failure) {
                failure = step(sink).err();
            }
        };
        let mut buffer: Vec<T> = Vec::new();
        for matrix in plan {
            attempt(&mut |sink| sink.begin::<T>(matrix));
            for segment in &matrix.segments {
                // If each rank writes a file, rows that it has itself need not be sent.
                let own = |rank: usize| match comm.has_owners() {
                    true => heads[rank].iter().position(|head| head.covers(&matrix.name, &segment.rows)),
                    false => (rank == segment.rank).then_some(segment.piece),
                };
                for block in blocks(segment.rows.clone(), block_rows(matrix.rows, matrix.cols)) {
                    let mine = segment.rank == comm.rank();
                    if let Some(piece) = own(comm.rank()) {
                        let piece = pieces[piece];
                        let local = block.start - piece.first_row..block.end - piece.first_row;
                        buffer.clear();
                        buffer.extend(piece.values.slice(s![local, ..]).iter());
                    }
                    match (mine, comm.reports()) {
                        // If ranks have owners, each of them writes a file.
                        (true, true) if comm.has_owners() => {
                            let lacking = present.iter().filter(|&&r| own(r).is_none());
                            lacking.for_each(|&r| comm.send(self.tag, r, &buffer));
                        }
                        (true, false) => comm.send(self.tag, 0, &buffer),
                        (false, true) if own(comm.rank()).is_none() => {
                            buffer.resize(block.len() * matrix.cols, T::zero());
                            comm.receive(self.tag, segment.rank, &mut buffer);
                        }
                        _ => {}
                    }
                    attempt(&mut |sink| sink.push(&buffer));
                }
            }
            attempt(&mut |sink| sink.end());
        }
        match failure {
            Some(e) => Err(e),
            None => sink.map(Sink::finish).transpose(),
        }
    }

    /// Writes the files of the hosted parties.
    fn private(&self, files: Option<&PartyFiles>) -> Result<Vec<Part>> {
        let Some(PartyFiles { width, .. }) = files else { return Ok(Vec::new()) };
        let pattern = pattern(self.path, self.generation);
        self.hosted()
            .into_iter()
            .map(|party| {
                let owner = Owner::Party(party);
                let own: Vec<&Piece<'p, T>> = self.pieces.iter().filter(|p| p.owner == owner).collect();
                let attributes = self.root(owner, files);
                let path: PathBuf = self.path.with_file_name(party_file(&pattern, party, *width));
                write_own(self.encoding, &path, &own, attributes)
            })
            .collect()
    }
}

/// Writes matrices that are completely on this rank, under the temporary name.
fn write_own<T: Real>(
    encoding: Encoding<'_>,
    path: &Path,
    pieces: &[&Piece<'_, T>],
    attributes: Map<String, Value>,
) -> Result<Part> {
    let mut sink = Sink::create(encoding, path, attributes, Access::OwnerOnly)?;
    for matrix in plan::matrices(&[pieces.iter().map(|p| Head::of(p)).collect()])? {
        sink.begin::<T>(&matrix)?;
        for segment in &matrix.segments {
            let piece = pieces[segment.piece];
            for block in blocks(segment.rows.clone(), block_rows(matrix.rows, matrix.cols)) {
                let local = block.start - piece.first_row..block.end - piece.first_row;
                sink.push(&piece.values.slice(s![local, ..]).iter().copied().collect::<Vec<T>>())?;
            }
        }
        sink.end()?;
    }
    sink.finish()
}

impl Written {
    /// Renames all files to their final names, the shared file last, which makes the set valid. Collective.
    ///
    /// # Errors
    /// On all ranks, if a rename of any rank fails.
    pub fn publish(self, comm: &Communicator) -> SharedResult<()> {
        comm.agree_on_error(self.private.into_iter().try_for_each(Part::publish))?;
        comm.agree_on_error(self.shared.map_or(Ok(()), Part::publish))?;
        if let Some((path, written)) = self.complete {
            party_files::remove_stale(&path, &written);
        }
        Ok(())
    }
}

#[cfg(test)]
pub fn write_alone<T: Real>(path: &Path, pieces: &[&Piece<'_, T>], attributes: &Map<String, Value>) -> Result<Part> {
    write_own(Encoding::Hdf5, path, pieces, attributes.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_parties_files() {
        let name =
            |path: &str, generation, party, width| party_file(&pattern(Path::new(path), generation), party, width);
        assert_eq!(name("out/F.h5", None, 3, 2), "F.party-03.h5");
        assert_eq!(name("F.h5", Some(17), 3, 2), "F.party-03.g17.h5");
        assert_eq!(name("F", None, 3, 3), "F.party-003");
        assert_eq!(name("a.b.h5", None, 100, 3), "a.b.party-100.h5");
    }

    #[test]
    fn digits_follow_the_number_of_parties() {
        assert_eq!(width(&[vec![], vec![]]).unwrap(), None);
        assert_eq!(width(&[vec![0, 1], vec![2]]).unwrap(), Some(2));
        assert_eq!(width(&[vec![], (0..101).collect()]).unwrap(), Some(3));
        assert!(width(&[vec![0, 1], vec![1]]).is_err());
    }
}

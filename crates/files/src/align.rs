//! The columns that all parties' files have (`--common-columns`), found by keyed digests of their names.

use std::collections::{HashMap, HashSet};

use rand::Rng as _;
use sha2::{Digest as _, Sha256};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, Parties};
use fednmf_data::CommonColumns;
use fednmf_data::messages::NAME_DIGESTS;
use fednmf_linalg::random::secret_rng;

use crate::features::Selection;
use crate::names;
use crate::names::Names;
use crate::open::own_path;
use crate::spec::InputSpec;

/// Restricts the specification to the columns that the files of all parties have, in the order of party 0's file. Parties
/// learn which of their own names the others have. The digest of another name only confirms a guess, and only to who knows
/// the key of the run: the parties. Collective.
///
/// # Errors
/// On all ranks, if a file has no names, or a name twice, or if no name is in all files.
pub fn aligned(spec: &InputSpec, pattern: &str, parties: Parties, comm: &Communicator) -> SharedResult<InputSpec> {
    let own_names =
        || parties.hosted(comm.rank()).map(|party| names_of(spec, &own_path(spec, pattern, party, parties)?)).collect();
    let own: Vec<Vec<String>> = comm.agree_on_error(own_names())?;
    let common = common_names(&own, comm)?;
    if let Some(names) = own.first() {
        comm.note_agreed("common columns", common_places(&common, names).into_iter().map(|j| names[j].as_str()));
    }
    Ok(InputSpec { common: Some(common), ..spec.clone() })
}

/// The names that all parties have, in the order of party 0; `own` are the names of the hosted parties. Collective.
///
/// # Errors
/// On all ranks, if there is none.
pub fn common_names(own: &[Vec<String>], comm: &Communicator) -> SharedResult<CommonColumns> {
    let key = shared_key(comm)?;
    let digests: Vec<Vec<String>> =
        own.iter().map(|names| names.iter().map(|name| digest(&key, name)).collect()).collect();
    let by_rank = comm.all_gather_value(NAME_DIGESTS, &digests);
    let hosts: Vec<usize> = by_rank.iter().enumerate().flat_map(|(rank, own)| own.iter().map(move |_| rank)).collect();
    let all: Vec<Vec<String>> = by_rank.into_iter().flatten().collect();
    let Some((first, others)) = all.split_first() else { return Ok(CommonColumns { key, digests: Vec::new() }) };
    let others: Vec<HashSet<&String>> = others.iter().map(|digests| digests.iter().collect()).collect();
    let common: Vec<&String> = first.iter().filter(|name| others.iter().all(|other| other.contains(name))).collect();
    if common.is_empty() {
        let name = |party: usize| match comm.has_owners() {
            true => comm.name_of(hosts[party]),
            false => format!("party {party}"),
        };
        return Err(no_common_name(&all, name).on_all_ranks());
    }
    Ok(CommonColumns { key, digests: common.into_iter().cloned().collect() })
}

/// The error if no name is in all files: how many of each party's names, whose digests are given, another one has.
fn no_common_name(all: &[Vec<String>], name: impl Fn(usize) -> String) -> Error {
    let mut holders = HashMap::<&String, usize>::new();
    all.iter().flatten().for_each(|digest| *holders.entry(digest).or_default() += 1);
    let describe = |(party, own): (usize, &Vec<String>)| {
        let shared = own.iter().filter(|digest| holders[digest] > 1).count();
        format!("{} has {} names, of which others have {shared}", name(party), own.len())
    };
    Error::input(format!(
        "--common-columns: no column name is in all files: {}; use the same identifiers everywhere, such as gene symbols, and \
         --transpose for a file whose columns are the rows of the others",
        all.iter().enumerate().map(describe).collect::<Vec<_>>().join("; ")
    ))
}

/// The names of the columns of a party's file.
fn names_of(spec: &InputSpec, path: &str) -> Result<Vec<String>> {
    let Some(names) = names::of_path(path, spec).columns else {
        return Err(Error::input(format!(
            "--common-columns: {path} has no names of columns; give a file that has them (.h5ad, .csv with a header, 10x), or leave \
             --common-columns out"
        )));
    };
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(name) if spec.private => Err(Error::input(format!(
            "--common-columns: several columns of {path} have the same name (column {}); give each a name of its own",
            names.iter().position(|other| other == name).unwrap_or(0) + 1
        ))),
        Some(name) => Err(Error::input(format!("--common-columns: {path}: {}", names::repeated("column", name)))),
        None => Ok(names),
    }
}

/// A key to which every rank contributes random bytes. Between sites these are sealed, as all messages are, so the hub does
/// not know the key, and digests of different runs cannot be compared. Collective.
fn shared_key(comm: &Communicator) -> SharedResult<[u8; 32]> {
    let mut own = [0; 32];
    let drawn = secret_rng(None, 0).map(|mut rng| rng.fill_bytes(&mut own));
    comm.agree_on_error(drawn)?;
    let all = comm.all_gather_value(NAME_DIGESTS, &own);
    let hash = Sha256::new().chain_update(b"key of names\0");
    Ok(all.iter().fold(hash, |hash, share| hash.chain_update(share)).finalize().into())
}

/// The columns with these names, of which no digest is sent.
pub fn named(names: &[String]) -> CommonColumns {
    let key = [0; 32];
    CommonColumns { key, digests: names.iter().map(|name| digest(&key, name)).collect() }
}

/// The places of the common columns among the names of a matrix that has them.
pub fn common_places(common: &CommonColumns, names: &[String]) -> Vec<usize> {
    let places: HashMap<String, usize> =
        names.iter().enumerate().map(|(j, name)| (digest(&common.key, name), j)).collect();
    common.digests.iter().filter_map(|digest| places.get(digest).copied()).collect()
}

/// 128 bits, in hexadecimal digits.
fn digest(key: &[u8; 32], name: &str) -> String {
    let hash =
        Sha256::new().chain_update(key).chain_update(b"name of a column\0").chain_update(name.as_bytes()).finalize();
    hash[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The common columns in a file, in their order; `names` are those of the file, `chosen` the columns that are used
/// without alignment.
pub fn selection(
    common: &CommonColumns,
    spec: &InputSpec,
    names: &Names,
    chosen: Option<Selection>,
) -> Result<Selection> {
    let of_rows = spec.transpose;
    let all = if of_rows { &names.rows } else { &names.columns };
    let gone = || {
        Error::input(
            "the factors are those of the columns that all parties have (--common-columns), and this matrix lacks one of them; give the \
             file of the run",
        )
    };
    let all = all.as_ref().ok_or_else(gone)?;
    if chosen.as_ref().is_some_and(|chosen| chosen.all != all.len()) {
        return Err(Error::input(
            "the marks or types of the features and their names differ in number; they do not belong together, or one of \
             them is incomplete",
        ));
    }
    let chosen = chosen.map_or_else(|| (0..all.len()).collect(), |chosen| chosen.kept);
    let places: HashMap<String, usize> = chosen.into_iter().map(|i| (digest(&common.key, &all[i]), i)).collect();
    let kept: Option<Vec<usize>> = common.digests.iter().map(|name| places.get(name).copied()).collect();
    Ok(Selection { of_rows, kept: kept.ok_or_else(gone)?, all: all.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_selected_in_the_order_of_the_common_names() {
        let name = |text: &str| text.to_string();
        let names = Names { columns: Some(["c", "a", "x", "b"].map(name).to_vec()), ..Names::default() };
        let spec = InputSpec::parse("part-{party}.csv").unwrap();
        let common = |names: &[&str]| CommonColumns {
            key: [7; 32],
            digests: names.iter().map(|name| digest(&[7; 32], name)).collect(),
        };
        let (first, common) = (common(&["a"]), common(&["a", "b", "c"]));
        assert_eq!(selection(&common, &spec, &names, None).unwrap().kept, [1, 3, 0]);
        let chosen = Selection { of_rows: false, kept: vec![0, 1], all: 4 };
        assert_eq!(selection(&first, &spec, &names, Some(chosen.clone())).unwrap().kept, [1]);
        let of_others = Selection { of_rows: false, kept: vec![1, 4], all: 5 };
        assert!(selection(&first, &spec, &names, Some(of_others)).is_err());
        assert!(selection(&common, &spec, &names, Some(chosen)).is_err());
    }

    #[test]
    fn digests_of_names_differ_from_run_to_run() {
        let comm = Communicator::local();
        let [a, b] = [(); 2].map(|()| shared_key(&comm).unwrap());
        assert_ne!(a, b);
        assert_ne!(digest(&a, "cd3e"), digest(&b, "cd3e"));
        assert_eq!(digest(&a, "cd3e").len(), 32);
    }
}

//! Methods with private rows: whether a row was in the data that the shared V was fitted to.

use ndarray::Array2;

use super::asked::Asked;
use super::finding::Finding;
use super::seen::Seen;
use super::truth;
use crate::comm::Knowledge;
use crate::error::{Error, Result};
use crate::privacy::adversary::membership::{auc, misfits};

/// Membership inference by the last shared V.
pub fn attacks(seen: &Seen, asked: &Asked<'_>) -> Result<Vec<Finding>> {
    if seen.by_columns {
        return Ok(Vec::new());
    }
    let view = &seen.views[0];
    let shared = view.of_kind(Knowledge::Own, "V").filter(|&at| view.records[at].to.is_none()).last();
    let Some(at) = shared else { return Ok(Vec::new()) };
    let v = view.values(at)?;
    let found = Finding::new("membership", "rows that V fits better were in the data");
    let Some(members) = asked.truth.hidden(seen) else {
        return Ok(vec![found.note("needs --truth, the matrix of the run")]);
    };
    let Some(name) = asked.candidates else {
        return Ok(vec![found.note("needs --candidates: rows that were in nobody's data")]);
    };
    let others: Array2<f64> = truth::read(seen, name, true, asked.alone).map_err(|e| e.at("--candidates"))?;
    if others.ncols() != seen.n {
        return Err(Error::input(format!(
            "--candidates {name}: has {} columns, and the data of the run {}",
            others.ncols(),
            seen.n
        )));
    }
    // A row that is in the data as well tells nothing.
    let known: std::collections::BTreeSet<Vec<u64>> =
        asked.truth.matrix.iter().flat_map(|m| m.rows().into_iter().map(bits).collect::<Vec<_>>()).collect();
    let fresh: Vec<usize> = (0..others.nrows()).filter(|&i| !known.contains(&bits(others.row(i)))).collect();
    let others = others.select(ndarray::Axis(0), &fresh);
    let mut found = found.note(format!("{} members, {} other rows", members.nrows(), others.nrows()));
    found.of = "members";
    found.auc = auc(&misfits(&members.view(), &v.view()), &misfits(&others.view(), &v.view()));
    Ok(vec![found])
}

fn bits(row: ndarray::ArrayView1<'_, f64>) -> Vec<u64> {
    row.iter().map(|x| x.to_bits()).collect()
}

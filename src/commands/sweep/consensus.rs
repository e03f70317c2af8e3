//! The file with the consensus of the runs with one k.

use std::path::{Path, PathBuf};

use ndarray::s;
use serde_json::json;

use fednmf_base::error::SharedResult;
use fednmf_comm::{Communicator, even_part};
use fednmf_data::Loaded;
use fednmf_data::state::Piece;
use fednmf_driver::model_selection;
use fednmf_driver::model_selection::{Component, Similarities};
use fednmf_files::output::matrices;

use super::runs::Sweep;
use crate::commands::provenance::METHOD_OF_V;

/// The consensus of the runs with k components: the file that holds it, and its error and components.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Consensus {
    pub file: PathBuf,
    pub k: usize,
    pub runs: usize,
    /// Root mean squared error on the entries that count, those held out by runs included.
    pub rmse: f64,
    /// The divergence from these entries, if the method minimises one.
    pub divergence: Option<f64>,
    pub components: Vec<Component>,
    /// How similar the components of all runs are, in the order of the components of the consensus.
    #[serde(skip)]
    pub similarities: Option<Similarities>,
}

/// The file of the consensus of a sweep. It has the sweep's own name, if there is one, so that it replaces no file that the
/// summary of another sweep describes.
pub fn file(output: &Path, k: usize, own_name: Option<&str>) -> PathBuf {
    let of_sweep = own_name.map(|name| format!("-of-{name}")).unwrap_or_default();
    output.join(format!("consensus-k{k:04}{of_sweep}.h5"))
}

/// Makes the consensus of the runs with k components, and writes it into this file. Collective in a group, which has the
/// whole matrix.
///
/// # Errors
/// On all ranks of the group, if a file cannot be read or written.
pub fn make(
    sweep: &Sweep<'_>,
    (k, file): (usize, PathBuf),
    loaded: &Loaded<f64>,
    group: &Communicator,
) -> SharedResult<Consensus> {
    let (m, n) = (loaded.header.rows, loaded.header.cols);
    let matched = sweep.matched(k, group)?;
    let method = sweep.method(k);
    let found = model_selection::Consensus::new(matched.as_ref(), (k, method), (loaded, sweep.args.missing), group)?;
    let model_selection::Consensus { first, u, v, rmse, divergence, components, clusters } = found;

    let mut all = sweep.provenance();
    let more = json!({
        "algo": "sweep", METHOD_OF_V: method.description().name, "input": sweep.args.input, "m": m, "n": n, "k": k,
        "runs": sweep.args.runs, "transpose": u8::from(sweep.args.transpose), "missing": sweep.args.missing,
        "checksum": format!("{:016x}", loaded.statistics.checksum), "rmse": rmse, "components": components,
    });
    all.extend(more.as_object().cloned().unwrap_or_default());
    if let Some(divergence) = divergence {
        all.insert("params".into(), json!({"beta": sweep.beta()}));
        all.extend(divergence.is_finite().then(|| (sweep.measure().key().to_string(), json!(divergence))));
    }
    all.extend(sweep.prepared(loaded));
    let own_v = even_part(n, group.size(), group.rank());
    let pieces = [Piece::shared("U", m, first, u.view()), Piece::shared("V", n, own_v.start, v.slice(s![own_v, ..]))];
    matrices::write_factors(group, &file, &pieces, &all, &sweep.annotations())?;
    let similarities = matched.map(|matched| matched.similarities_in(&clusters));
    Ok(Consensus { file, k, runs: sweep.args.runs, rmse, divergence, components, similarities })
}

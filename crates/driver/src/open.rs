//! Opens the input of a run: what is known before it is planned, and the open files.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{CONTROL, Communicator, watchdog};
use fednmf_files as data;
use fednmf_files::Input;
use fednmf_files::output::checkpoint;
use fednmf_files::output::checkpoint::Checkpoint;
use fednmf_files::output::view::ViewFile;
use fednmf_privacy::Public;

use super::checks::{check_grid, share};
use super::nonce::RunNonce;
use super::plan::{Found, Machine, Planned, Saved, check_own_memory, plan};
use super::spec::Spec;
use super::{kernels, precision};

/// A run whose input is open.
pub struct Opened {
    pub found: Found,
    pub files: OpenFiles,
}

/// The open files, for loading.
pub struct OpenFiles {
    pub input: Input,
    /// The file of `--record-view`.
    pub view: Option<Rc<RefCell<ViewFile>>>,
    /// When the input was opened.
    pub since: Instant,
}

impl Opened {
    /// Plans the run. Collective.
    ///
    /// # Errors
    /// As [`plan`].
    pub fn plan(self, spec: &Spec, comm: &Communicator) -> SharedResult<(Planned, OpenFiles)> {
        let planned = plan(spec, &self.found, &Machine::observe(spec, comm))?;
        if planned.is_private() {
            check_own_memory(&planned, &self.files.input, comm)?;
        }
        Ok((planned, self.files))
    }
}

/// Opens the input; `resuming`: there is a checkpoint to continue from; `nonce`: that of a run between sites. Collective.
///
/// # Errors
/// On wrong input, on all ranks alike.
pub fn open(spec: &Spec, comm: &Communicator, resuming: bool, nonce: Option<RunNonce>) -> SharedResult<Opened> {
    check_grid(spec, comm.size()).map_err(Error::on_all_ranks)?;
    let resumed = spec.checkpoint.as_ref().filter(|_| resuming);
    if let Some(path) = resumed {
        checkpoint::roll_back_to_common(path, comm)?;
    }
    let split = comm.agree_on_error(share(spec, comm))?;
    let view = spec.record_view.as_ref().map(|path| ViewFile::create(path, comm.rank()));
    let view = comm.agree_on_error(view.transpose())?;
    if let Some(view) = &view {
        comm.record_view(view.clone());
    }
    watchdog::enter("loading");
    let since = Instant::now();
    let input = data::open(&spec.input, comm)?;
    let streaming = input.check_streaming();
    let saved = resumed.map(|path| saved(spec, comm).map_err(|e| e.at(path.display()).on_all_ranks())).transpose()?;
    let file_counts = input.parts().into_iter().map(|part| part.len()).collect();
    let found = Found { header: input.header().clone(), split, file_counts, streaming, saved, nonce };
    Ok(Opened { found, files: OpenFiles { input, view, since } })
}

/// The choices that the checkpoint of a run records, as far as the run leaves them open. Collective.
///
/// # Errors
/// If this build does not have the kernels, on all ranks alike.
fn saved(spec: &Spec, comm: &Communicator) -> Result<Saved> {
    if spec.precision.is_some() && spec.kernel.is_some() {
        return Ok(Saved::default());
    }
    let path = spec.checkpoint.as_ref().filter(|_| comm.is_root());
    // The resume itself reports a checkpoint that cannot be read.
    let mut attributes = path.and_then(|path| Checkpoint::open(path).ok()).map_or_else(Map::new, |(_, all)| all);
    attributes.retain(|name, _| name == precision::SAVED || name == kernels::USED);
    let Choices(attributes) = comm.broadcast_public(CONTROL, Choices(attributes));
    let kernels = if spec.kernel.is_none() { kernels::saved(&attributes)? } else { None };
    Ok(Saved { precision: precision::saved(&attributes), kernels })
}

/// The precision and the kernels of a run that is resumed.
#[derive(Serialize, Deserialize)]
struct Choices(Map<String, Value>);

impl Public for Choices {
    const WHY: &'static str = "precision and kernels, which settings and the processor decide";
}

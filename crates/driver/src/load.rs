//! Loads the matrix of a planned run, in the blocks that its method works on.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use serde_json::Value;

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::{Communicator, watchdog};
use fednmf_data::assemble::Entries;
use fednmf_data::{GridChooser, GridTraffic, Layout};
use fednmf_files::formats::options::Repeated;
use fednmf_files::output::view::ViewFile;
use fednmf_files::{EntryCheck, InputSpec, Threshold};
use fednmf_linalg::Real;
use fednmf_methods::description::Partition;

use super::checks::{check_form, check_size};
use super::logarithms::warning_of_logarithms;
use super::open::OpenFiles;
use super::plan::{Planned, divided};
use super::{disclosure, grid, missing, notes, streaming};
use crate::progress::Progress;

/// A planned run whose data are loaded.
pub struct Loaded<T: Real> {
    pub planned: Planned,
    /// The data of this rank.
    pub data: fednmf_data::Loaded<T>,
    /// The counts that decided the grid.
    pub grids: Option<Value>,
    pub seconds: f64,
    pub view: Option<Rc<RefCell<ViewFile>>>,
    pub progress: Progress,
}

impl<T: Real> Loaded<T> {
    /// The parties that `rank` hosts, with the rows or columns that are theirs.
    pub fn hosted(&self, rank: usize) -> Vec<(usize, Range<usize>)> {
        let cuts = &self.data.cuts;
        let parts = if matches!(self.data.layout, Layout::PartyColumns { .. }) { &cuts.cols } else { &cuts.rows };
        self.planned.parties.hosted(rank).filter_map(|party| Some((party, parts.get(party)?.clone()))).collect()
    }

    /// The threshold of `--binarize` if the data decided it, by a quantile or by their rounding.
    pub fn decided_threshold(&self) -> Option<f64> {
        let given = self.planned.input.binarize.and_then(Threshold::given);
        self.data.threshold.filter(|threshold| given != Some(*threshold))
    }

    fn warn_of_empty_parties(&mut self) {
        let Planned { parties, .. } = self.planned;
        let partition = self.planned.description().partition;
        let parts = if partition == Partition::PartyRows { &self.data.cuts.rows } else { &self.data.cuts.cols };
        let empty = if partition.is_private() { parts.iter().filter(|part| part.is_empty()).count() } else { 0 };
        if empty > 0 {
            let (_, what) = divided(partition, (0, 0));
            self.progress.warn(&format!(
                "{empty} of the {} parties have no {what} of the matrix and add nothing; take fewer parties, or another \
                 --skew or --split",
                parties.count
            ));
        }
    }

    /// Warns if NaN was declared as missing but there is none, and if stored zeros count as missing. Collective.
    fn warn_of_missing_entries(&mut self, comm: &Communicator) {
        // Which parties have missing entries is private.
        if self.planned.input.allow_nan
            && !self.planned.is_private()
            && let Some(warning) = missing::warning_without_nan(self.data.blocks.first(), comm)
        {
            self.progress.warn(&warning);
        }
        if let Some(group) = self.planned.method.groups().missing
            && let Some(warning) = missing::warning_of_stored_zeros(&group.missing, self.data.stored_zeros)
        {
            self.progress.warn(&warning);
        }
    }
}

/// Loads this rank's part of the matrix. Collective.
///
/// # Errors
/// On all ranks, if the data cannot be read, do not fit the method or the precision, or do not fit into memory.
pub fn load<T: Real>(planned: Planned, files: OpenFiles, comm: &Communicator) -> SharedResult<Loaded<T>> {
    let OpenFiles { input, view, since } = files;
    // A run with a tolerance usually ends before its last iteration.
    let last = planned.spec.tol.is_none().then_some(planned.spec.max_iters);
    let mut progress = Progress::quiet(comm.reports(), planned.spec.quiet, last);
    notes::of_plan(&planned, &mut progress);
    progress.notes(&input.header().notes);
    progress.warnings(&input.header().warnings);
    warn_of_shared_parties(&planned, comm, &mut progress);
    if comm.size() == 1
        && let Some(warning) = notes::unused_tasks()
    {
        progress.warn(&warning);
    }
    let show = &mut |part| {
        watchdog::step();
        progress.loading(part);
    };
    let choose = planned.grid.map(|choice| move |grids: &[GridTraffic]| choice.choose(grids));
    let choose = choose.as_ref().map(|choose| choose as GridChooser);
    let check = |blocks: &[Entries<'_, T>]| disclosure::check_entries(&planned, blocks);
    // Otherwise the ranks are one domain of trust, and a check would only cost time and a message.
    let hides = planned.method.masks_sums() || comm.has_owners();
    let check = hides.then_some(&check as EntryCheck<'_, T>);
    let requested = (&planned.layout, choose);
    let (data, note) = streaming::load::<T>(input, requested, &planned.storage, check, comm, show)?;
    note.iter().for_each(|note| progress.note(note));
    let mut grids = None;
    if let Some(choice) = planned.grid.filter(|_| !data.grids.is_empty()) {
        grids = Some(grid::counted(&choice, &data.grids));
        grid::note(&choice, &data.grids, &data.layout).iter().for_each(|text| progress.note(text));
    }
    let seconds = since.elapsed().as_secs_f64();
    let mut loaded = Loaded { planned, data, grids, seconds, view, progress };
    loaded.warn_of_empty_parties();
    if let (Some(threshold), Some(Threshold::Quantile(_))) = (loaded.data.threshold, loaded.planned.input.binarize) {
        loaded.progress.note(&format!("--binarize: entries from {threshold} on are ones"));
    }
    tell_of_duplicates(loaded.data.duplicates, &loaded.planned.input, &mut loaded.progress);
    loaded.warn_of_missing_entries(comm);
    if let Some(warning) = warning_of_logarithms(loaded.planned.description().measure, loaded.data.blocks.last()) {
        loaded.progress.warn(&warning);
    }
    if let Some(block) = loaded.data.blocks.first() {
        check_form(loaded.planned.description(), block).map_err(Error::on_all_ranks)?;
    }
    check_size(loaded.planned.precision, &loaded.data.statistics).map_err(Error::on_all_ranks)?;
    Ok(loaded)
}

/// Says that entries of the input were given again: a warning, unless `--repeated` says what that means.
pub fn tell_of_duplicates(duplicates: u64, input: &InputSpec, progress: &mut Progress) {
    let given = format!("{duplicates} entries were given more than once and");
    match input.table.repeated {
        _ if duplicates == 0 => {}
        Repeated::Sum => progress.note(&format!("{given} added up")),
        Repeated::Mean => progress.note(&format!("{given} averaged")),
        Repeated::Refuse => {
            progress.warn(&format!(
                "{given} added up; if they are copies of each other, remove all but one from the input"
            ));
        }
    }
}

/// Warns if parties hide little from each other.
fn warn_of_shared_parties(planned: &Planned, comm: &Communicator, progress: &mut Progress) {
    notes::few_parties(planned, progress);
    if planned.is_private() && planned.parties_follow_ranks && comm.size() > 1 && !comm.has_owners() {
        progress.warn(&notes::parties_follow_ranks(planned));
    }
    let input = &planned.input;
    if planned.shows_entries(comm.size()) {
        let of_columns = planned.method.description().partition == Partition::PartyColumns;
        progress.warn(&format!(
            "all ranks read the same file, so no data is private in this run; give each party a file of its own: \
             --input {}-{{party}}.npy",
            if of_columns { "columns" } else { "rows" }
        ));
    }
    // Without masks and owners the ranks are one domain of trust: only files of parties say that there are others.
    if input.by_party()
        && let Some(disclosure) = &planned.disclosure
    {
        progress.warn(&disclosure.reason);
    }
    if input.by_party() && !planned.is_private() {
        progress.warn(&notes::without_parties(planned));
    }
}

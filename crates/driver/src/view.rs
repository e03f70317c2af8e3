//! `--record-view`: in addition to what a rank receives ([`fednmf_comm`]), its own data, the factors that it knows, and the public
//! parameters of the run go to the file.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use ndarray::Array2;
use serde_json::{Map, Value, json};

use fednmf_base::error::Result;
use fednmf_comm::Communicator;
use fednmf_data::Loaded;
use fednmf_data::state::Owner;
use fednmf_files::output::view::ViewFile;
use fednmf_linalg::{Contiguous, Order, Real};
use fednmf_methods::Algorithm;
use fednmf_methods::description::Partition;

use super::plan::Planned;

/// Maximum number of entries of a party's own data that are recorded.
const MOST: usize = 1 << 27;

/// The kind of a party's own data in a view.
pub const DATA: &str = "data";

/// A view that is being recorded, and the parameters that will be written last.
pub struct Viewing {
    file: Rc<RefCell<ViewFile>>,
    comm: Communicator,
    about: Map<String, Value>,
}

impl Viewing {
    /// Records the data of the hosted parties, and collects the public parameters that [`Viewing::finish`] writes.
    pub fn new<T: Real>(
        file: Rc<RefCell<ViewFile>>,
        comm: &Communicator,
        planned: &Planned,
        loaded: &Loaded<T>,
    ) -> Self {
        let partition = planned.description().partition;
        let hosted: Vec<usize> = planned.parties.hosted(comm.rank()).collect();
        if partition.is_private() {
            for (&party, block) in hosted.iter().zip(&loaded.blocks) {
                let (rows, cols) = block.shape();
                if rows * cols > MOST {
                    continue;
                }
                let mut dense = block.order().zeros(rows, cols);
                block.mul(&Array2::eye(cols).view(), &mut dense.view_mut());
                know(comm, DATA, Some(party), &dense);
            }
        }
        let by_columns = partition == Partition::PartyColumns;
        let cuts = if by_columns { &loaded.cuts.cols } else { &loaded.cuts.rows };
        let cuts: Vec<[usize; 2]> = cuts.iter().map(|Range { start, end }| [*start, *end]).collect();
        let order = if loaded.header.sparse { Order::RowMajor } else { Order::ColumnMajor };
        let about = json!({
            "rank": comm.rank(), "hosted": hosted, "private": partition.is_private(), "by_columns": by_columns, "cuts": cuts,
            "entries_by_rows": order == Order::RowMajor, "statistics": loaded.statistics,
        });
        let Value::Object(about) = about else { unreachable!("an object") };
        Viewing { file, comm: comm.clone(), about }
    }

    /// Records the factors that this rank knows after an iteration.
    pub fn turn_to<T: Real>(&self, iteration: usize, algorithm: &dyn Algorithm<T>) {
        self.file.borrow_mut().turn_to(iteration);
        // The factors of some methods have to be gathered first, which would be messages of their own.
        for piece in algorithm.state().matrices {
            let party = if let Owner::Party(party) = piece.owner { Some(party) } else { None };
            know(&self.comm, piece.name, party, &piece.values.to_owned());
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If it, or anything before, could not be written.
    pub fn finish(&self, provenance: Map<String, Value>) -> Result<()> {
        self.comm.end_view();
        let mut about = provenance;
        about.extend(self.about.clone());
        self.file.borrow_mut().finish(about)
    }
}

fn know<T: Real>(comm: &Communicator, kind: &'static str, party: Option<usize>, values: &Array2<T>) {
    let by_rows = values.as_standard_layout();
    comm.knows(kind, party, values.dim(), by_rows.row_major());
}

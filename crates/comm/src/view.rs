//! What a rank receives, for `--record-view`: a hook that each receiving method calls, and a recorder behind it.
//!
//! A view contains three kinds of values: those that the rank received; those that a party derived from them with its own
//! secrets (a sum without its masks, a decrypted answer); and those that it knows already (its data, its factors).

use std::cell::RefCell;
use std::rc::Rc;

use fednmf_linalg::{Element, ElementType};

use super::{Communicator, MessageTag};

/// How a rank learned values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knowledge {
    /// Received, possibly masked or encrypted.
    Received,
    /// Derived from received values with the secrets of a party of this rank.
    Opened,
    /// Known without any message: a party's own data and factors, and the shared ones.
    Own,
}

/// Values that a rank knows.
#[derive(Debug, Clone, Copy)]
pub struct ViewRecord<'a> {
    pub knowledge: Knowledge,
    /// The message kind, or the name of the known values.
    pub kind: &'static str,
    /// The tag of the message; `None` for values that are known without one.
    pub tag: Option<MessageTag>,
    /// The sending party, where it is known.
    pub from: Option<usize>,
    /// The party that learns the values; `None` for all parties of the rank.
    pub to: Option<usize>,
    pub element: ElementType,
    /// Rows and columns; values are row-major. A message is one row.
    pub shape: (usize, usize),
    pub bytes: &'a [u8],
}

/// The recorder of a rank, shared with the code that opened it.
pub(super) type SharedRecorder = Rc<RefCell<dyn Recorder>>;

/// Stores what a rank learns. Errors are stored too and reported at the end.
pub trait Recorder {
    fn saw(&mut self, record: &ViewRecord<'_>);
}

impl Communicator {
    /// Records what this rank receives from now on, here and in all clones, splits and subgroups.
    pub fn record_view(&self, recorder: Rc<RefCell<dyn Recorder>>) {
        *self.view.borrow_mut() = Some(recorder);
    }

    /// Ends the recording.
    pub fn end_view(&self) {
        *self.view.borrow_mut() = None;
    }

    /// Whether a view is recorded; if so, values that only the record needs are computed.
    pub fn is_viewed(&self) -> bool {
        self.view.borrow().is_some()
    }

    fn saw<T: Element>(&self, values: &[T], record: impl FnOnce() -> ViewRecord<'static>) {
        let view = self.view.borrow().clone();
        if let Some(recorder) = view
            && !values.is_empty()
        {
            let record = record();
            let shape = if record.shape == (0, 0) { (1, values.len()) } else { record.shape };
            let (element, bytes) = (T::TYPE, bytemuck::cast_slice(values));
            recorder.borrow_mut().saw(&ViewRecord { element, shape, bytes, ..record });
        }
    }

    /// Records a message as it arrived, or the result of a collective.
    pub(super) fn received<T: Element>(&self, tag: MessageTag, values: &[T]) {
        self.saw(values, || message(Knowledge::Received, tag, None));
    }

    /// Records values that the parties of this rank, or with an `edge` (from, to) only party `to`, derive from a message
    /// with their own secrets.
    pub fn opened<T: Element>(&self, tag: MessageTag, edge: Option<(usize, usize)>, values: &[T]) {
        self.saw(values, || message(Knowledge::Opened, tag, edge));
    }

    /// Records a matrix (row-major) that `party` knows without a message; `None` for all parties of this rank.
    pub fn knows<T: Element>(&self, kind: &'static str, party: Option<usize>, shape: (usize, usize), values: &[T]) {
        self.saw(values, || ViewRecord {
            knowledge: Knowledge::Own,
            kind,
            tag: None,
            from: None,
            to: party,
            element: T::TYPE,
            shape,
            bytes: &[],
        });
    }
}

/// The shape and the values are filled in later.
fn message(knowledge: Knowledge, tag: MessageTag, edge: Option<(usize, usize)>) -> ViewRecord<'static> {
    ViewRecord {
        knowledge,
        kind: tag.kind,
        tag: Some(tag),
        from: edge.map(|(from, _)| from),
        to: edge.map(|(_, to)| to),
        element: u8::TYPE,
        shape: (0, 0),
        bytes: &[],
    }
}

//! The ledger: what was sent, by message kind, and where the time went. It is the performance profile and the privacy audit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fednmf_privacy::Protection;
use fednmf_privacy::transcript::Transcript;

/// What a message carries. Every method's message table assigns one to each message kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payload {
    /// Entries of the data matrix itself, and counts of them (loading in distributed methods, whose ranks may see all data).
    Data,
    /// A sketch of the data.
    Sketch,
    /// A factor that all parties share.
    SharedFactor,
    /// A sketched factor.
    SketchedFactor,
    /// A k × k Gram matrix of a factor.
    Gram,
    /// A product of data and factor, summed over its owners.
    Product,
    /// Single numbers: norms, errors, counts.
    Scalar,
    /// Encrypted numbers.
    Ciphertext,
    /// Numbers under masks that cancel in the sum over parties.
    Masked,
    /// Secret shares of numbers.
    Shares,
    /// What the data determine beside their entries: shapes, names, whether a step failed.
    Metadata,
    /// Values of types that are [`Public`](fednmf_privacy::Public), and keys; see [`ControlTag`].
    Control,
}

impl Payload {
    /// Its name in traces, in views and in transcripts, which are signed: it must never change.
    pub const fn name(self) -> &'static str {
        match self {
            Payload::Data => "Data",
            Payload::Sketch => "Sketch",
            Payload::SharedFactor => "SharedFactor",
            Payload::SketchedFactor => "SketchedFactor",
            Payload::Gram => "Gram",
            Payload::Product => "Product",
            Payload::Scalar => "Scalar",
            Payload::Ciphertext => "Ciphertext",
            Payload::Masked => "Masked",
            Payload::Shares => "Shares",
            Payload::Metadata => "Metadata",
            Payload::Control => "Control",
        }
    }

    /// Whether it is part of the computation of a method, and not of loading and control.
    pub const fn is_of_method(self) -> bool {
        !matches!(self, Payload::Data | Payload::Metadata | Payload::Control)
    }
}

impl std::fmt::Display for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of a message as shown in profile and audit, its payload and its protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageTag {
    pub kind: &'static str,
    pub payload: Payload,
    /// Whether it is part of evaluations, which `--eval-every 0` disables.
    pub evaluation: bool,
    protection: Protection,
}

/// The kind of a control message. Only values of types that are [`Public`](fednmf_privacy::Public), and keys, can be sent
/// under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlTag {
    pub kind: &'static str,
}

impl ControlTag {
    pub const fn new(kind: &'static str) -> Self {
        ControlTag { kind }
    }

    /// As the ledger records it.
    pub(super) const fn recorded(self) -> MessageTag {
        MessageTag { kind: self.kind, payload: Payload::Control, evaluation: false, protection: Protection::Public }
    }
}

impl MessageTag {
    /// The tag of a message in the clear, unless the type of the sent values implies a protection.
    ///
    /// ```compile_fail,E0080
    /// # use fednmf_comm::{MessageTag, Payload};
    /// // Numbers that pretend to be control.
    /// const NONZEROS: MessageTag = MessageTag::new("nonzeros", Payload::Control);
    /// ```
    ///
    /// # Panics
    /// If the payload is control, which needs a [`ControlTag`].
    pub const fn new(kind: &'static str, payload: Payload) -> Self {
        assert!(!matches!(payload, Payload::Control), "control messages have a ControlTag");
        MessageTag { kind, payload, evaluation: false, protection: Protection::Declared }
    }

    /// As [`MessageTag::new`], for a message of evaluations.
    ///
    /// # Panics
    /// As [`MessageTag::new`].
    pub const fn of_evaluation(kind: &'static str, payload: Payload) -> Self {
        MessageTag { evaluation: true, ..MessageTag::new(kind, payload) }
    }

    /// The tag of the same values under masks.
    pub const fn masked(self) -> Self {
        MessageTag { payload: Payload::Masked, ..self }
    }

    /// How the message is protected.
    pub const fn protection(self) -> Protection {
        self.protection
    }

    /// This tag with the protection that the type of the sent values implies.
    ///
    /// # Panics
    /// If the payload claims another protection.
    pub(super) fn under(self, protection: Protection) -> Self {
        let masked = matches!(protection, Protection::Masked | Protection::MaskedNoised);
        assert_eq!(self.payload == Payload::Masked, masked, "{}", self.kind);
        assert_eq!(self.payload == Payload::Ciphertext, protection == Protection::Encrypted, "{}", self.kind);
        assert_eq!(self.payload == Payload::Shares, protection == Protection::Shared, "{}", self.kind);
        MessageTag { protection, ..self }
    }
}

/// Totals of one message kind or phase on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Entry {
    /// Calls of the communicator, or executions of the phase.
    pub calls: u64,
    /// Wall time, waiting included.
    pub seconds: f64,
    /// Bytes that the hosted parties sent and received.
    pub party_bytes: u64,
    /// Bytes that the rank sent to and received from others: 0 if it is the only rank.
    pub mpi_bytes: u64,
    /// Calls of the transport; more than `calls` if messages were cut. 0 if it is the only rank.
    pub messages: u64,
    /// Floating-point operations of local work, as counted by the kernels.
    pub flops: u64,
}

impl Entry {
    fn add(&mut self, other: &Entry) {
        self.calls += other.calls;
        self.seconds += other.seconds;
        self.party_bytes += other.party_bytes;
        self.mpi_bytes += other.mpi_bytes;
        self.messages += other.messages;
        self.flops += other.flops;
    }
}

/// Checks a message before it is sent; an error says why it is not allowed.
pub type SendFilter = Box<dyn Fn(MessageTag) -> Result<(), String>>;

/// Called with the parties of a sum before it is opened; an error ends the run on this rank.
pub type SumGuard = Box<dyn FnMut(&[bool]) -> Result<(), fednmf_base::error::Error>>;

/// All entries of one rank.
///
/// Messages and local work do not overlap; a span covers some of both. Edges repeat messages between parties, by sender and
/// receiver.
#[derive(Default)]
pub struct Ledger {
    /// The messages that a policy allows, if there is a policy.
    pub(super) send_filter: Option<SendFilter>,
    /// What has to agree to the parties of a sum, if anything.
    pub(super) sum_guard: Option<SumGuard>,
    /// The hash chain of sent messages, with `--transcript`.
    pub(super) transcript: Option<Arc<Mutex<Option<Transcript>>>>,
    messages: BTreeMap<MessageTag, Entry>,
    work: BTreeMap<&'static str, Entry>,
    spans: BTreeMap<&'static str, Entry>,
    edges: BTreeMap<(usize, usize), Entry>,
    /// Processor time of local work.
    cpu_seconds: f64,
}

impl Ledger {
    /// Records a message.
    pub fn sent(&mut self, tag: MessageTag, entry: &Entry) {
        self.messages.entry(tag).or_default().add(entry);
    }

    /// Records local work, with its wall time and the processor time of all threads.
    pub fn record_work(&mut self, phase: &'static str, [seconds, cpu]: [f64; 2], flops: u64) {
        self.cpu_seconds += cpu;
        self.work.entry(phase).or_default().add(&Entry { calls: 1, seconds, flops, ..Entry::default() });
    }

    /// Records a span of work and communication, whose parts are recorded separately too.
    pub fn record_span(&mut self, phase: &'static str, seconds: f64) {
        self.spans.entry(phase).or_default().add(&Entry { calls: 1, seconds, ..Entry::default() });
    }

    /// Processor time of local work in seconds; less than its wall time if there are more ranks than cores.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }

    /// Spans by phase.
    pub fn spans(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.spans.iter().map(|(name, entry)| (*name, entry))
    }

    /// Records a message between two parties also under its edge: with its bytes on the sender's rank, and with only
    /// the seconds on the receiver's rank if that is another one.
    pub fn record_edge(&mut self, edge: (usize, usize), entry: &Entry) {
        self.edges.entry(edge).or_default().add(entry);
    }

    /// Messages by (sending party, receiving party), for methods whose parties have neighbours.
    pub fn edges(&self) -> impl Iterator<Item = ((usize, usize), &Entry)> {
        self.edges.iter().map(|(edge, entry)| (*edge, entry))
    }

    /// All messages by kind and payload.
    pub fn messages(&self) -> impl Iterator<Item = (&MessageTag, &Entry)> {
        self.messages.iter()
    }

    /// Local work by phase.
    pub fn work(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.work.iter().map(|(name, entry)| (*name, entry))
    }

    /// The sum over the method's messages: all but those of loading and control.
    pub fn algorithm_total(&self) -> Entry {
        let mut total = Entry::default();
        for (tag, entry) in &self.messages {
            if tag.payload.is_of_method() {
                total.add(entry);
            }
        }
        total
    }
}

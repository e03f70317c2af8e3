//! The ledger: what was sent for which purpose, and where the time went. Performance profile and privacy audit in one.

use std::collections::BTreeMap;

/// What kind of thing a message carries. The wire table of an algorithm is a list of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub enum Payload {
    /// Entries of the data matrix itself (loading of algorithms whose ranks are one trust domain).
    Data,
    /// A sketch of the data.
    Sketch,
    /// A factor that all parties share.
    SharedFactor,
    /// A sketched factor.
    SketchedFactor,
    /// A k × k Gram matrix of a factor.
    Gram,
    /// A product of data and factor, summed over owners.
    Product,
    /// Single numbers: norms, errors, counts.
    Scalar,
    Ciphertext,
    Masked,
    /// Flags, seeds, shapes: nothing that depends on data entries.
    Control,
}

/// What a message is for: its name in profile and audit, and what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageTag {
    pub kind: &'static str,
    pub payload: Payload,
}

impl MessageTag {
    pub const fn new(kind: &'static str, payload: Payload) -> Self {
        MessageTag { kind, payload }
    }
}

/// Totals of one purpose or phase on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Entry {
    pub calls: u64,
    pub seconds: f64,
    /// What the hosted parties handed over and got back.
    pub party_bytes: u64,
    /// What crossed the rank's border: 0 on one rank.
    pub mpi_bytes: u64,
    /// MPI calls behind it (more than `calls` where a message was cut into chunks).
    pub messages: u64,
    /// Floating-point operations of local work, as far as kernels count them.
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

/// All entries of one rank.
#[derive(Debug, Default)]
pub struct Ledger {
    messages: BTreeMap<MessageTag, Entry>,
    work: BTreeMap<&'static str, Entry>,
    spans: BTreeMap<&'static str, Entry>,
    edges: BTreeMap<(usize, usize), Entry>,
}

impl Ledger {
    /// Books a message.
    pub fn sent(&mut self, tag: MessageTag, entry: &Entry) {
        self.messages.entry(tag).or_default().add(entry);
    }

    /// Books local work.
    pub fn worked(&mut self, phase: &'static str, seconds: f64, flops: u64) {
        self.work.entry(phase).or_default().add(&Entry { calls: 1, seconds, flops, ..Entry::default() });
    }

    /// Books a span of work and communication together, whose parts are booked on their own too.
    pub fn spanned(&mut self, phase: &'static str, seconds: f64) {
        self.spans.entry(phase).or_default().add(&Entry { calls: 1, seconds, ..Entry::default() });
    }

    /// Spans by phase.
    pub fn spans(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.spans.iter().map(|(name, entry)| (*name, entry))
    }

    /// Books a message from one party to another once more, by its edge: on the sender's rank with its bytes, on the
    /// receiver's, if that is another one, with the seconds alone.
    pub fn passed(&mut self, edge: (usize, usize), entry: &Entry) {
        self.edges.entry(edge).or_default().add(entry);
    }

    /// Messages by (sending party, receiving party), where parties have neighbours.
    pub fn edges(&self) -> impl Iterator<Item = ((usize, usize), &Entry)> {
        self.edges.iter().map(|(edge, entry)| (*edge, entry))
    }

    /// All messages by purpose and payload.
    pub fn messages(&self) -> impl Iterator<Item = (&MessageTag, &Entry)> {
        self.messages.iter()
    }

    /// Local work by phase.
    pub fn work(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.work.iter().map(|(name, entry)| (*name, entry))
    }

    /// Sum over all messages but loading's and the driver's own.
    pub fn algorithm_total(&self) -> Entry {
        let mut total = Entry::default();
        for (tag, entry) in &self.messages {
            if !matches!(tag.payload, Payload::Data | Payload::Control) {
                total.add(entry);
            }
        }
        total
    }
}

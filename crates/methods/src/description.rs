//! What a method declares about itself: name, paper, layout of the data, messages, limits.

use fednmf_base::error::{Error, Result};
use fednmf_comm::party_sum::{KEYS, masked};
use fednmf_comm::{AGREEMENT, CONTROL, ControlTag, LARGEST, MessageTag, Payload};
use fednmf_data as data;
use fednmf_data::Stack;
use fednmf_data::messages::{CHECKPOINT, CHECKPOINT_SHAPES, DIVERGED, NORMS, OUTPUT, OUTPUT_SHAPES, SAMPLE, SUMMARY};
use fednmf_privacy::{BudgetUnit, Protection};

use crate::metrics::Measure;

/// What one iteration is: what `--max-iters` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// One update of U and one of V.
    Update,
    /// The rows of U of one batch, and one update of V.
    Batch,
    /// One exchange between the parties.
    Round,
    /// One party's turn and its merge at the server.
    Merge,
    /// One update of U and one of V at every party; they exchange at the end.
    Local,
    /// One component found at every party; they exchange at the end.
    Component,
}

impl Unit {
    /// The text for `fednmf list`.
    pub fn describe(self) -> &'static str {
        match self {
            Unit::Update => "one update of U and one of V",
            Unit::Batch => "the rows of U of one batch, and one update of V",
            Unit::Round => "one round of exchange between the parties",
            Unit::Merge => "one party's turn and its merge at the server",
            Unit::Local => "one update of U and one of V at every party; they exchange at the end",
            Unit::Component => "one component at every party; they exchange at the end",
        }
    }
}

/// How the data is split; see [`Layout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    Grid,
    Rows,
    RowsAndColumns,
    /// The matrix is symmetric, and a rank owns the same rows of both factors.
    Symmetric,
    PartyRows,
    PartyColumns,
}

impl Partition {
    /// The text for `fednmf list`.
    pub fn describe(self) -> &'static str {
        match self {
            Partition::Grid => "blocks of a grid over ranks",
            Partition::Rows => "rows over ranks",
            Partition::RowsAndColumns => "rows and columns over ranks",
            Partition::Symmetric => "columns of a symmetric matrix over ranks",
            Partition::PartyRows => "rows by party",
            Partition::PartyColumns => "columns by party",
        }
    }

    /// How `{party}` files are combined.
    pub fn stack(self) -> Stack {
        if self == Partition::PartyColumns { Stack::Columns } else { Stack::Rows }
    }

    /// Whether the blocks belong to parties, whose data stays with them.
    pub fn is_private(self) -> bool {
        matches!(self, Partition::PartyRows | Partition::PartyColumns)
    }

    /// Refuses a matrix that is not square where it must be symmetric.
    ///
    /// # Errors
    /// If the matrix is not square; the message gives its shape.
    pub fn check_shape(self, rows: usize, cols: usize) -> Result<()> {
        if self != Partition::Symmetric || rows == cols {
            return Ok(());
        }
        Err(Error::input(format!(
            "the matrix is {rows} x {cols}, and a symmetric factorisation takes a square matrix of similarities, such as \
             the adjacency matrix of a graph (--format edges reads a list of its edges); for other matrices use --algo auto"
        )))
    }
}

/// The forms of a local block that a method can work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Dense,
    Sparse,
    Bits,
}

/// One line of a method's message table: a message kind that leaves a rank or a party.
#[derive(Debug, Clone, Copy)]
pub struct MessageSpec {
    /// The message kind in the ledger.
    pub kind: &'static str,
    pub payload: Payload,
    /// What it holds, and when it is sent, in every run.
    pub shape: &'static str,
    pub when: &'static str,
    /// What follows these two texts where no sites take part, and where no data are private.
    under_mpirun: [&'static str; 2],
    if_shared: [&'static str; 2],
    /// Whether it is part of evaluations, which `--eval-every 0` disables.
    pub evaluation: bool,
    /// Whether the message is sent in the clear even if sums are masked.
    pub always_shown: bool,
    /// Whether noise is added to it with `--dp`.
    pub noised: bool,
    /// Whether it is sent only by a run that has lost a party.
    pub after_loss: bool,
    /// Whether it is recorded of parties that share a rank, and no rank sends it.
    pub within_rank: bool,
    /// Whether each message goes to a single party.
    pub to_one: bool,
    /// What [`Description::protection`] says of it, if its payload does not say enough.
    pub protection: Option<&'static str>,
}

impl MessageSpec {
    pub const fn new(tag: MessageTag, shape: &'static str, when: &'static str) -> Self {
        let MessageTag { kind, payload, evaluation, .. } = tag;
        let (always_shown, noised, after_loss, within_rank, to_one) = (false, false, false, false, false);
        MessageSpec {
            kind,
            payload,
            shape,
            when,
            under_mpirun: [""; 2],
            if_shared: [""; 2],
            evaluation,
            always_shown,
            noised,
            after_loss,
            within_rank,
            to_one,
            protection: None,
        }
    }

    /// A control message, whose values are public.
    pub const fn control(tag: ControlTag, shape: &'static str, when: &'static str) -> Self {
        let spec = MessageSpec::new(AGREEMENT, shape, when);
        MessageSpec { kind: tag.kind, payload: Payload::Control, ..spec }
    }

    /// The message, whose shape and time are followed by this where no sites take part.
    #[must_use]
    pub const fn under_mpirun(self, shape: &'static str, when: &'static str) -> Self {
        MessageSpec { under_mpirun: [shape, when], ..self }
    }

    /// The message, whose shape and time are followed by this where no data are private.
    #[must_use]
    pub const fn if_shared(self, shape: &'static str, when: &'static str) -> Self {
        MessageSpec { if_shared: [shape, when], ..self }
    }

    /// Its shape and time in full, and where data are `private` without what does not apply to them.
    pub fn in_words(&self, private: bool) -> [String; 2] {
        let [shape, when] = if private { [""; 2] } else { self.if_shared };
        [[self.shape, self.under_mpirun[0], shape].concat(), [self.when, self.under_mpirun[1], when].concat()]
    }

    /// The message, which is in the clear also where sums are masked.
    #[must_use]
    pub const fn always_shown(self) -> Self {
        MessageSpec { always_shown: true, ..self }
    }

    /// The message, which has noise with `--dp`.
    #[must_use]
    pub const fn noised(self) -> Self {
        MessageSpec { noised: true, ..self }
    }

    /// The message, which only a run that has lost a party sends.
    #[must_use]
    pub const fn after_loss(self) -> Self {
        MessageSpec { after_loss: true, ..self }
    }

    /// The message, which parties send on their own rank.
    #[must_use]
    pub const fn within_rank(self) -> Self {
        MessageSpec { within_rank: true, ..self }
    }

    /// The message, which goes to a single party.
    #[must_use]
    pub const fn to_one(self) -> Self {
        MessageSpec { to_one: true, ..self }
    }

    /// The message, which is also sent by runs without evaluations.
    #[must_use]
    pub const fn also_at_the_end(self) -> Self {
        MessageSpec { evaluation: false, ..self }
    }

    /// The message, of whose protection the table says this.
    #[must_use]
    pub const fn under(self, protection: &'static str) -> Self {
        MessageSpec { protection: Some(protection), ..self }
    }

    /// Whether only a run that protects nothing sends the message (`--plain`).
    pub fn is_plain(&self) -> bool {
        self.kind.contains("(--plain)")
    }
}

/// The largest term of an exact sum over parties, for the message table of methods that sum in the clear.
pub const LARGEST_TERM: MessageSpec =
    MessageSpec::new(LARGEST, "1 for each party", "each sum over parties that is not masked");

/// The protection of names, which are no entries, but content of a file.
pub const NAMES_IN_THE_CLEAR: &str = "in the clear: all parties can read them, and names are content of a file";

/// What [`Description::in_words`] replaces: the names that private files must have in common.
const COMMON_NAMES: &str = "the names that the files have in common";

/// The end of what says when a masked message is sent.
const WITH_MASKS: &str = ", with --secure-sum";

/// Messages of every method that leave a rank or party: while the data is loaded, and around the iterations.
pub static COMMON_MESSAGES: &[MessageSpec] = &[
    MessageSpec::control(
        CONTROL,
        "a few words",
        "decisions of rank 0: when to evaluate, to save, to stop; settings that it read",
    ),
    MessageSpec::new(
        AGREEMENT,
        "a flag",
        "before and after each step that may fail",
    )
    .under_mpirun("; under mpirun also the text of an error", ""),
    MessageSpec::new(
        data::HEADERS,
        "of each party's file its shape, whether it is sparse, and a digest of the names that the files have in common",
        "once, while loading",
    )
    .under_mpirun("; under mpirun also the description of a file that all ranks read", ""),
    MessageSpec::new(
        data::NAME_DIGESTS,
        "32 random bytes of each rank, which together are a key; a digest under this key of the name of each column of each \
         party's file, with which another party can confirm a guessed name",
        "once, while loading, with --common-columns",
    )
    .under("keyed digests: all parties have the key, and can confirm a guessed name"),
    MessageSpec::new(
        data::COUNTS,
        "counts of the entries of rows and columns",
        "while loading, where one file holds all data",
    ),
    MessageSpec::new(
        data::ENTRIES,
        "entries",
        "while loading, where one file holds the data of several ranks; not with a file for each party",
    ),
    MessageSpec::new(
        data::STATISTICS,
        "sum, norm and number of the nonzeros",
        "once, while loading",
    )
    .if_shared("; without private data range and hash of the entries too", ""),
    MessageSpec::new(
        masked(data::STATISTICS),
        "sum, norm and number of the nonzeros of all data",
        "the same, with --secure-sum",
    ),
    MessageSpec::control(KEYS, "32 bytes", "once, while loading, for the sums there, with --secure-sum"),
    MessageSpec::new(data::LARGEST_ENTRY, "1", "once, while loading, with --scale max"),
    MessageSpec::new(
        data::NAMES,
        "names of the common rows or columns, if the input has them",
        "once, before the first iteration, with --output",
    )
    .if_shared(
        "; without private data all names",
        "; without private data also for --init FILE and --missing FILE",
    )
    .under(NAMES_IN_THE_CLEAR),
    MessageSpec::new(OUTPUT, "rows of the shared factor that the receiver does not have", "once, with --output")
        .under_mpirun("; both factors if no data are private", ""),
    MessageSpec::control(OUTPUT_SHAPES, "numbers of rows and columns of the factors, none of their entries", "once, with --output"),
    MessageSpec::new(DIVERGED, "a flag", "before each save, and at the end"),
    MessageSpec::new(
        SUMMARY,
        "number and bytes of each rank's messages",
        "once, at the end",
    )
    .if_shared("; without private data its times, operations and memory too", ""),
    MessageSpec::new(CHECKPOINT, "the shared factor", "each checkpoint")
        .under_mpirun("; both factors if no data are private", ""),
    MessageSpec::control(
        CHECKPOINT_SHAPES,
        "numbers of rows and columns of the factors, none of their entries, and the number of the checkpoint",
        "each checkpoint",
    ),
];

/// Additional messages of methods without parties, whose data is not private.
pub static RANK_MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(data::MEMORY, "name, and memory needed and free", "twice, before loading"),
    MessageSpec::new(NORMS, "largest entry and norm of each component", "once, with --output, --add-to or --report"),
    MessageSpec::new(SAMPLE, "a sample of the rows or columns of the matrix", "once, with --report"),
];

fednmf_base::words! {
    /// What differential privacy hides: neighbouring inputs differ in one of these.
    pub enum ProtectedUnit {
        /// The whole data of a party
        Party = "party",
        /// A column of the data
        Column = "column",
    }
}

impl ProtectedUnit {
    /// The unit in the input as it is in its file, before it is perhaps `transposed`.
    pub fn of_input(self, transposed: bool) -> BudgetUnit {
        match (self, transposed) {
            (ProtectedUnit::Party, _) => BudgetUnit::Party,
            (ProtectedUnit::Column, false) => BudgetUnit::Column,
            (ProtectedUnit::Column, true) => BudgetUnit::Row,
        }
    }
}

/// Whether a method offers `--dp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferentialPrivacy {
    Offered(ProtectedUnit),
    /// Not offered, with the reason.
    Refused(&'static str),
}

/// Why methods without parties have no `--dp`.
pub const NO_PARTIES: DifferentialPrivacy =
    DifferentialPrivacy::Refused("its ranks are one domain of trust, nothing leaves a party");

/// When a run stops by default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DefaultStop {
    pub max_iters: usize,
    /// The default of `--tol`, if `--max-iters` is not given either and the run has evaluations.
    pub tol: Option<f64>,
}

impl DefaultStop {
    /// The number of iterations and the tolerance of a run with these options. If a number of iterations is given, there is no
    /// default tolerance.
    pub fn resolve(self, max_iters: Option<usize>, tol: Option<f64>, evaluates: bool) -> (usize, Option<f64>) {
        match max_iters {
            Some(max_iters) => (max_iters, tol),
            None if evaluates => (self.max_iters, tol.or(self.tol)),
            None => (Description::USUAL.stop.max_iters, tol),
        }
    }
}

/// What a method declares about itself.
#[derive(Debug)]
pub struct Description {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// One line for `--help` and `list`.
    pub summary: &'static str,
    pub paper: &'static str,
    pub partition: Partition,
    pub unit: Unit,
    pub forms: &'static [Form],
    /// Whether the data may have negative entries.
    pub allows_negative: bool,
    pub dp: DifferentialPrivacy,
    /// Whether the method computes on secret shares at three parties: nothing can be evaluated before the end, and at least three
    /// sites are needed.
    pub on_shares: bool,
    /// Whether the updates multiply entries, so that a zero entry stays zero.
    pub keeps_zeros: bool,
    /// The leading measure, which progress and summary show first.
    pub measure: Measure,
    pub stop: DefaultStop,
    /// Guarantees that a private method does not give, in two lines; `None` if the ranks are one trust domain.
    pub limits: Option<[&'static str; 2]>,
    pub messages: &'static [MessageSpec],
}

impl Description {
    /// The defaults of a declaration: a distributed method that minimises the squared error of a nonnegative matrix.
    pub const USUAL: Description = Description {
        name: "",
        aliases: &[],
        summary: "",
        paper: "",
        partition: Partition::RowsAndColumns,
        unit: Unit::Update,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        dp: NO_PARTIES,
        on_shares: false,
        keeps_zeros: false,
        measure: Measure::RelativeError,
        stop: DefaultStop { max_iters: 100, tol: None },
        limits: None,
        messages: &[],
    };

    /// The method's name and its aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Whether `name` is the method's name or an alias, in upper or lower case.
    pub fn is_called(&self, name: &str) -> bool {
        self.names().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// The message table, including the messages of every method.
    pub fn all_messages(&self) -> impl Iterator<Item = &'static MessageSpec> {
        let private = self.partition.is_private();
        let of_ranks = if private { &[] } else { RANK_MESSAGES };
        // Only sums of parties are masked.
        let on_shares = self.on_shares;
        let common = COMMON_MESSAGES.iter().filter(move |w| match w.payload {
            Payload::Masked => private,
            // Methods on secret shares always mask them.
            _ if w.kind == data::STATISTICS.kind => !on_shares,
            _ => private || w.kind != KEYS.kind,
        });
        common.chain(of_ranks).chain(self.messages)
    }

    /// What the message has in a run of this method, and when it is sent.
    pub fn in_words(&self, message: &MessageSpec) -> [String; 2] {
        let [shape, when] = message.in_words(self.partition.is_private());
        let shape = match self.partition {
            Partition::PartyRows if message.kind == data::NAMES.kind => {
                "names of the columns, if the files have them; names of rows stay with their party".into()
            }
            Partition::PartyColumns if message.kind == data::NAMES.kind => {
                "names of the rows, if the files have them; names of columns stay with their party".into()
            }
            Partition::PartyRows => shape.replace(COMMON_NAMES, "the names of the columns"),
            Partition::PartyColumns => shape.replace(COMMON_NAMES, "the names of the rows"),
            _ => shape,
        };
        [shape, self.when(&when).into()]
    }

    /// When a message is sent that a table of all methods has. Methods on secret shares always mask, without an option.
    pub fn when<'w>(&self, when: &'w str) -> &'w str {
        match (self.on_shares, when.strip_suffix(WITH_MASKS)) {
            (true, Some("the same")) => "once, while loading",
            (true, Some(when)) => when,
            _ => when,
        }
    }

    /// The privacy unit of `--dp`; `None` if the method has no `--dp`.
    pub fn protects(&self) -> Option<ProtectedUnit> {
        if let DifferentialPrivacy::Offered(unit) = self.dp { Some(unit) } else { None }
    }

    /// Whether noise is added to this message with `--dp`.
    pub fn adds_noise_to(&self, message: &MessageSpec) -> bool {
        self.protects().is_some() && (message.payload == Payload::SharedFactor || message.noised)
    }

    /// Whether the method factorises only matrices of zeros and ones.
    pub fn is_boolean(&self) -> bool {
        self.forms.contains(&Form::Bits)
    }

    /// Whether the ledger may record `message` under `protection`.
    pub fn allows(&self, message: &MessageSpec, protection: &str) -> bool {
        let allowed = match message.payload {
            Payload::Ciphertext => &[Protection::Encrypted][..],
            Payload::Masked => &[Protection::Masked, Protection::MaskedNoised],
            Payload::Shares => &[Protection::Shared],
            Payload::Control => &[Protection::Public],
            // Starts are public.
            Payload::SharedFactor => &[Protection::Public, Protection::Declared, Protection::Noised],
            _ => &[Protection::Declared, Protection::Noised],
        };
        allowed.iter().any(|one| one.name() == protection)
    }

    /// How a message is protected from those who relay or receive it, as text.
    pub fn protection(&self, message: &MessageSpec) -> String {
        if let Some(protection) = message.protection {
            return protection.into();
        }
        let clear = match message.payload {
            Payload::Ciphertext => return "encrypted".into(),
            Payload::Masked => return "masked: only the sum of all parties can be read".into(),
            Payload::Shares => return "secret shares: uniformly random to each receiver".into(),
            Payload::Control => return "public: settings, decisions or keys, computed from no data".into(),
            Payload::Metadata => return "in the clear: sizes, flags and digests, no value of a table".into(),
            _ => "in the clear",
        };
        let masked = self.all_messages().any(|w| w.kind == message.kind && w.payload == Payload::Masked);
        let noised = self.adds_noise_to(message);
        let more = [(masked, "masked with --secure-sum"), (noised, "noised with --dp")];
        let more: Vec<&str> = more.into_iter().filter_map(|(is, text)| is.then_some(text)).collect();
        if more.is_empty() { clear.into() } else { format!("{clear}; {}", more.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    #[test]
    fn where_data_are_private_the_table_leaves_out_what_is_sent_without() {
        let method = |name: &str| registry::find(name).unwrap().description();
        let words = |name, kind| {
            let method: &Description = method(name);
            method.in_words(method.all_messages().find(|w| w.kind == kind).unwrap()).join(" | ")
        };
        let summary = "number and bytes of each rank's messages";
        assert_eq!(words("fnmf", SUMMARY.kind), format!("{summary} | once, at the end"));
        let more = "; without private data its times, operations and memory too";
        assert_eq!(words("hals", SUMMARY.kind), format!("{summary}{more} | once, at the end"));
        let shared = "the shared factor; both factors if no data are private | each checkpoint";
        assert_eq!([words("fnmf", CHECKPOINT.kind), words("hals", CHECKPOINT.kind)], [shared, shared]);
    }
}

//! What leaves a site in a run: the messages of the method's table that its options do not exclude, each with the protection that
//! it has in this run. A test compares them with the transcripts of runs.

use std::os::fd::AsFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use fednmf_base::units::bytes;
use fednmf_comm::party_sum::{ANSWERS, KEYS, ROUND_KEYS, SEALED_SHARES};
use fednmf_comm::{LARGEST, Payload};
use fednmf_data as data;
use fednmf_data::Sharing;
use fednmf_data::messages::{CHECKPOINT, OUTPUT};
use fednmf_driver::spec::sharing;
use fednmf_methods::description::{COMMON_MESSAGES, Description, MessageSpec, Partition, Unit};
use fednmf_methods::federated::rows::fnmf::barycenter::{INSIDE, SUM_V};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;
use fednmf_methods::shared::dp;
use fednmf_privacy::Protection;

use crate::commands::list;

/// A kind of message that leaves a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub what: String,
    pub payload: String,
    /// In bytes, as far as the parameters decide it.
    pub size: String,
    pub when: String,
    /// Begins with the name of the protection.
    pub protection: String,
    /// Who can read it.
    #[serde(default)]
    pub read_by: String,
}

/// The protection of a message without one.
const IN_THE_CLEAR: &str = "in the clear";

impl Message {
    /// A message of a table, under this protection.
    pub fn new(w: &MessageSpec, protection: String) -> Message {
        let read_by = match w.payload {
            Payload::Masked => "all sites: only the sum",
            Payload::Shares => "nobody: a share",
            Payload::Ciphertext => "one site",
            _ if w.to_one => "one site",
            _ => "all sites",
        };
        Message {
            what: w.kind.into(),
            payload: w.payload.name().into(),
            size: w.shape.into(),
            when: w.when.into(),
            protection,
            read_by: read_by.into(),
        }
    }

    /// Whether it holds results of the data, and the receivers can read it.
    pub fn is_in_the_clear(&self) -> bool {
        self.protection == IN_THE_CLEAR
    }

    /// Its protection in ledger and transcript.
    pub fn protected(&self) -> Protection {
        let name = self.protection.split([':', ';']).next().unwrap_or_default();
        Protection::from_name(name).unwrap_or(Protection::Declared)
    }

    /// The cells of its row in a table.
    fn row(&self) -> [String; 5] {
        let Message { what, payload, size, when, protection, read_by } = self;
        let protection = format!("{protection}\nread by {read_by}");
        [what.clone(), payload.clone(), size.clone(), when.clone(), protection]
    }
}

/// Messages as text for this stream.
pub fn table(messages: &[Message], stream: impl AsFd) -> String {
    let heading = ["what", "payload", "size", "how often", "protection"];
    let table = list::messages_to_read(heading, &messages.iter().map(Message::row).collect::<Vec<_>>(), stream);
    let is_formula = |message: &Message| message.size.split(' ').any(|word| ["k", "m", "n"].contains(&word));
    let letters = match messages.iter().any(is_formula) {
        true => "\nSizes: m and n are the rows and columns of the matrix that is factorised, k the components.\n",
        false => "",
    };
    table + letters
}

/// A factorisation, described by the parameters that all sites agree on. All that a proposal says of it follows from them.
pub struct AgreedRun<'a> {
    pub method: Arc<dyn ConfiguredMethod>,
    parameters: &'a Map<String, Value>,
}

impl<'a> AgreedRun<'a> {
    /// `None` if the parameters are not those of a method.
    pub fn of(parameters: &'a Map<String, Value>) -> Option<Self> {
        let method = registry::find(parameters.get("algo")?.as_str()?)?;
        let text = |name: &str| match parameters.get(name)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            value => Some(value.to_string()),
        };
        Some(AgreedRun { method: method.recorded(&text), parameters })
    }

    pub fn count(&self, name: &str) -> usize {
        self.parameters.get(name).and_then(Value::as_u64).unwrap_or(0) as usize
    }

    pub fn is(&self, name: &str, value: impl Into<Value>) -> bool {
        self.parameters.get(name) == Some(&value.into())
    }

    /// All that may leave a site.
    pub fn messages(&self) -> Vec<Message> {
        let run = Sent::of(self);
        let own = |w| {
            run.sends(w).then(|| Message { size: run.size(w), when: run.when(w), ..Message::new(w, run.protection(w)) })
        };
        let mut all: Vec<Message> = run.description.all_messages().filter_map(own).collect();
        all.extend(run.other_protections());
        all
    }
}

/// What decides which messages a run sends.
struct Sent<'a> {
    run: &'a AgreedRun<'a>,
    method: &'a dyn ConfiguredMethod,
    description: &'static Description,
    masked: bool,
    noised: bool,
    /// Whether its sums go on without parties that drop out.
    survives: bool,
    evaluates: bool,
}

impl<'a> Sent<'a> {
    fn of(run: &'a AgreedRun<'a>) -> Self {
        let (method, description) = (&*run.method, run.method.description());
        let (masked, noised) = (method.masks_sums(), method.groups().is_noised());
        let threshold = method.groups().threshold;
        let survives = threshold.is_some_and(|threshold| threshold.secure_threshold.as_ref().is_some());
        Sent { run, method, description, masked, noised, survives, evaluates: run.count("eval_every") > 0 }
    }

    fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &'static MessageSpec> {
        self.description.all_messages().filter(move |other| other.kind == kind)
    }

    /// Whether what is released under noise is in such a message, in place of a product with the data.
    fn is_release(&self, w: &MessageSpec) -> bool {
        self.of_kind(w.kind).any(|other| other.payload == Payload::Product && self.description.adds_noise_to(other))
    }

    fn sends(&self, w: &MessageSpec) -> bool {
        let groups = self.method.groups();
        let output = self.run.is("output", "given");
        let names = output
            || groups.init.is_some_and(|init| init.file().is_some())
            || groups.missing.is_some_and(|missing| missing.missing.marks().is_some());
        // Files have no name here: each site has its own.
        let one_file = self.run.parameters.contains_key("input");
        // Kinds of messages that only some runs send.
        let by_option = match w.kind {
            kind if kind == KEYS.kind => self.masked,
            // Of sums in the clear; asynchronous methods have them at evaluations only.
            kind if kind == LARGEST.kind => !self.masked && self.has_sum_in_the_clear(),
            kind if [ROUND_KEYS.kind, SEALED_SHARES.kind, ANSWERS.kind].contains(&kind) => self.survives,
            kind if [data::COUNTS.kind, data::ENTRIES.kind].contains(&kind) => one_file,
            kind if kind == data::STATISTICS.kind => sharing(self.method, self.evaluates) != Sharing::Nothing,
            kind if kind == data::LARGEST_ENTRY.kind => self.run.is("scale", "max"),
            kind if kind == data::NAME_DIGESTS.kind => self.run.is("common_columns", true),
            kind if kind == data::NAMES.kind => names,
            // From masked sums each site computes all of the shared factor.
            kind if kind == OUTPUT.kind => output && (!self.masked || w.payload != OUTPUT.payload),
            kind if kind == CHECKPOINT.kind => {
                self.run.is("checkpoint", "given") && (!self.masked || w.payload != CHECKPOINT.payload)
            }
            kind if kind == dp::MESSAGES.kind => self.noised && self.method.sends(kind),
            kind => self.method.sends(kind),
        };
        let has_mask = || self.of_kind(w.kind).any(|other| other.payload == Payload::Masked);
        let is_common = || COMMON_MESSAGES.iter().any(|common| common.kind == w.kind);
        let shown = match w.payload {
            Payload::Masked => self.masked,
            Payload::Control | Payload::Ciphertext | Payload::Shares => true,
            // A method that masks sums sends nothing else of its own.
            _ => !self.masked || w.always_shown || is_common() && !has_mask(),
        };
        let has_release = self.description.all_messages().any(|other| self.is_release(other));
        let product = self.of_kind(w.kind).any(|w| matches!(w.payload, Payload::Product | Payload::Gram));
        let noise = !has_release || !product || self.is_release(w) == self.noised;
        by_option && shown && noise && !w.within_rank && (self.evaluates || !w.evaluation)
    }

    /// Whether the run sums over parties what has neither masks nor noise.
    fn has_sum_in_the_clear(&self) -> bool {
        let own = self.description.unit != Unit::Merge && (!self.noised || self.has(INSIDE.kind));
        own || self.evaluates
    }

    fn has(&self, kind: &'static str) -> bool {
        self.of_kind(kind).next().is_some()
    }

    fn protection(&self, w: &MessageSpec) -> String {
        let noised = self.noised && self.of_kind(w.kind).any(|other| self.description.adds_noise_to(other));
        match (w.payload, noised) {
            (Payload::Control | Payload::Metadata | Payload::Ciphertext | Payload::Shares, _) => {
                self.description.protection(w)
            }
            (Payload::Masked, true) => {
                format!("{}: only the sum of all parties can be read", Protection::MaskedNoised.name())
            }
            (Payload::Masked, false) => MASKED.into(),
            (_, true) if w.kind == INSIDE.kind => "in the clear: computed from what has noise".into(),
            (_, true) => Protection::Noised.name().into(),
            _ => IN_THE_CLEAR.into(),
        }
    }

    /// Rows for messages that a run sends under two protections.
    fn other_protections(&self) -> Vec<Message> {
        let first = |kind: &'static str, payload: Payload| self.of_kind(kind).find(|w| w.payload == payload);
        let mut all = Vec::new();
        // Terms that have noise are summed in the clear, and the largest of them is sent as they are.
        if self.noised && !self.masked && !self.has(INSIDE.kind) {
            let largest =
                first(LARGEST.kind, Payload::Scalar).map(|w| Message::new(w, Protection::Noised.name().into()));
            all.extend(largest.map(|message| Message { when: "each sum of what has noise".into(), ..message }));
        }
        // The starts of fedprox are public, and their mean goes the way of all others.
        if self.noised && self.masked && self.description.name == "fedprox" {
            let starts = first(SUM_V.kind, Payload::Masked);
            all.extend(starts.map(|w| Message {
                size: self.size(w),
                when: "once, at the start: of public starts".into(),
                ..Message::new(w, MASKED.into())
            }));
        }
        all
    }

    /// The message of which the table says that a masked one is "the same".
    fn in_the_clear(&self, w: &MessageSpec) -> Option<&'static MessageSpec> {
        self.of_kind(w.kind).find(|other| w.payload == Payload::Masked && other.payload != Payload::Masked)
    }

    /// In bytes where only k, m and n decide it, and otherwise as the table of the method says.
    fn size(&self, w: &MessageSpec) -> String {
        if w.kind == data::NAMES.kind {
            // In the file, as people know it.
            let by_columns = self.description.partition == Partition::PartyColumns;
            let (sent, kept) =
                if by_columns == self.run.is("transpose", true) { ("columns", "rows") } else { ("rows", "columns") };
            return format!(
                "names of the {sent} of the sites' files, if they have names; names of {kept} stay at their site"
            );
        }
        let (shape, more) = match (self.in_the_clear(w), w.shape.strip_prefix("the same")) {
            (Some(other), Some(more)) => (other.shape, more.strip_suffix(" as one").unwrap_or(more)),
            _ => (w.shape, ""),
        };
        let more = more.trim_end_matches(',');
        let computed = self.without_options(shape).and_then(|shape| {
            let shape = format!("{shape}{more}").replace(" and ", " + ");
            // What each party has in the sum is what a site sends.
            let numbers = shape.split(" for each party").next()?.split(',').next()?;
            // Sums that go on have a flag of each party.
            let flags = if self.survives { " + 8 B for each party" } else { "" };
            Some(format!("{}{flags}", Count::of(numbers, self.run.count("k"))?.in_words()))
        });
        // Only what is masked has a word for each number.
        computed.filter(|_| w.payload == Payload::Masked).unwrap_or_else(|| format!("{shape}{more}"))
    }

    /// The first of the alternatives of a shape; `None` if the run may have another one.
    fn without_options<'s>(&self, shape: &'s str) -> Option<&'s str> {
        let mut alternatives = shape.split("; ");
        let first = alternatives.next();
        let is_off = |option: &str| {
            let value = self.run.parameters.get(&option[2..].replace('-', "_"));
            value.is_none_or(|value| value.as_f64() == Some(0.0) || [Value::Null, "none".into()].contains(value))
        };
        let is_excluded = |alternative: &str| {
            let mut options = alternative.split(' ').filter(|word| word.starts_with("--")).peekable();
            options.peek().is_some() && options.all(is_off)
        };
        first.filter(|_| alternatives.all(is_excluded))
    }

    fn when(&self, w: &MessageSpec) -> String {
        match self.in_the_clear(w).filter(|_| w.when.starts_with("the same")) {
            Some(other) => other.when.into(),
            None => self.description.when(w.when).into(),
        }
    }
}

/// A number of entries a + b m + c n, as `[a, b, c]`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Count([usize; 3]);

impl Count {
    /// That of a formula such as `m x k + k (k + 1)/2`; `None` if more than k, m and n decide it.
    fn of(formula: &str, k: usize) -> Option<Count> {
        let mut rest = formula;
        Count::sum(&mut rest, k).filter(|_| rest.trim().is_empty())
    }

    fn sum(rest: &mut &str, k: usize) -> Option<Count> {
        let mut sum = Count::product(rest, k)?;
        while skip(rest, '+') {
            let more = Count::product(rest, k)?;
            sum = Count(std::array::from_fn(|i| sum.0[i] + more.0[i]));
        }
        Some(sum)
    }

    fn product(rest: &mut &str, k: usize) -> Option<Count> {
        let mut product = Count::factor(rest, k)?;
        loop {
            if skip(rest, '/') {
                let Some(Count([by @ 1..=usize::MAX, 0, 0])) = Count::factor(rest, k) else { return None };
                product = Count(product.0.map(|count| count / by));
            } else if skip(rest, 'x') || rest.trim_start().starts_with(|c: char| c.is_alphabetic() || c == '(') {
                product = match (product, Count::factor(rest, k)?) {
                    (Count([by, 0, 0]), Count(counts)) | (Count(counts), Count([by, 0, 0])) => {
                        Count(counts.map(|count| count * by))
                    }
                    _ => return None,
                };
            } else {
                return Some(product);
            }
        }
    }

    fn factor(rest: &mut &str, k: usize) -> Option<Count> {
        if skip(rest, '(') {
            let sum = Count::sum(rest, k)?;
            return skip(rest, ')').then_some(sum);
        }
        let text = rest.trim_start();
        let is_digit = text.starts_with(|c: char| c.is_ascii_digit());
        let other = |c: char| if is_digit { !c.is_ascii_digit() } else { !c.is_alphanumeric() && c != '_' };
        let (word, behind) = text.split_at(text.find(other).unwrap_or(text.len()));
        *rest = behind;
        match word {
            "k" => Some(Count([k, 0, 0])),
            "m" => Some(Count([0, 1, 0])),
            "n" => Some(Count([0, 0, 1])),
            number => number.parse().ok().map(|number| Count([number, 0, 0])),
        }
    }

    /// The bytes of so many words.
    fn in_words(self) -> String {
        let Count([one, rows, columns]) = self;
        let of = |count: usize, letter: &str| (count > 0).then(|| format!("{letter} x {} B", 8 * count));
        let one = (one > 0).then(|| bytes(8 * one as u64));
        [of(rows, "m"), of(columns, "n"), one].into_iter().flatten().collect::<Vec<_>>().join(" + ")
    }
}

/// Moves behind the next character, if it is this one.
fn skip(rest: &mut &str, next: char) -> bool {
    match rest.trim_start().strip_prefix(next) {
        Some(behind) => {
            *rest = behind;
            true
        }
        None => false,
    }
}

/// The protection of a masked message.
const MASKED: &str = "masked: only the sum of all parties can be read";

/// All kinds of messages that a site may send in any run.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    let of_methods = registry::ALL.iter().flat_map(|method| method.description().all_messages());
    let of_others = list::JOINT.iter().flat_map(|joint| (joint.messages)());
    of_methods.chain(of_others).map(|w| w.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_where_the_parameters_decide_them() {
        let size = |formula: &str| Count::of(formula, 5).map(Count::in_words);
        for (formula, bytes) in [
            ("n x k", "n x 40 B"),
            ("k x k", "200 B"),
            ("n x 2k", "n x 80 B"),
            ("m k + k (k + 1)/2", "m x 40 B + 120 B"),
            ("m x k + 2 n + 1", "m x 40 B + n x 16 B + 8 B"),
        ] {
            assert_eq!(size(formula).as_deref(), Some(bytes), "{formula}");
        }
        for formula in ["", "m x n", "d_V x k", "4 x p", "k / 0 m", "a flag", "n x k for --beta 1", "1: a"] {
            assert_eq!(size(formula), None, "{formula}");
        }
    }
}

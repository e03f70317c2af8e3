//! Boolean factorisations of 0/1 data that is partitioned by rows among parties: A_i ≈ U_i ∘ V̂ᵀ (rows of party i × n,
//! where sums are OR), with private Boolean U_i and shared Boolean components V̂.
//!
//! * `felb`, `felb-mu` ([`felb`]): proximal steps at the parties, and the mean of their V_i in each round;
//! * all others ([`vote`]): each party factorises its own rows, then the parties vote once on the components.

pub mod asso;
mod cover;
mod distinct;
pub mod elbmf_zhang;
pub mod felb;
pub mod grecond;
mod greedy;
pub mod mebf;
mod party_block;
pub mod proximal;
mod result;
mod thresholds;
pub mod vote;

use fednmf_comm::MessageTag;
use fednmf_comm::party_sum::{KEYS, masked};

pub use self::cover::{Components, Counts, Signal, rounded};
pub use self::party_block::Ones;
pub use self::result::{COUNTS, Client, Outcome, Refit, agreement, clients, round_rows};
use crate::description::{
    Description, DifferentialPrivacy, Form, LARGEST_TERM, MessageSpec, Partition, ProtectedUnit, Unit,
};
use crate::metrics::Measure;
use crate::shared::dp;

/// The description of a Boolean method; [`messages`] creates its message table.
const fn describe(
    name: &'static str,
    summary: &'static str,
    paper: &'static str,
    unit: Unit,
    messages: &'static [MessageSpec],
) -> Description {
    Description {
        name,
        summary,
        paper,
        partition: Partition::PartyRows,
        unit,
        forms: &[Form::Dense, Form::Sparse, Form::Bits],
        measure: Measure::F1,
        dp: DifferentialPrivacy::Offered(ProtectedUnit::Party),
        limits: Some(LIMITS),
        messages,
        ..Description::USUAL
    }
}

/// The message table of a method whose parties sum their components (n × k) under `tag`.
const fn messages(tag: MessageTag, when: &'static str) -> [MessageSpec; 8] {
    [
        MessageSpec::new(tag, "n x k for each party", when),
        MessageSpec::new(masked(tag), "n x k for each party", "the same, with --secure-sum"),
        MessageSpec::new(COUNTS, "9 for each party", "each evaluation"),
        MessageSpec::new(masked(COUNTS), "9 for each party", "the same, with --secure-sum"),
        dp::MESSAGES,
        dp::MESSAGES_MASKED,
        LARGEST_TERM,
        MessageSpec::control(KEYS, "32 bytes", "once, with --secure-sum"),
    ]
}

/// Guarantees that the Boolean methods do not give.
const LIMITS: [&str; 2] = [
    "Without --dp the components of each party are seen as they are, and are patterns of its rows.",
    "--epsilon covers a whole run, unless --eval-every or --scale max makes it share more. Its last table says so.",
];

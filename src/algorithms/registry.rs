//! The registry: one entry for each algorithm. `--help`, `fednmf list`, the docs and the tests that run over all
//! algorithms are made from it.

use super::{Algorithm, Problem, columns};
use crate::algorithms::boolean::felb;
use crate::algorithms::boolean::{asso, grecond, mebf, relaxed};
use crate::algorithms::centralized::{bpp, dsanls, hals, kl_mu, mu};
use crate::algorithms::network::{admm, ppdnmf};
use crate::algorithms::options::{DP, Opt, Taken};
use crate::algorithms::rows::{fedavg, fedprox, fnmf, ipalm, mur};
use crate::algorithms::shared::grid;
use crate::comm::{LARGEST, MessageTag, Parties, Payload};
use crate::data;
use crate::data::{Layout, PartySplit};
use crate::error::Result;
use crate::linalg::Real;

/// What one iteration is: what `--max-iters` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// One update of U and one of V.
    Update,
    /// One exchange between the parties.
    Round,
    /// One party's turn and its merge at the server.
    Merge,
    /// One update of U and one of V at every party; they exchange at the end.
    Local,
    /// One component found at every party; they exchange at the end.
    Component,
}

/// How the data is split; see [`Layout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    Grid,
    RowsAndColumns,
    PartyRows,
    PartyColumns,
}

/// The forms of a local block that an algorithm can work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Dense,
    Sparse,
    Bits,
}

/// One line of an algorithm's wire table: something that leaves a rank or a party.
#[derive(Debug, Clone, Copy)]
pub struct MessageSpec {
    /// The purpose under which the ledger books it.
    pub kind: &'static str,
    pub payload: Payload,
    pub shape: &'static str,
    pub when: &'static str,
}

impl MessageSpec {
    pub const fn new(tag: MessageTag, shape: &'static str, when: &'static str) -> Self {
        MessageSpec { kind: tag.kind, payload: tag.payload, shape, when }
    }
}

/// For the wire table of an algorithm with exact sums over parties in the clear.
pub const LARGEST_TERM: MessageSpec =
    MessageSpec::new(LARGEST, "1 for each party", "each sum over parties that is not masked");

/// What leaves a rank or party with every algorithm, while the data is loaded.
pub static COMMON_MESSAGES: &[MessageSpec] =
    &[MessageSpec::new(data::STATISTICS, "sum, norm, range, number and hash of the entries", "once, while loading")];

/// Makes an algorithm from a problem.
pub type Build<T> = fn(Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>>;

/// The precisions, as far as the registry has to tell them apart.
pub trait Precision: Real {
    fn build(method: &Method, problem: Problem<'_, Self>) -> Result<Box<dyn Algorithm<Self>>>;
}

impl Precision for f64 {
    fn build(method: &Method, problem: Problem<'_, f64>) -> Result<Box<dyn Algorithm<f64>>> {
        (method.build64)(problem)
    }
}

impl Precision for f32 {
    fn build(method: &Method, problem: Problem<'_, f32>) -> Result<Box<dyn Algorithm<f32>>> {
        (method.build32)(problem)
    }
}

/// One algorithm.
pub struct Method {
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
    pub options: &'static [Taken],
    pub messages: &'static [MessageSpec],
    pub build64: Build<f64>,
    pub build32: Build<f32>,
}

impl Method {
    /// Whether it factorises matrices of 0 and 1, and those only.
    pub fn is_boolean(&self) -> bool {
        self.forms.contains(&Form::Bits)
    }

    /// Whether it takes an option.
    pub fn takes(&self, opt: &Opt) -> bool {
        self.options.iter().any(|t| t.opt == opt)
    }

    /// How a line of the wire table is kept from those that it passes, in words.
    pub fn protection(&self, message: &MessageSpec) -> String {
        let clear = match message.payload {
            Payload::Ciphertext => return "encrypted".into(),
            Payload::Masked => return "masked: only the sum of all parties can be read".into(),
            Payload::Control => return "in the clear; says nothing of entries".into(),
            _ => "in the clear",
        };
        let masked = self.messages.iter().any(|w| w.kind == message.kind && w.payload == Payload::Masked);
        let noised = self.takes(&DP) && message.payload == Payload::SharedFactor;
        let more = [(masked, "masked with --secure-sum"), (noised, "noised with --dp")];
        let more: Vec<&str> = more.into_iter().filter_map(|(is, text)| is.then_some(text)).collect();
        if more.is_empty() { clear.into() } else { format!("{clear}; {}", more.join(", ")) }
    }
}

impl Partition {
    /// In words, for `list`.
    pub fn describe(self) -> &'static str {
        match self {
            Partition::Grid => "blocks of a grid over ranks",
            Partition::RowsAndColumns => "rows and columns over ranks",
            Partition::PartyRows => "rows by party",
            Partition::PartyColumns => "columns by party",
        }
    }

    /// Whether the blocks belong to parties, whose data stays with them.
    pub fn is_private(self) -> bool {
        matches!(self, Partition::PartyRows | Partition::PartyColumns)
    }

    /// The plan for an m × n matrix; a grid is as asked for, else the one that sends the fewest words.
    pub fn plan(
        self,
        (m, n): (usize, usize),
        ranks: usize,
        parties: Parties,
        share: PartySplit,
        grid: Option<(usize, usize)>,
    ) -> Layout {
        match self {
            Partition::Grid => {
                let (pr, pc) = grid.unwrap_or_else(|| grid::fewest_words(m, n, ranks));
                Layout::Grid { pr, pc }
            }
            Partition::RowsAndColumns => Layout::RowsAndColumns { ranks },
            Partition::PartyRows => Layout::PartyRows { parties, split: share },
            Partition::PartyColumns => Layout::PartyColumns { parties, split: share },
        }
    }
}

/// All algorithms, in the order of `list`.
pub static ALL: &[&Method] = &[
    &dsanls::METHOD,
    &hals::METHOD,
    &bpp::METHOD,
    &mu::METHOD,
    &kl_mu::METHOD,
    &columns::syn::SD,
    &columns::syn::SSD_U,
    &columns::syn::SSD_V,
    &columns::syn::SSD_UV,
    &columns::asyn::SD,
    &columns::asyn::SSD_V,
    &columns::secure_hals::METHOD,
    &columns::dsanls_secure::METHOD,
    &fnmf::METHOD,
    &fedavg::METHOD,
    &fedprox::METHOD,
    &ipalm::METHOD,
    &mur::METHOD,
    &felb::FELB,
    &felb::FELB_MU,
    &relaxed::ELBMF,
    &relaxed::ZHANG,
    &asso::METHOD,
    &grecond::METHOD,
    &mebf::METHOD,
    &ppdnmf::METHOD,
    &admm::METHOD,
];

/// The algorithm of that name or alias.
pub fn find(name: &str) -> Option<&'static Method> {
    let named =
        |m: &&Method| m.name.eq_ignore_ascii_case(name) || m.aliases.iter().any(|a| a.eq_ignore_ascii_case(name));
    ALL.iter().copied().find(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::options;

    #[test]
    fn names_are_unique_and_options_known() {
        let mut names: Vec<&str> = ALL.iter().flat_map(|m| m.aliases.iter().copied().chain([m.name])).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
        for method in ALL {
            assert!(method.options.iter().all(|t| options::ALL.contains(&t.opt)), "{}", method.name);
            options::Options::check(method.options, |_| None).expect("defaults pass their own check");
        }
    }
}

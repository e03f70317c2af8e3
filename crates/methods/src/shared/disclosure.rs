//! What the sums of a run tell about private rows or columns, and the limits that a run keeps.
//!
//! Parties that see the sums of a run see vectors in the space of the rows (or columns) that they do not have: q = min(k T, d)
//! of them after T sums of k vectors with d entries. With h hidden rows, the larger q / h is, the better the space of the
//! vectors tells a hidden row from any other, and at q = h < d it is the space of all hidden rows: membership is then certain,
//! a row follows from some of its entries, and zeros and ones, counts or sparse rows follow from the space alone. The limit is
//! a tenth. docs/decisions/privacy.md has the derivation and the measurements.

use std::collections::BTreeSet;

use fednmf_base::words::Words;

use crate::parameters::{Auto, ParamType, ParamValue, Parsed, count};

/// The largest ratio of opened vectors to hidden rows or columns.
const SHARE: usize = 10;

/// The least number of rows or columns of a party, whatever k is, and for each component.
const LEAST: usize = 20;
const LEAST_FOR_EACH_COMPONENT: usize = 4;

fednmf_base::words! {
    /// What others may compute from a run.
    #[derive(PartialOrd, Ord)]
    pub enum Risk {
        /// The rows or columns of a party that has few (--min-rows)
        FewRows = "few-rows",
        /// Whether a row or column is among those of the parties, and perhaps the row itself
        Membership = "membership",
    }
}

/// Risks that the user accepts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accepted(BTreeSet<Risk>);

impl Accepted {
    pub fn contains(&self, risk: Risk) -> bool {
        self.0.contains(&risk)
    }
}

impl<const N: usize> From<[Risk; N]> for Accepted {
    fn from(risks: [Risk; N]) -> Self {
        Accepted(risks.into())
    }
}

impl ParamType for Accepted {
    fn value(&self) -> ParamValue {
        if self.0.is_empty() {
            return ParamValue::None;
        }
        ParamValue::Text(self.0.iter().map(|risk| risk.name()).collect::<Vec<_>>().join(","))
    }

    fn parse(text: &str) -> Parsed<Self> {
        text.split(',').map(|word| <Risk as ParamType>::parse(word.trim())).collect::<Parsed<_>>().map(Accepted)
    }
}

fednmf_base::parameters! {
    /// What a party lets others learn from a run without noise.
    pub struct DisclosureParams {
        /// The number of other parties that may put together what they receive. The checks before a run assume so many
        #[affects_result = false]
        pub colluding: usize = 1, "C", count(1);
        /// The least number of rows of a party (of columns, where columns are private). auto: 4 k, at least 20
        #[affects_result = false]
        pub min_rows: Auto<usize> = Auto::Auto, "N";
        /// Run although others may compute this, several by commas: few-rows, the rows or columns of a party that has few;
        /// membership, whether a row or column is among those of the parties, and perhaps the row itself
        #[affects_result = false]
        pub accept_risk: Accepted = Accepted::default(), "RISK[,RISK]";
    }
}

/// The sums of a method that tell about private rows or columns, each of k vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenedSums {
    /// One at the end and at each evaluation.
    AtEvaluations,
    /// So many in each iteration.
    EachIteration(usize),
}

/// How long a run may last.
#[derive(Debug, Clone, Copy)]
pub struct Duration {
    pub iterations: usize,
    /// The number of iterations from one evaluation to the next; 0 for no evaluation.
    pub eval_every: usize,
}

impl OpenedSums {
    /// Their number in a whole run.
    fn over(self, run: Duration) -> usize {
        match self {
            OpenedSums::AtEvaluations => 1 + run.iterations.checked_div(run.eval_every).unwrap_or(0),
            OpenedSums::EachIteration(count) => count.saturating_mul(run.iterations),
        }
    }
}

/// The private rows or columns of a run.
#[derive(Debug, Clone, Copy)]
pub struct PrivatePart<'a> {
    /// The number of each party's.
    pub counts: &'a [usize],
    /// The number of entries of each.
    pub length: usize,
    /// Number of components.
    pub k: usize,
    /// Whether others see sums over parties only, and not each party's term.
    pub masked: bool,
    /// "rows" or "columns".
    pub what: &'static str,
}

impl PrivatePart<'_> {
    /// The number of rows or columns that `colluding` parties together do not have, for those that lack the fewest.
    fn hidden(&self, colluding: usize) -> usize {
        let mut counts: Vec<usize> = self.counts.iter().copied().filter(|&count| count > 0).collect();
        counts.sort_unstable();
        let alone = !self.masked || colluding + 1 >= counts.len();
        let seen = if alone { 1 } else { counts.len() - colluding };
        counts[..seen.min(counts.len())].iter().sum()
    }

    /// The number of vectors in the space of the hidden part.
    fn vectors(&self, sums: usize) -> usize {
        self.k.saturating_mul(sums).min(self.length)
    }
}

/// What others would learn from a run, beyond the limits and not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disclosure {
    pub risk: Risk,
    /// What is beyond the limit and what to change, in a sentence.
    pub reason: String,
}

impl DisclosureParams {
    /// The first risk of a run that is not accepted.
    pub fn check(&self, part: &PrivatePart<'_>, sums: Option<OpenedSums>, run: Duration) -> Option<Disclosure> {
        let owners = part.counts.iter().filter(|&&count| count > 0).count();
        let refused = |risk, reason: String| {
            let reason = format!("{reason}; --accept-risk {} goes on all the same", Words::name(risk));
            (!self.accept_risk.contains(risk)).then_some(Disclosure { risk, reason })
        };
        if owners < 2 {
            return None;
        }
        let few = || {
            let least = self.min_rows.given().unwrap_or(LEAST.max(LEAST_FOR_EACH_COMPONENT * part.k));
            let is_few = part.counts.iter().any(|&count| count > 0 && count < least);
            // Not how many it has.
            let reason = format!(
                "a party has fewer {} than --min-rows {least}, and others may rebuild them from what it sends; unite small \
                 parties, take fewer components, or add noise (--dp)",
                part.what
            );
            is_few.then(|| refused(Risk::FewRows, reason)).flatten()
        };
        few().or_else(|| self.membership(part, sums?, run).and_then(|reason| refused(Risk::Membership, reason)))
    }

    /// Why the sums tell who is among the parties' rows or columns, and what to change.
    fn membership(&self, part: &PrivatePart<'_>, sums: OpenedSums, run: Duration) -> Option<String> {
        let hidden = part.hidden(self.colluding);
        let vectors = part.vectors(sums.over(run));
        if vectors <= hidden / SHARE {
            return None;
        }
        let what = part.what;
        let seen = if part.masked { "the sums" } else { "what a party sends" };
        let shorter = match sums {
            OpenedSums::EachIteration(count) if hidden / SHARE >= count * part.k => {
                format!("--max-iters {} or less, ", hidden / SHARE / (count * part.k))
            }
            _ => String::new(),
        };
        Some(format!(
            "{seen} of the whole run are {vectors} vectors in the space of {hidden} {what} that others do not have, and more \
             than a tenth as many tell whether a {one} is among them, perhaps the {one} itself; use {shorter}at least {} such \
             {what}, or noise (--dp)",
            SHARE * vectors,
            one = what.trim_end_matches('s')
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(counts: &[usize], length: usize, masked: bool) -> PrivatePart<'_> {
        PrivatePart { counts, length, k: 5, masked, what: "rows" }
    }

    fn run(iterations: usize) -> Duration {
        Duration { iterations, eval_every: 10 }
    }

    fn risk(params: &DisclosureParams, part: PrivatePart<'_>, iterations: usize) -> Option<Risk> {
        params.check(&part, Some(OpenedSums::EachIteration(1)), run(iterations)).map(|found| found.risk)
    }

    #[test]
    fn the_hidden_part_is_what_the_largest_parties_lack() {
        let counts = [30, 100, 0, 70];
        for (colluding, masked, hidden) in [(1, true, 100), (2, true, 30), (3, true, 30), (1, false, 30)] {
            assert_eq!(part(&counts, 9, masked).hidden(colluding), hidden, "{colluding} {masked}");
        }
    }

    #[test]
    fn more_sums_than_a_tenth_of_the_hidden_part_are_refused() {
        let params = DisclosureParams::default();
        // 200 hidden rows of 1000 entries: 20 vectors, in 4 sums of 5.
        let wide = part(&[100, 100, 100], 1000, true);
        assert_eq!([4, 5].map(|sums| risk(&params, wide, sums)), [None, Some(Risk::Membership)]);
        // Two that collude lack 100 rows.
        let two = DisclosureParams { colluding: 2, ..DisclosureParams::default() };
        assert_eq!([2, 3].map(|sums| risk(&two, wide, sums)), [None, Some(Risk::Membership)]);
        // In the clear each party's 100 rows are on their own.
        let clear = PrivatePart { masked: false, ..wide };
        assert_eq!([2, 3].map(|sums| risk(&params, clear, sums)), [None, Some(Risk::Membership)]);
        // Three evaluations and the end.
        let at_evaluations = |iterations| params.check(&wide, Some(OpenedSums::AtEvaluations), run(iterations));
        assert_eq!(at_evaluations(39), None);
        assert!(at_evaluations(40).is_some());
        let found = params.check(&wide, Some(OpenedSums::EachIteration(2)), run(3)).unwrap();
        assert!(found.reason.contains("use --max-iters 2 or less, at least 300 such rows"), "{}", found.reason);
        // Of 20 entries there are no more than 20 vectors.
        assert_eq!(risk(&params, part(&[100, 100, 100], 20, true), usize::MAX), None);
        // Nobody else is there.
        assert_eq!(risk(&params, part(&[0, 5], 1000, true), 100), None);
    }

    #[test]
    fn a_party_with_few_rows_is_refused_without_their_number() {
        let params = DisclosureParams::default();
        let found = params.check(&part(&[19, 4000], 10, true), None, run(1)).unwrap();
        assert_eq!(found.risk, Risk::FewRows);
        assert!(!found.reason.contains("19"), "{}", found.reason);
        assert_eq!(params.check(&part(&[20, 4000], 10, true), None, run(1)), None);
        let many = PrivatePart { k: 6, ..part(&[23, 4000], 10, true) };
        assert_eq!(params.check(&many, None, run(1)).map(|found| found.risk), Some(Risk::FewRows));
        let fewer = DisclosureParams { min_rows: Auto::Given(23), ..DisclosureParams::default() };
        assert_eq!(fewer.check(&many, None, run(1)), None);
    }

    #[test]
    fn a_risk_is_accepted_by_name() {
        let mut params = DisclosureParams::default();
        let part = part(&[10, 10, 10], 1000, true);
        assert_eq!(risk(&params, part, 9), Some(Risk::FewRows));
        params.accept_risk = Accepted::parse("few-rows").unwrap();
        assert_eq!(risk(&params, part, 9), Some(Risk::Membership));
        params.accept_risk = Accepted::parse("membership, few-rows").unwrap();
        assert_eq!(risk(&params, part, 9), None);
        assert_eq!(params.accept_risk.text().as_deref(), Some("few-rows,membership"));
        assert!(Accepted::parse("all").unwrap_err().contains("few-rows"));
    }
}

//! What the sums of a run tell about private rows or columns, and the limits that a run keeps.
//!
//! Parties that see the sums of a run see vectors in the space of the rows (or columns) that they do not have: q = min(k T, d)
//! of them after T sums of k vectors with d entries. With h hidden rows, the larger q / h is, the better the space of the
//! vectors tells a hidden row from any other, and at q = h < d it is the space of all hidden rows: membership is then certain,
//! a row follows from some of its entries, and zeros and ones, counts or sparse rows follow from the space alone. The limit is
//! a tenth. docs/decisions/privacy.md has the derivation and the measurements.

use std::collections::BTreeSet;

use fednmf_base::words::Words;

use crate::federated::few_values::EntryFacts;
use crate::parameters::{Auto, OrNone, ParamType, ParamValue, Parsed, count, or_none};

/// The reciprocal of the largest ratio of opened vectors to hidden rows or columns.
pub const SHARE: usize = 10;

/// The least number of rows or columns of a party, whatever k is, and for each component.
const LEAST: usize = 20;
const LEAST_FOR_EACH_COMPONENT: usize = 4;

/// The least number of a party's records that differ from the others in a variable, where sums are exact: the usual threshold for
/// cells of a table.
const LEAST_IN_A_CELL: usize = 3;

/// The least number of terms in a sum that hides each of them, if more parties are there.
const LEAST_SUMMED: usize = 3;

fednmf_base::words! {
    /// What others may compute from a run.
    #[derive(PartialOrd, Ord)]
    pub enum Risk {
        /// The rows or columns of a party that has few (--min-rows)
        FewRows = "few-rows",
        /// Whether a row or column is among those of the parties, and perhaps the row itself
        Membership = "membership",
        /// Whole numbers and other entries with few values, from a single exact sum
        FewValues = "few-values",
        /// Whole rows or columns, from exact sums, if they are the only ones with an entry (--suppress-rare), or if entries are
        /// left out (--missing, --holdout)
        RareEntries = "rare-entries",
        /// The data from sketches of them: raw columns, or sketches that determine them (dsanls-secure)
        Sketches = "sketches",
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

impl From<Risk> for Accepted {
    fn from(risk: Risk) -> Self {
        [risk].into()
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

    const LIST: bool = true;

    fn parse(text: &str) -> Parsed<Self> {
        text.split(',').map(|word| <Risk as ParamType>::parse(word.trim())).collect::<Parsed<_>>().map(Accepted)
    }
}

fednmf_base::parameters! {
    /// What a party lets others learn from a run without noise.
    pub struct DisclosureParams {
        /// The number of other parties that may put together what they receive. The checks before a run assume this many
        #[affects_result = false]
        pub colluding: usize = 1, "C", count(1);
        /// The least number of rows of a party (of columns, where columns are private). auto: 4 k, at least 20. Less also needs
        /// --accept-risk few-rows
        #[affects_result = false]
        pub min_rows: Auto<usize> = Auto::Auto, "N";
        /// Each party changes rare entries in its own data, before anything leaves. If fewer than N of its rows differ from all its
        /// others in a variable, they get the value of the others there, mostly 0. Where columns are private, read columns for rows.
        /// N is at least 3
        pub suppress_rare: OrNone<usize> = OrNone::None, "N|none", or_none(count(LEAST_IN_A_CELL));
        /// Run although others may compute this, several by commas. few-rows: the rows or columns of a party that has few.
        /// membership: whether a row or column is among those of the parties, and perhaps the row itself. few-values: whole
        /// numbers, from a single exact sum. rare-entries: whole rows that alone have an entry, from exact sums. sketches: the data,
        /// from sketches of them (dsanls-secure)
        #[affects_result = false]
        pub accept_risk: Accepted = Accepted::default(), "RISK[,RISK]";
    }
}

/// The sums of a method that tell about private rows or columns, each of k vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenedSums {
    /// One at the end and at each evaluation.
    AtEvaluations,
    /// This number in each iteration.
    EachIteration(usize),
    /// This number in each iteration, which are combinations of the rows or columns, exactly.
    ExactProducts(usize),
    /// Two such sums in each iteration, of which each entry is over the rows that are observed there. The difference of two
    /// entries is one over few rows, often a single one.
    ObservedProducts,
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
    pub fn over(self, run: Duration) -> usize {
        match self {
            OpenedSums::AtEvaluations => 1 + run.iterations.checked_div(run.eval_every).unwrap_or(0),
            each => each.count().saturating_mul(run.iterations),
        }
    }

    /// Their number in an iteration.
    fn count(self) -> usize {
        match self {
            OpenedSums::AtEvaluations => 0,
            OpenedSums::EachIteration(count) | OpenedSums::ExactProducts(count) => count,
            OpenedSums::ObservedProducts => 2,
        }
    }

    /// Whether the sums are combinations of the rows or columns, exactly.
    fn are_exact(self) -> bool {
        matches!(self, OpenedSums::ExactProducts(_) | OpenedSums::ObservedProducts)
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
    /// The number of parties with terms in each sum.
    pub summed: usize,
    /// The number of parties with which a run may go on after others have dropped out.
    pub left: usize,
    /// "rows" or "columns".
    pub what: &'static str,
    /// What tells less than the sums of the method: noise, if it offers noise, and another method.
    pub instead: &'a [&'static str],
}

impl PrivatePart<'_> {
    /// The number of parties that have any.
    fn owners(&self) -> usize {
        self.counts.iter().filter(|&&count| count > 0).count()
    }

    /// The number of rows or columns that `colluding` parties together do not have, for those that lack the fewest. Sums over
    /// changing sets of parties are equations for each party's term, which then hides its own rows only.
    fn hidden(&self, colluding: usize) -> usize {
        let mut counts: Vec<usize> = self.counts.iter().copied().filter(|&count| count > 0).collect();
        counts.sort_unstable();
        let left = self.left.min(self.summed);
        let alone = !self.masked || colluding + 1 >= left || self.summed < counts.len();
        let seen = if alone { 1 } else { left - colluding };
        counts[..seen.min(counts.len())].iter().sum()
    }

    /// The other ways, as the end of a sentence.
    fn or_instead(&self) -> String {
        if self.instead.is_empty() { String::new() } else { format!("; or use {}", self.instead.join(", or ")) }
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

/// What the checks ask of private rows or columns before their numbers are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The least number that each party has.
    pub least: usize,
    /// The number of vectors in all sums of the run, if they have at least as many entries; 0 if no sum tells about single rows.
    pub vectors: usize,
    /// The number that colluding parties must not have, then.
    pub hidden: usize,
}

impl DisclosureParams {
    /// What [`DisclosureParams::check`] asks.
    pub fn limits(&self, k: usize, sums: Option<OpenedSums>, run: Duration) -> Limits {
        let vectors = sums.map_or(0, |sums| k.saturating_mul(sums.over(run)));
        Limits { least: self.least(k), vectors, hidden: SHARE.saturating_mul(vectors) }
    }

    /// The risk of too few rows or columns if those that are empty, or multiples of others, hide nothing: `own` has the number of
    /// all and of the distinct ones of each hosted party. A party with a tenth of such ones is judged by its distinct ones alone.
    pub fn check_distinct(
        &self,
        part: &PrivatePart<'_>,
        sums: Option<OpenedSums>,
        run: Duration,
        own: &[(usize, usize)],
    ) -> Option<Disclosure> {
        let what = part.what;
        let refused = |risk: Risk, reason: String| {
            let reason = format!("{reason}; --accept-risk {} runs it anyway", Words::name(risk));
            (!self.accept_risk.contains(risk)).then_some(Disclosure { risk, reason })
        };
        let padded = own.iter().filter(|&&(all, distinct)| SHARE * distinct < (SHARE - 1) * all);
        padded.filter(|_| part.owners() > 1).find_map(|&(_, distinct)| {
            let least = self.least(part.k);
            if distinct < least {
                return refused(
                    Risk::FewRows,
                    format!(
                        "a party has fewer {what} than --min-rows {least} that are not empty and not multiples of others, and these \
                         may be rebuilt from what it sends; remove such {what} or unite small parties{}",
                        part.or_instead()
                    ),
                );
            }
            let vectors = part.vectors(sums?.over(run));
            // Vectors in all directions tell no rows apart.
            let all_directions = vectors == part.length && distinct >= 2 * part.length;
            if vectors <= distinct / SHARE || all_directions {
                return None;
            }
            refused(
                Risk::Membership,
                format!(
                    "many {what} of a party are empty or multiples of others, which hides nothing, and the sums of this run have \
                     {vectors} vectors; remove such {what} or use fewer iterations{}",
                    part.or_instead()
                ),
            )
        })
    }

    /// The least number of rows or columns of a party, if `k` vectors of sums over them are opened at a time: less than the usual
    /// one only if the risk is accepted by name.
    pub fn least(&self, k: usize) -> usize {
        let usual = LEAST.max(LEAST_FOR_EACH_COMPONENT * k);
        let given = self.min_rows.given().unwrap_or(usual);
        if self.accept_risk.contains(Risk::FewRows) { given } else { given.max(usual) }
    }

    /// The risk that exact sums reveal the entries of these blocks of parties, if they have few values: if the hidden rows have
    /// more entries than there are hidden rows, lattice reduction finds them from one sum of unknown combinations of them (Nguyen
    /// and Stern, "The hardness of the hidden subset sum problem and its cryptographic implications", Crypto 1999).
    pub fn check_values(
        &self,
        part: &PrivatePart<'_>,
        sums: Option<OpenedSums>,
        own: &[(usize, usize)],
        blocks: &[&dyn EntryFacts],
    ) -> Option<Disclosure> {
        let empty: usize = own.iter().map(|(all, distinct)| all - distinct.min(all)).sum();
        let hidden = part.hidden(self.colluding).saturating_sub(empty * part.owners());
        let exact = sums.is_some_and(OpenedSums::are_exact) && part.owners() > 1 && hidden < part.length;
        if !exact || self.accept_risk.contains(Risk::FewValues) {
            return None;
        }
        let (length, what) = (part.length, part.what);
        blocks.iter().any(|block| block.bits().is_some()).then(|| Disclosure {
            risk: Risk::FewValues,
            reason: format!(
                "a party's entries have few values, as whole numbers do, and there are only {hidden} {what}, of {length} entries, \
                 that others do not have: lattice reduction may find them from a single sum; use at least {length} such {what}{}; \
                 --accept-risk {} runs it anyway",
                part.or_instead(),
                Risk::FewValues
            ),
        })
    }

    /// The risk that exact sums give away whole records: what is summed of an entry that one record has is this record's part of
    /// the other factor, and a few of them are linear equations for all its entries.
    pub fn check_rare(
        &self,
        part: &PrivatePart<'_>,
        sums: Option<OpenedSums>,
        blocks: &[&dyn EntryFacts],
    ) -> Option<Disclosure> {
        let exact = sums.is_some_and(OpenedSums::are_exact) && part.owners() > 1;
        if !exact || self.accept_risk.contains(Risk::RareEntries) {
            return None;
        }
        let (what, of_columns) = (part.what, part.what == "columns");
        blocks.iter().any(|block| block.has_rare(of_columns, LEAST_IN_A_CELL)).then(|| Disclosure {
            risk: Risk::RareEntries,
            reason: format!(
                "a party has entries that fewer than {LEAST_IN_A_CELL} of its {what} have, and the exact sums of this run may give \
                 others these {what} whole; use --suppress-rare {LEAST_IN_A_CELL}, with which each party leaves out such entries of \
                 its own{}; --accept-risk {} runs it anyway",
                part.or_instead(),
                Risk::RareEntries
            ),
        })
    }

    /// The first risk of a run that is not accepted.
    pub fn check(&self, part: &PrivatePart<'_>, sums: Option<OpenedSums>, run: Duration) -> Option<Disclosure> {
        let refused = |risk, reason: String| {
            let reason = format!("{reason}; --accept-risk {} runs it anyway", Words::name(risk));
            (!self.accept_risk.contains(risk)).then_some(Disclosure { risk, reason })
        };
        if part.owners() < 2 {
            return None;
        }
        let few = || {
            let least = self.least(part.k);
            let is_few = part.counts.iter().any(|&count| count > 0 && count < least);
            // Not how many it has.
            let reason = format!(
                "a party has fewer {} than --min-rows {least}, and others may rebuild them from what it sends; unite small \
                 parties or take fewer components{}",
                part.what,
                part.or_instead()
            );
            is_few.then(|| refused(Risk::FewRows, reason)).flatten()
        };
        if part.masked && part.summed < part.owners().min(LEAST_SUMMED) {
            let reason = format!(
                "--secure-sum: a sum has the terms of {} of {} parties (--participation), which hides none of them from the \
                 others; let at least {LEAST_SUMMED} take part",
                part.summed,
                part.owners()
            );
            return Some(Disclosure { risk: Risk::Membership, reason });
        }
        let of_few_rows = || {
            let reason = format!(
                "--missing, --holdout: the sums of this run are over the {what} that are observed in each place, so that the difference \
                 of two is often a single one of U, from which others may find the whole {one}; leave these options out{}",
                part.or_instead(),
                what = part.what,
                one = part.what.trim_end_matches('s')
            );
            (sums == Some(OpenedSums::ObservedProducts)).then(|| refused(Risk::RareEntries, reason)).flatten()
        };
        few()
            .or_else(of_few_rows)
            .or_else(|| self.membership(part, sums?, run).and_then(|reason| refused(Risk::Membership, reason)))
    }

    /// Why the sums tell who is among the parties' rows or columns, and what to change.
    fn membership(&self, part: &PrivatePart<'_>, sums: OpenedSums, run: Duration) -> Option<String> {
        let hidden = part.hidden(self.colluding);
        let vectors = part.vectors(sums.over(run));
        if vectors <= hidden / SHARE {
            return None;
        }
        let what = part.what;
        let seen = if part.masked { "the sums of this run give" } else { "what a party sends in this run gives" };
        let shorter = match sums {
            OpenedSums::AtEvaluations => String::new(),
            each if hidden / SHARE >= each.count() * part.k => {
                format!("--max-iters {} or less, or ", hidden / SHARE / (each.count() * part.k))
            }
            _ => String::new(),
        };
        Some(format!(
            "{seen} others {vectors} vectors in the space of {hidden} {what} that they do not have; more than {} let them tell \
             whether a {one} is among these, and perhaps the {one} itself; use {shorter}at least {} such {what}{}",
            hidden / SHARE,
            SHARE * vectors,
            part.or_instead(),
            one = what.trim_end_matches('s')
        ))
    }
}

#[cfg(test)]
mod tests {
    use fednmf_audit::deviations::Deviations;
    use fednmf_audit::membership;
    use fednmf_linalg::Block;
    use fednmf_linalg::random::{Purpose, Stream};
    use ndarray::{Array2, Zip};

    use super::*;

    fn part(counts: &[usize], length: usize, masked: bool) -> PrivatePart<'_> {
        let summed = counts.iter().filter(|count| **count > 0).count();
        PrivatePart { counts, length, k: 5, masked, summed, left: summed, what: "rows", instead: &["noise (--dp)"] }
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
        assert!(
            found.reason.contains("use --max-iters 2 or less, or at least 300 such rows; or use noise"),
            "{}",
            found.reason
        );
        // Of 20 entries there are no more than 20 vectors.
        assert_eq!(risk(&params, part(&[100, 100, 100], 20, true), usize::MAX), None);
        // Nobody else is there.
        assert_eq!(risk(&params, part(&[0, 5], 1000, true), 100), None);
    }

    #[test]
    fn a_sum_over_one_or_two_of_more_parties_is_refused() {
        let params = DisclosureParams { accept_risk: [Risk::Membership].into(), ..DisclosureParams::default() };
        let found = |summed, masked| {
            let part = PrivatePart { summed, ..part(&[1000; 5], 1000, masked) };
            params.check(&part, Some(OpenedSums::EachIteration(1)), run(3)).map(|found| found.reason)
        };
        assert!([1, 2].iter().all(|summed| found(*summed, true).unwrap().contains("of 5 parties (--participation)")));
        assert_eq!([found(3, true), found(5, true), found(1, false)], [None, None, None]);
        // Of two parties both are in each sum, which a warning says hides nothing.
        assert_eq!(params.check(&part(&[1000, 1000], 1000, true), None, run(3)), None);
        // Sums over three of five in each round are equations for each party's term.
        assert_eq!([3, 5].map(|summed| PrivatePart { summed, ..part(&[1000; 5], 1000, true) }.hidden(1)), [1000, 4000]);
        // After losses the smallest parties may be left.
        let with_losses = |left| PrivatePart { left, ..part(&[100, 200, 3000, 4000, 5000], 1000, true) }.hidden(1);
        assert_eq!([5, 4, 3].map(with_losses), [7300, 3300, 300]);
    }

    /// Counts in blocks of 20 rows, and the same with a part that is a multiple of nothing.
    #[test]
    fn few_values_in_exact_sums_are_refused_where_rows_are_fewer_than_their_entries() {
        let block = |real: f64| {
            let count = |(i, j): (usize, usize)| ((i * 7 + j * 3) % 5) as f64;
            let noise = |(i, j): (usize, usize)| real * ((i * 200 + j) as f64 * 0.731).sin().abs();
            Block::<f64>::Dense(Array2::from_shape_fn((20, 200), |at| count(at) + noise(at)).into())
        };
        let risk = |params: &DisclosureParams, length, sums, real| {
            let part = part(&[20, 20, 20], length, true);
            params.check_values(&part, Some(sums), &[], &[&block(real)]).map(|found| found.risk)
        };
        let params = DisclosureParams::default();
        let exact = OpenedSums::ExactProducts(1);
        assert_eq!(risk(&params, 200, exact, 0.0), Some(Risk::FewValues));
        assert_eq!(risk(&params, 200, exact, 0.3), None);
        assert_eq!(risk(&params, 40, exact, 0.0), None, "as many rows as entries");
        assert_eq!(risk(&params, 200, OpenedSums::EachIteration(1), 0.0), None, "fitted factors");
        let accepting = DisclosureParams { accept_risk: [Risk::FewValues].into(), ..params };
        assert_eq!(risk(&accepting, 200, exact, 0.0), None);
    }

    /// The measurement behind the limit: the probability that a hidden row of counts is nearer to the span of the sums than
    /// another row of the same kind, for an attacker with 50 further rows. A few entries dominate each row, which makes members
    /// easy to recognise.
    #[test]
    fn more_vectors_show_members_better() {
        let programs = 6;
        let mut draws = Stream::new(5, Purpose::Probe, 1).at(0);
        for (length, hidden) in [(300, 100), (300, 600), (1500, 100), (1500, 600)] {
            let mut peaked =
                |rows: usize, cols: usize| Array2::from_shape_fn((rows, cols), |_| draws.uniform().powi(4));
            let shares = peaked(programs, length);
            let mut counts = |rows: usize| {
                let (means, noise) = (peaked(rows, programs).dot(&shares), peaked(rows, length));
                Zip::from(&means).and(&noise).map_collect(|mean, noise| (6.0 * mean * (0.3 + 4.0 * noise)).round())
            };
            let [known, members, others] = [50, hidden, 200].map(&mut counts);
            let deviations = Deviations::of(&known.view(), 2 * programs).unwrap();
            let apart = |rows: &Array2<f64>| deviations.from_common(&rows.view());
            let (near, far) = (apart(&members), apart(&others));
            let mut auc = |vectors: usize| {
                let weights = Array2::from_shape_fn((hidden, vectors), |_| draws.uniform());
                let space = deviations.space(&members.t().dot(&weights).view(), vectors, 1e-11).unwrap();
                membership::auc(&space.distances(&near.view()), &space.distances(&far.view())).unwrap()
            };
            let found = [20, SHARE, 4, 2].map(|share| auc((hidden / share).min(length - 50)));
            println!(
                "{hidden} rows of {length} entries, a 20th, a 10th, a quarter, half as many vectors: AUC {found:.2?}"
            );
            assert!(found.is_sorted() && found[1] < 0.93 && found[3] > 0.8, "{hidden}: {found:?}");
        }
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
        // A lower limit needs the risk by name.
        let fewer = DisclosureParams { min_rows: Auto::Given(23), ..DisclosureParams::default() };
        assert_eq!(fewer.check(&many, None, run(1)).map(|found| found.risk), Some(Risk::FewRows));
        let accepting = DisclosureParams { accept_risk: Risk::FewRows.into(), ..fewer };
        assert_eq!(accepting.check(&many, None, run(1)), None);
        let more = DisclosureParams { min_rows: Auto::Given(30), ..DisclosureParams::default() };
        assert!(more.check(&PrivatePart { k: 6, ..part(&[29, 4000], 10, true) }, None, run(1)).is_some());
    }

    #[test]
    fn rows_that_hide_nothing_do_not_count() {
        let params = DisclosureParams::default();
        let risk = |params: &DisclosureParams, length, own: &[(usize, usize)]| {
            let part = part(&[600, 600, 700], length, true);
            let found = params.check_distinct(&part, Some(OpenedSums::EachIteration(1)), run(10), own);
            found.map(|found| found.risk)
        };
        assert_eq!(risk(&params, 1000, &[(600, 600), (600, 541)]), None, "less than a tenth");
        assert_eq!(risk(&params, 1000, &[(700, 1)]), Some(Risk::FewRows));
        // 50 vectors of 1000 entries.
        assert_eq!(risk(&params, 1000, &[(700, 100)]), Some(Risk::Membership));
        assert_eq!(risk(&params, 1000, &[(700, 500)]), None);
        // All directions of 40 entries.
        assert_eq!(risk(&params, 40, &[(700, 80)]), None);
        let accepting = DisclosureParams { accept_risk: [Risk::FewRows, Risk::Membership].into(), ..params };
        assert_eq!(risk(&accepting, 1000, &[(700, 1)]), None);
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

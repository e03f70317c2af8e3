//! The choice of the number of components, from the error on held-out entries and the stability of the components.

use fednmf_base::units::precise;
use fednmf_methods::metrics::Measure;

use super::stability::Stability;

/// The results for one k.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Point {
    pub k: usize,
    pub runs: usize,
    /// Mean over the runs of the root mean squared error on observed entries; NaN if no run has it.
    pub rmse: f64,
    /// The standard error of `rmse`; 0 with one run, and in files of versions that did not keep it.
    #[serde(default)]
    pub rmse_error: f64,
    /// The mean of the divergence that the method minimises; `None` for the squared error.
    pub divergence: Option<f64>,
    /// The loss of the best run: the divergence, or the squared `rmse`. `None` in files of versions that did not keep it.
    #[serde(default)]
    pub best: Option<f64>,
    /// The inertias of the matrix up to k over those after it ([`drops`](super::drops)); `None` if entries are left out or the
    /// loss is not the squared error.
    #[serde(default)]
    pub drop: Option<f64>,
    /// Mean over the runs of [`Point::heldout_measure`], and its standard error.
    pub heldout: Option<(f64, f64)>,
    /// That of each run. Runs with one place hold out the same entries for every k. Empty in files of versions that did not keep it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heldout_of_runs: Vec<f64>,
    pub stability: Option<Stability>,
}

/// Components with at least this mean silhouette, none of which is negative, are called stable.
pub const STABLE: f64 = 0.75;
/// A stable k is preferred to an unstable better one if its error is at most this multiple of the smallest.
const NEAR: f64 = 1.05;

/// Without held-out entries, a smaller stable k is preferred if its error is at most this multiple of the smallest.
const AS_GOOD: f64 = 1.01;
/// The loss has an elbow at k if the last component before it lowers the loss at least this many times as much as the first
/// one after it.
const ELBOW: f64 = 1.5;
/// An elbow with at least this share of the best score is nearly as clear.
const NEARLY: f64 = 0.5;
/// An elbow of components that are not stable is named if it is at least this many times as strong as the chosen one.
const STRONGER: f64 = 4.0;
/// From this ratio on, the loss hardly falls beyond an elbow.
const ENDLESS: f64 = 1000.0;
/// Components whose held-out error is above this multiple of the least one do not predict.
const POOR: f64 = 2.0;
/// A held-out error above this multiple of the median is no error of prediction.
const FAR: f64 = 4.0;
/// Errors on held-out entries that differ by less than this share of the fall from the first k are equal: runs that have not
/// converged and few held-out entries differ by as much.
const EQUAL: f64 = 0.02;

/// A recommendation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub k: usize,
    /// The smallest k that predicts held-out entries as well as any; `None` if nothing was held out.
    pub prediction: Option<usize>,
    /// The k to interpret, whose components are stable; `None` if those of no k are.
    pub interpretation: Option<usize>,
    pub reasons: Vec<String>,
    /// Why to look at other k too.
    pub warnings: Vec<String>,
}

impl Point {
    /// The measure that the method minimises.
    fn error(&self) -> f64 {
        self.divergence.unwrap_or(self.rmse)
    }

    /// What is measured on held-out entries: what the method minimises.
    pub fn heldout_measure(&self) -> Measure {
        if self.divergence.is_some() { Measure::HeldoutDivergence } else { Measure::HeldoutRmse }
    }

    /// What the method minimises, in the best run.
    fn loss(&self) -> f64 {
        self.best.unwrap_or_else(|| self.divergence.unwrap_or(self.rmse * self.rmse))
    }

    fn is_stable(&self) -> bool {
        self.stability.is_some_and(|s| s.mean >= STABLE && s.least >= 0.0)
    }

    /// Whether the components are stable; `whose` they are begins the clause.
    fn describe(&self, whose: &str) -> String {
        match self.stability {
            Some(s) => format!(
                "{whose} components are {} (mean silhouette {:.2}, smallest {:.2})",
                match s.mean >= STABLE {
                    true if s.least >= 0.0 => "stable",
                    true => "stable on average, but not all of them",
                    false => "not stable",
                },
                s.mean,
                s.least
            ),
            None => format!("{whose} stability is not known: that takes at least two runs"),
        }
    }

    pub(super) fn describe_by_k(&self) -> String {
        self.describe(&format!("with k = {} the", self.k))
    }
}

impl Choice {
    /// The k whose consensus is worth reading: components on which runs do not agree have no mean.
    pub fn of_consensus(&self) -> usize {
        self.interpretation.unwrap_or(self.k)
    }

    /// The reasons as sentences.
    pub fn explanation(&self) -> String {
        let sentence = |reason: &String| {
            let (first, rest) = reason.split_at(reason.chars().next().map_or(0, char::len_utf8));
            // k is a symbol.
            let first = if rest.starts_with(' ') { first.to_string() } else { first.to_uppercase() };
            format!("{first}{rest}.")
        };
        self.reasons.iter().map(sentence).collect::<Vec<_>>().join(" ")
    }
}

/// The only k that was tried, if its components are not stable.
fn only(point: &Point) -> Option<Chosen<'_>> {
    let reasons = vec![point.stability.map(|_| point.describe_by_k())?];
    let (best, warnings) = (point, Vec::new());
    Some(Chosen { point, reasons, best, warnings, prediction: None, interpretation: None })
}

/// Chooses among the points, in ascending order of k; `None` if nothing supports a choice. Either all points have an error or none
/// has. `most` is the largest k that the matrix allows.
pub fn choose(points: &[Point], most: usize) -> Option<Choice> {
    let known: Vec<(&Point, f64, f64)> = points.iter().filter_map(|p| p.heldout.map(|(e, se)| (p, e, se))).collect();
    let chosen = match points {
        _ if !known.is_empty() => by_held_out(&known)?,
        [point] if !point.is_stable() => only(point)?,
        [first, ..] if first.error().is_nan() => by_stability_alone(points)?,
        _ => by_stability(points)?,
    };
    Some(recommended(chosen, points, most))
}

/// A warning if the held-out error of a run is far above that of most: it then fits entries that nothing it sees determines, and can
/// be any number.
fn overfitted(point: &Point) -> Option<String> {
    let mut all = point.heldout_of_runs.clone();
    all.sort_by(f64::total_cmp);
    let (median, worst) = (all.get((all.len().max(1) - 1) / 2)?, all.last()?);
    (*worst > FAR * median).then(|| {
        format!(
            "with k = {}, a run has {:.0} times the held-out error of half of the runs: held-out entries depend on components that no seen entry \
             of their row or column determines; the mean says little; the method bpp, or penalties, avoid it",
            point.k,
            worst / median
        )
    })
}

/// The recommendation of a chosen point, with warnings if it is at an edge of the range.
pub(super) fn recommended(chosen: Chosen<'_>, points: &[Point], most: usize) -> Choice {
    let Chosen { point: chosen, reasons, best, mut warnings, prediction, interpretation } = chosen;
    warnings.extend(points.iter().filter_map(overfitted));
    let held_out = points.iter().flat_map(|point| &point.heldout_of_runs);
    if held_out.clone().next().is_some() && held_out.copied().all(|error| error == 0.0) {
        warnings.push(
            "all held-out entries are zeros, so the held-out error says nothing of the others; hold out more".into(),
        );
    }
    let error_of = |k: usize| points.iter().find(|point| point.k == k)?.heldout.map(|(error, _)| error);
    if let Some((k, least)) = interpretation.zip(error_of(best.k))
        && let Some(error) = error_of(k).filter(|error| *error > POOR * least)
    {
        warnings.push(format!(
            "the held-out error of k = {k} is {:.1} times the least: its components are stable, but do not predict; another loss may suit the \
             data better",
            error / least
        ));
    }
    match points {
        [_] => warnings.push(format!("only k = {} was tried: it takes several to choose from", chosen.k)),
        [first, .., last] => {
            if chosen.k == last.k && chosen.k < most {
                warnings.push(format!(
                    "k = {0} is the largest that was tried, and larger ones may be better: try {0}..{1} too",
                    chosen.k,
                    (2 * chosen.k).min(most)
                ));
            } else if best.k == last.k && best.k < most {
                warnings.push(format!(
                    "the least error is at k = {0}, the largest that was tried: try larger ones too ({0}..{1})",
                    best.k,
                    (2 * best.k).min(most)
                ));
            }
            if chosen.k == first.k && chosen.k > 1 {
                warnings.push(format!(
                    "k = {0} is the smallest that was tried, and smaller ones may be as good: try {1}..{0} too",
                    chosen.k,
                    (chosen.k / 2).max(1)
                ));
            }
        }
        [] => {}
    }
    Choice { k: chosen.k, prediction, interpretation, reasons, warnings }
}

/// A chosen point.
pub(super) struct Chosen<'a> {
    pub point: &'a Point,
    pub reasons: Vec<String>,
    /// The point with the least error.
    pub best: &'a Point,
    pub warnings: Vec<String>,
    pub prediction: Option<usize>,
    pub interpretation: Option<usize>,
}

/// The stable point with the clearest elbow of the loss, which always falls; without an elbow the one with the least error, or a
/// smaller one that is as good.
fn by_stability(points: &[Point]) -> Option<Chosen<'_>> {
    let (what, how) = match points.iter().any(|p| p.drop.is_some()) {
        true => ("spectrum of the matrix", "has"),
        false => ("smallest loss of the runs", "lowers it by"),
    };
    // The score of an elbow is its strength times the stability of its least stable component.
    let strength = |i: usize| match (points[i].drop, i.checked_sub(1), points.get(i + 1)) {
        (Some(drop), ..) => drop,
        (None, Some(before), Some(after)) => elbow([&points[before], &points[i], after]),
        _ => 0.0,
    };
    // Runs of copies, or of few iterations, may have a larger loss with more components.
    let falls = |i: usize| i > 0 && points[i].error() < points[i - 1].error();
    let unstable =
        (0..points.len()).filter(|&i| !points[i].is_stable() && falls(i)).map(|i| (points[i].k, strength(i)));
    let strongest = unstable.max_by(|a, b| a.1.total_cmp(&b.1));
    let mut elbows: Vec<(&Point, f64, f64)> = points
        .iter()
        .enumerate()
        .filter(|(_, at)| at.is_stable())
        .filter_map(|(i, at)| Some((at, strength(i), strength(i) * at.stability?.least)))
        .filter(|(_, strength, _)| *strength >= ELBOW)
        .collect();
    elbows.sort_by(|a, b| b.2.total_cmp(&a.2));
    if let Some(&(at, strength, score)) = elbows.first() {
        let beyond = match points[0].drop {
            None if strength >= ENDLESS => "after it the loss hardly falls any more".into(),
            _ => format!("the last component up to it {how} {} times as much as the next one", times(strength)),
        };
        let reasons = vec![
            format!("nothing was held out, and the {what} has its clearest elbow at k = {}: {beyond}", at.k),
            at.describe_by_k(),
        ];
        let mut others: Vec<usize> =
            elbows[1..].iter().filter(|other| other.2 >= NEARLY * score).map(|other| other.0.k).collect();
        others.sort_unstable();
        let shown: Vec<String> = others.iter().map(usize::to_string).collect();
        let warning =
            || format!("the elbow is not clear, and k = {} may do as well: compare the components", shown.join(", "));
        let mut warnings = if others.is_empty() { Vec::new() } else { vec![warning()] };
        if let Some((k, found)) = strongest.filter(|(_, found)| *found >= STRONGER * strength) {
            warnings.push(format!(
                "the {what} has a stronger elbow at k = {k} ({} times), whose components depend on the start: the data may have \
                 {k} components that are not unique",
                times(found)
            ));
        }
        let interpretation = Some(at.k);
        return Some(Chosen { point: at, reasons, best: at, warnings, prediction: None, interpretation });
    }
    let stable = || points.iter().filter(|p| p.is_stable());
    let best = stable().min_by(|a, b| a.error().total_cmp(&b.error()))?;
    let chosen = stable().find(|p| p.error() <= AS_GOOD * best.error())?;
    let others = match stable().count() {
        1 => "is the only one with stable components: the data may have more than these runs agree on",
        _ => "has the least error of those with stable components",
    };
    let mut reasons =
        vec![format!("nothing was held out, over k the {what} has no elbow, and k = {} {others}", best.k)];
    if chosen.k != best.k {
        reasons.push(format!("k = {} is the smallest of them within {:.0} % of it", chosen.k, 100.0 * (AS_GOOD - 1.0)));
    }
    reasons.push(chosen.describe_by_k());
    let falls = points.last()?.error() < points.first()?.error();
    let warning = match falls {
        true => {
            "no k stands out: the error falls evenly with k; hold out entries to measure predictions (--holdout 0.05)"
        }
        false => "no k stands out: the error does not fall with k; try smaller k, or more iterations",
    };
    let warnings = if points.len() > 2 { vec![warning.to_string()] } else { Vec::new() };
    let interpretation = Some(chosen.k);
    Some(Chosen { point: chosen, reasons, best: chosen, warnings, prediction: None, interpretation })
}

/// The largest stable point, where no run has an error.
fn by_stability_alone(points: &[Point]) -> Option<Chosen<'_>> {
    let chosen = points.iter().rfind(|point| point.is_stable())?;
    let reasons = vec![
        format!("no run has an error (--eval-every 0), and k = {} is the largest with stable components", chosen.k),
        chosen.describe_by_k(),
    ];
    let warning = "without errors stability alone decides, and a smaller k may do as well: let each owner measure how well the \
                   components of several k fit ('fednmf project', then 'fednmf evaluate')";
    let (warnings, interpretation) = (vec![warning.to_string()], Some(chosen.k));
    Some(Chosen { point: chosen, reasons, best: chosen, warnings, prediction: None, interpretation })
}

/// A ratio in words. A next component that hardly changes the loss, or raises it, has no exact one.
fn times(strength: f64) -> String {
    if strength < ENDLESS { format!("{strength:.1}") } else { "more than 1000".into() }
}

/// How many times as much a component lowers the loss up to `at` as after it.
fn elbow([before, at, after]: [&Point; 3]) -> f64 {
    let gain = |from: &Point, to: &Point| (from.loss() - to.loss()) / (to.k - from.k) as f64;
    let (up_to, beyond) = (gain(before, at), gain(at, after));
    // Where the loss no longer falls, all that is left is noise.
    let least = 1e-6 * before.loss();
    if up_to <= least { 0.0 } else { up_to / beyond.max(least) }
}

/// The smallest k within one standard error of the least error on held-out entries, or within a small share of its fall, or a
/// smaller stable one nearby. The standard error is that of the difference, run by run: which entries a run holds out changes its
/// error more than k does.
fn by_held_out<'a>(known: &[(&'a Point, f64, f64)]) -> Option<Chosen<'a>> {
    let (best, least, unpaired) = known.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let deviation = |point: &Point| {
        let (own, others) = (&point.heldout_of_runs, &best.heldout_of_runs);
        let paired = own.len() == others.len() && own.len() > 1;
        let differences: Vec<f64> = own.iter().zip(others).map(|(own, other)| own - other).collect();
        if paired { standard_error(&differences) } else { unpaired }
    };
    let measure = best.heldout_measure().label();
    let mut reasons = vec![format!("the {measure} is least at k = {}: {}", best.k, precise(least))];
    let equal = EQUAL * (known[0].1 - least);
    let (simplest, error, _) =
        known.iter().copied().filter(|p| p.1 <= least + deviation(p.0).max(equal)).min_by_key(|p| p.0.k)?;
    if simplest.k != best.k {
        let deviation = deviation(simplest);
        let how = if error <= least + deviation {
            format!(
                "within one standard error of the difference ({} <= {} + {})",
                precise(error),
                precise(least),
                precise(deviation)
            )
        } else {
            format!(
                "within {:.0} % of its fall from k = {} ({} <= {} + {})",
                100.0 * EQUAL,
                known[0].0.k,
                precise(error),
                precise(least),
                precise(equal)
            )
        };
        reasons.push(format!("k = {} is the smallest {how}", simplest.k));
    }
    reasons.push(simplest.describe_by_k());
    let mut chosen = simplest;
    if !simplest.is_stable() {
        let near = known.iter().filter(|p| p.0.k < simplest.k && p.1 <= NEAR * least && p.0.is_stable());
        if let Some(other) = near.max_by_key(|p| p.0.k) {
            chosen = other.0;
            reasons.push(format!(
                "k = {} is nearly as good ({}), and {}",
                chosen.k,
                precise(other.1),
                chosen.describe("its")
            ));
        }
    }
    let stable = known.iter().filter(|p| p.0.is_stable()).max_by_key(|p| p.0.k);
    // Every run finds a single component.
    let several = stable.filter(|other| chosen.k == 1 && other.0.k > 1);
    let interpretation = match several {
        None if chosen.is_stable() => Some(chosen.k),
        _ => stable.map(|other| other.0.k),
    };
    if let Some(other) = several {
        reasons.push(format!(
            "a single component is always stable: to interpret, take k = {}, the largest with stable components",
            other.0.k
        ));
    }
    if let Some(other) = stable.filter(|other| !chosen.is_stable() && other.0.k != chosen.k) {
        reasons.push(format!(
            "no k is both accurate and stable: take k = {} to predict, and k = {}, the largest with stable components, to interpret",
            chosen.k, other.0.k
        ));
    }
    let prediction = Some(simplest.k);
    Some(Chosen { point: chosen, reasons, best, warnings: Vec::new(), prediction, interpretation })
}

/// The standard error of a mean; 0 of one number.
pub(super) fn standard_error(numbers: &[f64]) -> f64 {
    let n = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / n;
    let squares: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
    if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(k: usize, heldout: Option<(f64, f64)>, mean: f64) -> Point {
        let stability = Some(Stability { mean, least: mean - 0.1, cosine: mean });
        let rmse = 1.0 / k as f64;
        let heldout_of_runs = Vec::new();
        let divergence = None;
        Point {
            k,
            runs: 5,
            rmse,
            rmse_error: 0.0,
            divergence,
            best: None,
            drop: None,
            heldout,
            heldout_of_runs,
            stability,
        }
    }

    #[test]
    fn an_elbow_of_losses_that_rise_or_stay_has_a_ratio() {
        let of = |losses: [f64; 3]| {
            let points: Vec<Point> =
                (1..).zip(losses).map(|(k, loss)| Point { best: Some(loss), ..point(k, None, 0.9) }).collect();
            elbow([&points[0], &points[1], &points[2]])
        };
        assert_eq!(times(of([1.0, 0.5, 0.4])), "5.0");
        for falls_no_more in [[1.0, 0.5, 0.5], [1.0, 0.5, 0.6]] {
            assert_eq!(times(of(falls_no_more)), "more than 1000");
        }
        for never_falls in [[1.0, 1.0, 0.5], [1.0, 1.1, 1.2], [0.0, 0.0, 0.0]] {
            assert_eq!(of(never_falls), 0.0);
        }
    }

    #[test]
    fn the_simplest_good_k_unless_a_stable_one_is_near() {
        let errors = |list: &[(usize, f64, f64)]| -> Vec<Point> {
            list.iter().map(|&(k, error, mean)| point(k, Some((error, 0.02)), mean)).collect()
        };
        let chosen = |points: &[Point]| choose(points, 90).unwrap();
        let found = chosen(&errors(&[(2, 2.0, 1.0), (4, 1.01, 0.9), (6, 1.0, 0.5), (8, 1.5, 0.2)]));
        assert!(found.k == 4 && found.warnings.is_empty(), "{found:?}");
        let found = chosen(&errors(&[(2, 2.0, 1.0), (3, 1.04, 0.9), (4, 1.0, 0.5), (5, 1.3, 0.2)]));
        let unstable = "with k = 4 the components are not stable";
        assert!(found.k == 3 && found.reasons.iter().any(|r| r.contains(unstable)), "{found:?}");
        assert_eq!((found.prediction, found.interpretation), (Some(4), Some(3)));
        let found = chosen(&errors(&[(2, 2.0, 0.9), (4, 1.0, 0.5), (6, 1.5, 0.2)]));
        assert_eq!((found.k, found.prediction, found.interpretation), (4, Some(4), Some(2)), "{found:?}");
        // Components on which the runs do not agree have no consensus that is worth reading.
        assert_eq!(found.of_consensus(), 2);
        let words = "The held-out RMSE is least at k = 4: 1.000000. With k = 4 the components are not stable (mean silhouette \
                     0.50, smallest 0.40). No k is both accurate and stable: take k = 4 to predict, and k = 2, the largest with \
                     stable components, to interpret.";
        assert_eq!(found.explanation(), words);
        assert_eq!(chosen(&[point(2, None, 0.9), point(3, None, 0.8), point(4, None, 0.4)]).k, 3);
        // A single component is always stable, and is no answer to how many can be told apart.
        let found = chosen(&errors(&[(1, 1.0, 1.0), (2, 1.2, 0.95), (3, 1.3, 0.9), (4, 1.5, 0.3)]));
        assert_eq!((found.k, found.prediction, found.interpretation), (1, Some(1), Some(3)), "{found:?}");
        assert!(found.explanation().contains("to interpret, take k = 3"), "{found:?}");
        let found = chosen(&errors(&[(1, 1.0, 1.0), (2, 1.2, 0.5)]));
        assert_eq!((found.k, found.interpretation), (1, Some(1)), "{found:?}");
        // Differences that runs without an end have are none.
        let fall =
            [(2, 0.07), (3, 0.003), (4, 0.0025), (7, 0.0019)].map(|(k, error)| point(k, Some((error, 1e-5)), 0.9));
        let found = chosen(&fall);
        assert!(found.k == 3 && found.reasons[1].contains("within 2 % of its fall from k = 2"), "{found:?}");
        assert_eq!(choose(&[], 90), None);
        // Who asks for one k gets its components, with what is known of them.
        let found = chosen(&[point(6, None, 0.3)]);
        assert_eq!((found.k, found.interpretation, found.of_consensus()), (6, None, 6), "{found:?}");
        assert!(found.explanation().contains("not stable") && found.warnings[0].contains("only k = 6"), "{found:?}");
        assert_eq!(choose(&[point(2, None, 0.1), point(3, None, 0.1)], 90), None);
    }

    #[test]
    fn a_held_out_error_far_above_those_of_other_runs_is_named() {
        let of = |errors: [f64; 5]| Point { heldout_of_runs: errors.into(), ..point(3, Some((1.0, 0.1)), 0.9) };
        let warned = |errors| recommended_warnings(&[point(2, Some((2.0, 0.1)), 0.9), of(errors)]);
        let recommended = warned([1.0, 40.0, 1.1, 0.9, 1.2]);
        assert!(recommended.iter().any(|text| text.contains("k = 3, a run has 36 times")), "{recommended:?}");
        assert!(!warned([1.0, 3.0, 1.1, 0.9, 1.2]).iter().any(|text| text.contains("times the held-out error")));
    }

    #[test]
    fn held_out_zeros_are_named() {
        let of = |k, error| Point { heldout_of_runs: vec![error; 3], ..point(k, Some((error, 0.0)), 0.9) };
        let named = |errors: [f64; 2]| {
            recommended_warnings(&[of(2, errors[0]), of(3, errors[1])]).iter().any(|text| text.contains("are zeros"))
        };
        assert!(named([0.0, 0.0]) && !named([0.0, 0.1]) && !named([1.0, 1.0]));
    }

    fn recommended_warnings(points: &[Point]) -> Vec<String> {
        choose(points, 90).unwrap().warnings
    }

    /// Runs that hold out other entries have other errors, and all of them prefer k = 3.
    #[test]
    fn runs_with_the_same_held_out_entries_are_compared_with_each_other() {
        let of = |k: usize, shift: f64| {
            let errors: Vec<f64> = [1.0, 1.2, 1.4, 1.6, 1.8].map(|error| error + shift).into();
            let heldout = Some((1.4 + shift, standard_error(&errors)));
            Point { heldout_of_runs: errors, ..point(k, heldout, 0.9) }
        };
        let points = [of(1, 4.0), of(2, 0.1), of(3, 0.0), of(4, 0.2)];
        assert_eq!(choose(&points, 9).unwrap().k, 3);
        let unpaired = points.map(|point| Point { heldout_of_runs: Vec::new(), ..point });
        assert_eq!(choose(&unpaired, 9).unwrap().k, 2);
    }

    #[test]
    fn the_reason_names_what_was_measured_on_held_out_entries() {
        let reason = |divergence| {
            let of = |k, error| Point { divergence, ..point(k, Some((error, 0.0)), 0.9) };
            choose(&[of(2, 2.0), of(3, 1.0), of(4, 2.0)], 9).unwrap().reasons[0].clone()
        };
        assert!(reason(None).contains("held-out RMSE is least at k = 3"));
        assert!(reason(Some(70.0)).contains("held-out KL divergence per entry is least at k = 3"));
    }

    #[test]
    fn both_edges_of_the_range_are_warned_of() {
        let warnings = |list: &[(usize, f64)], most: usize| {
            let points: Vec<Point> = list.iter().map(|&(k, error)| point(k, Some((error, 0.0)), 0.9)).collect();
            choose(&points, most).unwrap().warnings.join("; ")
        };
        assert_eq!(warnings(&[(2, 2.0), (3, 1.0), (4, 2.0)], 9), "");
        let upper = warnings(&[(2, 2.0), (3, 1.5), (4, 1.0)], 7);
        assert!(upper.contains("k = 4 is the largest") && upper.contains("try 4..7"), "{upper}");
        assert_eq!(warnings(&[(2, 2.0), (4, 1.0)], 4), "", "the matrix allows no more");
        let lower = warnings(&[(4, 1.0), (5, 1.5), (6, 2.0)], 9);
        assert!(lower.contains("k = 4 is the smallest") && lower.contains("try 2..4"), "{lower}");
        assert_eq!(warnings(&[(1, 1.0), (2, 1.5)], 9), "", "there is none below");
        assert!(warnings(&[(4, 1.0)], 9).contains("only k = 4"));
        // The least error is at the edge, and a smaller stable k is chosen.
        let points =
            [point(2, Some((2.0, 0.0)), 0.9), point(3, Some((1.04, 0.0)), 0.9), point(4, Some((1.0, 0.0)), 0.3)];
        let found = choose(&points, 9).unwrap();
        assert!(found.k == 3 && found.warnings[0].contains("larger ones"), "{found:?}");
    }

    #[test]
    fn without_errors_the_largest_stable_k_is_chosen_with_a_warning() {
        let with = |k, mean| Point { rmse: f64::NAN, ..point(k, None, mean) };
        let found = choose(&[with(3, 0.9), with(4, 0.9), with(5, 0.3), with(6, 0.3)], 9).unwrap();
        assert_eq!((found.k, found.interpretation), (4, Some(4)));
        assert!(found.reasons[0].contains("--eval-every 0"), "{found:?}");
        assert!(found.warnings.concat().contains("without errors stability alone decides"), "{found:?}");
        assert_eq!(choose(&[with(3, 0.2), with(4, 0.3)], 9), None);
    }

    #[test]
    fn without_held_out_entries_the_error_decides_among_the_stable() {
        let with = |k, rmse, mean| Point { rmse, ..point(k, None, mean) };
        let points = [with(3, 2.0, 0.9), with(4, 1.0, 0.9), with(5, 0.995, 0.8), with(6, 0.5, 0.4)];
        let chosen = |points: &[Point]| choose(points, 9).unwrap();
        let found = chosen(&points);
        assert!(found.k == 4 && found.reasons[0].contains("elbow at k = 4"), "{found:?}");
        // The loss is that of the best run, of what the method minimises.
        let other = points.clone().map(|p| Point { best: Some([0.0, 0.0, 0.0, 9.0, 8.0, 1.0, 0.9][p.k]), ..p });
        assert_eq!(chosen(&other).k, 5);
        let hidden = points.clone().map(|p| Point { best: Some([0.0, 0.0, 0.0, 90.0, 50.0, 33.0, 1e-3][p.k]), ..p });
        let hidden = [&hidden[..], &[Point { best: Some(9e-4), ..with(7, 0.4, 0.3) }]].concat();
        let warned = chosen(&hidden).warnings.concat();
        assert!(warned.contains("stronger elbow at k = 6"), "{warned}");
        // The inertias of the matrix stand in for the loss.
        let dropping = points.clone().map(|p| Point { drop: Some([0.0, 0.0, 0.0, 1.1, 1.2, 4.0, 9.0][p.k]), ..p });
        let found = chosen(&dropping);
        assert!(found.k == 5 && found.reasons[0].contains("spectrum of the matrix"), "{found:?}");
        // The elbow with the more stable components is chosen, and the others are named.
        let two = [(2, 30.0, 0.9), (3, 20.0, 0.8), (4, 15.0, 1.0), (5, 13.0, 0.95), (6, 12.0, 0.3)];
        let two = two.map(|(k, loss, mean)| Point { best: Some(loss), ..with(k, 1.0, mean) });
        let found = chosen(&two);
        assert!(found.k == 4 && found.warnings[0].contains("k = 3, 5 may do as well"), "{found:?}");
        // Without an elbow the error decides.
        let straight = [with(3, 2.0, 0.9), with(4, 1.8, 0.9), with(5, 1.6, 0.8), with(6, 0.5, 0.4)];
        let found = chosen(&straight);
        assert!(found.k == 5 && found.reasons[0].contains("no elbow"), "{found:?}");
        assert!(found.warnings[0].contains("no k stands out"), "{found:?}");
        // One component that other starts do not find makes all of them unstable.
        let one_lost =
            Point { stability: Some(Stability { mean: 0.9, least: -0.1, cosine: 0.9 }), ..with(4, 1.0, 0.9) };
        let points = [with(3, 2.0, 0.9), one_lost, with(5, 0.995, 0.8), with(6, 0.5, 0.4)];
        assert!(chosen(&points).k != 4);
    }
}

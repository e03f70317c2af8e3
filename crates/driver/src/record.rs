//! Decisions of a method as fields of trace, output and checkpoint.

use serde_json::{Map, Value, json};

use fednmf_base::words::Words as _;
use fednmf_methods::decision::Decision;
use fednmf_methods::shared::alternating::Factor;
use fednmf_methods::shared::extrapolation::Extrapolation;
use fednmf_methods::shared::init::{Sample, Start};
use fednmf_methods::shared::missing::Listed;

use super::missing::HELD_OUT;

/// The fields of all decisions, in their order.
pub fn of_decisions(decisions: &[Decision]) -> Map<String, Value> {
    decisions.iter().flat_map(fields).map(|(name, value)| (name.to_string(), value)).collect()
}

/// The fields that a resumed run must have in common with the run that it continues.
pub fn identifying(decisions: &[Decision]) -> Map<String, Value> {
    let graph = decisions.iter().find_map(|decision| match decision {
        Decision::Graph { digest, .. } => Some((GRAPH.to_string(), digest.clone().into())),
        _ => None,
    });
    graph.into_iter().collect()
}

/// The option that a decision chose a word for, and the word; `None` for numbers and facts.
pub fn word(decision: &Decision) -> Option<(&'static str, String)> {
    use Decision::{Barycenter, Normalize, Sketch, Start, StartOfV};
    let (Start(_) | StartOfV(_) | Sketch(_) | Barycenter(_) | Normalize(_)) = decision else { return None };
    let (name, value) = fields(decision).into_iter().next()?;
    Some((name, value.as_str()?.to_string()))
}

const GRAPH: &str = "graph";

/// Names and values of a decision.
pub fn fields(decision: &Decision) -> Vec<(&'static str, Value)> {
    let one = |name, value| vec![(name, value)];
    match *decision {
        Decision::Start(start) => of_start(start),
        Decision::Extrapolated => one("extrapolation", Extrapolation::Restart.name().into()),
        Decision::StartOfV(start) => one("start", start.name().into()),
        Decision::Grid(rows, columns) => one("grid", format!("{rows}x{columns}").into()),
        Decision::Exchange(factor, how) => one(of(factor, ["exchange_u", "exchange_v"]), how.name().into()),
        Decision::Streamed { panels, rows } => one("streamed", json!({"panels": panels, "panel_rows": rows})),
        Decision::BatchSize(rows) => one("batch_size", rows.into()),
        Decision::InnerSweeps(sweeps) => one("inner_sweeps", json!(sweeps)),
        Decision::SweepsOfObserved(sweeps) => one("inner_sweeps", sweeps.into()),
        Decision::SampledSweeps(sweeps) => one("sampled_sweeps", json!(sweeps)),
        Decision::Sketch([for_u, for_v]) if for_u == for_v => one("sketch", for_u.name().into()),
        Decision::Sketch(both) => one("sketch", json!(both.map(|sketch| sketch.name()))),
        Decision::SketchSize(factor, size) => one(of(factor, ["sketch_size_u", "sketch_size_v"]), size.into()),
        Decision::Epoch(iterations) => one("epoch", iterations.into()),
        Decision::ProximalWeight(weight) => one("mu_alpha", weight.into()),
        Decision::LargestEntry(bound) => one("largest_entry", bound.into()),
        Decision::SymmetryWeight(weight) => one("symmetry_weight", weight.into()),
        Decision::Listed(Listed::Observed) => one("listed", "observed".into()),
        Decision::Listed(Listed::Missing) => one("listed", "missing".into()),
        Decision::Observed(entries) => one("observed_entries", entries.into()),
        Decision::HeldOut { entries, .. } => one(HELD_OUT, entries.into()),
        Decision::Unobserved { rows, columns } => {
            vec![("unobserved_rows", rows.into()), ("unobserved_columns", columns.into())]
        }
        Decision::Releases(most) => one("releases", most.into()),
        Decision::MergeWeight(rho) => one("rho", rho.into()),
        Decision::Barycenter(how) => one("barycenter", how.name().into()),
        Decision::Normalize(how) => one("normalize", how.name().into()),
        Decision::Gamma(gamma) => one("gamma", gamma.into()),
        Decision::CopyPenalties { mu, eta } => vec![("mu_penalty", mu.into()), ("eta", eta.into())],
        Decision::LargestSecretWeight(g) => one("g_max", g.into()),
        Decision::Graph { ref digest, edges, diameter } => {
            vec![("edges", edges.into()), (GRAPH, digest.clone().into()), ("diameter", diameter.into())]
        }
        Decision::Slots(slots) => one("slots", slots.into()),
        Decision::Opened { factors, errors } => {
            vec![("opened_factors", factors.into()), ("opened_errors", errors.into())]
        }
        Decision::IterationsInF32(iterations) => one("iterations_in_f32", iterations.into()),
    }
}

fn of(factor: Factor, [u, v]: [&'static str; 2]) -> &'static str {
    if factor == Factor::U { u } else { v }
}

fn of_start(start: Start) -> Vec<(&'static str, Value)> {
    // A given start is recorded as the value of --init.
    let mut all: Vec<_> = start.name().map(|name| ("init", name.into())).into_iter().collect();
    match start {
        Start::Random | Start::Given => {}
        Start::Nndsvd { effort, .. } | Start::Compressed { effort, .. } => {
            all.extend([("init_passes", effort.passes.into()), ("init_spare_columns", effort.spare.into())]);
        }
        Start::Sampled(sample) => {
            all.push(("init_lines", sample.lines.into()));
            all.extend((sample.tries > 1).then(|| ("init_tries", sample.tries.into())));
        }
    }
    if let Start::Compressed { iterations, .. } | Start::Sampled(Sample { iterations, .. }) = start {
        all.push(("init_iterations", iterations.into()));
    }
    all
}

#[cfg(test)]
mod tests {
    use fednmf_methods::shared::sketched_step::Sketching;

    use super::*;

    fn text(decisions: &[Decision]) -> String {
        Value::from(of_decisions(decisions)).to_string()
    }

    #[test]
    fn pairs_are_one_field_or_two() {
        let both = |v| Decision::Sketch([Sketching::Weighted, v]);
        assert_eq!(text(&[both(Sketching::Weighted)]), r#"{"sketch":"weighted"}"#);
        assert_eq!(text(&[both(Sketching::Auto)]), r#"{"sketch":["weighted","auto"]}"#);
        assert_eq!(
            text(&[Decision::SketchSize(Factor::V, 7), Decision::Grid(2, 3)]),
            r#"{"sketch_size_v":7,"grid":"2x3"}"#
        );
        let unobserved = Decision::Unobserved { rows: 1.0, columns: 0.0 };
        assert_eq!(text(&[unobserved]), r#"{"unobserved_rows":1.0,"unobserved_columns":0.0}"#);
    }

    #[test]
    fn a_start_has_its_effort() {
        let sample = |tries| text(&[Decision::Start(Start::Sampled(Sample { lines: 200, iterations: 15, tries }))]);
        assert_eq!(sample(1), r#"{"init":"sampled","init_lines":200,"init_iterations":15}"#);
        assert_eq!(sample(8), r#"{"init":"sampled","init_lines":200,"init_tries":8,"init_iterations":15}"#);
        assert_eq!(text(&[Decision::Start(Start::Given)]), "{}");
    }

    #[test]
    fn only_a_choice_among_words_has_a_word() {
        assert_eq!(word(&Decision::Start(Start::Random)), Some(("init", "random".into())));
        assert_eq!(word(&Decision::Sketch([Sketching::Weighted, Sketching::Auto])), None);
        assert_eq!(word(&Decision::Grid(2, 1)), None);
        assert_eq!(word(&Decision::Listed(Listed::Missing)), None);
    }

    #[test]
    fn only_the_graph_identifies_a_run() {
        let graph = Decision::Graph { digest: "abc".into(), edges: 3, diameter: 1 };
        let all = identifying(&[Decision::Slots(1), graph]);
        assert_eq!(Value::from(all).to_string(), r#"{"graph":"abc"}"#);
    }
}

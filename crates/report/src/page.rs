//! The self-contained HTML page: plots, tables and text.

use std::fmt::Write as _;

use serde_json::Value;

use fednmf_base::units::bytes;
use fednmf_files::output::own_text;
use fednmf_methods::metrics::Measure;
use fednmf_methods::registry;

use super::charts;
use crate::axis::{Axis, number};
use crate::charts::Series;
use crate::history::{History, finite};
use crate::svg::escape;

const STYLE: &str = include_str!("style.css");
const EXPORT: &str = include_str!("export.js");

/// A plot with its caption.
pub struct Figure {
    /// Stem of the exported file's name; letters, digits and hyphens.
    pub id: String,
    pub title: String,
    pub note: String,
    pub svg: String,
}

/// Plots of a run's factors.
pub struct RunFigures {
    pub run: String,
    pub figures: Vec<Figure>,
    /// Notes on what is not shown, and why.
    pub notes: Vec<String>,
}

/// A line chart: its id, the label of its vertical axis, and the name and points of each line.
pub type Plot<'a> = (&'a str, &'a str, &'a [(String, Vec<(f64, f64)>)]);

/// A section of text.
pub struct Section<'a> {
    pub heading: String,
    pub words: String,
    /// A table, if it has rows.
    pub head: &'a [&'a str],
    pub rows: Vec<Vec<String>>,
    /// A command to copy.
    pub command: Option<String>,
}

/// A page of plots between an introduction and sections of text; `across` is the label of the horizontal axis.
pub fn plots(
    title: &str,
    introduction: &[String],
    across: &str,
    plots: &[Plot<'_>],
    sections: &[Section<'_>],
) -> String {
    let mut body = format!("<h1>{}</h1>\n", escape(title));
    for words in introduction {
        let _ = writeln!(body, "<p>{}</p>", escape(words));
    }
    for (id, up, lines) in plots {
        let series = lines.iter().filter(|(_, points)| !points.is_empty());
        let series: Vec<Series> =
            series.map(|(name, points)| Series { name: name.clone(), points: points.clone() }).collect();
        let svg = charts::lines(up, (across, up), &series, |values| Axis::linear(values, true));
        write_figures(
            &mut body,
            svg.map(|svg| Figure { id: (*id).to_string(), title: (*up).to_string(), note: String::new(), svg }),
        );
    }
    for Section { heading, words, head, rows, command } in sections {
        let _ = writeln!(body, "<h2>{}</h2>\n<p>{}</p>", escape(heading), escape(words));
        if !rows.is_empty() {
            table(&mut body, head, rows.iter().cloned());
        }
        if let Some(command) = command {
            let _ = writeln!(body, "<pre>{}</pre>", escape(command));
        }
    }
    html(title, &body)
}

/// The whole page.
pub fn page(histories: &[History], shown: &[RunFigures]) -> String {
    let title = match histories {
        [one] => format!("{} on {}", text(&one.start["algo"]), text(one.parameter("input"))),
        all => format!("{} runs of fednmf", all.len()),
    };
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    overview(&mut body, histories);
    body.push_str("<h2>Error</h2>\n");
    let before = body.len();
    let leading = leading(histories);
    if leading != Measure::RelativeError {
        let title = format!("{} over iterations", capitalised(leading.label()));
        let along: Along = |e| finite(e, "iter");
        write_figures(&mut body, over(histories, ("measure-over-iterations", &title, "iterations", along), leading));
    }
    for (id, title, across, of) in ERRORS {
        write_figures(&mut body, over(histories, (id, title, across, *of), Measure::RelativeError));
    }
    if body.len() == before {
        body.push_str("<p>Nothing was evaluated (<code>--eval-every 0</code>).</p>\n");
    }
    for shown in shown {
        let _ = writeln!(body, "<h2>Components of {}</h2>", escape(&shown.run));
        write_figures(&mut body, &shown.figures);
        for note in &shown.notes {
            let _ = writeln!(body, "<p>{}</p>", escape(note));
        }
    }
    body.push_str("<h2>Time and traffic</h2>\n");
    for (i, history) in histories.iter().enumerate() {
        time(&mut body, history, i);
    }
    for history in histories {
        wire(&mut body, history);
    }
    body.push_str("<h2>Reproduce</h2>\n");
    for history in histories {
        command(&mut body, history);
    }
    html(&title, &body)
}

/// The document around `body`.
fn html(title: &str, body: &str) -> String {
    own_text::report(&format!(
        "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n<script>\n//<![CDATA[\n{EXPORT}//]]>\n</script>\n</body>\n</html>\n",
        escape(title)
    ))
}

type Along = fn(&Value) -> Option<f64>;

/// The charts of the error: id, title, label of the horizontal axis, and its value in an evaluation.
const ERRORS: &[(&str, &str, &str, Along)] = &[
    ("error-over-iterations", "Relative error over iterations", "iterations", |e| finite(e, "iter")),
    ("error-over-time", "Relative error over time", "seconds in the solver", |e| finite(e, "seconds")),
    ("error-over-traffic", "Relative error over traffic", "MiB sent by all ranks", |e| {
        finite(e, "bytes_sent").filter(|b| *b > 0.0).map(|b| b / (1024.0 * 1024.0))
    }),
];

/// The leading measure of the runs if it is the same for all (that of the method, the error on held-out entries, or the
/// objective with penalties), otherwise the relative error.
fn leading(histories: &[History]) -> Measure {
    let of = |history: &History| {
        let has = |measure: Measure| history.evaluations.iter().any(|e| finite(e, measure.key()).is_some());
        let method = registry::find(&text(&history.start["algo"])).map(|entry| entry.description().measure);
        let beside = [Measure::HeldoutDivergence, Measure::HeldoutRmse, Measure::Objective]
            .into_iter()
            .find(|measure| has(*measure));
        beside.or(method).unwrap_or(Measure::RelativeError)
    };
    let mut all = histories.iter().map(of);
    let first = all.next().unwrap_or(Measure::RelativeError);
    if all.all(|other| other == first) { first } else { Measure::RelativeError }
}

/// The text with its first letter in upper case.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn over(histories: &[History], (id, title, across, of): (&str, &str, &str, Along), measure: Measure) -> Option<Figure> {
    let series: Vec<Series> = histories
        .iter()
        .map(|history| {
            let point = |e: &Value| of(e).zip(finite(e, measure.key()));
            Series { name: history.name.clone(), points: history.evaluations.iter().filter_map(point).collect() }
        })
        .filter(|s| !s.points.is_empty())
        .collect();
    let errors = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        Axis::of_errors(values.into_iter())
    };
    let svg = charts::lines(title, (across, measure.label()), &series, errors)?;
    Some(Figure { id: id.into(), title: title.into(), note: String::new(), svg })
}

fn write_figures<'a, F: std::borrow::Borrow<Figure> + 'a>(body: &mut String, all: impl IntoIterator<Item = F>) {
    for figure in all {
        let Figure { id, title, note, svg } = figure.borrow();
        let _ = writeln!(
            body,
            "<figure id=\"{id}\"><figcaption>{} <span class=\"note\">{}</span></figcaption>\n{svg}\n</figure>",
            escape(title),
            escape(note)
        );
    }
}

/// A table; cells that begin with a digit are aligned as numbers.
fn table<'a>(body: &mut String, head: &[&str], rows: impl IntoIterator<Item = Vec<String>> + 'a) {
    body.push_str("<div class=\"scroll\"><table><tr>");
    head.iter().for_each(|h| {
        let _ = write!(body, "<th>{}</th>", escape(h));
    });
    body.push_str("</tr>\n");
    for row in rows {
        body.push_str("<tr>");
        for cell in row {
            let class = if cell.starts_with(|c: char| c.is_ascii_digit()) { " class=\"n\"" } else { "" };
            let _ = write!(body, "<td{class}>{}</td>", escape(&cell));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n");
}

/// A JSON value as plain text.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(s) => s.clone(),
        Value::Number(n) if n.is_f64() => number(n.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

fn overview(body: &mut String, histories: &[History]) {
    let head =
        ["run", "algorithm", "matrix", "k", "ranks", "parties", "iterations", "seconds", "relative error", "ended by"];
    let rows: Vec<Vec<String>> = histories
        .iter()
        .map(|c| {
            let last = c.end.as_ref().or(c.evaluations.last()).cloned().unwrap_or(Value::Null);
            let ended = c.end.as_ref().map_or_else(|| "not ended".into(), |end| text(&end["stopped_by"]));
            vec![
                c.name.clone(),
                text(&c.start["algo"]),
                format!("{} x {}", text(&c.start["m"]), text(&c.start["n"])),
                text(&c.start["k"]),
                text(&c.start["ranks"]),
                text(&c.start["parties"]),
                text(&last["iter"]),
                text(&last["seconds"]),
                c.error().map_or_else(|| "-".into(), |e| format!("{e:.6}")),
                ended,
            ]
        })
        .collect();
    table(body, &head, rows);
}

/// Number of phases with a colour of their own.
const PHASES: usize = 9;

fn time(body: &mut String, history: &History, number_of_run: usize) {
    let Some(end) = &history.end else { return };
    let Some(phases) = end["phases"].as_object() else { return };
    let mut order: Vec<(&String, &Value)> =
        phases.iter().filter(|(_, p)| finite(p, "seconds_max").is_some_and(|s| s > 0.0)).collect();
    order.sort_by(|a, b| {
        finite(b.1, "seconds_max").unwrap_or(0.0).total_cmp(&finite(a.1, "seconds_max").unwrap_or(0.0))
    });
    let ranks = history.count("ranks");
    let of_ranks = |p: &Value| -> Option<Vec<f64>> {
        let seconds: Vec<f64> = p["seconds_by_rank"].as_array()?.iter().map(|s| s.as_f64().unwrap_or(0.0)).collect();
        (seconds.len() == ranks).then_some(seconds)
    };
    let by_rank = order.iter().all(|(_, p)| of_ranks(p).is_some());
    let names: Vec<String> = if by_rank {
        (0..ranks).map(|r| format!("rank {r}")).collect()
    } else {
        vec!["slowest rank".into(), "mean".into()]
    };
    let mut rows: Vec<(String, Vec<f64>)> = names.into_iter().map(|name| (name, Vec::new())).collect();
    let mut parts: Vec<String> = Vec::new();
    for (i, (name, p)) in order.iter().enumerate() {
        let seconds = of_ranks(p)
            .unwrap_or_else(|| ["seconds_max", "seconds_mean"].map(|key| finite(p, key).unwrap_or(0.0)).to_vec());
        if i < PHASES {
            parts.push((*name).clone());
            rows.iter_mut().zip(seconds).for_each(|(row, s)| row.1.push(s));
        } else if i == PHASES {
            parts.push("all others".into());
            rows.iter_mut().zip(seconds).for_each(|(row, s)| row.1.push(s));
        } else {
            rows.iter_mut().zip(seconds).for_each(|(row, s)| row.1[PHASES] += s);
        }
    }
    let imbalance = finite(end, "imbalance")
        .map_or_else(String::new, |x| format!("The slowest rank computed for {:.2} times the mean. ", x));
    let streamed = match (end["streamed"]["passes"].as_u64(), finite(&end["streamed"], "wait_seconds")) {
        (Some(passes), Some(seconds)) => format!(
            " The rows of the matrix were read from the file in {passes} passes, which include the work meanwhile; a rank \
             waited {seconds:.3} s for them."
        ),
        _ => String::new(),
    };
    let note = format!("{imbalance}Evaluation includes its messages, which are also shown separately.{streamed}");
    let title = format!("Time by phase and rank: {}", history.name);
    let time = charts::stacked(&title, "seconds", &parts, &rows);
    write_figures(body, time.map(|svg| Figure { id: format!("time-{number_of_run}"), title, note, svg }));

    let mut sent: Vec<(String, f64, String)> = Vec::new();
    for row in end["wire"].as_array().into_iter().flatten() {
        let [mpi, party] = ["mpi_bytes", "party_bytes"].map(|key| row[key].as_u64().unwrap_or(0));
        if mpi > 0 {
            sent.push((format!("{} ({})", text(&row["purpose"]), text(&row["payload"])), mpi as f64, bytes(mpi)));
        } else if party > 0 && history.count("parties") > ranks {
            sent.push((format!("{} (between parties)", text(&row["purpose"])), party as f64, bytes(party)));
        }
    }
    sent.sort_by(|a, b| b.1.total_cmp(&a.1));
    let title = format!("Traffic by purpose: {}", history.name);
    let note = "Bytes sent and received by all ranks".to_string();
    let traffic = charts::bars(&title, &sent);
    write_figures(body, traffic.map(|svg| Figure { id: format!("traffic-{number_of_run}"), title, note, svg }));
}

/// The ledger: what each rank or party sent.
fn wire(body: &mut String, history: &History) {
    let Some(end) = &history.end else { return };
    let method = registry::find(&text(&history.start["algo"])).map(|entry| entry.description());
    let owner = if method.is_some_and(|m| m.partition.is_private()) { "party" } else { "rank" };
    let _ = writeln!(
        body,
        "<details><summary>What each {owner} sent: the ledger of {}</summary>\n<p>Every message is counted. Party bytes are sent and \
         received by all parties, MPI bytes cross the boundary of a rank.</p>",
        escape(&history.name)
    );
    let lines: Vec<_> = method.into_iter().flat_map(|m| m.all_messages()).collect();
    let rows = end["wire"].as_array().into_iter().flatten().map(|row| {
        let known = lines.iter().find(|w| row["purpose"] == w.kind);
        let count = |key: &str| bytes(row[key].as_u64().unwrap_or(0));
        vec![
            text(&row["purpose"]),
            text(&row["payload"]),
            known.map_or("", |w| w.shape).to_string(),
            known.map_or("", |w| w.when).to_string(),
            count("party_bytes"),
            count("mpi_bytes"),
            text(&row["messages"]),
        ]
    });
    table(body, &["purpose", "content", "size", "when", "party bytes", "MPI bytes", "messages"], rows);
    body.push_str("</details>\n");
}

fn command(body: &mut String, history: &History) {
    let start = &history.start;
    let _ = writeln!(
        body,
        "<p>{}: fednmf {} ({}), {} on {}. The same seed gives the same result on any number of ranks.</p>\n<pre>{}</pre>",
        escape(&history.name),
        escape(&text(&start["version"])),
        escape(&text(&start["git"])),
        escape(&text(&start["time"])),
        escape(&text(&start["host"])),
        escape(&history.command())
    );
    let _ = writeln!(body, "<details><summary>All parameters of {}</summary>", escape(&history.name));
    let params = start["params"].as_object();
    let rows = params.into_iter().flatten().map(|(name, value)| vec![name.replace('_', " "), text(value)]);
    let more = ["checksum", "nnz", "format", "load_seconds", "mkl", "resumed_from"];
    let more = more.iter().map(|name| vec![name.replace('_', " "), text(&start[*name])]);
    table(body, &["parameter", "value"], rows.chain(more).collect::<Vec<_>>());
    body.push_str("</details>\n");
}

//! The self-contained HTML page: plots, tables and text.

use std::borrow::Borrow;
use std::fmt::Write as _;

use ndarray::Array2;
use serde_json::Value;

use fednmf_base::units::{bytes, counted, precise, short, thousands};
use fednmf_files::output::own_text;
use fednmf_methods::description::Description;
use fednmf_methods::metrics;
use fednmf_methods::metrics::Measure;
use fednmf_methods::registry;
use fednmf_methods::shared::dp;

use crate::axis::number;
use crate::charts::{self, Lines, Series};
use crate::components;
use crate::history::{History, finite};
use crate::privacy;
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
#[derive(Default)]
pub struct RunFigures {
    pub components: Option<Figure>,
    /// Why there are no components.
    pub missing: Option<String>,
    /// Remarks on the components.
    pub notes: Vec<String>,
    /// The components beside those of the first run.
    pub matches: Option<Figure>,
    pub usage: Option<Figure>,
    pub reconstruction: Option<Figure>,
    /// Why there is no reconstruction.
    pub without_lines: Option<String>,
}

/// A line of a plot of a study: its name, and k, value and standard error of each point.
pub type Line = (&'static str, Vec<(f64, f64, f64)>);

/// A plot of values over k.
pub struct Plot {
    pub id: &'static str,
    /// The label of the vertical axis.
    pub up: &'static str,
    pub lines: Vec<Line>,
    /// Whether the vertical axis is linear and includes zero; otherwise it is logarithmic where values span more than a factor
    /// of ten.
    pub zero_up: bool,
}

/// A section of text.
pub struct Section<'a> {
    pub heading: String,
    pub words: String,
    /// A table, if it has rows.
    pub head: &'a [&'a str],
    pub rows: Vec<Vec<String>>,
    pub figure: Option<Figure>,
    /// A command to copy.
    pub command: Option<String>,
}

/// The page about runs with several k.
pub struct Study<'a> {
    pub title: String,
    /// The answers, each with what it answers.
    pub answers: Vec<(&'static str, String)>,
    pub introduction: Vec<String>,
    /// Values of k to mark in the plots, with their labels.
    pub marks: Vec<(f64, String)>,
    pub plots: Vec<Plot>,
    pub sections: Vec<Section<'a>>,
}

/// The page of a study.
pub fn study(study: &Study<'_>) -> String {
    let mut body = format!("<h1>{}</h1>\n", escape(&study.title));
    headline(&mut body, &study.answers);
    for words in &study.introduction {
        let _ = writeln!(body, "<p>{}</p>", escape(words));
    }
    for Plot { id, up, lines, zero_up } in &study.plots {
        let lines = lines.iter().filter(|(_, points)| !points.is_empty());
        let series: Vec<Series> = lines
            .map(|(name, points)| Series {
                name: (*name).to_string(),
                points: points.iter().map(|p| (p.0, p.1)).collect(),
                deviations: points.iter().map(|p| p.2).collect(),
            })
            .collect();
        let bars = series.iter().any(|s| s.deviations.iter().any(|d| *d > 0.0));
        let note = if bars { "Bars: standard error over the runs" } else { "" }.to_string();
        let (title, across, marks, zero_up) = (capitalised(up), "components k", &*study.marks, *zero_up);
        let lines =
            Lines { title: &title, across, up, series: &series, marks, zero_across: false, zero_up, whole: true };
        write_figures(&mut body, lines.draw().map(|svg| Figure { id: (*id).into(), title: title.clone(), note, svg }));
    }
    for Section { heading, words, head, rows, figure, command } in &study.sections {
        let _ = writeln!(body, "<h2>{}</h2>\n<p>{}</p>", escape(heading), escape(words));
        if !rows.is_empty() {
            table(&mut body, heading, head, rows.iter().cloned());
        }
        write_figures(&mut body, figure);
        if let Some(command) = command {
            let _ = writeln!(body, "<pre class=\"command\">{}</pre>", escape(command));
        }
    }
    html(&study.title, &body)
}

/// The cosines between all components of several runs, in the order of their `clusters`.
pub fn similarities(cosines: &Array2<f64>, clusters: &[usize]) -> Figure {
    let note = "Cosines of all components, dark 0, yellow 1: a yellow block for each component that all runs find";
    Figure {
        id: "consensus".into(),
        title: "Do the runs agree?".into(),
        note: note.into(),
        svg: components::similarities(cosines, clusters),
    }
}

/// The whole page.
pub fn page(histories: &[History], shown: &[RunFigures]) -> String {
    let title = title(histories);
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    match histories {
        [one] => facts(&mut body, one),
        all => comparison(&mut body, all),
    }
    units(&mut body, histories);
    components(&mut body, histories, shown);
    section(&mut body, histories, shown, "Use of the components", |figures| (figures.usage.as_ref(), None));
    fit(&mut body, histories);
    section(&mut body, histories, shown, "Reconstruction", |figures| {
        (figures.reconstruction.as_ref(), figures.without_lines.as_deref())
    });
    privacy(&mut body, histories);
    performance(&mut body, histories);
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

/// `digits.npy: k = 6, hals`, or what is compared.
fn title(histories: &[History]) -> String {
    let first = histories.first().map_or_else(String::new, data_of);
    match histories {
        [one] => format!("{first}: k = {}, {}", text(&one.start["k"]), text(&one.start["algo"])),
        all if all.iter().all(|other| data_of(other) == first) => format!("{first}: {} runs compared", all.len()),
        all => format!("{} runs compared", all.len()),
    }
}

/// The name of a run's data, whose file is not named if it is private.
fn data_of(history: &History) -> String {
    let input = text(history.parameter("input"));
    match is_private(history) && !input.starts_with("synthetic") {
        true => format!("Data of {}", counted(history.count("parties"), "party", "parties")),
        false => data_name(&input),
    }
}

/// The name of the file of an input, with what is selected in it.
pub fn data_name(input: &str) -> String {
    let (path, more) = input.split_once(':').map_or((input, None), |(path, more)| (path, Some(more)));
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    more.map_or_else(|| name.to_string(), |more| format!("{name}:{more}"))
}

fn method(history: &History) -> Option<&'static Description> {
    registry::find(&text(&history.start["algo"])).map(|entry| entry.description())
}

/// Whether blocks of the data of a run belong to parties.
pub fn is_private(history: &History) -> bool {
    method(history).is_some_and(|method| method.partition.is_private())
}

/// The end of a run, or its last evaluation.
fn last(history: &History) -> &Value {
    history.end.as_ref().or(history.evaluations.last()).unwrap_or(&Value::Null)
}

/// The last value of a measure.
fn value(history: &History, measure: Measure) -> Option<f64> {
    history.evaluations.iter().rev().find_map(|event| finite(event, measure.key()))
}

fn label(measure: Measure, history: &History) -> String {
    measure.label_with(history.parameter("beta").as_f64())
}

/// Numbers in large print: what, and how many.
fn headline(body: &mut String, numbers: &[(impl AsRef<str>, String)]) {
    if numbers.is_empty() {
        return;
    }
    body.push_str("<dl class=\"headline\">\n");
    for (what, number) in numbers {
        let _ = writeln!(body, "<div><dt>{}</dt><dd>{}</dd></div>", escape(what.as_ref()), escape(number));
    }
    body.push_str("</dl>\n");
}

/// The headline of a run, and how it was run.
fn facts(body: &mut String, history: &History) {
    let (start, last, leading) = (&history.start, last(history), leading(std::slice::from_ref(history)));
    let time = |s: f64| if s < 0.01 { format!("{} ms", short(1000.0 * s)) } else { format!("{} s", short(s)) };
    let mut numbers: Vec<(String, String)> =
        value(history, leading).map(|x| (label(leading, history), short(x))).into_iter().collect();
    numbers.extend([
        ("components".into(), text(&start["k"])),
        ("iterations".into(), count(last, "iter")),
        ("time".into(), finite(last, "seconds").map_or("-".into(), time)),
        ("size".into(), size(history)),
    ]);
    headline(body, &numbers);
    let mut words = format!("{} on {}", text(&start["algo"]), counted(history.count("ranks"), "rank", "ranks"));
    if is_private(history) {
        let _ = write!(words, " for {}", counted(history.count("parties"), "party", "parties"));
    }
    let _ = writeln!(body, "<p>{}; {}.</p>", escape(&words), escape(&ended(history)));
}

/// The unit of the errors of each run, if it is not that of the input.
fn units(body: &mut String, histories: &[History]) {
    for history in histories {
        let params = &history.start["params"];
        if let Some(divisor) = params["scale_divisor"].as_f64().filter(|_| params["binarize"].is_null()) {
            let of = if histories.len() == 1 { String::new() } else { format!("{}: ", history.name) };
            let penalties = history.evaluations.iter().any(|e| finite(e, Measure::Objective.key()).is_some());
            let note = metrics::note_of_scale(divisor, params["beta"].as_f64(), penalties);
            paragraph(body, &format!("{of}{note}."));
        }
    }
}

/// Why a run ended, in words.
fn ended(history: &History) -> String {
    let Some(end) = &history.end else { return "not ended".into() };
    match end["stopped_by"].as_str().unwrap_or_default() {
        "done" => "done".into(),
        "epsilon" => "the budget of --epsilon is spent".into(),
        option @ ("max_iters" | "tol" | "target_error" | "time_limit") => {
            format!("stopped at --{}", option.replace('_', "-"))
        }
        other => format!("stopped by {other}"),
    }
}

/// The table of several runs, without what is the same in all of them, which is a sentence.
fn comparison(body: &mut String, histories: &[History]) {
    let leading = leading(histories);
    let mut measures = vec![leading, Measure::RelativeError];
    measures.dedup();
    let column = |of: &dyn Fn(&History) -> String| histories.iter().map(of).collect::<Vec<String>>();
    let parties = |history: &History| if is_private(history) { text(&history.start["parties"]) } else { "-".into() };
    let parameter = |name: &str| column(&|history| text(&history.start["params"][name]));
    let circumstances = [
        ("method", column(&|history| text(&history.start["algo"]))),
        ("data", column(&data_of)),
        ("size", column(&size)),
        ("k", column(&|history| text(&history.start["k"]))),
        ("ranks", column(&|history| text(&history.start["ranks"]))),
        ("parties", column(&parties)),
        ("seed", column(&|history| text(&history.start["seed"]))),
        ("init", parameter("init")),
        ("sweeps", parameter("inner_sweeps")),
        ("extrapolation", parameter("extrapolation")),
        ("sketch", parameter("sketch")),
    ];
    let (same, differ): (Vec<_>, Vec<_>) =
        circumstances.into_iter().partition(|(_, values)| values.iter().all(|value| *value == values[0]));
    let same = same.iter().filter(|(_, values)| values[0] != "-").map(|(what, values)| format!("{what} {}", values[0]));
    let same: Vec<String> = same.collect();
    if !same.is_empty() {
        paragraph(body, &format!("The same in all runs: {}.", same.join("; ")));
    }
    let mut columns = vec![("run", column(&|history| history.name.clone()))];
    columns.extend(differ);
    for measure in measures {
        columns.push((measure.label(), column(&|history| value(history, measure).map_or("-".into(), precise))));
    }
    columns.push(("iterations", column(&|history| count(last(history), "iter"))));
    columns.push(("seconds", column(&|history| text(&last(history)["seconds"]))));
    columns.push(("end", column(&ended)));
    let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let rows = (0..histories.len()).map(|i| columns.iter().map(|(_, values)| values[i].clone()).collect());
    table(body, "Runs", &head, rows.collect::<Vec<Vec<String>>>());
    let of =
        |history: &History| method(history).map(|method| (method.measure, history.start["params"]["beta"].as_f64()));
    if histories.iter().any(|other| of(other) != of(&histories[0])) {
        paragraph(body, "The runs minimise different losses, which no error of this table compares.");
    }
}

/// A whole number of an event.
fn count(event: &Value, name: &str) -> String {
    event[name].as_u64().map_or("-".into(), |n| thousands(n as usize))
}

/// `1,797 × 64`.
fn size(history: &History) -> String {
    format!("{} × {}", count(&history.start, "m"), count(&history.start, "n"))
}

/// The components: first how those of several runs correspond, then those of each.
fn components(body: &mut String, histories: &[History], shown: &[RunFigures]) {
    body.push_str("<h2>Components</h2>\n");
    write_figures(body, shown.iter().filter_map(|figures| figures.matches.as_ref()));
    let mut missing = Vec::<(&str, Vec<&str>)>::new();
    for (history, figures) in histories.iter().zip(shown) {
        if let Some(why) = &figures.missing {
            match missing.iter_mut().find(|(other, _)| other == why) {
                Some((_, names)) => names.push(&history.name),
                None => missing.push((why, vec![&history.name])),
            }
            continue;
        }
        name_of_run(body, histories, history);
        figures.notes.iter().for_each(|note| paragraph(body, note));
        write_figures(body, &figures.components);
    }
    for (why, names) in missing {
        let of = if histories.len() == 1 { String::new() } else { format!(" of {}", names.join(", ")) };
        paragraph(body, &format!("The components{of} are not shown: {why}."));
    }
}

/// A section with a figure of each run, or why there is none; nothing if there is neither.
fn section(
    body: &mut String,
    histories: &[History],
    shown: &[RunFigures],
    heading: &str,
    of: impl Fn(&RunFigures) -> (Option<&Figure>, Option<&str>),
) {
    let mut heading = Some(heading);
    for (history, figures) in histories.iter().zip(shown) {
        let (figure, why) = of(figures);
        if figure.is_none() && why.is_none() {
            continue;
        }
        if let Some(heading) = heading.take() {
            let _ = writeln!(body, "<h2>{heading}</h2>");
        }
        name_of_run(body, histories, history);
        write_figures(body, figure);
        why.into_iter().for_each(|why| paragraph(body, why));
    }
}

/// A heading with the name of a run, where there are several.
fn name_of_run(body: &mut String, histories: &[History], history: &History) {
    if histories.len() > 1 {
        let _ = writeln!(body, "<h3>{}</h3>", escape(&history.name));
    }
}

fn paragraph(body: &mut String, words: &str) {
    let _ = writeln!(body, "<p>{}</p>", escape(words));
}

type Along = fn(&Value) -> Option<f64>;

const ITERATIONS: (&str, Along) = ("iterations", |e| finite(e, "iter"));
const TIME: (&str, Along) = ("seconds in the solver", |e| finite(e, "seconds"));
const TRAFFIC: (&str, Along) = ("MiB sent and received by rank 0", |e| {
    finite(e, "bytes_sent").filter(|b| *b > 0.0).map(|b| b / (1024.0 * 1024.0))
});

/// The leading measure in views of one chart, and the relative error if it is another measure.
fn fit(body: &mut String, histories: &[History]) {
    body.push_str("<h2>Fit</h2>\n");
    let leading = leading(histories);
    let stem = if leading == Measure::RelativeError { "error" } else { "measure" };
    let by_iterations = ["iterations", &format!("{stem}-over-iterations")].map(String::from);
    let by_time = ["time", &format!("{stem}-over-time")].map(String::from);
    let mut views = vec![(by_iterations, ITERATIONS, leading), (by_time, TIME, leading)];
    if leading != Measure::RelativeError {
        let names = [Measure::RelativeError.label(), "error-over-iterations"].map(String::from);
        views.push((names, ITERATIONS, Measure::RelativeError));
    }
    let found: Vec<(String, Figure)> = views
        .into_iter()
        .filter_map(|([view, id], along, measure)| Some((view, over(histories, &id, along, measure)?)))
        .collect();
    if found.is_empty() {
        body.push_str("<p>Nothing was evaluated (<code>--eval-every 0</code>).</p>\n");
        return;
    }
    if let [history] = histories {
        let measures = leading.leading(|key| history.evaluations.iter().rev().find_map(|event| finite(event, key)));
        let measures: Vec<String> =
            measures.into_iter().map(|(measure, x)| format!("{} {}", label(measure, history), precise(x))).collect();
        paragraph(body, &format!("At the end: {}.", measures.join(", ")));
    }
    if leading != Measure::RelativeError {
        paragraph(body, "The relative error is of squares, which the runs do not minimise: it may rise.");
    }
    body.push_str("<div class=\"views\">\n");
    for (view, figure) in &found {
        write_figure(body, figure, &format!(" data-view=\"{view}\""));
    }
    body.push_str("</div>\n");
}

/// The leading measure of the runs if it is the same for all (that of the method, the error on held-out entries, or the
/// objective with penalties), otherwise the relative error.
fn leading(histories: &[History]) -> Measure {
    let of = |history: &History| {
        let has = |measure: Measure| history.evaluations.iter().any(|e| finite(e, measure.key()).is_some());
        let beside = [Measure::HeldoutDivergence, Measure::HeldoutRmse, Measure::Objective]
            .into_iter()
            .find(|measure| has(*measure));
        beside.or(method(history).map(|method| method.measure)).unwrap_or(Measure::RelativeError)
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

fn over(histories: &[History], id: &str, (across, of): (&str, Along), measure: Measure) -> Option<Figure> {
    let series: Vec<Series> = histories
        .iter()
        .map(|history| {
            let point = |e: &Value| of(e).zip(finite(e, measure.key()));
            let points = history.evaluations.iter().filter_map(point).collect();
            Series { name: history.name.clone(), points, deviations: Vec::new() }
        })
        .filter(|s| !s.points.is_empty())
        .collect();
    let (title, up) = (format!("{} over {across}", capitalised(measure.label())), measure.label());
    let whole = across == ITERATIONS.0;
    let lines =
        Lines { title: &title, across, up, series: &series, marks: &[], zero_across: true, zero_up: false, whole };
    let svg = lines.draw()?;
    Some(Figure { id: id.into(), title, note: String::new(), svg })
}

fn write_figures(body: &mut String, all: impl IntoIterator<Item = impl Borrow<Figure>>) {
    all.into_iter().for_each(|figure| write_figure(body, figure.borrow(), ""));
}

fn write_figure(body: &mut String, Figure { id, title, note, svg }: &Figure, attributes: &str) {
    let _ = writeln!(
        body,
        "<figure id=\"{id}\"{attributes}><figcaption>{} <span class=\"note\">{}</span></figcaption>\n{svg}\n</figure>",
        escape(title),
        escape(note)
    );
}

/// Whether a cell is a number, also with a unit or a second one (`3 × 4`), but not a list of numbers.
fn is_number(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    digits.starts_with(|c: char| c.is_ascii_digit()) && cell.split(' ').count() <= 3
}

/// A table; columns of numbers are aligned as such.
fn table(body: &mut String, name: &str, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let rows: Vec<Vec<String>> = rows.into_iter().collect();
    let of_numbers = |column: usize| {
        let mut known = rows.iter().filter_map(|row| row.get(column)).filter(|cell| *cell != "-").peekable();
        known.peek().is_some() && known.all(|cell| is_number(cell))
    };
    let class = |column: usize| if of_numbers(column) { " class=\"n\"" } else { "" };
    let classes: Vec<&str> = (0..head.len()).map(class).collect();
    // A keyboard must be able to scroll it.
    let _ = write!(
        body,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><tr>",
        escape(name)
    );
    head.iter().zip(&classes).for_each(|(h, class)| {
        let _ = write!(body, "<th scope=\"col\"{class}>{}</th>", escape(h));
    });
    body.push_str("</tr>\n");
    for row in rows {
        body.push_str("<tr>");
        for (cell, class) in row.iter().zip(&classes) {
            let _ = write!(body, "<td{class}>{}</td>", escape(cell));
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

/// What the parties sent, in plain words, before the ledger.
fn privacy(body: &mut String, histories: &[History]) {
    let all: Vec<&History> = histories.iter().filter(|history| is_private(history)).collect();
    if all.is_empty() {
        return;
    }
    body.push_str("<h2>Privacy</h2>\n");
    for history in all {
        name_of_run(body, histories, history);
        let Some(end) = &history.end else {
            paragraph(body, "The run has not ended, so its ledger is not known.");
            continue;
        };
        privacy::sentences(&end["wire"], history.count("parties")).iter().for_each(|words| paragraph(body, words));
        let noise = dp::lines(&end["privacy"]);
        if !noise.is_empty() {
            let _ = writeln!(body, "<pre>{}</pre>", escape(noise.trim_end()));
        }
        ledger(body, history);
    }
}

/// Time and traffic, collapsed with one rank.
fn performance(body: &mut String, histories: &[History]) {
    body.push_str("<h2>Performance</h2>\n");
    let several = histories.iter().any(|history| history.count("ranks") > 1);
    if !several {
        body.push_str("<details><summary>Time by phase</summary>\n");
    }
    write_figures(body, over(histories, "error-over-traffic", TRAFFIC, Measure::RelativeError));
    for (i, history) in histories.iter().enumerate() {
        time(body, history, i);
    }
    if !several {
        body.push_str("</details>\n");
    }
    let of_ranks = |history: &&History| !is_private(history) && history.count("ranks") > 1;
    histories.iter().filter(of_ranks).for_each(|history| ledger(body, history));
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
            .filter(|_| by_rank)
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
        .filter(|_| ranks > 1)
        .map_or_else(String::new, |x| format!("The slowest rank computed for {x:.2} times the mean. "));
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
fn ledger(body: &mut String, history: &History) {
    let Some(wire) = history.end.as_ref().and_then(|end| end["wire"].as_array()).filter(|wire| !wire.is_empty()) else {
        return;
    };
    let owner = if is_private(history) { "party" } else { "rank" };
    let _ = writeln!(
        body,
        "<details><summary>What each {owner} sent: the ledger of {}</summary>\n<p>Every message is counted. Party bytes are sent and \
         received by all parties, MPI bytes cross the boundary of a rank.</p>",
        escape(&history.name)
    );
    let lines: Vec<_> = method(history).into_iter().flat_map(Description::all_messages).collect();
    let rows = wire.iter().map(|row| {
        let of_kind = || lines.iter().filter(|w| row["purpose"] == w.kind);
        let known = of_kind().find(|w| row["payload"] == w.payload.name()).or_else(|| of_kind().next());
        let [shape, when] = known.map(|w| w.in_words(false)).unwrap_or_default();
        let count = |key: &str| bytes(row[key].as_u64().unwrap_or(0));
        vec![
            text(&row["purpose"]),
            text(&row["payload"]),
            privacy::protection(&text(&row["protection"])).to_string(),
            shape,
            when,
            count("party_bytes"),
            count("mpi_bytes"),
            text(&row["messages"]),
        ]
    });
    let head = ["purpose", "content", "protection", "size", "when", "party bytes", "MPI bytes", "messages"];
    table(body, &format!("What each {owner} sent in {}", history.name), &head, rows);
    body.push_str("</details>\n");
}

fn command(body: &mut String, history: &History) {
    let start = &history.start;
    let _ = writeln!(
        body,
        "<p>{}: fednmf {} ({}), {}{}. With this version, input and seed the same result is found again, up to rounding on other numbers of ranks or processors.</p>\n<pre class=\"command\">{}</pre>",
        escape(&history.name),
        escape(&text(&start["version"])),
        escape(&text(&start["git"])),
        escape(&text(&start["time"])),
        // Private runs do not name the machine.
        start["host"].as_str().map_or_else(String::new, |host| format!(" on {}", escape(host))),
        escape(&history.command())
    );
    if let Some(method) = method(history) {
        paragraph(
            body,
            &format!(
                "{}: {}{}. Paper to cite: {}{}.",
                method.name,
                method.summary,
                updates(history),
                method.paper,
                of_extrapolation(history.parameter("extrapolation") == "restart", method.measure)
            ),
        );
    }
    let _ = writeln!(body, "<details><summary>All parameters of {}</summary>", escape(&history.name));
    let params = start["params"].as_object();
    // A parameter without a value has a default that depends on others.
    let given = params.into_iter().flatten().filter(|(_, value)| !value.is_null());
    let rows = given.map(|(name, value)| vec![name.replace('_', " "), text(value)]);
    let more = ["checksum", "nnz", "format", "load_seconds", "blas", "resumed_from"];
    let more = more.iter().map(|name| vec![name.replace('_', " "), text(&start[*name])]);
    let name = format!("Parameters of {}", history.name);
    table(body, &name, &["parameter", "value"], rows.chain(more).collect::<Vec<_>>());
    body.push_str("</details>\n");
}

/// The paper of the extrapolation, if it is used and not part of the method, to append to that of the method.
pub fn of_extrapolation(is_used: bool, measure: Measure) -> &'static str {
    match (is_used, measure) {
        (true, Measure::Divergence | Measure::BetaDivergence) => {
            "; for the extrapolation Hien, Leplat, Gillis, arXiv 2401.06646 (2024)"
        }
        (true, Measure::RelativeError) => "; for the extrapolation Ang, Gillis, Neural Computation 31 (2019)",
        _ => "",
    }
}

/// How the factors started and were updated, which a run may choose itself: ` (init sampled, extrapolation restart)`.
fn updates(history: &History) -> String {
    let chosen = ["init", "extrapolation"].map(|name| (name, history.parameter(name)));
    let words =
        chosen.iter().filter(|(_, value)| value.is_string()).map(|(name, value)| format!("{name} {}", text(value)));
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { words } else { format!(" ({words})") }
}

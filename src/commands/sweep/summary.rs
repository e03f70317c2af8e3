//! The output of a sweep: sweep.json, the page sweep.html, and the text on stdout.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use fednmf_base::error::{Error, Result};
use fednmf_base::printable::printable;
use fednmf_base::stdout::{print, print_line};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::units::{counted, precise};
use fednmf_data::Resample;
use fednmf_driver::model_selection::{Choice, Component, Point, STABLE, Stability, SweepMissing};
use fednmf_driver::spec::Scale;
use fednmf_methods::description::Description;
use fednmf_methods::distributed::hals::Hals;
use fednmf_methods::metrics;
use fednmf_methods::metrics::Measure;
use fednmf_report as report;

use super::consensus::Consensus;
use super::runs::Sweep;

/// The results of a sweep.
pub struct Summary<'a> {
    pub sweep: &'a Sweep<'a>,
    pub points: &'a [Point],
    pub choice: Option<Choice>,
    /// The consensus of the runs with the k to interpret, or else the recommended one.
    pub consensus: Option<Consensus>,
    /// The number by which `--scale` divided the entries.
    pub divisor: Option<f64>,
    /// The files of the page and of the numbers.
    pub html: PathBuf,
    pub numbers: PathBuf,
}

/// The name that the results of a sweep over these numbers of components need for themselves, such as
/// `sweep-k0002-k0009`: `None` unless the directory has those of a sweep over others, which stay.
pub fn own_name(output: &Path, ks: &[usize]) -> Option<String> {
    let numbers = output.join("sweep.json");
    let read = || serde_json::from_str::<Value>(&std::fs::read_to_string(&numbers).ok()?).ok();
    let points = read().and_then(|found| found["points"].as_array().cloned()).unwrap_or_default();
    let others = points.iter().filter_map(|point| point["k"].as_u64()).any(|k| !ks.contains(&(k as usize)));
    let consecutive = ks.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match ks {
        _ if !others => None,
        // A name of very many k would be longer than file systems allow.
        [first, .., last] if consecutive || ks.len() > 30 => Some(format!("sweep-k{first:04}-k{last:04}")),
        // A sweep over others between them has another name.
        _ => Some(format!("sweep-{}", ks.iter().map(|k| format!("k{k:04}")).collect::<Vec<_>>().join("_"))),
    }
}

/// The files of the page and of the numbers of a sweep.
pub fn files(output: &Path, own_name: Option<&str>) -> [PathBuf; 2] {
    ["html", "json"].map(|ending| output.join(format!("{}.{ending}", own_name.unwrap_or("sweep"))))
}

/// The head of the table of components.
const COMPONENTS: [&str; 5] = ["component", "silhouette", "cosine", "share", "largest columns"];

impl Summary<'_> {
    /// Writes the numbers and the page, and prints.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self) -> Result<()> {
        let all = self.json();
        let write = |path: &Path, text: &str| -> Result<()> {
            unfinished::replace(path, Access::Default, |out| out.write_all(text.as_bytes()))
                .map_err(|e| Error::failed(format!("{}: cannot be written ({e})", path.display())))
        };
        let written = write(&self.numbers, &format!("{all:#}\n")).and_then(|()| write(&self.html, &self.page()));
        // Hours of computing are shown, whatever became of the files.
        if self.sweep.args.json {
            print_line(&all.to_string())?
        } else {
            print(&self.text())?
        }
        written
    }

    fn json(&self) -> Value {
        let choice = self.choice.as_ref();
        let held_out = self.points.iter().find(|point| point.heldout.is_some());
        let mut all = json!({
            "points": self.points, "heldout_measure": held_out.map(|point| point.heldout_measure().key()),
            "recommended": choice.map(|c| c.k), "for_prediction": choice.and_then(|c| c.prediction),
            "for_interpretation": choice.and_then(|c| c.interpretation), "reasons": choice.map_or_else(|| vec![self.nothing_chosen().to_string()], |c| c.reasons.clone()),
            "warnings": self.warnings(), "recommendation": self.recommendation(),
            "resample": self.sweep.args.resample, "criterion": self.sweep.args.criterion, "consensus": self.consensus,
            "next_command": self.next(), "scale_divisor": self.divisor,
        });
        if let Some(fields) = all.as_object_mut() {
            fields.extend(self.sweep.provenance());
        }
        all
    }

    /// The unit of the errors, if it is not that of the input.
    fn unit(&self) -> Option<String> {
        self.divisor.map(|divisor| format!("{}.", metrics::note_of_scale(divisor, self.sweep.beta(), false)))
    }

    /// What the runs factorised, if not the data.
    fn resampled(&self) -> Option<String> {
        self.sweep.args.resample.map(|how| {
            let copy = if how == Resample::Poisson { "Poisson" } else { "multinomial" };
            format!(
                "Each run factorised a {copy} copy of the counts; errors and consensus are those on the counts themselves."
            )
        })
    }

    /// Why this k, in a sentence.
    fn reasons(&self) -> String {
        match &self.choice {
            Some(choice) => format!("k = {}. {}", choice.k, choice.explanation()),
            None => format!("none: {}.", self.nothing_chosen()),
        }
    }

    /// Why no k is recommended.
    fn nothing_chosen(&self) -> &'static str {
        if self.sweep.args.criterion.is_some() { "no k is stable" } else { "nothing was held out, and no k is stable" }
    }

    fn warnings(&self) -> &[String] {
        self.choice.as_ref().map_or(&[], |choice| &choice.warnings)
    }

    /// The final recommendation and the next command.
    fn recommendation(&self) -> String {
        let Some(choice) = &self.choice else {
            let more = match (self.sweep.can_hold_out(), self.sweep.args.runs) {
                (true, 1) => "entries that are held out (--holdout 0.05), or several starts (--runs)",
                (true, _) => "entries that are held out (--holdout 0.05)",
                (false, 1) => "several starts (--runs)",
                (false, _) if self.sweep.streamed => "memory for the whole matrix, with which entries can be held out",
                (false, _) => "more starts (--runs)",
            };
            return format!("No k can be recommended. Try smaller ones, more --max-iters, or {more}.");
        };
        let stable = self.points.iter().find(|p| p.k == choice.k).and_then(|p| p.stability);
        let found = match stable {
            Some(s) if s.least >= STABLE => "Every start finds the same components.",
            Some(s) if s.mean >= STABLE => "Most of them are found by every start; be careful with the others.",
            Some(_) => "They depend on the start: do not read much into single ones.",
            None => "Whether other starts find the same ones is not known.",
        };
        let count = counted(choice.k, "component", "components");
        let to_interpret = choice.interpretation.filter(|k| *k != choice.k);
        let what = if to_interpret.is_some() { "To predict, use" } else { "Use" };
        let advice = match choice.warnings.len() {
            0 => format!("{what} {count}."),
            1 => format!("Read the warning above before you use {count}."),
            _ => format!("Read the warnings above before you use {count}."),
        };
        let consensus = self.consensus.as_ref().map(|consensus| (consensus.k, consensus.file.display()));
        let interpret = match (to_interpret, &consensus) {
            (Some(k), Some((_, file))) => format!(" To interpret, take the {k} of {file}."),
            // A divergence starts anew.
            (None, Some((k, file))) if *k == choice.k && self.sweep.method(*k).description().keeps_zeros => {
                return format!(
                    "{advice} {found} They are in {file}. The next command computes one more run, which may differ a little:"
                );
            }
            _ => String::new(),
        };
        format!("{advice} {found}{interpret} The next command computes the final factors:")
    }

    /// The run with the recommended k, or without one the sweep to try next.
    fn next(&self) -> String {
        let args = self.sweep.args;
        let mut words = vec!["fednmf".to_string()];
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| report::quoted(word)));
        let input = args.input.as_str();
        let missing = match args.missing {
            SweepMissing::None => &[][..],
            SweepMissing::Nan => &["--missing", "nan"],
            SweepMissing::ZeroUnobserved => &["--missing", "zero-unobserved"],
        };
        let transpose = if args.transpose { &["--transpose"][..] } else { &[] };
        let threshold = args.binarize.map(|threshold| match threshold.to_json() {
            Value::String(text) => text,
            number => number.to_string(),
        });
        let mut prepared = if args.scale == Scale::Max { vec!["--scale", "max"] } else { Vec::new() };
        prepared.extend(threshold.iter().flat_map(|threshold| ["--binarize", threshold]));
        let table = args.table.0.words();
        prepared.extend(table.iter().map(String::as_str));
        let features = args.features.words();
        prepared.extend(features.iter().map(String::as_str));
        let memory = args.memory.map(|bytes| bytes.to_string());
        prepared.extend(memory.iter().flat_map(|bytes| ["--memory", bytes]));
        let penalties = [args.regularization.0.words(), args.volume.0.words()].concat();
        prepared.extend(penalties.iter().map(String::as_str));
        let mut algo: Vec<&str> = args.algo.iter().flat_map(|algo| ["--algo", algo.description().name]).collect();
        algo.extend(args.loss.iter().flat_map(|loss| ["--loss", loss]));
        let Some(k) = self.choice.as_ref().map(|choice| choice.k) else {
            let output = format!("{}-2", args.output.display());
            add(&["sweep", "--input", input, "--k", &args.components.join(",")]);
            add(&algo);
            if !self.sweep.can_hold_out() {
                add(&["--holdout", "0", "--max-iters", &(2 * self.sweep.max_iters).to_string()]);
                add(&["--runs", &args.runs.max(2).to_string()]);
            } else {
                add(&["--holdout", "0.05"]);
            }
            add(&["--output", &output]);
            args.resample.iter().for_each(|how| add(&["--resample", how.name()]));
            args.criterion.iter().for_each(|criterion| add(&["--criterion", criterion.name()]));
            add(missing);
            add(transpose);
            add(&prepared);
            return words.join(" ");
        };
        // The program's own choice is a faster form of the hals that was swept.
        let method = self.sweep.method(k);
        if args.loss.is_some() {
            add(&algo);
        } else if !method.as_any().is::<Hals>() {
            add(&["--algo", method.description().name]);
        }
        add(&["--input", input, "-k", &k.to_string()]);
        add(missing);
        add(transpose);
        add(&prepared);
        if let Some(consensus) = self.consensus.as_ref().filter(|of| of.k == k && !method.description().keeps_zeros) {
            add(&["--init", &consensus.file.display().to_string()]);
        }
        add(&["--output", &format!("factors-k{k}.h5")]);
        words.join(" ")
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let divergence = self.points.iter().any(|p| p.divergence.is_some());
        let number = |x: Option<f64>| x.map_or_else(|| "-".to_string(), precise);
        // The divergence is a sum over the observed entries, and that of held-out ones a mean.
        let held = if divergence { "held out/entry" } else { "held out" };
        let _ = write!(out, "{:>6}  {:>12}", "k", "rmse");
        if divergence {
            let _ = write!(out, "  {:>14}", "divergence");
        }
        let _ = writeln!(out, "  {held:>14}  {:>10}  {:>10}", "silhouette", "cosine");
        for p in self.points {
            let _ = write!(out, "{:>6}  {:>12}", p.k, number(Some(p.rmse)));
            if divergence {
                let _ = write!(out, "  {:>14}", number(p.divergence));
            }
            let _ = writeln!(
                out,
                "  {:>14}  {:>10}  {:>10}",
                number(p.heldout.map(|h| h.0)),
                number(p.stability.map(|s| s.mean)),
                number(p.stability.map(|s| s.cosine))
            );
        }
        for line in self.unit().into_iter().chain(self.resampled()) {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(out, "\nrecommended: {}", self.reasons());
        for warning in self.warnings() {
            let _ = writeln!(out, "warning: {warning}");
        }
        if let Some(consensus) = &self.consensus {
            let _ = writeln!(out, "\n{}", describe_consensus(consensus, &self.sweep.measure_name()));
            let row = |cells: &[String]| {
                format!("{:>9}  {:>10}  {:>8}  {:>7}  {}", cells[0], cells[1], cells[2], cells[3], cells[4])
            };
            let _ = writeln!(out, "{}", row(&COMPONENTS.map(str::to_string)));
            for component in &consensus.components {
                let _ = writeln!(out, "{}", row(&self.cells(component)));
            }
        }
        let _ = writeln!(out, "\nThe page with the plots is {}.", self.html.display());
        let _ = writeln!(out, "\n{}\n\n{}", self.recommendation(), self.next());
        out
    }

    /// A row of the table of components. Columns are named, where the matrix has names.
    fn cells(&self, component: &Component) -> [String; 5] {
        let number = |x: Option<f64>| x.map_or_else(|| "-".to_string(), |x| format!("{x:.4}"));
        let (names, separator) = match &self.sweep.names.columns {
            Some(names) => (Some(names), ", "),
            None => (None, " "),
        };
        let column =
            |j: &usize| names.and_then(|names| names.get(*j)).map_or_else(|| j.to_string(), |name| printable(name));
        [
            component.component.to_string(),
            number(component.silhouette),
            number(component.cosine),
            format!("{:.1} %", 100.0 * component.share),
            component.columns.iter().map(column).collect::<Vec<String>>().join(separator),
        ]
    }

    fn page(&self) -> String {
        let points = |of: &dyn Fn(&Point) -> Option<(f64, f64)>| -> Vec<(f64, f64, f64)> {
            self.points.iter().filter_map(|p| of(p).map(|(value, error)| (p.k as f64, value, error))).collect()
        };
        let held_out = |measure: Measure| move |p: &Point| p.heldout.filter(|_| p.heldout_measure() == measure);
        let stability = |of: fn(&Stability) -> f64| points(&|p| p.stability.map(|s| (of(&s), 0.0)));
        // Held-out errors may be far above those of the fit, so each has its own plot.
        let plot = |id, up, lines| report::Plot { id, up, lines, zero_up: false };
        let divergence = match self.sweep.measure() {
            Measure::BetaDivergence => "beta divergence of the fit",
            _ => "KL divergence of the fit",
        };
        let plots = vec![
            plot("elbow", "RMSE of the fit", vec![("fit", points(&|p| Some((p.rmse, p.rmse_error))))]),
            plot("heldout", "held-out RMSE", vec![("held out", points(&held_out(Measure::HeldoutRmse)))]),
            plot("divergence", divergence, vec![("fit", points(&|p| p.divergence.map(|x| (x, 0.0))))]),
            plot(
                "heldout-divergence",
                Measure::HeldoutDivergence.label(),
                vec![("held out", points(&held_out(Measure::HeldoutDivergence)))],
            ),
            report::Plot {
                zero_up: true,
                lines: vec![
                    ("mean silhouette", stability(|s| s.mean)),
                    ("least stable component", stability(|s| s.least)),
                    ("mean cosine", stability(|s| s.cosine)),
                ],
                ..plot("stability", "stability over the runs", Vec::new())
            },
        ];
        let mut introduction = vec![format!("Recommended: {}", self.reasons())];
        introduction.extend(self.warnings().iter().map(|warning| format!("Warning: {warning}.")));
        introduction.extend(self.unit());
        introduction.extend(self.resampled());
        let mut sections = Vec::new();
        if let Some(consensus) = &self.consensus {
            let similar = consensus.similarities.as_ref().filter(|_| consensus.runs > 1);
            sections.push(report::Section {
                heading: format!("Components of k = {}", consensus.k),
                words: describe_consensus(consensus, &self.sweep.measure_name()),
                rows: consensus.components.iter().map(|component| self.cells(component)).map(Vec::from).collect(),
                head: &COMPONENTS,
                figure: similar.map(|similar| report::similarities(&similar.cosines, &similar.clusters)),
                command: None,
            });
        }
        sections.push(report::Section {
            heading: "Recommendation".to_string(),
            words: self.recommendation(),
            head: &[],
            rows: Vec::new(),
            figure: None,
            command: Some(self.next()),
        });
        sections.push(self.reproduction());
        report::study(&report::Study {
            title: format!("How many components for {}?", report::data_name(&self.sweep.args.input)),
            answers: self.answers(),
            introduction,
            marks: self.marks(),
            plots,
            sections,
        })
    }

    /// What ran, and the command that repeats it.
    fn reproduction(&self) -> report::Section<'static> {
        let came = self.sweep.provenance();
        let text = |key: &str| came[key].as_str().unwrap_or_default();
        let method = self.sweep.method(self.sweep.ks[0]);
        let Description { name, summary, paper, measure, .. } = method.description();
        let extrapolates = method
            .parameters()
            .into_iter()
            .any(|parameter| parameter.name == "extrapolation" && Value::from(parameter.value) == "restart");
        let typed = came["args"].as_array().map_or(&[][..], Vec::as_slice);
        let words: Vec<String> = typed.iter().skip(1).filter_map(Value::as_str).map(report::quoted).collect();
        let args = self.sweep.args;
        let seeds = match args.runs {
            1 => format!("The run of each k has seed {}", args.seed),
            runs => format!("The runs of each k have the seeds {} to {}", args.seed, args.seed + runs as u64 - 1),
        };
        let launch = if self.sweep.ranks > 1 { format!("mpirun -n {} ", self.sweep.ranks) } else { String::new() };
        report::Section {
            heading: "Reproduce".to_string(),
            words: format!(
                "fednmf {} ({}), {} on {}. {seeds}, and at most {} iterations. With this version, input and seeds the same \
                 result is found again, up to rounding on other numbers of ranks or processors. {name}: {summary}. Paper to cite: {paper}{}.",
                text("version"),
                text("git"),
                text("date"),
                text("host"),
                self.sweep.max_iters,
                report::of_extrapolation(extrapolates, *measure),
            ),
            head: &[],
            rows: Vec::new(),
            figure: None,
            command: Some(format!("{launch}fednmf {}", words.join(" "))),
        }
    }

    /// The answers in large print.
    fn answers(&self) -> Vec<(&'static str, String)> {
        let Some(choice) = &self.choice else { return vec![("recommended", "none".to_string())] };
        let number = |k: Option<usize>, without: &str| k.map_or_else(|| without.to_string(), |k| format!("k = {k}"));
        vec![
            ("recommended", format!("k = {}", choice.k)),
            ("for prediction", number(choice.prediction, "not measured")),
            ("for interpretation", number(choice.interpretation, "no stable k")),
        ]
    }

    /// The answers as marks in the plots.
    fn marks(&self) -> Vec<(f64, String)> {
        let Some(choice) = &self.choice else { return Vec::new() };
        let others = [(choice.prediction, "prediction"), (choice.interpretation, "interpretation")];
        let others = others.into_iter().filter_map(|(k, what)| Some((k?, what))).filter(|(k, _)| *k != choice.k);
        std::iter::once((choice.k, "recommended"))
            .chain(others)
            .map(|(k, what)| (k as f64, format!("k = {k}: {what}")))
            .collect()
    }
}

/// Where the consensus is, and how well it fits by a divergence of this name, or the squared error.
fn describe_consensus(consensus: &Consensus, divergence: &str) -> String {
    let divergence = match consensus.divergence {
        Some(x) if x == f64::INFINITY => {
            format!("{divergence} infinite: an entry is positive where all components are 0; ")
        }
        Some(x) => format!("{divergence} {x:.6}, "),
        None => String::new(),
    };
    format!(
        "The consensus of {} with k = {} is in {}: V has the mean of each component over the runs, U is fitted to it exactly \
         ({divergence}rmse {:.6}). Components, and columns without names, are numbered from 0.",
        counted(consensus.runs, "run", "runs"),
        consensus.k,
        consensus.file.display(),
        consensus.rmse
    )
}

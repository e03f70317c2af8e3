//! Progress on stderr: a bar on a terminal, sparse lines in a log.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use fednmf_base::units::short;
use fednmf_base::warning::{self, Kind, say};
use fednmf_methods::metrics::Measure;

/// The shortest time between two lines of a log.
const SPARSE: Duration = Duration::from_secs(2);
/// Evaluations that are shown however fast they come, so that a short run shows its progress.
const UNTHROTTLED: usize = 15;
/// The time between two lines of a run that is not evaluated.
const SILENCE: Duration = Duration::from_secs(10);

/// Shows how far loading and factorising have come. For rank 0.
#[derive(Debug)]
pub struct Progress {
    to: To,
    total: Option<usize>,
    /// The limit in seconds, counted from the first iteration that was shown.
    limit: Option<f64>,
    /// The first iteration that was shown, and its seconds. Rates count from there, also after a resume.
    first: Option<(usize, f64)>,
    /// The last evaluation.
    measures: Vec<(Measure, f64)>,
    /// Whether warnings are printed: on rank 0.
    warns: bool,
}

#[derive(Debug)]
enum To {
    Nothing,
    Terminal(ProgressBar),
    Log { start: Instant, pace: Pace },
}

impl Progress {
    /// Shows nothing unless `enabled`. `total_iterations`: the limit, for the remaining time.
    ///
    /// [`Progress::warn`] prints where `enabled`, and after [`Progress::quiet`].
    pub fn new(enabled: bool, total_iterations: Option<usize>) -> Self {
        let to = if !enabled {
            To::Nothing
        } else if std::io::stderr().is_terminal() {
            To::Terminal(spinner())
        } else {
            To::Log { start: Instant::now(), pace: Pace::default() }
        };
        Progress { to, total: total_iterations, limit: None, first: None, measures: Vec::new(), warns: enabled }
    }

    /// With a limit in seconds, for the remaining time.
    #[must_use]
    pub fn within(self, limit: Option<f64>) -> Self {
        Progress { limit, ..self }
    }

    /// As [`Progress::new`], but `quiet` leaves only the warnings.
    pub fn quiet(is_root: bool, quiet: bool, total_iterations: Option<usize>) -> Self {
        Progress { warns: is_root, ..Progress::new(is_root && !quiet, total_iterations) }
    }

    /// `fraction` (0 to 1) of the input has been read.
    pub fn loading(&mut self, fraction: f64) {
        let text = format!("loading {:.0} %", 100.0 * fraction.clamp(0.0, 1.0));
        match &mut self.to {
            To::Nothing => {}
            // The message would stay while the next step has none of its own.
            To::Terminal(bar) => bar.set_message(if fraction < 1.0 { text } else { String::new() }),
            // Short loading is not worth a line.
            To::Log { start, pace } if start.elapsed() > SPARSE => print(pace.offer(start.elapsed(), SPARSE, text)),
            To::Log { .. } => {}
        }
    }

    /// `iter` iterations are done, after `seconds` in the solver; `measures`, the leading one first, if the factors were
    /// evaluated.
    pub fn iteration(&mut self, iter: usize, seconds: f64, measures: &[(Measure, f64)]) {
        let first = *self.first.get_or_insert((iter, seconds));
        let evaluated = !measures.is_empty();
        if evaluated {
            self.measures = measures.to_vec();
        }
        match &mut self.to {
            To::Nothing => {}
            To::Terminal(bar) => {
                let statistics = statistics(iter, (self.total, self.limit), seconds, first, &self.measures);
                match self.total {
                    Some(total) => count(bar, iter, total, statistics),
                    None => bar.set_message(format!("iteration {iter}{statistics}")),
                }
            }
            To::Log { start, pace } => {
                let of = self.total.map_or_else(String::new, |total| format!("/{total}"));
                let line = format!(
                    "iteration {iter}{of}{}",
                    statistics(iter, (self.total, self.limit), seconds, first, measures)
                );
                let gap = match evaluated {
                    true if pace.evaluations < UNTHROTTLED => Duration::ZERO,
                    true => SPARSE,
                    false => SILENCE,
                };
                pace.evaluations += usize::from(evaluated);
                print(pace.offer(start.elapsed(), gap, line));
            }
        }
    }

    /// Shows that `done` of `total` runs of a sweep are finished; `what` is the last of them.
    pub fn run(&mut self, done: usize, total: usize, what: &str) {
        match &self.to {
            To::Nothing => {}
            To::Terminal(bar) => count(bar, done, total, format!(" runs  {what}")),
            To::Log { .. } => say(&format!("run {done}/{total}  {what}")),
        }
    }

    /// Prints a note at once.
    pub fn note(&mut self, text: &str) {
        match &self.to {
            To::Nothing => {}
            To::Terminal(bar) => bar.println(Kind::Note.line(text)),
            To::Log { .. } => warning::note(text),
        }
    }

    /// Prints a warning at once, also of a quiet run: on rank 0 only.
    pub fn warn(&mut self, text: &str) {
        match &self.to {
            To::Terminal(bar) => bar.println(Kind::Warning.line(text)),
            To::Log { .. } => warning::warn(text),
            To::Nothing if self.warns => warning::warn(text),
            To::Nothing => {}
        }
    }

    /// Prints several lines at once.
    pub fn notes(&mut self, texts: &[String]) {
        texts.iter().for_each(|text| self.note(text));
    }

    /// Prints several warnings at once.
    pub fn warnings(&mut self, texts: &[String]) {
        texts.iter().for_each(|text| self.warn(text));
    }

    /// Prints the pending line and ends.
    pub fn finish(&mut self) {
        match &mut self.to {
            To::Nothing => {}
            // The summary says where the run stopped.
            To::Terminal(bar) => bar.finish_and_clear(),
            To::Log { pace, .. } => print(pace.waiting.take()),
        }
        self.to = To::Nothing;
    }
}

fn print(line: Option<String>) {
    if let Some(line) = line {
        say(&line);
    }
}

/// Shown until the first iteration: only a message, cut to the width of the terminal.
fn spinner() -> ProgressBar {
    ProgressBar::new_spinner().with_style(style("{spinner} {wide_msg}"))
}

/// Shows `done` of `total` as a bar, with a message that is cut to the width of the terminal.
fn count(bar: &ProgressBar, done: usize, total: usize, message: String) {
    if bar.length().is_none() {
        bar.set_style(style("{bar:24} {pos}/{len}{wide_msg}"));
        bar.set_length(total as u64);
    }
    bar.set_position(done as u64);
    bar.set_message(message);
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Holds back lines that come too soon; the last line is never lost.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Duration>,
    waiting: Option<String>,
    /// Evaluations so far.
    evaluations: usize,
}

impl Pace {
    /// Returns the line if the last one was at least `gap` before `now`. Otherwise holds it for [`Progress::finish`], in
    /// place of the one held so far.
    fn offer(&mut self, now: Duration, gap: Duration, line: String) -> Option<String> {
        if self.last.is_some_and(|last| now < last + gap) {
            self.waiting = Some(line);
            return None;
        }
        (self.last, self.waiting) = (Some(now), None);
        Some(line)
    }
}

/// `  F1 0.9342  relative error 0.5123  1.20 s  16.3 iterations/s  5 s left`, as far as it is known.
fn statistics(
    iter: usize,
    (total, limit): (Option<usize>, Option<f64>),
    seconds: f64,
    first: (usize, f64),
    measures: &[(Measure, f64)],
) -> String {
    let measures: String = measures.iter().map(|(measure, x)| format!("  {} {}", measure.label(), short(*x))).collect();
    let rate = (iter.saturating_sub(first.0)) as f64 / (seconds - first.1);
    let known = rate.is_finite() && rate > 0.0;
    let places = if rate < 10.0 { 2 } else { usize::from(rate < 100.0) };
    let speed = if known { format!("  {rate:.places$} iterations/s") } else { String::new() };
    let in_iterations = total.filter(|&total| known && total > iter).map(|total| (total - iter) as f64 / rate);
    let left = in_iterations.map(|left| left.min((first.1 + limit.unwrap_or(f64::INFINITY) - seconds).max(0.0)));
    let left = left.map_or_else(String::new, |left| format!("  {} left", duration(left)));
    format!("{measures}  {seconds:.2} s{speed}{left}")
}

/// `12 s`, `3 min 20 s`, `5 h 07 min`.
fn duration(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Result;
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal of this width, and the text of its last line.
    #[derive(Debug, Clone)]
    struct Screen(u16, Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            self.0
        }
        fn move_cursor_up(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> Result<()> {
            self.1.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> Result<()> {
            self.1.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_sparse_and_the_last_is_kept() {
        let mut pace = Pace::default();
        let mut offer = |ms: u64, text: &str| pace.offer(Duration::from_millis(ms), SPARSE, text.into());
        assert_eq!(offer(0, "first").as_deref(), Some("first"));
        assert_eq!(offer(100, "a"), None);
        assert_eq!(offer(1999, "b"), None);
        assert_eq!(offer(2000, "c").as_deref(), Some("c"));
        assert_eq!(offer(2100, "d"), None);
        assert_eq!(offer(2200, "e"), None);
        assert_eq!(pace.waiting.as_deref(), Some("e"));
    }

    #[test]
    fn rate_and_time_left_count_from_the_first_line() {
        let text =
            statistics(70, (Some(100), None), 6.0, (50, 2.0), &[(Measure::F1, 0.75), (Measure::RelativeError, 0.25)]);
        assert_eq!(text, "  F1 0.7500  relative error 0.2500  6.00 s  5.00 iterations/s  6 s left");
        assert_eq!(statistics(50, (None, None), 2.0, (50, 2.0), &[]), "  2.00 s");
        assert!(statistics(70, (Some(100), Some(5.0)), 6.0, (50, 2.0), &[]).ends_with("  1 s left"));
        assert_eq!([59.0, 200.0, 18_420.0].map(duration), ["59 s", "3 min 20 s", "5 h 07 min"]);
    }

    /// What a terminal of this width shows after `show`.
    fn shown(width: u16, total: Option<usize>, show: impl FnOnce(&mut Progress)) -> String {
        let screen = Screen(width, Arc::default());
        let bar = spinner();
        bar.set_draw_target(ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 255));
        let mut progress = Progress { to: To::Terminal(bar), ..Progress::new(false, total) };
        show(&mut progress);
        if let To::Terminal(bar) = &progress.to {
            bar.force_draw();
        }
        let text = screen.1.lock().unwrap();
        text.trim_end().to_string()
    }

    #[test]
    fn a_terminal_shows_one_line_that_fits() {
        assert!(shown(80, Some(40), |progress| progress.loading(0.52)).ends_with(" loading 52 %"));
        let measures = [(Measure::F1, 0.75), (Measure::RelativeError, 0.25)];
        let iterate = |progress: &mut Progress| {
            progress.loading(1.0);
            progress.iteration(0, 0.0, &measures);
            progress.iteration(20, 4.0, &measures);
        };
        let line = shown(80, Some(40), iterate);
        assert!(line.contains(" 20/40  F1 0.75") && line.lines().count() == 1 && !line.contains("loading"), "{line}");
        assert!(shown(40, Some(40), iterate).lines().all(|line| line.chars().count() <= 40));
        // A sweep counts its runs, and the message of loading is gone.
        let swept = shown(80, None, |progress| {
            progress.loading(1.0);
            progress.run(3, 28, "k = 6");
        });
        assert!(swept.contains(" 3/28 runs  k = 6") && !swept.contains("loading"), "{swept}");
        for total in [None, Some(40)] {
            let nothing = shown(80, total, |progress| {
                progress.loading(1.0);
                progress.iteration(1, 0.1, &[]);
                progress.finish();
            });
            assert_eq!(nothing.trim(), "");
        }
    }

    #[test]
    fn all_calls_pass_when_off() {
        let mut progress = Progress::new(false, None);
        progress.loading(f64::NAN);
        progress.iteration(1, 0.0, &[(Measure::RelativeError, f64::NAN)]);
        progress.note("x");
        progress.finish();
        progress.finish();
    }
}

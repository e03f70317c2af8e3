//! `fednmf report`: one or several runs on one HTML page. The page is self-contained: plots are inline SVG, with a short
//! script that exports them.

mod axis;
mod charts;
mod components;
mod factors;
mod history;
mod page;
mod png;
mod privacy;
mod svg;

use std::io::Write as _;
use std::path::Path;

pub use factors::{Lines, Sample, candidates};
pub use history::{History, distinguish, quoted};

use self::factors::{Factors, extremes};
use self::page::RunFigures;
pub use self::page::{
    Figure, Line, Plot, Section, Study, data_name, is_private, of_extrapolation, similarities, study,
};
use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::units::thousands;
use fednmf_files::output::matrices::Stored;
use fednmf_methods::registry;

/// Options of what the report shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Display {
    /// Height and width of an image, if the entries of a component are its pixels.
    pub image: Option<(usize, usize)>,
    /// Names of the entries of a component.
    pub names: Option<Vec<String>>,
    /// Number of rows or columns of the matrix to show with their reconstruction.
    pub rows: usize,
    /// Names of all of these rows or columns.
    pub line_names: Option<Vec<String>>,
}

impl Display {
    /// Shows images of the input's height and width, unless something else was requested.
    pub fn show_images(&mut self, image: Option<(usize, usize)>) {
        if self.image.is_none() && self.names.is_none() {
            self.image = image;
        }
    }

    /// The lines of an m × n matrix, rows or columns, that the image or the list of names fits; `None` if neither is given.
    ///
    /// # Errors
    /// If it fits neither.
    pub fn lines(&self, (m, n): (usize, usize)) -> Result<Option<Lines>> {
        let fits = |length: usize, what: String| match length {
            _ if length == n => Ok(Some(Lines::Rows)),
            _ if length == m => Ok(Some(Lines::Columns)),
            _ => Err(Error::input(format!(
                "{what} fits neither the rows (of {n} entries) nor the columns (of {m}) of this matrix"
            ))),
        };
        match (&self.image, &self.names) {
            (Some((height, width)), _) => {
                let pixels = height.saturating_mul(*width);
                fits(pixels, format!("--image {height}x{width}: an image of {pixels} pixels"))
            }
            (None, Some(names)) => fits(names.len(), format!("--terms: a list of {} names", names.len())),
            (None, None) => Ok(None),
        }
    }
}

/// `28x28`: height and width of an image.
///
/// # Errors
/// If the text has another form.
pub fn image_size(text: &str) -> Result<(usize, usize)> {
    let count = |t: &str| t.parse().ok().filter(|&c: &usize| c > 0 && c <= 4096);
    text.split_once('x').and_then(|(h, w)| count(h).zip(count(w))).ok_or_else(|| {
        Error::input(format!("--image {text}: must be height x width in pixels, as in 28x28, each from 1 to 4096"))
    })
}

/// One run of a report: its trace, its factors, sample lines of its matrix.
pub struct Run {
    pub history: History,
    /// Its factors, or why there are none.
    pub factors: std::result::Result<Stored, String>,
    /// Lines of its matrix, or why none are shown.
    pub sample: std::result::Result<Sample, String>,
    pub display: Display,
    /// Remarks on the components.
    pub notes: Vec<String>,
}

/// Two components with at least this cosine are counted as the same.
const SAME: f64 = 0.9;

/// Writes the page.
///
/// # Errors
/// If factors do not fit their matrix, or the file cannot be written.
pub fn write(path: &Path, runs: Vec<Run>, access: Access) -> Result<()> {
    let mut shown = Vec::<RunFigures>::new();
    // The run with which the others are compared.
    let mut first: Option<(&str, Factors)> = None;
    for (i, run) in runs.iter().enumerate() {
        let (mut figures, factors) = figures_of(run, i)?;
        match (&first, factors) {
            (Some((name, first)), Some(factors)) => match matches((name, first), (&run.history.name, &factors), i) {
                Ok(figure) => figures.matches = Some(figure),
                Err(why) => {
                    figures.notes.push(format!("The components are not matched with those of {name}: {why}."));
                }
            },
            (None, factors) => first = factors.map(|factors| (run.history.name.as_str(), factors)),
            _ => {}
        }
        shown.push(figures);
    }
    let histories: Vec<History> = runs.into_iter().map(|run| run.history).collect();
    let text = page::page(&histories, &shown);
    // A device is written to, not replaced by a file.
    let is_device = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    let written = match is_device {
        true => unfinished::open_to_write(path, std::fs::OpenOptions::new().write(true))
            .and_then(|mut out| out.write_all(text.as_bytes())),
        false => unfinished::replace(path, access, |out| out.write_all(text.as_bytes())),
    };
    written.map_err(|e| {
        Error::failed(format!("{}: the report cannot be written ({e}); check the free space", path.display()))
    })
}

/// The figures of a run, and its factors if they are shown.
fn figures_of(run: &Run, number: usize) -> Result<(RunFigures, Option<Factors>)> {
    let mut shown = RunFigures { notes: run.notes.clone(), ..RunFigures::default() };
    let shape = (run.history.count("m"), run.history.count("n"));
    let found = match &run.factors {
        Ok(stored) => {
            let lines = run.display.lines(shape)?;
            Factors::read(stored, lines)
                .map(|factors| (stored, factors))
                .map_err(|e| format!("they cannot be read: {e}"))
        }
        Err(why) => Err(why.clone()),
    };
    let (stored, factors) = match found {
        Ok(found) => found,
        Err(why) => {
            shown.missing = Some(why);
            return Ok((shown, None));
        }
    };
    let (_, length) = factors.lines.shape(shape);
    if factors.shown.nrows() != length {
        return Err(Error::input(format!(
            "the factors of {} have {} rows, but its matrix has {length}; do they belong to another run?",
            run.history.name,
            factors.shown.nrows()
        )));
    }
    shown.components = Some(components_of(run, &factors, number));
    let word = factors.lines.word();
    shown.usage = factors.usage(stored, components::CELLS)?.map(|usage| {
        let svg = components::usage(&factors, &usage);
        let note = format!("Share of each component in each {word}, dark 0, yellow the largest; bars count the {word}s in which it is the largest");
        Figure { id: format!("usage-{number}"), title: format!("Components by {word}"), note, svg }
    });
    let boolean = run.history.start["algo"]
        .as_str()
        .and_then(registry::find)
        .is_some_and(|entry| entry.description().is_boolean());
    match &run.sample {
        Ok(sample) if sample.lines == factors.lines && !sample.at.is_empty() => {
            match factors.reconstruct(stored, &sample.at, boolean)? {
                Some(found) => {
                    let chosen = extremes(&sample.errors(&found), run.display.rows);
                    let svg = components::reconstructions(sample, &found, &chosen, &run.display);
                    let of = match sample.at.len() == sample.total {
                        true => format!("all {} {word}s", thousands(sample.total)),
                        false => format!("{} of {} {word}s", thousands(sample.at.len()), thousands(sample.total)),
                    };
                    let held_out = run.history.parameter("holdout").as_f64().is_some_and(|share| share > 0.0);
                    let counted = if held_out { "; held-out entries count" } else { "" };
                    let note = format!(
                        "By the relative error ‖x − f‖ / ‖x‖ of a {word} x and its part f of U Vᵀ, whatever the loss, of {of}{counted}"
                    );
                    let id = format!("reconstruction-{number}");
                    let title = "Best, median and worst reconstruction".into();
                    shown.reconstruction = Some(Figure { id, title, note, svg });
                }
                None => {
                    let why =
                        "The other factor is private and stays in its owners' files, so there is no reconstruction.";
                    shown.without_lines = Some(why.into());
                }
            }
        }
        Ok(_) => {}
        Err(why) => shown.without_lines = Some(why.clone()),
    }
    Ok((shown, Some(factors)))
}

fn components_of(run: &Run, factors: &Factors, number: usize) -> Figure {
    let names = run.display.names.as_ref().filter(|names| names.len() == factors.shown.nrows());
    let (svg, title) = match (run.display.image, names) {
        (Some(size), _) => (components::images(factors, size), "Components as images"),
        (None, Some(names)) => (components::terms(factors, names), "Terms of the components"),
        (None, None) => (components::heat_map(factors), "Components"),
    };
    let scale = match (run.display.image, names) {
        (None, Some(_)) => "",
        _ => ", each relative to its largest entry",
    };
    let share =
        if factors.share.is_some() { "; in parentheses the share of the sum of all entries of U Vᵀ" } else { "" };
    let length = factors.shown.nrows();
    let images = match (run.display.image, names, square(length)) {
        (None, None, Some(side)) => format!("; if the {length} entries are pixels, --image {side}x{side} shows images"),
        _ => String::new(),
    };
    let note = format!("In descending order of weight ‖u‖‖v‖{scale}{share}{images}");
    Figure { id: format!("components-{number}"), title: title.into(), note, svg }
}

/// The side of a square of `n` pixels, if that may be an image.
fn square(n: usize) -> Option<usize> {
    let side = n.isqrt();
    (side >= 8 && side * side == n).then_some(side)
}

/// The matched components of two runs, or why they cannot be compared.
fn matches(
    (first, one): (&str, &Factors),
    (second, other): (&str, &Factors),
    number: usize,
) -> std::result::Result<Figure, String> {
    let found = one.matched(other)?;
    let same = |(i, j): (usize, &Option<usize>)| j.is_some_and(|j| found.cosines[[i, j]] >= SAME);
    let count = found.pairs.iter().enumerate().filter(|pair| same(*pair)).count();
    let entries = match found.entries {
        all if all == one.shown.nrows() && all == other.shown.nrows() => String::new(),
        some => format!("; by the {} {}s that both have", thousands(some), one.lines.across().word()),
    };
    let note = format!(
        "{count} of {} components of {first} have a counterpart in {second} with a cosine of at least {SAME}{entries}",
        found.pairs.len()
    );
    let svg = components::matches(&found, (one, other), (first, second));
    Ok(Figure { id: format!("matches-{number}"), title: format!("{first} and {second}"), note, svg })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_or_names_tell_which_lines_are_meant() {
        let display = |image, names: Option<usize>| Display {
            image,
            names: names.map(|n| vec![String::new(); n]),
            rows: 1,
            line_names: None,
        };
        assert_eq!(display(Some((2, 3)), None).lines((10, 6)), Ok(Some(Lines::Rows)));
        assert_eq!(display(Some((2, 3)), None).lines((6, 10)), Ok(Some(Lines::Columns)));
        assert_eq!(display(None, Some(10)).lines((6, 10)), Ok(Some(Lines::Rows)));
        assert_eq!(display(None, None).lines((6, 10)), Ok(None));
        let error = display(Some((2, 2)), None).lines((6, 10)).unwrap_err();
        assert!(error.message.contains("2x2") && error.message.contains("10"), "{error}");
    }

    #[test]
    fn sizes_of_images() {
        assert_eq!(image_size("28x30"), Ok((28, 30)));
        for wrong in ["", "28", "0x5", "5x", "28x28x3", "-1x4", "99999x2"] {
            assert!(image_size(wrong).is_err_and(|e| e.exit_code() == 2), "{wrong}");
        }
    }
}

//! `fednmf report`: one or several runs on one HTML page. The page is self-contained: plots are inline SVG, with a short
//! script that exports them.

mod axis;
mod charts;
mod components;
mod factors;
mod history;
mod page;
mod png;
mod svg;

use std::io::Write as _;
use std::path::Path;

pub use factors::{Lines, Sample, spread};
pub use history::{History, distinguish, quoted};

use self::factors::Factors;
use self::page::{Figure, RunFigures};
pub use self::page::{Plot, Section, plots};
use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
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
    pub sample: Option<Sample>,
    pub display: Display,
    /// Remarks below the plots.
    pub notes: Vec<String>,
}

/// Writes the page.
///
/// # Errors
/// If factors do not fit their matrix, or the file cannot be written.
pub fn write(path: &Path, runs: Vec<Run>, access: Access) -> Result<()> {
    let mut shown = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        shown.push(component_figures(run, i)?);
    }
    let histories: Vec<History> = runs.into_iter().map(|run| run.history).collect();
    let text = page::page(&histories, &shown);
    // A device is written to, not replaced by a file.
    let is_device = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    let written = match is_device {
        true => std::fs::write(path, text),
        false => unfinished::replace(path, access, |out| out.write_all(text.as_bytes())),
    };
    written.map_err(|e| {
        Error::failed(format!("{}: the report cannot be written ({e}); check the free space", path.display()))
    })
}

fn component_figures(run: &Run, number: usize) -> Result<RunFigures> {
    let mut shown = RunFigures { run: run.history.name.clone(), figures: Vec::new(), notes: run.notes.clone() };
    let stored = match &run.factors {
        Ok(stored) => stored,
        Err(why) => {
            shown.notes.push(why.clone());
            return Ok(shown);
        }
    };
    let shape = (run.history.count("m"), run.history.count("n"));
    let factors = match Factors::read(stored, run.display.lines(shape)?) {
        Ok(factors) => factors,
        Err(e) => {
            shown.notes.push(format!("The components are not shown: {e}."));
            return Ok(shown);
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
    let names = run.display.names.as_ref().filter(|names| names.len() == length);
    let (svg, title) = match (run.display.image, names) {
        (Some(size), _) => (components::images(&factors, size), "Components as images"),
        (None, Some(names)) => (components::terms(&factors, names), "Terms of the components"),
        (None, None) => (components::heat_map(&factors), "Components"),
    };
    let note =
        "In descending order of weight, each relative to its largest entry; its share of the weight in parentheses"
            .to_string();
    let id = format!("components-{number}");
    shown.figures.push(Figure { id, title: title.into(), note, svg });
    let boolean = run.history.start["algo"]
        .as_str()
        .and_then(registry::find)
        .is_some_and(|entry| entry.description().is_boolean());
    let Some(sample) = run.sample.as_ref().filter(|s| s.lines == factors.lines) else { return Ok(shown) };
    match factors.reconstruct(stored, &sample.at, boolean)? {
        Some(reconstruction) => {
            let svg = components::reconstructions(sample, &reconstruction, run.display.image);
            let note =
                format!("Sample {}s of the matrix and their reconstruction from the factors", sample.lines.word());
            let (id, title) = (format!("reconstruction-{number}"), "Reconstruction below the original".into());
            shown.figures.push(Figure { id, title, note, svg });
        }
        None => shown
            .notes
            .push("The other factor is private and stays in its owners' files, so there is no reconstruction.".into()),
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_or_names_tell_which_lines_are_meant() {
        let display =
            |image, names: Option<usize>| Display { image, names: names.map(|n| vec![String::new(); n]), rows: 1 };
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

//! `fednmf report`: a run, or several, on one page. All of it is in the file: drawings as SVG, a little script that
//! exports them; nothing is loaded from anywhere.

mod axis;
mod charts;
mod factors;
mod history;
mod page;
mod pictures;
mod png;
mod svg;

use std::path::Path;

pub use factors::{Lines, Sample, spread};
pub use history::{Course, distinguish};

use self::factors::Factors;
pub use self::page::Plot;
use self::page::{Figure, Shown};
use crate::algorithms::registry;
use crate::error::{Error, Result};
use crate::output::matrices::Stored;

/// What a reader wants to see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    /// Height and width, where the entries of a component are the pixels of an image.
    pub image: Option<(usize, usize)>,
    /// The names of the entries of a component.
    pub names: Option<Vec<String>>,
    /// How many lines of the matrix to set beside their reconstruction.
    pub rows: usize,
}

impl Wishes {
    /// Which lines of an m × n matrix an image or a list of names fits.
    ///
    /// # Errors
    /// When it fits neither.
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
/// When it is not that.
pub fn image_size(text: &str) -> Result<(usize, usize)> {
    let count = |t: &str| t.parse().ok().filter(|&c: &usize| c > 0 && c <= 4096);
    text.split_once('x').and_then(|(h, w)| count(h).zip(count(w))).ok_or_else(|| {
        Error::input(format!("--image {text}: must be height x width in pixels, as in 28x28, each from 1 to 4096"))
    })
}

/// One run of a report: its trace, its factors, lines of its matrix.
pub struct Run {
    pub course: Course,
    /// Its factors, where there are any, or why there are none.
    pub factors: std::result::Result<Stored, String>,
    pub sample: Option<Sample>,
    pub wishes: Wishes,
    /// What the reader should know beside.
    pub notes: Vec<String>,
}

/// A page with plots alone, and words above them; `across` is their horizontal axis.
pub fn plots(title: &str, words: &str, across: &str, plots: &[Plot<'_>]) -> String {
    page::plots(title, words, across, plots)
}

/// Writes the page.
///
/// # Errors
/// When factors do not fit their matrix, or the file cannot be written.
pub fn write(path: &Path, runs: Vec<Run>) -> Result<()> {
    let mut shown = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        shown.push(pictures_of(run, i)?);
    }
    let courses: Vec<Course> = runs.into_iter().map(|run| run.course).collect();
    let text = page::page(&courses, &shown);
    std::fs::write(path, text).map_err(|e| {
        Error::failed(format!("{}: the report cannot be written ({e}); check the free space", path.display()))
    })
}

fn pictures_of(run: &Run, number: usize) -> Result<Shown> {
    let mut shown = Shown { run: run.course.name.clone(), statistics: Vec::new(), notes: run.notes.clone() };
    let stored = match &run.factors {
        Ok(stored) => stored,
        Err(why) => {
            shown.notes.push(why.clone());
            return Ok(shown);
        }
    };
    let shape = (run.course.count("m"), run.course.count("n"));
    let factors = match Factors::read(stored, run.wishes.lines(shape)?) {
        Ok(factors) => factors,
        Err(e) => {
            shown.notes.push(format!("The components are not shown: {e}."));
            return Ok(shown);
        }
    };
    let (_, length) = factors.lines.shape(shape);
    if factors.shown.nrows() != length {
        return Err(Error::input(format!(
            "the factors of {} have {} rows where its matrix has {length}; are they of another run?",
            run.course.name,
            factors.shown.nrows()
        )));
    }
    let names = run.wishes.names.as_ref().filter(|names| names.len() == length);
    let (svg, title) = match (run.wishes.image, names) {
        (Some(size), _) => (pictures::images(&factors, size), "Components as images"),
        (None, Some(names)) => (pictures::terms(&factors, names), "Terms of the components"),
        (None, None) => (pictures::heat_map(&factors), "Components"),
    };
    let note =
        "Heaviest first, each relative to its own largest entry; in brackets its share of the weight".to_string();
    let id = format!("components-{number}");
    shown.statistics.push(Figure { id, title: title.into(), note, svg });
    let boolean = run.course.start["algo"]
        .as_str()
        .and_then(registry::find)
        .is_some_and(|entry| entry.description().is_boolean());
    let Some(sample) = run.sample.as_ref().filter(|s| s.lines == factors.lines) else { return Ok(shown) };
    match factors.again(stored, &sample.at, boolean)? {
        Some(again) => {
            let svg = pictures::beside(sample, &again, run.wishes.image);
            let note = format!("Some {}s of the matrix, and what the factors make of them", sample.lines.word());
            let (id, title) = (format!("reconstruction-{number}"), "Reconstruction below the original".into());
            shown.statistics.push(Figure { id, title, note, svg });
        }
        None => shown.notes.push("The other factor is private, in its owners' files: no reconstruction.".into()),
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_or_names_tell_which_lines_are_meant() {
        let wishes =
            |image, names: Option<usize>| Wishes { image, names: names.map(|n| vec![String::new(); n]), rows: 1 };
        assert_eq!(wishes(Some((2, 3)), None).lines((10, 6)), Ok(Some(Lines::Rows)));
        assert_eq!(wishes(Some((2, 3)), None).lines((6, 10)), Ok(Some(Lines::Columns)));
        assert_eq!(wishes(None, Some(10)).lines((6, 10)), Ok(Some(Lines::Rows)));
        assert_eq!(wishes(None, None).lines((6, 10)), Ok(None));
        let error = wishes(Some((2, 2)), None).lines((6, 10)).unwrap_err();
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

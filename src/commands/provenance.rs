//! How stored factors were made, applied to the matrix that they meet again: scaling, threshold, missing entries.

use std::path::Path;

use serde_json::Value;

use crate::algorithms::description::Description;
use crate::algorithms::parameters::{self, Missing};
use crate::algorithms::registry;
use crate::data::names::{Match, compare};
use crate::data::{InputSpec, Scale, Threshold};
use crate::error::{Error, Result};
use crate::output::matrices::Stored;

/// The part of a run's parameters that says what its factors are factors of.
#[derive(Debug, Clone)]
pub struct Provenance {
    pub method: Option<&'static Description>,
    scale: Scale,
    binarize: Option<Threshold>,
    pub missing: Missing,
    transpose: bool,
    /// Whether the user said which entries are missing.
    pub own_missing: bool,
}

impl Provenance {
    /// Reads it from the attributes of an output.
    ///
    /// # Errors
    /// If they make no sense.
    pub fn of(stored: &Stored, path: &Path) -> Result<Provenance> {
        let attributes = stored.attributes();
        let method = attributes.get("algo").and_then(Value::as_str).and_then(registry::find).map(|e| e.description());
        let parameter = |name: &str| attributes.get("params").and_then(|params| params.get(name));
        let divisor = parameter("scale_divisor").and_then(Value::as_f64);
        let scaled = parameter("scale").is_some_and(|scale| scale == "max");
        let scale = match (scaled, divisor) {
            (false, _) => Scale::None,
            (true, Some(divisor)) => Scale::By(divisor),
            (true, None) => Scale::Max,
        };
        // A quantile became a threshold on the data of the run.
        let threshold = parameter("binarize_threshold").and_then(Value::as_f64).map(Threshold::At);
        let binarize = threshold.or_else(|| parameter("binarize").and_then(Threshold::from_json));
        let missing = match parameter("missing").and_then(Value::as_str) {
            Some(text) => parameters::missing(text)
                .map_err(|must| Error::input(format!("{}: its --missing {text} must be {must}", path.display())))?,
            None => Missing::None,
        };
        let transpose = parameter("transpose").is_some_and(|value| value == true || value == 1);
        Ok(Provenance { method, scale, binarize, missing, transpose, own_missing: false })
    }

    /// Prepares the matrix as that of the run was.
    pub fn apply(&self, input: &mut InputSpec) {
        input.scale = self.scale;
        input.binarize = self.binarize;
        input.allow_nan = self.missing == Missing::Nan;
    }

    /// Refuses a matrix other than that of the run whose divisor is not known.
    ///
    /// # Errors
    /// If it is not.
    pub fn check_divisor(&self, path: &Path) -> Result<()> {
        if self.scale == Scale::Max {
            return Err(Error::input(format!(
                "{}: the factors were made with --scale max by a version that did not keep the divisor; factorise again",
                path.display()
            )));
        }
        Ok(())
    }

    /// Refuses a square matrix in another orientation than that of the run, which no shape tells.
    ///
    /// # Errors
    /// If `--transpose` (`typed`) is missing, or too much.
    pub fn check_orientation(&self, path: &Path, (m, n): (usize, usize), typed: bool) -> Result<()> {
        if m == n && self.transpose != typed {
            let (was, now) = if self.transpose { ("with", "add") } else { ("without", "omit") };
            return Err(Error::input(format!(
                "{}: the factors were made {was} --transpose; {now} it, since a square matrix fits either way",
                path.display()
            )));
        }
        Ok(())
    }

    /// What was applied, in words; empty if nothing was.
    pub fn note(&self) -> String {
        let mut applied = Vec::new();
        match self.scale {
            Scale::None => {}
            Scale::Max => applied.push("divided by its largest entry".to_string()),
            Scale::By(divisor) => applied.push(format!("divided by {divisor}")),
        }
        match self.binarize {
            Some(Threshold::At(t)) => applied.push(format!("entries from {t} on set to 1, others to 0")),
            Some(Threshold::Quantile(q)) => {
                applied.push(format!("entries from the quantile {q} on set to 1, others to 0"))
            }
            None => {}
        }
        match &self.missing {
            Missing::None => {}
            Missing::Nan => applied.push("NaN taken as missing".into()),
            Missing::ZeroUnobserved => applied.push("zeros taken as missing".into()),
            Missing::Marks(file) => applied.push(format!("entries marked in {file} taken as missing")),
        }
        let from = if self.own_missing { "" } else { "as in the run: " };
        if applied.is_empty() { String::new() } else { format!("{from}{}", applied.join("; ")) }
    }
}

/// The order in which the rows of a stored factor belong to a matrix whose rows or columns (`what`) have these names;
/// `None` if it is that of the file.
///
/// # Errors
/// If their names differ.
pub fn order(
    path: &Path,
    what: &str,
    matrix: Option<&[String]>,
    stored: Option<&[String]>,
) -> Result<Option<Vec<usize>>> {
    match compare(matrix, stored) {
        Match::Equal => Ok(None),
        Match::Reordered(order) => Ok(Some(order)),
        Match::Different(at, matrix, stored) => Err(Error::input(format!(
            "{}: {what} {at} is {matrix} in the matrix, but {stored} in the factors; select the same {what}s first",
            path.display()
        ))),
    }
}

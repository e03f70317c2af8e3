//! `--init FILE`: start from the factors of an earlier run.

use std::path::Path;

use ndarray::{Array2, ArrayViewMut2};

use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::output::matrices::Stored;
use crate::state::{Owner, ReadRows};

/// Stored factors of the right shape, in either precision.
pub struct Initial {
    stored: Stored,
}

impl Initial {
    /// Opens the factors for an m × n matrix with k components.
    ///
    /// # Errors
    /// If the file has none, or of another shape.
    pub fn open(path: &Path, (m, n): (usize, usize), k: usize) -> Result<Self> {
        let at = |e: Error| e.at("--init");
        let stored = Stored::open(path).map_err(at)?;
        for (name, rows) in [("U", m), ("V", n)] {
            let found = stored.matrix(name).map_err(at)?;
            if found != (rows, k) {
                return Err(at(Error::input(format!(
                    "{}: {name} is {} x {}, but this run needs {rows} x {k}; give the matrix of these factors and -k {2} \
                     ('fednmf project' makes a U for other rows)",
                    path.display(),
                    found.0,
                    found.1
                ))));
            }
        }
        Ok(Initial { stored })
    }
}

impl<T: Real> ReadRows<T> for Initial {
    fn rows(&self, name: &str, _: Owner, first_row: usize, mut out: ArrayViewMut2<'_, T>) -> Result<()> {
        let mut wide = Array2::<f64>::zeros(out.dim());
        self.stored.as_f64(name, first_row, wide.view_mut()).map_err(|e| e.at("--init"))?;
        out.zip_mut_with(&wide, |out, &x| *out = T::from_f64(x));
        Ok(())
    }
}

//! `--algo auto`: extrapolated HALS with several sweeps for a product, or DSANLS where the matrix is dense and so large
//! that even few exact products cost more than many sketched ones.
//!
//! The choice is made from the sizes alone, not from the number of ranks or a clock: the answer must not depend on them.
//! To an error of 1.01 times the best, extrapolated HALS needs some 15 to 20 iterations of 4mnk flops, and DSANLS with
//! d = 10k some 350 of 2dk(m+n). Measured on planted matrices, HALS was ahead at mn/(m+n) = 100k and DSANLS at 200k, with
//! f32 and f64, on 1 and 2 ranks (`bench/regime`); it is sketched from 200k on. On sparse data a product costs little more
//! than the sweeps, which a sketch does not save.

use super::{dsanls, exact, hals};
use crate::algorithms::options::{EXTRAPOLATION, HOLDOUT, INNER_SWEEPS, MISSING, Options, SKETCH_SIZE, Taken};
use crate::algorithms::registry::Method;
use crate::error::Result;

/// HALS as `auto` runs it.
pub static ACCELERATED: Method = Method { options: &OPTIONS, ..hals::METHOD };

const OPTIONS: [Taken; 7] = [
    INNER_SWEEPS.or("auto"),
    EXTRAPOLATION.or("restart"),
    exact::OPTIONS[0],
    exact::OPTIONS[1],
    exact::OPTIONS[2],
    MISSING.or("none"),
    HOLDOUT.or("0"),
];

/// Why HALS, in words.
pub const WHY_HALS: &str =
    "exact products with several sweeps each and extrapolation reach a good error first at these sizes";
/// Why DSANLS.
pub const WHY_DSANLS: &str = "a dense matrix of this size is sketched many times at the price of one exact product";

/// The method and its options, if the sizes speak for another one than [`ACCELERATED`].
///
/// # Errors
/// When the sketch sizes do not pass their own check.
pub fn other_than_hals(m: usize, n: usize, k: usize, sparse: bool) -> Result<Option<(&'static Method, Options)>> {
    let (m, n, k) = (m as f64, n as f64, k as f64);
    if sparse || m * n / (m + n) < 200.0 * k {
        return Ok(None);
    }
    let size = format!("{}", 10.0 * k);
    let options = Options::check(dsanls::METHOD.options, |name| (name == SKETCH_SIZE.name).then(|| size.clone()))?;
    Ok(Some((&dsanls::METHOD, options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_dense_matrices_are_sketched() {
        let name = |m, n, k, sparse| other_than_hals(m, n, k, sparse).unwrap().map(|(method, _)| method.name);
        assert_eq!(name(20_000, 2_000, 40, false), None);
        assert_eq!(name(60_000, 784, 10, false), None);
        assert_eq!(name(4_000, 4_000, 20, false), None);
        assert_eq!(name(8_000, 8_000, 20, false), Some("dsanls"));
        assert_eq!(name(30_000, 30_000, 20, false), Some("dsanls"));
        assert_eq!(name(30_000, 30_000, 20, true), None);
    }

    #[test]
    fn the_sketch_has_ten_rows_for_a_component() {
        let (_, options) = other_than_hals(30_000, 30_000, 20, false).unwrap().unwrap();
        assert_eq!(options.to_json()["sketch_size"], "200,200");
    }
}

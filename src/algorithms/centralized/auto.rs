//! `--algo auto`: extrapolated HALS with several sweeps for each product, or DSANLS where the matrix is dense and so large
//! that a few exact products cost more than many sketched ones.
//!
//! The choice depends on the sizes alone, not on the number of ranks or a clock, because the answer must not depend on
//! them. To an error of 1.01 times the best, extrapolated HALS needs some 15 to 20 iterations of 4mnk flops, and DSANLS with
//! d = 10k some 350 of 2dk(m+n). Measured on planted matrices, HALS was ahead at mn/(m+n) = 100k and DSANLS at 200k, with
//! f32 and f64, on 1 and 2 ranks (`bench/run regime`); `auto` sketches from 200k on. On sparse data a product costs little
//! more than the sweeps, which a sketch does not save.

use std::sync::Arc;

use super::dsanls::DsanlsArgs;
use super::hals::HalsArgs;
use crate::algorithms::description::Description;
use crate::algorithms::method::{Choice, Groups, MatrixShape, Method, defaults};
use crate::algorithms::parameters::{self, Auto, Size, Sizes};
use crate::algorithms::shared::alternating::ExactArgs;
use crate::algorithms::shared::extrapolation::Extrapolation;
use crate::algorithms::shared::init::InitArgs;
use crate::algorithms::shared::missing::MissingArgs;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::Real;

/// Parameters of HALS with the defaults of its accelerated form. Any that is given decides for HALS.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct AutoArgs {
    /// Sweeps of a factor for each product with the data. auto: several where a product costs more than a sweep, by their
    /// flops (accelerated HALS)
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parameters::auto(parameters::count(1)))]
    pub inner_sweeps: Auto<usize>,
    /// Where a factor's update starts [default: restart; none with --missing or --holdout]
    #[arg(long, value_name = "HOW", value_enum)]
    pub extrapolation: Option<Extrapolation>,
    #[command(flatten)]
    #[serde(flatten)]
    pub exact: ExactArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub missing: MissingArgs,
}

const WHY_HALS: &str =
    "exact products with several sweeps each and extrapolation reach a good error first at these sizes";
const WHY_DSANLS: &str = "a dense matrix of this size is sketched many times at the price of one exact product";

impl AutoArgs {
    fn hals(&self) -> HalsArgs {
        let accelerated = if self.missing.any() { Extrapolation::None } else { Extrapolation::Restart };
        HalsArgs {
            inner_sweeps: self.inner_sweeps,
            extrapolation: self.extrapolation.unwrap_or(accelerated),
            exact: self.exact.by_size(),
            missing: self.missing.clone(),
        }
    }

    /// DSANLS with ten sketched rows or columns for each component, where the sizes favour it.
    fn dsanls(&self, MatrixShape { m, n, k, sparse }: MatrixShape) -> Option<DsanlsArgs> {
        let (m, n) = (m as f64, n as f64);
        if sparse || m * n / (m + n) < 200.0 * k as f64 {
            return None;
        }
        let size = Size::Count(10 * k);
        let mut args = defaults::<DsanlsArgs>();
        args.sketch.sketch_size = Auto::Given(Sizes { u: size, v: size });
        args.regularization = self.exact.regularization.clone();
        Some(args)
    }
}

impl Method for AutoArgs {
    const DESCRIPTION: &'static Description = &Description {
        name: "auto",
        aliases: &[],
        summary: "chooses by the sizes: accelerated HALS, or DSANLS for very large dense data",
        ..*HalsArgs::DESCRIPTION
    };

    fn check(&self) -> Result<()> {
        self.hals().check()
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            grid: Some(&self.exact.grid),
            init: Some(&self.exact.init),
            regularization: Some(&self.exact.regularization),
            missing: Some(&self.missing),
            ..Groups::default()
        }
    }

    fn choose(&self, matrix: Option<MatrixShape>) -> Option<Choice> {
        // Whoever asks for a parameter of HALS gets HALS. DSANLS starts at random and takes penalties, too.
        let mut asked = self.clone();
        asked.exact.regularization = defaults::<AutoArgs>().exact.regularization;
        if asked.exact.init == InitArgs::RANDOM {
            asked.exact.init = defaults::<AutoArgs>().exact.init;
        }
        let untouched = asked == defaults();
        let sketched = matrix.filter(|_| untouched).and_then(|shape| self.dsanls(shape));
        Some(match sketched {
            Some(args) => Choice { method: Arc::new(args), why: WHY_DSANLS },
            None => Choice { method: Arc::new(self.hals()), why: WHY_HALS },
        })
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        self.hals().build(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(m: usize, n: usize, k: usize, sparse: bool) -> Choice {
        defaults::<AutoArgs>().choose(Some(MatrixShape { m, n, k, sparse })).unwrap()
    }

    #[test]
    fn only_large_dense_matrices_are_sketched() {
        let name = |m, n, k, sparse| chosen(m, n, k, sparse).method.description().name;
        assert_eq!(name(20_000, 2_000, 40, false), "hals");
        assert_eq!(name(60_000, 784, 10, false), "hals");
        assert_eq!(name(4_000, 4_000, 20, false), "hals");
        assert_eq!(name(8_000, 8_000, 20, false), "dsanls");
        assert_eq!(name(30_000, 30_000, 20, false), "dsanls");
        assert_eq!(name(30_000, 30_000, 20, true), "hals");
    }

    #[test]
    fn the_sketch_has_ten_rows_for_a_component() {
        assert_eq!(chosen(30_000, 30_000, 20, false).method.parameters()["sketch_size"], "200,200");
    }
}

//! Command-line parameters.

use crate::parameters;
use crate::parameters::Auto;
use crate::shared::extrapolation::Extrapolation;
use crate::shared::init::InitArgs;
use crate::shared::regularization::RegularizationArgs;
use crate::shared::stationarity::MeasureArgs;

/// Parameters of variance-reduced DSANLS.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct VrDsanlsArgs {
    /// Iterations from one exact product to the next, the exact one included. auto: by the decrease of the objective per
    /// flop of exact and of sampled iterations; 1 where sampling saves little
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parameters::auto(parameters::count(1)))]
    pub epoch: Auto<usize>,
    /// Columns sampled for U's update and rows sampled for V's: counts, or shares with %. auto: 5 % of a dimension, at least
    /// five for each component
    #[arg(long, value_name = "D_U[,D_V]", default_value = "auto", value_parser = parameters::auto(parameters::sizes))]
    pub sketch_size: Auto<parameters::Sizes>,
    /// Sweeps of a factor for each product with the data. auto: several where a product costs more than a sweep, by their
    /// flops
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parameters::auto(parameters::count(1)))]
    pub inner_sweeps: Auto<usize>,
    /// Where the updates after an exact product start
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Extrapolation::Restart)]
    pub extrapolation: Extrapolation,
    #[command(flatten)]
    #[serde(flatten)]
    pub measure: MeasureArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub init: InitArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub regularization: RegularizationArgs,
}

//! Command-line parameters.

use crate::parameters::{Auto, Sizes, auto, count};
use crate::shared::extrapolation::Extrapolation;
use crate::shared::init::InitParams;
use crate::shared::regularization::RegularizationParams;
use crate::shared::stationarity::MeasureParams;

fednmf_base::parameters! {
    /// Parameters of variance-reduced DSANLS.
    pub struct VrDsanls {
        /// Iterations from one exact product to the next, the exact one included. auto: by the decrease of the objective per flop; 1
        /// where sampling saves little
        pub epoch: Auto<usize> = Auto::Auto, "N", auto(count(1));
        /// Columns sampled for U's update and rows sampled for V's: counts, or shares with %. auto: 5 % of a dimension, at least
        /// five for each component
        #[unless(|p| p.epoch == Auto::Given(1), "with --epoch 1 all products are exact; leave out one of them")]
        pub sketch_size: Auto<Sizes> = Auto::Auto, "D_U[,D_V]";
        /// Sweeps of a factor for each product with the data. auto: several where a product costs more than a sweep, by their
        /// flops
        pub inner_sweeps: Auto<usize> = Auto::Auto, "N", auto(count(1));
        /// Where the updates after an exact product start
        pub extrapolation: Extrapolation = Extrapolation::Restart, "HOW";
        group measure: MeasureParams;
        group init: InitParams;
        group regularization: RegularizationParams;
    }
}

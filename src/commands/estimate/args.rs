//! Arguments of `fednmf estimate`, in addition to those of the method.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use fednmf_base::error::{Error, Result};
use fednmf_base::units::parse_bytes;
use fednmf_driver::spec::{Kernel, PrecisionChoice, apply_method_requirements};
use fednmf_files::InputSpec;
use fednmf_files::features::{FeatureChoice, FeatureType};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::parameters::{GridShape, any_number, whole_number};

use crate::cli::features::FeatureArgs;
use crate::cli::parameters::words;

use super::{EstimateRequest, Matrix};

/// The arguments of `fednmf estimate`.
#[derive(Debug, Args)]
pub struct EstimateArgs {
    /// Method
    #[arg(long, value_name = "NAME", default_value = "auto")]
    algo: String,
    /// Rows of the matrix. Whole numbers can be as in 1000000, 1_000_000 or 1e6
    #[arg(short = 'm', long, value_name = "M", allow_negative_numbers = true, value_parser = whole_number)]
    rows: Option<usize>,
    /// Columns of the matrix
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number)]
    cols: Option<usize>,
    /// Entries that are not zero; without it and --density the matrix is dense
    #[arg(long, value_name = "N", conflicts_with = "density", allow_negative_numbers = true, value_parser = whole_number)]
    nnz: Option<usize>,
    /// Share of the entries that are not zero, such as 0.001
    #[arg(long, allow_negative_numbers = true, value_name = "F", value_parser = any_number)]
    density: Option<f64>,
    /// Take shape and entries from this matrix, and measure on it
    #[arg(short = 'i', long, value_name = "PATH", conflicts_with_all = ["rows", "cols", "nnz", "density"])]
    input: Option<String>,
    #[command(flatten)]
    features: FeatureArgs,
    /// Number of components k
    #[arg(short = 'k', long, value_name = "K", default_value_t = 10, value_parser = whole_number)]
    components: usize,
    /// Predict for this number of ranks [default: the recommended number]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    ranks: Option<usize>,
    /// Number of parties [default: one for each of --ranks]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    parties: Option<usize>,
    /// As for a run; auto without --input: as f64
    #[arg(long, value_name = "P", value_parser = words::<PrecisionChoice>(), default_value_t = PrecisionChoice::F64)]
    precision: PrecisionChoice,
    /// As for a run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    threads: usize,
    /// As for a run
    #[arg(long, alias = "sparse-kernel", value_name = "K", value_parser = words::<Kernel>(), default_value_t = Kernel::Native)]
    kernel: Kernel,
    /// Iterations, for the time in the batch script and for --trace
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole_number)]
    max_iters: usize,
    /// Seconds that a message between ranks takes, however short, such as 2e-6 [default: measured between the two ranks
    /// of mpirun -n 2, or between two nodes with srun -N 2 -n 2; else assumed]
    #[arg(long, allow_negative_numbers = true, value_name = "S", value_parser = any_number)]
    latency: Option<f64>,
    /// Bytes a second between ranks, with --ranks-per-node between nodes, such as 10G [default: as --latency]
    #[arg(long, allow_negative_numbers = true, value_name = "SIZE", value_parser = parse_bytes)]
    bandwidth: Option<u64>,
    /// Ranks on each node, which share its bandwidth to other nodes [default: all ranks are on one node]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    ranks_per_node: Option<usize>,
    /// Take the rates from this file, the --json of an estimate on another machine, instead of measuring
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
    /// Write what each rank computes and sends in --max-iters iterations as a trace that SimGrid's smpirun replays
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl EstimateArgs {
    /// Checks the arguments.
    ///
    /// # Errors
    /// Naming the option that is wrong, and what it should be.
    pub fn check(self, method: Arc<dyn ConfiguredMethod>) -> Result<EstimateRequest> {
        let description = method.description();
        let counts = [("--components", Some(self.components)), ("--ranks", self.ranks), ("--parties", self.parties)];
        let more = [("--threads", Some(self.threads)), ("--ranks-per-node", self.ranks_per_node)];
        for (name, value) in counts.into_iter().chain(more) {
            if value.is_some_and(|v| v == 0 || v > 1 << 24) {
                return Err(Error::input(format!("{name}: must be from 1 to {}", 1 << 24)));
            }
        }
        if self.parties.is_some() && !description.partition.is_private() {
            return Err(Error::input(format!(
                "--parties: {} splits the data over ranks, not parties",
                description.name
            )));
        }
        if let Some(x) = self.latency.filter(|x| !(*x > 0.0 && x.is_finite())) {
            return Err(Error::input(format!("--latency {x}: must be a number above 0")));
        }
        let grid = method.groups().grid.and_then(|group| group.grid.given());
        match (grid, self.ranks) {
            (Some(GridShape { rows, cols }), Some(ranks)) if rows.checked_mul(cols) != Some(ranks) => {
                return Err(Error::input(format!("--grid {rows}x{cols}: that is not a grid of --ranks {ranks}")));
            }
            (Some(_), None) => return Err(Error::input("--grid: give --ranks too")),
            _ => {}
        }
        let matrix = self.matrix(&*method)?;
        Ok(EstimateRequest {
            method,
            matrix,
            k: self.components,
            ranks: self.ranks,
            parties: self.parties,
            precision: self.precision.given(),
            threads: self.threads,
            max_iters: self.max_iters,
            kernel: self.kernel.given()?,
            latency: self.latency,
            bandwidth: self.bandwidth.map(|bytes| bytes as f64),
            ranks_per_node: self.ranks_per_node,
            rates: self.rates,
            trace: self.trace,
            json: self.json,
        })
    }

    fn matrix(&self, method: &dyn ConfiguredMethod) -> Result<Matrix> {
        if let Some(input) = &self.input {
            let mut input = InputSpec::parse(input)?;
            apply_method_requirements(&mut input, method, true);
            input.ask_values = self.precision.given().is_none() && !input.private;
            input.features = match self.features.words().is_empty() {
                // At most all features are used.
                true => FeatureChoice { feature_type: FeatureType::All, highly_variable: Some(false) },
                false => self.features.choice(),
            };
            return Ok(Matrix::Input(Box::new(input)));
        }
        if let Some(option) = self.features.words().first() {
            return Err(Error::input(format!("{option} chooses features of a matrix; give it with --input")));
        }
        let (Some(m), Some(n)) = (self.rows, self.cols) else {
            return Err(Error::input("which matrix? Give -m and -n (and --nnz or --density), or --input"));
        };
        if m == 0 || n == 0 || m > 1 << 40 || n > 1 << 40 {
            return Err(Error::input(format!("-m {m} -n {n}: both must be from 1 to {}", 1u64 << 40)));
        }
        let all = m as f64 * n as f64;
        let stored = match (self.nnz, self.density) {
            (Some(nnz), _) if nnz == 0 || nnz as f64 > all => {
                return Err(Error::input(format!("--nnz {nnz}: must be from 1 to {all:.0}, all entries")));
            }
            (_, Some(d)) if !(d > 0.0 && d <= 1.0) => {
                return Err(Error::input(format!("--density {d}: a share, above 0 and at most 1")));
            }
            (Some(nnz), _) => Some(nnz as f64),
            (None, Some(density)) => Some((density * all).max(1.0)),
            (None, None) => None,
        };
        Ok(Matrix::Shape(m, n, stored))
    }
}

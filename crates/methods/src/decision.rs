//! What a method decides before the first iteration, or reports after the last one.

use crate::federated::rows::fnmf::barycenter::Barycenter;
use crate::federated::rows::fnmf::federated::{Normalize, StartOfV};
use crate::shared::alternating::Factor;
use crate::shared::init::Start;
use crate::shared::missing::Listed;
use crate::shared::row_exchange::Exchange;
use crate::shared::sketched_step::Sketching;

/// A value that a method chose, or a property of the data that it found. Pairs are in the order U, V.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// How the factors start.
    Start(Start),
    /// Updates start at extrapolated rows.
    Extrapolated,
    /// The start of the parties' V.
    StartOfV(StartOfV),
    /// Rows and columns of the grid of ranks.
    Grid(usize, usize),
    /// How the ranks exchange the rows of a factor.
    Exchange(Factor, Exchange),
    /// The rows are read from the file in each pass, in `panels` panels of at most `rows` rows.
    Streamed { panels: usize, rows: usize },
    /// Sweeps of each factor in an exact iteration.
    InnerSweeps([usize; 2]),
    /// Sweeps of a row of either factor on the observed entries.
    SweepsOfObserved(usize),
    /// Sweeps of each factor in a sampled iteration.
    SampledSweeps([usize; 2]),
    /// The sketches of both subproblems.
    Sketch([Sketching; 2]),
    /// Rows of a batch.
    BatchSize(usize),
    /// Number of columns of the sketch for a factor.
    SketchSize(Factor, usize),
    /// Iterations from one exact product with the data to the next one.
    Epoch(usize),
    /// Weight of the proximal term in the first iteration.
    ProximalWeight(f64),
    /// Upper limit on the entries of the factors.
    LargestEntry(f64),
    /// Weight of the distance between the factors of a symmetric matrix.
    SymmetryWeight(f64),
    /// The entries of a row that are listed: the observed or the missing ones.
    Listed(Listed),
    /// Number of entries that the factors are fitted to.
    Observed(f64),
    /// Number of held-out entries, and of those above zero, which parties do not count.
    HeldOut { entries: f64, above_zero: Option<f64> },
    /// Numbers of rows and of columns without an observed entry.
    Unobserved { rows: f64, columns: f64 },
    /// Maximum number of releases.
    Releases(usize),
    /// Weight of a party's contribution to a merge.
    MergeWeight(f64),
    /// The server's aggregation.
    Barycenter(Barycenter),
    /// The scale of the released components.
    Normalize(Normalize),
    /// Weight of the Boolean penalty.
    Gamma(f64),
    /// Penalties on the distances of X and of Y from their nonnegative copies (ADMM).
    CopyPenalties { mu: f64, eta: f64 },
    /// Upper limit on a party's secret weight g.
    LargestSecretWeight(f64),
    /// The graph of the parties; a resumed run must have the same.
    Graph { digest: String, edges: usize, diameter: usize },
    /// Numbers in a ciphertext.
    Slots(usize),
    /// How often the shared factor, and an error, was opened from secret shares.
    Opened { factors: usize, errors: usize },
    /// Number of iterations in f32 of a run in mixed precision.
    IterationsInF32(usize),
}

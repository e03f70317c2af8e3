//! The choice of the start and its cost. It depends on sizes and counts only, so that all ranks make the same choice.

use super::compressed;
use super::low_rank::LowRankParams;
use super::sampled::{self, Sample};
use crate::cost::Workload;
use crate::parameters::Init;
use crate::shared::sizes::Sizes;

/// The start of the factors, with all parameters, which follow from the sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Random,
    Nndsvd {
        effort: LowRankParams,
        zeros: Zeros,
    },
    Compressed {
        effort: LowRankParams,
        iterations: usize,
    },
    Sampled(Sample),
    /// Factors from a file, or from a caller of the library.
    Given,
}

/// How a start from singular vectors (NNDSVD) replaces zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeros {
    /// They stay: NNDSVD.
    Kept,
    /// The size √(mean / k) of an entry of the factors: NNDSVDa, whose authors take the mean of the data, which does not scale.
    Mean,
    /// |x| √(mean / k) / 100 with x from the standard normal distribution: NNDSVDar.
    Random,
}

impl Zeros {
    /// The name of the start, as in `--init`.
    fn start(self) -> &'static str {
        match self {
            Zeros::Kept => "nndsvd",
            Zeros::Mean => "nndsvda",
            Zeros::Random => "nndsvdar",
        }
    }
}

/// For singular vectors that the user requested by name.
const ACCURATE: LowRankParams = LowRankParams { passes: 6, spare: 10 };
/// For a basis for compressed iterations. A second pass improves the singular vectors, but no run reached its target sooner
/// with it.
const BASIS: LowRankParams = LowRankParams { passes: 1, spare: 10 };
/// For singular vectors on sparse data. More spare columns cost as much as an iteration if k is small, and save none.
const CHEAP: LowRankParams = LowRankParams { passes: 1, spare: 5 };
/// Dense flops that take as long as one flop with a nonzero of sparse data.
const SPARSE_FLOP: f64 = 4.0;
/// Maximum cost of the compressed iterations, in iterations with the whole data. `auto` uses them on dense data that is too
/// small to be sampled, if this pays for [`MAX_COMPRESSED`]. More iterations would fit the factors to the error of the
/// approximation.
const BUDGET: f64 = 6.0;
const MIN_COMPRESSED: usize = 5;
const MAX_COMPRESSED: usize = 20;
/// A sample has this many lines (rows or columns) per component, and at least one in `ONE_OF` of all. A long matrix can
/// afford more lines for the same work compared with one iteration.
const LINES: usize = 20;
const ONE_OF: usize = 30;
/// `auto` samples at most one line in this many: with more, the iterations on the sample cost what they save.
const AT_MOST_ONE_OF: usize = 4;
/// Iterations on a sample: their maximum cost in iterations with the whole data, and their minimum and maximum number.
const SAMPLE_BUDGET: f64 = 4.0;
const FEW: usize = 15;
const MANY: usize = 60;
/// Tries of a sampled start for a divergence: their maximum cost in iterations with the whole data, and their maximum number. An
/// iteration of HALS with its sweeps takes about as long as one for a divergence.
const TRIALS: f64 = 40.0;
const MOST_TRIES: usize = 8;
/// The fraction of nonzeros above which a sample of the lines, or a low-rank approximation, represents sparse data well
/// enough.
const DENSE_ENOUGH: f64 = 0.05;
/// Maximum cost of one compressed iteration on sparse data, in iterations with the whole data, for which `auto` runs the
/// minimum number of them. With few columns, as in one-hot tables, starts from a sample end in worse local minima.
const COMPRESSED: f64 = 0.5;

/// Flops for each number of a factor: its Gram matrix, and the sweeps.
fn squares(k: usize) -> f64 {
    ((1 + compressed::SWEEPS) * k) as f64
}

/// Flops of a compressed iteration.
fn compressed_flops(effort: LowRankParams, &Sizes { m, n, k, .. }: &Sizes) -> f64 {
    ((m + n) * k) as f64 * (4.0 * effort.columns(k, (m, n)) as f64 + 2.0 * squares(k))
}

/// Flops of an exact iteration, if each entry counts as much as one of dense data.
fn whole_flops(&Sizes { m, n, entries, k }: &Sizes) -> f64 {
    4.0 * entries * k as f64 + 2.0 * ((m + n) * k) as f64 * squares(k)
}

/// The sample for these sizes.
fn sample(sizes: &Sizes) -> Sample {
    let long = sizes.m.max(sizes.n);
    let lines = (LINES * sizes.k).max(long / ONE_OF).min(long);
    let one = whole_flops(&Sample { lines, iterations: 1, tries: 1 }.sizes(sizes));
    let iterations = (SAMPLE_BUDGET * whole_flops(sizes) / one) as usize;
    Sample { lines, iterations: iterations.clamp(FEW, MANY), tries: 1 }
}

/// Flops of a start that takes no time: with nearly as many components as rows or columns, random starts end in local minima
/// of small structured matrices that compressed ones avoid.
const CHEAP_START: f64 = 1e7;

impl Start {
    /// The name as in `--init`; `None` for given factors.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Start::Random => Some("random"),
            Start::Nndsvd { zeros, .. } => Some(zeros.start()),
            Start::Compressed { .. } => Some("compressed"),
            Start::Sampled(_) => Some("sampled"),
            Start::Given => None,
        }
    }

    /// The same start for a divergence: with twice the iterations, and from as many samples as [`TRIALS`] allows. `trial` iterations on
    /// as many lines try each.
    #[must_use]
    pub fn with_tries(self, &Sizes { m, n, .. }: &Sizes, trial: usize) -> Start {
        let Start::Sampled(sample) = self else { return self };
        let iterations = (2 * sample.iterations).min(MANY);
        let share = sample.drawn(m.max(n)) as f64 / m.max(n) as f64;
        let tries = TRIALS / (share * (trial + iterations) as f64);
        Start::Sampled(Sample { iterations, tries: (tries as usize).clamp(1, MOST_TRIES), ..sample })
    }

    /// The requested start, or the one that saves the most work. It depends on sizes and counts only.
    pub fn choose(init: &Init, sizes: &Sizes, sparse: bool) -> Start {
        let Sizes { m, n, entries, k } = *sizes;
        let dense_enough = entries >= DENSE_ENOUGH * m as f64 * n as f64;
        let sizes = &Sizes { entries: entries * if sparse { SPARSE_FLOP } else { 1.0 }, ..*sizes };
        let whole = whole_flops(sizes);
        match init {
            Init::Random | Init::Auto => Start::Random,
            Init::File(_) => Start::Given,
            Init::Nndsvd => Start::Nndsvd { effort: ACCURATE, zeros: Zeros::Kept },
            Init::Nndsvda => Start::Nndsvd { effort: ACCURATE, zeros: Zeros::Mean },
            Init::Nndsvdar => Start::Nndsvd { effort: ACCURATE, zeros: Zeros::Random },
            Init::Compressed => {
                let iterations = (BUDGET * whole / compressed_flops(BASIS, sizes)) as usize;
                Start::Compressed { effort: BASIS, iterations: iterations.clamp(MIN_COMPRESSED, MAX_COMPRESSED) }
            }
            Init::Sampled => Start::Sampled(sample(sizes)),
            Init::BySize if 2 * k > m.min(n) => {
                let compressed = Start::Compressed { effort: BASIS, iterations: MAX_COMPRESSED };
                if (2..=m.min(n)).contains(&k) && compressed.flops(sizes, false) <= CHEAP_START {
                    compressed
                } else {
                    Start::Random
                }
            }
            Init::BySize => {
                let sample = sample(sizes);
                let vectors = Start::Nndsvd { effort: CHEAP, zeros: Zeros::Kept };
                let few_columns = m.min(n) < LINES * k;
                if sparse && dense_enough && few_columns && compressed_flops(CHEAP, sizes) <= COMPRESSED * whole {
                    Start::Compressed { effort: CHEAP, iterations: MIN_COMPRESSED }
                } else if dense_enough && AT_MOST_ONE_OF * sample.lines <= m.max(n) {
                    Start::Sampled(sample)
                } else if !sparse && MAX_COMPRESSED as f64 * compressed_flops(BASIS, sizes) <= BUDGET * whole {
                    Start::Compressed { effort: BASIS, iterations: MAX_COMPRESSED }
                } else if k > 1 {
                    vectors
                } else {
                    Start::Random
                }
            }
        }
    }

    /// Flops of all ranks for the start, on dense data.
    pub fn flops(self, sizes: &Sizes, sparse: bool) -> f64 {
        let Sizes { m, n, entries, k } = *sizes;
        let entries = entries * if sparse { SPARSE_FLOP } else { 1.0 };
        let (effort, iterations) = match self {
            Start::Random | Start::Given => return 0.0,
            Start::Sampled(sample) => {
                let iteration = whole_flops(&sample.sizes(&Sizes { entries, ..*sizes }));
                let fit = 2.0 * (entries + (sampled::FIT_SWEEPS * k * m.max(n)) as f64) * k as f64;
                return sample.iterations as f64 * iteration + fit;
            }
            Start::Nndsvd { effort, .. } => (effort, 0),
            Start::Compressed { effort, iterations } => (effort, iterations),
        };
        let (rows, l) = ((m + n) as f64, effort.columns(k, (m, n)) as f64);
        let products = (2 * effort.passes + 1) as f64 * 2.0 * entries * l;
        products + 6.0 * rows * l * l + iterations as f64 * compressed_flops(effort, sizes)
    }

    /// Peak memory in bytes that a rank allocates to compute the start. It owns `own` rows of U and of V and gathers `gathered`
    /// rows (of all copies). Starts that are not computed need only the factors.
    pub fn bytes(self, workload: &Workload, own: [usize; 2], gathered: usize) -> f64 {
        let Workload { m, n, k, word, .. } = *workload;
        if let Start::Sampled(sample) = self {
            let [short, long] = if m < n { own } else { [own[1], own[0]] };
            let lines = (sample.lines * long).div_ceil(m.max(n).max(1));
            // The sample, all of whose columns this rank may own, and its factors; then the factors of all data.
            let rows = if m < n { m } else { lines };
            let sampled = workload.block(rows, workload.part(lines, m.min(n)));
            return sampled + workload.bytes(k * (3 * (lines + short) + 2 * (short + long) + gathered));
        }
        let (Start::Nndsvd { effort, .. } | Start::Compressed { effort, .. }) = self else { return 0.0 };
        const WIDE: usize = size_of::<f64>();
        let l = effort.columns(k, (m, n));
        let all = own[0] + own[1];
        let [short, long] = if m < n { own } else { [own[1], own[0]] };
        // The products with the data and their bases: in place while they are orthonormalised, and copied.
        let grid = word * l * (2 * all + gathered);
        let sides = word * l * all;
        let approximation = grid + sides.max(2 * WIDE * l * short);
        // The singular vectors and their inputs; then their nonnegative parts.
        let vectors = sides + WIDE * (l + k) * all;
        let parts = sides + WIDE * (l * long + 2 * k * all);
        approximation.max(vectors).max(parts) as f64
    }

    /// Number of columns of the start's products with the data; 0 if it computes none.
    pub fn columns(self, k: usize, shape: (usize, usize)) -> usize {
        match self {
            Start::Nndsvd { effort, .. } | Start::Compressed { effort, .. } => effort.columns(k, shape),
            Start::Sampled(_) => k,
            Start::Random | Start::Given => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen((m, n): (usize, usize), stored: Option<usize>, k: usize) -> &'static str {
        let entries = stored.unwrap_or(m * n) as f64;
        match Start::choose(&Init::BySize, &Sizes { m, n, entries, k }, stored.is_some()) {
            Start::Random => "random",
            Start::Nndsvd { effort: CHEAP, zeros: Zeros::Kept } => "nndsvd",
            Start::Sampled(_) => "sampled",
            Start::Compressed { effort: BASIS, iterations: MAX_COMPRESSED } => "compressed",
            Start::Compressed { effort: CHEAP, iterations: MIN_COMPRESSED } => "compressed, few iterations",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_start_is_that_of_a_sample_where_there_are_many_lines() {
        assert_eq!(chosen((60_000, 784), None, 40), "sampled");
        assert_eq!(chosen((400, 10_304), None, 30), "sampled");
        assert_eq!(chosen((1_797, 64), None, 10), "sampled");
        assert_eq!(chosen((1_797, 64), None, 24), "nndsvd");
        assert_eq!(chosen((500, 400), None, 10), "compressed");
        assert_eq!(chosen((4_000, 12_000), Some(4_500_000), 30), "sampled");
        assert_eq!(chosen((8_124, 119), Some(186_852), 20), "compressed, few iterations");
        assert_eq!(chosen((3_430, 6_906), Some(353_160), 20), "nndsvd");
        assert_eq!(chosen((100_000, 20_000), Some(4_000_000), 40), "nndsvd");
        assert_eq!(chosen((60_000, 784), None, 3), "sampled");
        assert_eq!(chosen((100_000, 2_000), Some(4_000_000), 2), "nndsvd");
        assert_eq!(chosen((10, 10), None, 3), "nndsvd");
        assert_eq!(chosen((60, 40), Some(100), 1), "random");
    }

    #[test]
    fn many_components_start_at_random_unless_the_matrix_is_tiny() {
        assert_eq!(chosen((1_797, 64), None, 40), "random");
        assert_eq!(chosen((10, 10), None, 10), "compressed");
        assert_eq!(chosen((10, 10), None, 11), "random");
        assert_eq!(chosen((1, 50), None, 1), "random");
    }

    #[test]
    fn a_sample_of_many_lines_is_a_share_of_them() {
        let sample = |m, n, k| sample(&Sizes { m, n, entries: (m * n) as f64, k });
        assert_eq!(sample(60_000, 784, 40), Sample { lines: 2_000, iterations: MANY, tries: 1 });
        assert_eq!(sample(400, 10_304, 40).lines, 800);
        assert_eq!(sample(30, 20, 4), Sample { lines: 30, iterations: FEW, tries: 1 });
    }

    #[test]
    fn the_tries_for_a_divergence_have_a_budget() {
        let tried = |m, n, k| {
            let sizes = Sizes { m, n, entries: (m * n) as f64, k };
            let Start::Sampled(tried) = Start::Sampled(sample(&sizes)).with_tries(&sizes, 5) else { unreachable!() };
            (tried.iterations, tried.tries)
        };
        assert_eq!(tried(60_000, 784, 40), (MANY, MOST_TRIES));
        assert_eq!(tried(1_797, 64, 16), (42, 4));
        // All lines are drawn where 400 would be more than half of them.
        assert_eq!(tried(600, 500, 20), (2 * FEW, 1));
    }

    #[test]
    fn only_a_computed_start_needs_memory_of_its_own() {
        let sizes = Sizes { m: 1000, n: 400, entries: 4e5, k: 10 };
        let bytes = |init: Init, word| {
            let workload =
                Workload { m: 1000, n: 400, stored: 4e5, sparse: false, k: 10, parties: None, word, traffic: None };
            Start::choose(&init, &sizes, false).bytes(&workload, [500, 200], 1600)
        };
        assert_eq!((bytes(Init::Random, 8), bytes(Init::File("x.h5".into()), 8)), (0.0, 0.0));
        // l = 20: two copies of the 700 own rows, a send buffer of as many, and the gathered rows.
        assert_eq!(bytes(Init::Nndsvd, 8), (8 * 20 * (3 * 700 + 1600)) as f64);
        assert_eq!(bytes(Init::Compressed, 4), (4 * 20 * (2 * 700 + 1600) + 2 * 8 * 20 * 200) as f64);
    }

    #[test]
    fn a_start_that_is_asked_for_is_taken() {
        let sizes = Sizes { m: 9, n: 7, entries: 63.0, k: 7 };
        let named = |init: Init| Start::choose(&init, &sizes, false).name().unwrap();
        assert_eq!(named(Init::Random), "random");
        assert_eq!(named(Init::Nndsvd), "nndsvd");
        assert_eq!(named(Init::Nndsvda), "nndsvda");
        assert_eq!(named(Init::Nndsvdar), "nndsvdar");
        assert_eq!(named(Init::Compressed), "compressed");
        assert_eq!(named(Init::Sampled), "sampled");
    }
}

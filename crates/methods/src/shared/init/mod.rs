//! Initialisation of the factors: random ([`uniform`]), from a sample of the data ([`sampled`]), from the singular vectors
//! of the data ([`nndsvd`]), with or without iterations on a low-rank approximation ([`compressed`]), or from a file.
//! [`choice`] estimates the cost of each and chooses among them.

mod balance;
mod choice;
mod compressed;
mod low_rank;
mod nndsvd;
mod sampled;
mod uniform;

use std::ops::Range;
use std::path::Path;

use ndarray::{Array2, ArrayViewMut2};

pub use balance::{balance, random_scales};
pub use choice::{Start, Zeros};
pub use low_rank::Task;
pub use sampled::{Sample, draw};
pub use uniform::{scale, start_entry, u, v};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::state::{Owner, ReadRows};
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_linalg::{Order, Real};

use super::factor_side::{FactorSide, FactorTags};
use super::rank_data::RankData;
use crate::description::MessageSpec;
use crate::parameters::Init;

fednmf_base::parameters! {
    /// The start of the factors.
    pub struct InitParams {
        /// Where the factors start. random. sampled: HALS on some of the rows or columns, then one product with all data. nndsvd: the
        /// leading singular vectors, by a randomised SVD over the ranks. nndsvda: the same with entries of the usual size in place
        /// of its zeros. nndsvdar: with small random numbers there. compressed: nndsvd, then HALS on a low-rank approximation of the
        /// data. A file: factors that --output wrote. auto: chosen by the sizes with --algo auto, kl-mu, kl-cd and beta-mu, for a
        /// divergence the best of several samples; random for other methods and with missing entries
        pub init: Init = Init::Auto, "HOW";
    }
}

impl InitParams {
    /// Random initialisation.
    pub const RANDOM: InitParams = InitParams { init: Init::Random };

    /// The same, with the start chosen by the sizes unless one is named.
    #[must_use]
    pub fn by_size(&self) -> Self {
        InitParams { init: if self.init == Init::Auto { Init::BySize } else { self.init.clone() } }
    }

    /// The file to start from, if one was named.
    pub fn file(&self) -> Option<&Path> {
        if let Init::File(path) = &self.init { Some(path) } else { None }
    }

    /// Whether a start that is computed from the data was requested.
    pub fn is_computed(&self) -> bool {
        matches!(self.init, Init::Nndsvd | Init::Nndsvda | Init::Nndsvdar | Init::Compressed | Init::Sampled)
    }

    /// Refuses NNDSVD starts for `method`, which does not support them.
    ///
    /// # Errors
    /// If such a start was requested.
    pub fn refuse_nndsvd(&self, method: &str) -> Result<()> {
        if self.is_computed() {
            let name = self.init.name().unwrap_or_default();
            return Err(Error::input(format!(
                "--init {name}: {method} starts at random or from a file; auto, hals, bpp, mu, kl-mu, kl-cd and beta-mu take \
                 {name}"
            )));
        }
        Ok(())
    }
}

const PRODUCTS: &str = "3 to 13 times, for a start from singular vectors, or twice in each of at most 60 iterations on a sample, with \
                        its lines in place of the longer dimension, where more ranks share the rows or columns; a divergence \
                        has at most 8 samples, and twice in each of 5 iterations that try one";

/// The tags of a factor's messages while the start is computed.
pub const TAGS: FactorTags =
    FactorTags { name: "start", gather: low_rank::GATHER, rhs: low_rank::PRODUCT, gram: low_rank::GRAM };

/// Messages that leave a rank for the start.
pub const MESSAGES: [MessageSpec; 7] = [
    MessageSpec::new(
        low_rank::GRAM,
        "l x l, with l = k to k + 10; for a sampled start and two words",
        "2 to 13 times, for a start from singular vectors; twice or three times in each iteration on a sample",
    ),
    MessageSpec::new(nndsvd::NORMS, "4 x k", "once, for a start from singular vectors"),
    MessageSpec::new(low_rank::GATHER, "(m / pr + n / pc) x l", PRODUCTS),
    MessageSpec::new(low_rank::PRODUCT, "(m / pr + n / pc) x l", PRODUCTS),
    MessageSpec::new(
        compressed::SMALL,
        "(k + l) x k and two words",
        "twice, after a rise of the objective three times, in each of 5 to 20 iterations of a compressed start",
    ),
    MessageSpec::new(sampled::NORM, "1", "once for each sample"),
    MessageSpec::new(balance::NORMS, "4 x k", "once, for a start that is not random, with --alpha-u or --alpha-v"),
];

/// The value that replaces zeros which no update could change, as a fraction of the entry √(mean / k) of two constant factors
/// whose product has the mean of the data. It is the scale of the random numbers in NNDSVDar.
const FLOOR: f64 = 0.01;

/// The data of a rank, and its own rows of U and of V.
pub type DataAndFactors<T> = (Box<dyn RankData<T>>, [Array2<T>; 2]);

/// Computes the own rows of both factors of an m × n matrix from this rank's data, and returns the data too. With
/// `positive`, no entry is zero, because multiplicative updates keep zeros: zeros are replaced by [`FLOOR`] times that entry, or
/// by what the start specifies. Factors scale with the root of the data; random ones have the given scales. Collective.
///
/// # Errors
/// On all ranks, if the given factors cannot be used, or the singular vectors cannot be computed.
pub fn on_grid<T: Real>(
    start: Start,
    given: Option<&dyn ReadRows<T>>,
    task: &Task<'_>,
    positive: bool,
    data: Box<dyn RankData<T>>,
    rows: [&Range<usize>; 2],
    [scale_u, scale_v]: [f64; 2],
) -> SharedResult<DataAndFactors<T>> {
    let Task { comm, shape, k, sum, .. } = *task;
    let order = data.order();
    let usual = 0.5 * scale(sum, shape, k);
    let small = FLOOR * usual;
    let without_zeros = |mut factors: [Array2<T>; 2], fill: f64| {
        let zeros = factors.iter_mut().flatten().filter(|x| **x <= T::zero());
        zeros.for_each(|x| *x = T::from_f64(fill));
        factors
    };
    match start {
        Start::Random => {
            let [mut start_u, mut start_v] = rows.map(|rows| order.zeros::<T>(rows.len(), k));
            u(task.seed, rows[0], scale_u, start_u.view_mut());
            v(task.seed, rows[1], scale_v, start_v.view_mut());
            Ok((data, [start_u, start_v]))
        }
        Start::Given => {
            let [mut start_u, mut start_v] = rows.map(|rows| order.zeros::<T>(rows.len(), k));
            let read = given.map_or(Ok(()), |given| self::given(given, rows, [start_u.view_mut(), start_v.view_mut()]));
            comm.agree_on_error(read)?;
            Ok((data, [start_u, start_v]))
        }
        Start::Nndsvd { effort, zeros } => {
            let fill = if zeros == Zeros::Mean { usual } else { small };
            let (data, low_rank) = low_rank::approximate(task, data, effort)?;
            let mut factors = nndsvd::factors(comm, &low_rank, k, fill, (task.seed, rows), order)?;
            if zeros == Zeros::Random {
                for ((factor, purpose), rows) in factors.iter_mut().zip([Purpose::StartU, Purpose::StartV]).zip(rows) {
                    random_for_zeros(&Stream::new(task.seed, purpose, 0), rows.start, small, factor);
                }
            }
            Ok((data, if zeros == Zeros::Mean || positive { without_zeros(factors, fill) } else { factors }))
        }
        Start::Sampled(sample) => {
            let (data, factors) = sampled::factors(task, data, sample, small)?;
            Ok((data, if positive { without_zeros(factors, small) } else { factors }))
        }
        Start::Compressed { effort, iterations } => {
            let (data, low_rank) = low_rank::approximate(task, data, effort)?;
            let factors = nndsvd::factors(comm, &low_rank, k, small, (task.seed, rows), Order::ColumnMajor)?;
            let factors = compressed::iterate(comm, low_rank, without_zeros(factors, small), task.norm2, iterations);
            let factors = if positive { without_zeros(factors, small) } else { factors };
            let in_order = |x: Array2<T>| {
                let mut out = order.zeros(x.nrows(), k);
                out.assign(&x);
                out
            };
            Ok((data, factors.map(in_order)))
        }
    }
}

/// Fills the own rows of U and V from the given start, or else with random numbers of these scales; returns which. Collective.
///
/// # Errors
/// On all ranks, if the given start cannot be read or is not valid.
pub fn given_or_random<T: Real>(
    initial: Option<&dyn ReadRows<T>>,
    seed: u64,
    [scale_u, scale_v]: [f64; 2],
    comm: &Communicator,
    [side_u, side_v]: [&mut FactorSide<T>; 2],
) -> SharedResult<Start> {
    let Some(initial) = initial else {
        u(seed, &side_u.own_rows, scale_u, side_u.own.view_mut());
        v(seed, &side_v.own_rows, scale_v, side_v.own.view_mut());
        return Ok(Start::Random);
    };
    let rows = [&side_u.own_rows, &side_v.own_rows];
    comm.agree_on_error(given(initial, rows, [side_u.own.view_mut(), side_v.own.view_mut()]))?;
    Ok(Start::Given)
}

/// Replaces the zeros in a factor's rows from `first` on by absolute values of normal numbers with this standard deviation.
fn random_for_zeros<T: Real>(stream: &Stream, first: usize, deviation: f64, factor: &mut Array2<T>) {
    let mut cursor = stream.at(first as u128 * factor.ncols() as u128);
    for mut row in factor.rows_mut() {
        for x in &mut row {
            let drawn = cursor.normal().abs();
            if *x <= T::zero() {
                *x = T::from_f64(deviation * drawn);
            }
        }
    }
}

/// Reads rows of given factors.
///
/// # Errors
/// If their shape differs, or their entries are not valid for a start.
pub fn given<T: Real>(given: &dyn ReadRows<T>, rows: [&Range<usize>; 2], out: [ArrayViewMut2<'_, T>; 2]) -> Result<()> {
    for ((name, rows), mut out) in ["U", "V"].into_iter().zip(rows).zip(out) {
        given.rows(name, Owner::Shared, rows.start, out.view_mut())?;
        if let Some(x) = out.iter().find(|x| !(x.is_finite() && **x >= T::zero())) {
            return Err(Error::input(format!(
                "--init: {name} has the entry {x}, and a start is finite and not negative"
            )));
        }
    }
    Ok(())
}

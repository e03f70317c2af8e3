//! The performance of this machine: the kernels' rates on a block of the requested shape, and latency and bandwidth
//! between two ranks. All ranks measure at the same time, because they share memory and its bus.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use ndarray::Array2;
use serde_json::{Map, Value, json};
use sprs::CsMatI;

use fednmf_base::error::{Error, Result, SharedResult, why_not_json};
use fednmf_base::host;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::nls::{Penalty, Pivoting, Sweep, multiply, sweep};
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_linalg::sketch;
use fednmf_linalg::{Block, Csr, Order, Real, flops, gemm, gram};
use fednmf_methods::cost::{Cost, Kernel, Message, Pattern};
use fednmf_privacy::sharing::{
    COMPUTING, Computation, Keys, Mail, Purpose as RoundPurpose, Shared, Terms, Wire, rectify_words,
};

const MEASURE: MessageTag = MessageTag::new("measuring", Payload::Metadata);

/// The part of the time that is not computing.
pub const MESSAGES: &str = "messages";

/// Assumed if nothing is measured: two ranks on one machine, or in one rack.
const LATENCY: f64 = 2e-6;
const BANDWIDTH: f64 = 5e9;

/// Maximum number of entries of a block, dense and sparse: larger than any cache, and quick to generate.
const DENSE: usize = 12 << 20;
const STORED: usize = 4 << 20;
/// Maximum number of entries of a factor, of which a measurement has up to four; larger factors have the same rates.
const FACTOR: usize = 3 << 20;
/// Maximum number of components in a measurement: k × k matrices then exceed the caches by far.
const MOST_COMPONENTS: usize = 1 << 10;

/// Seconds that a kernel is repeated for.
const LONG: f64 = 0.2;

/// Rates of kernels (flop/s), of copying (B/s), and of messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    kernels: BTreeMap<String, f64>,
    /// Latency: seconds that an empty message takes.
    pub latency: f64,
    /// Bytes a second between two ranks.
    pub bandwidth: f64,
    /// Whether the last two were measured or given.
    pub known: bool,
    /// Whether they were measured between ranks of one node.
    pub within_node: bool,
    /// Ranks that share the bandwidth of a node, if there are more ranks than those; `None` if all are on one node.
    pub ranks_per_node: Option<usize>,
}

impl Rates {
    /// Flop/s of a kernel, if it is known.
    pub fn of(&self, kernel: Kernel) -> Option<f64> {
        self.kernels.get(kernel.name()).copied()
    }

    /// The rates of each of `ranks` ranks. Ranks of several nodes send at the same time, through the network cards of their nodes.
    pub fn of_ranks(&self, ranks: usize) -> Rates {
        let sharing = self.ranks_per_node.filter(|on_node| *on_node < ranks).unwrap_or(1);
        Rates { bandwidth: self.bandwidth / sharing as f64, ..self.clone() }
    }

    /// Seconds of each part of an iteration; `None` where a kernel of it is not measured.
    pub fn seconds(&self, cost: &Cost) -> Option<BTreeMap<&'static str, f64>> {
        let mut parts = BTreeMap::new();
        for work in cost.work.iter().filter(|w| w.rank > 0.0) {
            *parts.entry(work.kernel.name()).or_insert(0.0) += work.rank / self.of(work.kernel)?;
        }
        parts.insert(MESSAGES, cost.messages.iter().flat_map(|m| self.of_message(m)).sum());
        Some(parts)
    }

    /// Seconds that a message takes in an iteration by the usual algorithms, halving and doubling: for its latency, and for
    /// its bytes.
    pub fn of_message(&self, message: &Message) -> [f64; 2] {
        if message.group == 1 {
            return [0.0; 2];
        }
        let latency = (message.group as f64).log2().ceil() * self.latency;
        let share = (message.group - 1) as f64 / message.group as f64 * message.vector / self.bandwidth;
        if matches!(message.pattern, Pattern::TouchedRows(_) | Pattern::TouchedSums(_)) {
            let once = [message.partners as f64 * self.latency, message.vector / self.bandwidth];
            return once.map(|once| message.times as f64 * once);
        }
        if let Pattern::Rounds(_) = message.pattern {
            return [message.times as f64 * self.latency, message.vector / self.bandwidth];
        }
        let passes = match message.pattern {
            Pattern::AllReduce | Pattern::PartySum => 2.0,
            Pattern::AllGather | Pattern::ReduceScatter => 1.0,
            Pattern::TouchedRows(_) | Pattern::TouchedSums(_) | Pattern::Rounds(_) | Pattern::Local => 0.0,
        };
        [latency, share].map(|once| message.times as f64 * passes * once)
    }

    /// Sets latency and bandwidth, if given.
    pub fn set(&mut self, latency: Option<f64>, bandwidth: Option<f64>) {
        self.known |= latency.is_some() && bandwidth.is_some();
        self.within_node &= latency.is_none() && bandwidth.is_none();
        self.latency = latency.unwrap_or(self.latency);
        self.bandwidth = bandwidth.unwrap_or(self.bandwidth);
    }

    /// For the report, and for `--rates`.
    pub fn json(&self) -> Value {
        let mut map: Map<String, Value> = self.kernels.iter().map(|(name, rate)| (name.clone(), json!(rate))).collect();
        map.insert("latency".into(), json!(self.latency));
        map.insert("bandwidth".into(), json!(self.bandwidth));
        map.into()
    }

    /// Reads the output of [`Rates::json`], or a whole report with `rates` in it.
    ///
    /// # Errors
    /// When the file cannot be read, or does not hold positive numbers.
    pub fn read(path: &Path) -> Result<Rates> {
        let wrong = |why: String| Error::input(format!("--rates {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read ({e})")))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|e| wrong(format!("is not JSON ({})", why_not_json(&e))))?;
        let map = value.get("rates").unwrap_or(&value).as_object().ok_or_else(|| {
            wrong("holds no rates; take the \"rates\" of 'fednmf estimate --json', or the whole of it".into())
        })?;
        let mut kernels = BTreeMap::new();
        for (name, rate) in map {
            let rate = rate
                .as_f64()
                .filter(|r| *r > 0.0 && r.is_finite())
                .ok_or_else(|| wrong(format!("{name} is {rate}: must be a positive number")))?;
            kernels.insert(name.clone(), rate);
        }
        let (latency, bandwidth) = (kernels.remove("latency"), kernels.remove("bandwidth"));
        Ok(Rates {
            kernels,
            known: latency.is_some() && bandwidth.is_some(),
            within_node: false,
            latency: latency.unwrap_or(LATENCY),
            bandwidth: bandwidth.unwrap_or(BANDWIDTH),
            ranks_per_node: None,
        })
    }
}

/// How a matrix is stored, and the number of columns that it is multiplied with.
#[derive(Debug, Clone, Copy)]
pub struct Stored {
    /// Share of the entries that are stored; `None` for dense blocks.
    pub density: Option<f64>,
    pub k: usize,
}

impl Stored {
    /// Maximum number of rows of a factor.
    fn most_rows(&self) -> usize {
        (FACTOR / self.k.max(1)).max(1)
    }

    /// Rows and columns of a block that, like its factors, is quick to generate and to traverse, and the number of entries
    /// in one of its rows.
    fn measured(&self, (rows, cols): (usize, usize)) -> (usize, usize, f64) {
        let shorter = cols.clamp(1, self.most_rows());
        // A block with fewer columns has as many entries in a row, since work depends on both entries and rows.
        let per_row = self.density.map_or(shorter as f64, |density| (density * cols as f64).min(shorter as f64));
        let most = if self.density.is_some() { STORED } else { DENSE };
        let fewer = rows.min((most as f64 / per_row.max(1e-9)) as usize).clamp(1, self.most_rows());
        (fewer, shorter, per_row)
    }

    fn block<T: Real>(&self, shape: (usize, usize)) -> Result<Block<T>> {
        let (rows, cols, per_row) = self.measured(shape);
        let mut block = match self.density {
            None => Block::Dense(random(rows, cols, Order::RowMajor, 1).into()),
            Some(_) => random_sparse(rows, cols, per_row),
        };
        block.prepare(self.k)?;
        Ok(block)
    }

    /// A block for a measurement: the given one, if its factors have at most as many entries as itself or [`FACTOR`],
    /// otherwise a similar one.
    fn block_of<T: Real>(&self, given: Option<Block<T>>, shape: (usize, usize)) -> Result<Block<T>> {
        let fits = |block: &Block<T>| {
            let (rows, cols) = block.shape();
            rows.max(cols).saturating_mul(self.k) <= FACTOR.max(block.stored())
        };
        match given.filter(fits) {
            Some(mut block) => {
                block.prepare(self.k)?;
                Ok(block)
            }
            None => self.block(shape),
        }
    }
}

fn random<T: Real>(rows: usize, k: usize, order: Order, purpose: u64) -> Array2<T> {
    let mut cursor = Stream::new(purpose, Purpose::Probe, 0).at(0);
    let mut out = order.zeros(rows, k);
    out.iter_mut().for_each(|x| *x = T::from_f64(cursor.uniform()));
    out
}

/// Entries at random positions, nearly the same number in each row.
fn random_sparse<T: Real>(rows: usize, cols: usize, per_row: f64) -> Block<T> {
    let mut cursor = Stream::new(2, Purpose::Probe, 0).at(0);
    let (mut starts, mut indices) = (vec![0usize], Vec::new());
    for row in 0..rows {
        let wanted = ((row + 1) as f64 * per_row).round() - (row as f64 * per_row).round();
        let from = indices.len();
        (0..wanted as usize).for_each(|_| indices.push(cursor.below(cols as u64) as i32));
        indices[from..].sort_unstable();
        let mut kept = from;
        for at in from..indices.len() {
            if at == from || indices[at] != indices[kept - 1] {
                indices[kept] = indices[at];
                kept += 1;
            }
        }
        indices.truncate(kept);
        starts.push(kept);
    }
    let values: Vec<T> = indices.iter().map(|_| T::from_f64(cursor.uniform())).collect();
    Block::Sparse(Csr::new(CsMatI::new((rows, cols), starts, indices, values)))
}

/// Seconds of one call, the median of several on the slowest rank. Collective.
fn seconds(comm: &Communicator, mut call: impl FnMut()) -> f64 {
    call();
    let mut one = [0.0];
    let start = Instant::now();
    call();
    one[0] = start.elapsed().as_secs_f64();
    comm.max(MEASURE, &mut one);
    let times = (LONG / one[0].max(1e-9)).clamp(3.0, 1000.0) as usize;
    let mut each: Vec<f64> = (0..times)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64()
        })
        .collect();
    each.sort_unstable_by(f64::total_cmp);
    let mut median = [each[each.len() / 2]];
    comm.max(MEASURE, &mut median);
    median[0]
}

/// Measures the kernels in `cost`, on blocks of its shape or on `given`, and latency and bandwidth between ranks. Memory is
/// bounded whatever the shape: large blocks, factors and numbers of components are replaced by smaller ones of about the
/// same rates. Collective.
///
/// # Errors
/// On all ranks, when MKL refuses a block.
pub fn measure<T: Real>(comm: &Communicator, cost: &Cost, stored: Stored, given: Vec<Block<T>>) -> SharedResult<Rates> {
    let asks = |kernel: Kernel| cost.work.iter().any(|w| w.kernel == kernel && w.rank > 0.0);
    let stored = Stored { k: stored.k.min(MOST_COMPONENTS), ..stored };
    let mut given = given.into_iter();
    let mut kernels = BTreeMap::new();
    let mut note = |kernel: Kernel, flops: f64, seconds: f64| {
        kernels.insert(kernel.name().to_string(), (flops / seconds.max(1e-12)).max(1.0));
    };
    if asks(Kernel::Mul) || asks(Kernel::Tmul) {
        let block = comm.agree_on_error(stored.block_of(given.next(), cost.shape.block))?;
        let [mul, tmul] = products(comm, &block, stored.k);
        // A very sparse block may have no entry, but going through its rows takes time.
        let flops = 2.0 * (block.stored().max(1) * stored.k) as f64;
        note(Kernel::Mul, flops, mul);
        note(Kernel::Tmul, flops, tmul);
    }
    for (kernel, (rows, cols, d)) in [Kernel::SampledForU, Kernel::SampledForV].into_iter().zip(cost.shape.sampled) {
        if asks(kernel) {
            let block = comm.agree_on_error(stored.block_of(given.next(), (rows, cols)))?;
            // The same share of fewer rows, if the block was cut.
            let share = block.shape().0 as f64 / rows as f64;
            let own = (share * (rows / comm.size()) as f64) as usize;
            let (flops, seconds) = sampled(comm, &block, (share * d as f64) as usize, own, stored.k);
            note(kernel, flops, seconds);
        }
    }
    let order = if stored.density.is_some() { Order::RowMajor } else { Order::ColumnMajor };
    for kernel in [Kernel::Gram, Kernel::Sweep, Kernel::Multiply, Kernel::Pivot] {
        if asks(kernel) {
            let rows = if kernel == Kernel::Gram { cost.shape.gram } else { cost.shape.updated };
            let rows = rows.clamp(1, stored.most_rows());
            let seconds = row_wise::<T>(comm, kernel, rows, stored.k, order);
            note(kernel, 2.0 * (rows * stored.k * stored.k) as f64, seconds);
        }
    }
    if asks(Kernel::Ring) {
        let (rows, cols, _) = Stored { density: None, ..stored }.measured(cost.shape.block);
        let [products, words] = on_shares(comm, (rows, cols), stored.k)?;
        note(Kernel::Ring, products.0, products.1);
        note(Kernel::Shares, words.0, words.1);
    }
    kernels.insert("copy".into(), copy(comm));
    let (latency, bandwidth, known) = between(comm);
    let hosts = comm.gather_value(MEASURE, &host::name());
    let within_node = comm.broadcast_value(MEASURE, known && hosts.windows(2).all(|pair| pair[0] == pair[1]));
    Ok(Rates { kernels, latency, bandwidth, known, within_node, ranks_per_node: None })
}

/// What three computing parties do on this rank, and its seconds: both products of a block with k vectors in flops, and max(0, ·)
/// of the entries of a factor in words of messages.
fn on_shares(comm: &Communicator, (rows, width): (usize, usize), k: usize) -> SharedResult<[(f64, f64); 2]> {
    /// Delivers within the process.
    struct Here;
    impl Wire for Here {
        fn exchange(&mut self, mail: &mut Mail, _: RoundPurpose) {
            (0..COMPUTING * COMPUTING).for_each(|pair| mail.deliver(pair / COMPUTING, pair % COMPUTING));
        }
    }
    // Any words take the same time.
    let mut computation = Computation::new(&comm.agree_on_error(Keys::draw(0..COMPUTING, Some(1)))?, &mut Here);
    let [x, f, h] = [rows * width, k * width, k * rows].map(|length| computation.zeros(length));
    let (mut terms, mut truncated, mut out) = (Terms::default(), Shared::default(), Shared::default());
    let products = seconds(comm, || {
        terms.clear(&computation, k * (rows + width));
        terms.add_rows_times(0, &x, &f, (rows, width, k));
        terms.add_combined_rows(k * rows, &x, &h, (rows, width, k));
    });
    let length = rows.max(width);
    let words = seconds(comm, || {
        terms.clear(&computation, length);
        computation.rectify(&mut terms, 1, (&mut truncated, &mut out), &mut Here);
    });
    let flops = COMPUTING as f64 * 8.0 * (rows * width * k) as f64;
    Ok([(flops, products), (rectify_words(length) as f64, words)])
}

/// Seconds of X·B and of XᵀU.
fn products<T: Real>(comm: &Communicator, block: &Block<T>, k: usize) -> [f64; 2] {
    let ((rows, cols), order) = (block.shape(), block.order());
    let (u, v) = (random::<T>(rows, k, order, 3), random::<T>(cols, k, order, 4));
    let (mut out_u, mut out_v) = (order.zeros::<T>(rows, k), order.zeros::<T>(cols, k));
    [
        seconds(comm, || block.mul(&v.view(), &mut out_u.view_mut())),
        seconds(comm, || block.tmul(&u.view(), &mut out_v.view_mut())),
    ]
}

/// Flops and seconds of a sketched product with d rows of the block, including the draw of these rows and of those of
/// the factor (of which this rank has `own` rows).
fn sampled<T: Real>(comm: &Communicator, block: &Block<T>, d: usize, own: usize, k: usize) -> (f64, f64) {
    let ((rows, cols), order) = (block.shape(), block.order());
    let d = d.clamp(1, rows);
    let factor = random::<T>(own.clamp(1, rows), k, order, 6);
    let (mut b, mut out) = (order.zeros::<T>(d, k), order.zeros::<T>(cols, k));
    let mut sketch = sketch::make::<T>(sketch::SketchKind::Subsample, rows, d, k, order);
    // Different rows in each call, as in a run, so that cached rows do not help.
    let mut t = 0;
    let mut call = || {
        sketch.draw(&sketch::stream(5, true, t));
        sketch.sketch_rows(0, &factor.view(), &mut b.view_mut());
        std::hint::black_box(factor.iter().map(|&x| x * x).sum::<T>());
        sketch.product(block, &b.view(), &mut out.view_mut());
        t += 1;
    };
    let before = flops::total();
    call();
    let flops = (flops::total() - before) as f64;
    (flops, seconds(comm, call))
}

/// Seconds of a kernel that traverses the rows of a factor.
fn row_wise<T: Real>(comm: &Communicator, kernel: Kernel, rows: usize, k: usize, order: Order) -> f64 {
    let mut x = random::<T>(rows, k, order, 7);
    let mut g = Array2::zeros((k, k));
    gram(&random::<T>(2 * k + 10, k, order, 8).view(), &mut g.view_mut());
    let mut r = order.zeros::<T>(rows, k);
    gemm(T::one(), &x.view(), &g.view(), T::zero(), &mut r.view_mut());
    match kernel {
        Kernel::Gram => seconds(comm, || gram(&x.view(), &mut g.view_mut())),
        Kernel::Multiply => {
            let mut tile = Order::ColumnMajor.zeros(1024, k);
            seconds(comm, || multiply(&mut x.view_mut(), &r.view(), &g.view(), Penalty::NONE, &mut tile))
        }
        Kernel::Pivot => {
            // Near the solution, as in a run: the right-hand side alternates slightly.
            let mut solver = Pivoting::new(k);
            let moved = r.mapv(|y| y * T::from_f64(0.99));
            let mut to = false;
            seconds(comm, || {
                to = !to;
                solver.solve(&mut x.view_mut(), &if to { moved.view() } else { r.view() }, &g.view());
            })
        }
        _ => {
            let once = Sweep { mu: T::zero(), passes: 1, penalty: Penalty::NONE };
            seconds(comm, || sweep(&mut x.view_mut(), &r.view(), &g.view(), once))
        }
    }
}

/// Bytes a second that are read and written in a long copy. Collective.
fn copy(comm: &Communicator) -> f64 {
    let from = vec![1u64; 4 << 20];
    let mut to = vec![0u64; from.len()];
    2.0 * size_of_val(from.as_slice()) as f64 / seconds(comm, || to.copy_from_slice(std::hint::black_box(&from)))
}

/// Latency and bandwidth between the first two ranks by ping-pong, equal on all ranks, and whether they were measured;
/// the assumed values for one rank.
fn between(comm: &Communicator) -> (f64, f64, bool) {
    if comm.size() == 1 {
        return (LATENCY, BANDWIDTH, false);
    }
    let one_way = |words: usize, times: usize| {
        let mut buffer = vec![0u64; words];
        let mut best = f64::INFINITY;
        for _ in 0..times {
            let start = Instant::now();
            match comm.rank() {
                0 => {
                    comm.send(MEASURE, 1, &buffer);
                    comm.receive(MEASURE, 1, &mut buffer);
                }
                1 => {
                    comm.receive(MEASURE, 0, &mut buffer);
                    comm.send(MEASURE, 0, &buffer);
                }
                _ => {}
            }
            best = best.min(start.elapsed().as_secs_f64() / 2.0);
        }
        best
    };
    let short = one_way(1, 500);
    let words = 1 << 18;
    let long = one_way(words, 20);
    let found = (short.max(1e-9), (8 * words) as f64 / (long - short).max(1e-9));
    let (latency, bandwidth) = comm.broadcast_value(MEASURE, found);
    (latency, bandwidth, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_bounded_whatever_the_shape() {
        let sizes = [1, 1000, 1 << 20, 1 << 31, 1 << 40, usize::MAX];
        for density in [None, Some(1.0), Some(1e-3), Some(1e-12)] {
            for k in [1, 50, MOST_COMPONENTS] {
                let stored = Stored { density, k };
                for shape in sizes.iter().flat_map(|&m| sizes.map(|n| (m, n))) {
                    let (rows, cols, per_row) = stored.measured(shape);
                    assert!(
                        (1..=shape.0).contains(&rows) && (1..=shape.1).contains(&cols),
                        "{shape:?}: {rows} x {cols}"
                    );
                    assert!(
                        rows.max(cols) * k <= FACTOR && per_row <= cols as f64,
                        "{shape:?}, k = {k}: {rows} x {cols}"
                    );
                    assert!(rows == 1 || rows as f64 * per_row <= DENSE as f64, "{shape:?}: {rows} x {cols}");
                }
            }
        }
        // Small blocks are measured at full size.
        let dense = Stored { density: None, k: 10 };
        assert_eq!(dense.measured((3000, 2000)), (3000, 2000, 2000.0));
        // With fewer columns a row has as many entries.
        let sparse = Stored { density: Some(1e-6), k: 100 };
        let (rows, cols, per_row) = sparse.measured((100_000_000, 100_000_000));
        assert_eq!((rows, cols), (FACTOR / 100, FACTOR / 100));
        assert!((per_row - 100.0).abs() < 1e-9);
    }
}

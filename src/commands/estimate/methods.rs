//! The formula of each method: what one iteration of it does on a number of ranks. Tests hold bytes, messages and flops
//! to what the ledger counts.

use crate::algorithms::Method;
use crate::algorithms::centralized::exact;
use crate::algorithms::centralized::exact::Sizes;
use crate::algorithms::centralized::{dsanls, hals};
use crate::algorithms::options::{ALIGN, EXTRAPOLATION, LOCAL_ITERS, Options, SKETCH, SKETCH_SIZE, UPDATE};
use crate::algorithms::shared::grid::fewest_words;
use crate::commands::estimate::cost::{Cost, Kernel, Message, Pattern, Shape};
use crate::error::{Error, Result};
use crate::sketch;

/// The methods that have a formula.
pub const KNOWN: [&str; 12] = [
    "hals",
    "mu",
    "bpp",
    "dsanls",
    "secure-hals",
    "syn-sd",
    "syn-ssd-u",
    "syn-ssd-v",
    "syn-ssd-uv",
    "fnmf",
    "felb",
    "felb-mu",
];

/// Sizes of the sketched products of a rank, or of all.
struct Sketched {
    /// Extent of the data across the sketched dimension, all products together.
    across: usize,
    /// Rows of factors that are sketched.
    own: usize,
    /// Number of products.
    products: usize,
}

/// What is to be factorised, and how.
pub struct Job {
    pub method: &'static Method,
    pub options: Options,
    pub m: usize,
    pub n: usize,
    /// Stored entries: all of them for dense data.
    pub stored: f64,
    pub sparse: bool,
    pub k: usize,
    /// Parties, where their number is not that of the ranks.
    pub parties: Option<usize>,
    /// Bytes of a number.
    pub word: usize,
}

impl Job {
    /// What an iteration costs on `ranks` ranks.
    ///
    /// # Errors
    /// When there is no formula for the method, or an option does not fit the shape.
    pub fn cost(&self, ranks: usize) -> Result<Cost> {
        let mut cost = self.without_largest_terms(ranks)?;
        cost.add_largest_terms(self.parties(ranks).0);
        Ok(cost)
    }

    fn without_largest_terms(&self, ranks: usize) -> Result<Cost> {
        match self.method.name {
            "hals" | "mu" | "bpp" => Ok(self.exact(ranks)),
            "dsanls" => self.dsanls(ranks),
            "secure-hals" => self.secure_hals(ranks),
            "syn-sd" => self.syn(ranks, false, false),
            "syn-ssd-u" => self.syn(ranks, true, false),
            "syn-ssd-v" => self.syn(ranks, false, true),
            "syn-ssd-uv" => self.syn(ranks, true, true),
            "fnmf" => Ok(self.fnmf(ranks)),
            "felb" | "felb-mu" => Ok(self.felb(ranks)),
            name => Err(Error::input(format!(
                "--algo {name}: there is no formula for what it costs; there is one for {}",
                KNOWN.join(", ")
            ))),
        }
    }

    /// Number of parties on `ranks` ranks, and the most that one rank hosts.
    pub fn parties(&self, ranks: usize) -> (usize, usize) {
        let parties = self.parties.unwrap_or(ranks);
        (parties, parties.div_ceil(ranks))
    }

    /// Bytes of a block with `rows` rows and `stored` entries.
    fn block(&self, rows: usize, stored: f64) -> f64 {
        if self.sparse { stored * (self.word + 4) as f64 + 8.0 * (rows + 1) as f64 } else { stored * self.word as f64 }
    }

    /// The stored entries of a `rows` × `cols` part.
    fn part(&self, rows: usize, cols: usize) -> f64 {
        let share = rows as f64 * cols as f64;
        if self.sparse { self.stored * share / (self.m as f64 * self.n as f64) } else { share }
    }

    fn bytes(&self, words: usize) -> f64 {
        (words * self.word) as f64
    }

    fn extrapolates(&self) -> bool {
        self.method.options.iter().any(|t| t.opt.name == EXTRAPOLATION.name)
            && self.options.word(&EXTRAPOLATION) == "restart"
    }

    fn exact(&self, ranks: usize) -> Cost {
        let Job { m, n, k, word, .. } = *self;
        let (pr, pc) = self.options.grid().filter(|g| g.0 * g.1 == ranks).unwrap_or_else(|| fewest_words(m, n, ranks));
        let (rows, cols) = (m.div_ceil(pr), n.div_ceil(pc));
        let (own_u, own_v) = (rows.div_ceil(pc), cols.div_ceil(pr));
        let stored = self.part(rows, cols);
        let mut cost = Cost { grid: Some((pr, pc)), ..Cost::default() };
        let product = 2.0 * k as f64;
        cost.add(Kernel::Mul, product * stored, product * self.stored);
        cost.add(Kernel::Tmul, product * stored, product * self.stored);
        let square = 2.0 * (k * k) as f64;
        let beyond = self.extrapolates();
        // Beyond U there is a second U, whose Gram matrix is needed too, and the objective.
        let (times, words) = if beyond { (2, exact::WORDS) } else { (1, 0) };
        cost.add(Kernel::Gram, square * (times * own_u + own_v) as f64, square * (times * m + n) as f64);
        let (kernel, [of_u, of_v]) = match self.method.name {
            "hals" => (Kernel::Sweep, hals::sweeps(&self.options, &Sizes { m, n, entries: self.stored, k })),
            "mu" => (Kernel::Multiply, [1, 1]),
            _ => (Kernel::Pivot, [1, 1]),
        };
        cost.add(kernel, square * (of_u * own_u + of_v * own_v) as f64, square * (of_u * m + of_v * n) as f64);
        if beyond {
            cost.about = Some("an iteration after which the objective has risen sums the Gram matrix of U once more");
        }
        for (gram, gather, sum, groups, size, length, words) in
            [("Gram of V", "gather V", "sum M'U", pc, pr, n, 0), ("Gram of U", "gather U", "sum M V", pr, pc, m, words)]
        {
            cost.messages.push(Message::all_reduce(gram, ranks, k * k + words, word, 1));
            let out = |kind, pattern| Message::shared_out(kind, pattern, (groups, size), length * k, word);
            cost.messages.extend(out(gather, Pattern::AllGather));
            cost.messages.extend(out(sum, Pattern::ReduceScatter));
        }
        cost.data = self.block(rows, stored);
        cost.shape =
            Shape { block: (rows, cols), updated: own_u.max(own_v), gram: own_u.max(own_v), ..Shape::default() };
        // Rows owned and their right-hand sides; blocks gathered, once more in the other memory order if dense.
        let copies = if self.sparse { 1 } else { 2 };
        let whole = usize::from(pc > 1) * rows + usize::from(pr > 1) * cols;
        let owned = if beyond { 3 } else { 2 };
        cost.factors = self.bytes((owned * (own_u + own_v) + copies * whole + 3 * k) * k);
        cost
    }

    /// Flops of `times` sketched products over a dimension of `dim`, sketched to d.
    fn sketched(
        &self,
        cost: &mut Cost,
        kernel: Kernel,
        (dim, d): (usize, usize),
        times: f64,
        [rank, all]: [Sketched; 2],
    ) {
        let each = rank.across / rank.products.max(1);
        cost.shape.sampled[usize::from(kernel == Kernel::SampledForV)] = (dim, each, d);
        let k = self.k as f64;
        let mut add = |kernel, flops: &dyn Fn(&Sketched) -> f64| {
            cost.add(kernel, times * flops(&rank), times * flops(&all));
        };
        let exact = |x: &Sketched| 2.0 * self.part(dim, x.across) * k;
        match (self.options.word(&SKETCH), self.sparse) {
            ("subsample", _) => add(kernel, &|x| 2.0 * self.part(d, x.across) * k),
            ("count", false) => add(Kernel::Other, &|x| 2.0 * (d * x.across) as f64 * k),
            ("count" | "srht", _) => add(Kernel::Other, &exact),
            _ => {
                let mixed = |x: &Sketched| 2.0 * ((x.own + x.products * dim) * d) as f64 * k;
                add(Kernel::Other, &|x| exact(x) + mixed(x));
            }
        }
    }

    fn dsanls(&self, ranks: usize) -> Result<Cost> {
        let Job { m, n, k, word, .. } = *self;
        let (d_u, d_v) = dsanls::sketch_sizes(self.options.sizes(&SKETCH_SIZE), (m, n), k)?;
        let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
        let mut cost = Cost::default();
        let part = |across, own, products| Sketched { across, own, products };
        self.sketched(&mut cost, Kernel::SampledForU, (n, d_u), 1.0, [part(rows, cols, 1), part(m, n, ranks)]);
        self.sketched(&mut cost, Kernel::SampledForV, (m, d_v), 1.0, [part(cols, rows, 1), part(n, m, ranks)]);
        let square = 2.0 * (k * k) as f64;
        let grams = square * (d_u + d_v) as f64;
        cost.add(Kernel::Gram, grams, grams * ranks as f64);
        cost.add(Kernel::Sweep, square * (rows + cols) as f64, square * (m + n) as f64);
        cost.messages.push(Message::all_reduce("sketched V", ranks, d_u * k + 1, word, 1));
        cost.messages.push(Message::all_reduce("sketched U", ranks, d_v * k + 1, word, 1));
        cost.data = self.block(n, self.part(rows, n)) + self.block(m, self.part(m, cols));
        (cost.shape.updated, cost.shape.gram) = (rows.max(cols), d_u.max(d_v));
        cost.factors = self.bytes((2 * (rows + cols) + 2 * (d_u + d_v) + 2 * n) * k);
        if self.sparse && self.options.word(&SKETCH) == "subsample" {
            cost.about = Some("the flops of a sampled product depend on which rows are drawn: their mean is told");
        }
        Ok(cost)
    }

    fn secure_hals(&self, ranks: usize) -> Result<Cost> {
        let Job { m, n, k, word, .. } = *self;
        let (parties, hosted) = self.parties(ranks);
        let cols = n.div_ceil(parties) * hosted;
        let mut cost = Cost::default();
        let (product, square) = (2.0 * k as f64, 2.0 * (k * k) as f64);
        let stored = self.part(m, cols);
        cost.add(Kernel::Mul, product * stored, product * self.stored);
        cost.add(Kernel::Tmul, product * stored, product * self.stored);
        let grams = if self.extrapolates() { 2 } else { 1 };
        cost.add(Kernel::Gram, square * (grams * m + cols) as f64, square * (grams * m * ranks + n) as f64);
        let (kernel, passes) = match self.options.word(&UPDATE) {
            "bpp" => (Kernel::Pivot, 1.0),
            _ => (Kernel::Sweep, self.options.count(&LOCAL_ITERS) as f64),
        };
        // Every rank updates the whole U.
        cost.add(kernel, passes * square * (m + cols) as f64, passes * square * (m * ranks + n) as f64);
        cost.messages.push(Message::party_sum("sum of M_r V_r", (ranks, parties), m * k, word, 1));
        cost.messages.push(Message::party_sum("sum of V_r'V_r", (ranks, parties), k * k, word, 1));
        cost.data = self.block(m * hosted, stored);
        cost.shape = Shape { block: (m, cols / hosted), updated: m, gram: m, ..Shape::default() };
        cost.factors = self.bytes((2 * cols + (2 + hosted) * m) * k) + (16 * m * k) as f64;
        Ok(cost)
    }

    fn syn(&self, ranks: usize, sketch_u: bool, sketch_v: bool) -> Result<Cost> {
        let Job { m, n, k, word, .. } = *self;
        let (parties, hosted) = self.parties(ranks);
        let own = n.div_ceil(parties);
        let cols = own * hosted;
        let steps = self.options.count(&LOCAL_ITERS);
        let sizes = if sketch_u || sketch_v { self.options.sizes(&SKETCH_SIZE) } else { None };
        let d_v = sizes.map_or(sketch::default_size(m, k), |(_, v)| v.of(m));
        if d_v > m {
            return Err(Error::input(format!("--sketch-size: {d_v} rows for V's update, but the matrix has {m}")));
        }
        let mut cost = Cost::default();
        let (product, square, t) = (2.0 * k as f64, 2.0 * (k * k) as f64, steps as f64);
        let stored = self.part(m, cols);
        let part = |across, own, products| Sketched { across, own, products };
        // V's steps: against the whole U, or against the average of its sketches.
        if sketch_u {
            let all = part(n, m * parties, parties);
            self.sketched(&mut cost, Kernel::SampledForV, (m, d_v), t, [part(cols, m * hosted, hosted), all]);
            cost.add(Kernel::Gram, t * square * d_v as f64, t * square * (d_v * ranks) as f64);
            cost.messages.push(Message::party_sum(
                "average of sketched U_r",
                (ranks, parties),
                d_v * k,
                word,
                steps as u64,
            ));
        } else {
            cost.add(Kernel::Tmul, t * product * stored, t * product * self.stored);
            cost.add(Kernel::Gram, t * square * (m * hosted) as f64, t * square * (m * parties) as f64);
        }
        // U's steps: on the party's own columns, all of them or a sketch.
        if sketch_v {
            let d_u = match sizes {
                Some((u, _)) => u.of(own).min(own),
                None => sketch::default_size(own, k).min(own),
            };
            let all = part(m * parties, n, parties);
            self.sketched(&mut cost, Kernel::SampledForU, (own, d_u), t, [part(m * hosted, cols, hosted), all]);
            cost.add(Kernel::Gram, t * square * (d_u * hosted) as f64, t * square * (d_u * parties) as f64);
            if n % parties != 0 || self.sparse {
                cost.about = Some("the flops of sketches depend on which rows are drawn and on each party's columns");
            }
        } else {
            cost.add(Kernel::Mul, t * product * stored, t * product * self.stored);
            cost.add(Kernel::Gram, t * square * cols as f64, t * square * n as f64);
        }
        if sketch_u && self.sparse {
            cost.about = Some("the flops of sketches depend on which rows are drawn and on each party's columns");
        }
        let updates = (cols + m * hosted) as f64;
        cost.add(Kernel::Sweep, t * square * updates, t * square * (n + m * parties) as f64);
        cost.messages.push(Message::party_sum("average of U_r", (ranks, parties), m * k, word, 1));
        cost.shape = Shape { block: (m, own), updated: m, gram: if sketch_u { d_v } else { m }, ..cost.shape };
        // U's sketched steps want the columns as rows: a second copy.
        cost.data = self.block(m * hosted, stored) * if sketch_v { 2.0 } else { 1.0 };
        cost.factors = self.bytes((2 * cols + (2 + hosted) * m) * k) + (16 * m * k) as f64;
        Ok(cost)
    }

    fn fnmf(&self, ranks: usize) -> Cost {
        let Job { m, n, k, word, .. } = *self;
        let (parties, hosted) = self.parties(ranks);
        let rows = m.div_ceil(parties) * hosted;
        let stored = self.part(rows, n);
        let t = self.options.count(&LOCAL_ITERS) as f64;
        let mut cost = Cost::default();
        let (product, square) = (2.0 * t * k as f64, 2.0 * t * (k * k) as f64);
        cost.add(Kernel::Mul, product * stored, product * self.stored);
        cost.add(Kernel::Tmul, product * stored, product * self.stored);
        let (own, all) = (square * (rows + n * hosted) as f64, square * (m + n * parties) as f64);
        cost.add(Kernel::Gram, own, all);
        cost.add(Kernel::Sweep, own, all);
        // Aligning compares k × k pairs of components over n entries, in every local step, in two turns at the server and
        // once after them; what is not one-to-one is applied by a product as large.
        let (compared, applied) = (t + 3.0, if self.options.word(&ALIGN).starts_with("lap") { 0.0 } else { t + 2.0 });
        let aligning = 2.0 * (k * k * n) as f64 * (compared + applied);
        cost.add(Kernel::Other, aligning * hosted as f64, aligning * parties as f64);
        for kind in ["V_j to the server", "mean V to the party"] {
            cost.messages.push(Message {
                kind,
                pattern: Pattern::Local,
                group: 1,
                times: 1,
                vector: 0.0,
                mpi_bytes: 0,
                messages: 0,
                party_bytes: (parties * n * k * word) as u64,
            });
        }
        let turn = Message::party_sum("inside the server", (ranks, parties), n * k + k + 1, word, 2);
        cost.messages.push(Message { party_bytes: 0, ..turn });
        cost.about = Some(
            "bytes of parties are exact; MPI bytes and messages are those of two turns of the barycenter, and how many it \
             takes depends on the data; the flops of aligning are about right",
        );
        cost.data = self.block(rows, stored);
        let own = rows / hosted;
        cost.shape = Shape { block: (own, n), updated: own.max(n), gram: own.max(n), ..Shape::default() };
        cost.factors = self.bytes((3 * rows + (4 * hosted + 6) * n) * k) + (16 * n * k) as f64;
        cost
    }

    fn felb(&self, ranks: usize) -> Cost {
        let Job { m, n, k, word, .. } = *self;
        let (parties, hosted) = self.parties(ranks);
        let rows = m.div_ceil(parties) * hosted;
        let stored = self.part(rows, n);
        let t = self.options.count(&LOCAL_ITERS) as f64;
        let mut cost = Cost::default();
        let (products, square) = (4.0 * t * k as f64, 4.0 * t * (k * k) as f64);
        let own = products * stored + square * (rows + n * hosted) as f64;
        cost.add(Kernel::Other, own, products * self.stored + square * (m + n * parties) as f64);
        cost.messages.push(Message::party_sum("sum V_i", (ranks, parties), n * k, word, 1));
        cost.about = Some("the flops are those of the printed formulas; no kernel counts them");
        cost.data = self.block(rows, stored);
        cost.factors = self.bytes((2 * rows + (hosted + 3) * n) * k) + (16 * n * k) as f64;
        cost
    }
}

//! The cost of an iteration on a given number of ranks: work by kernel, messages by kind, memory. Each method defines
//! its formula next to its code; tests compare bytes, messages and flops with the ledger.

use fednmf_comm::LARGEST;
use fednmf_data::{GridTraffic, SideTraffic};
use fednmf_linalg::sketch;
use fednmf_privacy::sharing::COMPUTING;

/// A kernel whose rate is measured. The names are those of the rates file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// X·B of a whole block.
    Mul,
    /// XᵀU of a whole block.
    Tmul,
    /// (X_S)ᵀB for sampled rows of a block, in U's update and in V's, and drawing them.
    SampledForU,
    SampledForV,
    /// FᵀF of a factor.
    Gram,
    /// Coordinate descent or a gradient step on the rows of a factor.
    Sweep,
    /// The multiplicative step.
    Multiply,
    /// Block principal pivoting; its unit is a sweep's flops, since its own depend on the data.
    Pivot,
    /// Products of words modulo 2⁶⁴ on secret shares.
    Ring,
    /// Random streams and comparisons of computing on shares; its unit is a word of a message.
    Shares,
    /// Loops that are not measured: their flops are reported, their time is not.
    Other,
}

impl Kernel {
    /// The name used in the rates file and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Mul => "mul",
            Kernel::Tmul => "tmul",
            Kernel::SampledForU => "sampled for U",
            Kernel::SampledForV => "sampled for V",
            Kernel::Gram => "gram",
            Kernel::Sweep => "sweep",
            Kernel::Multiply => "multiply",
            Kernel::Pivot => "pivot",
            Kernel::Ring => "ring",
            Kernel::Shares => "shares",
            Kernel::Other => "other",
        }
    }
}

/// Flops of one kernel in an iteration.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub kernel: Kernel,
    /// Flops of the busiest rank.
    pub rank: f64,
    /// Flops of all ranks.
    pub total: f64,
}

/// A factor whose rows the ranks of a grid share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    U,
    V,
}

/// The communication pattern of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    AllReduce,
    AllGather,
    ReduceScatter,
    /// An exact sum over parties: two words for each number.
    PartySum,
    /// Rows of a factor, from their owners to the ranks whose sparse blocks reference them.
    TouchedRows(Side),
    /// Sums of such rows, back to their owners.
    TouchedSums(Side),
    /// Rounds between the computing parties on these ranks, one after another.
    Rounds([usize; COMPUTING]),
    /// Between a party and its own rank: nothing is sent.
    Local,
}

/// One kind of message of an iteration.
#[derive(Debug, Clone)]
pub struct Message {
    /// The message kind, as in the ledger.
    pub kind: &'static str,
    pub pattern: Pattern,
    /// Number of ranks in a group, and their distance: rank r is followed by rank r + `stride`.
    pub group: usize,
    pub stride: usize,
    /// Number of times per iteration.
    pub times: u64,
    /// Bytes of the vector that is summed or gathered; for referenced rows, those of the busiest rank, and for rounds as well, those
    /// of all rounds of an iteration.
    pub vector: f64,
    /// Number of ranks with which the busiest rank exchanges referenced rows.
    pub partners: u64,
    /// Sent and received by all ranks in an iteration: bytes and MPI calls, and the bytes of all parties.
    pub mpi_bytes: u64,
    pub messages: u64,
    pub party_bytes: u64,
}

/// Maximum number of elements of one MPI call.
pub const CHUNK: usize = 1 << 30;

impl Message {
    /// `times` all-reduces of `words` words of `word` bytes over `ranks` ranks.
    pub fn all_reduce(kind: &'static str, ranks: usize, words: usize, word: usize, times: u64) -> Message {
        let bytes = times * (2 * words * word * ranks) as u64;
        let alone = ranks == 1;
        Message {
            kind,
            pattern: Pattern::AllReduce,
            group: ranks,
            stride: 1,
            times,
            vector: (words * word) as f64,
            partners: 0,
            mpi_bytes: if alone { 0 } else { bytes },
            messages: if alone { 0 } else { times * (ranks * words.div_ceil(CHUNK)) as u64 },
            party_bytes: bytes,
        }
    }

    /// An all-gather or reduce-scatter in each of `groups` groups of `size` ranks; `words` words in all groups' vectors.
    pub fn shared_out(
        kind: &'static str,
        pattern: Pattern,
        (groups, size): (usize, usize),
        words: usize,
        word: usize,
    ) -> Option<Message> {
        if size == 1 {
            return None;
        }
        // Each rank contributes its part and receives the whole vector of its group, or vice versa.
        let bytes = ((size + 1) * words * word) as u64;
        Some(Message {
            kind,
            pattern,
            group: size,
            stride: 1,
            times: 1,
            vector: (words * word) as f64 / groups as f64,
            partners: 0,
            mpi_bytes: bytes,
            messages: (groups * size * words.div_ceil(groups).div_ceil(CHUNK)) as u64,
            party_bytes: bytes,
        })
    }

    /// Bytes that ranks send to each other in an iteration, each counted once, by the algorithms that send the fewest.
    pub fn between_ranks(&self) -> f64 {
        let (bytes, ranks) = (self.mpi_bytes as f64, self.group as f64);
        match self.pattern {
            Pattern::AllReduce | Pattern::PartySum => bytes * (ranks - 1.0) / ranks,
            // A rank's own part is counted beside the whole vector.
            Pattern::AllGather | Pattern::ReduceScatter => bytes * (ranks - 1.0) / (ranks + 1.0),
            // Counted where they are sent and where they are received.
            Pattern::TouchedRows(_) | Pattern::TouchedSums(_) | Pattern::Rounds(_) => bytes / 2.0,
            Pattern::Local => 0.0,
        }
    }

    /// A message of rows of `row` bytes that sparse blocks reference, point-to-point.
    pub fn touched(kind: &'static str, pattern: Pattern, side: &SideTraffic, row: usize) -> Message {
        // Each row and each message is counted where it is sent and where it is received.
        let bytes = 2 * side.all_touched * row as u64;
        Message {
            kind,
            pattern,
            group: side.group_size,
            stride: 1,
            times: 1,
            vector: (side.touched * row as u64) as f64,
            partners: side.messages,
            mpi_bytes: bytes,
            messages: 2 * side.all_messages,
            party_bytes: bytes,
        }
    }

    /// `times` exact sums of one share of `words` words from each of `parties` parties.
    pub fn party_sum(
        kind: &'static str,
        (ranks, parties): (usize, usize),
        words: usize,
        word: usize,
        times: u64,
    ) -> Message {
        let alone = ranks == 1;
        Message {
            kind,
            pattern: Pattern::PartySum,
            group: ranks,
            stride: 1,
            times,
            vector: (2 * 8 * words) as f64,
            partners: 0,
            mpi_bytes: if alone { 0 } else { times * (ranks * 2 * 8 * 2 * words) as u64 },
            messages: if alone { 0 } else { times * (ranks * (2 * words).div_ceil(CHUNK)) as u64 },
            party_bytes: times * (2 * parties * words * word) as u64,
        }
    }

    /// `times` masked sums of one share of `words` 64-bit words from each of `parties` parties.
    pub fn masked_sum(kind: &'static str, (ranks, parties): (usize, usize), words: usize, times: u64) -> Message {
        let party_bytes = times * (2 * 8 * parties * words) as u64;
        Message { party_bytes, ..Message::all_reduce(kind, ranks, words, 8, times) }
    }

    /// `times` all-gathers of `bytes` bytes in total over all parties.
    pub fn gathered(kind: &'static str, (ranks, parties): (usize, usize), bytes: usize, times: u64) -> Message {
        // Each rank or party receives what all send.
        let all = |receivers: usize| times * ((receivers + 1) * bytes) as u64;
        let alone = ranks == 1;
        Message {
            kind,
            pattern: Pattern::AllGather,
            group: ranks,
            stride: 1,
            times,
            vector: bytes as f64,
            partners: 0,
            mpi_bytes: if alone { 0 } else { all(ranks) },
            messages: if alone { 0 } else { times * (ranks * bytes.div_ceil(CHUNK)) as u64 },
            party_bytes: all(parties),
        }
    }
}

/// Sizes on one rank, on which the kernels' rates are measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// Rows and columns of the block that is multiplied whole.
    pub block: (usize, usize),
    /// Rows, columns and number of sampled rows of the blocks of U's and of V's update.
    pub sampled: [(usize, usize, usize); 2],
    /// Rows of a factor that is updated, and of one whose Gram matrix is computed.
    pub updated: usize,
    pub gram: usize,
}

/// An iteration of a method on a number of ranks.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    pub work: Vec<Work>,
    pub messages: Vec<Message>,
    /// Bytes of the data on the rank that holds the most.
    pub data: f64,
    /// Bytes that a rank holds while the data are loaded, if that is more than the data.
    pub loading: f64,
    /// Bytes of the factors and their work arrays.
    pub factors: f64,
    /// Bytes that the computation of the start needs before the factors are allocated.
    pub start: f64,
    /// Sizes for which the kernel rates are measured.
    pub shape: Shape,
    /// The grid of ranks; `None` for methods without one.
    pub grid: Option<(usize, usize)>,
    /// Caveats: terms that are estimates.
    pub caveats: Vec<String>,
}

impl Cost {
    /// Adds a caveat, once.
    pub fn caveat(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.caveats.contains(&text) {
            self.caveats.push(text);
        }
    }

    /// All caveats in one text; `None` if there are none.
    pub fn about(&self) -> Option<String> {
        (!self.caveats.is_empty()).then(|| self.caveats.join("; "))
    }

    /// Adds work: flops of the busiest rank, and of all ranks.
    pub fn add(&mut self, kernel: Kernel, rank: f64, total: f64) {
        self.work.push(Work { kernel, rank, total });
    }

    /// Adds a message. Messages of one kind are merged.
    pub fn add_message(&mut self, message: Message) {
        match self.messages.iter_mut().find(|known| known.kind == message.kind) {
            Some(known) => {
                known.times += message.times;
                known.mpi_bytes += message.mpi_bytes;
                known.messages += message.messages;
                known.party_bytes += message.party_bytes;
            }
            None => self.messages.push(message),
        }
    }

    /// Adds the exchange of largest terms that precedes exact sums over parties: one number for each party and sum.
    pub fn add_largest_terms(&mut self, parties: usize) {
        let sums: Vec<&Message> = self.messages.iter().filter(|m| m.pattern == Pattern::PartySum).collect();
        let Some(ranks) = sums.first().map(|m| m.group) else { return };
        let times = |of: &dyn Fn(&Message) -> bool| sums.iter().filter(|m| of(m)).map(|m| m.times).sum::<u64>();
        let (all, of_parties) = (times(&|_| true), times(&|m| m.party_bytes > 0));
        let mut message = Message::all_reduce(LARGEST.kind, ranks, 1, 8, all);
        message.party_bytes = of_parties * (2 * 8 * parties) as u64;
        self.messages.push(message);
    }

    /// Peak memory of a rank in bytes, without the program itself. The memory of loading is freed before the start, and that of
    /// the start before the iterations begin.
    pub fn peak(&self) -> f64 {
        self.loading.max(self.data + self.factors.max(self.start))
    }

    /// Bytes and messages of all ranks, and bytes of all parties, in an iteration.
    pub fn traffic(&self) -> [u64; 3] {
        let sum = |f: fn(&Message) -> u64| self.messages.iter().map(f).sum();
        [sum(|m| m.mpi_bytes), sum(|m| m.messages), sum(|m| m.party_bytes)]
    }

    /// Bytes that ranks send to each other in an iteration, as [`Message::between_ranks`].
    pub fn between_ranks(&self) -> f64 {
        self.messages.iter().map(Message::between_ranks).sum()
    }
}

/// The factorisation whose cost is estimated.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub m: usize,
    pub n: usize,
    /// Number of stored entries: m·n for dense data.
    pub stored: f64,
    pub sparse: bool,
    pub k: usize,
    /// Number of parties, if it differs from the number of ranks.
    pub parties: Option<usize>,
    /// Bytes of a floating-point number: 4 or 8.
    pub word: usize,
    /// Traffic of the rank grid, if it is known from the positions of the nonzeros.
    pub traffic: Option<GridTraffic>,
}

/// Sizes of the sketched products of one rank, or of all ranks.
pub struct Sketched {
    /// Extent of the data across the sketched dimension, all products together.
    pub across: usize,
    /// Rows of factors that are sketched.
    pub own: usize,
    /// Number of products.
    pub products: usize,
}

impl Workload {
    /// Number of parties on `ranks` ranks, and the maximum number hosted by one rank.
    pub fn parties(&self, ranks: usize) -> (usize, usize) {
        let parties = self.parties.unwrap_or(ranks);
        (parties, parties.div_ceil(ranks))
    }

    /// Bytes of a block with `rows` rows and `stored` entries.
    pub fn block(&self, rows: usize, stored: f64) -> f64 {
        if self.sparse { stored * (self.word + 4) as f64 + 8.0 * (rows + 1) as f64 } else { stored * self.word as f64 }
    }

    /// The stored entries of a `rows` × `cols` part.
    pub fn part(&self, rows: usize, cols: usize) -> f64 {
        let share = rows as f64 * cols as f64;
        if self.sparse { self.stored * share / (self.m as f64 * self.n as f64) } else { share }
    }

    /// Bytes of `words` numbers.
    pub fn bytes(&self, words: usize) -> f64 {
        (words * self.word) as f64
    }

    /// Adds the flops of `times` sketched products that reduce a dimension of size `dim` to d.
    pub fn sketched(
        &self,
        cost: &mut Cost,
        kind: sketch::SketchKind,
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
        match (kind, self.sparse) {
            (sketch::SketchKind::Subsample, _) => add(kernel, &|x| 2.0 * self.part(d, x.across) * k),
            (sketch::SketchKind::Count, false) => add(Kernel::Other, &|x| 2.0 * (d * x.across) as f64 * k),
            (sketch::SketchKind::Count | sketch::SketchKind::Srht, _) => add(Kernel::Other, &exact),
            _ => {
                let mixed = |x: &Sketched| 2.0 * ((x.own + x.products * dim) * d) as f64 * k;
                add(Kernel::Other, &|x| exact(x) + mixed(x));
            }
        }
    }
}

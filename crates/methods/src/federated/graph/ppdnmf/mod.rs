//! PPDNMF: agents on a graph agree on a left factor by exchanging ciphertexts with their neighbours only (Lari,
//! Arablouei, Werner: Privacy-Preserving Distributed Nonnegative Matrix Factorization).
//!
//! Agent i holds the columns Z_i of M (m × n) and alternately estimates X_i (m × k) and Y_i (k × |columns|) with Z_i ≈ X_i
//! Y_i, each by ADMM with warm starts. The estimation of X_i is coupled to that of the neighbours (see [`exchange`]); the
//! estimation of Y_i is local. U is the mean of the X_i, whose disagreement is measured. Party i's rows of V are refitted
//! to this U. The party's file also contains X_i and Y_i.
//!
//! Differences from the printed paper: the U step follows the derivation (`local::Agent::step_x`); Q's step has the missing
//! ½; Σ_j ρ_ij, which an agent must not know, is replaced by its public bound d_i g_max²; all agents start at one common X
//! from the public seed, because X = 1, Y = 0 is a saddle point with equal columns.
//!
//! An agent that has converged (`--admm-tol`) raises a flag with the number of the ADMM iteration. Flags spread from
//! neighbour to neighbour, and the smallest wins. `diameter` iterations after the first flag all agents know it, and
//! all stop: at the same iteration, without a collective call.

#[cfg(feature = "paillier")]
mod encrypted;
#[cfg(not(feature = "paillier"))]
#[path = "encrypted_absent.rs"]
mod encrypted;
pub mod exchange;
mod fixed_point;
pub(super) mod local;
pub(super) mod measure;
mod topology;

use std::cell::{OnceCell, RefCell};

use ndarray::Array2;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{KEYS, PartySum, masked};
use fednmf_comm::{CONTROL, ControlTag, Interrupt, Parties, PartyCommunicator};
use fednmf_data::Loaded;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::Pivoting;
use fednmf_linalg::{Block, Contiguous, Real};
use fednmf_privacy::Public;

use self::encrypted::KeyStore;
use self::exchange::{ExchangeParams, Network, Weights};
use self::fixed_point::FixedPointScale;
use self::local::{Agent, InnerAdmmParams, Penalties};
use self::topology::{Graph, Topology};
use crate::decision::Decision;
use crate::description::{Description, DifferentialPrivacy, LARGEST_TERM, MessageSpec, Partition, Unit};
use crate::method::Method;
use crate::metrics::{Measure, not_negative};
use crate::parameters::{Auto, Parsed, SecretSource, auto, count, number};
use crate::shared::init;
use crate::shared::sizes::{MODERATE, check_scale};
use crate::{Algorithm, Forecast, Measures, Problem};

fednmf_base::words! {
    /// Length of a Paillier modulus in bits.
    pub enum KeyBits {
        /// As in the paper; with --insecure-key only
        Bits128 = "128",
        Bits2048 = "2048",
        Bits3072 = "3072",
        Bits4096 = "4096",
    }
}

impl KeyBits {
    fn bits(self) -> u32 {
        match self {
            KeyBits::Bits128 => 128,
            KeyBits::Bits2048 => 2048,
            KeyBits::Bits3072 => 3072,
            KeyBits::Bits4096 => 4096,
        }
    }
}

fednmf_base::parameters! {
    /// Parameters of PPDNMF.
    pub struct Ppdnmf {
        /// Graph of the parties, who exchange with their neighbours only: ring, grid, complete, random:degree=D (connected,
        /// D neighbours on average), or a file with one edge (two parties) per line
        pub topology: Topology = Topology::Random { degree: 3.0 }, "GRAPH";
        group inner: InnerAdmmParams;
        /// Largest weight g of a party, public. The penalty of an edge is the product of its parties' g, each known to one
        /// of them only. auto: the square root of --mu-penalty
        pub g_max: Auto<f64> = Auto::Auto, "X", auto(number(0.0, f64::INFINITY));
        /// Resolution of g, which is a multiple of 1/N
        pub g_scale: usize = 1_048_576, "N", count(1);
        /// Resolution of what neighbours exchange: multiples of 1/N
        pub quantization: usize = 1_000_000, "N", count(1);
        /// Largest entry of X that can be exchanged; a larger range leaves less room in a ciphertext
        pub x_range: f64 = 1000.0, "X", number(1e-9, 1e12);
        /// Length of each party's Paillier modulus
        #[without(plain: "nothing is encrypted with --plain; leave out one of them")]
        pub key_bits: KeyBits = KeyBits::Bits2048, "BITS";
        /// Allow --key-bits 128, which a laptop breaks in seconds; to reproduce the paper's experiments
        #[needs(key_bits: "allows --key-bits 128; add it")]
        pub insecure_key: bool;
        /// Compute the same numbers without encryption: neighbours see each other's X. For speed and for tests
        pub plain: bool;
        /// One g for a whole message, as in the paper. This leaks: the greatest common divisor of what a party decrypts is
        /// its neighbour's g, which reveals the neighbour's X
        pub scalar_g: bool;
        /// Threads of each rank for encryption
        #[without(plain: "nothing is encrypted with --plain; leave out one of them")]
        pub crypto_threads: usize = 1, "N", crypto_threads;
        /// Where secrets (keys, masks, noise) come from: the operating system, or a number that anybody can guess; for
        /// tests only
        pub secret_seed: SecretSource = SecretSource::OperatingSystem, "N|os";
    }
}

fn crypto_threads(text: &str) -> Parsed<usize> {
    let parsed = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
    parsed.ok_or_else(|| "must be a whole number from 1 to 1024".into())
}

impl Method for Ppdnmf {
    const DESCRIPTION: &'static Description = &Description {
        name: "ppdnmf",
        summary: "agents on a graph agree on the left factor; neighbours exchange ciphertexts only",
        paper: "Lari, Arablouei, Werner: Privacy-Preserving Distributed Nonnegative Matrix Factorization",
        partition: Partition::PartyColumns,
        unit: Unit::Round,
        allows_negative: true,
        measure: Measure::Nmse,
        dp: DifferentialPrivacy::Refused(
            "neighbours exchange until they agree: thousands of releases, more than a budget can cover",
        ),
        limits: Some([
            "An only neighbour sees differences times an unknown g, several their sum; --scalar-g, as printed, reveals g.",
            "Each X_i is masked in the sums of evaluation and output; every party learns their mean, the common result X.",
        ]),
        messages: &[
            MessageSpec::new(
                exchange::FORWARD,
                "m x k ciphertexts to each neighbour (packed with --scalar-g)",
                "each ADMM iteration, unless --plain",
            ),
            MessageSpec::new(
                exchange::ANSWER,
                "m x k numbers, packed, to each neighbour",
                "each ADMM iteration, unless --plain",
            ),
            MessageSpec::new(exchange::PLAIN_FORWARD, "m x k to each neighbour", "each ADMM iteration with --plain"),
            MessageSpec::new(exchange::PLAIN_ANSWER, "m x k to each neighbour", "each ADMM iteration with --plain"),
            MessageSpec::new(exchange::FLAG, "1 to each neighbour", "each ADMM iteration with --admm-tol")
                .always_shown()
                .to_one(),
            MessageSpec::control(exchange::PUBLIC_KEY, "n to each neighbour", "once, unless --plain").to_one(),
            MessageSpec::new(
                masked(measure::SUM_X),
                "m x k",
                "each evaluation, and for the output's U, unless --plain",
            )
            .also_at_the_end(),
            MessageSpec::new(measure::SUM_X, "m x k", "as often, with --plain").also_at_the_end(),
            MessageSpec::new(masked(measure::RESIDUALS), "2", "each evaluation, unless --plain"),
            MessageSpec::new(measure::RESIDUALS, "2", "each evaluation, with --plain"),
            MessageSpec::control(KEYS, "32 bytes", "twice, unless --plain"),
            MessageSpec::new(measure::DISAGREEMENT, "2", "each evaluation").always_shown(),
            LARGEST_TERM,
        ],
        ..Description::USUAL
    };

    /// Always true: masked sums are not optional here.
    fn masks_sums(&self) -> bool {
        !self.plain
    }

    fn check(&self) -> Result<()> {
        if !cfg!(feature = "paillier") && !self.plain {
            return Err(Error::input(
                "ppdnmf: built without encryption (feature paillier); --plain computes the same numbers without it",
            ));
        }
        if self.key_bits == KeyBits::Bits128 && !self.insecure_key && !self.plain {
            return Err(Error::input(
                "--key-bits 128: such a key is broken in seconds; add --insecure-key to repeat the paper's experiments",
            ));
        }
        Ok(())
    }

    fn sends(&self, kind: &str) -> bool {
        kind != exchange::FLAG.kind || self.inner.admm_tol > 0.0
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

/// Headroom of sums for evaluation and output, in bits.
const HEADROOM: usize = 16;

const LISTING: ControlTag = ControlTag::new("edges of the graph");

/// The result on which the agents agree.
struct Common<T> {
    /// The mean of all X_i, m × k.
    u: Array2<T>,
    /// For each hosted agent the rows of V that fit its data best with this U.
    v: Vec<Array2<T>>,
}

struct PpdnmfRun<T: Real> {
    comm: PartyCommunicator,
    parties: Parties,
    agents: Vec<Agent<T>>,
    network: Network,
    /// Sums for evaluation and output: masked, unless the run is `--plain`.
    party_sum: RefCell<PartySum>,
    /// Expected largest entry of X.
    largest: f64,
    /// For each hosted agent, the first ADMM iteration at which a flag was raised, as far as the agent knows.
    flags: Vec<u64>,
    admm_iters: usize,
    tolerance: f64,
    graph: Graph,
    shape: (usize, usize),
    k: usize,
    norm2: f64,
    /// The result of the current iteration, computed on demand.
    common: OnceCell<Common<T>>,
    decisions: Vec<Decision>,
    iteration: usize,
}

/// The penalties. `auto` gives μ and η of the paper's two experiments in units of the data: with s = 4 mean(M)/k, the
/// square of a factor's typical entry, μ = s (n/N)/20 and η = 0.3 s m. The penalty of an edge equals the one between X and
/// its copy, g² = μ. The paper's value is a hundredth of it, which leaves parties with few columns or many components far
/// apart.
pub(super) fn penalties<T: Real>(
    data: &Loaded<T>,
    k: usize,
    parties: Parties,
    args: &InnerAdmmParams,
    g_max: Option<f64>,
) -> Penalties {
    let (m, n) = (data.header.rows, data.header.cols);
    let s = init::scale(data.statistics.sum, (m, n), k).powi(2);
    let columns = n as f64 / parties.count as f64;
    let mu = args.mu_penalty.given().unwrap_or(s * columns / 20.0);
    Penalties { mu, eta: args.eta.given().unwrap_or(0.3 * s * m as f64), g_max: g_max.unwrap_or(mu.sqrt()) }
}

/// The common start X_0: uniform up to three times the size at which X and Y are equally large (up to 1 in the paper's
/// first experiment). A larger X means a smaller Y, for which the penalties weigh more.
pub(super) fn common_start<T: Real>(data: &Loaded<T>, k: usize, seed: u64, out: ndarray::ArrayViewMut2<'_, T>) {
    let (m, n) = (data.header.rows, data.header.cols);
    init::u(seed, &(0..m), 3.0 * init::scale(data.statistics.sum, (m, n), k), out);
}

/// The graph of a topology; only rank 0 reads the file. Collective.
fn graph(comm: &PartyCommunicator, topology: &Topology, parties: Parties, seed: u64) -> SharedResult<Graph> {
    let listing = match topology {
        Topology::File(path) => comm.broadcast_settings(LISTING, path.as_ref()).map_err(|e| {
            Error::input(format!(
                "--topology {topology}: {e}; must be ring, grid, complete, random:degree=D or a file with edges"
            ))
            .on_all_ranks()
        })?,
        _ => String::new(),
    };
    topology.build(parties.count, seed, &listing).map_err(Error::on_all_ranks)
}

/// Entries from which the differences of the agents' X, in fixed point, are more than rounding errors with the default parameters.
const SMALLEST: f64 = 1e-8;

fn build<T: Real>(args: &Ppdnmf, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let shape = (data.header.rows, data.header.cols);
    let graph = graph(&comm, &args.topology, parties, seed)?;
    check_scale(&data.statistics, &(SMALLEST..=*MODERATE.end()))?;
    let penalties = penalties(&data, k, parties, &args.inner, args.g_max.given());
    let fixed = FixedPointScale::new(args.quantization, args.x_range, args.g_scale, penalties.g_max)
        .map_err(Error::on_all_ranks)?;
    let secret_seed = args.secret_seed.seed();
    let weights = if args.scalar_g { Weights::Scalar } else { Weights::Entry };
    // A single party has no neighbour to exchange ciphertexts with.
    let vault = if args.plain || parties.count == 1 {
        None
    } else {
        let secret = (secret_seed, args.crypto_threads);
        let max_neighbours = graph.neighbours.iter().map(Vec::len).max().unwrap_or(0);
        let vault = KeyStore::new(
            parties,
            comm.rank(),
            args.key_bits.bits(),
            (fixed, max_neighbours),
            weights == Weights::Scalar,
            secret,
        );
        Some(comm.agree_on_error(vault)?)
    };
    let decisions = vec![
        Decision::CopyPenalties { mu: penalties.mu, eta: penalties.eta },
        Decision::LargestSecretWeight(penalties.g_max),
        Decision::Graph { digest: graph.digest(), edges: graph.edges.len(), diameter: graph.diameter },
        Decision::Slots(vault.as_ref().map_or(1, KeyStore::slots)),
    ];
    let vault_is_used = vault.is_some();
    let terms = ExchangeParams { entries: shape.0 * k, fixed, weights, secret_seed };
    let network = Network::new(&comm, parties, &graph, terms, vault)?;

    let mut first = Array2::zeros((shape.0, k));
    common_start(&data, k, seed, first.view_mut());
    let agent = |(party, mut block): (usize, Block<T>)| {
        block.prepare(k)?;
        let mut agent = Agent::new(party, block, k, penalties, graph.neighbours[party].len());
        agent.x.x.assign(&first);
        agent.x.u.assign(&first);
        Ok(agent)
    };
    let agents = parties.hosted(comm.rank()).zip(data.blocks).map(agent).collect::<Result<_>>();
    let agents: Vec<Agent<T>> = comm.agree_on_error(agents)?;
    let party_sum =
        if vault_is_used { PartySum::masked(&comm, parties, HEADROOM)? } else { PartySum::plain(&comm, parties) };
    Ok(Box::new(PpdnmfRun {
        comm,
        party_sum: RefCell::new(party_sum),
        largest: args.x_range,
        parties,
        flags: vec![u64::MAX; agents.len()],
        agents,
        network,
        admm_iters: args.inner.admm_iters,
        tolerance: args.inner.admm_tol,
        graph,
        shape,
        k,
        norm2: data.statistics.norm2,
        common: OnceCell::new(),
        decisions,
        iteration: 0,
    }))
}

impl<T: Real> PpdnmfRun<T> {
    /// One joint estimation of the X_i with the neighbours. Returns whether it was interrupted; the state is then
    /// unchanged.
    fn estimate_x(&mut self) -> Result<bool> {
        self.network.begin(self.iteration)?;
        // Only encryption takes long enough to be interrupted.
        let before: Vec<Estimate<T>> =
            if self.network.is_encrypted() { self.agents.iter().map(Estimate::of).collect() } else { Vec::new() };
        self.flags.fill(u64::MAX);
        for agent in &mut self.agents {
            agent.begin_x()?;
        }
        for step in 0..self.admm_iters as u64 {
            let PpdnmfRun { comm, agents, network, flags, tolerance, .. } = self;
            comm.work("update", || -> Result<()> {
                for (local, agent) in agents.iter_mut().enumerate() {
                    if agent.step_x(*tolerance) {
                        flags[local] = flags[local].min(step);
                    }
                    network.put(local, agent.x.u.entries())?;
                }
                Ok(())
            })?;
            if network.exchange()? {
                agents.iter_mut().zip(before).for_each(|(agent, before)| before.put_back(agent));
                return Ok(true);
            }
            for (local, agent) in agents.iter_mut().enumerate() {
                agent.pull(network.pull(local));
            }
            if *tolerance > 0.0 {
                network.flood(flags);
                // The first flag reaches all agents after `diameter` floods; until then no agent acts on it.
                let all_know = |&flag: &u64| flag.saturating_add(self.graph.diameter.max(1) as u64 - 1) <= step;
                if flags.iter().any(all_know) {
                    break;
                }
            }
        }
        Ok(false)
    }

    fn common(&self) -> Result<&Common<T>> {
        if let Some(common) = self.common.get() {
            return Ok(common);
        }
        let size = (self.shape.0, self.k, self.largest);
        let u = measure::mean_x(&self.comm, &mut self.party_sum.borrow_mut(), self.parties, &self.agents, size)?;
        let mut solver = Pivoting::new(self.k);
        let v = self.agents.iter().map(|agent| measure::refitted(agent, &u, &mut solver)).collect();
        Ok(self.common.get_or_init(|| Common { u, v }))
    }
}

/// Seconds that the encryption of an iteration takes.
struct Encryption([f64; 1]);

impl Public for Encryption {
    const WHY: &'static str = "the time of encryption, measured with numbers that are no data";
}

impl AsMut<[f64]> for Encryption {
    fn as_mut(&mut self) -> &mut [f64] {
        &mut self.0
    }
}

impl<T: Real> Algorithm<T> for PpdnmfRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        self.common.take();
        for _ in 0..n {
            if self.estimate_x()? {
                break;
            }
            let PpdnmfRun { comm, agents, admm_iters, tolerance, .. } = self;
            comm.work("update", || agents.iter_mut().try_for_each(|a| a.estimate_y(*admm_iters, *tolerance)))?;
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn watch(&mut self, interrupt: &Interrupt) {
        self.network.watch(interrupt);
    }

    fn forecast(&mut self) -> Result<Option<Forecast>> {
        let Some(own) = self.network.seconds() else { return Ok(None) };
        let mut slowest = Encryption([own]);
        self.comm.max_public(CONTROL, &mut slowest);
        let what = if self.tolerance > 0.0 { "encryption: at most" } else { "encryption:" };
        Ok(Some(Forecast { seconds: slowest.0[0] * self.admm_iters as f64, what }))
    }

    fn measure(&mut self) -> Result<Measures> {
        self.common()?;
        let PpdnmfRun { comm, party_sum, parties, agents, common, norm2, .. } = self;
        let Some(Common { u, v }) = common.get() else { return Ok(Vec::new()) };
        let pairs: Vec<[f64; 2]> = agents
            .iter()
            .zip(v)
            .map(|(agent, v)| {
                let residual = not_negative(agent.block.residual2(&u.view(), &v.view()));
                [residual, measure::own_error(agent, &agent.x.x)]
            })
            .collect();
        let (rel_error, nmse) = measure::errors(comm, party_sum.get_mut(), *parties, &pairs, *norm2)?;
        let disagreement = measure::disagreement(comm, agents, u);
        Ok(vec![("rel_error", rel_error), ("nmse", nmse), ("disagreement", disagreement)])
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let mut pieces = Vec::new();
        // If there is no mean, the entries are not finite, which the driver has already reported.
        if let Ok(Common { u, v }) = self.common() {
            pieces.push(Piece::shared("U", self.shape.0, 0, u.view()));
            pieces.extend(self.agents.iter().zip(v).map(|(agent, v)| Piece::private("V", agent.party, v.view())));
        }
        for agent in &self.agents {
            pieces.push(Piece::private("X", agent.party, agent.x.x.view()));
            pieces.push(Piece::private("Y", agent.party, agent.y.x.view()));
        }
        pieces
    }

    fn state(&self) -> State<'_, T> {
        let parts_of = |agent| parts(agent).map(|(name, values)| Piece::private(name, agent.party, values.view()));
        self.agents.iter().flat_map(parts_of).collect::<Vec<_>>().into()
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for agent in &mut self.agents {
            let owner = Owner::Party(agent.party);
            let Agent { x, y, q, q_before, .. } = agent;
            let y = &mut **y;
            let into = [&mut x.x, &mut x.u, &mut x.p, q, q_before, &mut y.x, &mut y.u, &mut y.p];
            for (name, values) in STATE.into_iter().zip(into) {
                saved.rows(name, owner, 0, values.view_mut())?;
            }
        }
        self.common.take();
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        self.decisions.clone()
    }
}

/// The part of an agent that an estimation of X changes.
struct Estimate<T: Real>([Array2<T>; 5]);

impl<T: Real> Estimate<T> {
    fn of(agent: &Agent<T>) -> Self {
        Estimate([&agent.x.x, &agent.x.u, &agent.x.p, &agent.q, &agent.q_before].map(Array2::clone))
    }

    fn put_back(self, agent: &mut Agent<T>) {
        let Agent { x, q, q_before, .. } = agent;
        [x.x, x.u, x.p, *q, *q_before] = self.0;
    }
}

/// Names of an agent's matrices in a checkpoint.
const STATE: [&str; 8] = ["X", "X_copy", "X_dual", "Q", "Q_before", "V", "V_copy", "V_dual"];

/// The matrices of [`STATE`], in the same order.
fn parts<T: Real>(agent: &Agent<T>) -> [(&'static str, &Array2<T>); 8] {
    let Agent { x, y, q, q_before, .. } = agent;
    let all = [&x.x, &x.u, &x.p, q, q_before, &y.x, &y.u, &y.p];
    std::array::from_fn(|i| (STATE[i], all[i]))
}

//! PPDNMF: agents on a graph agree on a left factor by telling only their neighbours, and those only in ciphertexts
//! (Lari, Arablouei, Werner: Privacy-Preserving Distributed Nonnegative Matrix Factorization).
//!
//! Agent i has the columns Z_i of M (m × n) and estimates X_i (m × k) and Y_i (k × |columns|) with Z_i ≈ X_i Y_i, in turn,
//! each by ADMM with warm starts. X_i's estimation is tied to the neighbours' (see [`exchange`]); Y_i's needs nobody. Here
//! U = the mean of the X_i, for which the agents' disagreement is measured, and V's rows of party i = Y_iᵀ.
//!
//! Where this differs from the print: the U step is the one that the derivation gives (`local::Agent::step_x`); Q's step
//! has its ½; Σ_j ρ_ij, which an agent must not know, is replaced by its public bound d_i g_max²; all agents start at one
//! common X from the public seed, since X = 1, Y = 0 is a saddle with equal columns.
//!
//! An agent at rest (`--admm-tol`) raises a flag with the number of the ADMM iteration. Flags spread from neighbour to
//! neighbour, the smallest wins, and as soon as all must know it, `diameter` iterations after the first flag, all stop: at
//! the same iteration, with no collective call.

mod exchange;
mod fixed;
pub(super) mod local;
pub(super) mod measure;
mod sealed;
mod topology;

use std::cell::OnceCell;

use ndarray::Array2;
use serde_json::Value;

use self::exchange::{Network, Terms, Weights};
use self::fixed::Fixed;
use self::local::{Agent, Penalties};
use self::sealed::Vault;
use self::topology::{Graph, Topology};
use crate::algorithms::options::{
    ADMM_ITERS, ADMM_TOL, CRYPTO_THREADS, ETA, G_MAX, G_SCALE, INSECURE_KEY, KEY_BITS, MU_PENALTY, Options, PLAIN,
    QUANTIZATION, SCALAR_G, SECRET_SEED, TOPOLOGY, X_RANGE,
};
use crate::algorithms::registry::{Form, LARGEST_TERM, MessageSpec, Method, Partition, Unit};
use crate::algorithms::shared::start;
use crate::algorithms::{Algorithm, Measures, Problem};
use crate::comm::{Communicator, MessageTag, Parties, Payload};
use crate::data::Loaded;
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::nls::Pivoting;
use crate::state::{Owner, Piece, SavedState, State};

pub static METHOD: Method = Method {
    name: "ppdnmf",
    aliases: &[],
    summary: "agents on a graph agree on the left factor; neighbours exchange ciphertexts only (Paillier)",
    paper: "Lari, Arablouei, Werner: Privacy-Preserving Distributed Nonnegative Matrix Factorization",
    partition: Partition::PartyColumns,
    unit: Unit::Round,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: true,
    options: &[
        TOPOLOGY.or("random:degree=3"),
        MU_PENALTY.or("auto"),
        ETA.or("auto"),
        ADMM_ITERS.or("30"),
        ADMM_TOL.or("0"),
        G_MAX.or("auto"),
        G_SCALE.or("1048576"),
        QUANTIZATION.or("1000000"),
        X_RANGE.or("1000"),
        KEY_BITS.or("2048"),
        INSECURE_KEY.or("false"),
        PLAIN.or("false"),
        SCALAR_G.or("false"),
        CRYPTO_THREADS.or("1"),
        SECRET_SEED.or("os"),
    ],
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
        MessageSpec::new(exchange::FLAG, "1 to each neighbour", "each ADMM iteration with --admm-tol"),
        MessageSpec::new(sealed::PUBLIC_KEY, "n and h to each neighbour", "once, unless --plain"),
        MessageSpec::new(measure::SUM_X, "m x k", "each evaluation, and for the output's U"),
        MessageSpec::new(measure::RESIDUALS, "2", "each evaluation"),
        MessageSpec::new(measure::DISAGREEMENT, "2", "each evaluation"),
        LARGEST_TERM,
    ],
    build64: build,
    build32: build,
};

const LISTING: MessageTag = MessageTag::new("edges of the graph", Payload::Control);

struct Ppdnmf<T: Real> {
    comm: Communicator,
    parties: Parties,
    agents: Vec<Agent<T>>,
    network: Network,
    /// What each hosted agent knows of the flags: the smallest number of an ADMM iteration at which one was raised.
    flags: Vec<u64>,
    admm_iters: usize,
    tolerance: f64,
    graph: Graph,
    shape: (usize, usize),
    k: usize,
    norm2: f64,
    solver: Pivoting,
    /// The mean X of the present iteration, once somebody asked for it.
    mean: OnceCell<Array2<T>>,
    decisions: Vec<(&'static str, Value)>,
    iteration: usize,
}

/// The penalties of the options; `auto` are those that the paper chose for its two experiments, in units of the data: with
/// s = 4 mean(M)/k, the square of a factor's typical entry, μ = s (n/N)/20, η = 0.3 s m and g² = s (n/N)/2000.
pub(super) fn penalties<T: Real>(
    data: &Loaded<T>,
    k: usize,
    parties: Parties,
    options: &Options,
    g_max: Option<f64>,
) -> Penalties {
    let (m, n) = (data.header.rows, data.header.cols);
    let s = start::scale(data.statistics.sum, (m, n), k).powi(2);
    let columns = n as f64 / parties.count as f64;
    Penalties {
        mu: options.number_or_auto(&MU_PENALTY).unwrap_or(s * columns / 20.0),
        eta: options.number_or_auto(&ETA).unwrap_or(0.3 * s * m as f64),
        g_max: g_max.unwrap_or((s * columns / 2000.0).sqrt()),
    }
}

/// The common start X_0: uniform up to three times the size at which X and Y would share the data's evenly (up to 1 in the
/// paper's first experiment). A larger X means a smaller Y, beside which the penalties weigh more.
pub(super) fn common_start<T: Real>(data: &Loaded<T>, k: usize, seed: u64, out: ndarray::ArrayViewMut2<'_, T>) {
    let (m, n) = (data.header.rows, data.header.cols);
    start::u(seed, &(0..m), 3.0 * start::scale(data.statistics.sum, (m, n), k), out);
}

/// The graph that `--topology` asks for; rank 0 alone reads the file.
fn graph(comm: &Communicator, text: &str, parties: Parties, seed: u64) -> Result<Graph> {
    let topology = Topology::parse(text)?;
    let listing = match &topology {
        Topology::File(path) => {
            let read = || std::fs::read_to_string(path).map_err(|e| e.to_string());
            let listing = if comm.is_root() { read() } else { Ok(String::new()) };
            comm.broadcast_value(LISTING, listing).map_err(|e| {
                Error::input(format!(
                    "--topology {path}: {e}; must be ring, grid, complete, random:degree=D or a file with edges"
                ))
            })?
        }
        _ => String::new(),
    };
    topology.build(parties.count, seed, &listing)
}

/// The length of the keys, where there are any.
fn key_bits(options: &Options) -> Result<Option<u32>> {
    if options.flag(&PLAIN) {
        return Ok(None);
    }
    let bits = options.word(&KEY_BITS);
    if bits == "128" && !options.flag(&INSECURE_KEY) {
        return Err(Error::input(
            "--key-bits 128: such a key is broken in seconds; give --insecure-key too to repeat the paper's figures",
        ));
    }
    Ok(bits.parse().ok())
}

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, kernel, options, parties, comm, .. } = problem;
    let shape = (data.header.rows, data.header.cols);
    let bits = key_bits(options)?;
    let graph = graph(&comm, options.word(&TOPOLOGY), parties, seed)?;
    let penalties = penalties(&data, k, parties, options, options.number_or_auto(&G_MAX));
    let fixed =
        Fixed::new(options.count(&QUANTIZATION), options.number(&X_RANGE), options.count(&G_SCALE), penalties.g_max)?;
    let secret_seed = options.seed(&SECRET_SEED);
    let weights = if options.flag(&SCALAR_G) { Weights::Scalar } else { Weights::Entry };
    let vault = match bits {
        Some(bits) => {
            let secret = (secret_seed, options.count(&CRYPTO_THREADS));
            Some(Vault::new(parties, comm.rank(), bits, fixed, weights == Weights::Scalar, secret)?)
        }
        None => None,
    };
    let decisions = vec![
        ("mu_penalty", penalties.mu.into()),
        ("eta", penalties.eta.into()),
        ("g_max", penalties.g_max.into()),
        ("edges", graph.edges.len().into()),
        ("diameter", graph.diameter.into()),
        ("slots", vault.as_ref().map_or(1, Vault::slots).into()),
    ];
    let terms = Terms { entries: shape.0 * k, fixed, weights, secret_seed };
    let network = Network::new(&comm, parties, &graph, terms, vault)?;

    let mut first = Array2::zeros((shape.0, k));
    common_start(&data, k, seed, first.view_mut());
    let mut agents = Vec::new();
    for (party, mut block) in parties.hosted(comm.rank()).zip(data.blocks) {
        block.prepare(kernel, k)?;
        let mut agent = Agent::new(party, block, k, penalties, graph.neighbours[party].len());
        agent.x.x.assign(&first);
        agent.x.u.assign(&first);
        agents.push(agent);
    }
    Ok(Box::new(Ppdnmf {
        comm,
        parties,
        flags: vec![u64::MAX; agents.len()],
        agents,
        network,
        admm_iters: options.count(&ADMM_ITERS),
        tolerance: options.number(&ADMM_TOL),
        graph,
        shape,
        k,
        norm2: data.statistics.norm2,
        solver: Pivoting::new(k),
        mean: OnceCell::new(),
        decisions,
        iteration: 0,
    }))
}

impl<T: Real> Ppdnmf<T> {
    /// One estimation of the X_i, together with the neighbours.
    fn estimate_x(&mut self) -> Result<()> {
        self.network.begin(self.iteration)?;
        self.flags.fill(u64::MAX);
        for agent in &mut self.agents {
            agent.begin_x()?;
        }
        for step in 0..self.admm_iters as u64 {
            let Ppdnmf { comm, agents, network, flags, tolerance, .. } = self;
            comm.work("update", || -> Result<()> {
                for (local, agent) in agents.iter_mut().enumerate() {
                    if agent.step_x(*tolerance) {
                        flags[local] = flags[local].min(step);
                    }
                    network.put(local, agent.x.u.as_slice_memory_order().expect("made contiguous"))?;
                }
                Ok(())
            })?;
            network.exchange()?;
            for (local, agent) in agents.iter_mut().enumerate() {
                agent.pull(network.pull(local));
            }
            if *tolerance > 0.0 {
                network.flood(flags);
                // All know of the first flag by now or none acts on it yet: it needs `diameter` floods to reach everybody.
                let all_know = |&flag: &u64| flag.saturating_add(self.graph.diameter.max(1) as u64 - 1) <= step;
                if flags.iter().any(all_know) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn mean(&self) -> Result<&Array2<T>> {
        if let Some(mean) = self.mean.get() {
            return Ok(mean);
        }
        let mean = measure::mean_x(&self.comm, self.parties, &self.agents, self.shape.0, self.k)?;
        Ok(self.mean.get_or_init(|| mean))
    }
}

impl<T: Real> Algorithm<T> for Ppdnmf<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        self.mean.take();
        for _ in 0..n {
            self.estimate_x()?;
            let Ppdnmf { comm, agents, admm_iters, tolerance, .. } = self;
            comm.work("update", || agents.iter_mut().try_for_each(|a| a.estimate_y(*admm_iters, *tolerance)))?;
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        self.mean()?;
        let Ppdnmf { comm, parties, agents, solver, mean, norm2, .. } = self;
        let Some(mean) = mean.get() else { return Ok(Vec::new()) };
        let pairs: Vec<[f64; 2]> = agents
            .iter()
            .map(|agent| [measure::refitted(agent, mean, solver), measure::own_error(agent, &agent.x.x)])
            .collect();
        let (rel_error, nmse) = measure::errors(comm, *parties, &pairs, *norm2)?;
        let disagreement = measure::disagreement(comm, agents, mean);
        Ok(vec![("rel_error", rel_error), ("nmse", nmse), ("disagreement", disagreement)])
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let mut pieces = Vec::new();
        // Without a mean the entries are no numbers, which the driver has said already.
        if let Ok(mean) = self.mean() {
            pieces.push(Piece::shared("U", self.shape.0, 0, mean.view()));
        }
        for agent in &self.agents {
            pieces.push(Piece::private("V", agent.party, agent.y.x.view()));
            pieces.push(Piece::private("X", agent.party, agent.x.x.view()));
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
            let into = [&mut x.x, &mut x.u, &mut x.p, q, q_before, &mut y.x, &mut y.u, &mut y.p];
            for (name, values) in STATE.into_iter().zip(into) {
                saved.rows(name, owner, 0, values.view_mut())?;
            }
        }
        self.mean.take();
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, Value)> {
        self.decisions.clone()
    }
}

/// Names of an agent's matrices in a checkpoint.
const STATE: [&str; 8] = ["X", "X_copy", "X_dual", "Q", "Q_before", "V", "V_copy", "V_dual"];

/// They, in the same order.
fn parts<T: Real>(agent: &Agent<T>) -> [(&'static str, &Array2<T>); 8] {
    let Agent { x, y, q, q_before, .. } = agent;
    let all = [&x.x, &x.u, &x.p, q, q_before, &y.x, &y.u, &y.p];
    std::array::from_fn(|i| (STATE[i], all[i]))
}

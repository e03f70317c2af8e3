//! The centralised counterpart of PPDNMF: the same block coordinate descent and ADMM if one hub sees all data. The parties'
//! sums of Z_i Y_iᵀ and Y_i Y_iᵀ replace the exchange between neighbours, and X is the same everywhere.

use ndarray::Array2;

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::party_sum::PartySum;
use fednmf_comm::{MessageTag, Parties, PartyCommunicator, Payload};
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::{Block, Real, gram};
use fednmf_privacy::Declared;

use crate::decision::Decision;
use crate::description::{Description, DifferentialPrivacy, LARGEST_TERM, MessageSpec, Partition, Unit};
use crate::federated::graph::ppdnmf::local::{Agent, InnerAdmmParams, Inverse, Penalties, Split};
use crate::federated::graph::ppdnmf::{common_start, measure, penalties};
use crate::method::Method;
use crate::metrics::Measure;
use crate::shared::sizes::{MODERATE, check_scale};
use crate::{Algorithm, Measures, Problem};

fednmf_base::parameters! {
    /// Parameters of the centralised ADMM.
    pub struct Admm {
        group inner: InnerAdmmParams;
    }
}

impl Method for Admm {
    const DESCRIPTION: &'static Description = &Description {
        name: "admm",
        summary: "the centralised counterpart of ppdnmf: inner ADMM, sums in the clear",
        paper: "the centralised algorithm in Lari, Arablouei, Werner: Privacy-Preserving Distributed NMF",
        partition: Partition::PartyColumns,
        unit: Unit::Round,
        allows_negative: true,
        measure: Measure::Nmse,
        dp: DifferentialPrivacy::Refused("it is a baseline for ppdnmf and not private: all sums are in the clear"),
        limits: Some([
            "Not private: this is the centralised counterpart of ppdnmf, and all sums are in the clear.",
            "Use it for comparison only.",
        ]),
        messages: &[
            MessageSpec::new(PRODUCTS, "m x k + k x k", "each iteration"),
            MessageSpec::new(measure::RESIDUALS, "2", "each evaluation"),
            LARGEST_TERM,
        ],
        ..Description::USUAL
    };

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(&self.inner, problem)
    }
}

const PRODUCTS: MessageTag = MessageTag::new("sum of ZY' and YY'", Payload::Product);

struct Central<T: Real> {
    comm: PartyCommunicator,
    parties: Parties,
    /// The parties; the hub uses only their data and Y.
    agents: Vec<Agent<T>>,
    /// The first row of V of each hosted party.
    first_rows: Vec<usize>,
    x: Split<T>,
    inverse: Inverse<T>,
    gram: Array2<T>,
    /// Z Yᵀ and then Y Yᵀ of each hosted party, row-major, and their sum.
    shares: Vec<Vec<T>>,
    sum: Vec<T>,
    penalties: Penalties,
    admm_iters: usize,
    tolerance: f64,
    shape: (usize, usize),
    norm2: f64,
    iteration: usize,
}

fn build<T: Real>(args: &InnerAdmmParams, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let shape = (data.header.rows, data.header.cols);
    check_scale(&data.statistics, &MODERATE)?;
    let penalties = penalties(&data, k, parties, args, Some(0.0));
    let mut first = Array2::zeros((shape.0, k));
    common_start(&data, k, seed, first.view_mut());
    let hosted = parties.hosted(comm.rank());
    let first_rows = hosted.clone().map(|party| data.cuts.cols[party].start).collect();
    let agent = |(party, mut block): (usize, Block<T>)| {
        block.prepare(k)?;
        Ok(Agent::new(party, block, k, penalties, 0))
    };
    let agents: Vec<Agent<T>> = comm.agree_on_error(hosted.zip(data.blocks).map(agent).collect::<Result<_>>())?;
    let order = agents.first().map_or(fednmf_linalg::Order::RowMajor, |agent| agent.block.order());
    let mut x = Split::new(order, shape.0, k);
    x.x.assign(&first);
    x.u.assign(&first);
    let words = (shape.0 + k) * k;
    Ok(Box::new(Central {
        comm,
        parties,
        shares: agents.iter().map(|_| vec![T::zero(); words]).collect(),
        sum: vec![T::zero(); words],
        agents,
        first_rows,
        x,
        inverse: Inverse::new(k),
        gram: Array2::zeros((k, k)),
        penalties,
        admm_iters: args.admm_iters,
        tolerance: args.admm_tol,
        shape,
        norm2: data.statistics.norm2,
        iteration: 0,
    }))
}

impl<T: Real> Central<T> {
    fn estimate_x(&mut self) -> Result<()> {
        let Central { comm, parties, agents, x, inverse, gram: h, shares, sum, penalties, .. } = self;
        let words = x.x.len();
        for (agent, share) in agents.iter_mut().zip(&mut *shares) {
            agent.block.mul(&agent.y.x.view(), &mut agent.x.product.view_mut());
            gram(&agent.y.x.view(), &mut h.view_mut());
            share.iter_mut().zip(agent.x.product.iter().chain(&*h)).for_each(|(out, &x)| *out = x);
        }
        comm.sum_parties(PRODUCTS, parties.count, shares.iter().map(|share| Declared(share.as_slice())), sum)?;
        x.product.iter_mut().zip(&sum[..words]).for_each(|(out, &x)| *out = x);
        inverse.of_gram(&sum[words..], penalties.mu)?;
        for _ in 0..self.admm_iters {
            let moved = x.project();
            x.fit(T::from_f64(penalties.mu), &inverse.inverse, |_, _| ());
            if x.dual().max(moved) <= self.tolerance * self.tolerance {
                break;
            }
        }
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for Central<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            self.estimate_x()?;
            for agent in &mut self.agents {
                agent.x.x.assign(&self.x.x);
                agent.estimate_y(self.admm_iters, self.tolerance)?;
            }
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let pair = |agent: &Agent<T>| {
            let nmse = measure::own_error(agent, &self.x.x);
            [nmse * nmse * agent.norm2, nmse]
        };
        let pairs: Vec<[f64; 2]> = self.agents.iter().map(pair).collect();
        let (rel_error, nmse) = measure::errors(
            &self.comm,
            &mut PartySum::plain(&self.comm, self.parties),
            self.parties,
            &pairs,
            self.norm2,
        )?;
        Ok(vec![("rel_error", rel_error), ("nmse", nmse)])
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let mut pieces = vec![Piece::shared("U", self.shape.0, 0, self.x.x.view())];
        for (agent, &first) in self.agents.iter().zip(&self.first_rows) {
            pieces.push(Piece::shared("V", self.shape.1, first, agent.y.x.view()));
        }
        pieces
    }

    fn state(&self) -> State<'_, T> {
        let mut pieces = self.factors();
        pieces.push(Piece::shared("U_copy", self.shape.0, 0, self.x.u.view()));
        pieces.push(Piece::shared("U_dual", self.shape.0, 0, self.x.p.view()));
        for (agent, &first) in self.agents.iter().zip(&self.first_rows) {
            pieces.push(Piece::shared("V_copy", self.shape.1, first, agent.y.u.view()));
            pieces.push(Piece::shared("V_dual", self.shape.1, first, agent.y.p.view()));
        }
        pieces.into()
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (name, values) in [("U", &mut self.x.x), ("U_copy", &mut self.x.u), ("U_dual", &mut self.x.p)] {
            saved.rows(name, Owner::Shared, 0, values.view_mut())?;
        }
        for (agent, &first) in self.agents.iter_mut().zip(&self.first_rows) {
            let y = &mut *agent.y;
            for (name, values) in [("V", &mut y.x), ("V_copy", &mut y.u), ("V_dual", &mut y.p)] {
                saved.rows(name, Owner::Shared, first, values.view_mut())?;
            }
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        vec![Decision::CopyPenalties { mu: self.penalties.mu, eta: self.penalties.eta }]
    }
}

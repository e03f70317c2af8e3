//! The loop of all federated methods with private rows: local steps, exchange, aggregation.

use ndarray::{Array2, s};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::PartySum;
use fednmf_comm::{Parties, PartyCommunicator};
use fednmf_data::state::OWN_COMPONENTS;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::Pivoting;
use fednmf_linalg::random::{Purpose, Stream, uniform_rows};
use fednmf_linalg::{Block, Contiguous, Order, Real, gram};
use fednmf_privacy::Releases;

use super::measure;
use crate::decision::Decision;
use crate::federated::rows::fnmf::align::{Aligner, Alignment};
use crate::federated::rows::fnmf::barycenter::{Barycenter, DOWNLOAD, Server};
use crate::federated::rows::fnmf::client::{Client, LocalSteps, ProximalTerm, Work};
use crate::federated::rows::fnmf::federated::{FederatedParams, FederatedSettings, Normalize, Schedule, StartOfV};
use crate::shared::dp;
use crate::shared::init;
use crate::shared::missing::Side;
use crate::shared::regularization::Penalties;
use crate::shared::secure_sum;
use crate::shared::sizes::{MODERATE, check_scale};
use crate::{Algorithm, Measures, Problem};

/// With personal components: the minimum correlation with a component of V̄ for a party's component to count as the same.
/// The mean of two uncorrelated components has a correlation of 0.71 with each.
const SAME: f64 = 0.75;

struct Run<T: Real> {
    comm: PartyCommunicator,
    parties: Parties,
    party_sum: PartySum,
    releases: Option<Releases>,
    method: FederatedSettings,
    seed: u64,
    scales: measure::Scales,
    /// Expected size of the entries of V.
    scale: f64,
    clients: Vec<Client<T>>,
    server: Server<T>,
    work: Work<T>,
    /// The parties that have rows, and a random number for each of them.
    working: Vec<usize>,
    lots: Vec<(f64, usize)>,
    iteration: usize,
    /// The iteration of the last average, in a method that averages once.
    averaged_at: Option<usize>,
    /// With noise, fits U_j to the released V̄.
    refit: Option<Refit<T>>,
}

/// Scratch memory for the exact update of U_j.
struct Refit<T: Real> {
    solver: Pivoting,
    /// k × k
    gram: Array2<T>,
    /// V̄ in the memory order of the blocks, n × k.
    v: Array2<T>,
    /// Right-hand side of the longest block, rows × k.
    rhs: Array2<T>,
}

impl<T: Real> Refit<T> {
    fn new(order: Order, rows: usize, n: usize, k: usize) -> Self {
        let (v, rhs) = (order.zeros(n, k), order.zeros(rows, k));
        Refit { solver: Pivoting::new(k), gram: Array2::zeros((k, k)), v, rhs }
    }

    /// U_j ← argmin ½‖M_j − U_j V̄ᵀ‖² and the penalty on U_j, over U_j ≥ 0, for `mean` = V̄ᵀ (k × n).
    fn run(&mut self, clients: &mut [Client<T>], mean: &Array2<T>) {
        self.v.assign(&mean.t());
        gram(&self.v.view(), &mut self.gram.view_mut());
        for client in clients.iter_mut().filter(|client| !client.is_empty()) {
            let mut rhs = self.rhs.slice_mut(s![..client.u.nrows(), ..]);
            client.block.mul(&self.v.view(), &mut rhs);
            let mut u = std::mem::take(&mut *client.u);
            client.fit(&mut u, &self.v, (&rhs.view(), &self.gram), &mut self.solver);
            *client.u = u;
        }
    }
}

/// Builds the algorithm of a method.
///
/// # Errors
/// On all ranks, if options exclude each other, or MKL refuses a sparse block.
pub fn build<T: Real>(
    problem: Problem<'_, T>,
    method: FederatedSettings,
    args: &FederatedParams,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, max_iters, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let (m, n) = (data.header.rows, data.header.cols);
    check_masked(&method, args.sum.secure_sum).map_err(Error::on_all_ranks)?;
    if !method.unit {
        check_scale(&data.statistics, &MODERATE)?;
    }
    let penalties = args.regularization.penalties((m, n));
    let [scale_u, scale] = init::random_scales(penalties, data.statistics.sum, (m, n), k, 2.0);
    let entry = init::start_entry(scale);
    let messages = method.messages(max_iters, (n, k), entry);
    let releases = dp::releases(&args.dp, args.sum.secure_sum, messages, parties, &comm)?;
    if releases.is_some() && method.personalize {
        return Err(Error::input(
            "--personalize: with --dp noise stands for a personal component too, and nobody can tell them apart",
        )
        .on_all_ranks());
    }
    let party_sum = secure_sum::party_sum(&comm, parties, &args.sum, Some((&args.threshold, &data.cuts.rows)))?;
    let client = |(block, party): (Block<T>, usize)| {
        let (mut block, missing) = method.missing.separate(block, k);
        block.prepare(k)?;
        let mut client = Client::new(party, data.cuts.rows[party].clone(), block, k, method.personalize);
        // The parties' shares of the penalty on V add up to the whole.
        let share = if m > 0 { client.rows.len() as f64 / m as f64 } else { 0.0 };
        client.penalties = Penalties { u: penalties.u, v: penalties.v.times(share) };
        init::u(seed, &client.rows, scale_u, client.u.view_mut());
        if let Some(missing) = &missing {
            missing.clear_unobserved(Side::Rows, &mut client.u, n);
        }
        client.missing = missing;
        if method.independent {
            let own = Stream::new(seed, Purpose::StartV, 1 + party as u64);
            uniform_rows(&own, 0..n, scale, client.v.view_mut());
        } else {
            init::v(seed, &(0..n), scale, client.v.view_mut());
        }
        Ok(client)
    };
    let clients = data.blocks.into_iter().zip(parties.hosted(comm.rank())).map(client).collect::<Result<_>>();
    let clients: Vec<Client<T>> = comm.agree_on_error(clients)?;
    let order = clients.first().map_or(Order::RowMajor, |c| c.block.order());
    let mut aligner = Aligner::new(method.align, k);
    let mut server = Server::new(&comm, parties, seed, (k, n), aligner.clone());
    if method.personalize {
        aligner = aligner.with_min_correlation(SAME);
    }
    // Before the first round there is no V̄; evaluations then report a public start.
    let mut first = Array2::zeros((n, k));
    init::v(seed, &(0..n), scale, first.view_mut());
    server.mean.assign(&first.t());
    let working: Vec<usize> = (0..parties.count).filter(|&p| !data.cuts.rows[p].is_empty()).collect();
    let longest = clients.iter().map(|c| c.u.nrows()).max().unwrap_or(0);
    Ok(Box::new(Run {
        refit: releases.is_some().then(|| Refit::new(order, longest, n, k)),
        work: Work::new(n, k, order, aligner),
        lots: Vec::with_capacity(parties.count),
        scales: measure::Scales {
            norm2: data.statistics.norm2,
            entries: m as f64 * n as f64,
            unit: method.unit,
            penalties,
        },
        scale: if method.unit { 1.0 } else { scale },
        averaged_at: None,
        releases,
        party_sum,
        iteration: 0,
        comm,
        parties,
        method,
        seed,
        clients,
        server,
        working,
    }))
}

/// Refuses options that need the individual terms, which a masked sum hides.
fn check_masked(method: &FederatedSettings, masked: bool) -> Result<()> {
    let wrong = |why: &str| Err(Error::input(why));
    if method.barycenter == Barycenter::Mean && method.align != Alignment::Identity && method.independent {
        return wrong(
            "--barycenter mean: parties align to the shared V, and with independent starts there is none at \
                      first; add --start shared",
        );
    }
    if method.barycenter == Barycenter::Mean && matches!(method.align, Alignment::LapRho | Alignment::SinkhornRho) {
        return wrong("--barycenter mean: every component has to have a counterpart; use --align lap, sinkhorn or knn");
    }
    if masked && method.barycenter != Barycenter::Mean {
        return wrong(
            "--secure-sum: this barycenter is made of the single V_j, which a sum does not show; use \
                      --barycenter mean with --start shared",
        );
    }
    if masked && method.personalize {
        return wrong("--secure-sum: which components are personal would have to be seen; leave --personalize out");
    }
    Ok(())
}

impl<T: Real> Run<T> {
    /// Draws the parties that take part in this round: a share of the parties with rows, rounded up, by the public
    /// seed.
    fn open_round(&mut self) {
        let count = self.method.participants(self.working.len());
        if count >= self.working.len() {
            self.server.open(self.working.iter().copied());
            return;
        }
        let lots = Stream::new(self.seed, Purpose::Participation, self.iteration as u64);
        self.lots.clear();
        self.lots.extend(self.working.iter().map(|&p| (lots.at(p as u128).uniform(), p)));
        self.lots.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.server.open(self.lots[..count].iter().map(|l| l.1));
    }

    fn round(&mut self) -> Result<()> {
        self.open_round();
        let first = self.iteration == 0;
        if first && self.term_in_first_round() && self.method.independent {
            // Starts are public, so they need no protection.
            self.exchange(Barycenter::Mean, false)?;
        }
        let FederatedSettings { local, gamma, .. } = self.method;
        let has_term = gamma > 0.0 && (!first || self.term_in_first_round());
        for client in self.clients.iter_mut().filter(|c| self.server.participates(c.party)) {
            if !first {
                client.set(&self.server.mean);
            }
            let term = has_term.then_some(ProximalTerm { target: &self.server.mean, gamma });
            client.run(&self.comm, local, &mut self.work, term.as_ref());
            if self.method.unit {
                client.normalise();
            }
        }
        self.exchange(self.method.barycenter, true)?;
        if self.method.align != Alignment::Identity {
            let (work, server) = (&mut self.work, &self.server);
            for client in self.clients.iter_mut().filter(|c| server.participates(c.party)) {
                work.aligner.reset();
                work.aligner.align(&server.mean.view(), &client.v.t());
                client.align_to_shared(&mut work.aligner);
            }
        }
        self.refit();
        Ok(())
    }

    /// With noise, V̄ differs from the one that U_j was fitted to. Evaluations, output and the next round use U_j
    /// fitted to the released V̄.
    fn refit(&mut self) {
        if let Some(refit) = &mut self.refit {
            self.comm.work("refit", || refit.run(&mut self.clients, &self.server.mean));
        }
    }

    /// Whether the first round has the proximal term.
    fn term_in_first_round(&self) -> bool {
        self.method.gamma > 0.0 && (self.method.term_in_first_round || !self.method.independent)
    }

    /// Sends the parties' V_j to the server and receives its V̄. `trained` is false if the V_j are public starts.
    fn exchange(&mut self, kind: Barycenter, trained: bool) -> Result<()> {
        let Run { comm, party_sum, releases, clients, server, work, method, iteration, scale, .. } = self;
        let mut hosted = 0;
        for client in clients.iter() {
            let taken = server.take(client.party, &client.v.t(), |l| client.is_own(l));
            hosted += usize::from(taken);
            if taken && trained && kind == Barycenter::Mean && method.align != Alignment::Identity {
                server.align_to_mean(client.party, &mut work.aligner);
            }
        }
        server.show(comm);
        let mut releases = releases.as_mut().filter(|_| trained);
        if let Some(releases) = &mut releases {
            releases.open(*iteration, server.mean.row_major())?;
        }
        let relative = method.schedule == Schedule::Rounds && *iteration > 0;
        if party_sum.is_masked() {
            return server.masked_mean(comm, party_sum, releases, relative, *scale);
        }
        let protection = server.upload(comm, releases, trained, relative);
        server.aggregate(kind, *iteration)?;
        if self.releases.is_some() {
            server.clamp_nonnegative();
        }
        comm.record_download::<T>(DOWNLOAD, protection, hosted * server.mean.len());
        Ok(())
    }

    /// The one aggregation of a method that averages once.
    fn average_once(&mut self) -> Result<()> {
        if self.method.schedule == Schedule::Once && self.averaged_at != Some(self.iteration) {
            self.server.open(self.working.iter().copied());
            self.exchange(Barycenter::Mean, true)?;
            self.averaged_at = Some(self.iteration);
            self.refit();
        }
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for Run<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        match self.method.schedule {
            Schedule::Rounds => {
                for _ in 0..n {
                    if self.done() {
                        break;
                    }
                    self.round()?;
                    self.iteration += 1;
                }
            }
            Schedule::Once => {
                let local = LocalSteps { steps: n, ..self.method.local };
                for client in self.clients.iter_mut().filter(|c| !c.is_empty()) {
                    client.run(&self.comm, local, &mut self.work, None);
                }
                self.iteration += n;
            }
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn done(&self) -> bool {
        self.method.schedule == Schedule::Rounds && self.releases.as_ref().is_some_and(Releases::is_spent)
    }

    fn measure(&mut self) -> Result<Measures> {
        // Under differential privacy there is only one release, at the end; until then V̄ is a public start.
        if self.releases.is_none() {
            self.average_once()?;
        }
        let Run { comm, party_sum, scales, clients, server, work, releases, .. } = self;
        let mut all = measure::measure(comm, party_sum, *scales, clients, &server.mean, &mut work.aligner)?;
        all.extend(party_sum.losses());
        dp::measure(releases.as_ref(), party_sum, comm, &mut all)?;
        Ok(all)
    }

    fn private_releases(&self) -> Option<&Releases> {
        self.releases.as_ref()
    }

    fn private_releases_mut(&mut self) -> Option<&mut Releases> {
        self.releases.as_mut()
    }

    fn conclude(&mut self) -> Result<()> {
        self.average_once()
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let mut pieces = vec![Piece::shared("V", self.server.mean.ncols(), 0, self.server.mean.t())];
        for client in &self.clients {
            pieces.push(Piece::private("U", client.party, client.u.view()));
            if self.method.personalize {
                pieces.push(Piece::private(OWN_COMPONENTS, client.party, client.own.view()));
            }
        }
        pieces
    }

    fn decisions(&self) -> Vec<Decision> {
        let start = if self.method.independent { StartOfV::Independent } else { StartOfV::Shared };
        let mut decisions = vec![Decision::StartOfV(start), Decision::Barycenter(self.method.barycenter)];
        if self.method.schedule == Schedule::Rounds {
            let normalize = if self.method.unit { Normalize::Unit } else { Normalize::None };
            decisions.push(Decision::Normalize(normalize));
        }
        decisions
    }

    fn state(&self) -> State<'_, T> {
        let mut pieces = self.factors();
        for client in &self.clients {
            pieces.push(Piece::private("V_local", client.party, client.v.view()));
            if self.method.schedule == Schedule::Once {
                pieces.push(Piece::private("U_before", client.party, client.u_before.view()));
                pieces.push(Piece::private("V_before", client.party, client.v_before.view()));
            }
        }
        dp::save(pieces.into(), self.releases.as_ref(), self.parties.hosted(self.comm.rank()).start)
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        saved.rows("V", Owner::Shared, 0, self.server.mean.view_mut().reversed_axes())?;
        for client in &mut self.clients {
            let owner = Owner::Party(client.party);
            saved.rows("U", owner, 0, client.u.view_mut())?;
            saved.rows("V_local", owner, 0, client.v.view_mut())?;
            if self.method.personalize {
                saved.rows(OWN_COMPONENTS, owner, 0, client.own.view_mut())?;
            }
            if self.method.schedule == Schedule::Once {
                saved.rows("U_before", owner, 0, client.u_before.view_mut())?;
                saved.rows("V_before", owner, 0, client.v_before.view_mut())?;
                client.steps_since_reset = iteration;
            }
        }
        let first = self.parties.hosted(self.comm.rank()).start;
        dp::restore(saved, self.releases.as_mut(), first)?;
        self.iteration = iteration;
        Ok(())
    }
}

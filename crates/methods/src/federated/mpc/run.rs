//! A run on shares: the parties' data are shared once, iterated on, and the shared factor is opened at the end.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use ndarray::Array2;
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::PartySum;
use fednmf_comm::{Parties, PartyCommunicator, ShareWire};
use fednmf_data::Loaded;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::Pivoting;
use fednmf_linalg::random::secret_rng;
use fednmf_linalg::{Block, Order, Real, gram};
use fednmf_privacy::sharing::{COMPUTING, Computation, Keys, SavedComponents, ShareWords, Shared, Tags, shares_of};
use fednmf_privacy::{DeclaredMut, Private as PrivateValue};

use super::format::Format;
use super::half::{Shares, Side};
use super::{INPUT, OPENED, SHARES};
use crate::decision::Decision;
use crate::parameters::SecretSource;
use crate::shared::init;
use crate::{Algorithm, Measures, Problem, metrics};

/// Distinguishes the seeds of a party's shares from its other secrets.
const SEEDS: u64 = 0x494e_5055_5400_0000;
/// Headroom of the masked sum of the evaluation.
const HEADROOM: usize = 16;

/// What the parties keep to themselves: columns of M and rows of V, or rows of M and rows of U.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Private {
    Columns,
    Rows,
}

/// A hosted party, and its rows of the private factor.
struct Member<T: Real> {
    index: usize,
    block: PrivateValue<Block<T>>,
    factor: PrivateValue<Array2<T>>,
}

struct MpcRun<T: Real> {
    comm: PartyCommunicator,
    parties: Parties,
    wire: ShareWire,
    computation: Computation,
    /// The tags of this run's shares.
    tags: Vec<Tags>,
    shares: Shares,
    format: Format,
    /// A factor F of M/σ belongs to F · unit of M.
    unit: f64,
    what: Private,
    members: Vec<Member<T>>,
    /// The shared factor; zeros until it is open.
    opened: Array2<T>,
    is_open: bool,
    /// How many errors were opened.
    errors: usize,
    party_sum: PartySum,
    norm2: f64,
    iteration: usize,
}

/// The computing parties of one owner, in its checkpoint.
#[derive(Default, Serialize, Deserialize)]
struct SavedShares {
    roles: VecDeque<SavedRole>,
}

/// A computing party's shares of the factors, with the tags of the run that made them.
#[derive(Serialize, Deserialize)]
struct SavedRole {
    tags: Tags,
    shared: SavedComponents,
    private: SavedComponents,
}

/// The party that has the role of a computing party. Fewer than three parties share the three roles, which then protect
/// nothing.
pub fn owner(computing: usize, parties: Parties) -> usize {
    computing % parties.count
}

/// The factors a and b with a b = 1/σ by which the start of M becomes that of M/σ, F = U a and H = V b (or F = V a and H = U b), of
/// about equal norms.
pub fn to_unit_norm(sigma: f64, (items, width): (usize, usize)) -> [f64; 2] {
    let balance = (items as f64 / width as f64).powf(0.25);
    [balance / sigma.sqrt(), 1.0 / (balance * sigma.sqrt())]
}

/// The entries of a block divided by σ, item by item.
fn encoded<T: Real>(block: &Block<T>, what: Private, sigma: f64, format: Format) -> Result<Vec<u64>> {
    let (rows, cols) = block.shape();
    let mut words = vec![0; rows * cols];
    let mut put = |i: usize, j: usize, x: &T| -> Result<()> {
        let place = if what == Private::Rows { i * cols + j } else { j * rows + i };
        words[place] = format.encode_entry(x.as_f64() / sigma)?;
        Ok(())
    };
    match block {
        Block::Dense(x) => x.indexed_iter().try_for_each(|((i, j), x)| put(i, j, x))?,
        Block::Sparse(x) => {
            for (i, row) in x.matrix().outer_iterator().enumerate() {
                row.iter().try_for_each(|(j, x)| put(i, j, x))?;
            }
        }
        Block::Bits(_) => return Err(Error::input("the methods on secret shares take numbers, not single bits")),
    }
    Ok(words)
}

pub fn build<T: Real>(
    what: Private,
    source: SecretSource,
    problem: Problem<'_, T>,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let (m, n) = (data.header.rows, data.header.cols);
    let (items, width) = if what == Private::Columns { (n, m) } else { (m, n) };
    let (sigma, format) = (data.statistics.norm2.sqrt(), Format::for_components(k));
    format.check_rows(m.max(n)).map_err(Error::on_all_ranks)?;
    let hosts: [usize; COMPUTING] = std::array::from_fn(|c| parties.host(owner(c, parties)));
    let mut wire = ShareWire::new(&comm, [SHARES, OPENED], hosts);
    let hosted = (0..COMPUTING).filter(|&c| hosts[c] == comm.rank());
    let keys = comm.agree_on_error(Keys::draw(hosted, source.seed()))?;
    let mut computation = Computation::new(&keys, &mut wire);
    let tags = computation.tags();
    let mut shares = Shares::new(&computation, (items, width), k, format);

    let [to_shared, to_private] = to_unit_norm(sigma, (items, width));
    let scale = init::scale(data.statistics.sum, (m, n), k);
    let (mut u, mut v) = (Array2::<f64>::zeros((m, k)), Array2::<f64>::zeros((n, k)));
    init::u(seed, &(0..m), scale, u.view_mut());
    init::v(seed, &(0..n), scale, v.view_mut());
    let (first, second) = if what == Private::Columns { (u, v) } else { (v, u) };
    let start = |x: &Array2<f64>, unit: f64| {
        let words = x.t().iter().map(|x| format.encode(x * unit)).collect::<Result<Vec<u64>>>();
        words.map(|words| computation.public(&words))
    };
    shares.shared = start(&first, to_shared).map_err(Error::on_all_ranks)?;
    shares.private = start(&second, to_private).map_err(Error::on_all_ranks)?;

    let order = if data.header.sparse { Order::RowMajor } else { Order::ColumnMajor };
    let statistics = data.statistics;
    share_data(&data, (&comm, parties, hosts), (what, sigma, format), source, &computation, &mut shares.data)?;
    let member = |(index, mut block): (usize, Block<T>)| {
        block.prepare(k)?;
        let own = if what == Private::Columns { block.shape().1 } else { block.shape().0 };
        let factor = PrivateValue::new(order.zeros(own, k));
        Ok(Member { index, block: PrivateValue::new(block), factor })
    };
    let members = parties.hosted(comm.rank()).zip(data.blocks).map(member).collect::<Result<_>>();
    let members = comm.agree_on_error(members)?;
    let party_sum = match parties.count {
        1 => PartySum::plain(&comm, parties),
        _ => PartySum::masked(&comm, parties, HEADROOM)?,
    };
    Ok(Box::new(MpcRun {
        comm,
        parties,
        wire,
        computation,
        tags,
        shares,
        format,
        unit: 1.0 / to_shared,
        what,
        members,
        opened: order.zeros(width, k),
        is_open: false,
        errors: 0,
        party_sum,
        norm2: statistics.norm2,
        iteration: 0,
    }))
}

/// Every party sends the shares of its data to the computing parties. Collective.
fn share_data<T: Real>(
    data: &Loaded<T>,
    (comm, parties, hosts): (&PartyCommunicator, Parties, [usize; COMPUTING]),
    (what, sigma, format): (Private, f64, Format),
    source: SecretSource,
    computation: &Computation,
    shared: &mut Shared,
) -> SharedResult<()> {
    let (cuts, width) = match what {
        Private::Columns => (&data.cuts.cols, data.header.rows),
        Private::Rows => (&data.cuts.rows, data.header.cols),
    };
    let hosted = parties.hosted(comm.rank());
    for party in 0..parties.count {
        let (host, items) = (parties.host(party), cuts[party].clone());
        let range = items.start * width..items.end * width;
        let own = hosted.contains(&party).then(|| {
            let words = encoded(&data.blocks[party - hosted.start], what, sigma, format)?;
            Ok(shares_of(&words, &mut secret_rng(source.seed(), SEEDS ^ party as u64)?).map(Some))
        });
        let mut own = comm.agree_on_error(own.transpose())?;
        for (computing, &to) in hosts.iter().enumerate() {
            let mine = own.as_mut().and_then(|messages| messages[computing].take());
            if mine.is_none() && to != comm.rank() {
                continue;
            }
            let mut message = mine.unwrap_or_else(|| ShareWords::buffer(computing, range.len()));
            if owner(computing, parties) != party {
                comm.transfer(INPUT, host, to, &mut message);
            }
            if to == comm.rank() {
                computation.accept(computing, &message, shared, range.clone());
            }
        }
    }
    Ok(())
}

impl<T: Real> MpcRun<T> {
    fn iterate(&mut self) {
        let MpcRun { wire, computation, shares, what, iteration, .. } = self;
        // U is updated first, as in `hals`. If V is private, its update is postponed until the next update of U needs it.
        let sides: &[Side] = match (what, *iteration) {
            (Private::Columns, 0) => &[Side::Shared],
            _ => &[Side::Private, Side::Shared],
        };
        computation.begin(*iteration);
        sides.iter().for_each(|side| shares.update(*side, computation, wire));
        self.iteration += 1;
    }

    /// Restores the shares of this rank, and returns the tags that were saved with them.
    fn restore_shares(&mut self, saved: &dyn SavedState<T>) -> Result<Vec<Tags>> {
        let owners: Vec<usize> = self.computation.hosted().map(|computing| owner(computing, self.parties)).collect();
        let mut found: BTreeMap<usize, SavedShares> = BTreeMap::new();
        for &owner in &owners {
            if let Entry::Vacant(entry) = found.entry(owner) {
                entry.insert(saved.read(Owner::Party(owner))?);
            }
        }
        let (mut tags, mut shared, mut private) = (Vec::new(), Vec::new(), Vec::new());
        for role in owners.iter().filter_map(|owner| found.get_mut(owner)?.roles.pop_front()) {
            tags.push(role.tags);
            shared.push(role.shared);
            private.push(role.private);
        }
        self.shares.shared.restore(shared)?;
        self.shares.private.restore(private)?;
        Ok(tags)
    }

    /// Every party fits its rows of the private factor to the opened one.
    fn fit(&mut self) {
        let k = self.shares.k;
        let mut g = Array2::zeros((k, k));
        gram(&self.opened.view(), &mut g.view_mut());
        let mut solver = Pivoting::new(k);
        for Member { block, factor, .. } in &mut self.members {
            let mut rhs = factor.clone();
            match self.what {
                Private::Columns => block.tmul(&self.opened.view(), &mut rhs.view_mut()),
                Private::Rows => block.mul(&self.opened.view(), &mut rhs.view_mut()),
            }
            factor.fill(T::zero());
            solver.solve(&mut factor.view_mut(), &rhs.view(), &g.view());
        }
    }
}

impl<T: Real> Algorithm<T> for MpcRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).for_each(|_| self.iterate());
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn is_open(&self) -> bool {
        self.is_open
    }

    /// Opens the shared factor to all parties.
    fn conclude(&mut self) -> Result<()> {
        let MpcRun { comm, parties, wire, computation, shares, format, unit, opened, .. } = self;
        let found = computation.open(&shares.shared, wire);
        let mut words = found.unwrap_or_else(|| vec![0; shares.k * shares.width]);
        let from = parties.host(owner(0, *parties));
        let others: Vec<usize> = (COMPUTING..parties.count).map(|party| parties.host(party)).collect();
        for to in others.into_iter().filter(|&to| [from, to].contains(&comm.rank())) {
            comm.transfer(OPENED, from, to, &mut DeclaredMut(&mut words));
        }
        for (l, component) in words.chunks_exact(shares.width.max(1)).enumerate() {
            for (to, word) in opened.column_mut(l).iter_mut().zip(component) {
                *to = T::from_f64(format.decode(*word) * *unit);
            }
        }
        self.comm.clone().work("update", || self.fit());
        self.is_open = true;
        // The driver records the state of a method, which is shares here.
        for Piece { name, owner, values, .. } in self.factors() {
            let party = if let Owner::Party(party) = owner { Some(party) } else { None };
            let by_rows = values.as_standard_layout();
            self.comm.knows(name, party, values.dim(), by_rows.as_slice().unwrap_or_default());
        }
        Ok(())
    }

    fn measure(&mut self) -> Result<Measures> {
        let MpcRun { comm, party_sum, members, opened, what, norm2, errors, .. } = self;
        // Relative to ‖M‖², so that the masked sum is of the same size at any scale of the data.
        let whole = if *norm2 > 0.0 { *norm2 } else { 1.0 };
        let residual = |Member { block, factor, .. }: &Member<T>| {
            let residual2 = match what {
                Private::Columns => block.residual2(&opened.view(), &factor.view()),
                Private::Rows => block.residual2(&factor.view(), &opened.view()),
            };
            [residual2 / whole]
        };
        let each: Vec<[f64; 1]> = members.iter().map(residual).collect();
        let mut sum = [0.0];
        *errors += 1;
        party_sum.sum(comm, metrics::RESIDUAL, 1.0, each.iter().map(<[f64; 1]>::as_slice), &mut sum)?;
        Ok(vec![("rel_error", metrics::relative(sum[0], *norm2 / whole))])
    }

    fn outcome(&self) -> Vec<Decision> {
        vec![Decision::Opened { factors: usize::from(self.is_open), errors: self.errors }]
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let (shared, private) = if self.what == Private::Columns { ("U", "V") } else { ("V", "U") };
        let mut all = vec![Piece::shared(shared, self.opened.nrows(), 0, self.opened.view())];
        all.extend(self.members.iter().map(|x| Piece::private(private, x.index, x.factor.view())));
        all
    }

    /// The shares of both factors, each in the file of its party. A resumed run shares the data again, with fresh randomness.
    fn state(&self) -> State<'_, T> {
        let mut state = State::from(Vec::new());
        let factors = self.shares.shared.saved().into_iter().zip(self.shares.private.saved());
        let all = self.computation.hosted().zip(factors).zip(self.tags.iter().cloned());
        let mut owned: BTreeMap<usize, SavedShares> = BTreeMap::new();
        for ((computing, (shared, private)), tags) in all {
            let saved = owned.entry(owner(computing, self.parties)).or_default();
            saved.roles.push_back(SavedRole { tags, shared, private });
        }
        for (owner, saved) in &owned {
            state = state.with(Owner::Party(*owner), saved);
        }
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        let tags = self.restore_shares(saved);
        let tags = self.comm.agree_on_error(tags)?;
        // One party with a state of another run would make the numbers of all meaningless.
        let fits = self.computation.are_of_one_run(&tags, &mut self.wire);
        let fits = fits.then_some(()).ok_or_else(|| {
            Error::input(
                "the checkpoints of the computing parties are not of one run; all must resume from the same one",
            )
        });
        self.comm.agree_on_error(fits)?;
        self.iteration = iteration;
        Ok(())
    }
}

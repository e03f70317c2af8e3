//! The communicator of the methods whose blocks belong to parties. It sends no raw numbers: whatever leaves a party is a
//! release ([`fednmf_privacy::released`]), and the ledger records it with the protection that created it.

use std::path::Path;

use fednmf_base::error::{Result, SharedResult};
use fednmf_linalg::{Element, Real};
use fednmf_privacy::{
    Declared, DeclaredMut, MaskedWords, Protection, Public, PublicKeys, Release, SealedShares, Transfer, UnmaskShares,
    WireAccess,
};

use super::{Communicator, ControlTag, Interrupt, MessageTag, Parts};

const WIRE: WireAccess = WireAccess::of_communicator();

/// A [`Communicator`] that takes releases only: numbers that are neither protected nor declared do not compile.
///
/// ```compile_fail,E0308
/// # use fednmf_comm::{Communicator, MessageTag, PartyCommunicator, Payload};
/// const TAG: MessageTag = MessageTag::new("row sums", Payload::Scalar);
/// let comm = PartyCommunicator::new(Communicator::local());
/// comm.sum(TAG, &mut [1.0]);
/// ```
///
/// Numbers that are declared under the name of a message do:
///
/// ```
/// # use fednmf_comm::{Communicator, MessageTag, PartyCommunicator, Payload};
/// # use fednmf_privacy::DeclaredMut;
/// # const TAG: MessageTag = MessageTag::new("row sums", Payload::Scalar);
/// # let comm = PartyCommunicator::new(Communicator::local());
/// comm.sum(TAG, DeclaredMut(&mut [1.0]));
/// ```
///
/// It does not expose the communicator that it was created from. Only code that has a [`Communicator`] can reach it, by
/// [`Communicator::ranks_of`]:
///
/// ```compile_fail,E0616
/// # use fednmf_comm::{Communicator, MessageTag, PartyCommunicator, Payload};
/// # const TAG: MessageTag = MessageTag::new("row sums", Payload::Scalar);
/// # let comm = PartyCommunicator::new(Communicator::local());
/// comm.ranks.sum(TAG, &mut [1.0]);
/// ```
#[derive(Clone)]
pub struct PartyCommunicator {
    ranks: Communicator,
}

/// The communicator of the ranks that together implement a server. They exchange what they have received from parties. These
/// messages count as no party's, but must be declared as well:
///
/// ```compile_fail,E0308
/// # use fednmf_comm::{Communicator, MessageTag, PartyCommunicator, Payload};
/// # const TAG: MessageTag = MessageTag::new("inside the server", Payload::SharedFactor);
/// # let comm = PartyCommunicator::new(Communicator::local());
/// comm.server().send(TAG, 1, &[1.0]);
/// ```
#[derive(Clone)]
pub struct ServerCommunicator {
    ranks: Communicator,
}

impl Communicator {
    /// The ranks of a communicator of parties. For the driver, which has a communicator without restrictions anyway, and
    /// checkpoints and ends a run on the ranks that are left.
    pub fn ranks_of<'a>(&self, parties: &'a PartyCommunicator) -> &'a Communicator {
        &parties.ranks
    }
}

impl ServerCommunicator {
    /// This process's number in the group, from 0.
    pub fn rank(&self) -> usize {
        self.ranks.rank()
    }

    /// As [`Communicator::work`].
    pub fn work<R>(&self, phase: &'static str, f: impl FnOnce() -> R) -> R {
        self.ranks.work(phase, f)
    }

    /// As [`Communicator::sum_parties`].
    ///
    /// # Errors
    /// As [`Communicator::sum_parties`].
    pub fn sum_parties<T: Real, R: Release<T>>(
        &self,
        tag: MessageTag,
        parties: usize,
        terms: impl Iterator<Item = R> + Clone,
        out: &mut [T],
    ) -> SharedResult<()> {
        self.ranks.sum_parties(tag.under(R::PROTECTION), parties, terms, out)
    }

    /// As [`Communicator::send`].
    pub fn send<T: Element>(&self, tag: MessageTag, rank: usize, elements: Declared<'_, T>) {
        self.ranks.send(tag, rank, elements.0);
    }

    /// As [`Communicator::receive`].
    pub fn receive<T: Element>(&self, tag: MessageTag, rank: usize, elements: DeclaredMut<'_, T>) {
        self.ranks.receive(tag, rank, elements.0);
    }
}

impl PartyCommunicator {
    pub fn new(ranks: Communicator) -> Self {
        PartyCommunicator { ranks }
    }

    /// The communicator without restrictions, for this crate.
    pub(super) fn unrestricted(&self) -> &Communicator {
        &self.ranks
    }

    /// This process's number in the group, from 0.
    pub fn rank(&self) -> usize {
        self.ranks.rank()
    }

    /// The number of ranks in the group.
    pub fn size(&self) -> usize {
        self.ranks.size()
    }

    /// Whether this is rank 0.
    pub fn is_root(&self) -> bool {
        self.ranks.is_root()
    }

    /// As [`Communicator::reports`].
    pub fn reports(&self) -> bool {
        self.ranks.reports()
    }

    /// As [`Communicator::work`].
    pub fn work<R>(&self, phase: &'static str, f: impl FnOnce() -> R) -> R {
        self.ranks.work(phase, f)
    }

    /// Asks the guard of sums, if there is one, before a sum over the parties `summed` is opened.
    ///
    /// # Errors
    /// On this rank, if the guard refuses.
    pub(super) fn check_summed(&self, summed: &[bool]) -> Result<()> {
        self.ranks.ledger.borrow_mut().sum_guard.as_mut().map_or(Ok(()), |guard| guard(summed))
    }

    /// As [`Communicator::agree_on_error`]. The text of an error contains no values of the data.
    ///
    /// # Errors
    /// On all ranks, if any rank has an error.
    pub fn agree_on_error<R>(&self, result: Result<R>) -> SharedResult<R> {
        self.ranks.agree_on_error(result)
    }

    /// As [`Communicator::is_viewed`].
    pub fn is_viewed(&self) -> bool {
        self.ranks.is_viewed()
    }

    /// As [`Communicator::knows`].
    pub fn knows<T: Element>(&self, kind: &'static str, party: Option<usize>, shape: (usize, usize), values: &[T]) {
        self.ranks.knows(kind, party, shape, values);
    }

    /// As [`Communicator::opened`].
    pub fn opened<T: Element>(&self, tag: MessageTag, edge: Option<(usize, usize)>, values: &[T]) {
        self.ranks.opened(tag, edge, values);
    }

    /// Whether an interrupt is raised on any rank. Collective.
    pub fn is_raised_anywhere(&self, interrupt: &Interrupt) -> bool {
        interrupt.is_raised_anywhere(&self.ranks)
    }

    /// The communicator of the ranks that together implement a server.
    pub fn server(&self) -> ServerCommunicator {
        ServerCommunicator { ranks: self.ranks.server() }
    }

    /// The ranks that have not been lost; see [`Communicator::subgroup`].
    #[must_use]
    pub fn subgroup(&self, ranks: &[usize]) -> Self {
        PartyCommunicator { ranks: self.ranks.subgroup(ranks) }
    }

    /// Sums one term of every party into `out` on every rank; terms are not masked. See [`Communicator::sum_parties`].
    ///
    /// # Errors
    /// On all ranks, if a value is not finite or too large to be summed.
    pub fn sum_parties<T: Real, R: Release<T>>(
        &self,
        tag: MessageTag,
        parties: usize,
        terms: impl Iterator<Item = R> + Clone,
        out: &mut [T],
    ) -> SharedResult<()> {
        self.ranks.sum_parties(tag.under(R::PROTECTION), parties, terms, out)
    }

    /// Sums masked words over the ranks, in place and modulo 2⁶⁴. `total` holds the sum over the `hosted` parties; each of
    /// them sends and receives as many words.
    pub fn sum_masked(&self, (tag, protection): (MessageTag, Protection), hosted: usize, total: &mut MaskedWords) {
        self.ranks.sum_of_hosted(tag.under(protection), hosted, total.words_mut(WIRE));
    }

    /// Gathers the public keys of all parties; each of the `hosted` ones receives all.
    pub fn gather_keys(&self, tag: ControlTag, hosted: usize, own: &PublicKeys<u8>, parts: &Parts, all: &mut [u8]) {
        self.ranks.gather_of_hosted(tag.recorded(), hosted, own.as_slice(), parts, all);
    }

    /// Gathers the shares that unmask a sum; each of the `hosted` parties receives all.
    pub fn gather_unmasking(&self, tag: ControlTag, hosted: usize, own: &UnmaskShares, parts: &Parts, all: &mut [u64]) {
        self.ranks.gather_of_hosted(tag.recorded(), hosted, own.words(), parts, all);
    }

    /// Sends the encrypted shares of secrets to the ranks of their receivers; `receive[r]` bytes come from rank r. The
    /// hosted parties send and receive `party_bytes`.
    pub fn exchange_shares(
        &self,
        tag: MessageTag,
        party_bytes: usize,
        send: &SealedShares,
        receive: &[usize],
    ) -> Vec<u8> {
        self.ranks.between_parties(tag.under(Protection::Encrypted), party_bytes, send.by_rank(), receive)
    }

    /// Gathers values that parties send in the clear; each of the `hosted` ones receives all.
    pub fn gather<T: Element>(
        &self,
        tag: MessageTag,
        hosted: usize,
        own: Declared<'_, T>,
        parts: &Parts,
        all: &mut [T],
    ) {
        self.ranks.gather_of_hosted(tag, hosted, own.0, parts, all);
    }

    /// `values` become their maxima over the ranks, in the clear; each of the `hosted` parties sends and receives as many.
    pub fn max<T: Element>(&self, tag: MessageTag, hosted: usize, values: DeclaredMut<'_, T>) {
        self.ranks.max_of_hosted(tag, hosted, values.0);
    }

    /// `values` become their sums over the ranks, in the clear.
    pub fn sum<T: Element>(&self, tag: MessageTag, values: DeclaredMut<'_, T>) {
        self.ranks.sum(tag, values.0);
    }

    /// Sums words over the ranks, in place and modulo 2⁶⁴. `total` holds the sum over the `hosted` parties; each of them sends and
    /// receives as many words.
    pub fn sum_of_hosted(&self, tag: MessageTag, hosted: usize, total: DeclaredMut<'_, u64>) {
        self.ranks.sum_of_hosted(tag, hosted, total.0);
    }

    /// As [`Communicator::broadcast_settings`].
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub fn broadcast_settings(&self, tag: ControlTag, path: &Path) -> std::result::Result<String, String> {
        self.ranks.broadcast_settings(tag, path)
    }

    /// As [`Communicator::max_public`].
    pub fn max_public<T: Element, W: Public + AsMut<[T]>>(&self, tag: ControlTag, words: &mut W) {
        self.ranks.max_public(tag, words);
    }

    /// As [`Communicator::transfer`], for a public key.
    pub fn transfer_key<T: Element>(&self, tag: ControlTag, from: usize, to: usize, key: &mut PublicKeys<T>) {
        self.ranks.transfer(tag.recorded(), from, to, key.elements(WIRE));
    }

    /// As [`Communicator::transfer`].
    pub fn transfer<T: Element, R: Transfer<T>>(&self, tag: MessageTag, from: usize, to: usize, release: &mut R) {
        self.ranks.transfer(tag.under(R::PROTECTION), from, to, release.elements(WIRE));
    }

    /// As [`Communicator::transfer_on_edge`].
    pub fn transfer_on_edge<T: Element, R: Transfer<T>>(
        &self,
        tag: MessageTag,
        from: (usize, usize),
        to: (usize, usize),
        release: &mut R,
    ) {
        self.ranks.transfer_on_edge(tag.under(R::PROTECTION), from, to, release.elements(WIRE));
    }

    /// Records uploads of hosted parties to a server on their own rank, which need no message. Returns their
    /// protection.
    pub fn record_upload<T, R: Release<T>>(&self, tag: MessageTag, releases: impl Iterator<Item = R>) -> Protection {
        let elements = releases.map(|release| release.values().len()).sum();
        self.ranks.record_local::<T>(tag.under(R::PROTECTION), elements);
        R::PROTECTION
    }

    /// Records downloads from a server to hosted parties on its own rank. They are computed from the uploads and have
    /// the same protection.
    pub fn record_download<T>(&self, tag: MessageTag, protection: Protection, elements: usize) {
        self.ranks.record_local::<T>(tag.under(protection), elements);
    }
}

/// Messages with a deadline and control messages, for parties that work at their own pace; what they send is declared.
impl PartyCommunicator {
    /// As [`Communicator::send_within`].
    pub fn send_within<T: Element>(
        &self,
        tag: MessageTag,
        rank: usize,
        declared: &mut Vec<T>,
        limit: std::time::Duration,
    ) -> bool {
        self.ranks.send_within(tag, rank, declared, limit)
    }

    /// As [`Communicator::receive_within`].
    pub fn receive_within<T: Element>(
        &self,
        tag: MessageTag,
        rank: usize,
        elements: &mut Vec<T>,
        limit: std::time::Duration,
    ) -> bool {
        self.ranks.receive_within(tag, rank, elements, limit)
    }

    /// As [`Communicator::send_control`]: a kind of message and the number of a party or rank.
    pub fn send_control(&self, tag: ControlTag, rank: usize, message: impl Public + Into<[u64; 2]>) {
        self.ranks.send_control(tag, rank, message);
    }

    /// As [`Communicator::try_recv_control`].
    pub fn try_recv_control(&self, tag: ControlTag, rank: Option<usize>) -> Option<(usize, [u64; 2])> {
        self.ranks.try_recv_control(tag, rank)
    }
}

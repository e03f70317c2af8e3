//! Replaces the encrypted exchange in a build without Paillier's cryptosystem. There are no keys, so only runs with
//! `--plain`, or of one party, can be built.

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Parties, PartyCommunicator};
use fednmf_privacy::Ciphertexts;

use crate::federated::graph::ppdnmf::fixed_point::FixedPointScale;
use crate::federated::graph::ppdnmf::topology::Graph;

/// An uninhabited type: no number is encrypted.
pub enum Integer {}

pub enum KeyStore {}

impl KeyStore {
    pub fn new(
        _parties: Parties,
        _rank: usize,
        _bits: u32,
        _sizes: (FixedPointScale, usize),
        _one_weight: bool,
        _secret: (Option<u64>, usize),
    ) -> Result<Self> {
        Err(Error::input("ppdnmf: built without encryption (feature paillier)"))
    }

    pub fn exchange_keys(&mut self, _comm: &PartyCommunicator, _edges: &[(usize, usize, usize)]) -> SharedResult<()> {
        match *self {}
    }

    pub fn slots(&self) -> usize {
        match *self {}
    }

    pub fn message_words(&self, _entries: usize) -> usize {
        match *self {}
    }

    pub fn answer_words(&self, _entries: usize) -> usize {
        match *self {}
    }

    pub fn seconds(&mut self, _ends: (usize, usize), _entries: usize, _weight: u64) -> f64 {
        match *self {}
    }

    pub fn seal(&mut self, _party: usize, _u: &[i64], _message: &mut Ciphertexts) {
        match *self {}
    }

    pub fn modulus(&self, _neighbour: usize) -> &Integer {
        match *self {}
    }

    pub fn packs(&self, _entries: usize) -> usize {
        match *self {}
    }

    pub fn answer(
        &mut self,
        _neighbour: usize,
        _message: &[u64],
        _own: (&[u64], &[i64]),
        _masks: &[Integer],
        _reply: &mut Ciphertexts,
    ) {
        match *self {}
    }

    pub fn open(&mut self, _party: usize, _answers: &[&[u64]], _out: &mut [i128]) -> Result<()> {
        match *self {}
    }

    pub fn open_alone(&mut self, _party: usize, _answer: &[u64], _out: &mut [i128]) -> Result<()> {
        match *self {}
    }
}

#[expect(dead_code, reason = "nothing is masked")]
pub struct EdgeEnd {
    pub local: usize,
    pub party: usize,
    pub neighbour: usize,
}

pub enum Masking {}

impl Masking {
    pub fn new(
        _comm: &PartyCommunicator,
        _parties: Parties,
        _graph: &Graph,
        _ends: &[EdgeEnd],
    ) -> SharedResult<Masking> {
        Err(Error::input("ppdnmf: built without encryption (feature paillier)").on_all_ranks())
    }

    pub fn next(&mut self) {
        match *self {}
    }

    pub fn of(&mut self, _place: usize, _edge: (usize, usize), _modulus: &Integer, _packs: usize) -> Vec<Integer> {
        match *self {}
    }
}

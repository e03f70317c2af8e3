//! The transport between sites. In a collective, each site sends messages to every other site, and each reduces the result
//! itself in rank order. The hub learns no more from a collective than from any other message.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use fednmf_base::error::Result;
use fednmf_comm::transport::{Buffer, BufferMut, ControlMessage, Loss, Op, OwnedBuffer, RankPart, Transport};
use fednmf_linalg::{Element, ElementType};
use fednmf_privacy::transcript::SiteSignature;

use super::link::{Config, Kind, Link, RESUME, fail};
use super::rounds::{Contributions, Rounds};

/// A group of sites.
pub struct Sites {
    link: Arc<Link>,
    /// Distinguishes its messages from those of other groups.
    group: u64,
    /// The members' ranks among all sites.
    members: Vec<usize>,
    /// This site's place among the members.
    rank: usize,
    /// How often each subgroup was created, so that each has its own messages.
    subgroup_counts: RefCell<HashMap<Vec<usize>, u64>>,
    /// The rounds of all sites, once the run continues without lost sites.
    rounds: RefCell<Option<Rounds>>,
    /// Which ranks took part in the last round.
    participated: RefCell<Vec<bool>>,
}

impl Sites {
    /// All sites of the hub's run; returns when all have joined.
    ///
    /// # Errors
    /// As [`Link::join`].
    pub fn join(config: Config) -> Result<Sites> {
        let link = Link::join(config)?;
        let (members, rank) = ((0..link.sites().len()).collect(), link.me());
        Ok(Sites::new(link, 0, members, rank))
    }

    fn new(link: Arc<Link>, group: u64, members: Vec<usize>, rank: usize) -> Sites {
        let participated = RefCell::new(vec![true; members.len()]);
        Sites {
            link,
            group,
            members,
            rank,
            subgroup_counts: RefCell::default(),
            rounds: RefCell::default(),
            participated,
        }
    }

    /// The names of all sites, by rank.
    pub fn names(&self) -> &[String] {
        self.link.sites()
    }

    /// The name of the run, the same at all sites.
    pub fn run(&self) -> &str {
        self.link.run()
    }

    /// Leaves the run regularly, after the others have received what was sent to them.
    pub fn leave(&self, code: i32) {
        if let Some(rounds) = &mut *self.rounds.borrow_mut() {
            rounds.finish();
        }
        self.link.leave(code);
    }

    /// The contributions of all sites to a round, if the run continues without lost sites.
    fn in_round(&self, contribute: impl FnOnce(&mut Rounds) -> Contributions) -> Option<Contributions> {
        let contributions = self.rounds.borrow_mut().as_mut().map(contribute)?;
        *self.participated.borrow_mut() = contributions.iter().map(Option::is_some).collect();
        Some(contributions)
    }

    fn send_to(&self, rank: usize, kind: Kind, text: &[u8]) {
        self.link.send(self.members[rank], self.group, kind, text);
    }

    fn receive_from(&self, rank: usize, kind: Kind) -> Vec<u8> {
        self.link.receive(self.members[rank], self.group, kind, None).expect("without a limit it waits")
    }

    /// The next message of a rank, which must have this length.
    fn receive_exact(&self, rank: usize, kind: Kind, length: usize) -> Vec<u8> {
        self.fitting(rank, self.receive_from(rank, kind), length)
    }

    fn fitting(&self, rank: usize, message: Vec<u8>, length: usize) -> Vec<u8> {
        self.check_length(rank, &message, length);
        message
    }

    fn check_length(&self, rank: usize, message: &[u8], length: usize) {
        if message.len() != length {
            fail(&format!(
                "site {} sent {} bytes where {length} were expected; do all sites run the same command and version?",
                self.link.sites()[self.members[rank]],
                message.len()
            ));
        }
    }

    /// Copies a contribution of a round to its place; writes zeros for that of a lost site.
    fn put(&self, rank: usize, contribution: Option<&[u8]>, into: &mut [u8]) {
        let Some(text) = contribution else { return into.fill(0) };
        self.check_length(rank, text, into.len());
        into.copy_from_slice(text);
    }

    /// Reduces the contributions of a round, in the order of ranks.
    fn reduce_contributed(&self, op: Op, buffer: BufferMut<'_>, contributions: &Contributions) {
        let BufferMut { element, bytes } = buffer;
        let mut begun = false;
        for (rank, text) in contributions.iter().enumerate().filter_map(|(rank, text)| Some((rank, text.as_ref()?))) {
            self.check_length(rank, text, bytes.len());
            if begun {
                reduce(op, element, bytes, text)
            } else {
                bytes.copy_from_slice(text)
            }
            begun = true;
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.members.len()).filter(|&rank| rank != self.rank)
    }

    fn send_to_others(&self, kind: Kind, text: &[u8]) {
        self.others().for_each(|rank| {
            self.send_to(rank, kind, text);
        });
    }

    /// Reduces the messages of all ranks, in the order of ranks.
    fn reduce_received(&self, op: Op, buffer: BufferMut<'_>) {
        let BufferMut { element, bytes } = buffer;
        if self.members.len() == 1 {
            return;
        }
        let own = bytes.to_vec();
        for rank in 0..self.members.len() {
            let heard = (rank != self.rank).then(|| self.receive_exact(rank, Kind::Collective, own.len()));
            let term = heard.as_ref().unwrap_or(&own);
            if rank == 0 { bytes.copy_from_slice(term) } else { reduce(op, element, bytes, term) }
        }
    }

    /// The group of some members, given by their ranks in this one.
    fn part(&self, ranks: &[usize]) -> Sites {
        let count = {
            let mut subgroup_counts = self.subgroup_counts.borrow_mut();
            let count = subgroup_counts.entry(ranks.to_vec()).or_insert(0);
            *count += 1;
            *count
        };
        let mut hash = Sha256::new();
        hash.update(self.group.to_le_bytes());
        hash.update(count.to_le_bytes());
        ranks.iter().for_each(|rank| hash.update((*rank as u64).to_le_bytes()));
        let digest: [u8; 32] = hash.finalize().into();
        let group = digest.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let rank = ranks.iter().position(|&rank| rank == self.rank).expect("this site is one of them");
        let members = ranks.iter().map(|&rank| self.members[rank]).collect();
        Sites::new(self.link.clone(), group, members, rank)
    }
}

/// sum ← sum ∘ term, element by element.
fn reduce(op: Op, element: ElementType, sum: &mut [u8], term: &[u8]) {
    fn zip_with<T: Element>(sum: &mut [u8], term: &[u8], f: impl Fn(T, T) -> T) {
        let sums: &mut [T] = bytemuck::cast_slice_mut(sum);
        for (x, bytes) in sums.iter_mut().zip(term.chunks_exact(size_of::<T>())) {
            *x = f(*x, bytemuck::pod_read_unaligned(bytes));
        }
    }
    match (op, element) {
        (Op::Sum, ElementType::U8) => zip_with(sum, term, u8::wrapping_add),
        (Op::Sum, ElementType::U32) => zip_with(sum, term, u32::wrapping_add),
        (Op::Sum, ElementType::U64) => zip_with(sum, term, u64::wrapping_add),
        (Op::Sum, ElementType::F32) => zip_with(sum, term, |a: f32, b| a + b),
        (Op::Sum, ElementType::F64) => zip_with(sum, term, |a: f64, b| a + b),
        (Op::Max, ElementType::U8) => zip_with(sum, term, u8::max),
        (Op::Max, ElementType::U32) => zip_with(sum, term, u32::max),
        (Op::Max, ElementType::U64) => zip_with(sum, term, u64::max),
        (Op::Max, ElementType::F32) => zip_with(sum, term, |a: f32, b| if b > a { b } else { a }),
        (Op::Max, ElementType::F64) => zip_with(sum, term, |a: f64, b| if b > a { b } else { a }),
    }
}

/// Where each rank's bytes begin and end, for counts of elements that lie one after another.
fn parts(counts: &[i32], size: usize) -> Vec<std::ops::Range<usize>> {
    let mut end = 0;
    let part = |&count: &i32| {
        let start = end;
        end += count as usize * size;
        start..end
    };
    counts.iter().map(part).collect()
}

impl Transport for Sites {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn owner(&self, rank: usize) -> Option<&str> {
        Some(&self.link.sites()[self.members[rank]])
    }

    fn sign_transcript_key(&self, key: &str) -> Result<Option<SiteSignature>> {
        self.link.sign_transcript_key(key).map(Some)
    }

    fn continue_without_lost(&self, min_sites: usize) {
        // Other groups are subsets of the sites, which must not continue without their members.
        if self.group == 0 {
            *self.rounds.borrow_mut() = Some(Rounds::new(self.link.clone(), min_sites));
        }
    }

    fn participated(&self, rank: usize) -> bool {
        self.participated.borrow()[rank]
    }

    fn losses(&self) -> Vec<Loss> {
        self.rounds.borrow().as_ref().map_or_else(Vec::new, |rounds| rounds.losses().to_vec())
    }

    fn root(&self) -> usize {
        let rounds = self.rounds.borrow();
        let present = |rank: &usize| rounds.as_ref().is_none_or(|rounds| rounds.is_present(*rank));
        (0..self.members.len()).find(present).unwrap_or(0)
    }

    fn barrier(&self) {
        if self.in_round(|rounds| rounds.share(&[])).is_some() {
            return;
        }
        self.send_to_others(Kind::Collective, &[]);
        self.others().for_each(|rank| drop(self.receive_exact(rank, Kind::Collective, 0)));
    }

    fn all_reduce(&self, op: Op, buffer: BufferMut<'_>) {
        if let Some(contributions) = self.in_round(|rounds| rounds.share(buffer.bytes)) {
            return self.reduce_contributed(op, buffer, &contributions);
        }
        self.send_to_others(Kind::Collective, buffer.bytes);
        self.reduce_received(op, buffer);
    }

    fn all_reduce_while(&self, op: Op, buffer: BufferMut<'_>, work: &mut dyn FnMut()) {
        if self.rounds.borrow().is_some() {
            let mut own = buffer.bytes.to_vec();
            work();
            let element = buffer.element;
            self.all_reduce(op, BufferMut { element, bytes: &mut own });
            return buffer.bytes.copy_from_slice(&own);
        }
        // A separate group: the work may communicate in this one before the terms are received.
        let own = self.part(&(0..self.members.len()).collect::<Vec<_>>());
        own.send_to_others(Kind::Collective, buffer.bytes);
        work();
        own.reduce_received(op, buffer);
    }

    fn reduce_scatter(&self, send: Buffer<'_>, counts: &[i32], receive: BufferMut<'_>) {
        let parts = parts(counts, send.element.size());
        if let Some(contributions) = self.in_round(|rounds| rounds.distribute(|rank| &send.bytes[parts[rank].clone()]))
        {
            return self.reduce_contributed(Op::Sum, receive, &contributions);
        }
        self.others().for_each(|rank| {
            self.send_to(rank, Kind::Collective, &send.bytes[parts[rank].clone()]);
        });
        receive.bytes.copy_from_slice(&send.bytes[parts[self.rank].clone()]);
        self.reduce_received(Op::Sum, receive);
    }

    fn all_gather(&self, local: Buffer<'_>, counts: &[i32], offsets: &[i32], receive: BufferMut<'_>) {
        let size = local.element.size();
        if let Some(contributions) = self.in_round(|rounds| rounds.share(local.bytes)) {
            for (rank, text) in contributions.iter().enumerate() {
                let (start, length) = (offsets[rank] as usize * size, counts[rank] as usize * size);
                self.put(rank, text.as_deref().map(Vec::as_slice), &mut receive.bytes[start..start + length]);
            }
            return;
        }
        self.send_to_others(Kind::Collective, local.bytes);
        for rank in 0..self.members.len() {
            let (start, length) = (offsets[rank] as usize * size, counts[rank] as usize * size);
            let into = &mut receive.bytes[start..start + length];
            match rank == self.rank {
                true => into.copy_from_slice(local.bytes),
                false => into.copy_from_slice(&self.receive_exact(rank, Kind::Collective, length)),
            }
        }
    }

    fn all_to_all(&self, send: Buffer<'_>, send_counts: &[i32], receive: BufferMut<'_>, receive_counts: &[i32]) {
        let (from, to) = (parts(send_counts, send.element.size()), parts(receive_counts, send.element.size()));
        if let Some(contributions) = self.in_round(|rounds| rounds.distribute(|rank| &send.bytes[from[rank].clone()])) {
            for ((rank, text), part) in contributions.iter().enumerate().zip(to) {
                self.put(rank, text.as_deref().map(Vec::as_slice), &mut receive.bytes[part]);
            }
            return;
        }
        self.others().for_each(|rank| {
            self.send_to(rank, Kind::Collective, &send.bytes[from[rank].clone()]);
        });
        for (rank, part) in to.into_iter().enumerate() {
            let length = part.len();
            match rank == self.rank {
                true => receive.bytes[part].copy_from_slice(&send.bytes[from[rank].clone()]),
                false => receive.bytes[part].copy_from_slice(&self.receive_exact(rank, Kind::Collective, length)),
            }
        }
    }

    fn exchange(&self, (send, to): (Buffer<'_>, &[RankPart]), (receive, from): (BufferMut<'_>, &[RankPart])) {
        let size = send.element.size();
        let bytes = |part: &Range<usize>| part.start * size..part.end * size;
        to.iter().for_each(|(rank, part)| self.send_to(*rank, Kind::Collective, &send.bytes[bytes(part)]));
        for (rank, part) in from {
            let arrived = self.receive_exact(*rank, Kind::Collective, bytes(part).len());
            receive.bytes[bytes(part)].copy_from_slice(&arrived);
        }
    }

    fn broadcast(&self, root: usize, buffer: BufferMut<'_>) {
        // If the root is lost, some sites know it before others, and the next root may already have taken over.
        let own = if self.rank == root { buffer.bytes.to_vec() } else { Vec::new() };
        if let Some(contributions) = self.in_round(|rounds| rounds.share(&own)) {
            let sent = contributions.iter().flatten().find(|text| !text.is_empty());
            return match sent {
                Some(text) => self.put(root, Some(text), buffer.bytes),
                None if buffer.bytes.is_empty() => {}
                None => fail(&format!(
                    "site {} was lost while it told the others how to go on; the run ends{RESUME}",
                    self.link.sites()[root]
                )),
            };
        }
        match self.rank == root {
            true => self.send_to_others(Kind::Collective, buffer.bytes),
            false => buffer.bytes.copy_from_slice(&self.receive_exact(root, Kind::Collective, buffer.bytes.len())),
        }
    }

    fn send(&self, rank: usize, elements: Buffer<'_>) {
        self.send_to(rank, Kind::Plain, elements.bytes);
    }

    fn receive(&self, rank: usize, elements: BufferMut<'_>) {
        elements.bytes.copy_from_slice(&self.receive_exact(rank, Kind::Plain, elements.bytes.len()));
    }

    /// Does not wait, since the link keeps the message until it is delivered; a site that does not return ends the run.
    fn send_within(&self, rank: usize, elements: &mut dyn OwnedBuffer, _: usize, _: Duration) -> bool {
        self.send_to(rank, Kind::Within, elements.buffer().bytes);
        true
    }

    fn receive_within(&self, rank: usize, elements: &mut dyn OwnedBuffer, _: usize, limit: Duration) -> bool {
        match self.link.receive(self.members[rank], self.group, Kind::Within, Some(limit)) {
            Some(message) => {
                let into = elements.buffer().bytes;
                into.copy_from_slice(&self.fitting(rank, message, into.len()));
                true
            }
            None => {
                elements.leak();
                false
            }
        }
    }

    fn send_control(&self, rank: usize, message: ControlMessage) {
        self.send_to(rank, Kind::Control, bytemuck::cast_slice(&message));
    }

    fn try_receive_control(&self, rank: Option<usize>) -> Option<(usize, ControlMessage)> {
        let ranks = rank.map_or(0..self.members.len(), |rank| rank..rank + 1);
        for rank in ranks {
            let message = self.link.receive(self.members[rank], self.group, Kind::Control, Some(Duration::ZERO));
            if let Some(message) = message {
                let mut words = ControlMessage::default();
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
                bytes.copy_from_slice(&self.fitting(rank, message, bytes.len()));
                return Some((rank, words));
            }
        }
        None
    }

    fn split(&self, color: usize) -> Rc<dyn Transport> {
        let own = (color as u64).to_le_bytes();
        self.send_to_others(Kind::Collective, &own);
        let same = |&rank: &usize| rank == self.rank || self.receive_exact(rank, Kind::Collective, 8) == own;
        Rc::new(self.part(&(0..self.members.len()).filter(same).collect::<Vec<_>>()))
    }

    fn subgroup(&self, ranks: &[usize]) -> Rc<dyn Transport> {
        Rc::new(self.part(ranks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_reduced_by_their_type() {
        let mut sum = [1.5f64, -2.0];
        let term: Vec<u8> = [0.5f64, -3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        reduce(Op::Sum, ElementType::F64, bytemuck::cast_slice_mut(&mut sum), &term);
        assert_eq!(sum, [2.0, -5.0]);
        reduce(Op::Max, ElementType::F64, bytemuck::cast_slice_mut(&mut sum), &term);
        assert_eq!(sum, [2.0, -3.0]);
        // Masked words wrap around.
        let mut words = [u64::MAX];
        reduce(Op::Sum, ElementType::U64, bytemuck::cast_slice_mut(&mut words), &2u64.to_le_bytes());
        assert_eq!(words, [1]);
    }

    #[test]
    fn parts_lie_one_after_another() {
        assert_eq!(parts(&[2, 0, 1], 8), [0..16, 16..16, 16..24]);
    }
}

//! Shares of a contributor's words: two components are the streams of seeds, the third makes up the sum.

use std::ops::Range;

use chacha20::ChaCha20Rng;
use rand::Rng;

use super::{COMPUTING, Computation, KEY_WORDS, Shared, add, fill, random_key, stream_of};
use crate::released::{Protection, Transfer, WireAccess, sealed};

/// What a contributor sends to a computing party: seeds and a component, uniformly random to the receiver.
#[derive(Default)]
pub struct ShareWords(Vec<u64>);

impl ShareWords {
    /// The number of words to computing party `index` for `words` words.
    pub fn length(index: usize, words: usize) -> usize {
        if index == 2 { 2 * KEY_WORDS } else { KEY_WORDS + words }
    }

    /// A buffer for the message to computing party `index` for `words` words.
    pub fn buffer(index: usize, words: usize) -> Self {
        ShareWords(vec![0; ShareWords::length(index, words)])
    }
}

impl sealed::Sealed for ShareWords {}

impl Transfer<u64> for ShareWords {
    const PROTECTION: Protection = Protection::Shared;

    fn elements(&mut self, _: WireAccess) -> &mut [u64] {
        &mut self.0
    }
}

/// The messages to the three computing parties. Component 0 is the stream of a seed that parties 0 and 2 receive, component 2 that
/// of a seed for parties 1 and 2. Component 1, for parties 0 and 1, is the rest of the sum.
pub fn shares_of(words: &[u64], rng: &mut impl Rng) -> [ShareWords; COMPUTING] {
    let [first, last] = [random_key(rng), random_key(rng)];
    let mut middle = words.to_vec();
    for seed in [&first, &last] {
        add(&mut stream_of(seed), 0, &mut middle, true);
    }
    let with = |seed: &[u64], rest: &[u64]| ShareWords([seed, rest].concat());
    [with(&first, &middle), with(&last, &middle), with(&last, &first)]
}

impl Computation {
    /// Stores the message to computing party `index`, if it is on this rank, as the words of `shared` in `range`.
    pub fn accept(&self, index: usize, message: &ShareWords, shared: &mut Shared, range: Range<usize>) {
        let Some(place) = self.parties.iter().position(|party| party.index == index) else { return };
        let (seed, rest) = message.0.split_at(KEY_WORDS);
        let part = &mut shared.parts[place];
        let (own, next) = (&mut part.own[range.clone()], &mut part.next[range]);
        let draw = |seed: &[u64], out: &mut [u64]| {
            let mut stream: ChaCha20Rng = stream_of(seed);
            fill(&mut stream, 0, out);
        };
        match index {
            0 => {
                draw(seed, own);
                next.copy_from_slice(rest);
            }
            1 => {
                own.copy_from_slice(rest);
                draw(seed, next);
            }
            _ => {
                draw(seed, own);
                draw(rest, next);
            }
        }
    }
}

//! Three computing parties in one process, against whole numbers.

use proptest::prelude::*;
use rand::Rng;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use fednmf_linalg::random::{mix, secret_rng};

use crate::Transfer as _;

use super::{COMPUTING, Computation, Keys, Mail, Purpose, Reciprocals, Shared, Terms, Wire, shares_of};

/// Delivers within the process, and keeps the messages that each party receives.
#[derive(Default)]
struct InProcess {
    seen: [Vec<Vec<u64>>; COMPUTING],
    rounds: usize,
    words: usize,
}

impl Wire for InProcess {
    fn exchange(&mut self, mail: &mut Mail, purpose: Purpose) {
        self.rounds += 1;
        for from in 0..COMPUTING {
            for to in 0..COMPUTING {
                mail.deliver(from, to);
                let received = mail.incoming(from, to, crate::WireAccess::of_communicator());
                self.words += received.len();
                if purpose == Purpose::Compute && !received.is_empty() {
                    self.seen[to].push(received.to_vec());
                }
            }
        }
    }
}

struct Three {
    computation: Computation,
    wire: InProcess,
}

impl Three {
    fn new(seed: Option<u64>) -> Self {
        let mut wire = InProcess::default();
        let computation = Computation::new(&Keys::draw(0..COMPUTING, seed).unwrap(), &mut wire);
        Three { computation, wire: InProcess::default() }
    }

    fn share(&self, words: &[i64], seed: Option<u64>) -> Shared {
        let words: Vec<u64> = words.iter().map(|x| x.cast_unsigned()).collect();
        let mut shared = self.computation.zeros(words.len());
        for (index, message) in shares_of(&words, &mut secret_rng(seed, 99).unwrap()).iter().enumerate() {
            self.computation.accept(index, message, &mut shared, 0..words.len());
        }
        shared
    }

    fn open(&mut self, shared: &Shared) -> Vec<i64> {
        self.computation.open(shared, &mut self.wire).unwrap().into_iter().map(u64::cast_signed).collect()
    }

    /// x y / 2^bits, entry by entry.
    fn multiply(&mut self, x: &Shared, y: &Shared, bits: u32) -> Shared {
        let (mut terms, mut out) = (Terms::default(), Shared::default());
        terms.clear(&self.computation, x.length);
        terms.add_products(0, (x, 0..x.length), (y, 0..y.length));
        self.computation.truncate(&mut terms, bits, &mut out, &mut self.wire);
        out
    }

    /// max(0, x) / 2^bits.
    fn rectify(&mut self, x: &Shared, bits: u32) -> Shared {
        let (mut terms, mut scratch, mut out) = (Terms::default(), Shared::default(), Shared::default());
        terms.clear(&self.computation, x.length);
        terms.add_shifted(0, x, 0..x.length, 0);
        self.computation.rectify(&mut terms, bits, (&mut scratch, &mut out), &mut self.wire);
        out
    }
}

const LIMIT: i64 = (1 << 62) - 1;

/// Numbers at and near the limits, and random ones of all sizes.
fn numbers() -> Vec<i64> {
    let mut all = vec![0, 1, -1, 2, -2, LIMIT, -LIMIT, LIMIT - 1, 1 - LIMIT];
    for bits in 1..62 {
        all.extend([1 << bits, -(1 << bits), (1 << bits) - 1, 1 - (1 << bits)]);
    }
    all.extend((0..2000u64).map(|i| mix(i).cast_signed() >> (2 + i % 60)));
    all
}

#[test]
fn shares_open_to_what_was_shared() {
    let mut three = Three::new(None);
    let words = [0, 1, -1, i64::MAX, i64::MIN, 12345];
    let shared = three.share(&words, None);
    assert_eq!(three.open(&shared), words);
    let mut moved = three.computation.public(&[7, 8]);
    three.computation.add_public(&mut moved, 1..2, 10);
    moved.copy_from(0, &shared, 5..6);
    assert_eq!(three.open(&moved), [12345, 18]);
}

#[test]
fn a_truncation_is_off_by_less_than_one_and_right_in_the_mean() {
    let mut three = Three::new(None);
    let words = numbers();
    for bits in [1, 13, 24, 40] {
        let (shared, mut terms, mut out) = (three.share(&words, None), Terms::default(), Shared::default());
        terms.clear(&three.computation, words.len());
        terms.add_shifted(0, &shared, 0..words.len(), 0);
        three.computation.truncate(&mut terms, bits, &mut out, &mut three.wire);
        for (found, x) in three.open(&out).into_iter().zip(&words) {
            assert!(
                found == x >> bits || (found == (x >> bits) + 1 && x & ((1 << bits) - 1) != 0),
                "{x} {bits}: {found}"
            );
        }
    }
    // A quarter of a unit: up in a quarter of the cases.
    let many = three.share(&[-3 * 256; 40_000], None);
    let one = three.share(&[1; 40_000], None);
    let product = three.multiply(&many, &one, 10);
    let up = three.open(&product).into_iter().filter(|x| *x == 0).count() as f64;
    assert!((up - 10_000.0).abs() < 6.0 * 7500f64.sqrt(), "{up}");
}

#[test]
fn negative_numbers_become_zero_and_others_stay() {
    let mut three = Three::new(None);
    let words = numbers();
    for bits in [1, 24] {
        let shared = three.share(&words, None);
        let out = three.rectify(&shared, bits);
        for (found, x) in three.open(&out).into_iter().zip(&words) {
            let expected = if *x < 0 { 0 } else { x >> bits };
            assert!(found == expected || (*x > 0 && found == expected + 1), "{x} {bits}: {found}");
        }
    }
}

#[test]
fn a_selection_keeps_words_where_the_condition_is_not_negative() {
    let mut three = Three::new(None);
    let words = numbers();
    let (condition, value) = (three.share(&words, None), three.share(&vec![-77; words.len()], None));
    let (mut terms, mut out) = (Terms::default(), Shared::default());
    terms.clear(&three.computation, words.len());
    terms.add_shifted(0, &condition, 0..words.len(), 0);
    three.computation.select(&mut terms, &value, &mut out, &mut three.wire);
    let expected: Vec<i64> = words.iter().map(|x| if *x >= 0 { -77 } else { 0 }).collect();
    assert_eq!(three.open(&out), expected);
}

#[test]
fn reciprocals_have_the_precision_of_the_format() {
    let (mut three, bits) = (Three::new(None), 24);
    let numbers: Vec<f64> = (0..500).map(|i| 2f64.powf(f64::from(i) / 500.0 * 24.0 - 12.0)).collect();
    let words: Vec<i64> = numbers.iter().map(|x| (x * 2f64.powi(24)) as i64).collect();
    let d = three.share(&words, None);
    let mut reciprocals = Reciprocals::new(&three.computation, words.len(), bits, -12..12);
    let mut out = Shared::default();
    reciprocals.invert(&mut three.computation, &d, &mut out, &mut three.wire);
    for (found, d) in three.open(&out).into_iter().zip(&words) {
        let (found, exact) = (found as f64 / 2f64.powi(24), 2f64.powi(24) / *d as f64);
        // The last product is off by a unit, and d y by another one, times y.
        assert!(
            (found - exact).abs() <= 2f64.powi(-24) * (4.0 + 4.0 * exact) + 2f64.powi(-24) * exact,
            "{exact}: {found}"
        );
    }
}

/// Of words of all sizes, in shapes with and without remainders.
#[test]
fn sums_of_products_equal_plain_loops() {
    for (rows, width, k) in [(5, 7, 3), (6, 19, 6), (1, 8, 4), (8, 24, 5)] {
        let mut three = Three::new(None);
        let draw = |length: usize, seed: u64| -> Vec<i64> {
            (0..length as u64).map(|i| mix(i ^ (seed << 32)).cast_signed()).collect()
        };
        let [x, f, h] = [draw(rows * width, 1), draw(k * width, 2), draw(k * rows, 3)];
        let [xs, fs, hs] = [&x, &f, &h].map(|words| three.share(words, None));
        let triangle = k * (k + 1) / 2;
        let (mut terms, mut out) = (Terms::default(), Shared::default());
        terms.clear(&three.computation, k * rows + k * width + triangle + 2 * width);
        terms.add_rows_times(0, &xs, &fs, (rows, width, k));
        terms.add_combined_rows(k * rows, &xs, &hs, (rows, width, k));
        terms.add_gram(k * (rows + width), &fs, (width, k));
        let scaled = k * (rows + width) + triangle;
        terms.add_scaled(scaled, (&fs, 0..width), (&hs, 2), true);
        terms.add_shifted(scaled + width, &fs, width..2 * width, 3);
        let number = three.computation.numbers(1);
        three.computation.reshare(number, &mut terms, &mut out, &mut three.wire);
        let dot = |pairs: &mut dyn Iterator<Item = (i64, i64)>| {
            pairs.fold(0i64, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(b)))
        };
        let mut expected = Vec::new();
        for l in 0..k {
            expected.extend((0..rows).map(|i| dot(&mut (0..width).map(|j| (x[i * width + j], f[l * width + j])))));
        }
        for l in 0..k {
            expected.extend((0..width).map(|j| dot(&mut (0..rows).map(|i| (x[i * width + j], h[l * rows + i])))));
        }
        for a in 0..k {
            expected.extend((0..=a).map(|b| dot(&mut (0..width).map(|j| (f[a * width + j], f[b * width + j])))));
        }
        expected.extend((0..width).map(|j| f[j].wrapping_mul(h[2]).wrapping_neg()));
        expected.extend((0..width).map(|j| f[width + j] << 3));
        assert_eq!(three.open(&out), expected, "{rows} x {width}, k = {k}");
    }
}

#[test]
fn rounds_and_words_are_those_of_the_documentation() {
    let mut three = Three::new(None);
    let shared = three.share(&[5; 128], None);
    let count = |three: &mut Three, run: &mut dyn FnMut(&mut Three)| {
        three.wire = InProcess::default();
        run(three);
        (three.wire.rounds, three.wire.words)
    };
    assert_eq!(count(&mut three, &mut |t| drop(t.multiply(&shared, &shared, 2))), (2, super::truncate_words(128)));
    assert_eq!(count(&mut three, &mut |t| drop(t.rectify(&shared, 2))), (10, super::rectify_words(128)));
}

proptest! {
    #[test]
    fn products_of_any_factors_are_off_by_less_than_one(pairs in prop::collection::vec((-(1i64 << 31)..1 << 31, -(1i64 << 30)..1 << 30), 1..80)) {
        let mut three = Three::new(None);
        let [x, y] = [pairs.iter().map(|p| p.0).collect::<Vec<_>>(), pairs.iter().map(|p| p.1).collect()];
        let (a, b) = (three.share(&x, None), three.share(&y, None));
        let product = three.multiply(&a, &b, 20);
        for (found, (x, y)) in three.open(&product).into_iter().zip(&pairs) {
            prop_assert!((0..=1).contains(&(found - ((x * y) >> 20))));
        }
    }
}

/// The messages that each party receives in a computation with these inputs. `repeated`: with two products from the same streams.
fn received(x: &[i64], repeated: bool) -> [Vec<Vec<u64>>; COMPUTING] {
    const BITS: u32 = 24;
    let mut three = Three::new(None);
    let words: Vec<u64> = x.iter().map(|x| x.cast_unsigned()).collect();
    let mut shared = three.computation.zeros(words.len());
    for (index, mut message) in shares_of(&words, &mut secret_rng(None, 0).unwrap()).into_iter().enumerate() {
        three.computation.accept(index, &message, &mut shared, 0..words.len());
        three.wire.seen[index].push(message.elements(crate::WireAccess::of_communicator()).to_vec());
    }
    let number = three.computation.number;
    let squares = three.multiply(&shared, &shared, BITS);
    if repeated {
        three.computation.number = number;
        let _ = three.multiply(&shared, &shared, BITS);
    }
    let kept = three.rectify(&shared, 8);
    let mixed = three.multiply(&squares, &kept, BITS);
    let _ = three.rectify(&mixed, 8);
    let (mut reciprocals, mut out) = (Reciprocals::new(&three.computation, x.len(), BITS, -2..2), Shared::default());
    reciprocals.invert(&mut three.computation, &kept, &mut out, &mut three.wire);
    three.wire.seen
}

/// Whether words are not uniformly random, by chi-square tests on the bytes and on the bits at each place of a word, with an error
/// rate of 1e-6 over `tests` calls.
fn is_biased(words: &[u64], tests: usize) -> bool {
    let limit = |freedom: f64, places: usize| {
        ChiSquared::new(freedom).unwrap().inverse_cdf(1.0 - 0.5e-6 / (places * tests) as f64)
    };
    let statistic = |counts: &[f64]| {
        let expected = words.len() as f64 / counts.len() as f64;
        counts.iter().map(|count| (count - expected).powi(2) / expected).sum::<f64>()
    };
    let bytes = |place: usize| {
        let mut counts = [0f64; 256];
        words.iter().for_each(|word| counts[word.to_le_bytes()[place] as usize] += 1.0);
        statistic(&counts)
    };
    let bits = |place: usize| {
        let ones = words.iter().filter(|word| *word >> place & 1 == 1).count() as f64;
        statistic(&[ones, words.len() as f64 - ones])
    };
    // The distribution is that of chi-square where each byte is expected a few times.
    (words.len() >= 2000 && (0..8).any(|place| bytes(place) > limit(255.0, 8)))
        || (words.len() >= 50 && (0..64).any(|place| bits(place) > limit(1.0, 64)))
}

/// Whether a message, or the difference or exclusive or of two of the same length, is not uniformly random.
fn tells_something(messages: &[Vec<u64>]) -> bool {
    let tests = COMPUTING * (messages.len() + 1).pow(2);
    let pairs = |i: usize| messages[..i].iter().map(move |other| (&messages[i], other));
    messages.iter().any(|message| is_biased(message, tests))
        || (0..messages.len()).flat_map(pairs).filter(|(a, b)| a.len() == b.len()).any(|(a, b)| {
            let combined = |f: fn(u64, u64) -> u64| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect::<Vec<_>>();
            is_biased(&combined(u64::wrapping_sub), tests) || is_biased(&combined(|a, b| a ^ b), tests)
        })
}

/// Whatever the inputs are, all messages are uniformly random, and so are any two of them together. Inputs, terms without a mask,
/// and two messages from one stream are found.
#[test]
fn what_a_party_receives_is_random() {
    const COUNT: usize = 4096;
    let mut rng = secret_rng(Some(1), 1).unwrap();
    let small = vec![3 << 20; COUNT];
    let large: Vec<i64> = (0..COUNT).map(|_| (rng.next_u64() >> 34) as i64 - (1 << 29)).collect();
    for inputs in [&small, &large] {
        for (party, messages) in received(inputs, false).iter().enumerate() {
            assert!(messages.len() > 25 && !tells_something(messages), "party {party}: {}", messages.len());
        }
        assert!(
            received(inputs, true).iter().any(|messages| tells_something(messages)),
            "streams that repeat are found"
        );
        let words: Vec<u64> = inputs.iter().map(|x| x.cast_unsigned()).collect();
        assert!(tells_something(&[words]));
    }
    let three = Three::new(None);
    let (shared, mut terms) = (three.computation.public(&[7; COUNT]), Terms::default());
    terms.clear(&three.computation, COUNT);
    terms.add_products(0, (&shared, 0..COUNT), (&shared, 0..COUNT));
    assert!(tells_something(&[std::mem::take(&mut terms.parts[0])]), "a term without a mask is found");
}

#[test]
fn shares_of_two_runs_do_not_fit() {
    let [mut one, mut other] = [Three::new(None), Three::new(None)];
    let [own, foreign] = [&mut one, &mut other].map(|three| three.computation.tags());
    assert!(one.computation.are_of_one_run(&own, &mut one.wire));
    for party in 0..COMPUTING {
        let mut mixed = own.clone();
        mixed[party] = foreign[party].clone();
        assert!(!one.computation.are_of_one_run(&mixed, &mut one.wire), "{party}");
    }
    // A resumed run has other keys, and the tags of the run that saved the shares.
    assert!(other.computation.are_of_one_run(&own, &mut other.wire));
}

#[test]
#[should_panic(expected = "has been used")]
fn no_stream_is_used_again() {
    let mut three = Three::new(None);
    three.computation.begin(1);
    let shared = three.share(&[1; 4], None);
    let _ = three.multiply(&shared, &shared, 1);
    three.computation.begin(1);
}

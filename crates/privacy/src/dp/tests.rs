//! The guarantee itself: the best distinguishing attack between two neighbouring messages.

use rand::Rng;
use statrs::distribution::{ContinuousCDF, Normal};

use fednmf_audit::distinguishing::lower_bound;
use fednmf_linalg::Real;
use fednmf_linalg::random::secret_rng;

use super::releases::Clipping;
use super::{Bound, ColumnBound, Mechanism, NOISE_KEY, NoisePlan, NoiseRequest, Releases, gaussian};

/// Probability that a correct mechanism fails a test.
const ERROR_RATE: f64 = 1e-6;
const TRIALS: usize = 40_000;

fn request(mechanism: Mechanism, epsilon: f64, releases: u64) -> NoiseRequest {
    NoiseRequest { mechanism, epsilon: Some(epsilon), delta: 1e-5, noise: None, classic: false, releases }
}

/// The same with this noise, and no limit on the number of releases.
fn unlimited(noise: f64, request: NoiseRequest) -> NoiseRequest {
    NoiseRequest { noise: Some(noise), epsilon: None, releases: u64::MAX, ..request }
}

fn releases(plan: NoisePlan, parties: usize) -> Releases {
    let mut random = secret_rng(None, 1).unwrap();
    let keys = (0..parties).map(|_| {
        let mut key = [0; NOISE_KEY];
        random.fill_bytes(&mut key);
        key
    });
    Releases::new(plan, keys.collect())
}

/// Two messages as far apart as the bound allows.
fn neighbours(mechanism: Mechanism, bound: Bound, length: usize) -> [Vec<f64>; 2] {
    let zeros = vec![0.0; length];
    let unit = |at: usize, x: f64| {
        let mut v = zeros.clone();
        v[at] = x;
        v
    };
    match (mechanism, bound) {
        (_, Bound::Ball(_)) => [unit(0, -1e9), unit(0, 1e9)],
        (_, Bound::Columns(c)) => [unit(0, 3.0), unit(0, 3.0 + c.norm * c.norm)],
        (_, Bound::Units(k)) => {
            let each = length / k;
            let at = |first: usize| (0..length).map(|i| f64::from(u8::from(i % each == first))).collect();
            [at(0), at(1)]
        }
        (_, Bound::Ones(c)) => {
            let set = |from: usize| (0..length).map(|i| f64::from(u8::from((from..from + c).contains(&i)))).collect();
            [set(0), set(c)]
        }
        _ => [zeros.clone(), vec![1.0; length]],
    }
}

/// The test statistic of a release: its likelihood ratio between the two messages (for Laplace noise, nearly).
fn statistic(plan: &NoisePlan, [a, b]: &[Vec<f64>; 2], released: &[f64]) -> f64 {
    let laplace = plan.mechanism() == Mechanism::Laplace;
    let each = released.iter().zip(a.iter().zip(b));
    each.map(|(x, (a, b))| if laplace { (x - a).abs() - (x - b).abs() } else { (b - a) * (x - 0.5 * (a + b)) }).sum()
}

/// Whether a threshold on the statistic violates P(S | b) ≤ e^ε P(S | a) + δ significantly.
fn violates(epsilon: f64, delta: f64, a: &[f64], b: &[f64]) -> bool {
    let mut thresholds: Vec<f64> = b.to_vec();
    thresholds.sort_unstable_by(f64::total_cmp);
    let n = TRIALS as f64;
    let z = Normal::standard().inverse_cdf(1.0 - ERROR_RATE / 20.0);
    (1..20).any(|i| {
        let t = thresholds[i * thresholds.len() / 20];
        let share = |x: &[f64]| x.iter().filter(|e| **e >= t).count() as f64 / n;
        let (p, q) = (share(b), share(a));
        let sd = ((p * (1.0 - p) + (2.0 * epsilon).exp() * q.max(1.0 / n)) / n).sqrt();
        p - epsilon.exp() * q - delta > z * sd
    })
}

fn samples(releases: &mut Releases, pair: &[Vec<f64>; 2], which: usize) -> Vec<f64> {
    // The clipped messages, which the attacker knows.
    let clipped = [0, 1].map(|w: usize| {
        let clipping = Clipping::new(releases.plan(), &pair[w], None);
        (0..pair[w].len()).map(|at| clipping.entry(at, pair[w][at], 0.0)).collect::<Vec<f64>>()
    });
    let mut message = vec![0.0; pair[0].len()];
    (0..TRIALS)
        .map(|_| {
            releases.open::<f64>(0, &[]).unwrap();
            message.copy_from_slice(&pair[which]);
            releases.release(0, &mut message, None);
            statistic(releases.plan(), &clipped, &message)
        })
        .collect()
}

const COLUMNS: ColumnBound = ColumnBound { norm: 0.7, all: false, columns: 1000, rounding: 1e-6 };

const CASES: [(Mechanism, Bound); 8] = [
    (Mechanism::Gaussian, Bound::Box),
    (Mechanism::Gaussian, Bound::Units(2)),
    (Mechanism::Gaussian, Bound::Ball(0.3)),
    (Mechanism::Gaussian, Bound::Columns(COLUMNS)),
    (Mechanism::Laplace, Bound::Box),
    (Mechanism::Laplace, Bound::Ball(4.0)),
    (Mechanism::Xor, Bound::Box),
    (Mechanism::Xor, Bound::Ones(2)),
];

#[test]
fn a_release_is_private_and_one_with_less_noise_is_not() {
    for (mechanism, bound) in CASES {
        let plan = NoisePlan::new(request(mechanism, 1.0, 1), bound, 6, None).unwrap();
        assert!(plan.epsilon(1) <= 1.0 && plan.epsilon(1) > 0.99, "{mechanism:?} {bound:?}: {}", plan.epsilon(1));
        let pair = neighbours(mechanism, bound, 6);
        let found = |noise: f64| {
            let request = unlimited(noise, request(mechanism, 1.0, 1));
            let mut releases = releases(NoisePlan::new(request, bound, 6, None).unwrap(), 1);
            [0, 1].map(|which| samples(&mut releases, &pair, which))
        };
        let [a, b] = found(plan.noise());
        assert!(!violates(1.0, 1e-5, &a, &b), "{mechanism:?} {bound:?}");
        let [a, b] = found(0.4 * plan.noise());
        assert!(violates(1.0, 1e-5, &a, &b), "{mechanism:?} {bound:?}: less noise is not detected");
    }
}

/// An empirical lower bound on ε is positive for a loose ε, stays below the claimed one, and exceeds it if the noise is a
/// tenth of the required noise.
#[test]
fn an_audit_stays_below_epsilon_and_detects_too_little_noise() {
    const LOOSE: f64 = 4.0;
    for (mechanism, bound) in CASES {
        let plan = NoisePlan::new(request(mechanism, LOOSE, 1), bound, 6, None).unwrap();
        let pair = neighbours(mechanism, bound, 6);
        let audit = |noise: f64| {
            let request = unlimited(noise, request(mechanism, LOOSE, 1));
            let mut releases = releases(NoisePlan::new(request, bound, 6, None).unwrap(), 1);
            let [a, b] = [0, 1].map(|which| samples(&mut releases, &pair, which));
            lower_bound(&b, &a, 1e-5, ERROR_RATE).epsilon
        };
        let (whole, tenth) = (audit(plan.noise()), audit(0.1 * plan.noise()));
        assert!(whole < LOOSE && whole > 0.25 * LOOSE, "{mechanism:?} {bound:?}: {whole}");
        assert!(tenth > LOOSE, "{mechanism:?} {bound:?}: {tenth}");
    }
}

/// A release is a whole number of steps for every message, so that its last bits reveal nothing about the message
/// (Mironov, On Significance of the Least Significant Bits for Differential Privacy, CCS 2012), in either precision and
/// also around a reference.
#[test]
fn releases_lie_on_the_grid_whatever_the_message() {
    for bound in [Bound::Box, Bound::Units(2), Bound::Ball(0.3), Bound::Columns(COLUMNS)] {
        let plan = NoisePlan::new(request(Mechanism::Gaussian, 1.0, 1000), bound, 6, None).unwrap();
        let mut all = releases(plan, 1);
        let grid = plan.grid();
        for offset in [0.0, 1.0 / 3.0, 0.1 + 1e-13] {
            all.open::<f64>(0, &[]).unwrap();
            let mut message = [0.1, 0.7, 0.2, 1e-9, 0.3, 0.5].map(|x: f64| x * (1.0 + offset) / 3.0);
            all.release(0, &mut message, None);
            assert!(message.iter().all(|x| x / grid == (x / grid).round()), "{bound:?}: {message:?}");
            let mut single = [0.1f32, 0.7, 0.2, 1e-9, 0.3, 0.5].map(|x| x * (1.0 + offset as f32) / 3.0);
            let mut words = [0; 6];
            all.open::<f64>(0, &[]).unwrap();
            // With the same noise, the value sent in single precision is its whole number of steps, rounded afterwards.
            all.release_words(0, Some(&single), None, &mut words);
            all.release(0, &mut single, None);
            let rounded = words.map(|word| all.decode(word) as f32);
            assert_eq!(single, rounded, "{bound:?}");
        }
    }
}

/// Clipping is necessary: messages outside the bound are distinguished.
#[test]
fn messages_beyond_the_bound_are_distinguished() {
    let plan = NoisePlan::new(request(Mechanism::Gaussian, 1.0, 1), Bound::Ball(0.3), 6, None).unwrap();
    let wide = unlimited(plan.noise(), request(Mechanism::Gaussian, 1.0, 1));
    let mut releases = releases(NoisePlan::new(wide, Bound::Ball(1.2), 6, None).unwrap(), 1);
    let pair = neighbours(Mechanism::Gaussian, Bound::Ball(0.3), 6);
    let [a, b] = [0, 1].map(|which| samples(&mut releases, &pair, which));
    assert!(violates(1.0, 1e-5, &a, &b));
}

#[test]
fn messages_are_clipped_and_counted() {
    let tiny = |bound| NoisePlan::new(unlimited(1e-9, request(Mechanism::Gaussian, 1.0, 1)), bound, 4, None).unwrap();
    let mut message = vec![3.0, -4.0, f64::NAN, 0.0];
    let mut all = releases(tiny(Bound::Ball(2.5)), 2);
    all.open::<f64>(0, &[]).unwrap();
    all.release(1, &mut message, Some(&[0.0, 0.0, 7.0, 0.0]));
    let expected = [1.5, -2.0, 7.0, 0.0];
    assert!(message.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{message:?}");
    assert_eq!(all.clipped().collect::<Vec<_>>(), [0, 1]);
    let mut units = releases(tiny(Bound::Units(2)), 1);
    units.open::<f64>(0, &[]).unwrap();
    let mut message = vec![3.0, 4.0, 0.6, -9.0];
    units.release(0, &mut message, None);
    assert!(message.iter().zip([0.6f64, 0.8, 0.6, 0.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{message:?}");
}

#[test]
fn the_shares_of_all_parties_but_one_add_up_to_the_planned_noise() {
    let parties = 9;
    let plan = NoisePlan::new(request(Mechanism::Gaussian, 1.0, 1), Bound::Box, 8, Some(parties)).unwrap();
    let many = unlimited(plan.noise(), request(Mechanism::Gaussian, 1.0, 1));
    let mut all = releases(NoisePlan::new(many, Bound::Box, 8, Some(parties)).unwrap(), parties);
    let mut words = vec![0u64; 8];
    let (mut squares, trials) = (0.0, 4000);
    for _ in 0..trials {
        all.open::<f64>(0, &[]).unwrap();
        let mut sum = [0u64; 8];
        // Without the last party, which knows its own share.
        for party in 0..parties - 1 {
            all.release_words(party, Some(&[1.0; 8]), None, &mut words);
            sum.iter_mut().zip(&words).for_each(|(s, w)| *s = s.wrapping_add(*w));
        }
        squares += sum.iter().map(|s| (all.decode(*s) - (parties - 1) as f64).powi(2)).sum::<f64>() / 8.0;
    }
    let ratio = squares / f64::from(trials) / plan.noise().powi(2);
    let z = Normal::standard().inverse_cdf(1.0 - ERROR_RATE);
    assert!((ratio - 1.0).abs() < z * (2.0 / (8.0 * f64::from(trials))).sqrt(), "{ratio}");
    // The sum needs no more noise than the message of a single party.
    let local = NoisePlan::new(request(Mechanism::Gaussian, 1.0, 1), Bound::Box, 8, None).unwrap();
    assert!((plan.noise() / local.noise() - 1.0).abs() < 1e-3, "{} {}", plan.noise(), local.noise());
}

#[test]
fn the_budget_covers_the_whole_run_and_is_not_exceeded() {
    for (mechanism, bound) in CASES {
        for (epsilon, count) in [(0.5, 1), (1.0, 20), (8.0, 300)] {
            let plan = NoisePlan::new(request(mechanism, epsilon, count), bound, 40, None).unwrap();
            let spent = plan.epsilon(count);
            assert!(spent <= epsilon && spent > 0.99 * epsilon, "{mechanism:?} {bound:?} {epsilon} {count}: {spent}");
            let mut run = releases(plan, 1);
            (0..count).for_each(|_| run.open::<f64>(0, &[]).unwrap());
            let refused = run.open::<f64>(0, &[]).unwrap_err();
            assert!(refused.message.contains("budget is spent") && run.done() == count);
        }
    }
    let classic = |epsilon| {
        let request = NoiseRequest { classic: true, ..request(Mechanism::Gaussian, epsilon, 2) };
        NoisePlan::new(request, Bound::Ball(1.0), 4, None)
    };
    assert!(classic(2.5).is_err_and(|e| e.message.contains("below 1")));
    let plan = classic(1.0).unwrap();
    assert!((plan.noise() / (2.0 * gaussian::classic(0.5, 5e-6)) - 1.0).abs() < 1e-3);
    assert!(plan.epsilon(2) < 1.0);
    // Noise and budget together determine the number of releases.
    let both = NoiseRequest { noise: Some(20.0), ..request(Mechanism::Gaussian, 1.0, 1000) };
    let plan = NoisePlan::new(both, Bound::Ball(1.0), 4, None).unwrap();
    let most = plan.releases();
    assert!(most > 1 && plan.epsilon(most) <= 1.0 && plan.epsilon(most + 1) > 1.0, "{most}");
}

#[test]
fn impossible_requests_are_refused() {
    let refused = |request: NoiseRequest, word: &str| {
        let error = NoisePlan::new(request, Bound::Ball(1.0), 100, None).unwrap_err();
        assert!(error.message.contains(word) && error.exit_code() == 2, "{error}");
    };
    refused(request(Mechanism::Gaussian, 0.0, 1), "--epsilon 0");
    refused(NoiseRequest { delta: 0.0, ..request(Mechanism::Gaussian, 1.0, 1) }, "--delta");
    refused(NoiseRequest { epsilon: None, ..request(Mechanism::Gaussian, 1.0, 1) }, "--epsilon");
    refused(NoiseRequest { noise: Some(0.7), ..request(Mechanism::Xor, 1.0, 1) }, "--dp-noise 0.7");
    refused(NoiseRequest { noise: Some(0.01), ..request(Mechanism::Gaussian, 1.0, 1) }, "one release costs");
    refused(NoiseRequest { delta: 0.0, ..request(Mechanism::Laplace, 1e-12, 1000) }, "grid");
}

/// Whatever a party's numbers are: its words differ, with the same noise, by at most the sensitivity. This is measured on
/// the words that are sent, in both precisions.
#[test]
fn hostile_messages_move_a_release_by_at_most_the_sensitivity() {
    fn messages<T: Real>(reference: &[T]) -> Vec<Vec<T>> {
        let sizes = [0.0, 5e-324, 1e-310, 1e-200, 1e-160, 1e-45, 1e-40, 1e-20, 1.0, 1e19, 1e30, 3e38, 1e154, 1.7e308];
        let sizes = sizes.into_iter().chain([f64::INFINITY, f64::NAN]).flat_map(|x| [x, -x]);
        let mut all = vec![reference.to_vec()];
        for size in sizes.map(T::from_f64) {
            all.push(vec![size; reference.len()]);
            all.push(reference.iter().enumerate().map(|(i, r)| if i == 1 { size } else { *r }).collect());
            all.push(reference.iter().enumerate().map(|(i, r)| if i % 2 == 0 { size } else { *r + size }).collect());
        }
        all
    }
    /// The largest move as a fraction of the sensitivity.
    fn largest<T: Real>(mechanism: Mechanism, bound: Bound) -> f64 {
        let plan = NoisePlan::new(request(mechanism, 1.0, 1), bound, 6, None).unwrap();
        let mut all = releases(plan, 1);
        all.open::<T>(0, &[]).unwrap();
        let reference = [0.3, 0.0, 1e-40, 7.0, 1e-12, 0.5].map(T::from_f64);
        let mut sent: Vec<Vec<i64>> = Vec::new();
        for message in messages(&reference) {
            let mut words = [0u64; 6];
            all.release_words(0, Some(&message), Some(&reference), &mut words);
            sent.push(words.iter().map(|word| word.cast_signed()).collect());
        }
        let mut most: f64 = 0.0;
        for (a, b) in sent.iter().flat_map(|a| sent.iter().map(move |b| (a, b))) {
            let each = a.iter().zip(b).map(|(a, b)| a.wrapping_sub(*b) as f64 * plan.grid());
            let moved = match mechanism {
                Mechanism::Laplace => each.map(f64::abs).sum(),
                _ => each.map(|x| x * x).sum::<f64>().sqrt(),
            };
            assert!(moved <= plan.sensitivity(), "{mechanism:?} {bound:?}: {moved} of {}", plan.sensitivity());
            most = most.max(moved / plan.sensitivity());
        }
        most
    }
    for bound in [Bound::Box, Bound::Units(2), Bound::Ball(0.3), Bound::Ball(1e-30), Bound::Ball(1e30)] {
        for mechanism in [Mechanism::Gaussian, Mechanism::Laplace] {
            let (double, single) = (largest::<f64>(mechanism, bound), largest::<f32>(mechanism, bound));
            // The bounds are nearly attained, except that of Laplace noise on components of norm 1.
            assert!(double.min(single) > 0.4, "{mechanism:?} {bound:?}: {double} {single}");
        }
    }
}

#[test]
#[should_panic(expected = "a sum over columns is not finite")]
fn a_sum_over_columns_that_is_not_finite_is_never_replaced() {
    let plan = NoisePlan::new(request(Mechanism::Gaussian, 1.0, 1), Bound::Columns(COLUMNS), 6, None).unwrap();
    let mut all = releases(plan, 1);
    all.open::<f64>(0, &[]).unwrap();
    all.release_words(0, Some(&[0.0, 1.0, f64::NAN, 0.0, 0.0, 0.0]), None, &mut [0; 6]);
}

#[test]
fn bounds_at_which_norms_underflow_or_overflow_are_refused() {
    for clip in [1e-200, 1e-101, 1e101, 1e300] {
        let error = NoisePlan::new(request(Mechanism::Gaussian, 1.0, 1), Bound::Ball(clip), 6, None).unwrap_err();
        assert!(error.message.contains("--clip") && error.exit_code() == 2, "{error}");
    }
}

/// Two messages with equal noise differ by exactly what is behind the noise. So the noise is equal only where the messages
/// are: at the same states of the same run with the same options.
#[test]
fn noise_is_fresh_at_every_other_state() {
    let plan = NoisePlan::new(request(Mechanism::Gaussian, 1.0, 10), Bound::Box, 4, None).unwrap();
    let start = releases(plan, 1);
    let forked = |options: &[u8], states: &[(usize, f64)]| {
        let mut fork = releases(plan, 1);
        fork.restore(0, start.saved().next().unwrap());
        fork.bind(options);
        let mut words = [0; 4];
        for (iteration, shared) in states {
            fork.open(*iteration, &[*shared, 2.0]).unwrap();
            fork.release_words(0, Some(&[0.5; 4]), None, &mut words);
        }
        words
    };
    let first = forked(b"k = 3", &[(0, 1.0), (1, 4.0)]);
    assert_eq!(forked(b"k = 3", &[(0, 1.0), (1, 4.0)]), first, "the same states");
    let others = [
        forked(b"k = 3", &[(0, 1.0), (1, 4.5)]),
        // The private factor remembers what was shared earlier.
        forked(b"k = 3", &[(0, 1.0 + f64::EPSILON), (1, 4.0)]),
        forked(b"k = 3", &[(0, 1.0), (2, 4.0)]),
        forked(b"k = 3", &[(1, 4.0)]),
        forked(b"k = 4", &[(0, 1.0), (1, 4.0)]),
    ];
    for (i, other) in others.iter().enumerate() {
        assert!(other.iter().zip(&first).all(|(a, b)| a != b), "{i}: {other:?} {first:?}");
    }
}

#[test]
fn a_resumed_run_repeats_its_noise() {
    let plan = NoisePlan::new(request(Mechanism::Gaussian, 1.0, 10), Bound::Box, 4, None).unwrap();
    let (mut first, mut second) = (releases(plan, 2), releases(plan, 2));
    first.open::<f64>(0, &[]).unwrap();
    second.restore(1, first.saved().nth(1).unwrap());
    let next = |all: &mut Releases| {
        all.open::<f64>(0, &[]).unwrap();
        let mut message = vec![0.5; 4];
        all.release(1, &mut message, None);
        message
    };
    assert_eq!(next(&mut first), next(&mut second));
    assert_eq!((second.done(), first.done()), (2, 2));
}

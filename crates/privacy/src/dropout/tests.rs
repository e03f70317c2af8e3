//! All stages in one process, with parties that drop out at each.

use std::collections::BTreeMap;

use fednmf_base::error::Result;
use fednmf_linalg::random::secret_rng;

use super::protocol::{PartyRound, RoundKeys, SEALED, Sealed, ServerRound, UnmaskRequest};

const LENGTH: usize = 40;

/// The parties that drop out before each of the four stages.
type Dropouts = [Vec<usize>; 4];

fn value(party: usize, at: usize) -> u64 {
    (party as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32)
}

/// A whole round: the sum, and the parties that it includes.
fn round(parties: usize, threshold: usize, losses: &Dropouts) -> Result<(Vec<u64>, Vec<usize>)> {
    let mut all: Vec<PartyRound> =
        (0..parties).map(|p| PartyRound::new(p, threshold, &mut secret_rng(None, p as u64).unwrap())).collect();
    let mut left: Vec<usize> = (0..parties).collect();
    let mut lose = |stage: usize| {
        left.retain(|p| !losses[stage].contains(p));
        left.clone()
    };
    let keys: BTreeMap<usize, RoundKeys> = lose(0).into_iter().map(|p| (p, all[p].keys())).collect();
    let mut sent = BTreeMap::new();
    for p in lose(1) {
        sent.insert(p, all[p].share(&keys)?);
    }
    let shared: Vec<usize> = sent.keys().copied().collect();
    let mut server = ServerRound::new(threshold, keys, shared, LENGTH);
    for p in lose(2) {
        let mine = sent.iter().filter(|(from, _)| **from != p).map(|(from, to)| (*from, to[&p])).collect();
        let mut values: Vec<u64> = (0..LENGTH).map(|at| value(p, at)).collect();
        let plain = values.clone();
        all[p].mask(&mine, &mut values)?;
        assert!(values.iter().zip(&plain).all(|(a, b)| a != b), "a term is not masked");
        server.add(&[p], &values);
    }
    let request = server.request()?;
    let answers = lose(3).into_iter().map(|p| Ok((p, all[p].answer(&request)?))).collect::<Result<Vec<_>>>()?;
    let present = request.present.clone();
    Ok((server.unmask(&answers)?, present))
}

fn expected(present: &[usize]) -> Vec<u64> {
    (0..LENGTH).map(|at| present.iter().fold(0u64, |s, p| s.wrapping_add(value(*p, at)))).collect()
}

#[test]
fn parties_that_drop_out_at_any_stage_leave_the_sum_of_the_others_or_an_error() {
    let (parties, threshold) = (7, 4);
    for stage in 0..4 {
        for lost in 0..=parties {
            // The first parties and the last ones: the signs of their masks differ.
            for gone in [(0..lost).collect::<Vec<_>>(), (parties - lost..parties).collect()] {
                let mut losses: Dropouts = Default::default();
                losses[stage] = gone.clone();
                match round(parties, threshold, &losses) {
                    Ok((sum, present)) => {
                        assert!(parties - lost >= threshold, "stage {stage}, {lost} lost");
                        // A party that drops out after its term arrived is still in the sum.
                        let in_it = if stage == 3 { parties } else { parties - lost };
                        assert_eq!(present.len(), in_it);
                        assert_eq!(sum, expected(&present), "stage {stage}, {gone:?} lost");
                    }
                    Err(e) => {
                        assert!(parties - lost < threshold, "stage {stage}, {lost} lost: {e}");
                        assert!(e.message.contains("too many have dropped out"), "{e}");
                    }
                }
            }
        }
    }
}

#[test]
fn losses_at_all_stages_together() {
    let losses = [vec![3], vec![0, 8], vec![5, 1], vec![9]];
    let (sum, present) = round(11, 5, &losses).unwrap();
    assert_eq!(present, [2, 4, 6, 7, 9, 10]);
    assert_eq!(sum, expected(&present));
    // One loss too many.
    let losses = [vec![3], vec![0, 8], vec![5, 1, 2], vec![9]];
    assert!(round(11, 5, &losses).is_err());
}

#[test]
fn nobody_reveals_both_secrets_of_a_party() {
    let mut all: Vec<PartyRound> =
        (0..3).map(|p| PartyRound::new(p, 2, &mut secret_rng(Some(1), p as u64).unwrap())).collect();
    let keys: BTreeMap<usize, RoundKeys> = all.iter().enumerate().map(|(p, x)| (p, x.keys())).collect();
    let sent: Vec<_> = all.iter_mut().map(|p| p.share(&keys).unwrap()).collect();
    let mine = [1, 2].into_iter().map(|from| (from, sent[from][&0])).collect();
    all[0].mask(&mine, &mut [0; 4]).unwrap();
    let answer = |present: &[usize], lost: &[usize]| {
        all[0].answer(&UnmaskRequest { present: present.to_vec(), lost: lost.to_vec() })
    };
    assert!(answer(&[0, 1], &[2]).is_ok());
    assert!(answer(&[0, 1, 2], &[2]).is_err_and(|e| e.message.contains("party 2")));
    assert!(answer(&[0], &[1, 2]).is_err());
    assert!(answer(&[0, 7], &[]).is_err_and(|e| e.message.contains("party 7")));
}

#[test]
fn the_server_alone_reads_neither_shares_nor_values() {
    // The same terms with other randomness give messages that have nothing in common.
    let run = |seed| {
        let mut all: Vec<PartyRound> =
            (0..3).map(|p| PartyRound::new(p, 2, &mut secret_rng(Some(seed), p as u64).unwrap())).collect();
        let keys: BTreeMap<usize, RoundKeys> = all.iter().enumerate().map(|(p, x)| (p, x.keys())).collect();
        let sent: Vec<_> = all.iter_mut().map(|p| p.share(&keys).unwrap()).collect();
        let mut values = vec![42; LENGTH];
        let mine = [1, 2].into_iter().map(|from| (from, sent[from][&0])).collect();
        all[0].mask(&mine, &mut values).unwrap();
        (sent[0][&1], values)
    };
    let ((sealed, masked), (other_sealed, other_masked)) = (run(1), run(2));
    assert_eq!(masked.iter().zip(&other_masked).filter(|(a, b)| a == b).count(), 0);
    let same = sealed.iter().zip(&other_sealed).filter(|(a, b)| a == b).count();
    assert!(same < 8, "{same} of {SEALED} bytes alike");
}

#[test]
fn wrong_answers_are_detected() {
    let parties = 4;
    let mut all: Vec<PartyRound> =
        (0..parties).map(|p| PartyRound::new(p, 3, &mut secret_rng(Some(9), p as u64).unwrap())).collect();
    let keys: BTreeMap<usize, RoundKeys> = all.iter().enumerate().map(|(p, x)| (p, x.keys())).collect();
    let sent: Vec<_> = all.iter_mut().map(|p| p.share(&keys).unwrap()).collect();
    let mut server = ServerRound::new(3, keys, (0..parties).collect(), LENGTH);
    for p in 0..3 {
        let mine = (0..parties).filter(|f| *f != p).map(|f| (f, sent[f][&p])).collect();
        let mut values = vec![1; LENGTH];
        all[p].mask(&mine, &mut values).unwrap();
        server.add(&[p], &values);
    }
    let request = server.request().unwrap();
    assert_eq!(request.lost, [3]);
    let mut answers: Vec<_> = (0..3).map(|p| (p, all[p].answer(&request).unwrap())).collect();
    answers[1].1.keys[0].1[0] ^= 1 << 40;
    assert!(server.unmask(&answers).is_err_and(|e| e.message.contains("party 3")));
}

#[test]
fn shares_that_were_tampered_with_are_refused() {
    let mut all: Vec<PartyRound> =
        (0..3).map(|p| PartyRound::new(p, 2, &mut secret_rng(Some(4), p as u64).unwrap())).collect();
    let keys: BTreeMap<usize, RoundKeys> = all.iter().enumerate().map(|(p, x)| (p, x.keys())).collect();
    let sent: Vec<_> = all.iter_mut().map(|p| p.share(&keys).unwrap()).collect();
    let mut mask = |from_1: Sealed| all[0].mask(&[(1, from_1), (2, sent[2][&0])].into(), &mut [0; 4]);
    for byte in [0, SEALED - 1] {
        let mut changed = sent[1][&0];
        changed[byte] ^= 1;
        assert!(mask(changed).is_err_and(|e| e.message.contains("party 1")));
    }
    // A message for another party, and a forged one.
    assert!(mask(sent[1][&2]).is_err() && mask([0; SEALED]).is_err());
    assert!(mask(sent[1][&0]).is_ok());
}

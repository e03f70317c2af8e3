//! The communicator on one process; `tests/program/ranks.rs` runs it on several.

use std::time::Duration;

use fednmf_privacy::Declared;

use super::*;

const TEST: MessageTag = MessageTag::new("test", Payload::Scalar);

fn entry(comm: &Communicator, tag: MessageTag) -> Entry {
    comm.ledger().messages().find(|(t, _)| **t == tag).map(|(_, entry)| *entry).unwrap_or_default()
}

#[test]
fn collectives_of_one_rank_are_the_identity() {
    let comm = Communicator::local();
    assert_eq!((comm.rank(), comm.size(), comm.is_root()), (0, 1, true));
    let mut x = [1.5f64, -2.0];
    comm.sum(TEST, &mut x);
    comm.max(TEST, &mut x);
    assert_eq!(comm.sum_while(TEST, &mut x, || 7), 7);
    assert_eq!(x, [1.5, -2.0]);
    let parts = Parts::new(std::slice::from_ref(&(0..2)), 1);
    let mut out = [0.0; 2];
    comm.all_gather(TEST, &x, &parts, &mut out);
    assert_eq!(out, x);
    out.fill(0.0);
    comm.reduce_scatter(TEST, &mut x, &parts, &mut out);
    assert_eq!(out, x);
    assert_eq!(comm.all_to_all(TEST, &[vec![3u32, 4]]), [3, 4]);
    assert_eq!(comm.between_parties(TEST, 2, &[vec![3u64, 4]], &[2]), [3, 4]);
    assert_eq!(comm.broadcast_value(TEST, "x".to_string()), "x");
    assert_eq!(comm.all_gather_value(TEST, &5), [5]);
    assert_eq!(comm.try_recv_control(CONTROL, None), None);
    assert_eq!((comm.split(3).size(), comm.subgroup(&[0]).size()), (1, 1));
    comm.barrier();
}

#[test]
fn messages_in_pieces_are_the_same() {
    let comm = Communicator::local().chunked(2);
    let parts = Parts::new(std::slice::from_ref(&(0..5)), 1);
    let (mut x, mut out) = ([1u32, 2, 3, 4, 5], [0; 5]);
    comm.all_gather(TEST, &x, &parts, &mut out);
    assert_eq!(out, x);
    out.fill(0);
    comm.reduce_scatter(TEST, &mut x, &parts, &mut out);
    assert_eq!(out, x);
    assert_eq!(comm.sum_while(TEST, &mut x, || 7), 7);
    let mut bytes = b"a longer message".to_vec();
    comm.broadcast(TEST, &mut bytes);
    assert_eq!(bytes, b"a longer message");
}

#[test]
fn one_rank_has_party_bytes_and_no_mpi_bytes() {
    let comm = Communicator::local();
    comm.sum(TEST, &mut [0.0f64; 3]);
    let sum = entry(&comm, TEST);
    assert_eq!((sum.calls, sum.party_bytes, sum.mpi_bytes, sum.messages), (1, 48, 0, 0));
    comm.all_to_all(TEST, &[vec![1u8; 9]]);
    assert_eq!(entry(&comm, TEST), sum, "an exchange with oneself is not recorded");
    comm.between_parties(TEST, 5, &[vec![0u32; 9]], &[9]);
    comm.transfer(TEST, 0, 0, &mut [0.0f32; 4]);
    comm.transfer_on_edge(TEST, (2, 0), (3, 0), &mut [0u64; 2]);
    comm.record_local::<f32>(TEST, 6);
    let all = entry(&comm, TEST);
    assert_eq!((all.calls, all.party_bytes, all.mpi_bytes, all.messages), (5, 48 + 20 + 32 + 32 + 24, 0, 0));
    let edges: Vec<_> = comm.ledger().edges().map(|(edge, e)| (edge, e.calls, e.party_bytes)).collect();
    assert_eq!(edges, [((2, 3), 1, 16)]);
    // A server's messages do not count as a party's; splits share the ledger, new ledgers are empty.
    comm.split(0).server().sum(TEST, &mut [0.0f64; 3]);
    assert_eq!((entry(&comm, TEST).calls, entry(&comm, TEST).party_bytes), (6, all.party_bytes));
    assert_eq!(entry(&comm.with_new_ledger(), TEST), Entry::default());
}

#[test]
fn sums_over_parties_are_exact_and_refuse_infinity() {
    let comm = Communicator::local();
    let terms = [[1e16, 1.0], [1.0, 2.0], [-1e16, 3.0]];
    let mut out = [0.0; 2];
    comm.sum_parties(TEST, 3, terms.iter().map(|t| Declared(t.as_slice())), &mut out).unwrap();
    assert_eq!(out, [1.0, 6.0]);
    assert_eq!(entry(&comm, TEST).party_bytes, 2 * 3 * 2 * 8);
    assert_eq!(entry(&comm, LARGEST).party_bytes, 2 * 3 * 8);
    let error = comm.sum_parties(TEST, 1, [Declared([f64::NAN].as_slice())].into_iter(), &mut out[..1]).unwrap_err();
    assert!(error.is_shared() && error.message.starts_with("test: "), "{error}");
    let mut words = [u64::MAX, 1];
    comm.sum_of_hosted(TEST, 2, &mut words);
    assert_eq!(words, [u64::MAX, 1]);
}

/// As many bytes as with three ranks that host one party each.
#[test]
fn each_party_receives_what_is_gathered() {
    let comm = Communicator::local();
    let (parts, mut out) = (Parts::new(std::slice::from_ref(&(0..3)), 4), [0u8; 12]);
    comm.gather_of_hosted(TEST, 3, &[1; 12], &parts, &mut out);
    comm.max_of_hosted(TEST, 3, &mut [1u32]);
    assert_eq!((out, entry(&comm, TEST).party_bytes), ([1; 12], 12 + 3 * 12 + 2 * 3 * 4));
}

#[test]
fn errors_become_known_to_all() {
    let comm = Communicator::local();
    assert_eq!(comm.agree_on_error(Ok(3)), Ok(3));
    let error = comm.agree_on_error::<()>(Err(Error::input("line 7"))).unwrap_err();
    assert!(error.is_shared() && error.exit_code() == 2 && error.message == "line 7");
}

#[test]
fn work_and_spans_are_recorded() {
    let comm = Communicator::local();
    assert_eq!(comm.span("round", || comm.work("update", || std::thread::sleep(Duration::from_millis(2)))), ());
    let ledger = comm.ledger();
    let (work, spans): (Vec<_>, Vec<_>) = (ledger.work().collect(), ledger.spans().collect());
    assert!(work[0].0 == "update" && work[0].1.seconds >= 0.002 && spans[0].1.seconds >= work[0].1.seconds);
}

#[test]
#[should_panic(expected = "there is no rank 1 besides this one")]
fn one_rank_has_nobody_to_send_to() {
    Communicator::local().send(TEST, 1, &[1u8]);
}

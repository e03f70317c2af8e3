//! Which transport a process uses, see `comm::transport::start`.

use crate::common::{fednmf, number};

const RUN: &str = "--algo syn-sd --parties 3 --input synthetic:planted,m=40,n=30,k=3 -k 3 --max-iters 5";

#[test]
fn an_unknown_transport_is_refused() {
    fednmf(0, RUN).env("FEDNMF_TRANSPORT", "tcp").refused(&["FEDNMF_TRANSPORT=tcp", "mpi or local"]);
}

#[test]
#[cfg(feature = "mpi")]
fn one_process_needs_no_mpi_for_the_same_result() {
    let [mpi, local, default] = [Some("mpi"), Some("local"), None].map(|transport| {
        let run = fednmf(0, RUN).own_process();
        let run = if let Some(name) = transport { run.env("FEDNMF_TRANSPORT", name) } else { run };
        let summary = run.ok();
        let phases = summary["phases"].as_object().expect("phases");
        let bytes: Vec<_> = phases.iter().map(|(name, phase)| (name.clone(), phase["bytes"].clone())).collect();
        (number(&summary, "rel_error"), number(&summary, "bytes_sent"), number(&summary, "party_bytes"), bytes)
    });
    assert_eq!((&mpi, local.1), (&local, 0.0));
    assert_eq!(local, default);
}

#[test]
#[cfg(not(feature = "mpi"))]
fn several_processes_are_refused_without_mpi() {
    let launched = |rank, size| fednmf(0, RUN).env("PMI_RANK", rank).env("PMI_SIZE", size);
    launched("0", "2").refused(&["built without MPI", "2 processes", "FEDNMF_TRANSPORT=local"]);
    let other = launched("1", "2").run();
    assert!(other.code == Some(2) && other.stderr.is_empty(), "{other:?}");
    launched("0", "1").ok();
    let alone = launched("1", "2").env("FEDNMF_TRANSPORT", "local").ok();
    assert!(number(&alone, "rel_error") < 1.0);
    fednmf(0, RUN).env("FEDNMF_TRANSPORT", "mpi").refused(&["built without MPI", "FEDNMF_TRANSPORT=mpi"]);
}

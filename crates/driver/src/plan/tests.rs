use std::path::PathBuf;

use fednmf_data::Values;
use fednmf_files::Threshold;
use fednmf_linalg::ProductKernel;
use fednmf_report::Display;

use super::*;
use crate::FactorScale;
use crate::spec::{Consent, Every, Place, Requested};

const GIB: f64 = (1_u64 << 30) as f64;

fn spec(method: &str, k: usize) -> Spec {
    let method = registry::find(method).expect("a method").clone();
    Spec {
        method: Requested::new(method),
        input: InputSpec::parse("x.npy").unwrap(),
        input_text: "x.npy".into(),
        k,
        parties: None,
        skew: None,
        split: None,
        max_iters: 100,
        tol: None,
        target_error: None,
        time_limit: None,
        continue_on_loss: false,
        eval_every: 10,
        seed: 0,
        precision: Some(Precision::F64),
        kernel: Some(ProductKernel::Native),
        threads: 1,
        factor_scale: FactorScale::AsFound,
        outputs: Outputs { factors: None, add: false, report: None, place: Place::Anywhere },
        trace: None,
        transcript: None,
        transcript_key: None,
        record_view: None,
        checkpoint: None,
        checkpoint_every: Every::Auto,
        stall_timeout: None,
        resume: false,
        quiet: true,
        verbose: false,
        json: false,
        consent: Consent::default(),
        words: Vec::new(),
    }
}

/// A file of a dense matrix, or of a sparse one with `stored` entries.
fn found(rows: usize, cols: usize, stored: Option<u64>) -> Found {
    let header = Header {
        rows,
        cols,
        sparse: stored.is_some(),
        stored,
        by_rows: true,
        values: Values::Double,
        format: "npy <f8, C order".into(),
        files: None,
        labels: None,
        notes: Vec::new(),
        warnings: Vec::new(),
        items: None,
        common: None,
        image: None,
    };
    Found { header, split: PartySplit::Even, file_counts: Vec::new(), streaming: Ok(()), saved: None, nonce: None }
}

/// One node with `free` bytes of memory.
fn machine(ranks: usize, free: f64) -> Machine {
    Machine { ranks, owners: false, nodes: vec![Node::new("node", 0..ranks, free)], vendor: None }
}

fn planned(spec: &Spec, found: &Found) -> Planned {
    plan(spec, found, &machine(1, 100.0 * GIB)).unwrap_or_else(|e| panic!("{e}"))
}

fn refusal(spec: &Spec, found: &Found, machine: &Machine) -> String {
    plan(spec, found, machine).err().expect("a refusal").to_string()
}

#[test]
fn auto_chooses_by_shape_and_memory() {
    for (shape, stored, k, free, name, streamed) in [
        ((60_000, 60_000), None, 20, 64.0 * GIB, "dsanls", false),
        ((2000, 2000), None, 40, GIB, "hals", false),
        ((2000, 2000), Some(40_000), 4, GIB, "hals", false),
        // 29 GB of data: dsanls needs them in memory.
        ((60_000, 60_000), None, 20, 8.0 * GIB, "hals", true),
        ((2000, 2000), None, 40, 16e6, "hals", true),
    ] {
        let found = found(shape.0, shape.1, stored);
        let planned = plan(&spec("auto", k), &found, &machine(1, free)).unwrap_or_else(|e| panic!("{e}"));
        let is_streamed = matches!(planned.storage, Storage::Streamed { .. });
        assert_eq!((planned.description().name, is_streamed), (name, streamed), "{shape:?} {k} {free}");
        assert!(planned.method_why.is_some());
    }
    assert_eq!(planned(&spec("mu", 4), &found(2000, 2000, None)).method_why, None);
}

#[test]
fn memory_decides_where_the_matrix_is_kept() {
    let dense = found(1000, 1000, None);
    let hals = spec("hals", 5);
    let storage = |free| plan(&hals, &dense, &machine(1, free)).map(|planned| planned.storage);
    assert_eq!(storage(9e6).unwrap(), Storage::InMemory);
    let Ok(Storage::Streamed { lack, besides_panels }) = storage(7e6) else { panic!("8 MB are not in 7") };
    assert!(lack.contains("1 rank on node would need at least") && besides_panels < 1e6, "{lack} {besides_panels}");
    // In f32 it is half as large; in both it is half as large again.
    let storage = |precision, free| {
        let spec = Spec { precision: Some(precision), ..hals.clone() };
        plan(&spec, &dense, &machine(1, free)).map(|planned| planned.storage)
    };
    assert_eq!(storage(Precision::F32, 5e6).unwrap(), Storage::InMemory);
    assert_eq!(storage(Precision::Mixed, 13e6).unwrap(), Storage::InMemory);
    assert!(
        storage(Precision::Mixed, 11e6).err().unwrap().message.contains("--precision mixed holds the matrix twice")
    );
}

#[test]
fn a_matrix_that_cannot_be_held_is_refused_with_the_reason() {
    let small = machine(1, 7e6);
    let dense = found(1000, 1000, None);
    let message = refusal(&spec("fnmf", 5), &dense, &small);
    assert!(
        message.contains("fnmf needs the whole matrix in memory; ") && message.contains("--algo hals"),
        "{message}"
    );
    // Methods with another loss answer another question.
    let message = refusal(&spec("kl-cd", 5), &dense, &small);
    assert!(message.contains("kl-mu, kl-online do not (--algo kl-mu)") && !message.contains("hals"), "{message}");
    let message = refusal(&spec("beta-mu", 5), &dense, &small);
    assert!(message.contains("beta-mu needs the whole matrix in memory. Or"), "{message}");
    let generated = Found { streaming: Err("it is generated".into()), ..found(1000, 1000, None) };
    let message = refusal(&spec("hals", 5), &generated, &small);
    assert!(message.contains("in each iteration instead: it is generated. Or use more nodes"), "{message}");
}

#[test]
fn a_rank_without_a_party_needs_less() {
    let dense = found(1000, 1000, None);
    let two = Spec { parties: Some(2), ..spec("fnmf", 50) };
    let least = |rank| {
        let method = registry::find("fnmf").unwrap().clone();
        let footprint =
            Footprint { k: two.k, method: &*method, header: &dense.header, precision: Precision::F64, resuming: false };
        let parties = Parties { count: 2, ranks: 3 };
        footprint.least_bytes(&Layout::PartyRows { parties, split: PartySplit::Even }, parties, rank)
    };
    assert!(least(0) <= least(1));
    assert_eq!(least(1), least(2));
    let nodes = Node::new("node", 0..3, 1e9).needing(least);
    assert!((nodes.need / (least(0) + 2.0 * least(1)) - 1.0).abs() < 1e-12);
}

#[test]
fn the_grid_is_open_only_if_nonzeros_can_decide_it() {
    for (method, ranks, stored, open) in [
        ("hals", 6, Some(10_000), true),
        ("hals", 6, None, false),
        ("hals", 1, Some(10_000), false),
        ("dsanls", 6, Some(10_000), false),
        ("symnmf", 6, Some(10_000), false),
        ("fnmf", 6, Some(10_000), false),
    ] {
        let planned = plan(&spec(method, 4), &found(1200, 1200, stored), &machine(ranks, GIB));
        let planned = planned.unwrap_or_else(|e| panic!("{method}: {e}"));
        assert_eq!(planned.grid.is_some(), open, "{method} on {ranks}");
        if let Some(choice) = planned.grid {
            assert_eq!((choice.by_size, choice.row), (planned.layout.parts(), 32));
            assert_eq!(choice.room, GATHERED_SHARE * GIB / ranks as f64);
        }
    }
}

#[test]
fn the_layout_follows_the_method() {
    let layout = |method, ranks| {
        let planned = plan(&spec(method, 4), &found(1200, 600, None), &machine(ranks, GIB));
        planned.map_or_else(|e| panic!("{method}: {e}"), |planned| planned.layout)
    };
    let parties = Parties { count: 6, ranks: 6 };
    assert_eq!(layout("hals", 6), Layout::Grid { pr: 3, pc: 2 });
    assert_eq!(layout("dsanls", 6), Layout::RowsAndColumns { ranks: 6 });
    assert_eq!(layout("fnmf", 6), Layout::PartyRows { parties, split: PartySplit::Even });
    assert_eq!(layout("syn-sd", 6), Layout::PartyColumns { parties, split: PartySplit::Even });
}

#[test]
fn the_number_of_parties_comes_from_the_request_the_split_the_files_or_the_ranks() {
    let count = |parties, split: &PartySplit, files| {
        let mut found = found(12, 8, None);
        (found.header.files, found.split) = (files, split.clone());
        plan(&Spec { parties, ..spec("fnmf", 2) }, &found, &machine(2, GIB)).map(|planned| planned.parties.count)
    };
    let split = PartySplit::Counts(vec![4, 4, 4]);
    assert_eq!(count(None, &PartySplit::Even, None).unwrap(), 2);
    assert_eq!(count(None, &PartySplit::Even, Some(4)).unwrap(), 4);
    assert_eq!(count(None, &split, None).unwrap(), 3);
    assert_eq!(count(Some(6), &PartySplit::Even, None).unwrap(), 6);
    assert!(count(Some(2), &split, None).is_err());
}

#[test]
fn what_does_not_fit_the_matrix_is_refused() {
    let one = machine(1, GIB);
    assert!(refusal(&spec("hals", 9), &found(12, 8, None), &one).contains("at most 8 components"));
    assert!(refusal(&spec("hals", 1), &found(0, 8, None), &one).contains("the matrix is empty"));
    assert!(refusal(&spec("symnmf", 2), &found(12, 8, None), &one).contains("a square matrix"));
    let mut quantile = spec("fnmf", 2);
    quantile.input.binarize = Some(Threshold::Quantile(0.9));
    assert!(refusal(&quantile, &found(12, 8, None), &machine(2, GIB)).contains("--binarize: a quantile"));
    assert!(plan(&quantile, &found(12, 8, None), &one).is_ok());
}

#[test]
fn a_run_that_tells_too_much_is_refused_if_its_parties_hide_from_each_other() {
    let masked = |name: &str, given: &[(&str, &str)]| {
        let given: Vec<_> = given.iter().copied().chain([("secure_sum", "true")]).collect();
        let method = registry::find(name).unwrap().configure(&given).unwrap();
        Spec { method: Requested::new(method), parties: Some(3), ..spec(name, 5) }
    };
    // 300 private rows of 2000 entries, and 6000 of 60; the same as private columns.
    let (wide, long) = (found(300, 2000, None), found(6000, 60, None));
    let (tall, flat) = (found(2000, 300, None), found(60, 6000, None));
    let one = machine(1, GIB);
    for (name, found, other) in [("fnmf", &wide, &long), ("inmf", &wide, &long), ("syn-sd", &tall, &flat)] {
        let reason = refusal(&masked(name, &[]), found, &one);
        assert!(reason.contains("--max-iters") && reason.contains("--accept-risk membership"), "{name}: {reason}");
        let few = Spec { max_iters: 4, eval_every: 0, ..masked(name, &[]) };
        assert!(plan(&few, found, &one).is_ok(), "{name}");
        assert!(plan(&masked(name, &[]), other, &one).is_ok(), "{name}");
        let accepted = masked(name, &[("accept_risk", "membership,few-rows")]);
        assert_eq!(planned(&accepted, found).disclosure, None);
    }
    let noised = [("dp", "gaussian"), ("epsilon", "1"), ("clip", "1")];
    assert_eq!(planned(&masked("fedavg", &noised), &wide).disclosure, None);

    // In the clear it is said, unless the ranks have owners, which hide from each other too.
    let open = Spec { parties: Some(3), ..spec("fnmf", 5) };
    assert!(planned(&open, &wide).disclosure.is_some());
    assert!(refusal(&open, &wide, &Machine { owners: true, ..machine(3, GIB) }).contains("what a party sends"));
    assert_eq!(planned(&spec("hals", 5), &wide).disclosure, None);
}

#[test]
fn precision_and_kernels_follow_data_checkpoint_and_processor() {
    let open = Spec { precision: None, kernel: None, ..spec("hals", 2) };
    let with = |spec: &Spec, values, saved| {
        let mut found = Found { saved, ..found(12, 8, None) };
        found.header.values = values;
        let planned = planned(spec, &found);
        (planned.precision, planned.kernels, planned.resuming)
    };
    let (native, mkl) = (ProductKernel::Native.into(), ProductKernel::ALL[0].into());
    assert_eq!(with(&open, Values::Whole, None), (Precision::F32, native, false));
    assert_eq!(with(&open, Values::Double, None), (Precision::F64, native, false));
    let fine = Spec { tol: Some(1e-12), ..open.clone() };
    assert_eq!(with(&fine, Values::Whole, None).0, Precision::F64);
    let saved = Saved { precision: Some(Precision::F64), kernels: Some(mkl) };
    assert_eq!(with(&open, Values::Whole, Some(saved)), (Precision::F64, mkl, true));
    assert_eq!(with(&spec("hals", 2), Values::Whole, Some(saved)), (Precision::F64, native, true));
    assert_eq!(with(&open, Values::Whole, Some(Saved::default())), (Precision::F32, native, true));
    let parties = Spec { precision: None, ..spec("fnmf", 2) };
    assert_eq!(with(&parties, Values::Whole, None).0, Precision::F64);
}

#[test]
fn a_report_shows_the_images_of_the_file() {
    let mut found = found(12, 8, None);
    found.header.image = Some((2, 4));
    let outputs = Outputs { report: Some((PathBuf::from("r.html"), Display::default())), ..spec("hals", 2).outputs };
    let planned = planned(&Spec { outputs, ..spec("hals", 2) }, &found);
    assert_eq!(planned.outputs.report.map(|(_, display)| display.image), Some(Some((2, 4))));
    assert_eq!(planned.lines, Some(Lines::Rows));
}

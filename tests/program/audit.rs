//! `--record-view` and `fednmf audit attack`: an attack succeeds where a leak is known, and fails where the protection
//! holds.

use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde_json::Value;
use tempfile::tempdir;

use fednmf_comm::{Communicator, Knowledge, MessageTag, Payload, Recorder, ViewRecord};
use fednmf_files::output::view::{RecordedView, ViewFile};
use fednmf_linalg::Element as _;
use fednmf_methods::federated::mpc::{Format, SHARES, to_unit_norm};
use fednmf_methods::shared::init;

use crate::common::{data, fednmf, npy, write_npy};

/// Writes rows of bytes as a .npy file.
fn bytes(path: &Path, rows: usize, cols: usize, entry: impl Fn(usize, usize) -> u8) -> PathBuf {
    let entries: Vec<u8> = (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))).map(|(i, j)| entry(i, j)).collect();
    write_npy(path, "|u1", (rows, cols), &entries);
    path.to_path_buf()
}

/// Zeros and ones without a pattern.
fn coin(i: usize, j: usize) -> u8 {
    let mixed = (i as u64 * 1009 + j as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 63) as u8
}

/// The findings of an attack with the view of one rank.
fn attack(view: &Path, more: &[&str]) -> Value {
    let run = more.iter().fold(fednmf(0, "audit attack --json").arg(view), |run, word| run.arg(word)).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn finding<'a>(told: &'a Value, attack: &str) -> &'a Value {
    let all = told["findings"].as_array().unwrap();
    all.iter().find(|f| f["attack"] == attack).unwrap_or_else(|| panic!("no {attack} in {told}"))
}

/// The command line of a run that these attacks break, and that is refused unless the risk is accepted.
fn risky(line: &str) -> String {
    format!("--accept-risk few-rows,membership,few-values,rare-entries {line}")
}

/// What rank 0 of three finds in a risky run on a matrix of bytes.
fn one_of_three(dir: &Path, line: &str, (rows, cols): (usize, usize), entry: impl Fn(usize, usize) -> u8) -> Value {
    let input = bytes(&dir.join("m.npy"), rows, cols, entry);
    let line = risky(&format!("{line} --parties 3 --secure-sum --eval-every 0 --input"));
    fednmf(3, &line).arg(input).arg("--record-view").arg(dir.join("v.npz")).ok();
    attack(&dir.join("v.rank-00.npz"), &[])
}

/// A number from 0 to 1 without a pattern.
fn uniform(a: usize, b: usize, of: usize) -> f64 {
    let mixed = (a as u64 * 1_000_003 + b as u64 * 8191 + of as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11) as f64 / (1u64 << 53) as f64
}

/// Counts of cells (rows) that mix twelve programs, each active in a fifth of the genes: Poisson around the mixture.
fn counted(cell: usize, gene: usize) -> u8 {
    let exponential = |x: f64| -(1.0 - x).ln();
    let mean: f64 = (0..12)
        .filter(|&program| uniform(cell, program, 1) < 0.4)
        .map(|program| {
            let is_active = uniform(gene, program, 2) < 0.2;
            exponential(uniform(cell, program, 3))
                * if is_active { exponential(uniform(gene, program, 4)) } else { 0.02 }
        })
        .sum();
    let (mut count, mut product, limit) = (0u8, uniform(cell, gene, 5), (-mean).exp());
    while product > limit && count < 255 {
        count += 1;
        product *= uniform(cell, gene, 5 + usize::from(count));
    }
    count
}

/// AUC of an attack on membership with all sums that rank 0 of three finds, 3 × `each` cells of `genes` genes against as many others;
/// of cells as columns with `--transpose`.
fn auc_of_all_sums(dir: &Path, name: &str, line: &str, (each, genes): (usize, usize)) -> f64 {
    let input = bytes(&dir.join("cells.npy"), 3 * each, genes, counted);
    let others = bytes(&dir.join("others.npy"), 3 * each, genes, |cell, gene| counted(cell + 3 * each, gene));
    let line = format!("{line} --parties 3 --secure-sum --eval-every 0 --input");
    fednmf(3, &line).arg(input).arg("--record-view").arg(dir.join("v.npz")).ok();
    let told = attack(&dir.join("v.rank-00.npz"), &["--candidates", &others.display().to_string()]);
    let auc = finding(&told, name)["auc"].as_f64().unwrap();
    println!("{name}, {line}: {auc:.3}");
    auc
}

/// A view of a run on shares whose first message in each iteration that is as long as a sum has such a sum instead.
fn with_opened_sums(from: &Path, to: &Path, mut sum: impl FnMut(usize) -> Vec<u64>) -> PathBuf {
    let view = RecordedView::open(from).unwrap();
    let comm = Communicator::local();
    let file = ViewFile::create(to, 0).unwrap();
    comm.record_view(file.clone());
    let mut replaced = None;
    for (at, record) in view.records.iter().enumerate() {
        file.borrow_mut().turn_to(record.iteration);
        let shape = (record.rows, record.cols);
        if record.kind == SHARES.kind {
            let mut words = view.words(at).unwrap();
            let opened = if replaced == Some(record.iteration) { Vec::new() } else { sum(record.iteration) };
            if words.len() >= opened.len() && !opened.is_empty() {
                words[..opened.len()].copy_from_slice(&opened);
                replaced = Some(record.iteration);
            }
            let tag = Some(MessageTag::new(SHARES.kind, Payload::Shares));
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
            let (knowledge, kind, element) = (Knowledge::Received, SHARES.kind, u64::TYPE);
            let received = ViewRecord { knowledge, kind, tag, from: None, to: None, element, shape, bytes: &bytes };
            file.borrow_mut().saw(&received);
        } else if let (Knowledge::Own, Some(kind)) =
            (record.knowledge, ["data", "U", "V"].iter().find(|kind| record.kind == **kind))
        {
            comm.knows(kind, record.to, shape, view.values(at).unwrap().as_slice().unwrap());
        }
    }
    comm.end_view();
    assert!(replaced.is_some());
    file.borrow_mut().finish(view.about().clone()).unwrap();
    fednmf_files::output::view::file_of(to, 0)
}

/// The findings on received shares of an attack.
fn on_shares(told: &Value) -> Vec<&Value> {
    let all = told["findings"].as_array().unwrap().iter();
    all.filter(|f| f["assumed"].as_str().unwrap().starts_with("received shares are sums")).collect()
}

/// The first sum of a run in place of a message of shares gives zeros and ones away, as it does in methods that open it.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn shares_of_columns_tell_nothing_and_an_opened_sum_is_found() {
    let dir = tempdir().unwrap();
    let (m, n, k, seed) = (40, 54, 5, 5);
    let input = bytes(&dir.path().join("m.npy"), m, n, coin);
    let others = bytes(&dir.path().join("others.npy"), m, 200, |i, j| coin(i, j + 1000)).display().to_string();
    let line = format!("--algo mpc-columns --parties 3 -k {k} --seed {seed} --max-iters 3 --input");
    fednmf(3, &line).arg(&input).arg("--record-view").arg(dir.path().join("v.npz")).ok();
    for rank in 0..3 {
        let told = attack(&dir.path().join(format!("v.rank-0{rank}.npz")), &["--candidates", &others]);
        assert!(finding(&told, "shares")["note"].as_str().unwrap().ends_with("chance"), "rank {rank}: {told}");
        let found = on_shares(&told);
        for name in ["linear", "basis pursuit", "lattice", "subset sums", "membership, sums"] {
            assert!(found.iter().any(|f| f["attack"] == name), "rank {rank}: {name} in {told}");
        }
        // No entry follows from the shares. Members are told from others as by a coin, within five standard deviations.
        let mut exact = found.iter().filter(|f| f["auc"].is_null());
        assert!(exact.all(|f| f["recovered"].as_u64().is_none_or(|rows| rows == 0)), "rank {rank}: {told}");
        let auc = found.iter().filter_map(|f| f["auc"].as_f64()).fold(0.0, f64::max);
        assert!(auc < 0.76, "rank {rank}: {told}");
        // The result is attacked too.
        let result = finding(&told, "received in the clear")["note"].as_str().unwrap().to_string();
        assert!(result.contains("shared factor, opened") && !result.contains("secret shares"), "{result}");
        let of_result =
            |f: &&Value| f["attack"] == "membership, sums" && f["assumed"].as_str().unwrap().starts_with("1 sums");
        assert!(told["findings"].as_array().unwrap().iter().any(|f| of_result(&f)), "{told}");
    }

    let second = dir.path().join("v.rank-01.npz").display().to_string();
    let both = attack(&dir.path().join("v.rank-00.npz"), &[&second]);
    assert!(finding(&both, "shares")["note"].as_str().unwrap().contains("all data"), "{both}");

    // The fixed-point numbers of the first sum M V.
    let view = dir.path().join("v.rank-00.npz");
    let statistics = RecordedView::open(&view).unwrap().about()["statistics"].clone();
    let statistic = |name: &str| statistics[name].as_f64().unwrap();
    let (sigma, format) = (statistic("norm2").sqrt(), Format::for_components(k));
    let [_, to_private] = to_unit_norm(sigma, (n, m));
    let mut v = Array2::<f64>::zeros((n, k));
    init::v(seed, &(0..n), init::scale(statistic("sum"), (m, n), k), v.view_mut());
    let word = |l: usize, i: usize| {
        let terms = (0..n).map(|j| {
            let (x, y) = (f64::from(coin(i, j)) / sigma, v[(j, l)] * to_private);
            format.encode(x).unwrap().wrapping_mul(format.encode(y).unwrap())
        });
        terms.fold(0, u64::wrapping_add)
    };
    let opened = with_opened_sums(&view, &dir.path().join("opened.npz"), |iteration| match iteration {
        0 => (0..k).flat_map(|l| (0..m).map(move |i| (l, i))).map(|(l, i)| word(l, i)).collect(),
        _ => Vec::new(),
    });
    let told = attack(&opened, &["--candidates", &others]);
    assert!(finding(&told, "shares")["note"].as_str().unwrap().ends_with("not random"), "{told}");
    let lattice = *on_shares(&told).iter().find(|f| f["attack"] == "lattice").unwrap();
    assert_eq!((&lattice["recovered"], &lattice["total"]), (&m.into(), &m.into()), "{told}");
}

/// Members are found in sums of rows, and not in shares.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn shares_of_rows_tell_nothing_and_opened_sums_are_found() {
    let dir = tempdir().unwrap();
    let (each, genes, k, iterations) = (50, 1000, 10, 10);
    let input = bytes(&dir.path().join("cells.npy"), 3 * each, genes, counted);
    let others = bytes(&dir.path().join("others.npy"), 3 * each, genes, |cell, gene| counted(cell + 3 * each, gene));
    let candidates = ["--candidates", &others.display().to_string()];
    let line = format!("--algo mpc-rows -k {k} --max-iters {iterations} --parties 3 --input");
    fednmf(3, &line).arg(input).arg("--record-view").arg(dir.path().join("v.npz")).ok();
    let view = dir.path().join("v.rank-00.npz");
    let auc = |told: &Value| {
        let found = on_shares(told);
        found.iter().find(|f| f["attack"] == "membership, sums").and_then(|f| f["auc"].as_f64()).unwrap()
    };
    let told = attack(&view, &candidates);
    assert!(finding(&told, "membership")["auc"].is_f64(), "{told}");
    let shares = auc(&told);
    let cells = Array2::from_shape_fn((3 * each, genes), |(cell, gene)| f64::from(counted(cell, gene)));
    let opened = with_opened_sums(&view, &dir.path().join("opened.npz"), |iteration| {
        let sum = |l: usize, gene: usize| {
            let terms = (0..3 * each).map(|cell| cells[(cell, gene)] * uniform(cell, l, 100 + iteration));
            (terms.sum::<f64>() * 2f64.powi(30)) as u64
        };
        (0..k).flat_map(|l| (0..genes).map(move |gene| (l, gene))).map(|(l, gene)| sum(l, gene)).collect()
    });
    let sums = auc(&attack(&opened, &candidates));
    assert!(shares < 0.69 && sums > 0.8, "{shares} {sums}");
}

/// With more sums than the limits allow, in methods for rows and for columns, and with the first sums of a run within them.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn membership_follows_from_all_sums_of_a_run() {
    let dir = tempdir().unwrap();
    let auc = |line: &str, each: usize| auc_of_all_sums(dir.path(), "membership, sums", line, (each, 1000));
    for (method, least) in [("fnmf", 0.8), ("fedavg", 0.8), ("inmf", 0.88), ("fed-kl", 0.88), ("fed-beta", 0.85)] {
        let found = auc(&risky(&format!("--algo {method} -k 10 --max-iters 40")), 50);
        assert!(found > least, "{method}: {found}");
    }
    for (method, least) in [("syn-sd", 0.77), ("syn-ssd-u", 0.9), ("syn-ssd-v", 0.9), ("syn-ssd-uv", 0.9)] {
        let found = auc(&risky(&format!("--algo {method} --transpose -k 10 --max-iters 40")), 50);
        assert!(found > least, "{method}: {found}");
    }
    for method in ["fnmf", "mur"] {
        let found = auc(&format!("--algo {method} -k 5 --max-iters 4"), 100);
        assert!((0.5..0.8).contains(&found), "{method}: {found}");
    }
}

/// With a list of all members and as many others, in runs within the limits; noise hides them.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn members_are_found_on_a_list_of_candidates() {
    let dir = tempdir().unwrap();
    for (line, least, most) in [
        ("--algo ipalm -k 10", 0.9, 1.0),
        ("--algo fedavg -k 5 --max-iters 4", 0.85, 1.0),
        ("--algo fnmf -k 5 --max-iters 4", 0.8, 1.0),
        ("--algo fed-kl -k 5 --max-iters 4 --accept-risk few-values,rare-entries", 0.8, 1.0),
        ("--algo fedavg -k 5 --max-iters 4 --dp gaussian --epsilon 1 --clip 5", 0.4, 0.6),
    ] {
        let auc = auc_of_all_sums(dir.path(), "membership, list", line, (100, 1000));
        assert!((least..=most).contains(&auc), "{line}: {auc}");
    }
}

/// 900 rows of three parties in four groups; each of five entries is that of a single row at the others, five nobody has. No limit
/// refuses such a run.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_rare_entry_is_seen_in_the_sums() {
    let dir = tempdir().unwrap();
    let input = bytes(&dir.path().join("m.npy"), 900, 60, |i, j| match j {
        0..50 if j % 4 == i % 4 => 2 + (uniform(i, j, 1) * 6.0) as u8,
        0..50 => u8::from(uniform(i, j, 2) < 0.2),
        50..55 => u8::from(i == 310 + 113 * (j - 50)),
        _ => 0,
    });
    for method in ["fnmf", "fedavg", "ipalm", "inmf", "fed-kl"] {
        let line = format!("--algo {method} -k 4 --max-iters 30 --parties 3 --secure-sum --eval-every 0");
        let told = |more: &str| {
            let run = fednmf(3, &format!("{line} {more} --input")).arg(&input);
            run.arg("--record-view").arg(dir.path().join("v.npz")).ok();
            attack(&dir.path().join("v.rank-00.npz"), &[])
        };
        // Without these entries nothing is to be seen, but what is left of the start.
        let suppressed = told("--suppress-rare 3");
        let auc = finding(&suppressed, "rare entries")["auc"].as_f64().unwrap();
        assert!(auc == 0.5 || (method == "ipalm" && auc < 0.9), "{method}: {suppressed}");
        let carrier = finding(&suppressed, "carrier of a rare entry");
        let [found, guess] = ["cosine", "baseline"].map(|name| carrier[name].as_f64().unwrap());
        assert!(found < guess + 0.1, "{method}: {carrier}");
        let told = told("--accept-risk rare-entries");
        println!("{method}: {} {}", finding(&told, "rare entries"), finding(&told, "carrier of a rare entry"));
        assert_eq!(finding(&told, "rare entries")["auc"], 1.0, "{method}: {told}");
        let carrier = finding(&told, "carrier of a rare entry");
        let [found, guess] = ["cosine", "baseline"].map(|name| carrier[name].as_f64().unwrap());
        assert!(carrier["recovered"] == 5 && found > guess + 0.1, "{method}: {carrier}");
    }
}

/// One curious party and the first sum; nothing of V is known.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn one_masked_sum_gives_hidden_zeros_and_ones_away() {
    let dir = tempdir().unwrap();
    let line = "--algo secure-hals -k 5 --max-iters 1";
    let told = one_of_three(dir.path(), line, (80, 30), coin);
    let sums = finding(&told, "subset sums");
    assert_eq!((&sums["recovered"], &sums["total"]), (&20.into(), &20.into()), "{told}");
    assert!(sums["rel_error"] == 0.0 && sums["baseline"].as_f64().unwrap() > 0.5, "{sums}");
    // More hidden columns than rows.
    let told = one_of_three(dir.path(), line, (20, 60), coin);
    assert!(finding(&told, "subset sums")["recovered"].is_null(), "{told}");
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn sums_of_all_iterations_span_the_hidden_columns() {
    let dir = tempdir().unwrap();
    let line = "--algo secure-hals -k 6 --max-iters 12";
    let told = one_of_three(dir.path(), line, (150, 18), coin);
    for name in ["quadratic", "space lattice", "completion", "membership, sums"] {
        let found = finding(&told, name);
        assert_eq!((&found["recovered"], &found["total"]), (&12.into(), &12.into()), "{name}: {told}");
    }
    assert_eq!(finding(&told, "membership, sums")["auc"], 1.0);
    // Entries of many sizes, a fifth of them not zero, which are no small whole numbers.
    let sparse = |i: usize, j: usize| {
        if coin(i, j) & coin(j + 7, i) == 1 { 1 + (i * 37 + j * 91 + i * j) as u8 % 251 } else { 0 }
    };
    let told = one_of_three(dir.path(), line, (150, 18), sparse);
    let found = finding(&told, "linear programs");
    assert!(found["recovered"].as_u64() >= Some(8), "{told}");
}

/// Of four parties one lacks 30 columns, which 24 vectors do not span, and two together lack 20.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn two_that_collude_find_columns_that_one_does_not() {
    let dir = tempdir().unwrap();
    let input = bytes(&dir.path().join("m.npy"), 260, 40, coin);
    let line = risky("--algo secure-hals -k 6 --max-iters 4 --parties 4 --secure-sum --eval-every 0 --input");
    fednmf(4, &line).arg(input).arg("--record-view").arg(dir.path().join("v.npz")).ok();
    let second = dir.path().join("v.rank-01.npz").display().to_string();
    let [one, two] = [&[][..], &[second.as_str()]].map(|more| attack(&dir.path().join("v.rank-00.npz"), more));
    let names = ["quadratic", "space lattice", "completion"];
    for name in names {
        let found = finding(&two, name);
        assert_eq!((&found["recovered"], &found["total"]), (&20.into(), &20.into()), "{name}: {two}");
    }
    assert_eq!(finding(&two, "membership, sums")["auc"], 1.0);
    let all = one["findings"].as_array().unwrap();
    assert!(!all.iter().any(|found| names.iter().any(|name| found["attack"] == *name)), "{one}");
}

/// Two colluding parties and one row; one curious party and two rows.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn rows_of_small_parties_follow_from_the_factors_of_all_rounds() {
    let dir = tempdir().unwrap();
    let input = npy(dir.path(), "few.npy", 0..122);
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("one.txt"), "61\n60\n1\n").unwrap();
    std::fs::write(at("two.txt"), "120\n1\n1\n").unwrap();
    let told = |split: &str, views: usize| {
        let line = risky("--algo fnmf -k 5 --secure-sum --eval-every 0 --max-iters 40 --split");
        fednmf(3, &line).arg(at(split)).arg("--input").arg(&input).arg("--record-view").arg(at("r.npz")).ok();
        let second = at("r.rank-01.npz").display().to_string();
        attack(&at("r.rank-00.npz"), &[second.as_str()][..views - 1])
    };
    for (split, views) in [("one.txt", 2), ("two.txt", 1)] {
        let told = told(split, views);
        let found = finding(&told, "rows of few");
        let number = |name: &str| found[name].as_f64().unwrap();
        assert!(number("cosine") > 0.98 && number("rel_error") < 0.5 * number("baseline"), "{split}: {told}");
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_run_that_is_started_again_after_a_loss_gives_the_lost_term_away() {
    let dir = tempdir().unwrap();
    let line = risky(
        "--algo fedavg --parties 4 --secure-sum --secure-threshold 3 -k 3 --max-iters 2 --json --quiet --input \
         synthetic:planted,m=40,n=24,k=3 --record-view",
    );
    let view = |name: &str| dir.path().join(name);
    let lost = fednmf(1, &line).arg(view("lost.npz")).env("FEDNMF_DROP", "1@1:2").run();
    assert_eq!(lost.code, Some(0), "{}", lost.stderr);
    fednmf(1, &line).arg(view("again.npz")).ok();
    let again = view("again.rank-00.npz").display().to_string();
    let told = attack(&view("lost.rank-00.npz"), &[&again]);
    let found = finding(&told, "differencing");
    assert_eq!(found["recovered"], 1, "{told}");
    assert!(found["rel_error"].as_f64().unwrap() < 1e-9, "{told}");
}

/// One party of three, with only the first masked sum: finding 1 of an audit of the old start.
#[test]
fn a_public_start_gives_zeros_and_ones_away_and_a_private_one_does_not() {
    let dir = tempdir().unwrap();
    let input = bytes(&dir.path().join("m.npy"), 40, 54, coin);
    let told = |start: &str| {
        let view = dir.path().join(format!("{start}.npz"));
        let line = format!(
            "--algo secure-hals -k 5 --parties 3 --max-iters 3 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --start {start} --input"
        );
        fednmf(3, &line).arg(&input).arg("--record-view").arg(&view).ok();
        attack(&dir.path().join(format!("{start}.rank-01.npz")), &[])
    };
    let public = told("public");
    assert_eq!((&public["parties"], &public["hidden_parties"]), (&serde_json::json!([1]), &serde_json::json!([0, 2])));
    let lattice = finding(&public, "lattice");
    assert_eq!((&lattice["recovered"], &lattice["total"]), (&40.into(), &40.into()), "{public}");
    assert!(lattice["rel_error"] == 0.0 && lattice["baseline"].as_f64().unwrap() > 0.5, "{lattice}");
    // Five equations for 36 unknowns.
    assert_eq!(finding(&public, "linear")["recovered"], 0);

    let private = told("private");
    for name in ["lattice", "linear", "basis pursuit"] {
        assert_eq!(finding(&private, name)["recovered"], 0, "{private}");
    }
    // A guess of the means is no worse than the fit of all sums.
    let dynamics = finding(&private, "dynamics");
    assert_eq!(dynamics["recovered"], 0, "{dynamics}");
}

#[test]
fn as_many_sums_as_columns_are_linear_equations() {
    let dir = tempdir().unwrap();
    // Two parties of 6 columns each: with k = 6 the first sum determines the other party's columns, for any data.
    let line = "--algo secure-hals -k 6 --parties 2 --max-iters 1 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --start public --input \
                synthetic:planted,m=30,n=12,k=3 --record-view";
    fednmf(2, line).arg(dir.path().join("v.npz")).ok();
    let told = attack(&dir.path().join("v.rank-00.npz"), &[]);
    let linear = finding(&told, "linear");
    assert!(linear["recovered"] == 30 && linear["rel_error"].as_f64().unwrap() < 1e-6, "{told}");
}

#[test]
fn releases_of_whole_numbers_are_limited_by_their_bits() {
    let dir = tempdir().unwrap();
    let run = |more: &str| {
        let line = format!("--algo dsanls-secure --parties 3 -k 5 --max-iters 12 --eval-every 0 {more} --input");
        fednmf(1, &line).arg(data("digits.npy")).arg("--transpose")
    };
    run("").refused(&["few values", "lattice", "--accept-risk sketches"]);
    run("--scale max").refused(&["few values"]);
    run("--max-releases 1").refused(&["--max-releases 1", "1 sketch(es)", "0 are allowed"]);
    // 5 columns are 260 bits; a party does not know 200 of the 300 numbers from 1 to 16 in a row, or 817 bits.
    let numbers = bytes(&dir.path().join("m.npy"), 20, 300, |i, j| {
        1 + (0..4).map(|bit| coin(i + 50 * bit, j) << bit).sum::<u8>()
    });
    let few = fednmf(1, "--algo dsanls-secure --parties 3 -k 5 --sketch-size 5,10 --max-iters 12 --input").arg(numbers);
    let few = few.arg("--record-view").arg(dir.path().join("few.npz")).ok();
    assert_eq!(few["params"]["releases"], 3);
    let told = attack(&dir.path().join("few.rank-00.npz"), &[]);
    for name in ["linear", "basis pursuit", "lattice"] {
        assert!(finding(&told, name)["recovered"].as_u64().is_none_or(|rows| rows == 0), "{told}");
    }

    run("--max-releases 10 --accept-risk sketches").arg("--record-view").arg(dir.path().join("v.npz")).ok();
    let told = attack(&dir.path().join("v.rank-00.npz"), &[]);
    // Three pixels are blank in all digits.
    assert_eq!(finding(&told, "linear")["recovered"], 3, "{told}");
    let lattice = finding(&told, "lattice");
    assert_eq!((&lattice["recovered"], &lattice["total"]), (&64.into(), &64.into()), "{told}");
}

#[test]
fn releases_of_transformed_counts_are_limited_as_those_of_counts() {
    let dir = tempdir().unwrap();
    let counts = |i: usize, j: usize| 1.0 + f64::from(coin(i, j) + 2 * coin(i + 100, j) + 4 * coin(i, j + 400));
    type Form = fn(usize, f64) -> f64;
    let forms: [(&str, Form); 5] = [
        ("counts", |_, x| x),
        ("sevenths", |_, x| x / 7.0),
        ("pi", |_, x| x * std::f64::consts::PI),
        ("log1p", |_, x| x.ln_1p()),
        ("per million", |cell, x| x * 1e6 / (700.0 + 13.7 * cell as f64)),
    ];
    let allowed = forms.map(|(name, form)| {
        let path = dir.path().join(format!("{name}.npy"));
        let entries = (0..30).flat_map(|i| (0..300).map(move |j| (i, j)));
        let entries: Vec<u8> = entries.flat_map(|(i, j)| form(j, counts(i, j)).to_le_bytes()).collect();
        write_npy(&path, "<f8", (30, 300), &entries);
        let line = "--algo dsanls-secure --parties 3 -k 5 --sketch-size 5,10 --max-iters 2 --eval-every 0 --input";
        let none = fednmf(1, &line.replace("5,10", "20,10")).arg(&path);
        none.refused(&["few values", "lattice", "0 are allowed"]);
        fednmf(1, line).arg(&path).ok()["params"]["releases"].as_u64().unwrap()
    });
    // log₂ 9 bits for each of 200 unknown numbers in a row, 260 for each release.
    assert_eq!(allowed, [2; 5], "{forms:?}", forms = forms.map(|(name, _)| name));
}

#[test]
fn releases_of_rows_with_many_zeros_are_limited_by_what_basis_pursuit_needs() {
    let dir = tempdir().unwrap();
    let run = |more: &str| {
        let input = "synthetic:sparse,m=60,n=60,density=0.1,seed=2";
        fednmf(1, &format!("--algo dsanls-secure --parties 3 -k 5 --max-iters 6 --input {input} {more}"))
    };
    run("--sketch-size 12,20").refused(&["zeros", "basis pursuit", "--accept-risk sketches"]);
    run("--sketch-size 12,20 --max-releases 2 --accept-risk sketches --record-view").arg(dir.path().join("v.npz")).ok();
    let told = attack(&dir.path().join("v.rank-00.npz"), &[]);
    // 24 equations for 60 unknowns, 40 for a party that knows its own.
    assert_eq!(finding(&told, "linear")["recovered"], 0, "{told}");
    assert!(finding(&told, "basis pursuit")["recovered"].as_u64() >= Some(50), "{told}");
}

/// The limit of releases does not depend on the rank of the data.
#[test]
fn an_exactly_low_rank_is_seen_in_one_release() {
    let dir = tempdir().unwrap();
    let run = "--algo dsanls-secure --parties 3 -k 5 --sketch-size 20,20 --max-iters 10 --eval-every 0 \
               --input synthetic:planted,m=60,n=60,k=4,noise=0 --record-view";
    let summary = fednmf(1, run).arg(dir.path().join("v.npz")).ok();
    assert_eq!(summary["params"]["releases"], 1);
    let told = attack(&dir.path().join("v.rank-00.npz"), &[]);
    let error = |name: &str| finding(&told, name)["rel_error"].as_f64().unwrap();
    assert!(finding(&told, "basis pursuit")["note"].as_str().unwrap().contains("rank 4"), "{told}");
    assert!(error("basis pursuit") < error("linear"), "{told}");
    assert_eq!(finding(&told, "basis pursuit")["recovered"], 0, "{told}");
}

#[test]
fn a_neighbours_column_follows_from_its_answers() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("split.txt"), "11\n1\n").unwrap();
    fednmf(
        2,
        "--algo ppdnmf --plain --g-max 0.1 -k 2 --max-iters 6 --eval-every 0 --input synthetic:planted,m=30,n=12,k=2 --split",
    )
    .arg(at("split.txt"))
    .arg("--record-view")
    .arg(at("v.npz"))
    .ok();
    let victim = at("v.rank-01.npz").display().to_string();
    let told = attack(&at("v.rank-00.npz"), &["--victim", &victim]);
    let number = |name: &str, what: &str| finding(&told, name)[what].as_f64().unwrap();
    assert!(number("one answer", "rel_error") < number("one answer", "baseline"), "{told}");
    assert!(number("a round", "rel_error") < 0.5 * number("a round", "baseline"), "{told}");
}

/// With two neighbours a party sees the sum of their answers. A single answer is masked modulo n.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn one_answer_of_several_neighbours_tells_nothing() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fednmf(
        3,
        "--algo ppdnmf --parties 3 --topology ring --key-bits 128 --insecure-key -k 2 --admm-iters 6 --max-iters 3 --eval-every 0 \
         --input synthetic:planted,m=20,n=12,k=2",
    )
    .arg("--record-view")
    .arg(at("v.npz"))
    .ok();
    let victim = at("v.rank-01.npz").display().to_string();
    let told = attack(&at("v.rank-00.npz"), &["--victim", &victim]);
    let found = |name: &str| {
        let all = told["findings"].as_array().unwrap().iter().filter(|finding| finding["attack"] == name);
        let compared: Vec<_> =
            all.filter_map(|finding| Some((finding["rel_error"].as_f64()?, finding["baseline"].as_f64()?))).collect();
        assert_eq!(compared.len(), 1, "{told}");
        compared[0]
    };
    let (alone, guess) = found("one answer");
    assert!(alone > 100.0 * guess && alone > 1.0, "{alone} by one answer, {guess} by a guess: {told}");
    // The sum reveals only the combination of both neighbours.
    let (together, _) = found("sum of answers");
    assert!(together < 1e-3 * alone, "{told}");
}

#[test]
fn members_of_small_data_are_told_from_others_and_of_noised_data_not() {
    let dir = tempdir().unwrap();
    let (few, others) = (npy(dir.path(), "few.npy", 0..24), npy(dir.path(), "others.npy", 200..600));
    let others = others.display().to_string();
    let auc = |name: &str, more: &str| {
        let view = dir.path().join(format!("{name}.npz"));
        let line = format!("--algo fedavg --parties 2 -k 8 --max-iters 20 --scale max {more} --input");
        fednmf(2, &line).arg(&few).arg("--record-view").arg(&view).ok();
        let told = attack(&dir.path().join(format!("{name}.rank-00.npz")), &["--candidates", &others]);
        finding(&told, "membership")["auc"].as_f64().unwrap()
    };
    let (clear, noised) = (auc("clear", ""), auc("noised", "--dp gaussian --epsilon 0.5 --clip 1"));
    assert!(clear > 0.7 && noised < clear - 0.15, "{clear} {noised}");
}

/// With --secure-sum all parties but one together obtain the remaining party's V: the sum less their own parts.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn colluding_parties_find_members_better_than_one() {
    let dir = tempdir().unwrap();
    let (few, others) = (npy(dir.path(), "few.npy", 0..36), npy(dir.path(), "others.npy", 200..600));
    let others = others.display().to_string();
    for (algo, more) in [("fedavg", ""), ("felb", "--binarize 0.5")] {
        let line = format!(
            "--algo {algo} {more} --parties 3 -k 8 --max-iters 20 --eval-every 0 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --input"
        );
        let view = |rank: usize| dir.path().join(format!("{algo}.rank-0{rank}.npz"));
        fednmf(3, &line).arg(&few).arg("--record-view").arg(dir.path().join(format!("{algo}.npz"))).ok();
        let auc = |told: &Value, name: &str| finding(told, name)["auc"].as_f64().unwrap();
        let one = attack(&view(0), &["--candidates", &others]);
        let second = view(1).display().to_string();
        let two = attack(&view(0), &[&second, "--candidates", &others]);
        assert_eq!(two["hidden_parties"], serde_json::json!([2]));
        let (shared, pooled) = (auc(&one, "membership"), auc(&two, "membership, pooled"));
        assert!(pooled > shared && pooled > 0.7, "{algo}: {pooled} by two, {shared} by one: {two}");
    }
}

#[test]
fn no_sum_is_repeated_without_a_lost_party() {
    let dir = tempdir().unwrap();
    let line = "--algo secure-hals --parties 4 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --secure-threshold 3 -k 3 --max-iters 4 --json --quiet --input \
                synthetic:planted,m=40,n=24,k=3 --record-view";
    for stage in 1..=4 {
        let view = dir.path().join(format!("{stage}.npz"));
        let run = fednmf(1, line).arg(&view).env("FEDNMF_DROP", &format!("1@2:{stage}")).run();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let told = attack(&dir.path().join(format!("{stage}.rank-00.npz")), &[]);
        let found = finding(&told, "differencing");
        assert_eq!((&found["recovered"], &found["total"]), (&0.into(), &1.into()), "{told}");
    }
}

#[test]
fn views_are_secret_files_of_one_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = |algo: &str, seed: u64, name: &str| {
        let line = format!("--algo {algo} --seed {seed} -k 2 --max-iters 2 --input synthetic:planted,m=20,n=16,k=2");
        fednmf(2, &line).arg("--record-view").arg(at(name))
    };
    run("syn-sd", 1, "a.npz").ok();
    run("syn-sd", 2, "b.npz").ok();
    run("hals", 1, "h.npz").ok();
    for name in ["a.rank-00.npz", "a.rank-01.npz"] {
        assert_eq!(std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let both = fednmf(2, "audit attack").arg(at("a.rank-00.npz")).arg(at("a.rank-01.npz")).run();
    assert!(both.code == Some(0) && both.stdout.contains("in the clear"), "{}{}", both.stdout, both.stderr);
    let one_domain = fednmf(0, "audit attack").arg(at("h.rank-00.npz")).run();
    assert!(one_domain.stdout.contains("nothing to attack"), "{}", one_domain.stdout);
    fednmf(2, "audit attack").arg(at("a.rank-00.npz")).arg(at("b.rank-00.npz")).refused(&["another run", "seed"]);
    fednmf(2, "audit attack").arg(at("target")).refused(&["target", "--record-view"]);
    fednmf(2, "audit attack").arg(at("a.rank-00.npz")).args(["--truth", "/no/such.npy"]).refused(&["--truth"]);
    run("syn-sd", 1, "target").arg("--resume").refused(&["--resume"]);
    std::fs::write(at("o.rank-01.npz"), "my own, and older").unwrap();
    run("syn-sd", 1, "o.npz").refused(&["--record-view", "o.rank-01.npz", "not replaced"]);
}

//! The FNMF family: reference values of independent prototypes, traffic, the definitions of its measures, and parties
//! that differ, do not participate, or have no data.

use ndarray::{Array2, s};
use serde_json::Value;
use tempfile::tempdir;

use fednmf_linalg::random::{Cursor, Purpose, Stream};

use crate::common::{data, factor, fednmf, matrix, number, save_npy};

/// Clients, rows per client, columns, components.
const SHAPE: (usize, usize, usize, usize) = (10, 100, 200, 10);

/// `count` different numbers below `total`.
fn subset(cursor: &mut Cursor, total: usize, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..total).collect();
    for at in 0..count {
        all.swap(at, at + cursor.below((total - at) as u64) as usize);
    }
    all.truncate(count);
    all
}

/// Blocks at random places: each component on 10 to 30 % of all rows and 10 to 40 columns, entries of both factors from
/// U(½, 1½), and the positive part of normal noise with deviation 0.1. A component is absent from a client with
/// probability `hetero`.
fn blocks(seed: u64, hetero: f64) -> Array2<f64> {
    let (clients, rows, n, k) = SHAPE;
    let mut cursor = Stream::new(seed, Purpose::Probe, 7).at(0);
    let (mut u, mut v) = (Array2::<f64>::zeros((clients * rows, k)), Array2::<f64>::zeros((k, n)));
    for l in 0..k {
        let count = ((0.1 + 0.2 * cursor.uniform()) * (clients * rows) as f64).round() as usize;
        for i in subset(&mut cursor, clients * rows, count) {
            u[[i, l]] = 0.5 + cursor.uniform();
        }
        let count = 10 + cursor.below(31) as usize;
        for j in subset(&mut cursor, n, count) {
            v[[l, j]] = 0.5 + cursor.uniform();
        }
        for c in 0..clients {
            if cursor.uniform() < hetero {
                u.slice_mut(s![c * rows..(c + 1) * rows, l]).fill(0.0);
            }
        }
    }
    u.dot(&v) + Array2::from_shape_simple_fn((clients * rows, n), || (0.1 * cursor.normal()).max(0.0))
}

/// Means over seeds of the sum of RMSDs with the last U and with U refitted.
fn means(algo: &str, hetero: f64, seeds: &[u64]) -> [f64; 2] {
    let dir = tempdir().unwrap();
    let mut sums = [0.0; 2];
    for &seed in seeds {
        let file = dir.path().join(format!("{seed}.npy"));
        save_npy(&file, &blocks(seed, hetero));
        let line = format!("--algo {algo} --parties 10 -k 10 --eval-every 100000 --seed {seed} --input");
        let summary = fednmf(0, &line).arg(&file).ok();
        for (sum, name) in sums.iter_mut().zip(["rmsd", "rmsd_refit"]) {
            *sum += number(&summary, name) / seeds.len() as f64;
        }
    }
    sums
}

/// References: prototypes on 10 clients with k = 10, 2000 local steps in total, independent starts. The factorisation
/// of all data in one place reaches 0.5816 ± 0.0014.
#[test]
fn aligned_parties_reach_the_centralised_error() {
    for line in [
        "--local-iters 100 --max-iters 20",
        "--local-iters 100 --max-iters 20 --normalize none",
        "--local-iters 100 --max-iters 20 --align lap-rho",
        "--local-iters 100 --max-iters 20 --align sinkhorn",
        "--local-iters 100 --max-iters 20 --align sinkhorn-rho",
        "--local-iters 100 --max-iters 20 --barycenter greedy",
        "--local-iters 100 --max-iters 20 --barycenter tree",
        "--local-iters 500 --max-iters 4",
        "--local-iters 10 --max-iters 200",
        "--update hals --local-iters 10 --max-iters 20",
        "--update hals --align lap-rho --local-iters 100 --max-iters 20",
    ] {
        let [last, refit] = means(&format!("fnmf {line}"), 0.0, &[1]);
        // 0.583 ± 0.0015, plus the difference between two draws of data
        assert!((0.575..0.59).contains(&last) && (last - refit).abs() < 0.002, "{line}: {last} {refit}");
    }
}

/// A single party has all the data, and its HALS equals that of `hals`.
#[test]
fn one_party_by_hals_is_centralised_hals() {
    let input = format!("--input {} -k 6 --max-iters 30 --seed 4 --algo", data("digits.npy").display());
    let central = fednmf(0, &format!("{input} hals")).ok();
    for steps in ["--local-iters 1 --max-iters 30", "--local-iters 5 --max-iters 6"] {
        let line = format!("{input} fedavg --parties 1 --update hals --start shared {steps}");
        let alone = fednmf(0, &line.replacen("--max-iters 30 ", "", 1)).ok();
        let (a, b) = (number(&alone, "rel_error"), number(&central, "rel_error"));
        assert!((a - b).abs() < 1e-8, "{steps}: {a} {b}");
    }
}

/// Some parties lack data for some of the components: these must not dominate the mean, nor their drift the other sums.
#[test]
fn components_that_a_party_lacks_stay_bounded_by_hals() {
    let line = "--algo fedavg --update hals --parties 8 --input synthetic:blocks,m=64,n=60,k=4 -k 20 \
                --local-iters 3 --max-iters 150";
    let summary = fednmf(0, line).ok();
    let (error, rmsd, drift) = (number(&summary, "rel_error"), number(&summary, "rmsd"), number(&summary, "drift"));
    assert!(error < 0.8 && rmsd > 0.0 && drift < 1e6, "{error} {rmsd} {drift}");
}

#[test]
fn methods_without_alignment_drift_as_in_the_prototypes() {
    for (line, last, refit) in [
        ("fedavg --local-iters 100 --max-iters 20", 3.4..4.8, 2.6..3.9),
        ("fedprox --local-iters 100 --max-iters 20", 1.7..4.6, 0.9..4.0),
        ("fedprox --inertia 0 --local-iters 10 --max-iters 200", 0.57..0.59, 0.57..0.59),
        ("ipalm --max-iters 2000", 3.5..4.9, 2.6..3.9),
        ("mur --max-iters 2000", 3.5..4.9, 2.7..4.0),
        ("fnmf --align knn --local-iters 100 --max-iters 20", 2.0..9.0, 1.5..5.0),
        ("fnmf --barycenter kmeans --local-iters 100 --max-iters 20", 1.5..9.0, 0.8..3.5),
    ] {
        let [a, b] = means(line, 0.0, &[1]);
        assert!(last.contains(&a) && refit.contains(&b), "{line}: {a} {b}");
    }
}

/// If components are absent at some clients, the best prototype reaches 0.588, and federated averaging 2.66 ± 0.43.
#[test]
fn parties_with_different_distributions_agree() {
    let [averaged, _] = means("fedavg --local-iters 100 --max-iters 20", 0.3, &[1, 2]);
    for (line, most) in [
        ("--local-iters 100 --max-iters 20", 0.75),
        ("--local-iters 100 --max-iters 20 --align lap-rho", 0.75),
        ("--local-iters 3 --max-iters 200 --update hals --gamma 1", 0.61),
    ] {
        let [aligned, _] = means(&format!("fnmf {line}"), 0.3, &[1, 2]);
        assert!(aligned > 0.56 && aligned < most && aligned < 0.4 * averaged, "{line}: {aligned} {averaged}");
    }
}

/// Party bytes of the message kinds whose name contains `word`.
fn party_bytes(summary: &Value, word: &str) -> u64 {
    let rows = summary["wire"].as_array().unwrap().iter();
    rows.filter(|r| r["purpose"].as_str().unwrap().contains(word)).map(|r| r["party_bytes"].as_u64().unwrap()).sum()
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn every_variant_gives_the_same_bits_and_bytes_on_any_number_of_ranks() {
    let dir = tempdir().unwrap();
    for line in [
        "fnmf --barycenter greedy --align sinkhorn",
        "fnmf --barycenter tree --align lap-rho --personalize --participation 0.5",
        "fnmf --barycenter kmeans --align knn --precision f32",
        "fnmf --barycenter fuzzy-cmeans --align sinkhorn-rho --start shared",
        "fedprox --participation 0.4 --local-tol 1e-3 --scale max",
        "fnmf --update hals --align lap-rho --precision f32 --gamma 1",
    ] {
        let mut first: Option<(Value, Array2<f64>, Array2<f64>)> = None;
        for ranks in [1, 2, 3, 4] {
            let out = dir.path().join(format!("{ranks}.h5"));
            let line = format!("--algo {line} --parties 7 -k 4 --max-iters 6 --local-iters 4 --input");
            let summary = fednmf(ranks, &line).arg(data("digits.npy")).arg("--output").arg(&out).ok();
            let (u, v) = (factor(&out, "U"), factor(&out, "V"));
            let (one, a, b) = first.get_or_insert_with(|| (summary.clone(), u.clone(), v.clone()));
            for name in [
                "rel_error",
                "rmsd",
                "rmsd_refit",
                "distance",
                "drift",
                "drift_aligned",
                "barycenter_loss",
                "orthogonality_gap",
            ] {
                let (x, y) = (number(one, name), number(&summary, name));
                assert_eq!(x.to_bits(), y.to_bits(), "{line} on {ranks} ranks: {name} {x} {y}");
            }
            assert!(*a == u && *b == v, "{line} on {ranks} ranks");
            for word in ["V_j to the server", "mean V to the party", "statistics of the matrix", "largest entry"] {
                assert_eq!(party_bytes(one, word), party_bytes(&summary, word), "{line} on {ranks} ranks: {word}");
            }
            assert_eq!(party_bytes(&summary, "inside the server"), 0);
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_party_sends_and_receives_its_factor_once_per_round() {
    let (n, k, rounds) = (40, 5, 6);
    let line = format!("--input synthetic:planted,m=90,n={n} -k {k} --max-iters {rounds} --parties 10 --local-iters 2");
    let one = (8 * n * k * rounds) as u64;
    for ranks in [1, 3] {
        for (algo, parties) in [("fnmf", 10), ("fnmf --participation 0.3", 3), ("fedavg", 10)] {
            let summary = fednmf(ranks, &format!("--algo {algo} --eval-every 0 {line}")).ok();
            let bytes = ["V_j to the server", "mean V to the party"].map(|word| party_bytes(&summary, word));
            assert_eq!(bytes, [one * parties; 2], "{algo} on {ranks} ranks");
        }
        let once = format!("--algo ipalm --eval-every 0 {}", line.replace("--local-iters 2", ""));
        assert_eq!(party_bytes(&fednmf(ranks, &once).ok(), "V_j to the server"), one * 10 / rounds as u64);
    }
}

/// (4) is a minimum over permutations: half of the drift that is left after the alignment for a method with the best
/// permutation, and at most half of the whole drift for one without alignment.
#[test]
fn the_barycenter_loss_is_the_least_over_permutations() {
    let measures = |algo: &str, parties: usize| {
        let line =
            format!("--algo {algo} --parties {parties} -k 4 --max-iters 3 --local-iters 20 --eval-every 100 --input");
        let summary = fednmf(0, &line).arg(data("digits.npy")).ok();
        ["barycenter_loss", "drift_aligned", "drift"].map(|name| number(&summary, name))
    };
    let [loss, aligned, _] = measures("fnmf", 5);
    assert!(loss > 0.0 && (2.0 * loss / aligned - 1.0).abs() < 1e-9, "{loss} {aligned}");
    let [loss, _, drift] = measures("fedavg", 5);
    assert!(loss > 0.0 && loss < 0.5 * drift, "{loss} {drift}");
    let [loss, ..] = measures("fnmf", 1);
    assert!(loss < 1e-20, "{loss}");
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn measures_are_those_of_the_written_factors() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    let m = blocks(3, 0.0);
    save_npy(&file, &m);
    for algo in ["fnmf", "fedavg", "ipalm", "mur"] {
        let line = format!("--algo {algo} --parties 10 -k 6 --max-iters 5 --input");
        let summary = fednmf(3, &line).arg(&file).arg("--output").arg(&out).ok();
        let (u, v) = (factor(&out, "U"), matrix(&out, "V"));
        assert_eq!((u.dim(), v.dim()), ((1000, 6), (200, 6)));
        let errors = (&m - &u.dot(&v.t())).mapv(|e| e * e);
        let of = |c: usize| errors.slice(s![100 * c..100 * (c + 1), ..]);
        let rmsd: f64 = (0..10).map(|c| of(c).mean().unwrap().sqrt()).sum();
        let close = |name: &str, x: f64| assert!((number(&summary, name) / x - 1.0).abs() < 1e-9, "{algo} {name} {x}");
        close("rel_error", (errors.sum() / m.mapv(|x| x * x).sum()).sqrt());
        close("rmsd", rmsd);
        close("rmsd_mean", rmsd / 10.0);
        close("rmsd_overall", errors.mean().unwrap().sqrt());
        close("distance", (0..10).map(|c| of(c).sum().sqrt()).sum());
        assert!(number(&summary, "rmsd_refit") <= rmsd * (1.0 + 1e-12));
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn hundreds_of_parties_on_two_ranks() {
    let line =
        "--parties 512 --input synthetic:planted,m=4096,n=60,k=4,noise=0.02 -k 4 --max-iters 10 --local-iters 20";
    for barycenter in ["fixed-point", "tree", "greedy"] {
        let summary = fednmf(2, &format!("--algo fnmf --barycenter {barycenter} {line}")).ok();
        assert!(number(&summary, "rel_error") < 0.1, "{barycenter} {summary}");
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn parties_may_have_any_share_of_the_data() {
    for ranks in [1, 4] {
        for more in ["--skew 0.9", "--skew 0.5 --align sinkhorn", "--barycenter tree", "--barycenter kmeans"] {
            let line = format!("--algo fnmf --parties 40 {more} --input synthetic:planted,m=30,n=20,k=3 -k 3");
            let summary = fednmf(ranks, &format!("{line} --max-iters 20")).ok();
            assert!(number(&summary, "rel_error") < 0.3, "{more} on {ranks} ranks: {summary}");
        }
    }
}

#[test]
fn partial_participation_is_enough() {
    let [last, _] = means("fnmf --participation 0.3 --local-iters 100 --max-iters 60", 0.0, &[2]);
    assert!(last < 0.62, "{last}");
}

/// Five components that all clients share, and one private component per client on columns that no other client uses.
fn with_private_components(seed: u64) -> (Array2<f64>, Array2<f64>) {
    let (clients, rows, n, shared) = (6, 120, 170, 5);
    let mut cursor = Stream::new(seed, Purpose::Probe, 8).at(0);
    let mut v = Array2::<f64>::zeros((shared + clients, n));
    for (l, mut v) in v.rows_mut().into_iter().enumerate() {
        let columns = if l < shared { l * 16..l * 16 + 22 } else { 102 + (l - shared) * 11..113 + (l - shared) * 11 };
        columns.for_each(|j| v[j] = 0.5 + cursor.uniform());
    }
    let u = Array2::from_shape_fn((clients * rows, shared + clients), |(i, l)| {
        let used = l < shared || l - shared == i / rows;
        if used && cursor.uniform() < 0.4 { 0.5 + cursor.uniform() } else { 0.0 }
    });
    let noise = Array2::from_shape_simple_fn((clients * rows, n), || (0.05 * cursor.normal()).max(0.0));
    (u.dot(&v) + noise, v.slice(s![shared.., ..]).to_owned())
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn private_components_are_found_and_stay_with_their_client() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    let (m, private) = with_private_components(4);
    save_npy(&file, &m);
    let line = "--algo fnmf --align lap-rho --parties 6 -k 6 --max-iters 30 --local-iters 50 --input";
    let cosine = |a: ndarray::ArrayView1<f64>, b: ndarray::ArrayView1<f64>| {
        a.dot(&b) / (a.dot(&a) * b.dot(&b)).sqrt().max(f64::MIN_POSITIVE)
    };
    let plain = fednmf(2, line).arg(&file).ok();
    let personal = fednmf(2, line).arg(&file).arg("--personalize").arg("--output").arg(&out).ok();
    assert!(number(&personal, "rel_error") < 0.5 * number(&plain, "rel_error"), "{personal} {plain}");
    let shared = matrix(&out, "V");
    let mut found = 0;
    for (c, truth) in private.rows().into_iter().enumerate() {
        let own = matrix(&dir.path().join(format!("o.party-{c:02}.h5")), "V_own");
        found += usize::from(own.columns().into_iter().any(|v| cosine(v, truth) > 0.95));
        // it does not appear in the shared factor
        assert!(shared.columns().into_iter().all(|v| cosine(v, truth) < 0.95), "client {c}'s component is in V");
    }
    assert_eq!(found, 6);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_resumed_run_keeps_the_personal_factors() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (m, _) = with_private_components(5);
    save_npy(&file("m.npy"), &m);
    for more in ["--align lap-rho --personalize --participation 0.5", "--align sinkhorn --local-tol 1e-4"] {
        let line = format!("--algo fnmf {more} --parties 6 -k 6 --local-iters 7 --max-iters");
        let run = |iters: &str, out: &str| {
            fednmf(2, &line).arg(iters).arg("--input").arg(file("m.npy")).arg("--output").arg(file(out))
        };
        run("12", "whole.h5").ok();
        run("5", "half.h5").arg("--checkpoint").arg(file("c.h5")).ok();
        run("12", "rest.h5").arg("--checkpoint").arg(file("c.h5")).arg("--resume").ok();
        for name in ["U", "V"] {
            assert_eq!(factor(&file("whole.h5"), name), factor(&file("rest.h5"), name), "{more}: {name}");
        }
        std::fs::remove_file(file("c.h5")).unwrap();
    }
}

#[test]
fn contradictory_options_are_refused() {
    fednmf(0, "--algo fnmf --personalize").refused(&["--personalize", "lap-rho"]);
    fednmf(0, "--algo fnmf --gamma -1").refused(&["--gamma"]);
    fednmf(0, "--algo fnmf --align best").refused(&["--align", "sinkhorn"]);
    fednmf(0, "--algo fnmf --participation 0").refused(&["--participation"]);
    fednmf(0, "--algo fedavg --align lap").refused(&["--align", "fnmf"]);
    fednmf(0, "--algo mur --inertia 0.5").refused(&["--inertia"]);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn parties_that_follow_the_ranks_are_warned_of() {
    let words = "warning: the rows are divided among 2 parties, one for each rank, so the result depends on the number of ranks; \
                 --parties 1 keeps all rows together";
    for (parties, warned) in [("", true), ("--parties 2", false)] {
        let line = format!("--algo fnmf -k 2 --max-iters 2 --input synthetic:planted,m=20,n=10,k=2 {parties}");
        let done = fednmf(2, &line).run();
        assert_eq!((done.code, done.stderr.contains(words)), (Some(0), warned), "{}", done.stderr);
    }
}

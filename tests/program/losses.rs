//! Masked sums that continue after parties drop out: the result is that of only the remaining parties, or an error; a
//! rank that is killed during a sum ends the job at once.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::tempdir;

use fednmf_methods::description::COMMON_MESSAGES;
use fednmf_methods::registry;

use crate::common::{Run, distance, factor, fednmf, number};

/// The methods whose sums tolerate drop-outs, with their shared factor.
const METHODS: [(&str, &str); 10] = [
    ("--algo secure-hals --start public --accept-risk few-values", "U"),
    ("--algo syn-sd", "U"),
    ("--algo syn-ssd-u", "U"),
    ("--algo syn-ssd-u --weights equal", "U"),
    ("--algo fnmf --start shared --barycenter mean", "V"),
    ("--algo fedavg --start shared", "V"),
    ("--algo mur --start shared", "V"),
    ("--algo fed-kl", "V"),
    ("--algo fed-beta", "V"),
    ("--algo inmf", "V"),
];

/// Parties with the same 24 × 24 entries each: the mean, and with it the public start, is the same whichever party
/// drops out.
fn parts(dir: &Path, parties: usize) -> PathBuf {
    parts_of(dir, &vec![1; parties], "V")
}

/// As [`parts`], but parties have their entries as many times as `copies` says: in more rows, or for methods that share U in more
/// columns.
fn parts_of(dir: &Path, copies: &[usize], shared: &str) -> PathBuf {
    let row = |i: u32| (0..24u32).map(move |j| (((i * 7 + j * 11) % 13) * (1 + i % 3)).to_string());
    let name = |party: &str| dir.join(format!("{shared}{copies:?}-p{party}.csv"));
    for (party, copies) in copies.iter().enumerate() {
        let (down, across) = if shared == "V" { (*copies, 1) } else { (1, *copies) };
        let line = |i| vec![row(i).collect::<Vec<_>>().join(","); across].join(",") + "\n";
        std::fs::write(name(&party.to_string()), (0..24).map(line).collect::<String>().repeat(down)).unwrap();
    }
    name("{party}")
}

fn run(ranks: usize, algo: &str, parties: usize, more: &str, input: &Path) -> Run {
    let line = format!(
        "{algo} --parties {parties} -k 3 --max-iters 4 --eval-every 2 --seed 3 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries {more} --input"
    );
    fednmf(ranks, &line).arg(input)
}

#[test]
fn without_drop_outs_the_sums_have_the_bits_of_pairwise_masks() {
    let dir = tempdir().unwrap();
    let input = parts(dir.path(), 4);
    for ((algo, name), ranks) in METHODS.iter().zip([1, 2, 4].into_iter().cycle()) {
        let file = dir.path().join("o.h5");
        let [pairs, shared] = ["", "--secure-threshold 3"].map(|more| {
            let summary = run(ranks, algo, 4, more, &input).arg("--output").arg(&file).ok();
            (number(&summary, "rel_error").to_bits(), factor(&file, name))
        });
        assert_eq!(pairs, shared, "{algo} on {ranks} ranks");
    }
}

#[test]
fn after_drop_outs_at_any_stage_the_result_is_that_of_the_remaining_parties() {
    let dir = tempdir().unwrap();
    let three = parts(dir.path(), 3);
    let file = dir.path().join("o.h5");
    for (i, (algo, name)) in METHODS.iter().enumerate() {
        let five = parts_of(dir.path(), &[1, 1, 1, 3, 2], name);
        let few = run(2, algo, 3, "", &three).arg("--output").arg(&file).ok();
        let expected = (number(&few, "rel_error"), factor(&file, name));
        for stage in 1..=3 {
            let ranks = [1, 2, 4][(i + stage) % 3];
            let drop = format!("3@1:{stage},4@1:{}", 1 + stage % 3);
            let left = run(ranks, algo, 5, "--secure-threshold 3", &five).env("FEDNMF_DROP", &drop);
            let left = left.arg("--output").arg(&file).ok();
            let what = format!("{algo}, {drop} on {ranks} ranks");
            assert_eq!(number(&left, "lost_parties"), 2.0, "{what}");
            let (error, found) = (number(&left, "rel_error"), factor(&file, name));
            assert!((error - expected.0).abs() < 1e-6 * expected.0, "{what}: {error} {}", expected.0);
            assert!(distance(&found, &expected.1) < 1e-6, "{what}: {}", distance(&found, &expected.1));
        }
    }
}

/// Errors over other parties are no progress, and those of fewer are estimates.
#[test]
fn a_drop_out_ends_no_run_as_converged() {
    let dir = tempdir().unwrap();
    let end = |lost: &str, more: &str, drop: &str| {
        let input = parts_of(dir.path(), &[1, 1, 1, 2], "U");
        // The entries of the party that is lost are smaller or larger than those of the others.
        let row = vec![lost; 48].join(",") + "\n";
        std::fs::write(input.to_string_lossy().replace("{party}", "3"), row.repeat(24)).unwrap();
        let line = format!(
            "--algo secure-hals --start public --parties 4 -k 3 --max-iters 8 --eval-every 1 --secure-sum --secure-threshold 3 \
             --accept-risk few-rows,membership,few-values,rare-entries {more} --input"
        );
        fednmf(2, &line).arg(&input).env("FEDNMF_DROP", drop).ok()
    };
    let stopped = |lost: &str, more: &str, drop: &str| end(lost, more, drop)["stopped_by"].clone();
    // Without large entries the error seems to rise, and with them to fall.
    for drop in ["", "3@3:1"] {
        assert_eq!(stopped("1", "--tol 1e-9", drop), "max_iters", "{drop}");
    }
    let target = format!("--target-error {}", number(&end("30", "", ""), "rel_error"));
    assert_eq!(stopped("30", &target, ""), "target_error");
    let left = end("30", &target, "3@3:1");
    assert!(left["stopped_by"] == "max_iters" && left["lost_parties"] == 1.0, "{left}");
}

#[test]
fn a_party_that_drops_out_after_sending_its_values_is_in_the_sum() {
    let dir = tempdir().unwrap();
    let input = parts(dir.path(), 4);
    let file = dir.path().join("o.h5");
    // Without evaluations a round is one sum, so the last sum is the fourth.
    let line = "--algo syn-sd --parties 4 -k 3 --max-iters 4 --eval-every 0 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --secure-threshold 3 --input";
    let found = |drop: &str| {
        let output = fednmf(2, line).arg(&input).arg("--output").arg(&file).env("FEDNMF_DROP", drop).run();
        assert_eq!(output.code, Some(0), "{output:?}");
        let reported = output.stderr.contains("party 1 dropped out; sums continue with 3 of 4");
        assert_eq!(reported, !drop.is_empty(), "{output:?}");
        factor(&file, "U")
    };
    let all = found("");
    assert_eq!(found("1@4:4"), all);
    assert_ne!(found("1@4:3"), all);
    assert_ne!(found("1@3:4"), all);
}

/// If a sum is repeated over fewer parties, the difference reveals the term of the party that dropped out.
#[test]
fn nothing_is_summed_again_after_a_drop_out() {
    let dir = tempdir().unwrap();
    let input = parts(dir.path(), 5);
    for algo in ["--algo secure-hals --start public --accept-risk few-values", "--algo fnmf --local-iters 1"] {
        let sums = |drop: &str| {
            let line = format!(
                "{algo} --parties 5 -k 3 --max-iters 4 --eval-every 1 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --secure-threshold 3 --input"
            );
            let summary = fednmf(1, &line).arg(&input).env("FEDNMF_DROP", drop).ok();
            let rows = summary["wire"].as_array().unwrap().iter();
            let masked = rows.filter(|row| row["payload"] == "Masked");
            masked
                .map(|row| summary["phases"][row["purpose"].as_str().unwrap()]["calls"].as_u64().unwrap())
                .sum::<u64>()
        };
        let undisturbed = sums("");
        for stage in 1..=4 {
            assert_eq!(sums(&format!("4@3:{stage}")), undisturbed, "{algo}, stage {stage}");
        }
    }
}

#[test]
fn too_few_remaining_parties_are_an_error() {
    let dir = tempdir().unwrap();
    let input = parts(dir.path(), 4);
    for (stage, ranks) in [(1, 1), (2, 2), (3, 4), (4, 2)] {
        let drop = format!("0@3:{stage},3@3:{stage}");
        let start = Instant::now();
        let output = run(ranks, "--algo syn-ssd-u", 4, "--secure-threshold 3", &input).env("FEDNMF_DROP", &drop).run();
        assert_eq!(output.code, Some(1), "{output:?}");
        assert_eq!(output.stderr.matches("too many have dropped out").count(), 1, "{output:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }
}

#[test]
fn a_rank_killed_at_any_stage_of_a_sum_ends_the_job_at_once() {
    let dir = tempdir().unwrap();
    let input = parts(dir.path(), 4);
    for (stage, ranks) in [(1, 2), (2, 4), (3, 2), (4, 4)] {
        let out = dir.path().join("killed.h5");
        let start = Instant::now();
        let output = run(ranks, "--algo secure-hals", 4, "--secure-threshold 3", &input)
            .env("FEDNMF_DROP", &format!("2@5:{stage}:kill"))
            .arg("--output")
            .arg(&out)
            .run();
        assert!(start.elapsed() < Duration::from_secs(30), "stage {stage}: {:?}", start.elapsed());
        assert!(output.code != Some(0) && !out.exists(), "stage {stage}: {output:?}");
        // MPICH's launcher reports it on stdout.
        let text = (output.stdout.clone() + &output.stderr).to_lowercase();
        assert!(
            text.contains("killed") || text.contains("signal 9") || text.contains("lost"),
            "stage {stage}: {output:?}"
        );
    }
}

/// One entry has the norm of the whole matrix and does not fit the fixed point, so its party leaves the sums.
#[test]
fn a_party_whose_values_exceed_the_fixed_point_leaves_the_sums() {
    let dir = tempdir().unwrap();
    let input = dir.path().join("spike.csv");
    let mut rows = vec![["1"; 48]; 2000];
    rows[6][2] = "1e5";
    std::fs::write(&input, rows.iter().map(|row| row.join(",") + "\n").collect::<String>()).unwrap();
    let line = "--algo secure-hals -k 1 --parties 4 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --headroom 1 --max-iters 3 --secure-threshold 3 --input";
    for ranks in [1, 2] {
        let output = fednmf(ranks, line).arg(&input).run();
        assert_eq!(output.code, Some(0), "{output:?}");
        for words in ["party 0: its share of 'sum of M_r V_r'", "the party drops out", "party 0 dropped out", "3 of 4"]
        {
            assert!(output.stderr.contains(words), "{words}: {output:?}");
        }
    }
}

#[test]
fn the_traffic_is_in_the_message_table_and_does_not_depend_on_ranks() {
    let input = Path::new("synthetic:planted,m=60,n=40");
    for (algo, _) in METHODS {
        let method = registry::find(algo.split_whitespace().nth(1).unwrap()).unwrap().description();
        let mut first: Option<Vec<(String, u64)>> = None;
        for ranks in [1, 2, 4] {
            let drop = if ranks == 4 { "3@9:4" } else { "" };
            let summary = run(ranks, algo, 4, "--secure-threshold 3", input).env("FEDNMF_DROP", drop).ok();
            let mut bytes = Vec::new();
            for row in summary["wire"].as_array().unwrap() {
                let (purpose, payload) = (row["purpose"].as_str().unwrap(), row["payload"].as_str().unwrap());
                let mut known = COMMON_MESSAGES.iter().chain(method.messages);
                let known = known.any(|w| w.kind == purpose && w.payload.name() == payload);
                assert!(known, "{algo}: {row}");
                let loading = purpose == "statistics of the matrix";
                let harmless = ["Masked", "Control", "Metadata", "Ciphertext"].contains(&payload);
                assert!(loading || harmless, "{algo}: {row}");
                let keys = ["public keys of a sum", "shares that unmask a sum"].contains(&purpose);
                if keys || ["Masked", "Ciphertext"].contains(&payload) {
                    bytes.push((purpose.to_string(), row["party_bytes"].as_u64().unwrap()));
                }
            }
            assert!(bytes.iter().any(|(purpose, _)| purpose == "shares of secrets"), "{summary}");
            if drop.is_empty() {
                assert_eq!(first.get_or_insert_with(|| bytes.clone()), &bytes, "{algo} on {ranks} ranks");
            }
        }
    }
}

#[test]
fn contradictory_options_are_refused() {
    let line = "--algo syn-sd --parties 4 --max-iters 1";
    fednmf(2, &format!("{line} --secure-threshold 3")).refused(&["--secure-threshold", "add --secure-sum"]);
    fednmf(2, &format!("{line} --secure-sum --secure-threshold 5")).refused(&["--secure-threshold 5", "4 parties"]);
    fednmf(2, &format!("{line} --secure-sum --secure-threshold 1")).refused(&["--secure-threshold 1", "at least 3"]);
    // Each of two would read the other's terms.
    fednmf(2, &format!("{line} --secure-sum --secure-threshold 2")).refused(&["--secure-threshold 2", "at least 3"]);
    // Two disjoint groups could each reconstruct a secret.
    let six = line.replace("--parties 4", "--parties 6");
    fednmf(2, &format!("{six} --secure-sum --secure-threshold 3")).refused(&["more than half", "from 4 to 6"]);
    fednmf(2, &format!("{line} --secure-sum --secure-threshold 3 --dp gaussian --epsilon 1 --clip 1"))
        .refused(&["--secure-threshold", "--dp"]);
    fednmf(2, "--algo dsanls-secure --parties 4 --secure-sum --secure-threshold 3").refused(&["--secure-threshold"]);
    fednmf(2, &format!("{line} --secure-sum --secure-threshold 3"))
        .env("FEDNMF_DROP", "1@2")
        .refused(&["FEDNMF_DROP=1@2", "PARTY@SUM:STAGE"]);
}

//! Differential privacy and masked sums of row parties: the budget holds, no other data leaves a party, and attacks
//! that succeed without protection fail with it.

use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde_json::Value;
use tempfile::tempdir;

use fednmf_comm::Communicator;
use fednmf_data::state::{Owner, Piece, ReadRows, State};
use fednmf_files::output::checkpoint::Checkpoint;
use fednmf_methods::registry;

use crate::common::{data, distance, events, factor, fednmf, matrix, npy, save_npy, session, write_npy};

/// A line for each way in which parties release data under noise.
const NOISED: [&str; 12] = [
    "--algo syn-sd --dp gaussian --epsilon 5 --clip 1 --secure-sum",
    "--algo syn-ssd-v --dp laplace --dp-noise 0.001 --clip 1",
    "--algo felb-mu --binarize 0.5 --dp gaussian --epsilon 4",
    "--algo felb --binarize 0.5 --dp laplace --epsilon 300 --clip 2",
    "--algo felb --binarize 0.5 --dp xor --dp-noise 0.1",
    "--algo fnmf --dp gaussian --dp-noise 0.01",
    "--algo fedavg --dp laplace --epsilon 1000 --clip 5",
    "--algo fedprox --start shared --secure-sum --dp gaussian --epsilon 8 --clip 3",
    "--algo ipalm --dp gaussian --epsilon 10 --clip 100",
    "--algo asso --binarize 0.5 --dp xor --epsilon 20 --clip 30 --secure-sum",
    "--algo secure-hals --secure-sum --dp gaussian --epsilon 8",
    "--algo secure-hals --dp gaussian --dp-noise 10 --clip 40 --update hals --local-iters 3",
];
const MASKED: [&str; 6] = [
    "--algo felb --binarize 0.5 --secure-sum --accept-risk few-rows,membership",
    "--algo felb-mu --binarize 0.5 --secure-sum --dp gaussian --dp-noise 0.1",
    "--algo fnmf --start shared --barycenter mean --secure-sum --accept-risk few-rows,membership",
    "--algo fedavg --secure-sum --accept-risk few-rows,membership --participation 0.6",
    "--algo mur --secure-sum --accept-risk few-rows,membership",
    "--algo grecond --binarize 0.5 --secure-sum --accept-risk few-rows,membership",
];

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn noised_and_masked_runs_do_not_depend_on_the_number_of_ranks() {
    let dir = tempdir().unwrap();
    for line in NOISED.iter().chain(&MASKED) {
        let mut first: Option<(u64, Array2<f64>, Array2<f64>)> = None;
        for ranks in [0, 3] {
            let file = dir.path().join(format!("{ranks}.h5"));
            let line = format!("{line} --parties 5 -k 4 --max-iters 4 --eval-every 4 --secret-seed 7 --seed 2 --input");
            let run = fednmf(ranks, &line).arg(data("digits.npy")).arg("--output").arg(&file).ok();
            let found = (number(&run, "rel_error").to_bits(), factor(&file, "V"), factor(&file, "U"));
            assert!(found.1.iter().chain(&found.2).all(|x| *x >= 0.0), "{line}: negative entries");
            assert!(*first.get_or_insert_with(|| found.clone()) == found, "{line} on {ranks} ranks");
        }
    }
}

#[test]
fn masked_runs_are_as_good_as_plain_ones() {
    for line in MASKED.iter().filter(|l| !l.contains("--dp")) {
        let run = |line: &str| {
            let line = format!("{line} --parties 5 -k 4 --max-iters 10 --seed 2 --input");
            number(&fednmf(0, &line).arg(data("digits.npy")).ok(), "rel_error")
        };
        let (masked, plain) = (run(line), run(&line.replace("--secure-sum", "")));
        assert!((masked - plain).abs() < 1e-5 * plain, "{line}: {masked} {plain}");
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_budget_is_reported_and_not_exceeded() {
    let dir = tempdir().unwrap();
    let (trace, out) = (dir.path().join("t.jsonl"), dir.path().join("o.h5"));
    let line = "--algo felb-mu --binarize 0.5 --parties 4 -k 3 --max-iters 50 --eval-every 3 --dp gaussian \
                --dp-noise 160 --epsilon 1.5 --input";
    let run = fednmf(2, line).arg(data("digits.npy")).arg("--trace").arg(&trace).arg("--output").arg(&out).ok();
    let table = &run["privacy"];
    let (done, spent) = (number(table, "releases"), number(table, "epsilon_spent"));
    assert_eq!(run["stopped_by"], "epsilon", "{table}");
    assert!(spent <= 1.5 && done == number(&run, "iter") && done > 1.0 && done < 50.0, "{table}");
    assert_eq!(table["releases_planned"].as_f64(), Some(done));
    // One more release would exceed it, as a run with the same noise and no budget shows.
    let more = line.replace("--epsilon 1.5", "").replace("--max-iters 50", &format!("--max-iters {}", done + 1.0));
    let more = fednmf(0, &more).arg(data("digits.npy")).ok();
    assert!(number(&more["privacy"], "epsilon_spent") > 1.5, "{more}");
    let history: Vec<f64> =
        events(&trace).iter().filter(|e| e["event"] == "iter").map(|e| number(e, "epsilon_spent")).collect();
    assert!(history[0] == 0.0 && history.windows(2).all(|w| w[0] < w[1]) && *history.last().unwrap() == spent);
    let stored: String = hdf5::File::open(&out)
        .and_then(|f| f.attr("privacy"))
        .and_then(|a| a.read_scalar::<hdf5::types::VarLenUnicode>())
        .unwrap()
        .to_string();
    assert_eq!(&serde_json::from_str::<Value>(&stored).unwrap(), table);
    // Evaluations are not covered; the table gives their number.
    let beside = table["not_covered"].as_array().unwrap();
    let beside: Vec<&str> = beside.iter().map(|text| text.as_str().unwrap()).collect();
    assert!(beside.iter().any(|x| x.starts_with("statistics of the matrix")), "{table}");
    assert!(beside.iter().any(|x| x.contains("in 8 evaluation(s)")), "{table}");
    let text = fednmf(0, &line.replace("--eval-every 3", "--eval-every 0")).arg(data("digits.npy")).run().stdout;
    assert!(
        text.contains("differential privacy") && text.contains("of 1.5") && !text.contains("evaluation:"),
        "{text}"
    );
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_resumed_run_repeats_its_releases_and_no_others() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (line, shared) in [
        ("--algo felb --binarize 0.5 --dp gaussian --epsilon 50", "V"),
        ("--algo fedavg --dp gaussian --dp-noise 0.1 --clip 9", "V"),
        ("--algo secure-hals --secure-sum --dp gaussian --epsilon 50", "U"),
    ] {
        let run = |iters: usize, out: &str, more: &str| {
            let line = format!("{line} --parties 3 -k 3 --max-iters {iters} --dp-releases 8 {more} --input");
            fednmf(2, &line)
                .arg(data("digits.npy"))
                .arg("--checkpoint")
                .arg(file("c.h5"))
                .arg("--output")
                .arg(file(out))
                .ok()
        };
        let half = run(3, "half.h5", "");
        assert_eq!(number(&half["privacy"], "releases"), 3.0);
        let names = || std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.path());
        let kept: Vec<_> = names().filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("c.")).collect();
        let copies: Vec<_> = kept.iter().map(|p| std::fs::read(p).unwrap()).collect();
        // Noise is fresh in every run, but a checkpoint resumed twice gives the same messages twice.
        let mut ends = Vec::new();
        for out in ["one.h5", "two.h5"] {
            kept.iter().zip(&copies).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
            let rest = run(6, out, "--resume");
            assert_eq!(number(&rest["privacy"], "releases"), 6.0, "{rest}");
            ends.push(matrix(&file(out), shared));
        }
        assert_eq!(ends[0], ends[1], "{line}");
        names().for_each(|p| std::fs::remove_file(p).unwrap());
    }
}

/// Replaces the shared factor of a checkpoint, with checksums that fit, as anybody can who may write the file.
fn change_factor(path: &Path, name: &'static str) {
    let (stored, attributes) = Checkpoint::open(path).unwrap();
    let mut factor = Array2::<f64>::zeros(matrix(path, name).dim());
    stored.rows(name, Owner::Shared, 0, factor.view_mut()).unwrap();
    factor[[0, 0]] += 0.5;
    let state = State::from(vec![Piece::shared(name, factor.nrows(), 0, factor.view())]);
    let other = path.with_file_name("other.h5");
    Checkpoint::new(&other).save(&Communicator::local(), &state, &attributes).unwrap();
    std::fs::rename(other, path).unwrap();
}

/// With the noise of the run and another shared factor, the difference of two messages would be exact.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_shared_checkpoint_that_was_changed_is_refused() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("c.h5");
    for (line, name) in [
        ("--algo felb --binarize 0.5 --dp gaussian --epsilon 50", "V"),
        ("--algo fedavg --dp gaussian --epsilon 50 --clip 9", "V"),
        ("--algo syn-sd --dp gaussian --epsilon 50 --clip 9 --secure-sum", "U"),
        ("--algo secure-hals --secure-sum --dp gaussian --epsilon 50", "U"),
    ] {
        let run = |iters: usize, more: &str| {
            let line = format!("{line} --parties 3 -k 3 --max-iters {iters} --dp-releases 8 {more} --input");
            fednmf(2, &line).arg(data("digits.npy")).arg("--checkpoint").arg(&file)
        };
        run(2, "").ok();
        let good = std::fs::read(&file).unwrap();
        change_factor(&file, name);
        run(4, "--resume").refused(&["c.h5", "is not as it was when party 0 saved its own part"]);
        std::fs::write(&file, good).unwrap();
        run(4, "--resume").ok();
        let names = std::fs::read_dir(dir.path()).unwrap().flatten();
        names.for_each(|entry| std::fs::remove_file(entry.path()).unwrap());
    }
}

/// A method that releases once, at its end, is resumed twice from the same checkpoint, to end after another number of steps:
/// it releases something else.
#[test]
fn a_fork_draws_other_noise_and_is_charged() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |more: &str| {
        let line = format!("--algo ipalm --dp gaussian --epsilon 1 --clip 1 --parties 3 -k 3 {more} --input");
        fednmf(0, &line)
            .arg(data("digits.npy"))
            .arg("--checkpoint")
            .arg(file("c.h5"))
            .arg("--budget")
            .arg(file("b.json"))
    };
    let stopped = run("--max-iters 9 --time-limit 0 --budget-limit 1.5").run();
    assert_eq!(stopped.code, Some(75), "{}", stopped.stderr);
    let kept: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "h5"))
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    let restore = || kept.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    let ends = [5, 5, 6].map(|iters| {
        restore();
        let out = file(&format!("{iters}.h5"));
        run(&format!("--max-iters {iters} --resume")).arg("--output").arg(&out).ok();
        let found = (matrix(&out, "V"), fednmf(0, "account").arg("--budget").arg(file("b.json")).run().stdout);
        std::fs::remove_file(out).unwrap();
        found
    });
    assert_eq!(ends[0].0, ends[1].0, "the same release");
    assert!(
        !ends[1].1.contains("changed state") && ends[2].1.contains("1 release(s) from a changed state"),
        "{}",
        ends[2].1
    );
    // The same noise would cancel in the difference: a step alone moves V by less than 0.07 of its largest entry.
    let moved = distance(&ends[0].0, &ends[2].0);
    assert!(moved > 0.4, "{moved}");
    restore();
    run("--max-iters 7 --resume").refused(&["b.json", "from another state than before", "of 1.5"]);
}

#[test]
fn a_budget_is_not_split_again_by_a_resume() {
    let dir = tempdir().unwrap();
    let run = |more: &str| {
        let line = format!("--algo fedavg --parties 3 -k 2 --dp gaussian --epsilon 50 --clip 9 {more} --input");
        fednmf(0, &line).arg(data("digits.npy")).arg("--checkpoint").arg(dir.path().join("c.h5"))
    };
    run("--max-iters 3").ok();
    run("--max-iters 8 --resume").refused(&["c.h5", "--dp-releases 3", "--dp-releases 8", "over 3 releases"]);
    run("--max-iters 3 --resume --dp-releases 3").ok();
}

#[test]
fn a_budget_that_is_spent_stays_spent() {
    let dir = tempdir().unwrap();
    let line = "--algo ipalm --dp gaussian --epsilon 1 --clip 1 --parties 3 -k 3 --input";
    let run = |more: &str| {
        fednmf(0, &format!("{line} {} {more}", data("digits.npy").display()))
            .arg("--checkpoint")
            .arg(dir.path().join("c.h5"))
    };
    assert_eq!(number(&run("--max-iters 3").ok()["privacy"], "releases"), 1.0);
    run("--max-iters 6 --resume").refused(&["budget is spent"]);
}

/// 60 rows of 64 entries in three files: fewer than sums hide well.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn parties_with_little_data_are_refused_before_it_leaves() {
    let dir = tempdir().unwrap();
    (0..3).for_each(|party| drop(npy(dir.path(), &format!("p{party}.npy"), party * 20..party * 20 + 20)));
    let run = |algo: &str, words: &str| {
        let line = format!("--algo {algo} --max-iters 5 {words} --input");
        fednmf(2, &line).arg(dir.path().join("p{party}.npy")).arg("--output").arg(dir.path().join("o.h5"))
    };
    let fedavg = |words: &str| run("fedavg", words);
    fedavg("-k 6 --secure-sum").refused(&["fewer rows than --min-rows 24", "--accept-risk few-rows"]);
    fedavg("-k 4 --secure-sum").refused(&["20 vectors in the space of 40 rows", "--max-iters 1 or less"]);
    fedavg("-k 4 --secure-sum --colluding 2")
        .refused(&["20 vectors in the space of 20 rows", "at least 200 such rows"]);
    // The digits are whole numbers, which exact sums tell from one on.
    let whole = "-k 3 --secure-sum --accept-risk membership";
    run("inmf", whole).refused(&["40 rows, of 64 entries", "--accept-risk few-values"]);
    run("inmf", "-k 3 --secure-sum --accept-risk few-values").refused(&["15 vectors", "--accept-risk membership"]);
    // An option with a list that is given twice has both.
    run("inmf", "-k 3 --secure-sum --accept-risk few-values --accept-risk membership --suppress-rare 3").ok();
    let outputs = || std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path());
    let written = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "h5");
    outputs().filter(written).for_each(|path| std::fs::remove_file(path).unwrap());
    assert!(
        fedavg("-k 4").run().stderr.contains("what a party sends in this run gives others 20 vectors"),
        "only said"
    );
    let accepted = fedavg("-k 4 --secure-sum --accept-risk membership").arg("--trace").arg(dir.path().join("t.jsonl"));
    accepted.ok();
    assert_eq!(events(&dir.path().join("t.jsonl"))[0]["params"]["accept_risk"], "membership");
    fedavg("-k 4 --secure-sum --dp gaussian --epsilon 1 --clip 1").ok();
    // Of four parties one lacks 180 rows, and two together 120.
    let four = "--algo fedavg --parties 4 --secure-sum -k 4 --max-iters 4 --input synthetic:planted,m=240,n=200";
    fednmf(2, four).ok();
    fednmf(2, &format!("{four} --colluding 2")).refused(&["16 vectors in the space of 120 rows"]);
}

/// Files of parties count with their own rows (or columns), not with an equal share of all.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_party_with_a_small_file_is_refused_whatever_the_others_have() {
    let dir = tempdir().unwrap();
    for (party, rows) in [0..250, 250..499, 499..500].into_iter().enumerate() {
        npy(dir.path(), &format!("p{party}.npy"), rows);
    }
    let files = dir.path().join("p{party}.npy").display().to_string();
    for (ranks, line) in [
        (1, "--algo fedavg --parties 3"),
        (3, "--algo fnmf"),
        (3, "--algo syn-sd --transpose"),
        (2, "--algo inmf --accept-risk few-values --parties 3"),
    ] {
        let line = format!("{line} --secure-sum -k 4 --max-iters 1 --eval-every 0 --input {files}");
        fednmf(ranks, &line).refused(&["--min-rows 20", "--accept-risk few-rows"]);
    }
}

/// Statistics of these entries cannot be computed, because their squares are too large; that they have few values is found
/// before.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn few_values_are_found_before_any_statistic_of_the_data() {
    let dir = tempdir().unwrap();
    for party in 0..3 {
        let entry = |i: usize, j: usize| if (i * 7 + j * 3 + party).is_multiple_of(5) { 1e200 } else { 0.0f64 };
        let entries: Vec<u8> = (0..80 * 20).flat_map(|at| entry(at / 20, at % 20).to_le_bytes()).collect();
        write_npy(&dir.path().join(format!("p{party}.npy")), "<f8", (80, 20), &entries);
    }
    let run = |line: &str| fednmf(2, &format!("{line} -k 3 --input")).arg(dir.path().join("p{party}.npy"));
    let hals = "--algo secure-hals --secure-sum --accept-risk few-rows,membership --max-iters 2";
    run(hals).refused(&["few values", "--accept-risk few-values"]);
    run(&format!("{hals} --scale max --binarize 0.5")).refused(&["few values"]);
    let sketches = "--algo dsanls-secure --secure-sum --accept-risk few-rows --max-iters 2 --eval-every 0";
    run(sketches).refused(&["few values", "--accept-risk sketches"]);
    run(&format!("{hals} --accept-risk few-values")).refused(&["beyond the range of numbers"]);
}

/// Party 1 has two rows that alone have an entry in column 10, two that alone lack one in column 11, and two whose entries in column 9
/// alone are above 1.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn rare_entries_are_refused_where_sums_are_exact_unless_they_are_left_out() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let put = |name: &str, party: usize, few: usize| {
        let entry = |i: usize, j: usize| match j {
            9 if party == 1 && (4..6).contains(&i) => 1.1,
            9 => 0.8 + 0.001 * i as f64,
            10 => f64::from(u8::from(party == 1 && i < few)),
            11 => f64::from(u8::from(party != 1 || i >= few)),
            _ => 0.5 + ((i * 31 + j * 17 + party * 7) as f64).sin().abs(),
        };
        let entries: Vec<u8> = (0..60 * 12).flat_map(|at| entry(at / 12, at % 12).to_le_bytes()).collect();
        write_npy(&file(&format!("{name}-{party}.npy")), "<f8", (60, 12), &entries);
    };
    (0..3).for_each(|party| [("two", 2), ("none", 0)].iter().for_each(|(name, few)| put(name, party, *few)));
    let run = |line: &str, name: &str| {
        let line = format!("{line} --secure-sum -k 3 --max-iters 2 --input");
        fednmf(3, &line).arg(file(&format!("{name}-{{party}}.npy")))
    };
    for (line, factor, what) in [
        ("--algo fed-kl", "V", "rows"),
        ("--algo fed-beta", "V", "rows"),
        ("--algo inmf", "V", "rows"),
        ("--algo secure-hals --transpose --secret-seed 1", "U", "columns"),
    ] {
        let whose = format!("fewer than 3 of its {what}");
        run(line, "two").refused(&[whose.as_str(), "--suppress-rare 3", "--accept-risk rare-entries"]);
        run(&format!("{line} --accept-risk rare-entries"), "two").ok();
        // As if the party had the usual values.
        let ends = [("two", "--suppress-rare 3"), ("none", "")].map(|(name, more)| {
            let out = file(&format!("{name}.h5"));
            run(&format!("{line} {more}"), name).arg("--output").arg(&out).arg("--trace").arg(file("t.jsonl")).ok();
            let start = &events(&file("t.jsonl"))[0];
            assert_eq!(start["params"]["suppress_rare"].as_u64(), (name == "two").then_some(3), "{start}");
            matrix(&out, factor)
        });
        assert_eq!(ends[0], ends[1], "{line}");
        let binary = format!("{line} --binarize 1 --accept-risk few-rows,membership,few-values");
        run(&binary, "none").refused(&[whose.as_str()]);
        run(&format!("{binary} --suppress-rare 3"), "none").ok();
    }
    // No exact sums.
    run("--algo fedavg", "two").ok();
}

/// Column 3 has a rare entry at each of the three parties of a rank, and column 4 at one.
#[test]
fn a_column_in_which_several_parties_have_rare_entries_is_counted_once() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("x.npy");
    let x = Array2::from_shape_fn((60, 6), |(i, j)| match j {
        3 => f64::from(u8::from(i % 20 == 7)),
        4 => f64::from(u8::from(i == 2)),
        _ => 0.5 + ((i * 31 + j * 17) as f64).sin().abs(),
    });
    save_npy(&path, &x);
    let line = "--algo fedavg --parties 3 --suppress-rare 3 -k 2 --max-iters 2 --input";
    let done = fednmf(0, line).arg(&path).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let told = done.stderr.contains("--suppress-rare changed 2 columns before anything was computed");
    assert!(told, "{}", done.stderr);
    // Whoever compares the data with the factors is told so if they have such entries, and not if they have none.
    for (columns, warned) in [(6, true), (3, false)] {
        save_npy(&path, &x.slice(ndarray::s![.., ..columns]).to_owned());
        let factors = dir.path().join(format!("f{columns}.npz"));
        fednmf(0, line).arg(&path).arg("--output").arg(&factors).ok();
        let told = fednmf(0, "evaluate").arg(&factors).arg("--input").arg(&path).run();
        assert_eq!(told.code, Some(0), "{}", told.stderr);
        let warning = "changed rare entries (--suppress-rare) in 2 columns of this matrix";
        assert_eq!(told.stderr.contains(warning), warned, "{}", told.stderr);
        assert_eq!(told.stderr.contains("--suppress-rare"), warned, "{}", told.stderr);
    }
}

/// Between two parties only the noise protects, and no warning contradicts its guarantee.
#[test]
fn noise_holds_between_two_parties_and_masks_do_not() {
    let line = "--algo secure-hals --parties 2 --secure-sum -k 2 --max-iters 2 --input synthetic:planted,m=40,n=60";
    let (alone, noised) = ("--secure-sum hides nothing between two parties", "sums with their noise");
    for (more, told, untold) in [
        ("--eval-every 0 --accept-risk few-rows,membership,few-values", alone, noised),
        ("--dp gaussian --epsilon 1", noised, alone),
    ] {
        let done = fednmf(0, &format!("{line} {more}")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(done.stderr.contains(told) && !done.stderr.contains(untold), "{}", done.stderr);
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn contradictory_options_are_refused_with_a_reason() {
    for (line, words) in [
        ("--algo hals --dp gaussian --epsilon 1", &["--dp", "one domain of trust"][..]),
        ("--algo ppdnmf --dp gaussian --epsilon 1", &["--dp", "is not an option of ppdnmf"]),
        ("--algo dsanls-secure --epsilon 1", &["--epsilon", "sketches of the data"]),
        ("--algo syn-ssd-u --dp gaussian --epsilon 1", &["--dp", "every local step"]),
        ("--algo asyn-sd --dp gaussian --epsilon 1", &["--dp", "use syn-sd"]),
        ("--algo fnmf --epsilon 1", &["--epsilon", "without --dp"]),
        ("--algo fnmf --dp gaussian", &["--epsilon", "--dp-noise"]),
        ("--algo fnmf --dp gaussian --epsilon 1 --delta 0", &["--delta"]),
        ("--algo fnmf --dp xor --epsilon 1", &["--dp xor", "numbers"]),
        ("--algo fnmf --dp gaussian --epsilon 1 --align lap-rho --personalize", &["--personalize"]),
        ("--algo fnmf --secure-sum --accept-risk membership --barycenter tree", &["--secure-sum", "--barycenter mean"]),
        ("--algo fnmf --secure-sum --accept-risk membership --start independent", &["--start shared"]),
        ("--algo fedavg --dp gaussian --epsilon 1", &["--clip"]),
        ("--algo fedavg --dp laplace --epsilon 1 --clip 1 --secure-sum", &["--dp laplace", "gaussian"]),
        ("--algo fedavg --dp gaussian --epsilon 300 --dp-calibration classic --clip 1", &["classic", "below 1"]),
        ("--algo felb --binarize 0.5 --clamp", &["--clamp"]),
        ("--algo asso --binarize 0.5 --dp gaussian --epsilon 1", &["--dp gaussian", "xor"]),
        ("--algo asso --binarize 0.5 --dp xor --epsilon 1 --aggregate or", &["--aggregate or"]),
        ("--algo secure-hals --dp gaussian --epsilon 1 --dp-unit party", &["--dp-unit party", "syn-sd"]),
        ("--algo syn-sd --dp gaussian --epsilon 1 --clip 1 --dp-unit column", &["--dp-unit column", "secure-hals"]),
        ("--algo secure-hals --dp-unit column", &["--dp-unit", "add --dp"]),
        ("--algo secure-hals --dp laplace --epsilon 1", &["--dp gaussian"]),
        ("--algo secure-hals --dp gaussian --epsilon 1 --clip 0", &["--clip 0"]),
        ("--algo secure-hals --dp gaussian --epsilon 1 --start public", &["--start", "public U"]),
        (
            "--algo secure-hals --dp gaussian --epsilon 1 --suppress-rare 3",
            &["--suppress-rare", "no epsilon holds for one"],
        ),
        ("--algo secure-hals --dp gaussian --epsilon 1 --sketch subsample", &["--sketch", "costs privacy"]),
        ("--algo secure-hals --dp gaussian --epsilon 1 --extrapolation restart", &["--extrapolation", "objective"]),
        ("--algo secure-hals --dp gaussian --epsilon 1 --secure-sum --secure-threshold 3 --parties 3", &["--dp"]),
        // All would know the weights of the first sum.
        ("--algo secure-hals --secure-sum --start public", &["--start public", "--accept-risk few-values"]),
        ("account --delta 1e-5", &["--noise", "--epsilon"]),
    ] {
        fednmf(2, line).refused(words);
    }
}

#[test]
fn message_tables_and_limits_are_listed() {
    for method in registry::descriptions() {
        let table = fednmf(0, &format!("list --wire {}", method.name)).run().stdout;
        assert_eq!(table.lines().count(), 1 + method.all_messages().count(), "{table}");
        assert!(method.messages.iter().all(|w| table.contains(w.kind) && table.contains(w.when)), "{table}");
        let text = fednmf(0, &format!("list {}", method.name)).run().stdout;
        assert_eq!(text.contains("\nLimits: "), method.partition.is_private(), "{text}");
    }
}

/// What a run says of itself: a guarantee, unless something was asked for that it does not cover.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_run_has_a_guarantee_as_a_whole_unless_more_is_shared() {
    let dir = tempdir().unwrap();
    (0..3).for_each(|party| drop(npy(dir.path(), &format!("{party}.npy"), party * 20..party * 20 + 20)));
    let run = |ranks: usize, line: &str| {
        let by_rows = !(line.contains("secure-hals") || line.contains("syn-"));
        let turned = if by_rows { "" } else { "--transpose" };
        let line = format!("{line} --parties 3 -k 3 --max-iters 3 {turned} --input");
        fednmf(ranks, &line).arg(dir.path().join("{party}.npy"))
    };
    for line in NOISED {
        let summary = run(3, line).ok();
        let table = &summary["privacy"];
        let epsilon = number(table, "epsilon_spent");
        assert!(
            table["guarantee"] == "formal" && table["not_covered"].as_array().unwrap().is_empty(),
            "{line}: {table}"
        );
        let unit = table["unit"].as_str().unwrap();
        let verdict = table["verdict"].as_str().unwrap();
        assert!(
            verdict.starts_with(&format!("formal: {unit}; epsilon ")) && verdict.ends_with("delta 0.00001"),
            "{table}"
        );
        assert!(epsilon > 0.0 && summary["rel_error"].is_null(), "{summary}");
        // Nothing else left a party without noise; the server works on what has it.
        let bare = summary["wire"].as_array().unwrap().iter().filter(|row| row["protection"] == "in the clear");
        let bare = bare.filter(|row| row["payload"] != "Metadata").map(|row| row["purpose"].as_str().unwrap());
        let bare: Vec<&str> =
            bare.filter(|kind| !["inside the server", "largest term of an exact sum"].contains(kind)).collect();
        assert!(bare.is_empty(), "{line}: {bare:?}");
    }
    let line = "--algo secure-hals --secure-sum --dp gaussian --epsilon 8";
    for (more, why) in [
        ("--eval-every 3", "evaluation: "),
        ("--eval-every 3", "statistics of the matrix"),
        ("--scale max", "largest entry"),
        ("--secret-seed 1", "--secret-seed"),
    ] {
        let table = &run(3, &format!("{line} {more}")).ok()["privacy"];
        let verdict = table["verdict"].as_str().unwrap();
        assert!(
            table["guarantee"] == "none" && verdict.starts_with("none: ") && verdict.contains(why),
            "{more}: {table}"
        );
    }
    let one_file = fednmf(2, &format!("{line} --parties 3 -k 3 --max-iters 3 --input")).arg(data("digits.npy")).ok();
    assert!(one_file["privacy"]["verdict"].as_str().unwrap().contains("one file, which all ranks read"), "{one_file}");
    let text = run(0, line).run().stdout;
    assert!(
        text.contains("guarantee") && text.contains("formal: one row of your file, replaced by any other"),
        "{text}"
    );
    run(0, &format!("{line} --tol 1e-3")).refused(&["--tol", "--eval-every 10"]);
    run(0, &format!("{line} --precision f32")).refused(&["--precision f32", "--precision f64"]);
}

/// The start of the factors would tell the mean of all entries.
#[test]
fn without_evaluations_the_start_does_not_depend_on_the_data() {
    let dir = tempdir().unwrap();
    let start = |algo: &str, of: std::ops::Range<usize>, more: &str| {
        let (input, out) = (npy(dir.path(), "d.npy", of), dir.path().join("o.h5"));
        let line =
            format!("--algo {algo} --dp gaussian --epsilon 1 --clip 1 --parties 3 -k 3 --max-iters 0 {more} --input");
        fednmf(0, &line).arg(input).arg("--output").arg(&out).ok();
        matrix(&out, if algo == "syn-sd" { "U" } else { "V" })
    };
    for (algo, more) in [("syn-sd", "--transpose"), ("fedavg", ""), ("fedprox", "--start shared")] {
        assert_eq!(start(algo, 0..60, more), start(algo, 300..360, more), "{algo}");
        let evaluated = format!("{more} --eval-every 1");
        assert_ne!(start(algo, 0..60, &evaluated), start(algo, 300..360, &evaluated), "{algo}");
    }
}

/// One case of `bench/run reproduce dp-gain`: 200 parties and ε = 16 for the whole run.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn noise_on_the_sum_costs_less_than_noise_of_each_party() {
    let run = |more: &str| {
        let line = format!(
            "--algo felb-mu --input synthetic:tiles,m=4000,n=40,k=3,density=0.9,noise=0.05 -k 3 --parties 200 \
             --max-iters 8 --eval-every 8 --seed 1 {more}"
        );
        number(&fednmf(2, &line).ok(), "f1_signal")
    };
    let private = "--dp gaussian --epsilon 16 --secret-seed 1";
    let (own, sum, free) = (run(private), run(&format!("{private} --secure-sum")), run(""));
    assert!(free > 0.8 && sum > free - 0.1 && own < sum - 0.3, "own {own}, on the sum {sum}, without noise {free}");
}

/// The first rows of the digits as a file, with one row replaced by zeros.
fn without_row(dir: &Path, rows: usize, left_out: Option<usize>) -> std::path::PathBuf {
    let bytes = std::fs::read(data("digits.npy")).unwrap();
    let pixels = &bytes[bytes.len() - 1797 * 64..];
    let path = dir.join("rows.csv");
    // The row is zero instead of absent, so that the number of rows reveals nothing.
    let row = |i: usize| -> String {
        let of = |x: &u8| if left_out == Some(i) { "0".into() } else { x.to_string() };
        pixels[i * 64..(i + 1) * 64].iter().map(of).collect::<Vec<String>>().join(",") + "\n"
    };
    std::fs::write(&path, (0..rows).map(row).collect::<String>()).unwrap();
    path
}

/// Membership inference: an attacker who knows all other rows, the program and the public seed runs it with and without
/// the row, and compares both results with what a party sent. Without noise the guess is always right; with noise it is
/// right with a probability of at most e^ε/(1 + e^ε) + δ.
#[test]
fn membership_of_a_row_is_inferred_without_noise_but_not_with_it() {
    let dir = tempdir().unwrap();
    let (rows, row, trials) = (120, 17, 40);
    let run = |left_out: Option<usize>, more: &str| -> Array2<f64> {
        let file = dir.path().join("o.h5");
        let input = without_row(dir.path(), rows, left_out);
        let line =
            format!("--algo fedavg --parties 1 -k 3 --max-iters 2 --eval-every 0 --seed 4 --scale max {more} --input");
        fednmf(0, &line).arg(&input).arg("--output").arg(&file).ok();
        matrix(&file, "V")
    };
    let (with, without) = (run(None, ""), run(Some(row), ""));
    let gap = distance(&with, &without);
    assert!(gap > 1e-6, "the row does not change the factors: {gap}");
    let right = |more: &str| {
        (0..trials)
            .filter(|t| {
                let there = t % 2 == 0;
                let seen = run((!there).then_some(row), &format!("{more} --secret-seed {t}"));
                let near = |v: &Array2<f64>| (&seen - v).mapv(|e| e * e).sum();
                (near(&with) < near(&without)) == there
            })
            .count()
    };
    assert_eq!(right(""), trials, "nothing hides the row");
    // With ε = 0.5 a guess is right in at most 62 % of all cases: 39 or more of 40 have a probability of 10⁻⁷.
    let guessed = right("--dp gaussian --epsilon 0.5 --clip 1");
    assert!(guessed < 39, "{guessed} of {trials} guesses were right");
}

/// Errors reach all ranks: with private data they name the place of a wrong entry, and hold nothing of the file.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn errors_about_a_partys_file_hold_nothing_of_it() {
    let dir = tempdir().unwrap();
    let market = "%%MatrixMarket matrix coordinate real general\n";
    let cases = [
        ("cell.csv", "5,2,9\n4,Rossi,6\n7,8,9\n", "line 2: the entry in row 1, column 1 is other text"),
        ("first.csv", "Rossi\n", "line 1: expected numbers, found other text"),
        ("ids.csv", "Rossi_id,item_id,x\n1,2,3\n", "--format triples reads it so"),
        ("triples.csv", "user,item,value\n1,2,3\n1,3,Rossi\n", "line 3: "),
        (
            "line.mtx",
            &format!("{market}3 3 2\n1 1 1\nRossi 2 1\n"),
            "line 4: expected row, column, value, found other text",
        ),
        (
            "outside.mtx",
            &format!("{market}3 3 2\n1 1 1\n2 7041776 1\n"),
            "line 4: an entry is outside the 3 × 3 matrix",
        ),
        ("size.mtx", &format!("{market}Rossi 2 3\n1 1 1\n"), "line 2: the size line must hold"),
        ("banner.mtx", "Rossi 1 2 3\n", "line 1: begins with other text"),
        ("baskets.dat", "1 2\n3 Rossi\n", "line 2: expected whole numbers"),
    ];
    for (name, text, told) in cases {
        let (stem, ending) = name.split_once('.').unwrap();
        let shown = |text: &str| text.to_lowercase().contains("rossi") || text.contains("7041776");
        for (party, text) in [text, text].iter().enumerate() {
            std::fs::write(dir.path().join(format!("{stem}-{party}.{ending}")), text).unwrap();
        }
        let triples = if stem == "triples" { "--format triples" } else { "" };
        let run = |line: &str, file: &str| {
            let line = format!("{line} -k 1 --max-iters 1 {triples} --input {}", dir.path().join(file).display());
            let done = session::all(2, &[line]).remove(0);
            assert_eq!(done.code, 2, "{name}: {}", done.message);
            done.message
        };
        // Triples come in one file.
        let parties =
            if triples.is_empty() { format!("{stem}-{{party}}.{ending}") } else { format!("{stem}-1.{ending}") };
        let error = run("--algo syn-sd --parties 2", &parties);
        assert!(error.contains(told) && error.contains(&format!("{stem}-")) && !shown(&error), "{name}: {error}");
        let error = run("--algo fnmf --parties 2", &format!("{stem}-0.{ending}"));
        assert!(error.contains(told) && !shown(&error), "{name}: {error}");
        // Ranks of one trust domain, and the owner of the file, see the wrong entry.
        let error = run("--algo hals", &format!("{stem}-0.{ending}"));
        assert!(shown(&error), "{name}: {error}");
        if triples.is_empty() {
            let error = fednmf(0, "inspect").arg(dir.path().join(format!("{stem}-0.{ending}"))).run().stderr;
            assert!(shown(&error), "{name}: {error}");
            let error = run("--algo hals", &parties);
            assert!(!shown(&error), "{name}: {error}");
            let error = fednmf(0, "inspect").arg(dir.path().join(&parties)).run().stderr;
            assert!(error.contains(told) && !shown(&error), "{name}: {error}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn an_error_names_whose_entry_is_wrong_and_a_method_that_takes_it() {
    let dir = tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    for party in 0..3 {
        write(&format!("b-{party}.csv"), if party == 2 { "0,1,1\n1,0.4711,1\n" } else { "0,1,1\n1,0,1\n" });
        write(&format!("m-{party}.csv"), if party == 1 { "5,1,1\n1,,1\n" } else { "5,1,1\n1,2,1\n" });
    }
    let error = |ranks: usize, line: &str, file: &str| {
        let run = fednmf(ranks, &format!("{line} --parties 3 -k 1 --max-iters 1 --index-col no --input"));
        let done = run.arg(dir.path().join(file)).run();
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        done.stderr
    };
    for ranks in [1, 3] {
        let told = error(ranks, "--algo felb", "b-{party}.csv");
        assert!(told.contains("party 2") && told.contains("row 1 and column 1"), "{told}");
        assert!(told.contains("--binarize") && !told.contains("4711"), "{told}");
    }
    let told = error(1, "--algo fnmf", "m-{party}.csv");
    assert!(told.contains("m-1.csv") && told.contains("a missing value, --missing nan leaves it out"), "{told}");
    // Methods with private rows in place of one, and others of private columns.
    for (algo, other) in [("inmf", "fnmf"), ("secure-hals", "syn-sd")] {
        let told = error(1, &format!("--algo {algo}"), "m-{party}.csv");
        assert!(told.contains(&format!("a run with {other}")) && !told.contains("hals,"), "{told}");
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn what_a_split_or_a_method_does_to_parties_is_told() {
    let dir = tempdir().unwrap();
    let warned = |line: &str| {
        let done = fednmf(2, &format!("{line} -k 1 --max-iters 1 --quiet")).run();
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
        done.stderr
    };
    let told = warned("--algo fnmf --parties 40 --input synthetic:planted,m=30,n=20,k=2");
    assert!(told.contains("10 of the 40 parties have no rows"), "{told}");
    let told = warned("--algo fnmf --parties 3 --input synthetic:planted,m=30,n=20,k=2");
    assert!(!told.contains("have no rows"), "{told}");
    for party in 0..2 {
        crate::common::npy(dir.path(), &format!("p{party}.npy"), 30 * party..30 * (party + 1));
    }
    let files = dir.path().join("p{party}.npy").display().to_string();
    let told = warned(&format!("--algo hals --input {files}"));
    assert!(told.contains("hals has no private parties") && told.contains("--algo fnmf"), "{told}");
    assert!(!warned(&format!("--algo fnmf --input {files}")).contains("no private parties"));
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn values_of_several_parties_are_not_counted_or_moved_without_a_word() {
    let quantile = "--algo felb -k 2 --max-iters 1 --binarize q0.9 --input synthetic:planted,m=30,n=20";
    for ranks in [1, 3] {
        fednmf(ranks, &format!("{quantile} --parties 3")).refused(&["--binarize", "quantile", "several parties"]);
    }
    fednmf(1, &format!("{quantile} --parties 1")).ok();
    // One file for all parties is read by all ranks, whatever the verbosity.
    let one = "--algo syn-sd --parties 2 -k 2 --max-iters 1 --quiet --input";
    let warned = |ranks: usize| {
        let done = fednmf(ranks, one).arg(data("digits.npy")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stderr.contains("no data is private in this run")
    };
    assert!(warned(2) && !warned(1));
}

/// A site has the shared file and its own.
#[test]
fn a_party_without_the_files_of_the_others_is_pointed_to_its_own() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line = "--algo fnmf --parties 2 -k 3 --max-iters 3 --input synthetic:planted,m=40,n=20 --output";
    fednmf(0, line).arg(file("o.h5")).ok();
    std::fs::remove_file(file("o.party-01.h5")).unwrap();
    let own = file("o.party-00.h5").display().to_string();
    fednmf(0, "clusters").own_process().arg(file("o.h5")).refused(&["party 1", &format!("give {own}")]);
    assert_eq!(fednmf(0, "clusters").arg(own).run().code, Some(0));
}

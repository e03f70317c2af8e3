//! The batch scripts in `jobs/`, without a cluster: stubs of `srun` and `scontrol` record their arguments.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FEDNMF: &str = env!("CARGO_BIN_EXE_fednmf");

fn jobs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs")
}

/// The scripts with one of these endings.
fn scripts(endings: &[&str]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(jobs())
        .expect("jobs/ is there")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|e| endings.iter().any(|known| e == *known)))
        .collect();
    found.sort();
    found
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A directory to submit from, with stubs of Slurm's commands in `bin/`.
struct Cluster {
    dir: tempfile::TempDir,
}

impl Cluster {
    fn new() -> Self {
        let cluster = Cluster { dir: tempfile::tempdir().expect("a temporary directory") };
        fs::create_dir(cluster.path("bin")).expect("a new directory");
        // srun runs the command after its own options if FAKE_SRUN=run; otherwise it exits with the code in FAKE_SRUN.
        cluster.command(
            "srun",
            r#"printf '%s\n' "$@" > srun.args
[ "$FAKE_SRUN" = run ] || exit "$FAKE_SRUN"
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@""#,
        );
        cluster.command("scontrol", r#"printf '%s\n' "$@" > scontrol.args"#);
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, name: &str, body: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("a written file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable file");
    }

    /// Runs a script as Slurm would, with `srun` as FAKE_SRUN; returns the exit code and the output.
    fn submit(&self, script: &str, srun: &str, variables: &[(&str, &str)], args: &[&str]) -> (Option<i32>, String) {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .arg(jobs().join(script))
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("SLURM_JOB_END_TIME")
            .env_remove("SLURM_RESTART_COUNT")
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("FEDNMF", FEDNMF)
            .env("FAKE_SRUN", srun)
            .envs([
                ("SLURM_JOB_ID", "7"),
                ("SLURM_NTASKS", "2"),
                ("SLURM_ARRAY_JOB_ID", "7"),
                ("SLURM_CPUS_PER_TASK", "1"),
            ])
            .envs(variables.iter().copied())
            .output()
            .expect("bash runs");
        (output.status.code(), text(&output))
    }

    /// The arguments of the last call of a stub; none if it was not called.
    fn called(&self, name: &str) -> Vec<String> {
        let lines = fs::read_to_string(self.path(&format!("{name}.args"))).unwrap_or_default();
        lines.lines().map(str::to_owned).collect()
    }

    /// The arguments that `fednmf` received.
    fn fednmf_args(&self) -> Vec<String> {
        let mut args = self.called("srun");
        let at = args.iter().position(|a| a == FEDNMF).unwrap_or_else(|| panic!("srun did not run fednmf: {args:?}"));
        args.split_off(at + 1)
    }
}

/// The value that follows an option.
fn value<'a>(args: &'a [String], option: &str) -> Option<&'a str> {
    let at = args.iter().position(|a| a == option)?;
    args.get(at + 1).map(String::as_str)
}

#[test]
fn bash_and_shellcheck_accept_every_script() {
    let all = scripts(&["slurm", "sh"]);
    assert!(all.len() >= 5, "scripts are missing: {all:?}");
    for script in &all {
        let output = Command::new("bash").arg("-n").arg(script).output().expect("bash runs");
        assert!(output.status.success(), "{}: {}", script.display(), text(&output));
    }
    // shellcheck is optional; `make test` installs it where it can.
    if let Ok(output) = Command::new("shellcheck").args(&all).output() {
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn every_option_in_the_scripts_is_known_to_fednmf() {
    let help = Command::new(FEDNMF).arg("--help").output().expect("fednmf runs");
    assert!(help.status.success(), "{}", text(&help));
    let help = text(&help);
    let known: HashSet<&str> =
        help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|word| word.starts_with('-')).collect();
    for script in scripts(&["slurm"]) {
        let cluster = Cluster::new();
        fs::write(cluster.path("fednmf-7-checkpoint.h5"), "").expect("a written file");
        let name = script.file_name().and_then(|n| n.to_str()).expect("a plain name");
        let end = [("SLURM_ARRAY_TASK_ID", "0"), ("SLURM_JOB_END_TIME", "4000000000")];
        let (code, output) = cluster.submit(name, "0", &end, &[]);
        assert_eq!(code, Some(0), "{name}: {output}");
        // A lost rank must end the others; the scaling script measures and is supervised.
        let lost = "--kill-on-bad-exit=1".to_owned();
        assert!(name == "scaling.slurm" || cluster.called("srun").contains(&lost), "{name}");
        let args = cluster.fednmf_args();
        // Options that the user does not set are left to the program.
        assert_eq!(value(&args, "--algo"), None, "{name}: {args:?}");
        for option in args.iter().filter(|a| a.starts_with('-')) {
            assert!(known.contains(option.as_str()), "{name}: {option} is not in fednmf --help");
        }
    }
}

#[test]
fn arguments_after_the_script_go_to_fednmf() {
    for script in ["single-node.slurm", "many-nodes.slurm", "array-k.slurm", "requeue.slurm"] {
        for given in [vec!["--algo", "hals", "--input", "a b.npy"], vec!["--input", "a b.npy", "--algo=hals"]] {
            let cluster = Cluster::new();
            let (code, output) = cluster.submit(script, "0", &[("SLURM_ARRAY_TASK_ID", "0")], &given);
            assert_eq!(code, Some(0), "{script}: {output}");
            let args = cluster.fednmf_args();
            assert!(args.ends_with(&given.iter().map(|s| s.to_string()).collect::<Vec<_>>()), "{script}: {args:?}");
            assert_eq!(args.iter().filter(|a| a.starts_with("--algo")).count(), 1, "{script}: {args:?}");
        }
    }
}

#[test]
fn the_array_covers_every_pair_once_and_no_more() {
    let mut pairs = HashSet::new();
    let grid = [("KS", "5 10 20"), ("SEEDS", "1 2")];
    for task in 0..7 {
        let cluster = Cluster::new();
        let task_id = task.to_string();
        let mut variables = grid.to_vec();
        variables.push(("SLURM_ARRAY_TASK_ID", &task_id));
        let (code, output) = cluster.submit("array-k.slurm", "0", &variables, &[]);
        if task == 6 {
            assert_eq!(code, Some(2), "{output}");
            assert!(output.contains("--array"), "{output}");
            continue;
        }
        let args = cluster.fednmf_args();
        let pair = (value(&args, "-k").map(str::to_owned), value(&args, "--seed").map(str::to_owned));
        assert!(pairs.insert(pair), "task {task} repeats a pair: {args:?}");
    }
    assert_eq!(pairs.len(), 6);
}

#[test]
fn scaling_runs_every_number_of_ranks_as_often_as_asked() {
    let cluster = Cluster::new();
    // This stub records every call, not only the last.
    cluster.command("srun", "echo \"$@\" >> calls\necho '{}'");
    let calls = || fs::read_to_string(cluster.path("calls")).unwrap_or_default();
    let variables = [("SLURM_NTASKS", "6"), ("REPEATS", "2")];
    let (code, output) = cluster.submit("scaling.slurm", "0", &variables, &["--algo", "hals", "--input", "m.npy"]);
    assert_eq!(code, Some(0), "{output}");
    let ranks: Vec<String> =
        calls().lines().map(|l| l.split_whitespace().next().expect("a word").to_string()).collect();
    assert_eq!(ranks, ["1", "1", "2", "2", "4", "4", "6", "6"].map(|p| format!("--ntasks={p}")), "strong");
    assert!(
        calls().lines().all(|l| l.ends_with("--algo hals --input m.npy") && !l.contains("synthetic")),
        "{}",
        calls()
    );
    assert!(fs::metadata(cluster.path("scaling-7/strong-6-2.json")).is_ok_and(|f| f.len() > 0));

    fs::remove_file(cluster.path("calls")).expect("it was written");
    let weak = [("SLURM_NTASKS", "4"), ("REPEATS", "1"), ("SCALING", "weak"), ("RANKS", "1 4"), ("ROWS", "300")];
    assert_eq!(cluster.submit("scaling.slurm", "0", &weak, &[]).0, Some(0));
    let all = calls();
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("m=300,") && lines[1].contains("m=1200,"), "{all}");
    assert!(lines.iter().all(|l| l.contains("--algo hals")), "one method for all sizes: {all}");
    for (name, wrong) in [("SCALING", "wide"), ("RANKS", "8")] {
        let (code, output) = cluster.submit("scaling.slurm", "0", &[("SLURM_NTASKS", "4"), (name, wrong)], &[]);
        assert!(code == Some(2) && output.contains(name), "{name}={wrong}: {output}");
    }
}

#[test]
fn scaling_becomes_a_table_and_a_plot() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/run");
    let mut words: Vec<PathBuf> = vec!["scaling".into(), "--table".into()];
    for (ranks, seconds) in [(1, 8.0), (1, 9.0), (2, 5.0), (4, 4.0)] {
        let path = dir.path().join(format!("strong-{ranks}-{seconds}.json"));
        let summary = format!(
            r#"{{"algo": "hals", "ranks": {ranks}, "m": 90, "n": 70, "k": 5, "nnz": 6300, "seconds": {seconds},
                "iter": 2, "bytes_sent": 100, "messages": 10}}"#
        );
        fs::write(&path, summary).expect("a written file");
        words.push(path);
    }
    let svg = dir.path().join("plot.svg");
    words.extend([PathBuf::from("--plot"), svg.clone()]);
    let output = Command::new("python3").arg(&script).args(&words).output().expect("python3 runs");
    assert!(output.status.success(), "{}", text(&output));
    let rows = [
        "ranks,seconds,speedup,efficiency,bytes,messages,predicted",
        "1,4,1,1,50,5,",
        "2,2.5,1.6,0.8,50,5,",
        "4,2,2,0.5,50,5,",
    ];
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(), rows);
    assert!(fs::read_to_string(&svg).is_ok_and(|s| s.starts_with("<svg") && s.contains("strong")), "no plot");
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn scaling_runs_without_slurm_and_prints_the_prediction() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let rates = dir.path().join("rates.json");
    let estimate = ["estimate", "--algo", "hals", "-m", "90", "-n", "70", "-k", "4", "--ranks", "1", "--json"];
    let found = Command::new(FEDNMF).args(estimate).output().expect("fednmf runs");
    fs::write(&rates, found.stdout).expect("a written file");
    let run = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/run"))
        .args(["scaling", "--weak"])
        .args(["--ranks", "1", "--repeats", "1", "--iterations", "2", "--rows", "90", "--cols", "70"])
        .args(["--binary", FEDNMF, "--rates"])
        .arg(&rates)
        // One rank needs no launcher; this one ignores its -n 1.
        .args(["--mpirun", "sh -c 'shift; shift; exec \"$@\"' launcher"])
        .args(["--", "--algo", "hals", "-k", "4"])
        .output()
        .expect("python3 runs");
    let table = String::from_utf8_lossy(&run.stdout);
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split(',').collect();
    assert!(run.status.success() && row.len() == 7 && row[6].parse::<f64>().is_ok_and(|s| s > 0.0), "{}", text(&run));
}

#[test]
fn only_an_early_stop_requeues() {
    for (srun, restarts, ends, requeued) in [
        ("0", "0", 0, false),
        ("1", "0", 1, false),
        ("2", "0", 2, false),
        ("75", "0", 0, true),
        ("138", "0", 0, true),
        ("75", "100", 75, false),
    ] {
        let cluster = Cluster::new();
        let (code, output) = cluster.submit("requeue.slurm", srun, &[("SLURM_RESTART_COUNT", restarts)], &[]);
        assert_eq!(code, Some(ends), "srun ended with {srun}: {output}");
        assert_eq!(cluster.called("scontrol") == ["requeue", "7"], requeued, "srun ended with {srun}: {output}");
    }
}

#[test]
fn a_restart_resumes_and_a_first_start_does_not() {
    let cluster = Cluster::new();
    cluster.submit("requeue.slurm", "75", &[], &[]);
    let first = cluster.fednmf_args();
    assert!(!first.contains(&"--resume".to_owned()), "{first:?}");
    let checkpoint = value(&first, "--checkpoint").expect("a checkpoint is asked for").to_owned();
    fs::write(cluster.path(&checkpoint), "").expect("a written file");
    cluster.submit("requeue.slurm", "75", &[("SLURM_RESTART_COUNT", "1")], &[]);
    let second = cluster.fednmf_args();
    assert!(second.contains(&"--resume".to_owned()), "{second:?}");
    assert_eq!(value(&second, "--checkpoint"), Some(checkpoint.as_str()));
    assert_ne!(value(&first, "--trace"), value(&second, "--trace"), "the second leg would overwrite the first's trace");

    // A name of the user's own, which may be there from an earlier job.
    for own in [&["--checkpoint", "own.h5"][..], &["--checkpoint=own.h5"], &["--checkpoint", "own.h5", "--resume"]] {
        let cluster = Cluster::new();
        fs::write(cluster.path("own.h5"), "").expect("a written file");
        for (restarts, resumes) in [("0", own.len() == 3), ("1", true)] {
            cluster.submit("requeue.slurm", "75", &[("SLURM_RESTART_COUNT", restarts)], own);
            let args = cluster.fednmf_args();
            assert_eq!(args.iter().filter(|word| *word == "--resume").count(), usize::from(resumes), "{args:?}");
            assert_eq!(
                args.iter().filter(|word| word.starts_with("--checkpoint=")).count(),
                usize::from(own.len() == 1),
                "{args:?}"
            );
            assert!(!args.iter().any(|word| word.starts_with("fednmf-7-checkpoint")), "{args:?}");
        }
    }
}

#[test]
fn a_job_leaves_its_trace_and_factors_where_it_was_submitted() {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/digits.npy");
    let digits = digits.to_str().expect("a path in UTF-8");
    let cluster = Cluster::new();
    let (code, output) =
        cluster.submit("single-node.slurm", "run", &[], &["--input", digits, "-k", "4", "--max-iters", "3"]);
    assert_eq!(code, Some(0), "{output}");
    for name in ["fednmf-7.jsonl", "fednmf-7.h5"] {
        assert!(fs::metadata(cluster.path(name)).is_ok_and(|f| f.len() > 0), "{name} is missing: {output}");
    }
}

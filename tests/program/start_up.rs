//! Messages of many ranks before and after the iterations: no rank receives more than a few hundred bytes for each
//! other one, and rows of factors are sent only to the rank that writes them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::tempdir;

use fednmf_comm::even_part;

use crate::common::{fednmf, finish, launch, write_circulant};

/// Bytes for each other rank that a rank may send or receive of one kind: a few names and sizes in JSON, and of the
/// summary the times of a rank.
const FOR_EACH_RANK: f64 = 400.0;

/// By kind: bytes and messages of all ranks, and whether they belong to the iterations.
fn wire(run: &Value) -> BTreeMap<String, (f64, f64, bool)> {
    let rows = run["wire"].as_array().unwrap().iter();
    let kind = |row: &Value| {
        let common = ["Control", "Metadata", "Data"].contains(&row["payload"].as_str().unwrap());
        let [bytes, messages] = ["mpi_bytes", "messages"].map(|column| row[column].as_f64().unwrap());
        (
            format!("{} ({})", row["purpose"].as_str().unwrap(), row["payload"].as_str().unwrap()),
            (bytes, messages, !common),
        )
    };
    rows.map(kind).collect()
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn sixty_four_ranks_start_and_write_without_quadratic_messages() {
    let dir = tempdir().unwrap();
    let (n, k) = (640, 3);
    let (sparse, dense) = (dir.path().join("m.mtx"), dir.path().join("m.npy"));
    write_circulant(&sparse, n, &[0, 1, 17, 200]);
    assert_eq!(fednmf(0, "generate planted,m=640,n=320,k=3 --output").arg(&dense).run().code, Some(0));
    for (input, shape, grid) in [(&sparse, [n, n], ""), (&sparse, [n, n], "8x2 4x16"), (&dense, [n, 320], "16x1 64x1")]
    {
        let run = |ranks: usize, grid: Option<&str>| {
            let grid = grid.map_or(String::new(), |grid| format!("--grid {grid}"));
            let line =
                format!("--algo hals --init random -k {k} --max-iters 2 --eval-every 0 {grid} --checkpoint-every 1");
            let [output, checkpoint, trace] =
                ["o.h5", "c.h5", "t.jsonl"].map(|name| dir.path().join(format!("{ranks}-{name}")));
            let run = fednmf(ranks, &format!("{line} --input")).arg(input).arg("--output").arg(&output);
            let run = run.arg("--checkpoint").arg(&checkpoint).arg("--trace").arg(&trace).limit(300).ok();
            [output, checkpoint].iter().for_each(|path| std::fs::remove_file(path).unwrap());
            wire(&run)
        };
        let mut grids = grid.split_whitespace();
        let (few, many) = (run(16, grids.next()), run(64, grids.next()));
        for (kind, &(bytes, messages, of_iterations)) in many.iter().filter(|(_, row)| !row.2) {
            let &(fewer_bytes, fewer_messages, _) = few.get(kind).unwrap_or(&(0.0, 0.0, of_iterations));
            let (own, fewer) = (bytes / 64.0, fewer_bytes / 16.0);
            // To choose a grid, nine sums for each rank and each divisor of their number, out and back.
            let of_grids = if kind.starts_with("load counts") { (144 * (7 * 64 - 5 * 16)) as f64 } else { 0.0 };
            let allowed = 1.1 * fewer + 48.0 * FOR_EACH_RANK + of_grids;
            assert!(own <= allowed, "{input:?} {kind}: {fewer} and {own} bytes a rank");
            let (own, fewer) = (messages / 64.0, fewer_messages / 16.0);
            assert!(own <= 1.5 * fewer + 2.0, "{input:?} {kind}: {fewer} and {own} messages a rank");
        }
        // Rows of factors are sent only to rank 0, once, except its own. Each is counted at both ends.
        let [rows, own] = [shape.iter().sum::<usize>(), shape.iter().map(|&rows| even_part(rows, 64, 0).len()).sum()];
        for (kind, times) in [("output", 1.0), ("checkpoint", 2.0)] {
            let (bytes, messages, _) = many[&format!("{kind} (SharedFactor)")];
            let all = times * (2 * 8 * k * rows) as f64;
            assert!(bytes < all && messages <= times * (2 * 2 * 63) as f64, "{input:?} {kind}: {bytes} bytes of {all}");
            // An even cut of the dense matrix; its state is only the factors.
            if input == &dense {
                assert_eq!(bytes, times * (2 * 8 * k * (rows - own)) as f64, "{kind}");
            }
        }
    }
}

/// The launcher of another MPI library starts processes that do not find each other.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn processes_that_do_not_find_each_other_are_refused() {
    let run = || {
        let run = fednmf(0, "-k 2 --max-iters 1");
        run.env("SLURM_STEP_ID", "0").env("SLURM_PROCID", "0").env("SLURM_STEP_NUM_TASKS", "2")
    };
    run().refused(&[
        "the launcher started 2 processes",
        "srun --mpi=pm",
        "fednmf is built with",
        "FEDNMF_TRANSPORT=local",
    ]);
    run().env("FEDNMF_TRANSPORT", "local").ok();
    // A launcher that does not tell the number of processes: only the first one may be alone.
    let of_rank = |rank| fednmf(0, "-k 2 --max-iters 1 --quiet").env("PMI_RANK", rank);
    of_rank("1").refused(&["the launcher started at least 2 processes", "srun --mpi=pm"]);
    let later = of_rank("2").run();
    assert!(later.code == Some(2) && later.stderr.is_empty(), "{later:?}");
    let first = of_rank("0").run();
    assert!(first.code == Some(0) && first.stderr.contains("MPI connects this process to no other"), "{first:?}");
}

/// With settings of their own, ranks would wait for each other for ever, or compute nobody knows what.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn ranks_with_other_command_lines_are_refused() {
    let binary = env!("CARGO_BIN_EXE_fednmf");
    let one = "-k 2 --max-iters 2 --quiet --input synthetic:planted,m=20,n=12";
    for other in [one.replace("-k 2", "-k 3"), format!("{one} --seed 1"), one.replace("m=20", "m=30"), "-k".into()] {
        let mut command = launch(1, Path::new(binary));
        command.args(one.split(' ')).args([":", "-n", "1", binary]).args(other.split(' '));
        let output = finish(command.spawn().unwrap(), Duration::from_secs(60), &other);
        assert_eq!(output.code, Some(2), "{other}: {output:?}");
        assert!(output.stderr.contains(&format!("rank 1 was started with '{other}'")), "{output:?}");
    }
}

//! A check against slowness without a clock: the counted work of fixed runs and the error that they reach. A change that
//! moves a number by more than 2 % is either a mistake or must be recorded:
//!
//! ```sh
//! FEDNMF_RECORD_WORK=1 cargo test --test program work::
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::common::{data, fednmf};

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/work.json");
const TOLERANCE: f64 = 0.02;

/// Ten runs, on two ranks.
const RUNS: [&str; 10] = [
    "--algo auto --input DIGITS -k 10 --max-iters 20",
    "--algo auto --input synthetic:sparse,m=3000,n=2000,density=0.01 -k 8 --max-iters 10",
    "--algo hals --input DIGITS -k 10 --max-iters 20",
    "--algo bpp --input DIGITS -k 10 --max-iters 5",
    "--algo mu --input DIGITS -k 10 --max-iters 20",
    "--algo dsanls --input DIGITS -k 10 --max-iters 40",
    "--algo vr-dsanls --input synthetic:planted,m=2000,n=500,k=8 -k 8 --max-iters 5",
    "--algo secure-hals --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --secret-seed 1 --parties 4 --input DIGITS -k 10 --max-iters 5",
    "--algo fnmf --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --parties 4 --input DIGITS -k 10 --max-iters 4",
    "--algo felb-mu --parties 4 --input DIGITS --binarize 8 -k 10 --max-iters 5",
];

/// The total cost of a run on all ranks, and its error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Work {
    flops: f64,
    bytes: f64,
    messages: f64,
    rel_error: f64,
}

impl Work {
    fn of(summary: &Value) -> Self {
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number in {summary}"));
        let phases = summary["phases"].as_object().expect("phases");
        Work {
            flops: phases.values().map(|phase| number(&phase["flops"])).sum(),
            bytes: number(&summary["bytes_sent"]),
            messages: number(&summary["messages"]),
            rel_error: number(&summary["rel_error"]),
        }
    }

    fn differences(&self, recorded: &Work) -> Vec<String> {
        let pairs = [
            ("flops", self.flops, recorded.flops),
            ("bytes", self.bytes, recorded.bytes),
            ("messages", self.messages, recorded.messages),
            ("relative error", self.rel_error, recorded.rel_error),
        ];
        let differs = |now: f64, then: f64| (now - then).abs() > TOLERANCE * then.abs();
        let changed = pairs.into_iter().filter(|&(_, now, then)| differs(now, then));
        changed.map(|(what, now, then)| format!("{what}: {now}, recorded {then}")).collect()
    }
}

#[test]
fn counted_work_is_as_recorded() {
    let measured: BTreeMap<String, Work> = RUNS
        .iter()
        .map(|line| {
            let words = line.replace("DIGITS", data("digits.npy").to_str().expect("a name in UTF-8"));
            (line.to_string(), Work::of(&fednmf(2, &words).ok()))
        })
        .collect();
    if std::env::var_os("FEDNMF_RECORD_WORK").is_some() {
        let text = serde_json::to_string_pretty(&measured).expect("numbers") + "\n";
        std::fs::write(RECORD, text).unwrap_or_else(|e| panic!("{RECORD}: {e}"));
        return;
    }
    let text = std::fs::read_to_string(Path::new(RECORD)).unwrap_or_else(|e| panic!("{RECORD}: {e}"));
    let recorded: BTreeMap<String, Work> = serde_json::from_str(&text).expect("a record");
    assert_eq!(measured.keys().collect::<Vec<_>>(), recorded.keys().collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for (line, work) in &measured {
        assert!(work.flops > 0.0 && work.bytes > 0.0, "nothing was counted: {line}");
        wrong.extend(work.differences(&recorded[line]).into_iter().map(|change| format!("{line}: {change}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

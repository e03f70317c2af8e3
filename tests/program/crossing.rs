//! Every method with every value of every parameter that it takes, on a tiny matrix: a run succeeds with finite
//! numbers, or is refused with exit code 2; it never panics and never hangs.

use std::path::Path;
use std::time::Duration;

use clap::CommandFactory as _;
use tempfile::tempdir;

use fednmf_methods::description::Description;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;

use crate::common::session::Session;
use crate::common::{events, factor, input_for, needs};

/// A tiny run takes milliseconds, and ranks that wait for a processor on a busy machine a thousand times as long.
const LIMIT: Duration = Duration::from_secs(120);

/// Values for a parameter without a list of words: numbers at the limits, words that some parameters know, and
/// nonsense.
const VALUES: [&str; 16] = [
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "1e-300",
    "1e300",
    "18446744073709551615",
    "NaN",
    "inf",
    "auto",
    "none",
    "nonsense",
    "",
    "50%",
    "2x1",
];
/// The values with which pairs of parameters are crossed.
const FEW_VALUES: [&str; 3] = ["1", "2", "0.5"];
/// Endings of the names of work counts: a run with the largest number would take for ever, as requested.
const WORK: [&str; 3] = ["iters", "sweeps", "steps"];

/// A parameter of a method, as the command line knows it.
struct Parameter {
    name: String,
    kind: Kind,
}

enum Kind {
    Flag,
    Words(Vec<String>),
    File,
    Other,
}

/// The parameters that a method takes.
fn parameters(entry: &'static dyn ConfiguredMethod) -> Vec<Parameter> {
    fednmf::cli::parameters::args(entry).iter().map(Parameter::new).collect()
}

/// The parameters of a run that do not belong to a method.
fn common_parameters() -> Vec<Parameter> {
    let known = |arg: &&clap::Arg| {
        let name = arg.get_long().unwrap_or_default();
        // --threads are started once in a process; the others end the run with a text.
        !["", "algo", "input", "threads", "help", "version"].contains(&name)
    };
    fednmf::cli::Cli::command().get_arguments().filter(known).map(Parameter::new).collect()
}

impl Parameter {
    fn new(arg: &clap::Arg) -> Self {
        let words: Vec<String> = arg.get_possible_values().iter().map(|v| v.get_name().to_string()).collect();
        let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string).unwrap_or_default();
        let kind = match arg.get_action() {
            clap::ArgAction::SetTrue => Kind::Flag,
            _ if ["FILE", "PATH", "F.", "F|"].iter().any(|file| value.starts_with(file)) => Kind::File,
            _ if words.is_empty() => Kind::Other,
            _ => Kind::Words(words),
        };
        Parameter { name: arg.get_long().unwrap_or_default().to_string(), kind }
    }
}

impl Parameter {
    /// The arguments that set it, one item for each of its values and of `numbers`.
    fn arguments(&self, numbers: &[&str]) -> Vec<String> {
        let with = |value: &str| format!("--{}={value}", self.name);
        match &self.kind {
            Kind::Flag => vec![format!("--{}", self.name)],
            Kind::Words(words) => words.iter().map(|word| with(word)).chain([with("nonsense")]).collect(),
            Kind::File => vec![with("/no/such/directory/file.txt"), with("")],
            Kind::Other => {
                let endless = |value: &str| value.len() > 10 && WORK.iter().any(|end| self.name.ends_with(end));
                numbers.iter().filter(|value| !endless(value)).map(|value| with(value)).collect()
            }
        }
    }
}

/// A session that is replaced when it dies, and the failures.
struct Crossing {
    ranks: usize,
    session: Option<Session>,
    codes: [usize; 2],
    wrong: Vec<String>,
}

impl Crossing {
    fn new(ranks: usize) -> Self {
        Crossing { ranks, session: None, codes: [0; 2], wrong: Vec::new() }
    }

    /// Performs a command line, and writes its trace and factors if there is a directory.
    fn cross(&mut self, method: &Description, arguments: &[&str], files: Option<&Path>) {
        let line = format!(
            "--algo {} --input {} -k 2 --max-iters 3 {} {}",
            method.name,
            input_for(method, "synthetic:planted,m=12,n=10,k=2"),
            if method.on_shares { "" } else { "--eval-every 1" },
            needs(method)
        );
        let mut words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        if let Some(dir) = files {
            words.push(format!("--trace={}", dir.join("trace.jsonl").display()));
            words.push(format!("--output={}", dir.join("output.h5").display()));
        }
        words.extend(arguments.iter().map(ToString::to_string));
        let session = self.session.get_or_insert_with(|| Session::start(self.ranks, &[]));
        let problem = match session.perform(&words, LIMIT) {
            Err(why) => {
                self.session = None;
                Some(why).filter(|why| !fails_as_asked(why))
            }
            Ok(done) => match done.code {
                0 => {
                    self.codes[0] += 1;
                    let evaluated = !arguments.contains(&"--eval-every=0");
                    if evaluated { not_finite(&done.summary, files) } else { None }
                }
                2 if !done.message.is_empty() && !done.message.contains("internal error") => {
                    self.codes[1] += 1;
                    None
                }
                1 if fails_as_asked(&done.message) => None,
                code => Some(format!("exit code {code}: {}", done.message)),
            },
        };
        if let Some(problem) = problem {
            self.wrong.push(format!("--algo {} {}\n    {problem}", method.name, arguments.join(" ")));
        }
    }

    fn end(self, fewest: [usize; 2]) {
        let [succeeded, refused] = self.codes;
        assert!(self.wrong.is_empty(), "{} crossings\n{}", self.wrong.len(), self.wrong.join("\n"));
        assert!(succeeded >= fewest[0] && refused >= fewest[1], "{succeeded} succeeded, {refused} were refused");
    }
}

/// Whether a run failed because of its parameters, and reported it: steps of any length and small ranges of exchanges
/// are allowed, but the run has to detect the consequences.
fn fails_as_asked(message: &str) -> bool {
    [
        "no longer finite numbers",
        "cannot be summed",
        "too large for the penalties",
        "that the exchange can carry",
        "the fixed point of --secure-sum carries",
    ]
    .iter()
    .any(|reason| message.contains(reason))
}

/// The first number of a successful run that is not finite. JSON has no NaN: it is written as null.
fn not_finite(summary: &serde_json::Value, files: Option<&Path>) -> Option<String> {
    if summary["rel_error"].as_f64().is_none() {
        return Some(format!("no error in {summary}"));
    }
    let dir = files?;
    let evaluated = events(&dir.join("trace.jsonl")).into_iter().filter(|e| e["event"] == "iter");
    for event in evaluated {
        if event["rel_error"].as_f64().is_none() {
            return Some(format!("no error in {event}"));
        }
    }
    let finite = |name| factor(&dir.join("output.h5"), name).iter().all(|x| x.is_finite() && *x >= 0.0);
    (!finite("U") || !finite("V")).then(|| "a factor has entries that are not finite or negative".to_string())
}

#[test]
fn every_value_of_every_parameter_is_used_or_refused() {
    let mut crossing = Crossing::new(0);
    let mut partitions = Vec::new();
    for entry in registry::ALL.iter().map(|method| &**method) {
        let method = entry.description();
        let own = parameters(entry).into_iter().flat_map(|parameter| parameter.arguments(&VALUES));
        // One method of each partition takes all values of the common parameters; the driver handles these for all alike.
        let values = if partitions.contains(&method.partition) { &FEW_VALUES[..] } else { &VALUES };
        partitions.push(method.partition);
        let common = common_parameters().into_iter().flat_map(|parameter| parameter.arguments(values));
        for argument in own.chain(common) {
            // Files of parties that an earlier number of parties left would be read as this run's.
            let dir = tempdir().unwrap();
            crossing.cross(method, &[&argument], Some(dir.path()));
        }
    }
    crossing.end([2000, 3000]);
}

#[test]
fn every_pair_of_parameters_is_used_or_refused() {
    let mut crossing = Crossing::new(0);
    for entry in registry::ALL.iter().map(|method| &**method) {
        let (method, all) = (entry.description(), parameters(entry));
        for (i, first) in all.iter().enumerate() {
            for second in &all[i + 1..] {
                // In general, two numbers do not constrain each other.
                if matches!((&first.kind, &second.kind), (Kind::Other, Kind::Other)) {
                    continue;
                }
                for a in first.arguments(&FEW_VALUES) {
                    for b in second.arguments(&FEW_VALUES) {
                        crossing.cross(method, &[&a, &b], None);
                    }
                }
            }
        }
    }
    crossing.end([1000, 1000]);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn every_word_of_every_parameter_is_used_or_refused_by_several_ranks() {
    let mut crossing = Crossing::new(3);
    for entry in registry::ALL.iter().map(|method| &**method) {
        let method = entry.description();
        for parameter in parameters(entry) {
            for argument in parameter.arguments(&["1", "auto"]) {
                crossing.cross(method, &[&argument], None);
            }
        }
    }
    crossing.end([300, 50]);
}

#[test]
fn every_parameter_of_another_method_is_refused_by_name() {
    let mut crossing = Crossing::new(0);
    let all: Vec<Parameter> = registry::ALL.iter().flat_map(|method| parameters(&**method)).collect();
    for entry in registry::ALL.iter().map(|method| &**method) {
        let (method, own) = (entry.description(), parameters(entry));
        let mut names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names.into_iter().filter(|name| own.iter().all(|p| p.name != *name)) {
            let parameter = all.iter().find(|p| p.name == name).unwrap();
            let argument = parameter.arguments(&["1"]).swap_remove(0);
            let before = crossing.codes[1];
            crossing.cross(method, &[&argument], None);
            assert_eq!(crossing.codes[1], before + 1, "--algo {} takes {argument}", method.name);
        }
    }
    crossing.end([0, 1000]);
}

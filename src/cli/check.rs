//! From what was typed to what will be done: every check that needs no data.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde_json::{Map, Value, json};

use super::{Kernel, Precision, RunArgs, Scale};
use crate::algorithms::centralized::auto;
use crate::algorithms::options;
use crate::algorithms::options::{CLOCK, DP_RELEASES, EXTRAPOLATION, Options};
use crate::algorithms::registry::{Partition, Unit};
use crate::algorithms::shared::{dp, limits};
use crate::algorithms::{Method, registry};
use crate::cli::args::OnLostParty;
use crate::data;
use crate::data::{InputSpec, Stack, Threshold};
use crate::error::{Error, Result};
use crate::linalg::SparseKernel;
use crate::output::matrices::Format;
use crate::report::Wishes;

/// How often something happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Every {
    /// Some minutes, and not more than a small part of the run's time.
    Auto,
    Iterations(usize),
    Seconds(f64),
}

/// A run as it will be done; complete but for what depends on the data's shape.
#[derive(Clone)]
pub struct Settings {
    pub method: &'static Method,
    /// `--algo auto`, and why it chose the method; `None` where one was asked for.
    pub automatic: Option<&'static str>,
    pub options: Options,
    pub input: InputSpec,
    /// The input as it was typed.
    pub input_text: String,
    pub k: usize,
    pub parties: Option<usize>,
    pub skew: Option<f64>,
    pub split: Option<PathBuf>,
    pub max_iters: usize,
    pub tol: Option<f64>,
    pub target_error: Option<f64>,
    pub time_limit: Option<f64>,
    /// Go on without ranks that keep silent.
    pub carry_on: bool,
    pub eval_every: usize,
    pub seed: u64,
    pub precision: Precision,
    /// None: measured.
    pub kernel: Option<SparseKernel>,
    pub threads: usize,
    pub output: Option<PathBuf>,
    pub trace: Option<PathBuf>,
    /// The page about the run, and what it shall show.
    pub report: Option<(PathBuf, Wishes)>,
    pub checkpoint: Option<PathBuf>,
    pub checkpoint_every: Every,
    /// How long a rank may neither work nor hear anything; none: for ever.
    pub stall_timeout: Option<Duration>,
    pub resume: bool,
    pub quiet: bool,
    pub json: bool,
    /// The command line, for provenance.
    pub words: Vec<String>,
}

impl Settings {
    /// Checks what was typed.
    ///
    /// # Errors
    /// Naming the option that is wrong, and what it should be.
    pub fn check(args: RunArgs, matches: &ArgMatches, words: Vec<String>) -> Result<Self> {
        let automatic = args.algo.eq_ignore_ascii_case("auto");
        let method = if automatic { Some(&auto::ACCELERATED) } else { registry::find(&args.algo) };
        let method = method.ok_or_else(|| {
            let names: Vec<&str> = registry::ALL.iter().map(|m| m.name).collect();
            Error::input(format!("--algo {}: no such algorithm; there are auto, {}", args.algo, names.join(", ")))
        })?;
        refuse_foreign(method, matches)?;
        let masked = ["missing", "holdout"].iter().any(|name| typed(matches, name).is_some());
        let options = Options::check(method.options, |name| {
            // What auto adds does not go with missing entries.
            let plain = automatic && masked && name == EXTRAPOLATION.name;
            typed(matches, name).or_else(|| plain.then(|| "none".into()))
        })?;
        dp::check(&options)?;
        let parties_of_files = args.input.contains("{party}");
        if !method.partition.is_private() {
            if args.parties.is_some() && !parties_of_files {
                return Err(Error::input(format!(
                    "--parties: {} splits the data over ranks, not parties; leave it out, or give one file a party with \
                     {{party}} in --input",
                    method.name
                )));
            }
            if args.skew.is_some() {
                return Err(Error::input(format!("--skew: {} has no parties to share the data unevenly", method.name)));
            }
            if args.split.is_some() {
                return Err(Error::input(format!("--split: {} has no parties to share the data out to", method.name)));
            }
        }
        positive("--components", args.components)?;
        positive("--threads", args.threads)?;
        if args.parties == Some(0) {
            return Err(Error::input("--parties 0: at least one party has the data"));
        }
        if let Some(skew) = args.skew.filter(|s| !(*s > 0.0 && *s < 1.0)) {
            return Err(Error::input(format!("--skew {skew}: a share of the data, above 0 and below 1")));
        }
        for (name, value) in
            [("--tol", args.tol), ("--target-error", args.target_error), ("--time-limit", args.time_limit)]
        {
            if let Some(x) = value.filter(|x| !(*x >= 0.0 && x.is_finite())) {
                return Err(Error::input(format!("{name} {x}: must be a number of at least 0")));
            }
        }
        // Ten years are as good as for ever, and a clock can count them.
        if !(0.0..=3e8).contains(&args.stall_timeout) {
            return Err(Error::input(format!(
                "--stall-timeout {}: must be a number of seconds, 0 for no limit",
                args.stall_timeout
            )));
        }
        let real_time = options.takes(&CLOCK) && options.word(&CLOCK) == "real";
        if args.on_lost_party == OnLostParty::Continue && !real_time {
            return Err(Error::input(
                "--on-lost-party continue: only asyn-sd and asyn-ssd-v with --clock real go on without a rank that hangs; \
                 elsewhere, and whenever a process ends, the MPI libraries that fednmf works with (MPI 3.1) end the whole \
                 job: use --checkpoint and --resume instead",
            ));
        }
        if args.eval_every == 0 && (args.tol.is_some() || args.target_error.is_some()) {
            return Err(Error::input("--tol and --target-error need evaluations: --eval-every must not be 0"));
        }
        if args.report.is_none() && args.wishes.any() {
            return Err(Error::input(
                "--image, --terms and --report-rows say what a report shows: give --report F.html too",
            ));
        }
        if let Some(path) = &args.output
            && Format::of(path)? == Format::AnnData
            && method.partition.is_private()
        {
            return Err(Error::input(format!(
                "--output {}: of the factors of {} one stays with each party, and AnnData has one file for all; end the name in \
                 .h5 or .npz",
                path.display(),
                method.name
            )));
        }
        let mut input = InputSpec::parse(&args.input)?;
        input.transpose = args.transpose;
        input.scale = if args.scale == Scale::Max { data::Scale::Max } else { data::Scale::None };
        input.allow_negative = method.allows_negative;
        input.binarize = args.binarize;
        input.allow_nan = options.missing() == Some("nan");
        if input.allow_nan && args.binarize.is_some() {
            return Err(Error::input("--binarize makes 0 of what is missing: it does not go with --missing nan"));
        }
        input.parties = args.parties;
        input.stack = if method.partition == Partition::PartyColumns { Stack::Columns } else { Stack::Rows };
        Ok(Settings {
            method,
            automatic: automatic.then_some(auto::WHY_HALS),
            options,
            input,
            input_text: args.input,
            k: args.components,
            parties: args.parties,
            skew: args.skew,
            split: args.split,
            max_iters: args.max_iters,
            tol: args.tol,
            target_error: args.target_error,
            time_limit: args.time_limit,
            carry_on: args.on_lost_party == OnLostParty::Continue,
            eval_every: args.eval_every,
            seed: args.seed,
            precision: args.precision,
            kernel: match args.sparse_kernel {
                Kernel::Mkl => Some(SparseKernel::Mkl),
                Kernel::Native => Some(SparseKernel::Native),
                Kernel::Auto => None,
            },
            threads: args.threads,
            output: args.output,
            trace: args.trace,
            report: args.report.map(|path| args.wishes.check().map(|wishes| (path, wishes))).transpose()?,
            checkpoint: args.checkpoint,
            checkpoint_every: args.checkpoint_every.as_deref().map_or(Ok(Every::Auto), every)?,
            stall_timeout: (args.stall_timeout > 0.0).then(|| Duration::from_secs_f64(args.stall_timeout)),
            resume: args.resume,
            quiet: args.quiet,
            json: args.json,
            words,
        })
    }

    /// What `--algo auto` chooses for a matrix of this shape; as it is, where a method was asked for.
    ///
    /// # Errors
    /// When the choice does not pass its own check.
    pub fn settled(&self, m: usize, n: usize, sparse: bool) -> Result<Self> {
        let mut settled = self.clone();
        // Who asked for an option of HALS gets HALS.
        let untouched = self.options == Options::check(self.method.options, |_| None)?;
        if self.automatic.is_some()
            && untouched
            && let Some((method, options)) = auto::other_than_hals(m, n, self.k, sparse)?
        {
            (settled.method, settled.options, settled.automatic) = (method, options, Some(auto::WHY_DSANLS));
        }
        Ok(settled)
    }

    /// All effective parameters that decide the numbers, by name: what a resume must agree on.
    pub fn deciding(&self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert("algo".into(), self.method.name.into());
        all.insert("k".into(), self.k.into());
        all.insert("seed".into(), self.seed.into());
        all.insert("precision".into(), self.precision_name().into());
        all.insert("parties".into(), json!(self.parties));
        all.insert("skew".into(), json!(self.skew));
        all.insert("transpose".into(), self.input.transpose.into());
        all.insert("scale".into(), if self.input.scale == data::Scale::Max { "max" } else { "none" }.into());
        all.insert("binarize".into(), json!(self.input.binarize.map(Threshold::to_json)));
        all.extend(self.options.to_json());
        // The split of a budget hangs on the number of releases.
        let releases = dp::planned(&self.options, self.max_iters, self.method.unit != Unit::Round);
        all.extend(releases.map(|r| (DP_RELEASES.name.replace('-', "_"), r.into())));
        // Where the matrix is cut decides rounding only, and what is measured or kept decides nothing.
        for opt in options::NOT_DECIDING {
            all.remove(&opt.name.replace('-', "_"));
        }
        all
    }

    /// All effective parameters.
    pub fn all(&self) -> Map<String, Value> {
        let mut all = self.deciding();
        all.extend(self.options.to_json());
        all.insert("input".into(), self.input_text.clone().into());
        all.insert("max_iters".into(), self.max_iters.into());
        all.insert("tol".into(), json!(self.tol));
        all.insert("target_error".into(), json!(self.target_error));
        all.insert("time_limit".into(), json!(self.time_limit));
        all.insert("eval_every".into(), self.eval_every.into());
        let kernel = match self.kernel {
            Some(SparseKernel::Mkl) => "mkl",
            Some(SparseKernel::Native) => "native",
            None => "auto",
        };
        all.insert("split".into(), json!(self.split));
        all.insert("threads".into(), self.threads.into());
        all.insert("sparse_kernel".into(), kernel.into());
        all.extend(self.automatic.map(|why| ("chosen_by_auto".into(), why.into())));
        all
    }

    pub fn precision_name(&self) -> &'static str {
        match self.precision {
            Precision::F64 => "f64",
            Precision::F32 => "f32",
        }
    }
}

/// The typed text of an option of the registry; a flag's is `true`.
fn typed(matches: &ArgMatches, name: &str) -> Option<String> {
    if matches.value_source(name) != Some(ValueSource::CommandLine) {
        return None;
    }
    match matches.try_get_one::<String>(name) {
        Ok(value) => value.cloned(),
        Err(_) => Some(matches.get_flag(name).to_string()),
    }
}

/// Refuses options that belong to other algorithms: ignoring them would let a user believe in them.
fn refuse_foreign(method: &Method, matches: &ArgMatches) -> Result<()> {
    for opt in options::ALL {
        if typed(matches, opt.name).is_some() && !method.options.iter().any(|t| t.opt.name == opt.name) {
            let takers: Vec<&str> = registry::ALL
                .iter()
                .filter(|m| m.options.iter().any(|t| t.opt.name == opt.name))
                .map(|m| m.name)
                .collect();
            let why =
                if dp::OPTIONS[..7].iter().any(|t| t.opt == *opt) { limits::why_no_dp(method) } else { String::new() };
            return Err(Error::input(format!(
                "--{}: {} does not take it ({} does){why}",
                opt.name,
                method.name,
                takers.join(", ")
            )));
        }
    }
    Ok(())
}

fn positive(name: &str, value: usize) -> Result<()> {
    if value == 0 { Err(Error::input(format!("{name} 0: must be at least 1"))) } else { Ok(()) }
}

/// `50` iterations or `300s`.
fn every(text: &str) -> Result<Every> {
    let parsed = match text.strip_suffix('s') {
        Some(seconds) => seconds.parse().ok().filter(|s: &f64| *s > 0.0 && s.is_finite()).map(Every::Seconds),
        None => text.parse().ok().filter(|&n| n > 0).map(Every::Iterations),
    };
    parsed.ok_or_else(|| {
        Error::input(format!("--checkpoint-every {text}: must be a number of iterations, or of seconds as in 300s"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Typed, parse};

    fn check(line: &str) -> Result<Settings> {
        match parse(line.split(' ').map(Into::into))? {
            Typed::Run(args, matches) => Settings::check(*args, &matches, Vec::new()),
            _ => panic!("not a run"),
        }
    }

    #[test]
    fn good_lines_pass() {
        let settings =
            check("fednmf --algo dsanls -k 3 --sketch-size 10%,20 --checkpoint c.h5 --checkpoint-every 20s").unwrap();
        assert_eq!((settings.k, settings.checkpoint_every), (3, Every::Seconds(20.0)));
        assert_eq!(settings.deciding()["sketch_size"], "10%,20");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        for (line, word) in [
            ("fednmf --algo hals --solver pcd", "--solver"),
            ("fednmf --algo nosuch", "nosuch"),
            ("fednmf -k 0", "--components"),
            ("fednmf --tol -1", "--tol"),
            ("fednmf --tol nan", "--tol"),
            ("fednmf --time-limit inf", "--time-limit"),
            ("fednmf --stall-timeout nan", "--stall-timeout"),
            ("fednmf --stall-timeout 1e300", "--stall-timeout"),
            ("fednmf --on-lost-party continue", "--resume"),
            ("fednmf --eval-every 0 --tol 1e-4", "--eval-every"),
            ("fednmf --algo hals --parties 3", "--parties"),
            ("fednmf --algo hals --skew 0.5", "--skew"),
            ("fednmf --algo hals --split s.txt", "--split"),
            ("fednmf --algo syn-sd --skew 0.5 --split s.txt", "--split"),
            ("fednmf --algo dsanls --sketch-size 0", "--sketch-size"),
            ("fednmf --algo hals --grid 4", "--grid"),
            ("fednmf --algo dsanls --grid 4x2", "--grid"),
            ("fednmf --algo fnmf --grid 1x1", "--grid"),
            ("fednmf --algo dsanls --mu-alpha -3", "--mu-alpha"),
            ("fednmf --checkpoint c.h5 --checkpoint-every 0", "--checkpoint-every"),
            ("fednmf --input synthetic:nosuch", "nosuch"),
            ("fednmf --image 8x8", "--report"),
            ("fednmf --output f.csv", ".h5ad"),
            ("fednmf --algo syn-sd --output f.h5ad", ".npz"),
            ("fednmf --report r.html --image 8", "--image"),
        ] {
            match check(line) {
                Err(e) => assert!(e.message.contains(word) && e.exit_code() == 2, "{line}: {e}"),
                Ok(_) => panic!("{line} passed"),
            }
        }
    }
}

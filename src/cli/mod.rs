//! The command line: its arguments ([`args`]) are parsed for the method of `--algo` and passed to the command that
//! runs.

mod args;
mod explain;
pub mod features;
mod help;
mod options;
pub mod parameters;
mod reference;
mod revealed;
mod version;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

pub use self::args::{Cli, Command};
use self::explain::explain;
use fednmf_base::error::{EXIT_DONE, Error, Result, SharedResult};
use fednmf_base::warning;
use fednmf_comm as comm;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_driver as driver;
use fednmf_files::formats::detect;
use fednmf_files::hdf5_probe;
use fednmf_files::hdf5_probe::Content;
use fednmf_files::{InputSpec, Source};
use fednmf_methods::distributed::auto::{LOSS, with_loss};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;

use crate::commands::estimate::EstimateArgs;
use crate::commands::factorize::RunArgs;
#[cfg(feature = "sites")]
use crate::commands::{approve, join, join::JoinArgs, join::profile::Profile, keygen, serve};
use crate::commands::{
    audit, choose, clusters, estimate, evaluate, list, predict, prepare, programs, project, report, sweep, tools, top,
};

/// The parsed request.
pub enum Request {
    /// Nothing to run: print this and end with 0 (`--help`, `--version`).
    Text(String),
    Run(Box<RunArgs>, Arc<dyn ConfiguredMethod>),
    Estimate(Box<EstimateArgs>, Arc<dyn ConfiguredMethod>),
    #[cfg(feature = "sites")]
    Join(Box<JoinArgs>, Arc<dyn ConfiguredMethod>),
    Other(Command),
}

/// The parser for a run, or an estimate, of one method.
pub fn command_of(method: &'static dyn ConfiguredMethod) -> clap::Command {
    let args = parameters::args(method);
    let args: Vec<_> = args.into_iter().chain((!method.takes(LOSS)).then(named_loss)).collect();
    let command = Cli::command().args(args.clone());
    let command = command.mut_subcommand("estimate", |estimate| estimate.args(args.clone()));
    if cfg!(feature = "sites") { command.mut_subcommand("join", |join| join.args(args)) } else { command }
}

/// `--loss` together with `--algo NAME`, which only confirms the loss of the method.
fn named_loss() -> clap::Arg {
    clap::Arg::new(LOSS).long(LOSS).value_name("LOSS").allow_hyphen_values(true).hide(true)
}

/// The method with the parameters that were typed.
///
/// # Errors
/// Naming the option that is wrong, also if a named method does not minimise the requested loss.
fn configure(method: &dyn ConfiguredMethod, matches: &clap::ArgMatches) -> Result<Arc<dyn ConfiguredMethod>> {
    let configured = parameters::configure(method, matches)?;
    if method.takes(LOSS) {
        return Ok(configured);
    }
    match matches.get_one::<String>(LOSS) {
        Some(text) => with_loss(&configured, text),
        None => Ok(configured),
    }
}

/// The parser with the options of all methods, for the man page and completions.
pub fn complete_command() -> clap::Command {
    let methods = registry::ALL.iter().chain([&*registry::AUTO]);
    let names = methods.flat_map(|method| method.description().names()).map(PossibleValue::new);
    let names: Vec<PossibleValue> = names.collect();
    let named = |command: clap::Command| {
        let parser = PossibleValuesParser::new(names.clone());
        command.mut_arg("algo", |algo| algo.value_parser(parser).hide_possible_values(true))
    };
    let command = named(Cli::command().args(options::all().into_iter().map(|option| option.arg())));
    let command = command.mut_subcommand("estimate", named);
    if cfg!(feature = "sites") { command.mut_subcommand("join", named) } else { command }
}

/// Starts the trial read of an HDF5 file that `--input` names. It takes a while, so it runs while the command line is
/// parsed and MPI is started.
pub fn begin(words: impl IntoIterator<Item = OsString>) {
    let words: Vec<OsString> = words.into_iter().collect();
    if comm::launched_rank() == 0
        && let Some(input) = value_of("--input", &words).or_else(|| value_of("-i", &words))
        && let Ok(spec) = InputSpec::parse(input)
        && !spec.by_party()
        && let Source::File { path, dataset } = &spec.source
        && detect::is_hdf5(path)
    {
        hdf5_probe::start(Content::Matrix, path, dataset.as_deref());
    }
}

/// Parses the command line.
///
/// # Errors
/// Naming the option that is wrong, and what it should be.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Request> {
    let words: Vec<OsString> = words.into_iter().collect();
    // Errors of the command line have colours too.
    match value_of("--color", &words) {
        Some("always") => warning::set_colour(true),
        Some("never") => warning::set_colour(false),
        _ => {}
    }
    #[cfg(feature = "sites")]
    if let Some(profile) = profile_of(&words) {
        return parse_words(profile.expand(words)).map_err(|e| profile.explain(e));
    }
    parse_words(words)
}

fn parse_words(words: Vec<OsString>) -> Result<Request> {
    let method = method_of(&words)?;
    let has = |option: &str| words.iter().any(|word| word == option);
    let mut command = command_of(&**method);
    if has("--version") {
        command = command.long_version(version::long());
    }
    // `--help` shows all options, also if both are given.
    if has("-h") && !has("--help") {
        command = help::with_short(command);
    }
    let mut matches = match command.try_get_matches_from(&words) {
        Ok(matches) => matches,
        Err(e) if !e.use_stderr() => {
            let text = e.render();
            let colour = warning::in_colour(std::io::stdout().is_terminal());
            return Ok(Request::Text(if colour { text.ansi().to_string() } else { text.to_string() }));
        }
        Err(e) => {
            return match with_input(&e, &words) {
                Some(words) => parse_words(words),
                None => Err(explain(&e, &**method, &typed(&words), subcommand(&words))),
            };
        }
    };
    let unexpected = |e: clap::Error| Error::input(e.render().to_string());
    #[cfg(feature = "sites")]
    let of_words = method;
    let method = match matches.subcommand() {
        None => Some(configure(&**method, &matches)?),
        Some(("estimate" | "join", matches)) => Some(configure(&**method, matches)?),
        Some(_) => None,
    };
    #[cfg(feature = "sites")]
    if let Some(("join", matches)) = matches.subcommand()
        && let Some(join) = command_of(&**of_words).find_subcommand("join")
    {
        join::work::check_options(join, matches)?;
    }
    let cli = Cli::from_arg_matches_mut(&mut matches).map_err(unexpected)?;
    Ok(match (cli.command, method) {
        (None, Some(method)) => Request::Run(Box::new(cli.run), method),
        (Some(Command::Estimate(args)), Some(method)) => Request::Estimate(args, method),
        #[cfg(feature = "sites")]
        (Some(Command::Join(args)), Some(method)) => Request::Join(args, method),
        (Some(command), _) => Request::Other(command),
        (None, None) => unreachable!("a run has a method"),
    })
}

/// The words of `fednmf FILE` or `fednmf sweep FILE` as those with `--input FILE`, if that is why the parser refused them.
fn with_input(e: &clap::Error, words: &[OsString]) -> Option<Vec<OsString>> {
    let kind = match e.kind() {
        // After other options it is a conflict with them.
        ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(file)) = e.get(kind) else { return None };
    let is_file = !file.starts_with('-') && (file.contains(['.', '/', ':']) || std::path::Path::new(file).exists());
    let at = words.iter().position(|word| word == file.as_str()).filter(|_| is_file && takes_input(words))?;
    let has_input = ["--input", "-i"].iter().any(|option| value_of(option, words).is_some());
    let (before, after) = words.split_at(at);
    (!has_input).then(|| [before, &["--input".into()], after].concat())
}

/// Whether the typed command, or a run, has `--input` and nothing without an option.
fn takes_input(words: &[OsString]) -> bool {
    let command = Cli::command();
    let typed = words.get(1).and_then(|name| command.find_subcommand(name));
    typed.is_none_or(|command| {
        command.get_arguments().any(|arg| arg.get_id() == "input") && command.get_positionals().next().is_none()
    })
}

/// The last value of an option, before the command line is parsed.
fn value_of<'a>(option: &str, words: &'a [OsString]) -> Option<&'a str> {
    let texts: Vec<&str> = words.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let mut value = None;
    for (at, word) in texts.iter().enumerate() {
        if *word == option {
            value = texts.get(at + 1).copied().or(value);
        } else if let Some(given) = word.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
            value = Some(given);
        }
    }
    value
}

/// The method that `--algo` names, `auto` by default. The sweep has an `--algo` of its own, which is parsed later.
fn method_of(words: &[OsString]) -> Result<&'static Arc<dyn ConfiguredMethod>> {
    let name = value_of("--algo", words);
    let Some(name) = name else { return Ok(&registry::AUTO) };
    registry::find(name).ok_or_else(|| Error::input(format!("--algo {name}: {}", registry::unknown(name))))
}

/// The profile that a site's command line names.
#[cfg(feature = "sites")]
fn profile_of(words: &[OsString]) -> Option<Profile> {
    let joins = words.get(1).is_some_and(|word| word == "join");
    // Other work takes no profile, which is then refused by name.
    let factorises = !words.iter().filter_map(|word| word.to_str()).any(join::is_other_work);
    value_of("--profile", words).filter(|_| joins && factorises).and_then(Profile::of)
}

/// The typed subcommand.
fn named_command(words: &[OsString]) -> Option<&str> {
    let name = words.get(1)?.to_str()?;
    Cli::command().get_subcommands().any(|command| command.get_name() == name).then_some(name)
}

/// The typed subcommand, if it takes no options of a method.
fn subcommand(words: &[OsString]) -> Option<String> {
    named_command(words).filter(|name| !["estimate", "join"].contains(name)).map(str::to_string)
}

/// The command as it is typed: `fednmf`, `fednmf sweep`.
fn typed(words: &[OsString]) -> String {
    named_command(words).map_or_else(|| "fednmf".to_string(), |name| format!("fednmf {name}"))
}

/// The answer to a request that needs neither data nor other ranks; `None` for other requests.
///
/// # Errors
/// If `list` names a method that does not exist, or the arguments of `account` are invalid.
pub fn answer(request: &Request) -> Result<Option<String>> {
    Ok(Some(match request {
        Request::Text(text) => text.clone(),
        Request::Other(Command::List { markdown: Some(page), .. }) => page.text(),
        Request::Other(Command::List { name: None, .. }) => list::all(),
        Request::Other(Command::List { name: Some(name), wire, .. }) => list::one(name, *wire)?,
        Request::Other(Command::Account(account)) => account.answer()?,
        Request::Other(Command::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut complete_command(), "fednmf", &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
        Request::Other(Command::Man { output: None }) => {
            let mut text = Vec::new();
            clap_mangen::Man::new(complete_command())
                .render(&mut text)
                .map_err(|e| Error::failed(format!("cannot make the man page: {e}")))?;
            String::from_utf8_lossy(&text).into_owned()
        }
        Request::Other(Command::Man { output: Some(directory) }) => {
            clap_mangen::generate_to(complete_command(), directory)
                .map_err(|e| Error::input(format!("--output {}: cannot be written ({e})", directory.display())))?;
            String::new()
        }
        _ => return Ok(None),
    }))
}

const COMMAND_LINE: MessageTag = MessageTag::new("command line", Payload::Metadata);

/// Compares the command lines of the ranks, which work together by the same settings. Collective.
///
/// # Errors
/// On all ranks, if one differs from that of rank 0.
pub fn check_command_lines(comm: &Communicator) -> SharedResult<()> {
    let own: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    // Its few bytes are not those of the method.
    let comm = comm.with_new_ledger();
    let first = comm.broadcast_value(COMMAND_LINE, own.clone());
    let alike = if own == first {
        Ok(())
    } else {
        Err(Error::input(format!(
            "rank {} was started with '{}', and rank 0 with '{}'; start all ranks by one command, where {{party}} in --input stands \
             for the number of a file",
            comm.rank(),
            own.join(" "),
            first.join(" ")
        )))
    };
    comm.agree_on_error(alike)
}

/// Performs the request on all ranks of `comm` and returns the exit code. Collective.
///
/// # Errors
/// As the run or the subcommand.
pub fn perform(request: Request, comm: &Communicator) -> Result<i32> {
    match request {
        Request::Run(args, method) => {
            let spec = args.check(method, std::env::args().collect()).map_err(Error::on_all_ranks)?;
            driver::run(&spec, comm)
        }
        Request::Estimate(args, method) => {
            let question = args.check(method).map_err(Error::on_all_ranks)?;
            estimate::estimate(&question, comm)
        }
        #[cfg(feature = "sites")]
        Request::Join(args, method) => join::join(*args, method, comm),
        Request::Other(command) => match command {
            Command::Generate { spec, output } => tools::generate(&spec, &output, comm),
            Command::Inspect { input, transpose, table, memory, json } => {
                let spec = tools::matrix(&input, transpose, table.0, memory).map_err(Error::on_all_ranks)?;
                tools::inspect(&spec, json, comm)
            }
            Command::Prepare(args) => prepare::prepare(*args, comm),
            Command::Programs(args) => programs::programs(*args, comm),
            Command::Evaluate(args) => evaluate::evaluate(&args, comm),
            Command::Audit(args) => audit::audit(&args, comm),
            Command::Project(args) => project::project(&args, comm),
            Command::Predict(args) => predict::predict(&args, comm),
            Command::Top(args) => top::top(&args, comm),
            Command::Clusters(args) => clusters::clusters(&args, comm),
            Command::Sweep(args) => sweep::sweep(&args, comm),
            Command::Choose(args) => choose::choose(&args, comm),
            Command::Report(args) => report::report(&args, comm),
            #[cfg(feature = "sites")]
            Command::Serve(args) => serve::serve(&args, comm),
            #[cfg(feature = "sites")]
            Command::Approve(args) => approve::approve(&args, comm),
            #[cfg(feature = "sites")]
            Command::Keygen(args) => keygen::keygen(&args, comm),
            #[cfg(feature = "sites")]
            Command::Join(_) => Ok(EXIT_DONE),
            Command::List { .. }
            | Command::Estimate(_)
            | Command::Account(_)
            | Command::Completions { .. }
            | Command::Man { .. } => Ok(EXIT_DONE),
        },
        Request::Text(_) => Ok(EXIT_DONE),
    }
}

#[cfg(test)]
mod tests {
    use fednmf_driver::spec::{Every, Spec};

    use super::*;

    fn words(line: &str) -> impl Iterator<Item = OsString> {
        line.split(' ').map(Into::into)
    }

    fn check(line: &str) -> Result<Spec> {
        match parse(words(line))? {
            Request::Run(args, method) => args.check(method, Vec::new()),
            _ => panic!("not a run"),
        }
    }

    #[test]
    fn a_file_may_stand_without_its_option() {
        for line in ["fednmf a.npy -k 3", "fednmf -k 3 a.npy", "fednmf --quiet -k 3 a.npy --verbose"] {
            let spec = check(line).unwrap();
            assert_eq!((spec.input_text.as_str(), spec.k), ("a.npy", 3), "{line}");
        }
        assert!(check("fednmf a.npy b.npy -k 3").is_err() && check("fednmf --input a.npy b.npy -k 3").is_err());
        for line in
            ["fednmf sweep a.npy --k 2..3 -o d", "fednmf sweep --k 2..3 -o d a.npy", "fednmf estimate a.npy -k 3"]
        {
            assert!(parse(words(line)).is_ok(), "{line}");
        }
        assert!(parse(words("fednmf sweep a.npy b.npy --k 2..3 -o d")).is_err());
        assert!(check("fednmf inspct -k 3").is_err_and(|e| e.message.contains("inspect")));
        let audit = parse(words("fednmf audit view.npz"));
        assert!(audit.is_err_and(|e| e.message.contains("view.npz") && !e.message.contains("--input")));
    }

    #[test]
    fn the_parsers_are_sound() {
        complete_command().debug_assert();
        for method in registry::ALL.iter().chain([&*registry::AUTO]) {
            command_of(&**method).debug_assert();
        }
    }

    #[test]
    fn help_shows_the_options_of_the_method() {
        let help = |line: &str| match parse(words(line)) {
            Ok(Request::Text(text)) => text,
            _ => panic!("{line}: not a help text"),
        };
        assert!(help("fednmf --algo dsanls --help").contains("--sketch-size"));
        assert!(!help("fednmf --help").contains("--sketch-size"));
        assert!(help("fednmf estimate --algo fnmf --help").contains("--local-iters"));
    }

    #[test]
    fn wrong_options_are_refused_in_words() {
        assert!(matches!(parse(words("fednmf --algo hals")), Ok(Request::Run(..))));
        for wrong in ["fednmf --nosuch", "fednmf -k x", "fednmf --precision f16", "fednmf nosuch", "fednmf --resume"] {
            assert!(matches!(parse(words(wrong)), Err(e) if e.exit_code() == 2), "{wrong}");
        }
        let message = |line: &str| check(line).err().map(|e| e.message).unwrap_or_default();
        assert_eq!(message("fednmf --algo dsanls --solver newton"), "--solver newton: must be one of pcd, pgd");
        assert_eq!(message("fednmf --algo dsanls --mu-beta -1"), "--mu-beta -1: must be a number of at least 0");
        assert!(message("fednmf --algo hals --solver pcd").contains("dsanls"));
        assert!(message("fednmf --algo hals --epsilon 1").contains("one domain of trust"));
        assert!(message("fednmf inspect --missing nan x.npy").contains("is not an option of fednmf inspect"));
    }

    #[test]
    fn errors_of_the_parser_are_one_line_with_a_cure() {
        for (line, told) in [
            ("fednmf --max-iter 5", "--max-iter: there is no such option; the most iterations are --max-iters"),
            (
                "fednmf --outputs f.h5",
                "--outputs: there is no such option; did you mean --output? 'fednmf --help' shows all",
            ),
            ("fednmf inspect --zzz x.npy", "--zzz: there is no such option; 'fednmf inspect --help' shows all"),
            ("fednmf inspect x.npy y.npy", "y.npy: belongs to no option; 'fednmf inspect --help' shows all"),
            ("fednmf estimate --zzz", "--zzz: there is no such option; 'fednmf estimate --help' shows all"),
            ("fednmf swep", "swep: there is no such command or file; did you mean sweep? 'fednmf --help' shows all"),
            (
                "fednmf Cargo.toml --input x.npy",
                "Cargo.toml: there is an --input already, or the command takes none; 'fednmf --help' shows all",
            ),
            ("fednmf --resume", "--checkpoint <F.h5>: is missing, which --resume and --checkpoint-every need"),
            ("fednmf generate planted,m=5,n=4", "--output <FILE>: is missing; 'fednmf generate --help' shows all"),
            ("fednmf -o a.h5 --add-to b.h5ad", "--output <F.h5>: cannot be given together with --add-to <F.h5ad>"),
            ("fednmf --output", "--output <F.h5>: its value is missing"),
        ] {
            assert_eq!(parse(words(line)).err().map(|e| e.message).as_deref(), Some(told), "{line}");
        }
    }

    #[test]
    fn good_lines_pass() {
        let spec =
            check("fednmf --algo dsanls -k 3 --sketch-size 10%,20 --checkpoint c.h5 --checkpoint-every 20s").unwrap();
        assert_eq!((spec.k, spec.checkpoint_every), (3, Every::Seconds(20.0)));
        let timed = check("fednmf --time-limit 1.5h --checkpoint c.h5 --checkpoint-every 5m").unwrap();
        assert_eq!((timed.time_limit, timed.checkpoint_every), (Some(5400.0), Every::Seconds(300.0)));
        assert_eq!(fednmf_base::parameters::to_json(spec.method.assumed())["sketch_size"], "10%,20");
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
            ("fednmf --algo syn-sd --headroom 20", "--secure-sum"),
            ("fednmf --algo syn-sd --delta 1e-6", "--delta: there is no noise without --dp"),
            ("fednmf --algo fnmf --dp-releases 3", "--dp-releases"),
            ("fednmf --l1-ratio 0.5", "--alpha-u"),
            ("fednmf --algo fnmf --update hals --inertia 0.5", "--inertia"),
            ("fednmf --algo secure-hals --update bpp --local-iters 3", "--local-iters"),
            ("fednmf --algo vr-dsanls --epoch 1 --sketch-size 5", "--sketch-size"),
            ("fednmf --factor-scale unit-u", "--output"),
            ("fednmf --algo asyn-sd --party-timeout 5", "--clock real"),
            ("fednmf --algo ppdnmf --plain --key-bits 2048", "--key-bits"),
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

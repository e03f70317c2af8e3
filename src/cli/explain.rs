//! Errors of the command line in the words of fednmf, which know its methods and the names that options have elsewhere.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use fednmf_base::error::Error;
use fednmf_methods::description::DifferentialPrivacy;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;

use super::options;

/// Names that options have in other programs, and the option here with that meaning. By similarity of letters, clap
/// would suggest other options.
const MEANINGS: [(&[&str], &str); 13] = [
    (&["rank", "r", "dim", "dims", "latent", "factors", "components-number"], "the number of components is -k"),
    (
        &["n", "np", "nproc", "ranks", "nodes", "processes", "workers"],
        "start ranks with mpirun -n N fednmf ..., parties are --parties",
    ),
    (&["n-jobs", "jobs", "cores", "num-threads"], "threads of a rank are --threads, ranks are mpirun -n"),
    (
        &["iterations", "iters", "n-iter", "max-iter", "niter", "epochs", "steps", "rounds"],
        "the most iterations are --max-iters",
    ),
    (&["method", "algorithm", "alg", "model"], "the method is --algo ('fednmf list' shows all)"),
    (&["tolerance", "eps", "stop-threshold"], "the tolerance is --tol"),
    (&["out", "outfile", "out-file", "save", "dest"], "the file of factors is --output"),
    (&["data", "file", "infile", "matrix", "x"], "the matrix is --input"),
    (&["random-state", "random-seed", "rng"], "the seed is --seed"),
    (&["timeout", "max-time", "walltime"], "the limit of the time is --time-limit"),
    (&["beta-loss", "divergence", "objective"], "the loss is --loss"),
    (&["log", "logfile", "history"], "the history of a run goes to --trace"),
    (&["clients", "sites", "agents"], "their number is --parties"),
];

/// Rephrases an error of the parser as all other messages are: the option, what is wrong, what to do.
/// `typed` is the command as far as it was typed, and `subcommand` its name if it takes no options of a method.
pub fn explain(e: &clap::Error, method: &dyn ConfiguredMethod, typed: &str, subcommand: Option<String>) -> Error {
    let text = |kind| match e.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let option = text(ContextKind::InvalidArg).map(|arg| arg.split([' ', '=']).next().unwrap_or(arg));
    match (e.kind(), option) {
        (ErrorKind::UnknownArgument, Some(option)) => {
            if let Some(foreign) = options::find(option.trim_start_matches('-')) {
                if let Some(command) = subcommand {
                    return Error::input(format!(
                        "{option}: is not an option of fednmf {command}; 'fednmf {command} --help' shows those it has"
                    ));
                }
                return other_method_option(&foreign, method);
            }
            if let Some((_, meant)) = MEANINGS.iter().find(|(names, _)| names.contains(&option.trim_start_matches('-')))
            {
                return Error::input(format!("{option}: there is no such option; {meant}"));
            }
        }
        (ErrorKind::InvalidValue, Some(option)) => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            if let Some(ContextValue::Strings(valid)) = e.get(ContextKind::ValidValue)
                && !value.is_empty()
            {
                return Error::input(format!("{option} {value}: must be one of {}", valid.join(", ")));
            }
        }
        (ErrorKind::ValueValidation, Some(option)) => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            if let Some(why) = std::error::Error::source(e) {
                return Error::input(format!("{option} {value}: {why}"));
            }
        }
        _ => {}
    }
    otherwise(e, typed)
}

/// The errors that concern no value: options that are unknown, missing, or in each other's way.
fn otherwise(e: &clap::Error, typed: &str) -> Error {
    let all = |kind| match e.get(kind) {
        Some(ContextValue::String(text)) => vec![text.as_str()],
        Some(ContextValue::Strings(all)) => all.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let (args, others) = (all(ContextKind::InvalidArg).join(", "), all(ContextKind::PriorArg).join(", "));
    let help = format!("'{typed} --help' shows all");
    let similar = |kind| match &all(kind)[..] {
        [] => help.clone(),
        some => format!("did you mean {}? {help}", some.join(" or ")),
    };
    Error::input(match e.kind() {
        ErrorKind::UnknownArgument if args.starts_with('-') => {
            format!("{args}: there is no such option; {}", similar(ContextKind::SuggestedArg))
        }
        ErrorKind::UnknownArgument => format!("{args}: belongs to no option; {help}"),
        ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict if args.is_empty() => {
            let name = all(ContextKind::InvalidSubcommand).join(", ");
            match std::path::Path::new(&name).exists() {
                true => format!("{name}: there is an --input already, or the command takes none; {help}"),
                false => {
                    format!("{name}: there is no such command or file; {}", similar(ContextKind::SuggestedSubcommand))
                }
            }
        }
        ErrorKind::MissingRequiredArgument if args.starts_with("--checkpoint") => {
            format!("{args}: is missing, which --resume and --checkpoint-every need")
        }
        ErrorKind::MissingRequiredArgument => format!("{args}: is missing; {help}"),
        ErrorKind::ArgumentConflict if !others.is_empty() => format!("{args}: cannot be given together with {others}"),
        ErrorKind::InvalidValue => format!("{args}: its value is missing"),
        _ => e.render().to_string().trim_start_matches("error: ").trim_end().to_string(),
    })
}

/// Refuses an option of other methods; ignoring it silently would mislead the user.
fn other_method_option(option: &options::MethodOption, configured: &dyn ConfiguredMethod) -> Error {
    let method = configured.description();
    let takers: Vec<&str> = option.takers().collect();
    let why = match (configured.why_not(&option.name), method.dp) {
        (Some(why), _) => format!(": {why}"),
        (None, DifferentialPrivacy::Refused(why)) if takers.iter().all(|name| takes_dp(name)) => format!(": {why}"),
        _ => String::new(),
    };
    if method.name == registry::AUTO.description().name {
        return Error::input(format!(
            "--{}: is not an option of the default method{}; choose one that has it with --algo: {}",
            option.name,
            why.replacen(": ", ", ", 1),
            takers.join(", ")
        ));
    }
    let have = if takers.len() == 1 { "has" } else { "have" };
    Error::input(format!(
        "--{}: is not an option of {}{why} ({} {have} it)",
        option.name,
        method.name,
        takers.join(", ")
    ))
}

fn takes_dp(name: &str) -> bool {
    registry::find(name).is_some_and(|entry| entry.description().protects().is_some())
}

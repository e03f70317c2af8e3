//! Options that have an effect only together with another one. Given without it, they would be ignored silently.

use clap::ArgMatches;
use clap::parser::ValueSource;

use fednmf_base::error::{Error, Result};

/// An option and the condition under which it has an effect. Options are named by their fields.
struct Rule {
    option: &'static str,
    condition: Condition,
    /// The purpose of the option, and the remedy.
    advice: &'static str,
}

enum Condition {
    /// One of these options must be given too.
    With(&'static [&'static str]),
    /// This option must not be given.
    Without(&'static str),
    /// This option must not have that value.
    Unless(&'static str, &'static str),
}

use Condition::{Unless, With, Without};

const RULES: [Rule; 13] = [
    rule("headroom", With(&["secure_sum"]), "is the room of masked sums; add --secure-sum"),
    rule("delta", With(&["dp"]), "there is no noise without --dp; add --dp gaussian"),
    rule("dp_calibration", With(&["dp"]), "there is no noise without --dp; add --dp gaussian"),
    rule("dp_releases", With(&["dp"]), "there is no noise without --dp; add --dp gaussian, laplace or xor"),
    rule("l1_ratio", With(&["alpha_u", "alpha_v"]), "divides a penalty, and there is none; add --alpha-u or --alpha-v"),
    rule("party_timeout", With(&["clock"]), "parties are waited for with --clock real; add it"),
    rule("inertia", Unless("update", "hals"), "carries on proximal steps; --update hals has none"),
    rule("local_iters", Unless("update", "bpp"), "counts steps of --update hals; --update bpp solves for the factor"),
    rule("sketch_size", Unless("epoch", "1"), "with --epoch 1 all products are exact; leave out one of them"),
    rule(
        "sketch_size",
        Unless("sketch", "none"),
        "nothing is sketched with --sketch none; leave it out, or choose a sketch, as --sketch subsample",
    ),
    rule("insecure_key", With(&["key_bits"]), "allows --key-bits 128; add it"),
    rule("key_bits", Without("plain"), "nothing is encrypted with --plain; leave out one of them"),
    rule("crypto_threads", Without("plain"), "nothing is encrypted with --plain; leave out one of them"),
];

const fn rule(option: &'static str, condition: Condition, advice: &'static str) -> Rule {
    Rule { option, condition, advice }
}

/// # Errors
/// Naming an option that was typed and would be ignored, and what it needs.
pub fn check(matches: &ArgMatches) -> Result<()> {
    let typed = |id: &str| {
        let known = matches.try_contains_id(id).is_ok();
        known && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let has = |id: &str, value: &str| {
        let known = matches.try_contains_id(id).is_ok();
        known && matches.get_raw(id).is_some_and(|mut values| values.any(|typed| typed == value))
    };
    let ignored = RULES.iter().find(|rule| {
        typed(rule.option)
            && match rule.condition {
                With(others) => !others.iter().any(|other| typed(other)),
                Without(other) => typed(other),
                Unless(other, value) => has(other, value),
            }
    });
    match ignored {
        Some(rule) => Err(Error::input(format!("--{}: {}", rule.option.replace('_', "-"), rule.advice))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    #[test]
    fn every_rule_names_options_that_exist() {
        let exists = |id: &str| registry::ALL.iter().any(|entry| entry.takes(&id.replace('_', "-")));
        for rule in &RULES {
            let others = match rule.condition {
                With(others) => others.to_vec(),
                Without(other) | Unless(other, _) => vec![other],
            };
            assert!(exists(rule.option) && others.into_iter().all(exists), "{}", rule.option);
        }
    }
}

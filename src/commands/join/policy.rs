//! The policy of a site: `--policy FILE`.

use std::path::Path;

use serde::Deserialize;

use fednmf_base::error::{Error, Result};
use fednmf_comm::{MessageTag, SendFilter};
use fednmf_driver::spec::Spec;
use fednmf_methods::registry;
use fednmf_privacy::Protection;

/// A protection that a run must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Protected {
    /// `--secure-sum`.
    SecureSum,
    /// `--dp`.
    Dp,
    /// `--transcript`.
    Transcript,
}

/// The limits that a site sets to a run; fields that are not set impose none.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    methods: Option<Vec<String>>,
    #[serde(default)]
    require: Vec<Protected>,
    min_parties: Option<usize>,
    max_epsilon: Option<f64>,
    /// The sites that may take part.
    sites: Option<Vec<String>>,
    /// The kinds of messages that may leave without mask, noise or encryption. What is public by its type always may.
    in_the_clear: Option<Vec<String>>,
}

impl Policy {
    /// Reads the JSON of a file.
    ///
    /// # Errors
    /// If it cannot be read, is no policy, or names a method that does not exist.
    pub fn read(path: &Path) -> Result<Policy> {
        let wrong = |why: String| Error::input(format!("--policy {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read ({e})")))?;
        let policy: Policy = serde_json::from_str(&text).map_err(|e| wrong(format!("is no policy: {e}")))?;
        let unknown = policy.methods.iter().flatten().find(|name| registry::find(name).is_none());
        match unknown {
            Some(name) => Err(wrong(format!("{name}: no such method; 'fednmf list' shows all"))),
            None => Ok(policy),
        }
    }

    /// Checks a run against the policy.
    ///
    /// # Errors
    /// Naming what the policy forbids.
    pub fn check(&self, spec: &Spec) -> Result<()> {
        let refuse = |what: String| Err(Error::input(format!("the policy of this site {what}")));
        let name = spec.description().name;
        let allows = |allowed: &String| registry::find(allowed).is_some_and(|entry| entry.description().name == name);
        if let Some(methods) = &self.methods
            && !methods.iter().any(allows)
        {
            return refuse(format!("does not allow --algo {name}, only {}", methods.join(", ")));
        }
        let groups = spec.method.assumed().groups();
        let dp = groups.dp.filter(|dp| dp.is_on());
        for required in &self.require {
            let (option, given) = match required {
                Protected::SecureSum => ("--secure-sum", groups.secure_sum.is_some_and(|sum| sum.secure_sum)),
                Protected::Dp => ("--dp", dp.is_some()),
                Protected::Transcript => ("--transcript", spec.transcript.is_some()),
            };
            if !given {
                return refuse(format!("requires {option}"));
            }
        }
        if let Some(most) = self.max_epsilon {
            match dp.map(|dp| dp.epsilon.given()) {
                None => return refuse(format!("allows an --epsilon of at most {most}, so --dp is required")),
                Some(None) => return refuse(format!("requires an --epsilon, of at most {most}")),
                Some(Some(epsilon)) if epsilon > most => {
                    return refuse(format!("allows an --epsilon of at most {most}, not {epsilon}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks the sites that take part.
    ///
    /// # Errors
    /// If they are too few, or the policy does not name one of them.
    pub fn check_sites(&self, sites: &[String]) -> Result<()> {
        let refuse = |what: String| Err(Error::input(format!("the policy of this site {what}")));
        if let Some(least) = self.min_parties.filter(|least| sites.len() < *least) {
            return refuse(format!("requires at least {least} parties, and this run has {}", sites.len()));
        }
        let stranger = self.sites.as_ref().and_then(|known| sites.iter().find(|site| !known.contains(site)));
        match stranger {
            Some(site) => refuse(format!("does not name site {site}")),
            None => Ok(()),
        }
    }

    /// A function that decides whether a message may be sent; `None` if the policy does not limit messages.
    pub fn send_filter(&self) -> Option<SendFilter> {
        let allowed = self.in_the_clear.clone()?;
        Some(Box::new(move |tag: MessageTag| {
            let clear = tag.protection() == Protection::Declared;
            if !clear || allowed.iter().any(|kind| kind == tag.kind) {
                return Ok(());
            }
            Err(format!(
                "the policy of this site does not allow '{}' to leave in the clear (in_the_clear); nothing of it was sent",
                tag.kind
            ))
        }))
    }
}

#[cfg(test)]
mod tests {
    use fednmf_comm::Payload;

    use super::*;
    use crate::cli::{Request, parse};

    fn check(policy: &str, line: &str) -> Option<String> {
        let policy: Policy = serde_json::from_str(policy).unwrap();
        let Ok(Request::Run(args, method)) = parse(line.split(' ').map(Into::into)) else { panic!("{line}") };
        policy.check(&args.check(method, Vec::new()).unwrap()).err().map(|e| e.message)
    }

    #[test]
    fn a_policy_refuses_what_it_does_not_allow() {
        let methods = r#"{"methods": ["fnmf", "felb-mu"]}"#;
        assert_eq!(check(methods, "fednmf --algo fnmf"), None);
        assert!(check(methods, "fednmf --algo mur").unwrap().contains("only fnmf, felb-mu"));
        let masked = r#"{"require": ["secure-sum"]}"#;
        assert!(check(masked, "fednmf --algo fnmf").unwrap().contains("--secure-sum"));
        assert_eq!(check(masked, "fednmf --algo fnmf --secure-sum"), None);
        let noised = r#"{"max_epsilon": 2}"#;
        assert!(check(noised, "fednmf --algo felb").unwrap().contains("--dp"));
        assert!(check(noised, "fednmf --algo felb --dp gaussian --epsilon 3").unwrap().contains("not 3"));
        assert!(check(noised, "fednmf --algo felb --dp gaussian --dp-noise 3").unwrap().contains("--epsilon"));
        assert_eq!(check(noised, "fednmf --algo felb --dp gaussian --epsilon 2"), None);
    }

    #[test]
    fn a_policy_says_with_whom() {
        let policy: Policy = serde_json::from_str(r#"{"min_parties": 3, "sites": ["a", "b", "c"]}"#).unwrap();
        let sites = |names: &str| names.split(',').map(String::from).collect::<Vec<_>>();
        assert!(policy.check_sites(&sites("a,b,c")).is_ok());
        assert!(policy.check_sites(&sites("a,b")).is_err() && policy.check_sites(&sites("a,b,x")).is_err());
        assert!(serde_json::from_str::<Policy>(r#"{"min_partys": 3}"#).is_err());
    }

    #[test]
    fn messages_in_the_clear_need_consent() {
        let policy: Policy = serde_json::from_str(r#"{"in_the_clear": ["sum V"]}"#).unwrap();
        let send_filter = policy.send_filter().unwrap();
        assert!(send_filter(MessageTag::new("sum V", Payload::SharedFactor)).is_ok());
        assert!(send_filter(MessageTag::new("headers", Payload::Metadata)).is_err());
        assert!(send_filter(MessageTag::new("products", Payload::Product)).is_err());
    }
}

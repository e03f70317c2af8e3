//! The list of all methods. `--help`, `fednmf list`, the docs and the tests that run over all methods are made from it.

use super::boolean::asso::AssoArgs;
use super::boolean::felb::{FelbArgs, FelbMuArgs};
use super::boolean::grecond::GrecondArgs;
use super::boolean::mebf::MebfArgs;
use super::boolean::relaxed::{ElbmfArgs, ZhangArgs};
use super::centralized::auto::AutoArgs;
use super::centralized::bpp::BppArgs;
use super::centralized::dsanls::DsanlsArgs;
use super::centralized::hals::HalsArgs;
use super::centralized::kl_mu::KlMuArgs;
use super::centralized::mu::MuArgs;
use super::columns::asyn::{AsynSdArgs, AsynSsdVArgs};
use super::columns::dsanls_secure::DsanlsSecureArgs;
use super::columns::secure_hals::SecureHalsArgs;
use super::columns::syn::{SynSdArgs, SynSsdUArgs, SynSsdUvArgs, SynSsdVArgs};
use super::description::Description;
use super::method::{Entry, entry};
use super::network::admm::AdmmArgs;
use super::network::ppdnmf::PpdnmfArgs;
use super::rows::baselines::{FedAvgArgs, FedProxArgs, IpalmArgs, MurArgs};
use super::rows::fnmf::FnmfArgs;

/// All methods, in the order of `list`.
pub static ALL: &[&dyn Entry] = &[
    entry::<DsanlsArgs>(),
    entry::<HalsArgs>(),
    entry::<BppArgs>(),
    entry::<MuArgs>(),
    entry::<KlMuArgs>(),
    entry::<SynSdArgs>(),
    entry::<SynSsdUArgs>(),
    entry::<SynSsdVArgs>(),
    entry::<SynSsdUvArgs>(),
    entry::<AsynSdArgs>(),
    entry::<AsynSsdVArgs>(),
    entry::<SecureHalsArgs>(),
    entry::<DsanlsSecureArgs>(),
    entry::<FnmfArgs>(),
    entry::<FedAvgArgs>(),
    entry::<FedProxArgs>(),
    entry::<IpalmArgs>(),
    entry::<MurArgs>(),
    entry::<FelbArgs>(),
    entry::<FelbMuArgs>(),
    entry::<ElbmfArgs>(),
    entry::<ZhangArgs>(),
    entry::<AssoArgs>(),
    entry::<GrecondArgs>(),
    entry::<MebfArgs>(),
    entry::<PpdnmfArgs>(),
    entry::<AdmmArgs>(),
];

/// `--algo auto`, the default: it runs one of the others.
pub static AUTO: &dyn Entry = entry::<AutoArgs>();

/// What each of them declares.
pub fn descriptions() -> impl Iterator<Item = &'static Description> {
    ALL.iter().map(|entry| entry.description())
}

/// The method of that name or alias, [`AUTO`] included.
pub fn find(name: &str) -> Option<&'static dyn Entry> {
    let named = |entry: &&dyn Entry| {
        let method = entry.description();
        method.name.eq_ignore_ascii_case(name) || method.aliases.iter().any(|a| a.eq_ignore_ascii_case(name))
    };
    ALL.iter().copied().chain([AUTO]).find(named)
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;
    use crate::algorithms::description::DifferentialPrivacy;

    fn all() -> impl Iterator<Item = &'static dyn Entry> {
        ALL.iter().copied().chain([AUTO])
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> =
            all().map(Entry::description).flat_map(|m| m.aliases.iter().copied().chain([m.name])).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
    }

    #[test]
    fn defaults_pass_their_own_check() {
        for entry in all() {
            let matches = Command::new("fednmf").args(entry.options()).get_matches_from(["fednmf"]);
            entry.configure(&matches).unwrap_or_else(|e| panic!("{}: {e}", entry.description().name));
        }
    }

    #[test]
    fn an_option_means_the_same_everywhere() {
        let mut values = std::collections::BTreeMap::new();
        for entry in all() {
            for arg in entry.options() {
                let value = arg.get_value_names().map(<[_]>::to_vec);
                let known =
                    values.entry(arg.get_long().expect("options are long").to_string()).or_insert(value.clone());
                assert_eq!(*known, value, "--{} of {}", arg.get_id(), entry.description().name);
            }
        }
    }

    #[test]
    fn private_methods_state_their_limits() {
        for method in all().map(Entry::description) {
            assert_eq!(method.limits.is_some(), method.partition.is_private(), "{}", method.name);
            assert!(method.limits.into_iter().flatten().all(|line| line.len() <= 120), "{}", method.name);
        }
    }

    #[test]
    fn dp_is_an_option_where_it_is_offered() {
        for entry in all() {
            let method = entry.description();
            assert_eq!(entry.takes("dp"), method.dp == DifferentialPrivacy::Offered, "{}", method.name);
        }
    }
}

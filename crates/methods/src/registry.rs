//! The list of all methods, from which `--help`, `fednmf list`, the docs and the tests over all methods are generated.

use std::sync::{Arc, LazyLock};

use fednmf_base::error::{Error, Result};
use fednmf_data::NanRemedy;

use super::boolean;
use super::boolean::vote::Voted;
use super::description::{Description, Partition};
use super::distributed;
use super::federated::{columns, graph, mpc, rows};
use super::method::{ConfiguredMethod, Method};
use super::parameters::meant_among;

/// All methods, in the order of `list` and of messages that name several.
pub static ALL: LazyLock<Vec<Arc<dyn ConfiguredMethod>>> = LazyLock::new(|| {
    vec![
        entry::<distributed::dsanls::Dsanls>(),
        entry::<distributed::vr_dsanls::VrDsanls>(),
        entry::<distributed::hals::Hals>(),
        entry::<distributed::bpp::Bpp>(),
        entry::<distributed::mu::Mu>(),
        entry::<distributed::online::Online>(),
        entry::<distributed::divergence::mu::KlMu>(),
        entry::<distributed::divergence::cd::KlCd>(),
        entry::<distributed::divergence::beta::BetaMu>(),
        entry::<distributed::divergence::online::KlOnline>(),
        entry::<distributed::symnmf::SymNmf>(),
        entry::<columns::syn::SynSd>(),
        entry::<columns::syn::SynSsdU>(),
        entry::<columns::syn::SynSsdV>(),
        entry::<columns::syn::SynSsdUv>(),
        entry::<columns::asyn::AsynSd>(),
        entry::<columns::asyn::AsynSsdV>(),
        entry::<columns::secure_hals::SecureHals>(),
        entry::<columns::dsanls_secure::DsanlsSecure>(),
        entry::<mpc::MpcColumns>(),
        entry::<rows::fnmf::Fnmf>(),
        entry::<rows::baselines::FedAvg>(),
        entry::<rows::baselines::FedProx>(),
        entry::<rows::baselines::Ipalm>(),
        entry::<rows::baselines::Mur>(),
        entry::<rows::divergence::FedKl>(),
        entry::<rows::divergence::FedBeta>(),
        entry::<rows::inmf::Inmf>(),
        entry::<mpc::MpcRows>(),
        entry::<boolean::felb::Felb>(),
        entry::<boolean::felb::FelbMu>(),
        entry::<Voted<boolean::elbmf_zhang::Elbmf>>(),
        entry::<Voted<boolean::elbmf_zhang::Zhang>>(),
        entry::<Voted<boolean::asso::Asso>>(),
        entry::<Voted<boolean::grecond::Grecond>>(),
        entry::<Voted<boolean::mebf::Mebf>>(),
        entry::<graph::ppdnmf::Ppdnmf>(),
        entry::<graph::admm::Admm>(),
    ]
});

/// `--algo auto`, the default, which chooses one of the other methods.
pub static AUTO: LazyLock<Arc<dyn ConfiguredMethod>> = LazyLock::new(entry::<distributed::auto::Automatic>);

fn entry<M: Method>() -> Arc<dyn ConfiguredMethod> {
    Arc::new(M::default())
}

/// The declarations of all methods.
pub fn descriptions() -> impl Iterator<Item = &'static Description> {
    ALL.iter().map(|entry| entry.description())
}

/// The remedy if a method's data has missing values: exclude these, or use another method that supports them, for the same
/// kind of parties or without parties.
pub fn nan_remedy(method: &dyn ConfiguredMethod) -> NanRemedy {
    static OTHERS: LazyLock<[String; 3]> = LazyLock::new(|| {
        [others(|p| !p.is_private()), others(|p| p == Partition::PartyRows), others(|p| p == Partition::PartyColumns)]
    });
    if method.groups().supports_missing() {
        return NanRemedy::LeaveOut;
    }
    NanRemedy::OtherMethods(match method.description().partition {
        Partition::PartyRows => &OTHERS[1],
        Partition::PartyColumns => &OTHERS[2],
        _ => &OTHERS[0],
    })
}

fn others(alike: impl Fn(Partition) -> bool) -> String {
    let can = |method: &&Arc<dyn ConfiguredMethod>| {
        alike(method.description().partition) && method.groups().supports_missing()
    };
    let names: Vec<&str> = ALL.iter().filter(can).map(|method| method.description().name).collect();
    match names.split_last() {
        Some((last, [])) => format!("a run with {last} leaves it out with --missing nan"),
        Some((last, names)) => format!("a run with {} or {last} leaves it out with --missing nan", names.join(", ")),
        None => "enter a number, or leave its row or column out".to_string(),
    }
}

/// The method of that name or alias, [`AUTO`] included.
pub fn find(name: &str) -> Option<&'static Arc<dyn ConfiguredMethod>> {
    ALL.iter().chain([&*AUTO]).find(|method| method.description().is_called(name))
}

/// The message for a `name` that [`find`] does not know: the methods whose names begin with it, the nearest name, or all.
pub fn unknown(name: &str) -> String {
    let longer = format!("{}-", name.to_lowercase());
    let family: Vec<&str> =
        descriptions().map(|method| method.name).filter(|known| known.starts_with(&longer)).collect();
    if let Some((last, others)) = family.split_last() {
        let others = others.join(", ");
        return match others.is_empty() {
            true => format!("no such method; did you mean {last}? 'fednmf list' shows all"),
            false => format!("no such method; there are {others} and {last}; 'fednmf list' shows all"),
        };
    }
    let names = ALL.iter().chain([&*AUTO]).map(|method| method.description()).flat_map(Description::names);
    match meant_among(&name.to_lowercase(), names) {
        Some(known) => format!("no such method; did you mean {known}? 'fednmf list' shows all"),
        None => {
            format!("no such method; the methods are {}", descriptions().map(|m| m.name).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The method `name` with the parameters `given` by name and text (`inner_sweeps`, `3`); the others have their defaults.
///
/// # Errors
/// If there is no such method or parameter, or if a value is not accepted; the message names it.
pub fn named(name: &str, given: &[(&str, &str)]) -> Result<Arc<dyn ConfiguredMethod>> {
    let method = find(name).ok_or_else(|| Error::input(format!("{name}: {}", unknown(name))))?;
    method.configure(given).map_err(|e| e.at(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Arc<dyn ConfiguredMethod>> {
        ALL.iter().chain([&*AUTO])
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        for (typed, meant) in [("halz", "hals"), ("HALS", "hals"), ("kl_cd", "kl-cd"), ("aut", "auto")] {
            assert!(unknown(typed).contains(&format!("did you mean {meant}?")), "{typed}: {}", unknown(typed));
        }
        assert!(unknown("Syn-SSD").starts_with("no such method; there are syn-ssd-u, syn-ssd-v and syn-ssd-uv; "));
        assert!(unknown("asyn-ssd").starts_with("no such method; did you mean asyn-ssd-v? "));
        assert!(unknown("nosuch").starts_with("no such method; the methods are dsanls, "));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> =
            all().map(|method| method.description()).flat_map(|m| m.aliases.iter().copied().chain([m.name])).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
    }

    #[test]
    fn defaults_pass_their_own_check() {
        for entry in all() {
            entry.configure(&[]).unwrap_or_else(|e| panic!("{}: {e}", entry.description().name));
        }
    }

    #[test]
    fn an_option_means_the_same_everywhere() {
        let mut values = std::collections::BTreeMap::new();
        for entry in all() {
            for parameter in entry.parameters() {
                let known = values.entry(parameter.name).or_insert(parameter.value_name);
                assert_eq!(*known, parameter.value_name, "{} of {}", parameter.name, entry.description().name);
            }
        }
    }

    #[test]
    fn private_methods_state_their_limits() {
        for method in all().map(|method| method.description()) {
            assert_eq!(method.limits.is_some(), method.partition.is_private(), "{}", method.name);
            assert!(method.limits.into_iter().flatten().all(|line| line.len() <= 120), "{}", method.name);
        }
    }

    #[test]
    fn dp_is_an_option_where_it_is_offered() {
        for entry in all() {
            let method = entry.description();
            assert_eq!(entry.takes("dp"), method.protects().is_some(), "{}", method.name);
        }
    }
}

//! What the private algorithms do not promise, in two lines each, for `fednmf list NAME` and the docs.

use crate::algorithms::registry::{Method, Partition};

/// The limits of an algorithm whose blocks are parties'; `None` where the ranks are one domain of trust.
pub fn of(method: &Method) -> Option<[&'static str; 2]> {
    Some(match method.name {
        "syn-sd" | "syn-ssd-v" => [
            "without --dp every party's copy of U is seen (with --secure-sum the mean), and says something of its columns;",
            "--epsilon covers what a party releases as U_r, not the statistics at loading and not evaluations (--eval-every 0).",
        ],
        "syn-ssd-u" | "syn-ssd-uv" => [
            "every party's copy of U is seen by all (with --secure-sum their mean alone), and says something of its columns;",
            "parties are honest but curious, all but one of them together find the one's share, and nothing is noised.",
        ],
        "asyn-sd" | "asyn-ssd-v" => [
            "the server sees every party's copy of U, turn after turn, and there is no sum to mask;",
            "who is slow or holds much data shows in the order of merges, and nothing is noised.",
        ],
        "secure-hals" => [
            "the sums of M_r V_r and V_r'V_r are seen by all, exactly; --secure-sum hides a party's term, not the sum;",
            "all parties but one together find the one's term, and what follows from exact sums has no bound.",
        ],
        "dsanls-secure" => [
            "it releases sketches of the data itself: enough of them determine it (Theorem 3 of the paper), hence the limit;",
            "fewer leave it undetermined, which is not the same as secret. Not private in any stronger sense.",
        ],
        "fnmf" | "fedavg" | "fedprox" | "ipalm" | "mur" => [
            "without --dp each V_j is seen by the server as it is, and whether a row was in the data can be told from it;",
            "--epsilon covers what a party releases as V_j, not the statistics at loading and not evaluations (--eval-every 0).",
        ],
        "felb" | "felb-mu" | "elbmf" | "zhang" | "asso" | "grecond" | "mebf" => [
            "without --dp the components of each party are seen as they are, and are patterns of its rows;",
            "--epsilon covers what a party releases as V_i, not the statistics at loading and not evaluations (--eval-every 0).",
        ],
        "ppdnmf" => [
            "neighbours see sums with g they do not know; with --scalar-g, as printed, the greatest common divisor shows it;",
            "evaluation and the output's mean X do not pass encrypted, and the common result X is everybody's.",
        ],
        "admm" => [
            "not private: the centralised twin of ppdnmf, in which all sums pass in the open;",
            "for comparison alone.",
        ],
        _ => return None,
    })
}

/// Why an algorithm has no `--dp`, to be put after a refusal; nothing where it has.
pub fn why_no_dp(method: &Method) -> String {
    let why = match (method.partition, method.name) {
        (Partition::Grid | Partition::RowsAndColumns, _) => "its ranks are one domain of trust, nothing leaves a party",
        (_, "dsanls-secure") => "it releases sketches of the data, and noise on them would have to drown the data",
        (_, "secure-hals") => "it works by exact sums, and noise on a Gram matrix makes its steps diverge",
        (_, "ppdnmf" | "admm") => {
            "its neighbours take turns until they agree, thousands of releases that no budget lasts for"
        }
        (_, "asyn-sd" | "asyn-ssd-v") => {
            "each party releases U at its own pace, and a budget has no common rounds; use syn-sd"
        }
        _ => "rows of U are released in every local step, which no budget lasts for; use syn-sd",
    };
    format!(": {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::registry;

    #[test]
    fn every_private_algorithm_says_what_it_does_not_promise() {
        for method in registry::ALL {
            assert_eq!(of(method).is_some(), method.partition.is_private(), "{}", method.name);
            let lines = of(method).into_iter().flatten();
            assert!(
                lines.clone().all(|l| l.len() <= 120),
                "{}: {:?}",
                method.name,
                lines.map(str::len).collect::<Vec<_>>()
            );
        }
    }
}

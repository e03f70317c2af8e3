//! The choice of the number of components, from the error on held-out entries and the stability of the components.

use crate::commands::sweep::stability::Stability;

/// The results for one k.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Point {
    pub k: usize,
    pub runs: usize,
    /// Mean over the runs of the root mean squared error on observed entries.
    pub rmse: f64,
    /// Mean over the runs of the same error on held-out entries, and its standard error.
    pub heldout: Option<(f64, f64)>,
    pub stability: Option<Stability>,
}

/// Components with at least this mean silhouette are called stable.
const STABLE: f64 = 0.75;
/// A stable k is preferred to an unstable better one if its error is at most this multiple of the smallest.
const NEAR: f64 = 1.05;

/// A recommendation and its reasons; `None` if nothing supports one.
pub fn choose(points: &[Point]) -> Option<(usize, Vec<String>)> {
    let stable = |p: &&Point| p.stability.is_some_and(|s| s.mean >= STABLE);
    let describe = |p: &Point| match p.stability {
        Some(s) => format!(
            "its components are {} (mean silhouette {:.2}, the least {:.2})",
            if s.mean >= STABLE { "stable" } else { "not stable" },
            s.mean,
            s.least
        ),
        None => "its stability is not known: it takes at least two runs".to_string(),
    };
    let known: Vec<(&Point, f64, f64)> = points.iter().filter_map(|p| p.heldout.map(|(e, se)| (p, e, se))).collect();
    let best = known.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    let Some((best, least, deviation)) = best else {
        let chosen = points.iter().filter(stable).max_by_key(|p| p.k)?;
        let reason = format!("k = {} is the largest whose components are stable; nothing was held out", chosen.k);
        return Some((chosen.k, vec![reason, describe(chosen)]));
    };
    let mut reasons = vec![format!("the error on held-out entries is least at k = {}: {least:.6}", best.k)];
    let (simplest, error, _) = known.iter().copied().filter(|p| p.1 <= least + deviation).min_by_key(|p| p.0.k)?;
    if simplest.k != best.k {
        reasons.push(format!(
            "k = {} is the smallest within one standard error of it ({error:.6} <= {least:.6} + {deviation:.6})",
            simplest.k
        ));
    }
    reasons.push(format!("k = {}: {}", simplest.k, describe(simplest)));
    let mut chosen = simplest;
    if !stable(&simplest) {
        let near = known.iter().filter(|p| p.0.k < simplest.k && p.1 <= NEAR * least && stable(&p.0));
        if let Some(other) = near.max_by_key(|p| p.0.k) {
            chosen = other.0;
            reasons.push(format!("k = {} is nearly as good ({:.6}), and {}", chosen.k, other.1, describe(chosen)));
        }
    }
    let last = points.iter().map(|p| p.k).max();
    if points.len() > 1 && Some(best.k) == last {
        reasons.push("the least error is at the largest k that was tried: try larger ones too".to_string());
    }
    Some((chosen.k, reasons))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(k: usize, heldout: Option<(f64, f64)>, mean: f64) -> Point {
        let stability = Some(Stability { mean, least: mean - 0.1, cosine: mean });
        Point { k, runs: 5, rmse: 1.0 / k as f64, heldout, stability }
    }

    #[test]
    fn the_simplest_good_k_unless_a_stable_one_is_near() {
        let errors = |list: &[(usize, f64, f64)]| -> Vec<Point> {
            list.iter().map(|&(k, error, mean)| point(k, Some((error, 0.02)), mean)).collect()
        };
        let chosen = |points: &[Point]| choose(points).unwrap();
        assert_eq!(chosen(&errors(&[(2, 2.0, 1.0), (4, 1.01, 0.9), (6, 1.0, 0.5), (8, 1.5, 0.2)])).0, 4);
        let (k, reasons) = chosen(&errors(&[(2, 2.0, 1.0), (3, 1.04, 0.9), (4, 1.0, 0.5), (5, 1.3, 0.2)]));
        assert!(k == 3 && reasons.iter().any(|r| r.contains("k = 4: its components are not stable")), "{reasons:?}");
        let (k, reasons) = chosen(&errors(&[(2, 2.0, 0.3), (3, 1.0, 0.3)]));
        assert!(k == 3 && reasons.iter().any(|r| r.contains("larger ones")), "{reasons:?}");
        assert_eq!(chosen(&[point(2, None, 0.9), point(3, None, 0.8), point(4, None, 0.4)]).0, 3);
        assert_eq!(choose(&[]), None);
    }
}

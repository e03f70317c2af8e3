//! Nearest components: each row is aligned to the mean of its nearest rows, independently of the other rows. A baseline
//! that shows why alignments should be one-to-one: several rows may choose the same.

/// Number of neighbours κ of a row.
const NEIGHBOURS: usize = 3;

/// plan (k × k) ← 1/κ for the κ smallest costs of each row. `order` has length k.
pub fn solve(cost: &[f64], order: &mut [usize], plan: &mut [f64]) {
    let k = order.len();
    let count = NEIGHBOURS.min(k);
    plan.fill(0.0);
    for (cost, plan) in cost.chunks_exact(k).zip(plan.chunks_exact_mut(k)) {
        order.iter_mut().enumerate().for_each(|(s, o)| *o = s);
        order.sort_unstable_by(|&a, &b| cost[a].total_cmp(&cost[b]).then(a.cmp(&b)));
        order[..count].iter().for_each(|&s| plan[s] = 1.0 / count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_share_the_weight() {
        let mut plan = [0.0; 16];
        solve(
            &[0.0, 5.0, 2.0, 1.0, 0.0, 5.0, 2.0, 1.0, 9.0, 8.0, 7.0, 6.0, 1.0, 1.0, 1.0, 1.0],
            &mut [0; 4],
            &mut plan,
        );
        let third = 1.0 / 3.0;
        let expected = [third, 0.0, third, third, third, 0.0, third, third, 0.0, third, third, third];
        assert_eq!(plan[..12], expected);
        assert_eq!(plan[12..], [third, third, third, 0.0]);
    }
}

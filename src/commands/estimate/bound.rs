//! A lower bound on the communication of any algorithm for a product, to compare with the grid's.

use fednmf_methods::cost::{Cost, Pattern, Workload};

/// Words that the busiest of `ranks` ranks must receive or send in the product of a dense m × n matrix and an n × k factor,
/// each of which, and the result, is spread over the ranks without copies: theorem 1 of Al Daas, Ballard, Grigori, Kumar
/// and Rouse, *Tight Memory-Independent Parallel Matrix Multiplication Communication Lower Bounds* (2022).
pub fn least_words(m: usize, n: usize, k: usize, ranks: usize) -> f64 {
    let mut sides = [m as f64, n as f64, k as f64];
    sides.sort_by(f64::total_cmp);
    let [short, middle, long] = sides;
    let p = ranks as f64;
    let owned = (long * middle + long * short + middle * short) / p;
    let touched = if p <= long / middle {
        (long * middle + long * short) / p + middle * short
    } else if p <= long * middle / (short * short) {
        2.0 * (long * middle * short * short / p).sqrt() + long * middle / p
    } else {
        3.0 * (long * middle * short / p).powf(2.0 / 3.0)
    };
    (touched - owned).max(0.0)
}

/// The words that a rank receives in the two products of an iteration on a grid, and the lower bound for any algorithm.
/// `None` without a grid, on one rank, or for a sparse matrix, for which the bound does not hold.
pub fn words_of_products(cost: &Cost, workload: &Workload, ranks: usize) -> Option<[f64; 2]> {
    cost.grid.filter(|_| !workload.sparse && ranks > 1)?;
    let of_products = cost.messages.iter().filter(|m| matches!(m.pattern, Pattern::AllGather | Pattern::ReduceScatter));
    let words = of_products.map(|m| (m.group - 1) as f64 / m.group as f64 * m.vector / workload.word as f64).sum();
    Some([words, 2.0 * least_words(workload.m, workload.n, workload.k, ranks)])
}

#[cfg(test)]
mod tests {
    use fednmf_methods::distributed::hals::Hals;
    use fednmf_methods::method::ConfiguredMethod as _;

    use super::*;

    /// The words of `hals` on its own grid, over the bound.
    fn ratio(m: usize, n: usize, k: usize, ranks: usize) -> f64 {
        let workload =
            Workload { m, n, stored: (m * n) as f64, sparse: false, k, parties: None, word: 8, traffic: None };
        let cost = Hals::default().cost(&workload, ranks).unwrap().unwrap();
        let [words, least] = words_of_products(&cost, &workload, ranks).unwrap();
        words / least
    }

    #[test]
    fn the_grid_communicates_the_least_that_is_possible_where_it_can_have_the_shape_of_the_matrix() {
        // Long matrices: a grid of one column.
        for ranks in [2, 7, 16] {
            assert!((ratio(160_000, 10_000, 10, ranks) - 1.0).abs() < 1e-9, "{ranks}");
        }
        // A grid with the matrix's proportions.
        for (m, n, ranks) in [(40_000, 10_000, 16), (10_000, 10_000, 64), (10_000, 40_000, 4096)] {
            assert!((ratio(m, n, 10, ranks) - 1.0).abs() < 1e-9, "{m} x {n} on {ranks}");
        }
        // Proportions off by two at most, where the number of ranks is a power of two: (√2 + 1/√2) / 2.
        for ranks in [32, 128, 2048] {
            let above = ratio(20_000, 20_000, 10, ranks);
            assert!((1.0..1.08).contains(&above), "{ranks}: {above}");
        }
    }

    #[test]
    fn the_bound_is_that_of_the_paper_in_its_three_cases() {
        assert_eq!(least_words(1000, 100, 10, 1), 0.0);
        assert_eq!(least_words(1000, 100, 10, 5), 100.0 * 10.0 * (1.0 - 1.0 / 5.0));
        let two = 2.0 * (1000.0f64 * 100.0 * 100.0 / 40.0).sqrt() - 10.0 * 1100.0 / 40.0;
        assert!((least_words(1000, 100, 10, 40) - two).abs() < 1e-9);
        let p = 8000.0f64;
        let three = 3.0 * (1e6 / p).powf(2.0 / 3.0) - (1e5 + 1e4 + 1e3) / p;
        assert!((least_words(1000, 100, 10, 8000) - three).abs() < 1e-9);
    }
}

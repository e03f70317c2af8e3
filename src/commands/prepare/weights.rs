//! Preparations of a numeric matrix: tf-idf weights, and ones above a quantile of each column.

use fednmf_base::error::Result;

use super::matrix::Prepared;
use super::rules::{Rules, of_columns};

/// x_ij ← x_ij (ln((1 + m)/(1 + df_j)) + 1), where df_j is the number of rows with a nonzero in column j; then every row is
/// divided by its norm, as in scikit-learn's `TfidfTransformer`.
///
/// # Errors
/// If the rules are of another kind, or for another number of columns.
pub fn tf_idf(matrix: &mut Prepared, rules: &Rules) -> Result<()> {
    let Rules::TfIdf { documents, frequencies, columns } = rules else { return Err(rules.another_kind("tf-idf")) };
    let frequencies = of_columns(frequencies, columns.as_deref(), matrix)?;
    let weight = |df: &usize| ((1.0 + *documents as f64) / (1.0 + *df as f64)).ln() + 1.0;
    let weights: Vec<f64> = frequencies.iter().map(weight).collect();
    for row in &mut matrix.rows {
        row.iter_mut().for_each(|(j, x)| *x *= weights[*j]);
        let norm = row.iter().map(|(_, x)| x * x).sum::<f64>().sqrt();
        if norm > 0.0 {
            row.iter_mut().for_each(|(_, x)| *x /= norm);
        }
    }
    Ok(())
}

/// The q-quantile of each column, zeros included.
pub fn quantiles(matrix: &Prepared, q: f64) -> Rules {
    let mut columns = vec![Vec::new(); matrix.cols];
    matrix.rows.iter().flatten().for_each(|&(j, x)| columns[j].push(x));
    let threshold = |mut column: Vec<f64>| {
        column.sort_unstable_by(f64::total_cmp);
        quantile_of(&column, matrix.rows.len(), q)
    };
    let thresholds = columns.into_iter().map(threshold).collect();
    Rules::Quantile { thresholds, columns: matrix.column_names.clone() }
}

/// x_ij ← 1 where x_ij is above the quantile of its column, and 0 elsewhere.
///
/// # Errors
/// If the rules are of another kind, or for another number of columns.
pub fn above_quantiles(matrix: &mut Prepared, rules: &Rules) -> Result<()> {
    let Rules::Quantile { thresholds, columns } = rules else { return Err(rules.another_kind("quantile")) };
    let thresholds = of_columns(thresholds, columns.as_deref(), matrix)?;
    // Zeros are not stored, and may be above a negative threshold.
    let zeros_pass: Vec<usize> = (0..matrix.cols).filter(|j| thresholds[*j] < 0.0).collect();
    for row in &mut matrix.rows {
        let is_zero = |j: &usize| row.binary_search_by_key(j, |(j, _)| *j).is_err();
        let zeros: Vec<(usize, f64)> = zeros_pass.iter().copied().filter(is_zero).map(|j| (j, 0.0)).collect();
        row.retain(|&(j, x)| x > thresholds[j]);
        row.extend(zeros);
        row.sort_unstable_by_key(|(j, _)| *j);
        row.iter_mut().for_each(|(_, x)| *x = 1.0);
    }
    Ok(())
}

/// The q-quantile of `count` numbers, of which at least the nonzeros are given, ascending. Linear interpolation between two
/// of them, bit for bit as in NumPy.
pub fn quantile_of(given: &[f64], count: usize, q: f64) -> f64 {
    let (negative, zeros) = (given.partition_point(|x| *x < 0.0), count - given.len());
    let at = |i: usize| match i.checked_sub(negative) {
        None => given[i],
        Some(i) if i < zeros => 0.0,
        Some(i) => given.get(negative + i - zeros).copied().unwrap_or(0.0),
    };
    let place = q * count.saturating_sub(1) as f64;
    let (place, share) = (place.floor() as usize, place.fract());
    let (below, above) = (at(place), at(place + 1));
    // If both neighbours are equal, the result is that number.
    if share == 0.0 || below == above {
        below
    } else {
        let step = above - below;
        let between = if share < 0.5 { below + step * share } else { above - step * (1.0 - share) };
        // The step between large numbers may overflow.
        between.clamp(below, above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: &[&[f64]]) -> Prepared {
        let nonzeros = |row: &&[f64]| row.iter().copied().enumerate().filter(|(_, x)| *x != 0.0).collect();
        Prepared { rows: rows.iter().map(nonzeros).collect(), cols: rows[0].len(), ..Prepared::default() }
    }

    fn ones_above(matrix: &mut Prepared, q: f64) -> Rules {
        let rules = quantiles(matrix, q);
        above_quantiles(matrix, &rules).unwrap();
        rules
    }

    /// The rules of a matrix of one owner.
    fn frequencies(matrix: &Prepared) -> Rules {
        let frequencies = matrix.carriers().into_iter().map(|count| count as usize).collect();
        Rules::TfIdf { documents: matrix.rows.len(), frequencies, columns: matrix.column_names.clone() }
    }

    /// The numbers are those of scikit-learn's `TfidfTransformer().fit_transform`.
    #[test]
    fn tf_idf_is_that_of_scikit_learn() {
        let mut made = matrix(&[&[3.0, 0.0, 1.0], &[2.0, 0.0, 0.0], &[3.0, 2.0, 0.0], &[0.0, 0.0, 0.0]]);
        let rules = frequencies(&made);
        tf_idf(&mut made, &rules).unwrap();
        assert_eq!(rules, Rules::TfIdf { documents: 4, frequencies: vec![3, 1, 1], columns: None });
        // idf: ln(5/4) + 1 and ln(5/2) + 1
        let (a, b): (f64, f64) = (1.223_143_551_314_21, 1.916_290_731_874_155);
        let norm = ((3.0 * a * 3.0 * a) + b * b).sqrt();
        let near = |(j, x): (usize, f64), (k, y): (usize, f64)| j == k && (x - y).abs() < 1e-12;
        assert!(near(made.rows[0][0], (0, 3.0 * a / norm)) && near(made.rows[0][1], (2, b / norm)));
        assert_eq!((&made.rows[1], made.rows[3].len()), (&vec![(0, 1.0)], 0));
        // A single document has the weights of the others' rules.
        let mut alone = matrix(&[&[3.0, 0.0, 1.0]]);
        tf_idf(&mut alone, &rules).unwrap();
        assert_eq!(alone.rows[0], made.rows[0]);
        assert!(tf_idf(&mut matrix(&[&[1.0]]), &rules).unwrap_err().message.contains("3 columns"));
    }

    #[test]
    fn rules_follow_the_names_of_columns() {
        let named = |names: [&str; 2], row: &[f64]| Prepared {
            column_names: Some(names.map(String::from).to_vec()),
            ..matrix(&[row, &[1.0, 0.0]])
        };
        let rules = frequencies(&named(["a", "b"], &[1.0, 1.0]));
        let mut turned = named(["b", "a"], &[1.0, 1.0]);
        tf_idf(&mut turned, &rules).unwrap();
        // a is in both documents, b in only one, whatever their order.
        assert!(turned.rows[0][0].1 > turned.rows[0][1].1, "{:?}", turned.rows);
        let other = tf_idf(&mut named(["b", "c"], &[1.0, 1.0]), &rules).unwrap_err();
        assert!(other.message.contains("column 1 of the matrix is c"), "{other}");
    }

    #[test]
    fn negative_entries_have_quantiles_too() {
        let mut made = matrix(&[&[-3.0, 0.0], &[-1.0, -2.0], &[0.0, 4.0], &[2.0, -8.0]]);
        let rules = ones_above(&mut made, 0.25);
        // numpy.quantile(column, 0.25)
        assert_eq!(rules, Rules::Quantile { thresholds: vec![-1.5, -3.5], columns: None });
        let ones = |columns: &[usize]| columns.iter().map(|j| (*j, 1.0)).collect::<Vec<_>>();
        assert_eq!(made.rows, [ones(&[1]), ones(&[0, 1]), ones(&[0, 1]), ones(&[0])]);
    }

    #[test]
    fn quantiles_are_those_of_each_column() {
        let mut made = matrix(&[&[1.0, 5.0, 7.0], &[2.0, 5.0, 0.0], &[3.0, 1.0, 0.0], &[4.0, 0.0, 0.0]]);
        let rules = ones_above(&mut made, 0.5);
        // numpy.quantile(column, 0.5)
        assert_eq!(rules, Rules::Quantile { thresholds: vec![2.5, 3.0, 0.0], columns: None });
        assert_eq!(made.rows, [vec![(1, 1.0), (2, 1.0)], vec![(1, 1.0)], vec![(0, 1.0)], vec![(0, 1.0)]]);
        let mut tied = matrix(&[&[5.0], &[5.0], &[1.0], &[0.0]]);
        let none = ones_above(&mut tied, 0.75);
        assert_eq!((&none, tied.rows[0].len()), (&Rules::Quantile { thresholds: vec![5.0], columns: None }, 0));
        // A larger entry of other data is above it.
        let mut other = matrix(&[&[9.0], &[5.0]]);
        above_quantiles(&mut other, &none).unwrap();
        assert_eq!(other.rows, [vec![(0, 1.0)], vec![]]);
        let wrong = above_quantiles(&mut tied, &Rules::OneHot { columns: Vec::new(), index: None }).unwrap_err();
        assert!(wrong.message.contains("one-hot"), "{wrong}");
    }
}

//! Preparations of a numeric matrix: tf-idf weights, and ones above a quantile of each column.

use fednmf_base::error::Result;

use super::matrix::{Matrix, Row, Transform};
use super::rules::{Rules, of_columns};

/// x_ij ← x_ij (ln((1 + m)/(1 + df_j)) + 1), where df_j is the number of rows with a nonzero in column j; then every row is
/// divided by its norm, as in scikit-learn's `TfidfTransformer`.
///
/// # Errors
/// If the rules are of another kind, or for another number of columns.
pub fn tf_idf(matrix: &Matrix, rules: &Rules) -> Result<Transform<'static>> {
    let Rules::TfIdf { documents, frequencies, columns } = rules else { return Err(rules.another_kind("tf-idf")) };
    let frequencies = of_columns(frequencies, columns.as_deref(), matrix)?;
    let weight = |df: &usize| ((1.0 + *documents as f64) / (1.0 + *df as f64)).ln() + 1.0;
    let weights: Vec<f64> = frequencies.iter().map(weight).collect();
    let of_row = move |row: &mut Row| {
        row.iter_mut().for_each(|(j, x)| *x *= weights[*j]);
        let norm = row.iter().map(|(_, x)| x * x).sum::<f64>().sqrt();
        if norm > 0.0 {
            row.iter_mut().for_each(|(_, x)| *x /= norm);
        }
    };
    Ok(Transform { of_row: Box::new(of_row), ..Transform::none(matrix) })
}

/// The q-quantile of each column, zeros included.
///
/// # Errors
/// If the matrix cannot be read.
pub fn quantiles(matrix: &Matrix, q: f64) -> Result<Rules> {
    let mut columns = vec![Vec::new(); matrix.cols];
    matrix.each(|row| {
        row.iter().for_each(|&(j, x)| columns[j].push(x));
        Ok(())
    })?;
    let threshold = |mut column: Vec<f64>| {
        column.sort_unstable_by(f64::total_cmp);
        quantile_of(&column, matrix.rows, q)
    };
    let thresholds = columns.into_iter().map(threshold).collect();
    Ok(Rules::Quantile { thresholds, columns: matrix.column_names.clone() })
}

/// x_ij ← 1 where x_ij is above the quantile of its column, and 0 elsewhere.
///
/// # Errors
/// If the rules are of another kind, or for another number of columns.
pub fn above_quantiles(matrix: &Matrix, rules: &Rules) -> Result<Transform<'static>> {
    let Rules::Quantile { thresholds, columns } = rules else { return Err(rules.another_kind("quantile")) };
    let thresholds = of_columns(thresholds, columns.as_deref(), matrix)?;
    // Zeros are not stored, and may be above a negative threshold.
    let zeros_pass: Vec<usize> = (0..matrix.cols).filter(|j| thresholds[*j] < 0.0).collect();
    let of_row = move |row: &mut Row| {
        let is_zero = |j: &usize| row.binary_search_by_key(j, |(j, _)| *j).is_err();
        let zeros: Row = zeros_pass.iter().copied().filter(is_zero).map(|j| (j, 0.0)).collect();
        row.retain(|&(j, x)| x > thresholds[j]);
        row.extend(zeros);
        row.sort_unstable_by_key(|(j, _)| *j);
        row.iter_mut().for_each(|(_, x)| *x = 1.0);
    };
    Ok(Transform { of_row: Box::new(of_row), ..Transform::none(matrix) })
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

    fn matrix(rows: &[&[f64]]) -> Matrix {
        let nonzeros = |row: &&[f64]| row.iter().copied().enumerate().filter(|(_, x)| *x != 0.0).collect();
        Matrix::of_rows(rows.iter().map(nonzeros).collect(), rows[0].len())
    }

    fn ones_above(matrix: &Matrix, q: f64) -> (Vec<Row>, Rules) {
        let rules = quantiles(matrix, q).unwrap();
        (matrix.written(&above_quantiles(matrix, &rules).unwrap()), rules)
    }

    fn weighted(matrix: &Matrix, rules: &Rules) -> Result<Vec<Row>> {
        tf_idf(matrix, rules).map(|transform| matrix.written(&transform))
    }

    /// The rules of a matrix of one owner.
    fn frequencies(matrix: &Matrix) -> Rules {
        let frequencies = matrix.carriers().unwrap().into_iter().map(|count| count as usize).collect();
        Rules::TfIdf { documents: matrix.rows, frequencies, columns: matrix.column_names.clone() }
    }

    /// The numbers are those of scikit-learn's `TfidfTransformer().fit_transform`.
    #[test]
    fn tf_idf_is_that_of_scikit_learn() {
        let counts = matrix(&[&[3.0, 0.0, 1.0], &[2.0, 0.0, 0.0], &[3.0, 2.0, 0.0], &[0.0, 0.0, 0.0]]);
        let rules = frequencies(&counts);
        let made = weighted(&counts, &rules).unwrap();
        assert_eq!(rules, Rules::TfIdf { documents: 4, frequencies: vec![3, 1, 1], columns: None });
        // idf: ln(5/4) + 1 and ln(5/2) + 1
        let (a, b): (f64, f64) = (1.223_143_551_314_21, 1.916_290_731_874_155);
        let norm = ((3.0 * a * 3.0 * a) + b * b).sqrt();
        let near = |(j, x): (usize, f64), (k, y): (usize, f64)| j == k && (x - y).abs() < 1e-12;
        assert!(near(made[0][0], (0, 3.0 * a / norm)) && near(made[0][1], (2, b / norm)));
        assert_eq!((&made[1], made[3].len()), (&vec![(0, 1.0)], 0));
        // A single document has the weights of the others' rules.
        assert_eq!(weighted(&matrix(&[&[3.0, 0.0, 1.0]]), &rules).unwrap()[0], made[0]);
        assert!(weighted(&matrix(&[&[1.0]]), &rules).unwrap_err().message.contains("3 columns"));
    }

    #[test]
    fn rules_follow_the_names_of_columns() {
        let named = |names: [&str; 2], row: &[f64]| {
            matrix(&[row, &[1.0, 0.0]]).named(None, Some(names.map(String::from).to_vec()))
        };
        let rules = frequencies(&named(["a", "b"], &[1.0, 1.0]));
        let turned = weighted(&named(["b", "a"], &[1.0, 1.0]), &rules).unwrap();
        // a is in both documents, b in only one, whatever their order.
        assert!(turned[0][0].1 > turned[0][1].1, "{turned:?}");
        let other = weighted(&named(["b", "c"], &[1.0, 1.0]), &rules).unwrap_err();
        assert!(other.message.contains("column 1 of the matrix is c"), "{other}");
    }

    #[test]
    fn negative_entries_have_quantiles_too() {
        let (made, rules) = ones_above(&matrix(&[&[-3.0, 0.0], &[-1.0, -2.0], &[0.0, 4.0], &[2.0, -8.0]]), 0.25);
        // numpy.quantile(column, 0.25)
        assert_eq!(rules, Rules::Quantile { thresholds: vec![-1.5, -3.5], columns: None });
        let ones = |columns: &[usize]| columns.iter().map(|j| (*j, 1.0)).collect::<Vec<_>>();
        assert_eq!(made, [ones(&[1]), ones(&[0, 1]), ones(&[0, 1]), ones(&[0])]);
    }

    #[test]
    fn quantiles_are_those_of_each_column() {
        let all = matrix(&[&[1.0, 5.0, 7.0], &[2.0, 5.0, 0.0], &[3.0, 1.0, 0.0], &[4.0, 0.0, 0.0]]);
        let (made, rules) = ones_above(&all, 0.5);
        // numpy.quantile(column, 0.5)
        assert_eq!(rules, Rules::Quantile { thresholds: vec![2.5, 3.0, 0.0], columns: None });
        assert_eq!(made, [vec![(1, 1.0), (2, 1.0)], vec![(1, 1.0)], vec![(0, 1.0)], vec![(0, 1.0)]]);
        let tied = matrix(&[&[5.0], &[5.0], &[1.0], &[0.0]]);
        let (made, none) = ones_above(&tied, 0.75);
        assert_eq!((&none, made[0].len()), (&Rules::Quantile { thresholds: vec![5.0], columns: None }, 0));
        // A larger entry of other data is above it.
        let other = matrix(&[&[9.0], &[5.0]]);
        assert_eq!(other.written(&above_quantiles(&other, &none).unwrap()), [vec![(0, 1.0)], vec![]]);
        let wrong = above_quantiles(&tied, &Rules::OneHot { columns: Vec::new(), index: None }).err().unwrap();
        assert!(wrong.message.contains("one-hot"), "{wrong}");
    }
}

//! The exact quantile of a distributed matrix, in four passes over the stored values.

use fednmf_base::error::{Error, Result};

/// Bits decided per pass.
const DIGIT: u32 = 16;

/// The smallest positive number v of the m × n matrix such that at most a fraction 1 − q of its entries, zeros included,
/// are v or larger. `values` yields this rank's values, `sum` adds counts up over the ranks.
///
/// # Errors
/// If there is no such number, because a larger fraction of the entries equals the maximum.
pub fn upper_quantile<I: Iterator<Item = f64>>(
    values: impl Fn() -> I,
    mut sum: impl FnMut(&mut [u64]),
    q: f64,
    (m, n): (usize, usize),
) -> Result<f64> {
    // The factor makes 5 % of 100 equal to 5, although 1 − 0.95 is inexact in floating point.
    let most = ((1.0 - q) * (m as f64 * n as f64) * (1.0 + 1e-12)).floor() as u64;
    // Positive numbers sort like their bits. The search finds, digit by digit, the largest number that too many entries
    // reach; the result is the next larger number.
    let (mut prefix, mut above) = (0u64, 0u64);
    for shift in (0..64 / DIGIT).rev().map(|digit| digit * DIGIT) {
        let mut counts = vec![0u64; 1 << DIGIT];
        for v in values() {
            let bits = v.to_bits();
            if v > 0.0 && (shift + DIGIT == 64 || bits >> (shift + DIGIT) == prefix) {
                counts[(bits >> shift) as usize & ((1 << DIGIT) - 1)] += 1;
            }
        }
        sum(&mut counts);
        let mut reach = above;
        let found = (0..counts.len()).rev().find(|&digit| {
            reach += counts[digit];
            reach > most
        });
        // No number is reached by too many entries: every positive entry passes.
        let Some(digit) = found else { return Ok(f64::MIN_POSITIVE) };
        above = reach - counts[digit];
        prefix = prefix << DIGIT | digit as u64;
    }
    if most == 0 {
        return Err(Error::input(format!(
            "--binarize q{q}: {:.4} % of the entries are less than one; give a lower quantile, or a threshold",
            100.0 * (1.0 - q),
        )));
    }
    if above == 0 {
        return Err(Error::input(format!(
            "--binarize q{q}: more than {most} entries are equal to the largest, {}, so there is no upper {:.4} %; give \
             a threshold",
            f64::from_bits(prefix),
            100.0 * (1.0 - q),
        )));
    }
    Ok(f64::from_bits(prefix + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], q: f64) -> Result<f64> {
        upper_quantile(|| values.iter().copied(), |_| (), q, (1, values.len()))
    }

    #[test]
    fn as_many_entries_pass_as_after_sorting() {
        let values: Vec<f64> = (0..1000u64).map(|i| ((i * 7919 % 1000) as f64 - 300.0).max(0.0) * 1e-3).collect();
        let mut sorted = values.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        for share in [1, 50, 333, 699] {
            let t = of(&values, 1.0 - share as f64 / 1000.0).unwrap();
            assert_eq!(values.iter().filter(|&&x| x >= t).count(), share);
            assert!(sorted[share - 1] >= t && sorted[share] < t);
        }
        // Three in ten are zero: never more than the positive ones.
        let t = of(&values, 0.1).unwrap();
        assert_eq!(values.iter().filter(|&&x| x >= t).count(), 699);
    }

    #[test]
    fn ties_pass_together_or_not_at_all() {
        let values = [3.0, 3.0, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0];
        for (q, passed) in [(0.8, 2), (0.7, 2), (0.5, 5), (0.4, 6)] {
            let t = of(&values, q).unwrap();
            assert_eq!(values.iter().filter(|&&x| x >= t).count(), passed, "{q}");
        }
        assert!(of(&values, 0.9).unwrap_err().message.contains("equal to the largest, 3"));
    }
}

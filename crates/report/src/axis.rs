//! Scaling of axes, and their tick labels.

/// An axis over the numbers from `low` to `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// A linear axis that covers the finite values, and zero if `zero`. `None` if no value is finite.
    pub fn linear(values: impl Iterator<Item = f64>, zero: bool) -> Option<Axis> {
        let (low, high) = extent(values)?;
        let low = if zero { low.min(0.0) } else { low };
        let pad = if high > low { 0.0 } else { high.abs().max(1.0) * 0.5 };
        Some(Axis { low: if zero && low >= 0.0 { low } else { low - pad }, high: high + pad, log: false })
    }

    /// An axis for errors: logarithmic if the positive numbers span more than a factor of ten.
    pub fn of_errors(values: impl Iterator<Item = f64> + Clone) -> Option<Axis> {
        let (low, high) = extent(values.clone().filter(|x| *x > 0.0)).or_else(|| extent(values.clone()))?;
        if low > 0.0 && high > 10.0 * low {
            return Some(Axis { low: low / 1.1, high: high * 1.1, log: true });
        }
        Some(Axis::linear(values, false)?.padded())
    }

    /// A linear axis with a margin on both sides.
    pub fn padded(self) -> Axis {
        let pad = 0.05 * (self.high - self.low);
        Axis { low: self.low - pad, high: self.high + pad, ..self }
    }

    /// The position of x on the axis: 0 at the lower end, 1 at the upper end. `None` if it is not finite.
    pub fn place(&self, x: f64) -> Option<f64> {
        let place = if self.log {
            (x / self.low).ln() / (self.high / self.low).ln()
        } else {
            (x - self.low) / (self.high - self.low)
        };
        place.is_finite().then_some(place)
    }

    /// Round numbers on the axis, about `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let steps: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)));
            return all.filter(|x| (self.low..=self.high).contains(x)).collect();
        }
        let rough = (self.high - self.low) / wanted.max(1) as f64;
        let unit = 10f64.powf(rough.log10().floor());
        // A step that is slightly smaller gives one or two numbers more, not far fewer.
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * unit).into_iter().find(|s| *s >= 0.9 * rough).unwrap_or(rough);
        let first = (self.low / step).ceil();
        let count = ((self.high / step).floor() - first).clamp(-1.0, 100.0) as i64;
        // Multiples of the step instead of a running sum, which would accumulate rounding errors.
        (0..=count).map(|i| (first + i as f64) * step).collect()
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let ends = values
        .filter(|x| x.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    (ends.0 <= ends.1).then_some(ends)
}

/// A number in few characters: 0.25, 1200, 3.5e6.
pub fn number(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 {
        "0".into()
    } else if (1e-3..1e5).contains(&size) {
        let digits = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
        let text = format!("{x:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    } else {
        let text = format!("{x:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Ticks with their labels: short numbers, unless these are not the ticks; then as many decimals as the ticks differ
/// in.
pub fn labelled(ticks: Vec<f64>) -> Vec<(f64, String)> {
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let is_exact = |x: f64| number(x).parse().is_ok_and(|shown: f64| (shown - x).abs() <= 0.01 * step);
    let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
    let short = ticks.iter().all(|x| is_exact(*x));
    let label = |x: f64| if short { number(x) } else { format!("{x:.decimals$}") };
    ticks.into_iter().map(|x| (x, label(x))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let ticks = |values: [f64; 2]| Axis::linear(values.into_iter(), false).unwrap().ticks(5);
        assert_eq!(ticks([0.0, 100.0]), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let shown: Vec<String> = ticks([0.3, 0.42]).into_iter().map(number).collect();
        assert_eq!(shown, ["0.3", "0.35", "0.4"]);
        let log = Axis::of_errors([1.0, 1e-6].into_iter()).unwrap();
        assert_eq!(log.ticks(5).len(), 7);
        assert!((log.place(1e-3).unwrap() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn no_numbers_no_axis_and_one_number_has_room() {
        assert_eq!(Axis::linear([f64::NAN].into_iter(), true), None);
        assert_eq!(Axis::of_errors([].into_iter()), None);
        let one = Axis::linear([3.0].into_iter(), false).unwrap();
        assert!((one.place(3.0).unwrap() - 0.5).abs() < 1e-9 && !one.ticks(4).is_empty());
        assert!(Axis::linear([0.0].into_iter(), true).unwrap().place(0.0).is_some());
        assert!(Axis::of_errors([0.0, 0.0].into_iter()).is_some());
    }

    #[test]
    fn labels_are_the_ticks() {
        let labels = |values: [f64; 2], wanted: usize| -> Vec<String> {
            let ticks = Axis::of_errors(values.into_iter()).unwrap().ticks(wanted);
            labelled(ticks).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels([0.90555, 0.9057], 4), ["0.90555", "0.90560", "0.90565", "0.90570"]);
        assert_eq!(labels([123_400.0, 123_500.0], 2), ["123400", "123450", "123500"]);
        assert_eq!(labels([0.3, 0.42], 5), ["0.3", "0.35", "0.4"]);
        assert!(labels([3.0, 3.0], 1).is_empty());
    }

    #[test]
    fn numbers_are_short() {
        for (x, text) in
            [(0.0, "0"), (0.25, "0.25"), (1200.0, "1200"), (3.5e6, "3.5e6"), (-2e-9, "-2e-9"), (1e5, "1e5")]
        {
            assert_eq!(number(x), text);
        }
    }
}

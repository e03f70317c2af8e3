//! Charts: lines over an axis, stacked bars, plain bars.

use crate::axis::{Axis, number};
use crate::svg::{Anchor, COLOURS, INK, PALE, Svg, short};

/// A line of a chart.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 860.0;
const TOP: f64 = 14.0;
/// The least room for the labels of the vertical axis and its title.
const LEFT: f64 = 64.0;
/// Room for the names next to a chart.
const NAMES: f64 = 210.0;
/// Maximum number of names in a legend.
const NAMED: usize = 18;

/// Lines over a horizontal axis from zero; `None` if there is nothing to draw. `values` makes the vertical axis.
pub fn lines(
    title: &str,
    (across, up): (&str, &str),
    series: &[Series],
    values: impl Fn(&mut dyn Iterator<Item = f64>) -> Option<Axis>,
) -> Option<String> {
    let all = || series.iter().flat_map(|s| &s.points);
    let x = Axis::linear(all().map(|p| p.0), true)?;
    let y = values(&mut all().map(|p| p.1))?;
    let (height, bottom) = (330.0, 46.0);
    let left = left_of(&y.ticks(6));
    let (right, floor) = (WIDTH - NAMES, height - bottom);
    let at = |p: &(f64, f64)| {
        let (x, y) = (x.place(p.0)?, y.place(p.1)?);
        Some((left + x * (right - left), floor - y * (floor - TOP)))
    };
    let mut svg = Svg::new(WIDTH, height);
    for tick in y.ticks(6) {
        let Some(place) = y.place(tick) else { continue };
        let h = floor - place * (floor - TOP);
        svg.line((left, h), (right, h), PALE);
        svg.text((left - 6.0, h + 4.0), Anchor::End, 12.0, &number(tick));
    }
    for tick in x.ticks(8) {
        let Some(place) = x.place(tick) else { continue };
        let w = left + place * (right - left);
        svg.line((w, floor), (w, floor + 5.0), INK);
        svg.text((w, floor + 19.0), Anchor::Middle, 12.0, &number(tick));
    }
    svg.line((left, floor), (right, floor), INK);
    svg.line((left, TOP), (left, floor), INK);
    svg.text(((left + right) / 2.0, height - 8.0), Anchor::Middle, 13.0, across);
    svg.upright((14.0, (TOP + floor) / 2.0), 13.0, up);
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let points: Vec<((f64, f64), (f64, f64))> = s.points.iter().filter_map(|p| Some((at(p)?, *p))).collect();
        svg.path(&points.iter().map(|p| p.0).collect::<Vec<_>>(), colour);
        // More dots would merge into a band; the line then suffices.
        if points.len() <= 200 {
            for (place, (a, b)) in points {
                svg.dot(place, 2.6, colour, &format!("{}: {across} {}, {up} {}", s.name, number(a), number(b)));
            }
        }
    }
    legend(&mut svg, right + 16.0, series.iter().map(|s| s.name.as_str()));
    Some(svg.finish(title))
}

/// The left end of an axis whose labels are those of `ticks`, with room for them and for its title.
fn left_of(ticks: &[f64]) -> f64 {
    const LETTER: f64 = 7.0;
    let longest = ticks.iter().map(|tick| number(*tick).chars().count()).max().unwrap_or(0);
    LEFT.max(32.0 + LETTER * longest as f64)
}

fn legend<'a>(svg: &mut Svg, left: f64, names: impl ExactSizeIterator<Item = &'a str>) {
    let more = names.len().saturating_sub(NAMED);
    for (i, name) in names.take(NAMED).enumerate() {
        let y = TOP + 10.0 + 16.0 * i as f64;
        svg.bar((left, y - 9.0), (12.0, 10.0), COLOURS[i % COLOURS.len()], "");
        svg.text((left + 18.0, y), Anchor::Start, 12.0, &short(name, 28));
    }
    if more > 0 {
        svg.text((left, TOP + 10.0 + 16.0 * NAMED as f64), Anchor::Start, 12.0, &format!("and {more} more"));
    }
}

/// Stacked bars, one below the other: `rows` has the name of each bar and the sizes of its parts.
pub fn stacked(title: &str, unit: &str, parts: &[String], rows: &[(String, Vec<f64>)]) -> Option<String> {
    let x = Axis::linear(rows.iter().map(|(_, sizes)| sizes.iter().sum::<f64>()), true)?;
    // The bars of hundreds of ranks are thin: they show the balance, and are not read one by one.
    let thick = (420.0 / rows.len() as f64).clamp(1.0, 20.0);
    let named = thick >= 11.0;
    let space = thick * rows.len() as f64;
    let height = TOP + space.max(16.0 * parts.len().min(NAMED + 1) as f64) + 50.0;
    let (left, right, floor) = (LEFT + 26.0, WIDTH - NAMES, TOP + space + 4.0);
    let mut svg = Svg::new(WIDTH, height);
    for tick in x.ticks(7) {
        let Some(place) = x.place(tick) else { continue };
        let w = left + place * (right - left);
        svg.line((w, TOP), (w, floor), PALE);
        svg.text((w, floor + 15.0), Anchor::Middle, 12.0, &number(tick));
    }
    for (i, (name, sizes)) in rows.iter().enumerate() {
        let y = TOP + thick * i as f64;
        let mut from = 0.0;
        for (j, size) in sizes.iter().enumerate().filter(|(_, s)| s.is_finite() && **s > 0.0) {
            let (Some(a), Some(b)) = (x.place(from), x.place(from + size)) else { continue };
            let corner = (left + a * (right - left), y);
            let note = format!("{name}, {}: {} {unit}", parts.get(j).map_or("", String::as_str), number(*size));
            let extent = ((b - a) * (right - left), thick * if named { 0.85 } else { 1.0 });
            svg.bar(corner, extent, COLOURS[j % COLOURS.len()], &note);
            from += size;
        }
        if named || i == 0 || i + 1 == rows.len() {
            svg.text((left - 6.0, y + (0.5 * thick + 4.0).max(9.0)), Anchor::End, 11.0, &short(name, 13));
        }
    }
    svg.text(((left + right) / 2.0, floor + 34.0), Anchor::Middle, 13.0, unit);
    legend(&mut svg, right + 16.0, parts.iter().map(String::as_str));
    Some(svg.finish(title))
}

/// A bar for each named amount, followed by the amount in words.
pub fn bars(title: &str, rows: &[(String, f64, String)]) -> Option<String> {
    let x = Axis::linear(rows.iter().map(|r| r.1), true)?;
    let (left, right, thick) = (270.0, WIDTH - 120.0, 20.0);
    let mut svg = Svg::new(WIDTH, 2.0 * TOP + thick * rows.len() as f64);
    for (i, (name, amount, words)) in rows.iter().enumerate() {
        let y = TOP + thick * i as f64;
        let width = x.place(*amount).unwrap_or(0.0) * (right - left);
        svg.bar((left, y), (width, 0.75 * thick), COLOURS[0], &format!("{name}: {words}"));
        svg.text((left - 8.0, y + 12.0), Anchor::End, 12.0, &short(name, 42));
        svg.text((left + width + 6.0, y + 12.0), Anchor::Start, 12.0, words);
    }
    Some(svg.finish(title))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(points: &[(f64, f64)]) -> Option<String> {
        let series = [Series { name: "<run>".into(), points: points.to_vec() }];
        lines("t", ("x", "y"), &series, |y| Axis::linear(y, true))
    }

    #[test]
    fn points_lie_where_their_numbers_say() {
        let svg = lines_of(&[(0.0, 0.0), (10.0, 4.0)]).unwrap();
        // The lower left and the upper right corner of the area.
        assert!(svg.contains(r#"points="64.0,284.0 650.0,14.0""#), "{svg}");
        // Labels of six letters end left of the axis and begin right of its title.
        let long = [Series { name: "run".into(), points: vec![(0.0, 0.5175), (1.0, 0.5185)] }];
        let far = lines("t", ("x", "y"), &long, |y| Axis::linear(y, false)).unwrap();
        assert!(far.contains("0.5175") && far.contains(r#"x="68.0""#), "{far}");
        assert!(svg.contains("&lt;run&gt;") && !svg.contains("<run>"));
        assert!(lines_of(&[]).is_none() && lines_of(&[(f64::NAN, 1.0)]).is_none());
        assert!(!lines_of(&[(0.0, 1.0), (1.0, f64::NAN)]).unwrap().contains("NaN"));
    }

    #[test]
    fn parts_of_a_bar_follow_each_other() {
        let rows = [("rank 0".to_string(), vec![1.0, 3.0]), ("rank 1".to_string(), vec![1.0, 1.0])];
        let svg = stacked("t", "s", &["a".into(), "b".into()], &rows).unwrap();
        // 560 pixels are four seconds.
        assert!(svg.contains(r#"x="90.0" y="14.0" width="140.00""#), "{svg}");
        assert!(svg.contains(r#"x="230.0" y="14.0" width="420.00""#), "{svg}");
        assert!(svg.contains("rank 1, b: 1 s"));
        assert!(bars("t", &[("x".into(), 5.0, "5 B".into())]).unwrap().contains("5 B"));
        assert!(bars("t", &[]).is_none());
    }
}

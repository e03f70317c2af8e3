//! Charts: lines over an axis, stacked bars, plain bars.

use crate::axis::{Axis, labelled, number};
use crate::svg::{Anchor, COLOURS, INK, PALE, Svg, short};

/// A line of a chart.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// The half lengths of the error bars of the points; empty without error bars.
    pub deviations: Vec<f64>,
}

/// A chart of lines.
pub struct Lines<'a> {
    pub title: &'a str,
    /// The labels of the axes.
    pub across: &'a str,
    pub up: &'a str,
    pub series: &'a [Series],
    /// Places on the horizontal axis to mark, with their labels.
    pub marks: &'a [(f64, String)],
    /// Whether the horizontal axis begins at zero.
    pub zero_across: bool,
    /// Whether the vertical axis is linear and includes zero, with a margin. Otherwise it is logarithmic where values span more than a factor
    /// of ten.
    pub zero_up: bool,
    /// Whether the numbers on the horizontal axis are whole.
    pub whole: bool,
}

const WIDTH: f64 = 860.0;
/// The width of a chart of few lines, which have their names above it: its text can still be read on a phone.
const NARROW: f64 = 480.0;
/// Maximum number of lines of a narrow chart.
const FEW: usize = 4;
/// The height of a name in a legend.
const LINE: f64 = 16.0;
const TOP: f64 = 14.0;
/// The least room for the labels of the vertical axis and its title.
const LEFT: f64 = 64.0;
/// Room for the names next to a chart.
const NAMES: f64 = 210.0;
/// Maximum number of names in a legend.
const NAMED: usize = 18;

impl Lines<'_> {
    /// The drawing; `None` if there is nothing to draw.
    pub fn draw(&self) -> Option<String> {
        let all = || self.series.iter().flat_map(|s| &s.points);
        let ends = |s: &Series| -> Vec<f64> {
            let bars = s.points.iter().zip(&s.deviations).flat_map(|((_, y), e)| [y - e, y + e]);
            s.points.iter().map(|p| p.1).chain(bars).collect()
        };
        let values: Vec<f64> = self.series.iter().flat_map(ends).collect();
        let x = Axis::linear(all().map(|p| p.0), self.zero_across)?;
        let x = if self.zero_across { x } else { x.padded() };
        let y = match self.zero_up {
            true => Axis::linear(values.into_iter(), true)?.padded(),
            false => Axis::of_errors(values.into_iter())?,
        };
        let (height, bottom) = (330.0, 46.0);
        let ticks = labelled(y.ticks(6));
        let left = left_of(&ticks);
        // The name of a single line is in the title of the page.
        let named = self.series.len() > 1;
        let narrow = self.series.len() <= FEW;
        let (width, right) = if narrow { (NARROW, NARROW - 20.0) } else { (WIDTH, WIDTH - NAMES) };
        // Marks have their labels above the chart, below the names.
        let names = if named && narrow { LINE * self.series.len() as f64 + 8.0 } else { 0.0 };
        let (top, floor) = (TOP + names + 18.0 * self.marks.len() as f64, height + names - bottom);
        let at = |p: &(f64, f64)| {
            let (x, y) = (x.place(p.0)?, y.place(p.1)?);
            Some((left + x * (right - left), floor - y * (floor - top)))
        };
        let mut svg = Svg::new(width, height + names);
        for (tick, label) in ticks {
            let Some(place) = y.place(tick) else { continue };
            let h = floor - place * (floor - top);
            svg.line((left, h), (right, h), PALE);
            svg.text((left - 6.0, h + 4.0), Anchor::End, 12.0, &label);
        }
        let across = x
            .ticks(if narrow { 5 } else { 8 })
            .into_iter()
            .filter(|tick| !self.whole || (tick - tick.round()).abs() < 1e-9);
        for (tick, label) in labelled(across.collect()) {
            let Some(place) = x.place(tick) else { continue };
            let w = left + place * (right - left);
            svg.line((w, floor), (w, floor + 5.0), INK);
            svg.text((w, floor + 19.0), Anchor::Middle, 12.0, &label);
        }
        svg.line((left, floor), (right, floor), INK);
        svg.line((left, top), (left, floor), INK);
        svg.text(((left + right) / 2.0, height + names - 8.0), Anchor::Middle, 13.0, self.across);
        svg.upright((14.0, (top + floor) / 2.0), 13.0, self.up);
        // Labels stand inwards of their lines, the outer ones above, so that no line crosses a label on its side.
        let outer_first = |(place, _): &(f64, &String)| if *place > 0.5 { 1.0 + (1.0 - place) } else { *place };
        let mut marks: Vec<(f64, &String)> =
            self.marks.iter().filter_map(|(at, label)| Some((x.place(*at)?, label))).collect();
        marks.sort_by(|a, b| outer_first(a).total_cmp(&outer_first(b)));
        for (i, (place, label)) in marks.into_iter().enumerate() {
            let (w, h) = (left + place * (right - left), TOP + names + 18.0 * i as f64);
            svg.mark(w, (h + 4.0, floor));
            // The text stays within the drawing.
            let anchor = if place > 0.5 { Anchor::End } else { Anchor::Start };
            svg.text((if place > 0.5 { w + 4.0 } else { w - 4.0 }, h), anchor, 12.0, label);
        }
        for (i, s) in self.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let points: Vec<((f64, f64), (f64, f64))> = s.points.iter().filter_map(|p| Some((at(p)?, *p))).collect();
            svg.path(&points.iter().map(|p| p.0).collect::<Vec<_>>(), i);
            for (point, deviation) in s.points.iter().zip(&s.deviations).filter(|(_, d)| **d > 0.0) {
                let end = |value: f64| at(&(point.0, value)).map(|(w, h)| (w, h.clamp(top, floor)));
                let low = end(point.1 - deviation).or_else(|| at(point).map(|(w, _)| (w, floor)));
                let (Some(low), Some(high)) = (low, end(point.1 + deviation)) else { continue };
                svg.line(low, high, colour);
                [low, high].iter().for_each(|(w, h)| svg.line((w - 4.0, *h), (w + 4.0, *h), colour));
            }
            // More dots would merge into a band; the line then suffices.
            if points.len() <= 200 {
                for (place, (a, b)) in points {
                    let note = format!("{}: {} {}, {} {}", s.name, self.across, number(a), self.up, number(b));
                    svg.dot(place, 2.6, colour, &note);
                }
            }
        }
        if named {
            let from = if narrow { left } else { right + 12.0 };
            let sample = |svg: &mut Svg, i: usize, y: f64| svg.path(&[(from, y), (from + 24.0, y)], i);
            legend(&mut svg, from + 30.0, self.series.iter().map(|s| s.name.as_str()), sample);
        }
        Some(svg.finish(self.title, &self.description()))
    }

    /// The first, last and smallest value of each line, in words.
    fn description(&self) -> String {
        let of = |s: &Series| {
            let known: Vec<&(f64, f64)> = s.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
            let (first, last) = (known.first()?, known.last()?);
            let least = known.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
            let at = |p: &(f64, f64)| format!("{} at {}", number(p.1), number(p.0));
            Some(format!("{}: from {} to {}; least {}.", s.name, at(first), at(last), at(least)))
        };
        let marks = self.marks.iter().map(|(_, label)| format!("Marked: {label}."));
        let lines: Vec<String> = self.series.iter().filter_map(of).chain(marks).collect();
        format!("{} over {}. {}", self.up, self.across, lines.join(" "))
    }
}

/// The left end of an axis with these ticks, with room for their labels and for its title.
fn left_of(ticks: &[(f64, String)]) -> f64 {
    const LETTER: f64 = 7.0;
    let longest = ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    LEFT.max(32.0 + LETTER * longest as f64)
}

/// Names one below the other, each behind the `sample` of its series, which is drawn at the middle of its line.
fn legend<'a>(
    svg: &mut Svg,
    left: f64,
    names: impl ExactSizeIterator<Item = &'a str>,
    sample: impl Fn(&mut Svg, usize, f64),
) {
    let more = names.len().saturating_sub(NAMED);
    for (i, name) in names.take(NAMED).enumerate() {
        let y = TOP + 10.0 + LINE * i as f64;
        sample(svg, i, y - 4.0);
        svg.text((left, y), Anchor::Start, 12.0, &short(name, 24));
    }
    if more > 0 {
        svg.text((left, TOP + 10.0 + LINE * NAMED as f64), Anchor::Start, 12.0, &format!("and {more} more"));
    }
}

/// Stacked bars, one below the other: `rows` has the name of each bar and the sizes of its parts.
pub fn stacked(title: &str, unit: &str, parts: &[String], rows: &[(String, Vec<f64>)]) -> Option<String> {
    let x = Axis::linear(rows.iter().map(|(_, sizes)| sizes.iter().sum::<f64>()), true)?;
    // The bars of hundreds of ranks are thin: they show the balance, and are not read one by one.
    let thick = (420.0 / rows.len() as f64).clamp(1.0, 20.0);
    let named = thick >= 11.0;
    let space = thick * rows.len() as f64;
    let height = TOP + (space + 50.0).max(LINE * (parts.len().min(NAMED + 1) as f64 + 1.0));
    let (left, right, floor) = (LEFT + 26.0, WIDTH - NAMES, TOP + space + 4.0);
    let mut svg = Svg::new(WIDTH, height);
    for (tick, label) in labelled(x.ticks(7)) {
        let Some(place) = x.place(tick) else { continue };
        let w = left + place * (right - left);
        svg.line((w, TOP), (w, floor), PALE);
        svg.text((w, floor + 15.0), Anchor::Middle, 12.0, &label);
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
    let sample = |svg: &mut Svg, j: usize, y: f64| {
        svg.bar((right + 16.0, y - 5.0), (12.0, 10.0), COLOURS[j % COLOURS.len()], "")
    };
    legend(&mut svg, right + 34.0, parts.iter().map(String::as_str), sample);
    let largest = |j: usize| rows.iter().filter_map(|(_, sizes)| sizes.get(j)).copied().fold(0.0, f64::max);
    let parts: Vec<String> =
        parts.iter().enumerate().map(|(j, part)| format!("{part}: at most {} {unit}", number(largest(j)))).collect();
    Some(svg.finish(title, &format!("{}.", parts.join("; "))))
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
    let all: Vec<String> = rows.iter().map(|(name, _, words)| format!("{name}: {words}")).collect();
    Some(svg.finish(title, &format!("{}.", all.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.into(), points: points.to_vec(), deviations: Vec::new() }
    }

    fn chart(series: &[Series]) -> Lines<'_> {
        Lines { title: "t", across: "x", up: "y", series, marks: &[], zero_across: true, zero_up: true, whole: false }
    }

    fn lines_of(points: &[(f64, f64)]) -> Option<String> {
        chart(&[series("<run>", points), series("other", &[])]).draw()
    }

    #[test]
    fn points_lie_where_their_numbers_say() {
        let svg = lines_of(&[(0.0, 0.0), (10.0, 4.0)]).unwrap();
        // The lower left and the upper right corner of the area, with a margin of 5 % above and below.
        assert!(svg.contains(r#"points="64.0,311.7 460.0,66.3""#), "{svg}");
        // Labels of six letters end left of the axis and begin right of its title.
        let long = [series("run", &[(0.0, 0.5175), (1.0, 0.5185)])];
        let far = Lines { zero_up: false, ..chart(&long) }.draw().unwrap();
        assert!(far.contains("0.5175") && far.contains(r#"x="68.0""#), "{far}");
        assert!(svg.contains("&lt;run&gt;") && !svg.contains("<run>"));
        assert!(lines_of(&[]).is_none() && lines_of(&[(f64::NAN, 1.0)]).is_none());
        assert!(!lines_of(&[(0.0, 1.0), (1.0, f64::NAN)]).unwrap().contains("NaN"));
    }

    #[test]
    fn lines_differ_without_colours_and_are_described_in_numbers() {
        let two = [series("a", &[(0.0, 1.0), (1.0, 0.25), (2.0, 0.5)]), series("b", &[(0.0, 1.0), (2.0, 3.0)])];
        let svg = chart(&two).draw().unwrap();
        let dashes: std::collections::BTreeSet<&str> =
            svg.split("stroke-dasharray=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(dashes.len(), 2, "{svg}");
        let description = svg.split("<desc>").nth(1).unwrap();
        assert!(description.starts_with("y over x. a: from 1 at 0 to 0.5 at 2; least 0.25 at 1."), "{description}");
    }

    #[test]
    fn error_bars_end_where_they_should_and_marks_name_their_place() {
        let with = [Series { deviations: vec![1.0, 0.0], ..series("a", &[(2.0, 1.0), (4.0, 2.0)]) }];
        let marks = [(2.0, "k = 2".to_string())];
        let svg = Lines { marks: &marks, zero_across: false, whole: true, ..chart(&with) }.draw().unwrap();
        // From 0 to 2 on an axis from -0.1 to 2.1, below the label of the mark.
        assert!(
            svg.contains(r#"y1="272.5""#) && svg.contains(r#"y2="43.5""#) && svg.contains(">k = 2</text>"),
            "{svg}"
        );
        // A bar that reaches below zero ends at the floor of a logarithmic axis.
        let far = [Series { deviations: vec![0.02, 0.0], ..series("a", &[(2.0, 0.01), (4.0, 2.0)]) }];
        let svg = Lines { marks: &marks, zero_up: false, ..chart(&far) }.draw().unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn parts_of_a_bar_follow_each_other() {
        let rows = [("rank 0".to_string(), vec![1.0, 3.0]), ("rank 1".to_string(), vec![1.0, 1.0])];
        let svg = stacked("t", "s", &["a".into(), "b".into()], &rows).unwrap();
        // 560 pixels are four seconds.
        assert!(svg.contains(r#"x="90.0" y="14.0" width="140.00""#), "{svg}");
        assert!(svg.contains(r#"x="230.0" y="14.0" width="420.00""#), "{svg}");
        assert!(svg.contains("rank 1, b: 1 s") && svg.contains("<desc>a: at most 1 s; b: at most 3 s.</desc>"));
        assert!(bars("t", &[("x".into(), 5.0, "5 B".into())]).unwrap().contains("5 B"));
        assert!(bars("t", &[]).is_none());
    }
}

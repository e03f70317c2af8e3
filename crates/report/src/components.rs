//! Plots of components and of how lines of the matrix use them: images, lists of terms, heat maps.

use ndarray::{Array2, ArrayView1};

use fednmf_base::units::thousands;

use crate::Display;
use crate::axis::number;
use crate::factors::{Factors, Matches, Sample, Usage};
use crate::png::{Raster, Shade};
use crate::svg::{Anchor, COLOURS, Svg, short};

/// Maximum number of components with a plot of their own.
const MOST_COMPONENTS: usize = 100;
/// Maximum number of cells in a row of a heat map.
pub const CELLS: usize = 480;
/// Number of terms shown per component.
const TERMS: usize = 8;
/// Number of terms per component in the description of a plot.
const DESCRIBED: usize = 3;
const WIDTH: f64 = 860.0;

/// `3 (12.5 %)`: the column of the factor, counted from 0.
fn label(factors: &Factors, place: usize) -> String {
    let share = factors.share.as_ref().map(|share| format!(" ({:.1} %)", 100.0 * share[place]));
    format!("{}{}", factors.number[place], share.unwrap_or_default())
}

/// The labels of the first `count` components, as a sentence.
fn labels(factors: &Factors, count: usize) -> String {
    let all: Vec<String> = (0..count).map(|place| label(factors, place)).collect();
    format!("Components in descending order of weight: {}.", all.join(", "))
}

fn largest<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    values.into_iter().copied().fold(0.0, f64::max)
}

/// Each component as an image of height × width pixels; its largest entry is white.
pub fn images(factors: &Factors, (height, width): (usize, usize)) -> String {
    let count = factors.number.len().min(MOST_COMPONENTS);
    let (size, across) = frame(height, width, 10);
    let step = (size.0 + 8.0, size.1 + 24.0);
    let mut svg = Svg::new(WIDTH, step.1 * count.div_ceil(across) as f64 + 8.0);
    for place in 0..count {
        let corner = (4.0 + step.0 * (place % across) as f64, 20.0 + step.1 * (place / across) as f64);
        let column = factors.shown.column(place);
        let raster = Raster::new(height, width, largest(column), Shade::Grey, |i, j| column[i * width + j]);
        let name = label(factors, place);
        svg.image(corner, size, &raster.data_url(), &format!("component {name}"));
        svg.text((corner.0, corner.1 - 5.0), Anchor::Start, 11.0, &name);
    }
    svg.finish("Components as images", &labels(factors, count))
}

/// The size of an image on the page, and the number of images in a row.
fn frame(height: usize, width: usize, across: usize) -> ((f64, f64), usize) {
    let wide = (WIDTH - 8.0) / across as f64 - 8.0;
    ((wide, (wide * height as f64 / width as f64).clamp(4.0, 4.0 * wide)), across)
}

/// The terms with the largest weight in each component, as bars beside their names.
pub fn terms(factors: &Factors, names: &[String]) -> String {
    let count = factors.number.len().min(MOST_COMPONENTS);
    let (across, thick, named, valued) = (3, 16.0, 118.0, 54.0);
    let step = (WIDTH / across as f64, 34.0 + thick * TERMS as f64);
    let mut svg = Svg::new(WIDTH, step.1 * count.div_ceil(across) as f64);
    let mut description = Vec::new();
    for place in 0..count {
        let (left, top) = (step.0 * (place % across) as f64 + 4.0, step.1 * (place / across) as f64);
        svg.text((left, top + 16.0), Anchor::Start, 12.0, &format!("component {}", label(factors, place)));
        let column = factors.shown.column(place);
        let first = top_terms(&column);
        let most = first.first().map_or(0.0, |&i| column[i]);
        for (line, &i) in first.iter().enumerate() {
            let y = top + 24.0 + thick * line as f64;
            let width = if most > 0.0 { (step.0 - named - valued - 12.0) * column[i] / most } else { 0.0 };
            let value = number(column[i]);
            svg.bar((left + named, y), (width, thick - 4.0), COLOURS[0], &format!("{}: {value}", names[i]));
            svg.text((left + named - 5.0, y + thick - 6.0), Anchor::End, 11.0, &short(&names[i], 18));
            svg.text((left + named + width + 4.0, y + thick - 6.0), Anchor::Start, 11.0, &value);
        }
        let first: Vec<&str> = first.iter().take(DESCRIBED).map(|&i| names[i].as_str()).collect();
        description.push(format!("{}: {}.", label(factors, place), first.join(", ")));
    }
    svg.finish("Terms of the components", &description.join(" "))
}

/// The indices of the largest positive entries, in descending order.
fn top_terms(column: &ArrayView1<'_, f64>) -> Vec<usize> {
    let mut places: Vec<usize> = (0..column.len()).filter(|&i| column[i] > 0.0).collect();
    let falling = |a: &usize, b: &usize| column[*b].total_cmp(&column[*a]).then(a.cmp(b));
    if places.len() > TERMS {
        places.select_nth_unstable_by(TERMS - 1, falling);
        places.truncate(TERMS);
    }
    places.sort_by(falling);
    places
}

/// A heat map with one row per component; its largest entry is yellow. Adjacent entries are pooled if there are more
/// than [`CELLS`].
pub fn heat_map(factors: &Factors) -> String {
    let count = factors.number.len().min(MOST_COMPONENTS);
    let thick = (400.0 / count as f64).clamp(4.0, 22.0);
    let strips: Vec<Vec<f64>> = factors.shown.columns().into_iter().take(count).map(|c| pooled(&c)).collect();
    let cells = strips.first().map_or(0, Vec::len);
    let peaks: Vec<f64> = strips.iter().map(largest).collect();
    let raster = Raster::new(count, cells, 1.0, Shade::Heat, |i, j| strips[i][j] / peaks[i].max(f64::MIN_POSITIVE));
    let (left, height) = (96.0, thick * count as f64);
    let mut svg = Svg::new(WIDTH, height + 36.0);
    svg.image((left, 8.0), (WIDTH - left - 10.0, height), &raster.data_url(), "components");
    for place in (0..count).filter(|p| thick >= 11.0 || p.is_multiple_of(4)) {
        let y = 8.0 + thick * (place as f64 + 0.5) + 4.0;
        svg.text((left - 6.0, y), Anchor::End, 11.0, &label(factors, place));
    }
    let along = format!("entries 0 to {}", factors.shown.nrows().saturating_sub(1));
    svg.text(((left + WIDTH) / 2.0, height + 26.0), Anchor::Middle, 12.0, &along);
    svg.finish("Components as a heat map", &labels(factors, count))
}

/// At most [`CELLS`] values, each the maximum of adjacent entries.
fn pooled(values: &ArrayView1<'_, f64>) -> Vec<f64> {
    let (n, cells) = (values.len(), values.len().min(CELLS));
    (0..cells).map(|c| (c * n / cells..(c + 1) * n / cells).map(|i| values[i]).fold(0.0, f64::max)).collect()
}

/// The `chosen` sample lines of the matrix, each above its reconstruction, as images if the display has their size. A choice is
/// a place in the sample with its rank in words.
pub fn reconstructions(
    sample: &Sample,
    reconstruction: &Array2<f64>,
    chosen: &[(usize, &str)],
    display: &Display,
) -> String {
    let errors = sample.errors(reconstruction);
    let line = |r: usize| {
        let at = sample.at[r];
        let name = display.line_names.as_ref().and_then(|names| names.get(at));
        name.map_or_else(|| format!("{} {at}", sample.lines.word()), |name| short(name, 40))
    };
    let name = |(r, rank): (usize, &str)| format!("{rank}: {}, error {:.3}", line(r), errors[r]);
    let title = "Reconstruction below the original";
    let description = chosen.iter().map(|&one| name(one)).collect::<Vec<_>>().join("; ") + ".";
    let peak = |r: usize| largest(sample.values.row(r)).max(largest(reconstruction.row(r)));
    let count = chosen.len();
    if let Some((height, width)) = display.image {
        let (size, across) = frame(height, width, 6);
        let size = (size.0.min(110.0), size.1 * (size.0.min(110.0) / size.0));
        let (step, tall) = (WIDTH / across as f64, 2.0 * size.1 + 58.0);
        let mut svg = Svg::new(WIDTH, tall * count.div_ceil(across) as f64);
        for (place, &(r, rank)) in chosen.iter().enumerate() {
            let (left, top) = (4.0 + step * (place % across) as f64, tall * (place / across) as f64);
            svg.text((left, top + 14.0), Anchor::Start, 11.0, &short(&format!("{rank}: {}", line(r)), 18));
            svg.text((left, top + 28.0), Anchor::Start, 11.0, &format!("error {:.3}", errors[r]));
            for (below, (what, values)) in
                [("original", &sample.values), ("reconstruction", reconstruction)].into_iter().enumerate()
            {
                let row = values.row(r);
                let raster = Raster::new(height, width, peak(r), Shade::Grey, |i, j| row[i * width + j]);
                let corner = (left, top + 34.0 + (size.1 + 4.0) * below as f64);
                svg.image(corner, size, &raster.data_url(), &format!("{what} of {}", line(r)));
            }
        }
        return svg.finish(title, &description);
    }
    let (left, thick, tall) = (96.0, 14.0, 54.0);
    let mut svg = Svg::new(WIDTH, tall * count as f64);
    for (place, &(r, rank)) in chosen.iter().enumerate() {
        let top = tall * place as f64;
        svg.text((left, top + 13.0), Anchor::Start, 11.0, &name((r, rank)));
        for (below, (what, values)) in
            [("original", &sample.values), ("factors", reconstruction)].into_iter().enumerate()
        {
            let cells = pooled(&values.row(r));
            let raster = Raster::new(1, cells.len(), peak(r), Shade::Heat, |_, j| cells[j]);
            let y = top + 18.0 + (thick + 1.0) * below as f64;
            svg.image((left, y), (WIDTH - left - 10.0, thick), &raster.data_url(), what);
            svg.text((left - 6.0, y + thick - 3.0), Anchor::End, 11.0, what);
        }
        svg.line((0.0, top + 0.5), (left - 10.0, top + 0.5), COLOURS[9]);
    }
    svg.finish(title, &description)
}

/// How the lines of the matrix use the components: a row for each component, a column for each line, in the order of the
/// lines' dominant components. The bars count the lines in which a component is dominant.
pub fn usage(factors: &Factors, usage: &Usage) -> String {
    let count = factors.number.len().min(MOST_COMPONENTS);
    let thick = (400.0 / count as f64).clamp(4.0, 22.0);
    let peak = largest(&usage.means);
    let raster = Raster::new(count, usage.means.ncols(), peak, Shade::Heat, |i, j| usage.means[[i, j]]);
    let (left, right, height) = (96.0, WIDTH - 150.0, thick * count as f64);
    let mut svg = Svg::new(WIDTH, height + 36.0);
    svg.image((left, 8.0), (right - left, height), &raster.data_url(), "shares of the components");
    let most = usage.counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let word = factors.lines.word();
    for place in 0..count {
        let (y, lines) = (8.0 + thick * place as f64, usage.counts[place]);
        let width = 80.0 * lines as f64 / most;
        svg.bar((right + 8.0, y + 0.1 * thick), (width, 0.8 * thick), COLOURS[0], &format!("{lines} {word}s"));
        if thick >= 11.0 || place.is_multiple_of(4) {
            let middle = y + 0.5 * thick + 4.0;
            svg.text((left - 6.0, middle), Anchor::End, 11.0, &label(factors, place));
            svg.text((right + 12.0 + width, middle), Anchor::Start, 11.0, &lines.to_string());
        }
    }
    let along = format!("{} {word}s by dominant component", thousands(usage.total));
    svg.text(((left + right) / 2.0, height + 26.0), Anchor::Middle, 12.0, &along);
    svg.text((right + 8.0, height + 26.0), Anchor::Start, 12.0, &format!("{word}s"));
    let counts = (0..count).map(|place| format!("component {} in {}", factors.number[place], usage.counts[place]));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let description = format!("Dominant components of {} {word}s: {counts}.", usage.total);
    svg.finish("Use of the components", &description)
}

/// The cosines between the components of two runs: rows are those of the first, columns those of the second, in the order of
/// their counterparts, so that pairs are on the diagonal.
pub fn matches(found: &Matches, (rows, columns): (&Factors, &Factors), (first, second): (&str, &str)) -> String {
    let mut order: Vec<usize> = found.pairs.iter().flatten().copied().collect();
    order.extend((0..columns.number.len()).filter(|j| !found.pairs.contains(&Some(*j))));
    let (high, wide) = (rows.number.len().min(MOST_COMPONENTS), order.len().min(MOST_COMPONENTS));
    let thick = (400.0 / high.max(wide) as f64).clamp(4.0, 26.0);
    let raster = Raster::new(high, wide, 1.0, Shade::Heat, |i, j| found.cosines[[i, order[j]]]);
    let (left, top, height) = (96.0, 34.0, thick * high as f64);
    let mut svg = Svg::new(WIDTH, top + height + 10.0);
    svg.image((left, top), (thick * wide as f64, height), &raster.data_url(), "cosines");
    let named = |place: usize| thick >= 13.0 || place.is_multiple_of(4);
    for place in (0..wide).filter(|p| named(*p)) {
        let x = left + thick * (place as f64 + 0.5);
        svg.text((x, top - 5.0), Anchor::Middle, 11.0, &columns.number[order[place]].to_string());
    }
    svg.text((left, 14.0), Anchor::Start, 12.0, &format!("components of {}", short(second, 40)));
    let aside = left + thick * wide as f64 + 10.0;
    svg.text((aside, top - 5.0), Anchor::Start, 12.0, &format!("cosine with the counterpart of {}", short(first, 40)));
    let mut description = Vec::new();
    for place in 0..high {
        let y = top + thick * (place as f64 + 0.5) + 4.0;
        let pair = found.pairs[place].map(|j| (columns.number[j], found.cosines[[place, j]]));
        let text = pair.map_or_else(|| "none".to_string(), |(j, cosine)| format!("{cosine:.3}, component {j}"));
        if named(place) {
            svg.text((left - 6.0, y), Anchor::End, 11.0, &rows.number[place].to_string());
            svg.text((aside, y), Anchor::Start, 11.0, &text);
        }
        description.push(format!("{}: {text}", rows.number[place]));
    }
    svg.finish(&format!("Components of {first} and {second}"), &format!("{}.", description.join("; ")))
}

/// The cosines between all components of several runs, cluster by cluster: `clusters` has for each the component of the
/// consensus that its cluster makes.
pub fn similarities(cosines: &Array2<f64>, clusters: &[usize]) -> String {
    let n = clusters.len();
    let cells = n.min(CELLS);
    let raster = Raster::new(cells, cells, 1.0, Shade::Heat, |i, j| cosines[[i * n / cells, j * n / cells]]);
    let (left, top, size) = (96.0, 8.0, 420.0);
    let mut svg = Svg::new(WIDTH, top + size + 10.0);
    svg.image((left, top), (size, size), &raster.data_url(), "cosines");
    let mut description = Vec::new();
    let most = clusters.iter().max().map_or(0, |k| k + 1);
    for cluster in 0..most {
        let own: Vec<usize> = (0..n).filter(|&i| clusters[i] == cluster).collect();
        let (Some(first), Some(last)) = (own.first(), own.last()) else { continue };
        let middle = top + size * (first + last + 1) as f64 / (2 * n) as f64;
        let own = &own;
        let between = own.iter().flat_map(|&i| own.iter().filter(move |&&j| i != j).map(move |&j| cosines[[i, j]]));
        let (sum, count) = between.fold((0.0, 0), |(sum, count), cosine| (sum + cosine, count + 1));
        let mean = if count > 0 { format!("mean cosine {:.3}", sum / f64::from(count)) } else { "one run".into() };
        if size / most as f64 >= 13.0 {
            svg.text((left - 6.0, middle + 4.0), Anchor::End, 11.0, &format!("component {cluster}"));
            svg.text((left + size + 8.0, middle + 4.0), Anchor::Start, 11.0, &mean);
        }
        description.push(format!("component {cluster}: {mean}"));
    }
    svg.finish("Similarity of the components of all runs", &format!("{}.", description.join("; ")))
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::factors::Lines;

    fn factors() -> Factors {
        let shown = array![[0.0, 1.0], [3.0, 0.0], [2.0, 0.5], [0.0, 0.0]];
        Factors { lines: Lines::Rows, shown, names: None, number: vec![1, 0], share: Some(vec![0.75, 0.25]) }
    }

    #[test]
    fn the_heaviest_terms_come_first() {
        let factors = factors();
        assert_eq!(top_terms(&factors.shown.column(0)), [1, 2]);
        let names = ["a", "b<", "c", "d"].map(String::from);
        let svg = terms(&factors, &names);
        let place = |text: &str| svg.find(text).unwrap_or_else(|| panic!("{text} in {svg}"));
        assert!(place("component 1 (75.0 %)") < place("b&lt;: 3") && place("b&lt;: 3") < place("c: 2"));
        assert!(svg.contains("<desc>1 (75.0 %): b&lt;, c. 0 (25.0 %): a, c.</desc>"), "{svg}");
        assert!(place("component 0 (25.0 %)") > place("c: 2") && !svg.contains("d: "));
        let many: ndarray::Array1<f64> = (0..1000).map(|i| f64::from(i * 7919 % 1000)).collect();
        assert_eq!(
            top_terms(&many.view()).iter().map(|&i| many[i]).collect::<Vec<_>>(),
            [999.0, 998.0, 997.0, 996.0, 995.0, 994.0, 993.0, 992.0]
        );
    }

    #[test]
    fn pooling_loses_no_peak() {
        let mut values = ndarray::Array1::<f64>::zeros(10_007);
        values[[7_777]] = 5.0;
        let cells = pooled(&values.view());
        assert_eq!((cells.len(), largest(&cells)), (CELLS, 5.0));
    }

    #[test]
    fn there_is_an_image_for_each_component_and_two_for_each_line() {
        let factors = factors();
        assert_eq!(images(&factors, (2, 2)).matches("<image").count(), 2);
        assert_eq!(heat_map(&factors).matches("<image").count(), 1);
        let values = array![[0.0, 3.0, 4.0, 0.0]];
        let sample = Sample { lines: Lines::Rows, total: 20, at: vec![17], values: values.clone() };
        let names: Vec<String> = (0..20).map(|i| format!("cell{i}")).collect();
        for (line_names, line) in [(None, "row 17"), (Some(names), "cell17")] {
            for image in [None, Some((2, 2))] {
                let display = Display { image, line_names: line_names.clone(), ..Display::default() };
                let svg = reconstructions(&sample, &(&values * 0.5), &[(0, "worst")], &display);
                let text = format!("worst: {line}, error 0.500");
                assert!(svg.matches("<image").count() == 2 && svg.contains(&text), "{svg}");
            }
        }
    }

    #[test]
    fn counts_and_counterparts_are_in_words_too() {
        let factors = factors();
        let found = Usage { counts: vec![3, 1], means: array![[1.0, 0.2], [0.0, 0.8]], total: 4 };
        let svg = usage(&factors, &found);
        assert!(svg.contains("Dominant components of 4 rows: component 1 in 3, component 0 in 1."), "{svg}");
        let found = Matches { cosines: array![[0.1, 0.9], [0.0, 0.2]], pairs: vec![Some(1), None], entries: 4 };
        let svg = matches(&found, (&factors, &factors), ("a", "b<"));
        assert!(svg.contains("1: 0.900, component 0; 0: none.") && svg.contains("b&lt;"), "{svg}");
        let cosines = array![[1.0, 0.8, 0.1], [0.8, 1.0, 0.0], [0.1, 0.0, 1.0]];
        let svg = similarities(&cosines, &[0, 0, 1]);
        assert!(svg.contains("component 0: mean cosine 0.800;") && svg.contains(">component 1<"), "{svg}");
    }
}

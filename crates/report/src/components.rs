//! Plots of components and reconstructions: images, lists of terms, heat maps.

use ndarray::{Array2, ArrayView1};

use crate::axis::number;
use crate::factors::{Factors, Sample};
use crate::png::{Raster, Shade};
use crate::svg::{Anchor, COLOURS, Svg, short};

/// Maximum number of components with a plot of their own.
const MOST_COMPONENTS: usize = 100;
/// Maximum number of cells in a row of a heat map.
const CELLS: usize = 480;
/// Number of terms shown per component.
const TERMS: usize = 8;
const WIDTH: f64 = 860.0;

/// `3 (12.5 %)`: the column of the factor, counted from 0.
fn label(factors: &Factors, place: usize) -> String {
    let share = factors.share.as_ref().map(|share| format!(" ({:.1} %)", 100.0 * share[place]));
    format!("{}{}", factors.number[place], share.unwrap_or_default())
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
    svg.finish("Components as images")
}

/// The size of an image on the page, and the number of images in a row.
fn frame(height: usize, width: usize, across: usize) -> ((f64, f64), usize) {
    let wide = (WIDTH - 8.0) / across as f64 - 8.0;
    ((wide, (wide * height as f64 / width as f64).clamp(4.0, 4.0 * wide)), across)
}

/// The terms with the largest weight in each component, as bars.
pub fn terms(factors: &Factors, names: &[String]) -> String {
    let count = factors.number.len().min(MOST_COMPONENTS);
    let (across, thick) = (5, 15.0);
    let step = (WIDTH / across as f64, 34.0 + thick * TERMS as f64);
    let mut svg = Svg::new(WIDTH, step.1 * count.div_ceil(across) as f64);
    for place in 0..count {
        let (left, top) = (step.0 * (place % across) as f64 + 4.0, step.1 * (place / across) as f64);
        svg.text((left, top + 16.0), Anchor::Start, 12.0, &format!("component {}", label(factors, place)));
        let column = factors.shown.column(place);
        let first = top_terms(&column);
        let most = first.first().map_or(0.0, |&i| column[i]);
        for (line, &i) in first.iter().enumerate() {
            let y = top + 24.0 + thick * line as f64;
            let width = if most > 0.0 { (step.0 - 16.0) * column[i] / most } else { 0.0 };
            svg.bar((left, y), (width, thick - 3.0), "#cfe3f1", &format!("{}: {}", names[i], number(column[i])));
            svg.text((left + 3.0, y + thick - 5.0), Anchor::Start, 11.0, &short(&names[i], 24));
        }
    }
    svg.finish("Terms of the components")
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
    svg.finish("Components as a heat map")
}

/// At most [`CELLS`] values, each the maximum of adjacent entries.
fn pooled(values: &ArrayView1<'_, f64>) -> Vec<f64> {
    let (n, cells) = (values.len(), values.len().min(CELLS));
    (0..cells).map(|c| (c * n / cells..(c + 1) * n / cells).map(|i| values[i]).fold(0.0, f64::max)).collect()
}

/// Sample lines of the matrix, each above its reconstruction.
pub fn reconstructions(sample: &Sample, reconstruction: &Array2<f64>, image: Option<(usize, usize)>) -> String {
    let word = sample.lines.word();
    let name = |r: usize| {
        let (x, y) = (sample.values.row(r), reconstruction.row(r));
        // Missing entries are NaN and do not count.
        let norm = |v: &mut dyn Iterator<Item = f64>| v.filter(|x| !x.is_nan()).map(|x| x * x).sum::<f64>().sqrt();
        let (size, off) = (norm(&mut x.iter().copied()), norm(&mut x.iter().zip(y).map(|(a, b)| a - b)));
        let error = if size > 0.0 { format!(", error {:.3}", off / size) } else { String::new() };
        format!("{word} {}{error}", sample.at[r])
    };
    let peak = |r: usize| largest(sample.values.row(r)).max(largest(reconstruction.row(r)));
    let count = sample.at.len();
    if let Some((height, width)) = image {
        let (size, across) = frame(height, width, 6);
        let size = (size.0.min(110.0), size.1 * (size.0.min(110.0) / size.0));
        let (step, tall) = (WIDTH / across as f64, 2.0 * size.1 + 44.0);
        let mut svg = Svg::new(WIDTH, tall * count.div_ceil(across) as f64);
        for r in 0..count {
            let (left, top) = (4.0 + step * (r % across) as f64, tall * (r / across) as f64);
            svg.text((left, top + 14.0), Anchor::Start, 11.0, &name(r));
            for (line, (what, values)) in
                [("original", &sample.values), ("reconstruction", reconstruction)].into_iter().enumerate()
            {
                let row = values.row(r);
                let raster = Raster::new(height, width, peak(r), Shade::Grey, |i, j| row[i * width + j]);
                let corner = (left, top + 20.0 + (size.1 + 4.0) * line as f64);
                svg.image(corner, size, &raster.data_url(), &format!("{what} of {word} {}", sample.at[r]));
            }
        }
        return svg.finish("Reconstruction below the original");
    }
    let (left, thick, tall) = (96.0, 14.0, 54.0);
    let mut svg = Svg::new(WIDTH, tall * count as f64);
    for r in 0..count {
        let top = tall * r as f64;
        svg.text((left, top + 13.0), Anchor::Start, 11.0, &name(r));
        for (line, (what, values)) in
            [("original", &sample.values), ("factors", reconstruction)].into_iter().enumerate()
        {
            let cells = pooled(&values.row(r));
            let raster = Raster::new(1, cells.len(), peak(r), Shade::Heat, |_, j| cells[j]);
            let y = top + 18.0 + (thick + 1.0) * line as f64;
            svg.image((left, y), (WIDTH - left - 10.0, thick), &raster.data_url(), what);
            svg.text((left - 6.0, y + thick - 3.0), Anchor::End, 11.0, what);
        }
        svg.line((0.0, top + 0.5), (left - 10.0, top + 0.5), COLOURS[9]);
    }
    svg.finish("Reconstruction below the original")
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::factors::Lines;

    fn factors() -> Factors {
        let shown = array![[0.0, 1.0], [3.0, 0.0], [2.0, 0.5], [0.0, 0.0]];
        Factors { lines: Lines::Rows, shown, number: vec![1, 0], share: Some(vec![0.75, 0.25]) }
    }

    #[test]
    fn the_heaviest_terms_come_first() {
        let factors = factors();
        assert_eq!(top_terms(&factors.shown.column(0)), [1, 2]);
        let names = ["a", "b<", "c", "d"].map(String::from);
        let svg = terms(&factors, &names);
        let place = |text: &str| svg.find(text).unwrap_or_else(|| panic!("{text} in {svg}"));
        assert!(place("component 1 (75.0 %)") < place("b&lt;: 3") && place("b&lt;: 3") < place("c: 2"));
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
        let sample = Sample { lines: Lines::Rows, at: vec![17], values: values.clone() };
        for image in [None, Some((2, 2))] {
            let svg = reconstructions(&sample, &(&values * 0.5), image);
            assert!(svg.matches("<image").count() == 2 && svg.contains("row 17, error 0.500"), "{svg}");
        }
    }
}

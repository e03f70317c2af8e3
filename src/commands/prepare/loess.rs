//! Local quadratic regression of one variable (loess), interpolated between vertices as in the program of Cleveland and Grosse (1991),
//! which R and scikit-misc use: the numbers are theirs.

use ndarray::{Array1, Array2, Axis};
use ndarray_linalg::LeastSquaresSvd;

/// The share of the points that a local fit uses, as in scanpy.
const SPAN: f64 = 0.3;
/// An interval with at most this share of the points of a local fit is not divided.
const CELL: f64 = 0.2;
/// How far the outer vertices are from the points, as a share of their range.
const MARGIN: f64 = 0.005;

/// A place with the value and the slope of its local fit.
struct Vertex {
    x: f64,
    value: f64,
    slope: f64,
}

/// The smoothed y at each x; `None` if the points are too few, or too many have the same x.
pub fn smoothed(x: &[f64], y: &[f64]) -> Option<Vec<f64>> {
    let vertices: Option<Vec<Vertex>> = places(x)?.into_iter().map(|at| local_fit(x, y, at)).collect();
    let vertices = vertices?;
    let value = |x: &f64| {
        let after = vertices.partition_point(|vertex| vertex.x < *x).clamp(1, vertices.len() - 1);
        between(&vertices[after - 1], &vertices[after], *x)
    };
    Some(x.iter().map(value).collect())
}

/// The cubic with the values and slopes of two vertices.
fn between(low: &Vertex, high: &Vertex, x: f64) -> f64 {
    let width = high.x - low.x;
    let (h, rest) = ((x - low.x) / width, (high.x - x) / width);
    let values = rest * rest * (1.0 + 2.0 * h) * low.value + h * h * (1.0 + 2.0 * rest) * high.value;
    values + (h * rest * rest * low.slope - h * h * rest * high.slope) * width
}

/// The number of points in a local fit.
fn points_of_fit(all: usize) -> usize {
    all.min((all as f64 * SPAN + 1e-5) as usize)
}

/// Where the vertices are, ascending.
fn places(x: &[f64]) -> Option<Vec<f64>> {
    let mut sorted = x.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let margin = MARGIN * (most - least).max(1e-10 * least.abs().max(most.abs()) + 1e-30);
    let ends = [least - margin, most + margin];
    let mut places = ends.to_vec();
    divide(&sorted, ends, (x.len() as f64 * SPAN * CELL) as usize, &mut places);
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    Some(places)
}

/// Divides an interval at the median of its points until each has at most `most` of them. All points with one x stay together.
fn divide(sorted: &[f64], [low, high]: [f64; 2], most: usize, places: &mut Vec<f64>) {
    let count = sorted.len();
    if count <= most {
        return;
    }
    let middle = (count - 1) / 2;
    // After the middle, before it, and so on.
    let nearest = (0..count).flat_map(|off| [middle.checked_add(off), middle.checked_sub(off)]).map_while(|at| at);
    let at = nearest.take_while(|at| at + 1 < count).find(|&at| sorted[at] < sorted[at + 1]).unwrap_or(middle);
    let cut = sorted[at];
    if cut == low || cut == high {
        return;
    }
    places.push(cut);
    divide(&sorted[..=at], [low, cut], most, places);
    divide(&sorted[at + 1..], [cut, high], most, places);
}

/// Fits a parabola to the points near `at`, with tricube weights.
fn local_fit(x: &[f64], y: &[f64], at: f64) -> Option<Vertex> {
    let mut squares: Vec<f64> = x.iter().map(|x| (x - at).powi(2)).collect();
    squares.sort_unstable_by(f64::total_cmp);
    let radius = *squares.get(points_of_fit(x.len()).checked_sub(1)?)?;
    let near: Vec<(f64, f64, f64)> = (x.iter().zip(y))
        .map(|(x, y)| (x - at, *y, ((x - at).powi(2) / radius).sqrt()))
        .filter(|(_, _, share)| *share < 1.0)
        .map(|(off, y, share)| (off, y, (1.0 - share.powi(3)).powi(3).sqrt()))
        .collect();
    if near.is_empty() {
        return None;
    }
    let mut design = Array2::from_shape_fn((near.len(), 3), |(i, power)| near[i].2 * near[i].0.powi(power as i32));
    let right: Array1<f64> = near.iter().map(|(_, y, weight)| weight * y).collect();
    let norms = design.map_axis(Axis(0), |column| Some(column.dot(&column).sqrt()).filter(|x| *x > 0.0).unwrap_or(1.0));
    design /= &norms;
    let solution = design.least_squares(&right).ok()?.solution / norms;
    Some(Vertex { x: at, value: solution[0], slope: solution[1] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parabola_is_its_own_smooth() {
        let x: Vec<f64> = (0..100).map(|i| f64::from(i * i % 101) / 10.0).collect();
        let y: Vec<f64> = x.iter().map(|x| 3.0 - 2.0 * x + 0.5 * x * x).collect();
        let found = smoothed(&x, &y).unwrap();
        assert!(found.iter().zip(&y).all(|(found, y)| (found - y).abs() < 1e-10 * y.abs().max(1.0)));
        assert_eq!(smoothed(&x[..3], &y[..3]), None);
        assert_eq!(smoothed(&[1.0; 20], &[1.0; 20]), None);
    }

    #[test]
    fn points_with_one_x_are_not_divided() {
        let mut places = Vec::new();
        divide(&[0.0, 1.0, 1.0, 1.0, 1.0, 2.0], [-1.0, 3.0], 2, &mut places);
        assert_eq!(places, [1.0]);
        places.clear();
        divide(&[0.0, 1.0, 2.0, 3.0, 4.0], [-1.0, 5.0], 2, &mut places);
        assert_eq!(places, [2.0, 1.0]);
    }
}

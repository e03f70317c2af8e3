//! Chooses the number of components by held-out entries and stability.

use fednmf::prelude::*;
use ndarray::Array2;

fn main() -> Result<(), fednmf::Error> {
    let noise = |i: usize, j: usize| ((7 * i + 13 * j + i * j) % 17) as f64 / 170.0;
    let x = Array2::from_shape_fn((60, 40), |(i, j)| {
        let block = if i / 15 == j / 10 { (1 + (3 * i) % 7) * (2 + (5 * j) % 11) } else { 0 };
        block as f64 / 40.0 + noise(i, j)
    });

    let found = Search::over(2..=4).runs(4).fit(&x)?;

    for point in &found.points {
        println!("k = {}: RMSE {:.4}", point.k, point.rmse);
    }
    if let Some(choice) = found.choice {
        println!("k = {} is recommended: {}", choice.k, choice.reasons.join("; "));
    }
    Ok(())
}

//! Factorises a dense matrix: twelve monthly curves as mixtures of three.

use fednmf::prelude::*;
use ndarray::Array2;

fn main() -> Result<(), fednmf::Error> {
    let curve = |c: usize, j: usize| 1.0 + ((j + 4 * c) as f64 * std::f64::consts::TAU / 12.0).sin();
    let x = Array2::from_shape_fn((100, 12), |(i, j)| {
        (0..3).map(|c| ((i * (c + 2)) % 7) as f64 * curve(c, j)).sum::<f64>()
    });

    let fit = Hals::new(3).inner_sweeps(Auto::Auto).seed(1).max_iters(500).tol(1e-6).fit(&x)?;

    println!(
        "relative error {:.1e} after {} iterations: {:?}",
        fit.relative_error(),
        fit.iterations(),
        fit.stopped_by()
    );
    for component in fit.v().columns() {
        println!("{component:6.2}");
    }
    Ok(())
}

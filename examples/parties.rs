//! Three hospitals with patients of their own share components, but neither data nor weights.

use fednmf::prelude::*;
use ndarray::{Array2, Axis};

fn main() -> Result<(), fednmf::Error> {
    let patients = Array2::from_shape_fn((90, 20), |(i, j)| (1 + (i * (j % 4 + 1)) % 9) as f64);
    let hospitals: Vec<_> = patients.axis_chunks_iter(Axis(0), 30).collect();

    let fit = Federated::new(Fnmf::new(4).max_iters(20).seed(3)).secure_sum(true).fit(&hospitals)?;

    println!("relative error {:.3} with shared components of {:?}", fit.relative_error(), fit.v().map(Array2::dim));
    println!("hospital 2 keeps its weights of {:?}", fit.u_of(2).map(Array2::dim));
    for sent in fit.ledger() {
        println!("{sent}");
    }
    Ok(())
}

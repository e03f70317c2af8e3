//! Factorises sparse counts, and finds the topics of documents that were not among them.

use fednmf::prelude::*;
use ndarray::s;
use sprs::{CsMat, TriMat};

fn main() -> Result<(), fednmf::Error> {
    let mut words = TriMat::new((200, 50));
    for i in 0..200 {
        (0..50)
            .filter(|j| j / 25 == i % 2 && (i * j) % 3 == 0)
            .for_each(|j| words.add_triplet(i, j, 1.0 + (i % 4) as f64));
    }
    let counts: CsMat<f64> = words.to_csr();

    let fit = KlCd::new(2).max_iters(100).tol(1e-4).fit(&counts.slice_outer(..190))?;
    let topics = fit.project(&counts.slice_outer(190..))?;

    println!("divergence {:.1} of {} documents", fit.measure("kl_divergence").unwrap_or(f64::NAN), fit.u().nrows());
    println!("topics of new documents:\n{:.2}", topics.slice(s![..4, ..]));
    Ok(())
}

//! `dsanls-secure`: the released sketches M S_t with public S_t (Qian et al., Theorem 3).

use ndarray::{Array2, Axis, s};

use fednmf_base::error::Result;
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::SketchKind;
use fednmf_linalg::{Order, Real};
use fednmf_methods::federated::columns::dsanls_secure::DsanlsSecure;

use super::finding::Finding;
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;
use super::secure_hals::on_equations;

const RELEASE: &str = "sketch of M";
/// Maximum number of columns n for which an attack keeps n × n numbers.
const MOST: usize = 20_000;

/// The attacks on all releases together.
pub fn attacks(pooled: &PooledView, method: &DsanlsSecure, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let releases = pooled.sums(RELEASE);
    let (m, n, hidden) = (pooled.m, pooled.n, pooled.hidden());
    let Some(&first) = releases.first() else { return Ok(Vec::new()) };
    let d = pooled.views[0].records[first].cols / m;
    if hidden.len() > MOST {
        let what = format!("{} hidden columns: an attack would keep more than 8 GiB", hidden.len());
        return Ok(vec![Finding::new("linear", "").note(what)]);
    }
    let mut equations = Array2::zeros((releases.len() * d, hidden.len()));
    let mut values = Array2::zeros((releases.len() * d, m));
    for (t, &at) in releases.iter().enumerate() {
        let across = match pooled.is_single() {
            true => drawn::<f32>(method.sketch, n, d, pooled.seed, t),
            false => drawn::<f64>(method.sketch, n, d, pooled.seed, t),
        };
        let Some(release) = pooled.shaped(&pooled.views[0], at, (m, d))? else { continue };
        let release = pooled.without_own(release, |party, data| {
            Ok(Some(data.dot(&across.slice(s![.., pooled.cuts[party].clone()]).t())))
        })?;
        equations.slice_mut(s![t * d..(t + 1) * d, ..]).assign(&across.select(Axis(1), &hidden));
        values.slice_mut(s![t * d..(t + 1) * d, ..]).assign(&release.t());
    }
    let assumed = format!("{} releases", releases.len());
    let ground_truth = inputs.ground_truth.hidden(pooled);
    Ok(on_equations(&equations.view(), &values.view(), pooled, ground_truth.as_ref(), &assumed))
}

/// Sᵀ of release t, d × n.
fn drawn<T: Real>(kind: SketchKind, n: usize, d: usize, seed: u64, t: usize) -> Array2<f64> {
    let mut sketch_of_run = sketch::make::<T>(kind, n, d, n, Order::RowMajor);
    let mut across = Array2::<T>::zeros((d, n));
    sketch_of_run.draw(&sketch::stream(seed, true, t));
    sketch_of_run.sketch_rows(0, &Array2::<T>::eye(n).view(), &mut across.view_mut());
    across.mapv(Real::as_f64)
}

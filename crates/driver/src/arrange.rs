//! The order and scale of components in the output.
//!
//! U D and V D⁻¹ are the same factorisation for any positive diagonal D, and so are the components in any order: the
//! iterations determine neither. The output follows one convention, so that runs can be compared by eye. Penalties on
//! the factors determine D, which the output then keeps. Checkpoints keep the iterates unchanged.

use std::cmp::Reverse;

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_data::messages::NORMS;
use fednmf_data::state::{OwnedPiece, Owner, Piece};
use fednmf_linalg::Real;
use fednmf_methods::description::Partition;
use fednmf_methods::method::ConfiguredMethod;

fednmf_base::words! {
    /// `--factor-scale`.
    pub enum FactorScale {
        UnitV = "unit-v",
        UnitU = "unit-u",
        Balanced = "balanced",
        Sorted = "sorted",
        AsFound = "as-found",
    }
}

impl FactorScale {
    /// Multipliers of the columns of a component in U and in V, given the norms u and v of these columns, and the largest root of the
    /// weight of a component. Rounding errors drive components without any or with a negligible weight to extreme scales, which the
    /// multipliers undo.
    fn factors(self, u: f64, v: f64, largest_root: f64) -> [f64; 2] {
        let to = |norm: f64, target: f64| {
            let multiplier = target / norm;
            if norm > 0.0 && multiplier.is_finite() { multiplier } else { 1.0 }
        };
        let has_weight = u > 0.0 && v > 0.0;
        match self {
            FactorScale::Sorted | FactorScale::AsFound => [1.0, 1.0],
            FactorScale::UnitV if has_weight => [v, 1.0 / v],
            FactorScale::UnitU if has_weight => [1.0 / u, u],
            FactorScale::UnitV | FactorScale::UnitU => [to(u, 1.0), to(v, 1.0)],
            // The factors of a symmetric factorisation stay equal.
            FactorScale::Balanced if u == v => [1.0, 1.0],
            FactorScale::Balanced => {
                let root = u.sqrt() * v.sqrt();
                let negligible = root < f64::EPSILON.sqrt() * largest_root;
                let norm = if negligible { largest_root } else { root };
                let scaled = [v / norm, norm / v];
                if has_weight && scaled[1].is_finite() { scaled } else { [to(u, norm), to(v, norm)] }
            }
        }
    }

    /// The scale of the written components, by default sorted and with columns of V of norm 1. Components with a private
    /// factor stay as found, since norms would reveal their weight at each party. Penalised factors keep their scale, which
    /// the objective depends on; factors of a symmetric factorisation stay equal.
    ///
    /// # Errors
    /// If the requested scale does not suit the method.
    pub fn of_run(requested: Option<FactorScale>, method: &dyn ConfiguredMethod) -> Result<FactorScale> {
        let description = method.description();
        let regularized = method.groups().is_regularized();
        let symmetric = description.partition == Partition::Symmetric;
        match (requested, description.partition.is_private()) {
            (Some(scale), true) if scale != FactorScale::AsFound => Err(Error::input(format!(
                "--factor-scale {}: {} has parties, and what the components weigh stays with them; leave it out",
                scale.name(),
                description.name
            ))),
            (_, true) => Ok(FactorScale::AsFound),
            (Some(scale), false) => {
                scale.check(method, "--factor-scale", " of --alpha-u and --alpha-v")?;
                Ok(scale)
            }
            (None, false) if regularized || symmetric => Ok(FactorScale::Sorted),
            (None, false) => Ok(FactorScale::UnitV),
        }
    }

    /// Checks that the factors of a method without parties may be scaled in this way: the objective of penalised factors
    /// depends on the scale, and the factors of a symmetric factorisation stay equal. `option` and `penalties` name them in
    /// messages.
    ///
    /// # Errors
    /// If they may not.
    pub fn check(self, method: &dyn ConfiguredMethod, option: &str, penalties: &str) -> Result<()> {
        if method.groups().is_regularized() && !self.keeps() {
            return Err(Error::input(format!(
                "{option} {}: another scale of the components changes the penalties{penalties}; use sorted or as-found",
                self.name()
            )));
        }
        let changes_one = matches!(self, FactorScale::UnitU | FactorScale::UnitV);
        if method.description().partition == Partition::Symmetric && changes_one {
            return Err(Error::input(format!(
                "{option} {}: the factors of {} are equal, and another scale of one of them ends that; use balanced, sorted or \
                 as-found",
                self.name(),
                method.description().name
            )));
        }
        Ok(())
    }

    /// Whether components keep the scale of the last iterate.
    pub fn keeps(self) -> bool {
        matches!(self, FactorScale::Sorted | FactorScale::AsFound)
    }
}

/// The factors U and V, sorted by descending weight ‖u_k‖‖v_k‖ and scaled as requested; `None` if they stay as they
/// are. All pieces must be shared, each row contributed by one rank. Collective.
pub fn arrange<T: Real>(
    comm: &Communicator,
    scale: FactorScale,
    pieces: &[Piece<'_, T>],
) -> Option<Vec<OwnedPiece<T>>> {
    if scale == FactorScale::AsFound {
        return None;
    }
    let k = pieces.first()?.values.ncols();
    let [u, v] = norms(comm, k, pieces);
    let weights: Vec<f64> = u.iter().zip(&v).map(|(u, v)| u.ln() + v.ln()).collect();
    let order = order(&weights, T::epsilon().as_f64().sqrt());
    let largest_root = order.first().map_or(0.0, |&j| u[j].sqrt() * v[j].sqrt());
    let arranged = |piece: &Piece<'_, T>| {
        debug_assert!(piece.owner == Owner::Shared, "norms of private factors stay with their owners");
        let side = side(piece.name);
        let mut values = piece.values.to_owned();
        for (mut to, &from) in values.columns_mut().into_iter().zip(&order) {
            let factor = scale.factors(u[from], v[from], largest_root)[side];
            to.zip_mut_with(&piece.values.column(from), |to, x| *to = T::from_f64(x.as_f64() * factor));
        }
        let &Piece { name, owner, total_rows, first_row, .. } = piece;
        OwnedPiece { name, owner, total_rows, first_row, values }
    };
    Some(pieces.iter().map(arranged).collect())
}

/// 0 for U and 1 for V.
fn side(name: &str) -> usize {
    usize::from(name == "V")
}

/// The norms of the columns of U and V, equal on all ranks.
fn norms<T: Real>(comm: &Communicator, k: usize, pieces: &[Piece<'_, T>]) -> [Vec<f64>; 2] {
    let mut largest = vec![0.0_f64; 2 * k];
    let each = |act: &mut dyn FnMut(usize, f64)| {
        for piece in pieces {
            for (j, column) in piece.values.columns().into_iter().enumerate() {
                column.iter().for_each(|x| act(side(piece.name) * k + j, x.as_f64()));
            }
        }
    };
    each(&mut |at, x| largest[at] = largest[at].max(x.abs()));
    comm.max(NORMS, &mut largest);
    // Relative to the largest entry, so that no square overflows or vanishes.
    let mut sums = vec![0.0; 2 * k];
    each(&mut |at, x| sums[at] += if largest[at] > 0.0 { (x / largest[at]).powi(2) } else { 0.0 });
    comm.sum(NORMS, &mut sums);
    let all: Vec<f64> = sums.iter().zip(&largest).map(|(sum, largest)| sum.sqrt() * largest).collect();
    let (u, v) = all.split_at(k);
    [u.to_vec(), v.to_vec()]
}

/// The components by descending weight; equal ones keep their order.
pub fn by_weight(weights: &[f64]) -> Vec<usize> {
    let logarithms: Vec<f64> = weights.iter().map(|x| x.ln()).collect();
    order(&logarithms, f64::EPSILON.sqrt())
}

/// The components by descending logarithm of their weight. Weights with a relative difference below `same` count as equal
/// and keep their order, since rounding depends on the number of ranks.
fn order(logarithms: &[f64], same: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logarithms.len()).collect();
    // The logarithm of zero becomes the least integer.
    order.sort_by_key(|&j| Reverse((logarithms[j] / same).round() as i64));
    order
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

    fn pieces<'a>(u: &'a Array2<f64>, v: &'a Array2<f64>) -> [Piece<'a, f64>; 2] {
        [Piece::shared("U", u.nrows(), 0, u.view()), Piece::shared("V", v.nrows(), 0, v.view())]
    }

    #[test]
    fn the_product_stays_and_the_heaviest_component_comes_first() {
        let comm = Communicator::local();
        let u = array![[1.0, 0.0, 3e160, 3.0, 1e-9], [2.0, 0.0, 0.0, 4.0, 1e-9]];
        let v = array![[1.0, 5.0, 2e-160, 6.0, 1e-99], [0.0, 5.0, 1e-160, 8.0, 1e-99]];
        let product = u.dot(&v.t());
        for scale in [FactorScale::UnitV, FactorScale::UnitU, FactorScale::Balanced] {
            let found = arrange(&comm, scale, &pieces(&u, &v)).unwrap();
            let (a, b) = (&found[0].values, &found[1].values);
            assert!((&a.dot(&b.t()) - &product).iter().all(|x| x.abs() < 1e-12), "{scale:?}");
            let norm = |x: &Array2<f64>, j: usize| x.column(j).dot(&x.column(j)).sqrt();
            let weights: Vec<f64> = (0..5).map(|j| norm(a, j) * norm(b, j)).collect();
            assert!(weights.is_sorted_by(|a, b| a >= b) && (weights[0] - 50.0).abs() < 1e-9, "{scale:?}: {weights:?}");
            for j in 0..3 {
                let (u, v) = (norm(a, j), norm(b, j));
                let held = match scale {
                    FactorScale::UnitV => v - 1.0,
                    FactorScale::UnitU => u - 1.0,
                    _ => u - v,
                };
                assert!(held.abs() < 1e-12, "{scale:?}: {u} {v}");
            }
            // Negligible components have the scale of the others.
            let least = if scale == FactorScale::Balanced { 50f64.sqrt() } else { 1.0 };
            let negligible = if scale == FactorScale::UnitU { norm(a, 3) } else { norm(b, 3) };
            assert!((negligible - least).abs() < 1e-12, "{scale:?}: {negligible}");
            // A component that is zero in one factor has no weight.
            assert!(a.column(4).sum() == 0.0 && (norm(b, 4) - least).abs() < 1e-12);
        }
        assert!(arrange(&comm, FactorScale::AsFound, &pieces(&u, &v)).is_none());
    }

    #[test]
    fn equal_weights_keep_their_order() {
        let near = 1.0 + 1e-12;
        assert_eq!(by_weight(&[1.0, near, 0.0, 2.0, 0.0]), [3, 0, 1, 2, 4]);
    }
}

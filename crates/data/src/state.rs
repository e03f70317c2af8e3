//! The data exchanged between a method and the files of a run: rows of matrices, and the state stored in a checkpoint.
//!
//! Methods return these types, and `fednmf-files` writes and reads them; neither depends on the other.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use fednmf_base::error::{Error, Result};

/// A party's matrix (n × k) that is added to V.
pub const OWN_PART: &str = "W";
/// A party's matrix (n × k) whose nonzero components replace those of V.
pub const OWN_COMPONENTS: &str = "V_own";

/// Who may see a part of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Everybody: it is written to the shared file.
    Shared,
    /// One party: its host writes it to that party's file.
    Party(usize),
}

/// Rows of a named matrix that this rank contributes to an output or a checkpoint.
pub struct Piece<'a, T> {
    pub name: &'static str,
    pub owner: Owner,
    /// Number of rows of the whole named matrix of this owner.
    pub total_rows: usize,
    /// The row of the whole matrix that `values` starts at.
    pub first_row: usize,
    pub values: ArrayView2<'a, T>,
}

impl<'a, T> Piece<'a, T> {
    /// Rows `first_row ..` of a shared matrix.
    pub fn shared(name: &'static str, total_rows: usize, first_row: usize, values: ArrayView2<'a, T>) -> Self {
        Piece { name, owner: Owner::Shared, total_rows, first_row, values }
    }

    /// A whole matrix that only `party` may see.
    pub fn private(name: &'static str, party: usize, values: ArrayView2<'a, T>) -> Self {
        Piece { name, owner: Owner::Party(party), total_rows: values.nrows(), first_row: 0, values }
    }
}

/// A [`Piece`] that owns its values.
pub struct OwnedPiece<T> {
    pub name: &'static str,
    pub owner: Owner,
    pub total_rows: usize,
    pub first_row: usize,
    pub values: Array2<T>,
}

impl<T> OwnedPiece<T> {
    pub fn view(&self) -> Piece<'_, T> {
        let &OwnedPiece { name, owner, total_rows, first_row, ref values } = self;
        Piece { name, owner, total_rows, first_row, values: values.view() }
    }
}

/// Everything that a method needs to resume: matrices, and at most one serialisable struct for each owner.
pub struct State<'a, T> {
    pub matrices: Vec<Piece<'a, T>>,
    /// The struct of each owner. Rank 0 writes the shared one; a party's host writes its struct, only to that party's file.
    pub scalars: Vec<(Owner, Value)>,
}

impl<'a, T> From<Vec<Piece<'a, T>>> for State<'a, T> {
    fn from(matrices: Vec<Piece<'a, T>>) -> Self {
        State { matrices, scalars: Vec::new() }
    }
}

impl<T> State<'_, T> {
    /// Adds the struct that `owner` stores in addition to its matrices. Finite floats are restored exactly; use an `Option`
    /// for values that may not be finite.
    #[must_use]
    pub fn with(mut self, owner: Owner, scalars: &impl Serialize) -> Self {
        let value = serde_json::to_value(scalars).expect("the state of a method has text keys only");
        self.scalars.push((owner, value));
        self
    }

    /// Adds one value to the struct of `owner`.
    pub fn extend(&mut self, owner: Owner, name: &str, value: Value) {
        match self.scalars.iter_mut().find(|(of, _)| *of == owner) {
            Some((_, Value::Object(map))) => {
                map.insert(name.to_string(), value);
            }
            _ => self.scalars.push((owner, serde_json::json!({ name: value }))),
        }
    }
}

/// A source of stored matrices: a checkpoint, or the factors of `--init`.
pub trait ReadRows<T> {
    /// Fills `out` with rows `first_row ..` of the named matrix.
    ///
    /// # Errors
    /// If there is no such matrix, or it has another shape.
    fn rows(&self, name: &str, owner: Owner, first_row: usize, out: ArrayViewMut2<'_, T>) -> Result<()>;
}

/// Pieces in memory; a rank gets those that it has.
impl<T: Clone> ReadRows<T> for &[OwnedPiece<T>] {
    fn rows(&self, name: &str, owner: Owner, first_row: usize, mut out: ArrayViewMut2<'_, T>) -> Result<()> {
        let is_it = |piece: &&OwnedPiece<T>| {
            piece.name == name
                && piece.owner == owner
                && piece.first_row == first_row
                && piece.values.dim() == out.dim()
        };
        match self.iter().find(is_it) {
            Some(found) => out.assign(&found.values),
            None if out.is_empty() => {}
            None => return Err(Error::failed(format!("the rows {first_row}.. of {name} are not there"))),
        }
        Ok(())
    }
}

/// A checkpoint from which a method restores its state: the counterpart of [`State`].
pub trait SavedState<T>: ReadRows<T> {
    /// The struct that [`State::with`] stored for `owner`; null if there is none.
    ///
    /// # Errors
    /// If the owner's file is missing or damaged.
    fn scalars(&self, owner: Owner) -> Result<Value>;

    /// Whether shared and party state come from the same iteration. The state of a party that was lost while the others
    /// continued is older.
    fn is_consistent(&self) -> bool {
        true
    }
}

impl<T> dyn SavedState<T> + '_ {
    /// The struct that was stored for `owner`.
    ///
    /// # Errors
    /// If the checkpoint has none, or one with other fields.
    pub fn read<S: DeserializeOwned>(&self, owner: Owner) -> Result<S> {
        serde_json::from_value(self.scalars(owner)?).map_err(|e| {
            Error::input(format!(
                "the checkpoint does not hold the state of this method ({e}); start again without --resume"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    struct InMemory(Vec<(Owner, Value)>);

    impl ReadRows<f64> for InMemory {
        fn rows(&self, name: &str, _: Owner, _: usize, _: ArrayViewMut2<'_, f64>) -> Result<()> {
            Err(Error::input(format!("no matrix {name}")))
        }
    }

    impl SavedState<f64> for InMemory {
        fn scalars(&self, owner: Owner) -> Result<Value> {
            // Through text, as in a file.
            let found = self.0.iter().find(|(o, _)| *o == owner).map_or(Value::Null, |(_, value)| value.clone());
            Ok(serde_json::from_str(&found.to_string()).expect("JSON"))
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Example {
        count: u64,
        numbers: Vec<f64>,
        key: [u8; 32],
        objective: Option<f64>,
    }

    #[test]
    fn every_bit_of_a_struct_comes_back_to_its_owner() {
        // Values whose shortest decimal form is long, subnormal, huge, and a negative zero.
        let mut numbers = vec![0.1 + 0.2, f64::MIN_POSITIVE / 3.0, f64::MAX, 5e-324, -0.0, 1.0 / 3.0];
        numbers.extend((1..2000u64).map(|i| f64::from_bits(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2)));
        let example = Example { count: u64::MAX, numbers, key: [7; 32], objective: None };
        let other = Example { count: 1, numbers: Vec::new(), key: [0; 32], objective: Some(1e-300) };
        let state = State::<f64>::from(Vec::new()).with(Owner::Shared, &example).with(Owner::Party(3), &other);
        let saved = InMemory(state.scalars);
        let saved: &dyn SavedState<f64> = &saved;
        let found: Example = saved.read(Owner::Shared).unwrap();
        assert_eq!(found, example);
        assert!(found.numbers.iter().zip(&example.numbers).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert_eq!(saved.read::<Example>(Owner::Party(3)).unwrap(), other);
        let error = saved.read::<Example>(Owner::Party(2)).unwrap_err();
        assert!(error.exit_code() == 2 && error.message.contains("without --resume"), "{error}");
    }
}

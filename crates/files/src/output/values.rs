//! JSON values as HDF5 attributes: numbers and text as such, Booleans as 0 or 1, lists and objects as JSON text; null is
//! omitted.

use serde_json::{Map, Number, Value};

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// `None` for null.
    pub fn from_json(value: &Value) -> Option<Scalar> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(b) => Scalar::Int(i64::from(*b)),
            Value::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(i), _) => Scalar::Int(i),
                (None, Some(u)) => Scalar::Uint(u),
                (None, None) => Scalar::Float(n.as_f64()?),
            },
            // HDF5 text ends at the first NUL.
            Value::String(s) => Scalar::Text(s.replace('\0', "\u{fffd}")),
            Value::Array(_) | Value::Object(_) => Scalar::Text(value.to_string()),
        })
    }

    /// The JSON value; text that is a JSON list or object is parsed.
    pub fn to_json(&self) -> Value {
        match self {
            Scalar::Int(i) => Value::from(*i),
            Scalar::Uint(u) => Value::from(*u),
            Scalar::Float(x) => Number::from_f64(*x).map_or(Value::Null, Value::Number),
            Scalar::Text(s) if s.starts_with(['{', '[']) => {
                serde_json::from_str(s).unwrap_or_else(|_| Value::String(s.clone()))
            }
            Scalar::Text(s) => Value::String(s.clone()),
        }
    }
}

/// `map` as it is read back from a file: without nulls, with Booleans as numbers.
pub fn after_storage(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter().filter_map(|(name, value)| Some((name.clone(), Scalar::from_json(value)?.to_json()))).collect()
}

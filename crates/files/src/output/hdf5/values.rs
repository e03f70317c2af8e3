//! [`Scalar`]s as HDF5 attributes.

use std::str::FromStr;

use hdf5::types::{FloatSize, IntSize, TypeDescriptor, VarLenAscii, VarLenUnicode};

use crate::output::values::Scalar;

type Outcome<T> = std::result::Result<T, hdf5::Error>;

impl Scalar {
    pub fn write(&self, to: &hdf5::Location, name: &str) -> Outcome<()> {
        match self {
            Scalar::Int(x) => to.new_attr::<i64>().create(name)?.write_scalar(x),
            Scalar::Uint(x) => to.new_attr::<u64>().create(name)?.write_scalar(x),
            Scalar::Float(x) => to.new_attr::<f64>().create(name)?.write_scalar(x),
            Scalar::Text(x) => {
                let text = VarLenUnicode::from_str(x).map_err(|e| hdf5::Error::Internal(e.to_string()))?;
                to.new_attr::<VarLenUnicode>().create(name)?.write_scalar(&text)
            }
        }
    }

    /// Reads an attribute; `None` if its type is not one that is written here.
    pub fn read(from: &hdf5::Location, name: &str) -> Outcome<Option<Scalar>> {
        let attribute = from.attr(name)?;
        Scalar::of(&attribute)
    }

    /// The single value of an attribute or dataset; `None` as for [`Scalar::read`].
    pub fn of(container: &hdf5::Container) -> Outcome<Option<Scalar>> {
        if !container.shape().is_empty() {
            return Ok(None);
        }
        // Damaged text may contain any bytes.
        let text = |bytes: &[u8]| Scalar::Text(String::from_utf8_lossy(bytes).into_owned());
        Ok(Some(match container.dtype()?.to_descriptor()? {
            TypeDescriptor::Boolean => Scalar::Int(i64::from(container.read_scalar::<bool>()?)),
            TypeDescriptor::Integer(_) => Scalar::Int(container.read_scalar()?),
            TypeDescriptor::Unsigned(IntSize::U8) => Scalar::Uint(container.read_scalar()?),
            TypeDescriptor::Unsigned(_) => Scalar::Int(container.read_scalar()?),
            TypeDescriptor::Float(FloatSize::U4 | FloatSize::U8) => Scalar::Float(container.read_scalar()?),
            TypeDescriptor::VarLenUnicode => text(container.read_scalar::<VarLenUnicode>()?.as_bytes()),
            TypeDescriptor::VarLenAscii => text(container.read_scalar::<VarLenAscii>()?.as_bytes()),
            _ => return Ok(None),
        }))
    }
}

/// All readable attributes of a location, by name.
pub fn read_all(from: &hdf5::Location) -> Outcome<Vec<(String, Scalar)>> {
    let mut all = Vec::new();
    for name in from.attr_names()? {
        if let Some(value) = Scalar::read(from, &name)? {
            all.push((name, value));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::output::values::after_storage;

    #[test]
    fn values_survive_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.h5");
        let map = json!({
            "int": -3, "big": u64::MAX, "float": 0.1, "whole": 1.0, "yes": true, "no": false,
            "text": "grün {", "empty": "", "nothing": null,
            "nested": {"mu": 0.1, "sizes": [1, 2], "none": null}, "long": "x".repeat(200_000),
        });
        let Value::Object(map) = map else { unreachable!() };
        let file = hdf5::File::create(&path).unwrap();
        for (name, value) in &map {
            if let Some(scalar) = Scalar::from_json(value) {
                scalar.write(&file, name).unwrap();
            }
        }
        file.close().unwrap();
        let file = hdf5::File::open(&path).unwrap();
        let read: Map<String, Value> = read_all(&file).unwrap().into_iter().map(|(n, s)| (n, s.to_json())).collect();
        let mut expected = map.clone();
        expected.remove("nothing");
        expected.insert("yes".into(), 1.into());
        expected.insert("no".into(), 0.into());
        assert_eq!(read, expected);
        assert_eq!(read, after_storage(&map));
    }
}

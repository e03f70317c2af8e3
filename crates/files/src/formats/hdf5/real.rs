//! HDF5 datasets of [`Real`] elements: calls of the HDF5 bindings with the concrete type, so that `linalg` does not depend
//! on HDF5.

use std::any::Any;

use hdf5::types::TypeDescriptor;
use hdf5::{Dataset, H5Type, Result};
use ndarray::{Array, ArrayView2, Dimension, SliceInfo, SliceInfoElem};

use fednmf_data::policy::rounded;
use fednmf_linalg::{ElementType, Real};

/// The selections that `ndarray::s!` makes of an n-dimensional dataset.
type Slice<const N: usize, D> = SliceInfo<[SliceInfoElem; N], D, D>;

/// The HDF5 type of T.
pub fn descriptor<T: Real>() -> TypeDescriptor {
    if T::TYPE == ElementType::F32 { f32::type_descriptor() } else { f64::type_descriptor() }
}

/// Reads a selection, converted to T.
///
/// # Errors
/// If the HDF5 library cannot read it.
pub fn read<T: Real, const N: usize, D: Dimension + 'static>(
    dataset: &Dataset,
    slice: Slice<N, D>,
) -> Result<Array<T, D>> {
    let is_double = || Ok::<_, hdf5::Error>(dataset.dtype()?.size() > size_of::<f32>());
    if T::TYPE == ElementType::F32 && !is_double()? {
        Ok(same(dataset.read_slice::<f32, _, D>(slice)?))
    } else if T::TYPE == ElementType::F32 {
        // The library makes zeros of what is too small.
        Ok(dataset.read_slice::<f64, _, D>(slice)?.mapv(rounded))
    } else {
        Ok(same(dataset.read_slice::<f64, _, D>(slice)?))
    }
}

/// Writes a matrix to a selection.
///
/// # Errors
/// If the HDF5 library cannot write it.
pub fn write<T: Real>(dataset: &Dataset, matrix: ArrayView2<'_, T>, slice: Slice<2, ndarray::Ix2>) -> Result<()> {
    let shape = matrix.dim();
    let values = matrix.to_slice().ok_or("the matrix is not contiguous")?;
    if T::TYPE == ElementType::F32 {
        dataset.write_slice(ArrayView2::<f32>::from_shape(shape, bytemuck::cast_slice(values))?, slice)
    } else {
        dataset.write_slice(ArrayView2::<f64>::from_shape(shape, bytemuck::cast_slice(values))?, slice)
    }
}

/// Converts between two type parameters that are the same element type.
fn same<A: Real, T: Real, D: Dimension + 'static>(array: Array<A, D>) -> Array<T, D> {
    let array: Box<dyn Any> = Box::new(array);
    *array.downcast().expect("A is T")
}

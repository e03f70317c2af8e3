//! In the place of `hdf5_lists` in a build without the HDF5 library: no file has anything.

use fednmf_base::error::Result;

use super::Names;

pub fn of_file(_path: &str, _dataset: Option<&str>) -> Names {
    Names::default()
}

/// As in a build with HDF5, for no file.
pub fn has_observations(_path: &str) -> bool {
    false
}

pub fn unreadable(_path: &str, _dataset: Option<&str>) -> Result<Vec<String>> {
    Ok(Vec::new())
}

pub fn column_of_frame(_path: &str, _frame: &str, _name: &str) -> Option<Vec<String>> {
    None
}

pub fn columns_of_frame(_path: &str, _name: &str) -> Vec<String> {
    Vec::new()
}

pub fn feature_types(_path: &str, _dataset: Option<&str>) -> Option<(bool, Vec<String>)> {
    None
}

pub fn highly_variable(_path: &str, _dataset: Option<&str>) -> Option<std::result::Result<Vec<bool>, String>> {
    None
}

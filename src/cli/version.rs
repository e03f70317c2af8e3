//! `fednmf --version`: what a bug report needs.

use fednmf_comm as comm;
use fednmf_files as files;
use fednmf_linalg as linalg;

/// Version, commit, libraries and features; `fednmf -V` prints only the version.
pub fn long() -> String {
    let features = [
        ("mpi", cfg!(feature = "mpi")),
        ("sites", cfg!(feature = "sites")),
        ("hdf5", cfg!(feature = "hdf5")),
        ("parquet", cfg!(feature = "parquet")),
        ("paillier", cfg!(feature = "paillier")),
        ("mkl", cfg!(feature = "mkl")),
        ("openblas", cfg!(feature = "openblas")),
    ];
    let built: Vec<&str> = features.iter().filter(|(_, built)| *built).map(|(name, _)| *name).collect();
    let or_none = |library: Option<String>| library.unwrap_or_else(|| "none".into());
    format!(
        "{}\ncommit:   {}\nMPI:      {}\nBLAS:     {}\nHDF5:     {}\nfeatures: {}",
        env!("CARGO_PKG_VERSION"),
        crate::REVISION,
        or_none(comm::library()),
        linalg::blas_version(),
        or_none(files::hdf5_version()),
        built.join(", ")
    )
}

//! Links OpenBLAS, for the feature `openblas`. MKL is linked by `intel-mkl-src`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // As pkg-config says, or where the linker looks.
    #[cfg(feature = "openblas")]
    if pkg_config::probe_library("openblas").is_err() {
        println!("cargo:rustc-link-lib=openblas");
    }
}

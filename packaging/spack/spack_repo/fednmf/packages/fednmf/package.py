"""Spack package of fednmf, for Spack 1.0 or later; the repository is packaging/spack/spack_repo/fednmf."""

from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *


class Fednmf(CargoPackage):
    """Nonnegative and Boolean matrix factorisation over MPI ranks and private parties."""

    license("MIT OR Apache-2.0")

    # There is no release yet: run `spack dev-build fednmf@main` in the source tree.
    version("main")

    variant("mpi", default=True, description="Several ranks; without it the program is one process")
    variant("blas", default="mkl", values=("mkl", "openblas"), multi=False, description="Library of dense products")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    # GMP is built from source.
    depends_on("m4", type="build")
    depends_on("gmake", type="build")
    depends_on("hdf5~mpi")
    # Linked statically, so not needed at run time. It sets MKLROOT, as MPI sets MPICC.
    depends_on("intel-oneapi-mkl threads=none", type="build", when="blas=mkl")
    requires("target=x86_64:", when="blas=mkl")
    with when("blas=openblas"):
        depends_on("openblas threads=none")
        depends_on("pkgconfig", type="build")
    with when("+mpi"):
        depends_on("mpi")
        # bindgen parses mpi.h with libclang.
        depends_on("llvm+clang", type="build")

    @property
    def build_args(self):
        features = ["sites", "hdf5", "parquet", "paillier", self.spec.variants["blas"].value]
        if self.spec.satisfies("+mpi"):
            features.append("mpi")
        return ["--locked", "--no-default-features", "--features", ",".join(features)]

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        env.set("HDF5_DIR", self.spec["hdf5"].prefix)
        if self.spec.satisfies("+mpi"):
            env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)

    @run_after("install")
    def install_manual(self):
        mkdirp(self.prefix.share.man.man1)
        Executable(self.prefix.bin.fednmf)("man", "-o", self.prefix.share.man.man1)

    def check(self):
        Executable(self.prefix.bin.fednmf)("--input", "synthetic:planted,m=60,n=40", "-k", "3", "--max-iters", "5")

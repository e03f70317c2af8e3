"""Spack package of fednmf. packaging/spack is a Spack repository (`spack repo add packaging/spack`)."""

from spack.package import *


class Fednmf(Package):
    """Nonnegative and Boolean matrix factorisation over MPI ranks and private parties."""

    license("MIT OR Apache-2.0")

    # There is no release yet: run `spack dev-build fednmf@main` in the source tree.
    version("main")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    # bindgen parses mpi.h and mkl.h with libclang; GMP is built from source with m4.
    depends_on("llvm+clang", type="build")
    depends_on("m4", type="build")
    depends_on("gmake", type="build")
    depends_on("mpi")
    depends_on("hdf5~mpi")
    # Linked statically, so not needed at run time.
    depends_on("intel-oneapi-mkl threads=none", type="build")

    def setup_build_environment(self, env):
        env.set("MKLROOT", self.spec["intel-oneapi-mkl"].package.component_prefix)
        env.set("HDF5_DIR", self.spec["hdf5"].prefix)
        env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)
        env.set("MPICC", self.spec["mpi"].mpicc)
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))

    def install(self, spec, prefix):
        cargo = Executable(spec["rust"].prefix.bin.cargo)
        cargo("build", "--release", "--locked")
        binary = join_path("target", "release", "fednmf")
        mkdirp(prefix.bin)
        install(binary, prefix.bin)
        program = Executable(binary)
        mkdirp(prefix.share.man.man1)
        with open(join_path(prefix.share.man.man1, "fednmf.1"), "w") as page:
            page.write(program("man", output=str))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def factorises(self):
        Executable(self.prefix.bin.fednmf)("--input", "synthetic:planted,m=60,n=40", "-k", "3", "--max-iters", "5")

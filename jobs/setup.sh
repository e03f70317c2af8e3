#!/usr/bin/env bash
# Installs what fednmf needs and is missing; harmless to run again.
#
#   jobs/setup.sh          install (system packages need root or sudo)
#   jobs/setup.sh --env    only print the exports that cargo and mpirun need
#
# Nothing is installed where it is already there: an MPI with `mpicc` on the PATH, an HDF5 with HDF5_DIR set or known
# to pkg-config or h5cc, an MKL in MKLROOT (for example by `module load`) are taken as they are.
#
#   MPI=openmpi|mpich      which MPI to install and to build with (default: the one that mpicc belongs to, else openmpi)
#   FEDNMF_MKL=DIR         where MKL goes (default: ~/.cache/fednmf/mkl-VERSION)
set -euo pipefail

MKL_VERSION=2026.2.0
MKL_DIR=${FEDNMF_MKL:-${XDG_CACHE_HOME:-$HOME/.cache}/fednmf/mkl-$MKL_VERSION}
MKL_LIBS="libmkl_intel_lp64.a libmkl_sequential.a libmkl_core.a"

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

mkl_root() { # the MKLROOT to build with
    if [ -n "${MKLROOT:-}" ]; then printf '%s' "$MKLROOT"; else printf '%s' "$MKL_DIR"; fi
}

mkl_lib_dir() { # where the static libraries lie below an MKLROOT (old releases: lib/intel64)
    local d
    for d in "$1/lib" "$1/lib/intel64"; do
        [ -f "$d/libmkl_core.a" ] && { printf '%s' "$d"; return 0; }
    done
    return 1
}

mpi_found() { # openmpi | mpich | other | nothing, by the mpicc of the PATH
    have mpicc || return 0
    case "$(mpicc -show 2>/dev/null; mpirun --version 2>/dev/null)" in
        *"Open MPI"* | *openmpi* | *open-mpi*) echo openmpi ;;
        *mpich* | *MPICH* | *HYDRA*) echo mpich ;;
        *) echo other ;;
    esac
}

env_lines() {
    printf 'export MKLROOT=%q\n' "$(mkl_root)"
    # Containers and CI run as root; without this Open MPI refuses to.
    if [ "$(id -u)" = 0 ]; then
        printf 'export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n'
    fi
    # The wrapper that mpi-sys asks for its flags.
    case "${MPI:-}" in
        mpich) have mpicc.mpich && printf 'export MPICC=mpicc.mpich\n' ;;
        openmpi) have mpicc.openmpi && printf 'export MPICC=mpicc.openmpi\n' ;;
    esac
    return 0
}

missing_packages() {
    local want=""
    have cc && have make || want="$want build-essential"
    have pkg-config || want="$want pkg-config"
    # bindgen loads libclang when the MPI bindings are generated
    if [ -z "${LIBCLANG_PATH:-}" ] && ! { ldconfig -p 2>/dev/null; ls /usr/lib/llvm-*/lib 2>/dev/null; } \
        | grep -E 'libclang(-[0-9.]+)?\.so' >/dev/null; then
        want="$want libclang-dev"
    fi
    case "${MPI:-$(mpi_found)}" in
        openmpi) have mpicc.openmpi || [ "$(mpi_found)" = openmpi ] || want="$want libopenmpi-dev openmpi-bin" ;;
        mpich) have mpicc.mpich || [ "$(mpi_found)" = mpich ] || want="$want libmpich-dev mpich" ;;
        "") want="$want libopenmpi-dev openmpi-bin" ;;
    esac
    [ -n "${HDF5_DIR:-}" ] || have h5cc || pkg-config --exists hdf5 2>/dev/null || pkg-config --exists hdf5-serial 2>/dev/null \
        || want="$want libhdf5-dev"
    if ! mkl_lib_dir "$(mkl_root)" >/dev/null; then
        have python3 || want="$want python3"
        python3 -m pip --version >/dev/null 2>&1 || want="$want python3-pip"
    fi
    printf '%s' "$want"
}

install_packages() {
    local want sudo=""
    want=$(missing_packages)
    [ -n "$want" ] || return 0
    have apt-get || die "missing:$want (names as on Debian); install their counterparts, or load them as modules, and run this again"
    if [ "$(id -u)" != 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then
            sudo="sudo"
        else
            die "not root: ask for these packages, then run this again:  sudo apt-get install$want"
        fi
    fi
    say "installing$want"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get -q -o DPkg::Lock::Timeout=300 update >/dev/null
    # shellcheck disable=SC2086  # a list of words
    $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $want >/dev/null
}

install_mkl() {
    if [ -n "${MKLROOT:-}" ]; then
        mkl_lib_dir "$MKLROOT" >/dev/null || die "MKLROOT=$MKLROOT holds no static MKL (libmkl_core.a); unset it to have one installed"
        return 0
    fi
    mkl_lib_dir "$MKL_DIR" >/dev/null && [ -f "$MKL_DIR/include/mkl.h" ] && return 0
    say "installing MKL $MKL_VERSION into $MKL_DIR (250 MB to load, 0.6 GB on disk)"
    local work lib
    mkdir -p "$(dirname "$MKL_DIR")"
    work=$(mktemp -d "$MKL_DIR.XXXXXX")
    # shellcheck disable=SC2064  # the value of now
    trap "rm -rf '$work'" EXIT
    # A wheel is a zip file: unpacked by hand, every pip's own install scheme is out of the way.
    python3 -m pip download -q --no-deps --only-binary :all: --disable-pip-version-check -d "$work" \
        "mkl-static==$MKL_VERSION" "mkl-include==$MKL_VERSION"
    for wheel in "$work"/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/unpacked"
        rm "$wheel"
    done
    mkdir -p "$work/root/lib"
    for lib in $MKL_LIBS; do
        mv "$work"/unpacked/mkl_static-*.data/data/lib/"$lib" "$work/root/lib/"
    done
    mv "$work"/unpacked/mkl_include-*.data/data/include "$work/root/include"
    rm -rf "$MKL_DIR"
    mv "$work/root" "$MKL_DIR" # whole or not at all
}

[ "${1:-}" = --env ] && { env_lines; exit 0; }
have cargo || [ -x "$HOME/.cargo/bin/cargo" ] || die "no cargo: install Rust 1.89 or later (https://rustup.rs), then run this again"
install_packages
install_mkl
say "ready (MKLROOT=$(mkl_root), $(mpicc --version 2>/dev/null | head -n 1))"

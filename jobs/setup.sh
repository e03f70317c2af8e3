#!/usr/bin/env bash
# Installs whatever is missing to build and run fednmf. Running it again is harmless.
#
#   jobs/setup.sh           install (system packages need root or sudo; otherwise prints the packages to ask for)
#   jobs/setup.sh --tests   the same, and python3 and shellcheck for the tests (shellcheck if available)
#   jobs/setup.sh --check   install nothing; fail and print what is missing
#   jobs/setup.sh --env     only print the exports needed by cargo and mpirun
#
# What is present is used, environment modules included: an MPI whose `mpicc` is on the PATH, an HDF5 given by HDF5_DIR
# (or HDF5_ROOT, HDF5_HOME, EBROOTHDF5, or its h5cc on the PATH), an MKL given by MKLROOT.
#
#   MPI=openmpi|mpich|none  which MPI to build with, or none (default: that of mpicc, else Open MPI)
#   BLAS=mkl|openblas       which BLAS to build with (default: mkl); OpenBLAS is that of the system, on any processor
#   FEDNMF_MKL=DIR          where to install MKL (default: ~/.cache/fednmf/mkl-VERSION)
#   FEDNMF_QUIET=1          print nothing if nothing was missing
set -euo pipefail
shopt -s nullglob

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

MKL_VERSION=2026.2.0
MKL_DIR=${FEDNMF_MKL:-${XDG_CACHE_HOME:-$HOME/.cache}/fednmf/mkl-$MKL_VERSION}
MKL_LIBS=(libmkl_intel_lp64.a libmkl_sequential.a libmkl_core.a)
MKL_WHEELS="mkl-static==$MKL_VERSION --hash=sha256:090e439bf202b45579c75d2ba50ff7ead05752d553a06aba79c3ed2b5247921b
mkl-include==$MKL_VERSION --hash=sha256:889cc72057a1671fee1e9a8beb2fc4e0d222ba78c08b6d69584dae03fbec4822"

work="" # a scratch directory, removed on exit
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- what is present -----------------------------------------------------------------------------------------------

cargo_bin() { # the directory of cargo
    local c
    c=$(command -v cargo) && { dirname "$c"; return 0; }
    for c in "${CARGO_HOME:-$HOME/.cargo}/bin" "$HOME/.cargo/bin"; do
        [ -x "$c/cargo" ] && { printf '%s' "$c"; return 0; }
    done
    return 1
}

uses_mkl() { [ "${BLAS:-mkl}" = mkl ]; }

mkl_root() { # the MKLROOT to build with
    printf '%s' "${MKLROOT:-$MKL_DIR}"
}

mkl_complete() { # does this MKLROOT have the static libraries (old releases: in lib/intel64) and the header?
    local lib dir
    [ -f "$1/include/mkl.h" ] || return 1
    for dir in "$1/lib" "$1/lib/intel64"; do
        for lib in "${MKL_LIBS[@]}"; do
            [ -f "$dir/$lib" ] || continue 2
        done
        return 0
    done
    return 1
}

mkl_missing() { uses_mkl && ! mkl_complete "$(mkl_root)"; }

openblas_found() { # what the build asks, or the library where the linker looks
    local lib
    pkg-config --exists openblas 2>/dev/null && return 0
    for lib in /usr/lib/libopenblas.so /usr/lib64/libopenblas.so /usr/lib/*-linux-gnu/libopenblas.so; do
        [ -f "$lib" ] && return 0
    done
    return 1
}

cc_works() { # a compiler with the C library's headers
    have cc && printf '#include <stdlib.h>\n' | cc -E -x c - >/dev/null 2>&1
}

mpi_found() { # openmpi | mpich | other | nothing, from the mpicc on the PATH
    have mpicc || return 0
    # A wrapper without headers (a run-time package) cannot build.
    if cc_works && ! printf '#include <mpi.h>\n' | mpicc -E -x c - >/dev/null 2>&1; then return 0; fi
    case "$(mpicc -show 2>/dev/null; mpirun --version 2>/dev/null)" in
        *"Open MPI"* | *openmpi* | *open-mpi* | *"Open RTE"*) echo openmpi ;;
        *mpich* | *MPICH* | *HYDRA*) echo mpich ;;
        *) echo other ;;
    esac
}

libclang_found() { # the library that bindgen loads, and its compiler headers
    local lib dir
    [ -n "${LIBCLANG_PATH:-}" ] && return 0
    local dirs=(/usr/lib/llvm-*/lib /usr/lib/*-linux-gnu /usr/lib64/llvm*/lib* /usr/lib64 /usr/lib /usr/local/lib*
        /usr/local/llvm*/lib*)
    have llvm-config && dirs+=("$(llvm-config --libdir)")
    for dir in "${dirs[@]}"; do
        for lib in "$dir"/libclang.so* "$dir"/libclang-[0-9]*.so*; do # not libclang-cpp: it has no C interface
            set -- "$(dirname "$(readlink -f "$lib")")"/clang/*/include/stddef.h /usr/lib/clang/*/include/stddef.h
            [ $# -gt 0 ] && return 0
        done
    done
    return 1
}

hdf5_dir() { # the HDF5_DIR to export, if the bindings' build would not find HDF5 by itself
    local dir tool
    for dir in "${HDF5_DIR:-}" "${HDF5_ROOT:-}" "${HDF5_HOME:-}" "${EBROOTHDF5:-}"; do
        [ -n "$dir" ] && [ -f "$dir/include/H5pubconf.h" ] && { printf '%s' "$dir"; return 0; }
    done
    for tool in h5cc h5pcc; do
        dir=$(command -v "$tool") || continue
        dir=$(dirname "$(dirname "$dir")")
        # The library of a conda environment would not be found at run time.
        [ "$dir" = /usr ] || [ "$dir" = "${CONDA_PREFIX:-}" ] && continue
        [ -f "$dir/include/H5pubconf.h" ] && { printf '%s' "$dir"; return 0; }
    done
    return 1
}

hdf5_found() {
    local dir
    hdf5_dir >/dev/null && return 0
    for dir in /usr/include/hdf5/serial /usr/include $(pkg-config --cflags-only-I hdf5 2>/dev/null); do
        [ -f "${dir#-I}/H5pubconf.h" ] && return 0
    done
    return 1
}

# --- the environment -----------------------------------------------------------------------------------------------

env_lines() {
    local dir
    if ! have cargo && dir=$(cargo_bin); then printf 'export PATH=%q\n' "$dir:$PATH"; fi
    if uses_mkl; then printf 'export MKLROOT=%q\n' "$(mkl_root)"; fi
    if dir=$(hdf5_dir); then printf 'export HDF5_DIR=%q\n' "$dir"; fi
    # The compiler wrapper that the MPI bindings query, and its launcher.
    case "${MPI:-}" in
        openmpi | mpich)
            have "mpicc.$MPI" && printf 'export MPICC=mpicc.%s\n' "$MPI"
            have "mpirun.$MPI" && printf 'export FEDNMF_MPIRUN=mpirun.%s\n' "$MPI"
            ;;
    esac
    # Allow more ranks than cores in Open MPI, up to 4 and from 5 on; MPICH always allows it.
    printf 'export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe\n'
    # Containers and CI run as root, which Open MPI refuses without these.
    if [ "$(id -u)" = 0 ]; then
        printf 'export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n'
        printf 'export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1\n'
    fi
}

# --- installing ----------------------------------------------------------------------------------------------------

check_machine() {
    local dir need got
    case "${BLAS:-}" in "" | mkl | openblas) ;; *) die "BLAS=$BLAS: must be mkl or openblas" ;; esac
    ! uses_mkl || [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] \
        || die "MKL requires Linux on x86-64, not $(uname -s) on $(uname -m); BLAS=openblas builds with OpenBLAS"
    case "${MPI:-}" in "" | openmpi | mpich | none) ;; *) die "MPI=$MPI: must be openmpi, mpich or none" ;; esac
    need=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$here/Cargo.toml")
    dir=$(cargo_bin) || die "no cargo: install Rust $need or later (https://rustup.rs), then run this again"
    got=$("$dir/cargo" --version 2>/dev/null | cut -d' ' -f2) || got=""
    [ -n "$got" ] || die "$dir/cargo does not run; choose a toolchain with 'rustup default stable', then run this again"
    printf '%s\n%s\n' "$need" "${got%%-*}" | sort -V -C \
        || die "$dir/cargo is $got, but Rust $need or later is required: run 'rustup update stable'" \
            "(https://rustup.rs; the cargo of a distribution is often too old)"
    if [ -n "${HDF5_DIR:-}" ] && [ ! -f "$HDF5_DIR/include/H5pubconf.h" ]; then
        die "HDF5_DIR=$HDF5_DIR has no include/H5pubconf.h; load the HDF5 module, or unset HDF5_DIR to install one"
    fi
    if uses_mkl && [ -n "${MKLROOT:-}" ] && ! mkl_complete "$MKLROOT"; then
        die "MKLROOT=$MKLROOT lacks one of ${MKL_LIBS[*]} or include/mkl.h; unset MKLROOT to have MKL installed"
    fi
}

launcher() { have mpirun || have mpiexec || have srun; }

missing_packages() {
    local want="" found
    cc_works || want="$want gcc libc6-dev"
    have make || want="$want make"
    have m4 || want="$want m4" # for building GMP
    have diff || want="$want diffutils"
    have pkg-config || want="$want pkg-config"
    [ "${MPI:-}" = none ] || libclang_found || want="$want libclang-dev" # for the MPI bindings
    found=$(mpi_found)
    case "${MPI:-$found}" in
        openmpi) have mpicc.openmpi && have mpirun.openmpi || [ "$found" = openmpi ] && launcher \
            || want="$want libopenmpi-dev openmpi-bin" ;;
        mpich) have mpicc.mpich && have mpirun.mpich || [ "$found" = mpich ] && launcher \
            || want="$want libmpich-dev mpich" ;;
        none) ;;
        other) launcher || say "no mpirun, mpiexec or srun on the PATH: fednmf can be built but not run" ;;
        # the bindings' build handles explicit choices and Cray's front end
        *) [ -n "${MPICC:-}${MPI_PKG_CONFIG:-}${CRAY_MPICH_DIR:-}" ] || want="$want libopenmpi-dev openmpi-bin" ;;
    esac
    hdf5_found || want="$want libhdf5-dev"
    # The variant without threads gives wrong products to the threads of a run.
    uses_mkl || openblas_found || want="$want libopenblas-pthread-dev"
    if mkl_missing; then
        have python3 || want="$want python3"
        python3 -m pip --version >/dev/null 2>&1 || want="$want python3-pip"
    fi
    printf '%s' "$want"
}

install_packages() { # the packages' names; returns 1 if the user lacks the permission
    local sudo=() hint=""
    if [ "$(id -u)" != 0 ]; then
        have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; } || return 1
        sudo=(sudo)
    fi
    say "installing $*"
    grep -qs '^ID=ubuntu' /etc/os-release && hint="; on Ubuntu they are in 'universe': add-apt-repository universe"
    sudo+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
    "${sudo[@]}" update >/dev/null || say "apt-get update failed; continuing with the existing package lists"
    "${sudo[@]}" install -y --no-install-recommends "$@" >/dev/null </dev/null || die "apt-get could not install $*$hint"
}

install_mkl() {
    local lib wheel
    say "installing MKL $MKL_VERSION into $MKL_DIR (250 MB to download, 0.6 GB on disk)"
    mkdir -p "$(dirname "$MKL_DIR")"
    work=$(mktemp -d "$MKL_DIR.XXXXXX")
    # A wheel is a zip file; unpacking it directly avoids the install schemes of different pips.
    printf '%s\n' "$MKL_WHEELS" >"$work/requirements"
    PIP_REQUIRE_VIRTUALENV=0 python3 -m pip download -q --no-deps --only-binary :all: --disable-pip-version-check \
        --require-hashes -r "$work/requirements" -d "$work" \
        || die "cannot download MKL from the Python package index; behind a proxy set https_proxy," \
            "or set MKLROOT to an installed MKL"
    for wheel in "$work"/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/unpacked"
        rm "$wheel"
    done
    mkdir -p "$work/root/lib"
    for lib in "${MKL_LIBS[@]}"; do
        mv "$work"/unpacked/mkl_static-*.data/data/lib/"$lib" "$work/root/lib/"
    done
    mv "$work"/unpacked/mkl_include-*.data/data/include "$work/root/include"
    mv "$work"/unpacked/mkl_static-*.dist-info/LICENSE.txt \
        "$work"/unpacked/mkl_static-*.data/data/share/doc/mkl/licensing/third-party-programs.txt "$work/root/"
    # Complete or not at all; a concurrent setup may have finished first.
    mkl_complete "$MKL_DIR" || { rm -rf "$MKL_DIR"; mv -T "$work/root" "$MKL_DIR"; }
}

check() { # ends the script
    local want
    check_machine
    want=$(missing_packages)
    ! mkl_missing || want="$want MKL"
    [ -z "$want" ] || die "missing:$want; run ${MPI:+MPI=$MPI }${BLAS:+BLAS=$BLAS }$here/jobs/setup.sh, which installs them" \
        "or prints what to ask for"
    exit 0
}

main() {
    local want tests="" did=""
    case "${1:-}" in
        --env) env_lines; return 0 ;;
        --tests) tests=1 ;;
        --check) check ;;
        "") ;;
        *) die "unknown argument $1 (known: --tests, --check, --env)" ;;
    esac
    check_machine
    # Without a compiler an mpicc without headers passes for one with them, so what is missing may need a second look.
    for _ in 1 2; do
        want=$(missing_packages)
        [ -n "$want" ] || break
        have apt-get || die "missing:$want (Debian package names); install the equivalents or load them as modules," \
            "then run this again"
        # shellcheck disable=SC2086  # a list of words
        install_packages $want \
            || die "installing needs root or sudo; ask for these packages, or load MPI and HDF5 as modules," \
                "then run this again:
    apt-get install --no-install-recommends$want"
        did=1
    done
    want=$(missing_packages)
    [ -z "$want" ] || die "still missing after installation:$want"
    if mkl_missing; then install_mkl; did=1; fi
    if [ -n "$tests" ] && ! have python3 && have apt-get; then
        install_packages python3 || say "no python3: the test of bench/reproduce will fail"
    fi
    if [ -n "$tests" ] && ! have shellcheck && have apt-get; then
        install_packages shellcheck || say "no shellcheck: the scripts will not be linted"
    fi
    { [ -n "${FEDNMF_QUIET:-}" ] && [ -z "$did" ]; } || say "ready ($(uses_mkl && echo "MKLROOT=$(mkl_root)" || echo OpenBLAS))"
}
main "$@"

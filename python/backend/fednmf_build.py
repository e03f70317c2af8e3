"""The build of the package for pip: maturin, in the environment that `jobs/setup.sh` finds.

In a checkout it says what is missing before anything is compiled. Elsewhere, and with FEDNMF_SETUP=0, the environment
is left as it is. BLAS=openblas builds with OpenBLAS in place of MKL.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import maturin
from maturin import (  # noqa: F401
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

_ROOT = Path(__file__).resolve().parents[2]


def _prepare():
    openblas = os.environ.get("BLAS") == "openblas"
    if openblas:
        os.environ.setdefault("MATURIN_PEP517_ARGS", "--no-default-features --features openblas")
    script = _ROOT / "jobs" / "setup.sh"
    if not script.exists() or os.environ.get("FEDNMF_SETUP") == "0":
        return
    os.environ["MPI"] = "none"
    checked = subprocess.run(["bash", str(script), "--check"], stderr=subprocess.PIPE, text=True)
    if checked.returncode != 0:
        sys.exit(f"fednmf cannot be built here:\n{checked.stderr}")
    exports = subprocess.run(["bash", str(script), "--env"], stdout=subprocess.PIPE, text=True, check=True).stdout
    for word in (word for line in exports.splitlines() for word in shlex.split(line)[1:]):
        name, _, value = word.partition("=")
        os.environ[name] = value
    # That of the program, which has the same dependencies.
    suffix = "-none-openblas" if openblas else ""
    os.environ.setdefault("CARGO_TARGET_DIR", str(_ROOT / f"target{suffix}"))


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    _prepare()
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    _prepare()
    return maturin.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _prepare()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _prepare()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)

"""The same settings give the same bits as the program, with any kernels."""

import os
import shutil
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp

from fednmf import _fednmf, _run

PROGRAM = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))


@pytest.mark.skipif(PROGRAM is None, reason="no program fednmf on the PATH")
@pytest.mark.parametrize("kernel", ["native", "mkl", "auto"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("algo", ["hals", "auto", "kl-mu"])
def test_the_factors_are_those_of_the_program(tmp_path, kernel, form, algo):
    rng = np.random.default_rng(3)
    X = rng.random((70, 40)) * (rng.random((70, 40)) < (0.3 if form == "sparse" else 1.0))
    if kernel == "mkl" and "OpenBLAS" in subprocess.check_output([PROGRAM, "--version"], text=True):
        pytest.skip("built with OpenBLAS")
    path, out = tmp_path / ("x.npz" if form == "sparse" else "x.npy"), tmp_path / "out.npz"
    if form == "sparse":
        X = sp.csr_matrix(X)
        sp.save_npz(path, X)
    else:
        np.save(path, X)
    line = [PROGRAM, f"--input={path}", f"--algo={algo}", "-k=4", "--seed=5", "--max-iters=30", f"--kernel={kernel}"]
    subprocess.run([*line, f"--output={out}", "--factor-scale=sorted", "--quiet"], check=True, capture_output=True)
    theirs = np.load(out)
    settings = {
        "algo": algo,
        "options": [],
        "k": 4,
        "seed": 5,
        "max_iters": 30,
        "tol": None,
        "target_error": None,
        "time_limit": None,
        "eval_every": 10,
        "scale": "sorted",
        "threads": 1,
        "kernel": kernel,
        "mixed_precision": False,
        "callback": None,
    }
    factors, _ = _fednmf.factorize([_run.native(X)], "float64", settings)
    for name, _, values in factors:
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="kernel"):
        _run.factorize(
            [np.ones((3, 2))], algo="hals", k=1, random_state=0, max_iter=1, options={}, kernel="fast"
        )

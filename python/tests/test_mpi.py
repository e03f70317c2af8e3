"""fednmf.mpi: the program under mpirun. FEDNMF_BINARY names the program, otherwise it is looked for on the PATH."""

import os
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

import fednmf

BINARY = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))
pytestmark = pytest.mark.skipif(
    BINARY is None or shutil.which("mpirun") is None, reason="needs mpirun and the program fednmf"
)
# Containers run as root and may have one core.
ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(1)
    return rng.random((60, 3)) @ rng.random((3, 40))


def run(data, ranks=2, k=3, **params):
    return fednmf.mpi(data, k, ranks=ranks, binary=BINARY, env=ENV, **params)


@pytest.mark.parametrize("form", [np.array, sp.csr_matrix, np.asfortranarray])
def test_two_ranks_factorise_an_array(planted, form):
    found = run(form(planted), max_iter=500)
    error = np.linalg.norm(planted - found.W @ found.H) / np.linalg.norm(planted)
    assert error < 0.02 and found.measures["rel_error"] == pytest.approx(error, rel=1e-6)
    assert found.trace[0]["event"] == "start" and found.trace[0]["ranks"] == 2
    assert found.n_iter == 500 and found.stopped_by == "max_iters" and set(found.factors) == {"U", "V"}


def test_files_and_options_reach_the_program(planted, tmp_path):
    np.save(tmp_path / "planted.npy", planted)
    one = run(tmp_path / "planted.npy", ranks=1, algo="hals", random_state=7, max_iter=20, alpha_u=0.001)
    two = run(str(tmp_path / "planted.npy"), algo="hals", random_state=7, max_iter=20, alpha_u=0.001)
    np.testing.assert_allclose(one.W @ one.H, two.W @ two.H, rtol=1e-6)
    assert two.trace[0]["params"]["alpha_u"] == 0.001 and two.trace[0]["seed"] == 7


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_messages_of_the_program_are_exceptions(planted, ranks):
    for data, k, params, message in [
        ("/nonexistent.npy", 3, {}, "^/nonexistent.npy: no such file$"),
        (planted, 50, {}, "^--components 50: the matrix is 60 x 40"),
        (-planted, 3, {}, "negative"),
        (planted, 3, {"algo": "fnm"}, "fnm"),
    ]:
        with pytest.raises(ValueError, match=message):
            run(data, ranks, k, **params)
    with pytest.raises(ValueError, match="output: is no option"):
        run(planted, ranks, output="u.h5")


def test_what_is_not_installed_is_named(planted):
    with pytest.raises(FileNotFoundError, match="make install"):
        fednmf.mpi(planted, 3, ranks=2, binary="/nonexistent/fednmf")
    with pytest.raises(FileNotFoundError, match="another launcher"):
        fednmf.mpi(planted, 3, ranks=2, binary=BINARY, launcher="no-mpirun")


@pytest.mark.parametrize("algo", ["hals", "kl-mu", "symnmf"])
def test_factors_of_divided_data_are_in_the_units_of_the_input(planted, algo):
    X = 70 * (planted if algo != "symnmf" else planted @ planted.T)
    plain, divided = (run(X, ranks=1, algo=algo, max_iter=300, **scale) for scale in ({}, {"scale": "max"}))
    for found in (plain, divided):
        assert np.linalg.norm(X - found.W @ found.H) < 0.1 * np.linalg.norm(X)
    ones = run(X, ranks=1, binarize="0.5", scale="max", max_iter=20)
    assert np.linalg.norm((X >= 0.5 * X.max()) - ones.W @ ones.H) < np.linalg.norm(X >= 0.5 * X.max())
    assert divided.measures["rel_error"] == pytest.approx(plain.measures["rel_error"], abs=1e-2)


def test_a_private_factor_is_not_the_result(planted):
    found = run(planted, ranks=1, algo="secure-hals", parties=2, max_iter=3, accept_risk="few-rows,membership,few-values")
    assert found.W.shape[0] == planted.shape[0]
    with pytest.raises(AttributeError, match="V is private"):
        found.H


def test_what_is_no_matrix_is_refused(planted):
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    frame = pandas.DataFrame(planted)
    frame[3] = "x"
    for data, message in [(anndata.AnnData(planted), "AnnData"), (frame, "could not convert"), (planted[0], "2D")]:
        with pytest.raises(ValueError, match=message):
            run(data)

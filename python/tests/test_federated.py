"""fednmf.federated."""

import numpy as np
import pytest
import scipy.sparse as sp

import fednmf


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(2)
    return rng.random((60, 3)) @ rng.random((3, 40))


def test_private_rows(planted):
    parts = [planted[:20], planted[20:35], planted[35:]]
    found = fednmf.federated(parts, n_components=3, algo="fnmf", max_iter=200, random_state=0)
    V = found.shared["V"]
    assert V.shape == (40, 3) and found.n_iter == 200
    for part, private in zip(parts, found.private):
        assert np.linalg.norm(part - private["U"] @ V.T) < 0.2 * np.linalg.norm(part)


@pytest.mark.parametrize("options", [{}, {"secure_sum": True}])
def test_private_columns(planted, options):
    parts = [planted[:, :10], planted[:, 10:]]
    found = fednmf.federated(parts, n_components=3, algo="secure-hals", max_iter=300, random_state=0, **options)
    U = found.shared["U"]
    assert U.shape == (60, 3) and [private["V"].shape for private in found.private] == [(10, 3), (30, 3)]
    error = sum(np.linalg.norm(part - U @ private["V"].T) ** 2 for part, private in zip(parts, found.private)) ** 0.5
    assert error < 0.05 * np.linalg.norm(planted)
    assert found.measures["rel_error"] == pytest.approx(error / np.linalg.norm(planted), rel=1e-3)


def test_the_ledger_has_the_bytes_of_the_formula(planted):
    parts = [planted[:, :10], planted[:, 10:]]
    some = {"n_components": 3, "algo": "secure-hals", "random_state": 0, "eval_every": 0}
    runs = [fednmf.federated(parts, max_iter=n, **some) for n in (10, 20)]
    # Of each of ten iterations: both parties send and receive M V (60 x 3) and V'V (3 x 3) once.
    of = [{sent.payload: sent for sent in run.ledger if sent.payload in ("Product", "Gram")} for run in runs]
    for payload, numbers in (("Product", 60 * 3), ("Gram", 3 * 3)):
        short, long = (ledger[payload] for ledger in of)
        assert long.rounds - short.rounds == 10 and short.protection == "in the clear"
        assert (long.bytes - short.bytes) % (10 * 2 * numbers * 8) == 0 < long.bytes - short.bytes
    masked = fednmf.federated(parts, max_iter=10, secure_sum=True, **some).ledger
    assert any(sent.protection == "masked" and sent.payload == "Masked" for sent in masked)
    assert not any(sent.payload in ("Product", "Gram") for sent in masked)


def test_neighbours_have_edges(planted):
    parts = np.array_split(planted, 4, axis=1)
    found = fednmf.federated(parts, n_components=2, algo="ppdnmf", max_iter=2, random_state=0, plain=True)
    assert found.edges and all(edge.sender != edge.receiver and edge.bytes > 0 for edge in found.edges)
    pairs = {(edge.sender, edge.receiver) for edge in found.edges}
    assert pairs == {(receiver, sender) for sender, receiver in pairs}
    assert not fednmf.federated(parts, n_components=2, algo="secure-hals", max_iter=2).edges


METHODS = [method for method in fednmf.methods() if method.parties]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_with_parties_returns_factors(planted, method):
    # Rows may be Boolean. Sketches of whole numbers would be refused, because they tell too much.
    X = (planted > np.median(planted)).astype(np.float64) if method.parties == "rows" else planted
    parts = np.array_split(X, 4, axis=0 if method.parties == "rows" else 1)
    # Without --plain it would encrypt for minutes.
    options = {"plain": True} if method.name == "ppdnmf" else {}
    found = fednmf.federated(parts, n_components=2, algo=method.name, max_iter=2, random_state=0, **options)
    assert len(found.private) == 4 and (found.shared or all(found.private))
    for values in [*found.shared.values(), *(v for private in found.private for v in private.values())]:
        assert np.isfinite(values).all() and values.shape[1] == 2


def test_sparse_parts_and_float32(planted):
    parts = [sp.csr_matrix(planted[:30].astype(np.float32)), planted[30:].astype(np.float32)]
    found = fednmf.federated([parts[0], sp.csr_matrix(parts[1])], n_components=3, max_iter=5, random_state=0)
    assert found.shared["V"].dtype == np.float32
    mixed = fednmf.federated([planted[:30].astype(np.float32), planted[30:]], n_components=3, max_iter=5)
    assert mixed.shared["V"].dtype == np.float64


def test_a_callback_sees_the_run_and_ends_it(planted):
    seen = []
    fednmf.federated([planted], n_components=3, max_iter=30, callback=lambda i, measures: seen.append((i, measures)))
    assert seen and seen[-1][0] <= 30 and "rel_error" in seen[-1][1]

    def stop(iteration, measures):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        fednmf.federated([planted], n_components=3, max_iter=10**7, callback=stop)


def test_wrong_parts_and_options_are_refused(planted):
    refused = [
        (([planted, planted[:, :10]],), {}, "party 1 has another number of columns than party 0"),
        (([planted],), {"algo": "hals"}, "takes one matrix; methods with parties are"),
        (([],), {}, "parts is empty"),
        (([-planted],), {"algo": "secure-hals"}, "negative"),
        (([planted],), {"nothing": 1}, "fnmf: .*--nothing"),
        (([planted],), {"n_components": 0}, "n_components=0"),
    ]
    for args, params, message in refused:
        with pytest.raises(ValueError, match=message):
            fednmf.federated(*args, **{"n_components": 3, **params})


def test_a_result_is_shown_in_a_line():
    found = fednmf.federated([np.random.default_rng(i).random((30, 12)) for i in range(3)], n_components=2, max_iter=3)
    assert len(repr(found)) < 200 and "3 parties" in repr(found) and "V: (12, 2)" in repr(found)

"""fednmf.federated."""

import inspect
import os
import re
import shutil
import subprocess
import warnings

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
        (([planted],), {"nothing": 1}, "fnmf: nothing"),
        (([planted],), {"n_components": 0}, "n_components=0"),
        (([planted],), {"n_components": 2.5}, "n_components=2.5"),
        (([planted],), {"n_components": []}, "ks is empty"),
    ]
    for args, params, message in refused:
        with pytest.raises(ValueError, match=message):
            fednmf.federated(*args, **{"n_components": 3, **params})


def test_parts_are_a_list():
    with pytest.raises(TypeError, match="list of matrices.*not dict"):
        fednmf.federated({"north": np.ones((4, 3))}, n_components=2)


def test_a_result_is_shown_in_a_line():
    found = fednmf.federated([np.random.default_rng(i).random((30, 12)) for i in range(3)], n_components=2, max_iter=3)
    assert len(repr(found)) < 200 and "3 parties" in repr(found) and "V: (12, 2)" in repr(found)


@pytest.fixture(scope="module")
def hospitals():
    """Two AnnData whose genes are in another order; each has genes that the other lacks."""
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(4)
    whole = np.kron(np.eye(3), rng.random((30, 1)) + 0.2) @ np.kron(np.eye(3), rng.random((1, 8)) + 0.2)
    whole += 0.01 * rng.random((90, 24))
    names = np.array([f"g{j}" for j in range(24)])
    north, south = rng.permutation(22), 23 - rng.permutation(22)
    parts = []
    for rows, columns in ((np.arange(0, 90, 2), north), (np.arange(1, 90, 2), south)):
        part = anndata.AnnData(sp.csr_matrix(whole[np.ix_(rows, columns)]))
        part.var_names, part.obs_names = names[columns], [f"c{i}" for i in rows]
        part.layers["twice"] = 2 * part.X
        parts.append(part)
    return parts


def by_hand(part, genes, X=None):
    """The matrix with a column for each gene, by the names."""
    X, places = (part.X if X is None else X).toarray(), {name: j for j, name in enumerate(part.var_names)}
    return np.column_stack([X[:, places[gene]] if gene in places else np.zeros(len(X)) for gene in genes])


@pytest.mark.parametrize("option", ["common_columns", "all_columns"])
def test_annotated_parts_are_aligned_by_name(hospitals, option):
    first, second = (list(part.var_names) for part in hospitals)
    common = [gene for gene in first if gene in second]
    genes = common if option == "common_columns" else first + [gene for gene in second if gene not in first]
    some = {"n_components": 3, "max_iter": 5, "random_state": 0}
    found = fednmf.federated(hospitals, **some, **{option: True})
    assert found.shared_names == genes and found.private_names == [list(part.obs_names) for part in hospitals]
    expected = fednmf.federated([by_hand(part, genes) for part in hospitals], **some)
    assert expected.shared_names is None and len(genes) == (20 if option == "common_columns" else 24)

    def ordered(run):
        # Components of the same share come in any order.
        return run.shared["V"][:, run.shared["V"].argmax(axis=0).argsort()]

    np.testing.assert_allclose(ordered(found), ordered(expected), rtol=1e-6, atol=1e-12)
    layer = fednmf.federated(hospitals, layer="twice", **some, **{option: True})
    twice = fednmf.federated([by_hand(part, genes, part.layers["twice"]) for part in hospitals], **some)
    np.testing.assert_allclose(ordered(layer), ordered(twice), rtol=1e-6, atol=1e-12)
    with pytest.warns(UserWarning, match="20 columns are in all parts"):
        plain = fednmf.federated(hospitals, **some)
    assert plain.shared_names == common
    frames = fednmf.federated([part.to_df() for part in hospitals], **some, **{option: True})
    np.testing.assert_allclose(ordered(frames), ordered(found), rtol=1e-6, atol=1e-12)


class Table:
    """A table with names that is none of pandas, as those of polars and Arrow."""

    def __init__(self, frame):
        self.frame = frame

    def to_pandas(self):
        return self.frame


def test_other_tables_are_aligned_by_name(hospitals):
    frames, some = [part.to_df() for part in hospitals], {"n_components": 3, "max_iter": 5, "random_state": 0, "common_columns": True}
    expected = fednmf.federated(frames, **some)
    found = fednmf.federated([Table(frame) for frame in frames], **some)
    assert found.shared_names == expected.shared_names
    np.testing.assert_array_equal(found.shared["V"], expected.shared["V"])


def test_options_that_are_off_are_not_left_out():
    rng = np.random.default_rng(0)
    parts = [rng.random((20, 8)) for _ in range(3)]
    with pytest.raises(ValueError, match="normalize"):
        fednmf.federated(parts, n_components=2, max_iter=2, normalize=False)
    with pytest.raises(ValueError, match="secure_sumn"):
        fednmf.federated(parts, n_components=2, max_iter=2, secure_sumn=False)
    off, unset = (fednmf.federated(parts, n_components=2, max_iter=2, random_state=0, **off) for off in ({"secure_sum": False}, {}))
    np.testing.assert_array_equal(off.shared["V"], unset.shared["V"])


def test_private_columns_have_their_own_names(hospitals):
    adata = hospitals[0]
    found = fednmf.federated([adata[:, :9], adata[:, 9:]], n_components=2, algo="secure-hals", max_iter=3)
    assert found.shared_names == list(adata.obs_names) and found.private_names[1] == list(adata.var_names[9:])
    with pytest.raises(ValueError, match="part 1 has other rows than part 0"):
        fednmf.federated([adata[:, :9], adata[::-1, 9:]], n_components=2, algo="secure-hals", max_iter=3)


@pytest.mark.parametrize("algo", ["fnmf", "fed-kl", "secure-hals"])
def test_the_number_of_components_is_that_of_choose_k(hospitals, algo):
    genes = sorted(set(hospitals[0].var_names) & set(hospitals[1].var_names))
    parts = [by_hand(part, genes) for part in hospitals]
    if algo == "secure-hals":
        parts = [parts[0][:, :9], parts[0][:, 9:]]
    found = fednmf.federated(parts, n_components=range(2, 6), algo=algo, n_runs=3, max_iter=10, random_state=0)
    joined = np.hstack(parts) if algo == "secure-hals" else np.vstack(parts)
    alone = fednmf.tl.choose_k(joined, range(2, 6), 3, method="kl-mu" if algo == "fed-kl" else "hals")
    assert found.choice.recommended == alone.recommended == 3
    np.testing.assert_array_equal(found.choice.column("rmse"), alone.column("rmse"))
    assert found.shared["U" if algo == "secure-hals" else "V"].shape[1] == 3


def test_parts_with_wrong_names_are_refused(hospitals):
    north, south = hospitals
    strange = south.copy()
    strange.var_names = [f"x{j}" for j in range(22)]
    twice = north.copy()
    twice.var_names = ["g0", "g0", *north.var_names[2:]]
    for parts, params, message in [
        ([north, south], {"common_columns": True, "all_columns": True}, "exclude each other"),
        ([north, strange], {}, "no column is in all parts"),
        ([north, twice], {}, "part 1 has several columns 'g0'"),
        ([north, south.X], {}, "part 1 has no names of columns"),
        ([south.X, south.X], {"layer": "twice"}, "is for parts that are AnnData"),
        ([north, north], {"algo": "felb", "n_components": [2, 3]}, "felb takes one number"),
        ([north, north], {"layer": "thrice"}, "adata has no such layer"),
        ([north, north], {"algo": "secure-hals", "common_columns": True}, "are for parts that are rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            fednmf.federated(parts, **{"n_components": 2, **params})


def documented():
    """The options of each method in the notes of the docstring."""
    notes = inspect.getdoc(fednmf.federated).split("Notes\n")[1].split("Examples\n")[0]
    lines = [line for line in re.sub(r"\n {5,}", " ", notes).splitlines() if re.match(r"[a-z-]+ {2,}", line)]
    told = {name: re.split(r"[,;] ", text) for name, text in (re.split(r" {2,}", line, maxsplit=1) for line in lines)}
    groups = {name: told.pop(name) for name in ("masks", "drop-outs", "noise", "penalties")}
    return {name: [option for word in words for option in groups.get(word, [word])] for name, words in told.items()}


def test_the_help_lists_the_methods_and_their_options(planted):
    told = documented()
    assert set(told) == {method.name for method in METHODS}
    for method, options in told.items():
        for option in options:
            # The second one is in no method, so that nothing runs.
            with pytest.raises(ValueError) as refused:
                fednmf.federated([planted] * 2, n_components=2, algo=method, **{option: "?", "nothing": 1})
            assert f"--{option.replace('_', '-')} ?: there is no such option" not in str(refused.value), f"{method}: {option}"
    program = os.environ.get("FEDNMF_BINARY") or shutil.which("fednmf")
    for method, options in told.items() if program else ():
        listed = subprocess.run([program, "list", method], capture_output=True, text=True, check=True).stdout
        expected = {name.replace("-", "_") for name in re.findall(r"^      --([\w-]+)", listed, re.M)}
        assert set(options) - {"secret_seed"} == expected - {"secret_seed"}, method


@pytest.mark.parametrize("algo", ["fnmf", "fed-kl", "mur", "secure-hals"])
@pytest.mark.parametrize("missing", [False, True])
def test_dense_and_sparse_parts_together(planted, algo, missing):
    X = np.where(planted < np.median(planted), 0, planted)
    options = {"n_components": 3, "algo": algo, "max_iter": 5, "random_state": 0}
    if missing and algo in ("fnmf", "fed-kl"):
        X[::7, 3] = np.nan
        options["missing"] = "nan"
    parts = np.array_split(X, 2, axis=1 if algo == "secure-hals" else 0)
    sparse = [sp.csr_matrix(part) for part in parts]
    expected = list(fednmf.federated(sparse, **options).shared.values())
    for mixed in ([parts[0], sparse[1]], [np.asfortranarray(parts[0]), sparse[1]], [sparse[0], parts[1]]):
        found = list(fednmf.federated(mixed, **options).shared.values())
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-9, atol=1e-12)


def test_several_numbers_of_components_have_no_options_that_the_search_lacks(planted):
    """Each option is one of the run alone, or is refused by its name, before anything runs."""
    parts = [planted[:30], planted[30:]]
    of_columns = [planted[:, :20], planted[:, 20:]]
    changed = {"missing", "holdout", "alpha_u", "alpha_v", "l1_ratio", "normalize", "suppress_rare", "dp", "own_penalty", "personalize"}
    told = documented()
    assert changed <= {option for options in told.values() for option in options}
    assert not changed & fednmf._federated._OF_THE_RUN
    assert fednmf._federated._OF_THE_RUN <= {option for options in told.values() for option in options}
    for method, options in told.items():
        if method in fednmf._federated._NOT_SEARCHED:
            continue
        for option in set(options) - fednmf._federated._OF_THE_RUN:
            with pytest.raises(ValueError, match=rf"n_components=\[2, 3\]: {option} would not be part of the search"):
                some = parts if {m.name: m.parties for m in METHODS}[method] == "rows" else of_columns
                fednmf.federated(some, n_components=[2, 3], algo=method, n_runs=1000, **{option: "?", "secure_sum": True})
    found = fednmf.federated([*np.array_split(planted, 4)], n_components=[2, 3], n_runs=2, secure_sum=True, max_iter=3, random_state=0)
    assert found.choice.recommended in (2, 3) and any(sent.protection == "masked" for sent in found.ledger)


def test_a_simulation_masks_and_warns_as_a_run_between_owners_would(planted):
    parts = [part + 0.01 for part in np.array_split(np.tile(planted, (8, 1)) + np.arange(8 * len(planted))[:, None] / 999, 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fednmf.federated(parts, n_components=2, algo="fnmf", secure_sum=True, max_iter=3)
    protected = {sent.kind: sent.protection for sent in found.ledger}
    assert protected["statistics of the matrix"] == protected["sum V_j"] == "masked"
    with pytest.warns(UserWarning, match="between owners this run would be refused: .*rows"):
        fednmf.federated([part[:8] for part in parts], n_components=2, algo="fnmf", secure_sum=True, max_iter=3)
    with pytest.warns(UserWarning, match="hides nothing between two parties"):
        fednmf.federated(parts[:2], n_components=2, algo="fnmf", secure_sum=True, max_iter=3)


def test_secret_shares_of_two_parties_are_warned_of(planted):
    rows = [planted[:30], planted[30:]]
    with pytest.warns(UserWarning, match="of two one sees all data"):
        fednmf.federated(rows, n_components=2, algo="mpc-rows", max_iter=2)


def test_columns_of_one_name_are_refused():
    pandas = pytest.importorskip("pandas")
    part = pandas.DataFrame(np.ones((30, 3)), columns=["a", "b", "a"])
    with pytest.raises(ValueError, match="part 0 has several columns 'a'"):
        fednmf.federated([part, part], n_components=2, algo="fnmf")

"""fednmf.tl.metaprograms: programmes that samples share."""

import json

import numpy as np
import pytest

import fednmf

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

GENES = [f"g{i}" for i in range(140)]
#: Three programmes of all samples; each sample has one of its own, too.
SHARED = np.kron(np.eye(7)[:3], np.ones((1, 20))) * np.random.default_rng(0).gamma(3, 1, (3, 140))


def sample(number):
    """80 cells of three shared programmes and one that no other sample has."""
    rng = np.random.default_rng(number)
    own = np.kron(np.eye(7)[[3 + number]], np.ones((1, 20))) * rng.gamma(3, 1, (1, 140))
    programmes = np.vstack([SHARED, own])
    counts = rng.poisson(2 * rng.dirichlet(np.full(4, 0.3), 80) @ programmes + 0.02)
    return anndata.AnnData(counts.astype("float32"), var=pd.DataFrame(index=GENES))


@pytest.fixture(scope="module")
def samples():
    return {f"donor{i}": sample(i) for i in range(4)}


@pytest.fixture(scope="module")
def table(samples):
    return fednmf.tl.spectra(samples, ks=[4, 5])


def cosines(found):
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (SHARED, found.weights.to_numpy()))
    return a @ b.T


def clusters(found):
    """Which programmes are together, without the names of the clusters."""
    shared = found.members.query("metaprogram != ''").set_index(["sample", "k", "component"])
    return {frozenset(of.index) for _, of in shared.groupby("metaprogram")}


@pytest.mark.parametrize("ks, options", [([4, 5], {}), ([4, 5], {"metric": "jaccard"}), (range(3, 8), {"rule": "3ca"})])
def test_shared_programmes_are_found_and_those_of_one_sample_are_not(samples, ks, options):
    table = fednmf.tl.spectra(samples, ks)
    found = fednmf.tl.metaprograms({"all": table}, n_top=20, **options)
    assert len(found.genes) == 3 and len(repr(found)) < 100
    best = cosines(found)
    assert (best.max(axis=1) >= 0.95).all() and set(best.argmax(axis=1)) == {0, 1, 2}
    np.testing.assert_allclose(found.weights.sum(axis=1), 1)
    for planted, name in zip(SHARED, found.weights.index[best.argmax(axis=1)]):
        assert len(found.genes[name]) >= 15 and {GENES.index(gene) for gene in found.genes[name]} <= set(np.flatnonzero(planted))
    assert (found.table["share"] == 1).all() and found.table["silhouette"].between(0.3, 1).all()
    of = found.members.query("metaprogram != ''").groupby("metaprogram")
    assert (of["sample"].nunique() == 4).all() and (of.size() == found.table["members"]).all()
    # The programme of one sample alone is a cluster of that sample, and is left out.
    # 3CA's rule clusters few of them, since they are similar to no other sample's.
    assert left_out(found, table) == 4 or options == {"rule": "3ca"}


def left_out(found, table):
    """Samples whose own programme was clustered and is no member of a meta-programme."""
    own = 0
    for i in range(4):
        block = table.loc[f"donor{i}"].iloc[:, 60 + 20 * i : 80 + 20 * i].sum(axis=1) / table.loc[f"donor{i}"].sum(axis=1)
        of = found.members[found.members["sample"] == f"donor{i}"].set_index(["k", "component"])
        there = of.index.intersection(block[block > 0.9].index)
        assert (of.loc[there, "metaprogram"] == "").all()
        own += len(there) > 0
    return own


def test_top_lists_give_the_same_clusters(table, tmp_path):
    lists = fednmf.tl.top_lists(table, n_top=20)
    by_spectra = fednmf.tl.metaprograms({"all": table}, n_top=20, metric="jaccard")
    by_lists = fednmf.tl.metaprograms({"all": lists})
    assert clusters(by_lists) == clusters(by_spectra) and len(clusters(by_lists)) == 3
    alone = table.loc[:, [4], :]
    by_cosines = fednmf.tl.metaprograms({"all": alone}, n_top=20)
    assert clusters(by_cosines) == clusters(fednmf.tl.metaprograms({"all": fednmf.tl.top_lists(alone, n_top=20)}))
    assert {name: set(genes) for name, genes in by_lists.genes.items()} == {n: set(g) for n, g in by_spectra.genes.items()}
    # Each site releases a file, and one of them spectra.
    for donor in ["donor0", "donor1", "donor2"]:
        lists.loc[[donor]].to_csv(tmp_path / f"{donor}.csv")
    table.loc[["donor3"]].to_csv(tmp_path / "donor3.csv")
    by_files = fednmf.tl.metaprograms([tmp_path / f"donor{i}.csv" for i in range(4)], n_top=20)
    assert clusters(by_files) == clusters(by_lists)
    plain = {donor: lists.loc[donor].loc[5].to_numpy().tolist() for donor in ["donor0", "donor1", "donor2"]}
    assert len(fednmf.tl.metaprograms(plain).genes) == 3


def test_the_samples_of_annotated_data_are_those_of_a_dictionary(samples):
    adata = anndata.concat(samples, label="donor", index_unique="-")
    settings = {"ks": [4, 5], "n_top": 20}
    one, other = (fednmf.tl.metaprograms(given, sample_key="donor", **settings) for given in (adata, samples))
    pd.testing.assert_frame_equal(one.weights, other.weights)
    assert clusters(one) == clusters(other)
    # A sample's spectra are those of NMF alone.
    alone = fednmf.NMF(4, random_state=0).fit(samples["donor2"].X).components_
    np.testing.assert_array_equal(fednmf.tl.spectra(adata, [4], "donor").loc["donor2"].to_numpy(), alone)
    np.testing.assert_array_equal(fednmf.tl.spectra({"donor2": samples["donor2"].to_df()}, [4]).to_numpy(), alone)


def test_files_of_the_program_and_tables_are_read(table, tmp_path):
    h5py = pytest.importorskip("h5py")
    runs = {donor: [table.loc[donor].loc[k] for k in (4, 5)] for donor in ["donor0", "donor1", "donor2"]}
    names = json.dumps(GENES)
    files = {}
    for donor, tables in runs.items():
        files[donor] = [tmp_path / f"{donor}.npz", tmp_path / f"{donor}.h5"]
        np.savez(files[donor][0], V=tables[0].to_numpy().T, column_names=names)
        with h5py.File(files[donor][1], "w") as file:
            file["V"], file.attrs["column_names"] = tables[1].to_numpy().T, names
    read = fednmf.tl.metaprograms(files, n_top=20)
    given = fednmf.tl.metaprograms({donor: table.loc[[donor]] for donor in runs}, n_top=20)
    np.testing.assert_allclose(read.weights, given.weights)
    assert clusters(read) == clusters(given)
    # Genes in another order, and one that the others do not have.
    other = table.loc[["donor0"]].iloc[:, ::-1].assign(another=1e-3)
    mixed = fednmf.tl.metaprograms({"donor0": other, **{donor: table.loc[[donor]] for donor in ["donor1", "donor2"]}}, n_top=20)
    assert set(mixed.weights.columns) == set(GENES) and clusters(mixed) == clusters(given)


def test_names_of_digits_stay_text(tmp_path):
    released = fednmf.tl.spectra({"007": sample(0), "7": sample(1), "2": sample(2)}, ks=[4])
    for name in ("007", "7", "2"):
        released.loc[[name]].to_csv(tmp_path / f"s{name}.csv")
    files = [tmp_path / f"s{name}.csv" for name in ("007", "7", "2")]
    assert set(fednmf.tl.metaprograms(files).members["sample"]) == {"007", "7", "2"}
    renamed = fednmf.tl.metaprograms(dict(zip("abc", files)))
    assert set(renamed.members["sample"]) == {"a", "b", "c"}
    entrez = released.set_axis([str(7000 + j) for j in range(140)], axis=1)
    lists = fednmf.tl.top_lists(entrez, n_top=20)
    for name in ("007", "7", "2"):
        lists.loc[[name]].to_csv(tmp_path / f"s{name}.csv")
    of_lists, expected = fednmf.tl.metaprograms(files), fednmf.tl.metaprograms([lists.loc[[name]] for name in ("007", "7", "2")])
    assert of_lists.genes == expected.genes and len(of_lists.genes) > 0


def test_a_gene_in_two_columns_of_a_file_is_refused(table, tmp_path):
    twice = table.loc[["donor0"]].set_axis(["g0", "g0", *GENES[2:]], axis=1)
    twice.to_csv(tmp_path / "twice.csv")
    table.loc[["donor1"]].reset_index(drop=True).to_csv(tmp_path / "bare.csv", index=False)
    for name, message in (("twice.csv", "title of two columns"), ("bare.csv", "must have names of programmes")):
        with pytest.raises(ValueError, match=message):
            fednmf.tl.metaprograms({"a": tmp_path / name, "b": table.loc[["donor2"]]})


def test_lists_follow_the_formula_of_genenmf():
    H = np.random.default_rng(1).random((3, 6))
    table = pd.DataFrame(H, columns=list("abcdef"), index=pd.MultiIndex.from_tuples([("s", 3, i) for i in range(3)]))
    table.index.names = ["sample", "k", "component"]
    unit = [[h / sum(row) for h in row] for row in H]
    for row, names in zip(unit, fednmf.tl.top_lists(table, n_top=4, specificity=2).to_numpy()):
        specific = [max(other[j] for other in unit) / sum(other[j] for other in unit) for j in range(6)]
        expected = sorted(range(6), key=lambda j: -row[j] * specific[j] ** 2)[:4]
        assert list(names) == ["abcdef"[j] for j in expected]


@pytest.mark.parametrize(
    "given, options, message",
    [
        ({}, {"rule": "ward"}, "rule='ward'"),
        ({}, {"metric": "euclid"}, "metric='euclid'"),
        ({"a": pd.DataFrame(np.eye(4))}, {}, "of 1 samples: too few"),
        ({"a": pd.DataFrame(np.eye(4)), "b": pd.DataFrame(np.eye(4), columns=list("abcd"))}, {}, "no gene is in all samples"),
        ({"a": [["x", "y"]], "b": [["x"]]}, {"metric": "cosine"}, "needs the spectra of all"),
        (["a.txt", "x/a.txt"], {}, "two files of samples have the same name"),
        ({"a": "a.mtx"}, {}, "must be .csv"),
        ({"a": np.ones((2, 3))}, {"bogus": 1}, "bogus: for samples that are AnnData"),
        ({"a": np.ones((2, 3))}, {"min_share": float("nan")}, "min_share=nan"),
    ],
)
def test_wrong_samples_and_options_are_refused(given, options, message):
    with pytest.raises(ValueError, match=message):
        fednmf.tl.metaprograms(given, **options)


def test_3ca_keeps_robust_programmes_that_others_have_once():
    # Two samples with lists of ten genes: "a" twice in each, "b" for one k only, "c" in one sample only.
    def names(letter, other="", n=0):
        return [f"{letter}{i}" for i in range(10 - n)] + [f"{other}{i}" for i in range(n)]

    north = [[names("a"), names("b"), names("c")], [names("a", "x", 3), names("d"), names("c", "x", 1), names("e")]]
    south = [[names("a"), names("b"), names("f")], [names("a", "y", 3), names("b", "y", 4), names("g"), names("h")]]
    runs = {"north": north, "south": south, "west": south}
    tables = {site: pd.concat([indexed(site, k, run) for k, run in zip((3, 4), runs[site])]) for site in runs}
    found = fednmf.tl.metaprograms(tables, rule="3ca")
    assert set(found.members["component"]) == {0} and set(found.members["k"]) == {3} and len(found.members) == 3


def indexed(sample, k, lists):
    index = pd.MultiIndex.from_tuples([(sample, k, i) for i in range(k)], names=["sample", "k", "component"])
    return pd.DataFrame(lists, index=index)


def test_a_small_sample_and_a_missing_column_are_named(samples):
    with pytest.raises(ValueError, match="sample 'few': 9 components are more than its 5 x 140"):
        fednmf.tl.spectra({"few": samples["donor0"][:5]})
    with pytest.raises(ValueError, match="sample_key='donor'"):
        fednmf.tl.metaprograms(samples["donor0"], sample_key="donor")


@pytest.mark.parametrize("missing", [None, np.nan, "pandas.NA"])
@pytest.mark.parametrize("dtype", [object, "category"])
def test_cells_without_a_sample_are_left_out(samples, missing, dtype):
    pandas = pytest.importorskip("pandas")
    whole = pytest.importorskip("anndata").concat(samples, label="donor", index_unique="-")
    known = np.arange(whole.n_obs) % 5 > 0
    donors = whole.obs["donor"].astype(object)
    donors[~known] = pandas.NA if missing == "pandas.NA" else missing
    expected = fednmf.tl.spectra(whole[known], ks=[2], sample_key="donor", max_iter=5)
    whole.obs["donor"] = donors.astype(dtype)
    with pytest.warns(UserWarning, match=f"sample_key='donor': {(~known).sum()} of {known.size} have no label"):
        found = fednmf.tl.spectra(whole, ks=[2], sample_key="donor", max_iter=5)
    pandas.testing.assert_frame_equal(found, expected)
    whole.obs["donor"] = pandas.Series([None] * whole.n_obs, index=whole.obs_names, dtype=dtype)
    with pytest.raises(ValueError, match="has no label that is not missing"):
        fednmf.tl.spectra(whole, ks=[2], sample_key="donor")


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
def test_spectra_that_cannot_be_compared_are_named(table, metric):
    for value, message in ((np.nan, "missing or infinite"), (np.inf, "missing or infinite"), (-1, "negative")):
        wrong = table.copy()
        wrong.iloc[3, 2] = value
        sample, k, component = table.index[3]
        where = f"component {component} of sample '{sample}' with k = {k} has a weight that is {message}: that of gene '{table.columns[2]}'"
        for call in (lambda: fednmf.tl.metaprograms([wrong], metric=metric), lambda: fednmf.tl.top_lists(wrong)):
            with pytest.raises(ValueError, match=where):
                call()
    wrong = table.copy()
    wrong.iloc[3] = 0
    with pytest.raises(ValueError, match=f"component {component} .* has no weight in the genes that all samples have"):
        fednmf.tl.metaprograms([wrong], metric=metric)
    twice = table.set_axis([table.columns[0], *table.columns[:-1]], axis=1)
    with pytest.raises(ValueError, match="n_metaprograms=1000: .* at most"):
        fednmf.tl.metaprograms([table], metric=metric, n_metaprograms=1000)
    with pytest.raises(ValueError, match=f"have gene '{table.columns[0]}' in two columns"):
        fednmf.tl.metaprograms([twice], metric=metric)
    with pytest.raises(ValueError, match="must be a table of fednmf.tl.spectra"):
        fednmf.tl.top_lists(table.reset_index(drop=True))


@pytest.mark.parametrize("lists", [False, True])
def test_a_table_that_lost_its_index_is_that_of_the_file(tmp_path, lists):
    rng = np.random.default_rng(4)
    shared = np.kron(np.eye(3), np.ones((1, 8)))
    for i, site in enumerate(["north", "south", "west"]):
        cells = pd.DataFrame(rng.dirichlet(np.ones(3), 60) @ shared + 0.05 * rng.random((60, 24)), columns=[f"g{j}" for j in range(24)])
        table = fednmf.tl.spectra({site: cells}, ks=[3, 4], random_state=i)
        (fednmf.tl.top_lists(table, 6) if lists else table).to_csv(tmp_path / f"{site}.csv")
    files = sorted(tmp_path.glob("*.csv"))
    expected = fednmf.tl.metaprograms(files, n_top=6)
    for file in files:
        pd.read_csv(file).to_csv(tmp_path / f"{file.stem}.again.csv")
    again = {file.stem: tmp_path / f"{file.stem}.again.csv" for file in files}
    for given in (
        {file.stem: pd.read_csv(file) for file in files},
        {file.stem: pd.read_csv(file, index_col=0) for file in files},
        {file.stem: pd.read_csv(file, index_col=[0, 1, 2]) for file in files},
        again,
    ):
        found = fednmf.tl.metaprograms(given, n_top=6)
        assert found.genes == expected.genes
        pd.testing.assert_frame_equal(found.weights, expected.weights)
        pd.testing.assert_frame_equal(found.table, expected.table)
    table = pd.read_csv(files[0]).drop(columns="sample")
    with pytest.raises(ValueError, match="'k' and 'component' among its genes.*index_col"):
        fednmf.tl.metaprograms({"north": table, "south": files[1], "west": files[2]})
    with pytest.raises(ValueError, match="same as text"):
        fednmf.tl.metaprograms({1: files[0], "1": files[1]})
    if lists:
        mixed = pd.DataFrame({"1": ["g0", "g1"], "2": [3, 4]})
        with pytest.raises(ValueError, match="column '2', numbers"):
            fednmf.tl.metaprograms({"north": mixed, "south": files[1]})


def test_programmes_with_nothing_in_common_are_no_metaprogram():
    lists = {site: [[f"{site}{c}{i}" for i in range(10)] for c in "xyz"] for site in ("north", "south", "west")}
    with pytest.warns(UserWarning, match="no cluster of programmes"):
        assert len(fednmf.tl.metaprograms(lists, n_top=10).table) == 0


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
def test_spectra_are_compared_in_the_genes_that_all_have(metric):
    common = [f"s{i}" for i in range(20)]

    def site(name, seed):
        rng = np.random.default_rng(seed)
        shared = np.kron(np.eye(2), np.ones((1, 10))) + 0.05 * rng.random((2, 20))
        own = np.kron(np.eye(2), 10 * np.ones((1, 10))) + 0.05 * rng.random((2, 20))
        return pytest.importorskip("pandas").DataFrame(np.hstack([shared, own]), columns=common + [f"{name}_{i}" for i in range(20)])

    sites = {name: site(name, i) for i, name in enumerate("abc")}
    whole = fednmf.tl.metaprograms(sites, n_top=10, metric=metric)
    alone = fednmf.tl.metaprograms({name: table[common] for name, table in sites.items()}, n_top=10, metric=metric)
    assert whole.genes == alone.genes and all(len(genes) == 10 for genes in whole.genes.values())
    np.testing.assert_allclose(whole.table, alone.table)


def test_top_features_of_programmes_and_meta_programmes():
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    spectra = rng.gamma(0.5, 1, (3, 40))
    samples = {f"s{i}": anndata.AnnData(rng.poisson(rng.gamma(1, 1, (80, 3)) @ spectra).astype("float32")) for i in range(3)}
    found = fednmf.tl.metaprograms(samples, ks=[2, 3], min_silhouette=-1.0, max_iter=50)
    top = fednmf.tl.top_features(found, 4)
    assert set(top["feature"]) <= set(map(str, found.weights.columns))
    first = found.weights.iloc[0].sort_values(ascending=False, kind="stable")
    assert top["weight"][0] == first.iloc[0]
    assert (top["weight"] > 0).all()


def test_the_column_of_samples_has_to_be_named():
    anndata = pytest.importorskip("anndata")
    with pytest.raises(ValueError, match="give sample_key="):
        fednmf.tl.metaprograms(anndata.AnnData(np.ones((10, 4))), ks=[2])

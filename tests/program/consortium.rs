//! The whole job of institutions that may not see each other's data, from raw files that do not match to weights of each row.

use std::path::Path;
#[cfg(feature = "sites")]
use std::process::{Child, Command};

use ndarray::Array2;
#[cfg(feature = "sites")]
use serde_json::Value;

use fednmf_linalg::random::{Purpose, Stream};

#[cfg(feature = "sites")]
use crate::common::sites::{NAMES, NONCE, Stage, end_of, text};
#[cfg(feature = "sites")]
use crate::common::{factor, fednmf};

#[cfg(feature = "sites")]
const SITES: [&str; 3] = ["a", "b", "c"];
/// Genes of each of the planted programmes, and further ones.
const PROGRAMMES: usize = 4;
const GENES: usize = 10;
const OTHERS: usize = 12;
/// Cells of each site.
const CELLS: [usize; 3] = [260, 220, 240];

/// A Poisson number.
fn poisson(mean: f64, uniform: &mut impl FnMut() -> f64) -> u64 {
    let (mut count, mut product, least) = (0, uniform(), (-mean).exp());
    while product > least {
        product *= uniform();
        count += 1;
    }
    count
}

/// The names of all genes, and counts of all cells: each has two programmes and a depth of its own.
fn cells() -> (Vec<String>, Array2<u64>) {
    let genes: Vec<String> = (0..PROGRAMMES * GENES + OTHERS).map(|j| format!("g{j}")).collect();
    let mut cursor = Stream::new(11, Purpose::StartU, 1).at(0);
    let mut uniform = || cursor.uniform();
    let mut counts = Array2::zeros((CELLS.iter().sum(), genes.len()));
    for mut cell in counts.rows_mut() {
        let depth = 0.5 + 2.0 * uniform();
        let (first, second, share) = ((uniform() * 4.0) as usize % 4, (uniform() * 4.0) as usize % 4, uniform());
        for (j, count) in cell.iter_mut().enumerate() {
            let of = |programme: usize| if j / GENES == programme { 2.0 + (j % GENES) as f64 / 2.0 } else { 0.1 };
            let rate = if j < PROGRAMMES * GENES { share * of(first) + (1.0 - share) * of(second) } else { 0.6 };
            *count = poisson(depth * rate, &mut uniform);
        }
    }
    (genes, counts)
}

/// The genes in the file of a site: in an order of its own, without two that others have, and with one of its own.
fn genes_of(site: usize, genes: usize) -> Vec<Option<usize>> {
    let lacks = |j: &usize| ![genes - 1 - 2 * site, genes - 2 - 2 * site].contains(j);
    let step = [1, 5, 7][site];
    (0..genes).map(|j| j * step % genes).filter(lacks).map(Some).chain([None]).collect()
}

/// The form of a file of counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A table of cells × genes
    Cells,
    /// A table of genes × cells
    Genes,
    /// A sparse matrix of genes × cells, in a directory of 10x
    TenX,
}

fn write(path: &Path, genes: &[String], cells: &[Vec<u64>], form: Form) {
    let names: Vec<String> = (0..cells.len()).map(|i| format!("cell{i}")).collect();
    let line = |name: &str, entries: Vec<String>| format!("{name},{}\n", entries.join(","));
    let text: String = match form {
        Form::TenX => return crate::common::write_10x(path, genes, &names, cells),
        Form::Genes => {
            let of = |j: usize| cells.iter().map(|cell| cell[j].to_string()).collect();
            let lines = genes.iter().enumerate().map(|(j, name)| line(name, of(j)));
            line("gene", names) + &lines.collect::<String>()
        }
        Form::Cells => {
            let lines =
                names.iter().zip(cells).map(|(name, cell)| line(name, cell.iter().map(u64::to_string).collect()));
            line("cell", genes.to_vec()) + &lines.collect::<String>()
        }
    };
    std::fs::write(path, text).unwrap();
}

/// Lets all sites join with these words, in which {site} is the directory of the site.
#[cfg(feature = "sites")]
fn together(stage: &mut Stage, words: impl Fn(usize) -> String) {
    for (site, code) in SITES.iter().zip(codes(stage, words)) {
        assert_eq!(code, Some(0), "site {site}: {}\nhub: {}", stage.says(site), stage.hub_says());
    }
}

/// The same, for any end: the exit codes.
#[cfg(feature = "sites")]
fn codes(stage: &mut Stage, words: impl Fn(usize) -> String) -> Vec<Option<i32>> {
    stage.sites = (0..SITES.len()).map(|site| start(stage, site, &words(site))).collect();
    stage.finish_sites().into_iter().map(|(code, _)| code).collect()
}

/// Starts a site, which accepts no risk.
#[cfg(feature = "sites")]
fn start(stage: &Stage, site: usize, words: &str) -> Child {
    stage.join_within_limits(SITES[site], words).env_remove(NONCE.0).spawn().unwrap()
}

/// The cosine of each column of the first matrix with the most similar one of the second.
#[cfg(feature = "sites")]
fn cosines(a: &Array2<f64>, b: &Array2<f64>) -> Vec<f64> {
    let normed = |x: &Array2<f64>| {
        let norms = x.map_axis(ndarray::Axis(0), |column| column.dot(&column).sqrt());
        x / &norms
    };
    let products = normed(a).t().dot(&normed(b));
    products.rows().into_iter().map(|row| row.fold(0.0, |most: f64, x| most.max(*x))).collect()
}

/// The genes and the cells of a site, as they are in its file.
fn raw(site: usize) -> (Vec<String>, Vec<Vec<u64>>) {
    let (genes, counts) = cells();
    let used = genes_of(site, genes.len());
    let names = used.iter().map(|j| j.map_or(format!("own{site}"), |j| genes[j].clone())).collect();
    let first: usize = CELLS[..site].iter().sum();
    let cell = |i: usize| used.iter().map(|j| j.map_or(3, |j| counts[(i, j)])).collect();
    (names, (first..first + CELLS[site]).map(cell).collect())
}

/// Writes the counts of a site.
pub fn write_raw(path: &Path, site: usize, form: Form) {
    let (genes, cells) = raw(site);
    write(path, &genes, &cells, form);
}

/// The file of each site, and what `prepare` has to know of it.
#[cfg(feature = "sites")]
const FILES: [(Form, &str, &str); 3] =
    [(Form::Cells, "raw.csv", ""), (Form::TenX, "raw", "--transpose"), (Form::Genes, "raw.csv", "--transpose")];

#[cfg(feature = "sites")]
fn write_all_raw(stage: &Stage) {
    for (site, (form, name, _)) in FILES.into_iter().enumerate() {
        write_raw(&stage.at(SITES[site]).join(name), site, form);
    }
}

#[test]
#[cfg(feature = "sites")]
fn three_sites_find_the_programmes_of_their_joined_cells() {
    let mut stage = Stage::new();
    write_all_raw(&stage);
    let (genes, counts) = cells();
    let common = genes.len() - 6;
    let pooled: Vec<Vec<u64>> =
        counts.rows().into_iter().map(|row| row.iter().take(common).copied().collect()).collect();
    write(&stage.at("pooled.csv"), &genes[..common], &pooled, Form::Cells);

    // Together.
    stage.start_hub("--keep --sites a,b,c");
    let recipe = "--log1p --variable-columns 40";
    together(&mut stage, |site| {
        let (_, file, more) = FILES[site];
        format!(
            "--transcript {{site}}/prepare.jsonl prepare counts {{site}}/{file} --common-columns {more} {recipe} --output \
             {{site}}/cells.csv"
        )
    });
    let used = SITES.map(|site| {
        let says = stage.says(site);
        says.lines().find(|line| line.contains("the SHA-256 of their names")).unwrap_or_default().to_string()
    });
    assert!(used[0].contains(&format!("all matrices have {common} columns")), "{}", stage.says("a"));
    assert!(used.iter().all(|line| *line == used[0]), "{used:?}");
    for site in SITES {
        let transcript = stage.at(site).join("prepare.jsonl");
        assert_eq!(
            fednmf(0, "audit verify").arg(&transcript).arg("--ca").arg(stage.keys("ca.pem")).run().code,
            Some(0)
        );
        let verified = fednmf(0, "audit verify --json").arg(&transcript).run();
        let verified: Value = serde_json::from_str(&verified.stdout).unwrap();
        let mut listed: Vec<&str> =
            verified[0]["agreed"][0]["names"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        listed.sort_unstable();
        let mut expected: Vec<&str> = genes[..common].iter().map(String::as_str).collect();
        expected.sort_unstable();
        assert_eq!(listed, expected, "all can read on which genes they agreed");
        let shown = fednmf(0, "audit verify").arg(&transcript).run().stdout;
        assert!(shown.contains(&format!("{common}  columns that are used: ")), "{shown}");
        let sent = text(&transcript);
        assert!(
            ["columns that are used", "rows with an entry in each column", "sums and squares of the columns"]
                .iter()
                .all(|kind| sent.contains(kind))
        );
    }
    let mut runs = Vec::new();
    for k in [3, 4, 5] {
        for seed in [1, 2] {
            let name = format!("k{k}-{seed}.h5");
            together(&mut stage, |_| {
                format!(
                    "--algo fed-kl --secure-sum -k {k} --seed {seed} --max-iters 100 --input {{site}}/cells.csv --output {{site}}/{name}"
                )
            });
            runs.push(name);
        }
    }

    // Each site by itself.
    let mut choices = Vec::new();
    for site in SITES {
        let dir = stage.at(site);
        let names: Vec<String> = runs.iter().map(|name| dir.join(name).display().to_string()).collect();
        let consensus = dir.join("consensus.h5");
        let line = format!("choose {} --json --output {}", names.join(" "), consensus.display());
        let chosen = fednmf(0, &line).run();
        let chosen: Value = serde_json::from_str(&chosen.stdout).unwrap_or_else(|e| panic!("{e}: {}", chosen.stderr));
        choices.push(chosen["recommended"].clone());
        let weights = dir.join("weights.h5");
        let cells = dir.join("cells.csv");
        let line =
            format!("project {} --input {} --output {}", consensus.display(), cells.display(), weights.display());
        let done = fednmf(0, &line).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
    assert!(choices.iter().all(|k| *k == 4), "{choices:?}");

    // One owner of all cells.
    let [all, one] = ["all.csv", "one.h5"].map(|name| stage.at(name).display().to_string());
    let raw = stage.at("pooled.csv").display().to_string();
    let done = fednmf(0, &format!("prepare counts {raw} {recipe} --output {all}")).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    fednmf(0, &format!("--algo kl-mu -k 4 --max-iters 100 --seed 1 --input {all} --output {one}")).ok();
    let title =
        |path: &Path| text(path).lines().next().map(|line| line.split(',').skip(1).collect::<Vec<_>>().join(","));
    let found = factor(&stage.at("a").join("consensus.h5"), "V");
    let expected = factor(one.as_ref(), "V");
    // In the order of the first site, which is that of the pooled file.
    assert_eq!(title(&stage.at("a").join("cells.csv")), title(all.as_ref()));
    let least = cosines(&found, &expected).into_iter().fold(1.0, f64::min);
    assert!(least >= 0.95, "{least}");
    let weights: Vec<Array2<f64>> = SITES.iter().map(|site| factor(&stage.at(site).join("weights.h5"), "U")).collect();
    let weights =
        ndarray::concatenate(ndarray::Axis(0), &weights.iter().map(|u| u.view()).collect::<Vec<_>>()).unwrap();
    let least = cosines(&weights, &factor(one.as_ref(), "U")).into_iter().fold(1.0, f64::min);
    assert!(least >= 0.95, "{least}");

    // The files of cNMF at each site, as for one owner of all cells.
    for (name, recipe) in
        [("norm.csv", "--keep-counts --variable-columns 40 --unit-variance"), ("tpm.csv", "--row-total 1e6")]
    {
        together(&mut stage, |site| {
            let (_, file, more) = FILES[site];
            format!("prepare counts {{site}}/{file} --common-columns {more} {recipe} --output {{site}}/{name}")
        });
    }
    let names = [1, 2, 3, 4].map(|seed| format!("squares-{seed}.h5"));
    for (seed, name) in names.iter().enumerate() {
        together(&mut stage, |_| {
            format!(
                "--algo fnmf --secure-sum -k 4 --seed {seed} --max-iters 6 --input {{site}}/norm.csv --output {{site}}/{name}"
            )
        });
    }
    let programs = |_: usize| {
        let runs = names.each_ref().map(|name| format!("{{site}}/{name}")).join(" ");
        format!(
            "--transcript {{site}}/programs.jsonl programs {runs} --input {{site}}/norm.csv --tpm {{site}}/tpm.csv --cnmf {{site}}/cells \
             --density-threshold 2"
        )
    };
    together(&mut stage, programs);
    let of_site = |site: &str, kind: &str| table(&stage.at(site).join(format!("cells/cells.{kind}.txt"))).1;
    for kind in ["gene_spectra_score.k_4.dt_2_0", "gene_spectra_tpm.k_4.dt_2_0"] {
        let [a, b, c] = SITES.map(|site| of_site(site, kind));
        assert!(a.dim() == (4, common) && a == b && b == c, "{kind}: all sites have the same");
    }
    for (site, cells) in SITES.iter().zip(CELLS) {
        assert_eq!(of_site(site, "usages.k_4.dt_2_0.consensus").dim(), (cells, 4));
        let transcript = stage.at(site).join("programs.jsonl");
        let verified = fednmf(0, "audit verify").arg(&transcript).arg("--ca").arg(stage.keys("ca.pem")).run();
        assert_eq!(verified.code, Some(0), "{}", verified.stderr);
        let sent = sent(&transcript);
        let leaves = |what: &str| sent.iter().any(|[kind, _]| kind == what);
        assert!(leaves("sums over cells") && leaves("products of genes with usages"), "{sent:?}");
    }
    // Before the site connects.
    let line = programs(1).replace("programs.jsonl", "others.jsonl").replace("squares-2.h5", "k4-1.h5");
    let (code, _) = end_of(start(&stage, 1, &line), "b");
    assert!(code == Some(2) && stage.says("b").contains("cannot be compared"), "{code:?}: {}", stage.says("b"));

    // The other ways: nothing opened but the result, and each cell protected.
    let squares = stage.at("squares.h5").display().to_string();
    fednmf(0, &format!("--algo hals -k 4 --max-iters 100 --seed 1 --input {all} --output {squares}")).ok();
    let expected = factor(squares.as_ref(), "V");
    for (name, shared, bound, line) in [
        ("sealed.h5", "V", 0.99, "--algo mpc-rows --max-iters 20 --eval-every 0"),
        (
            "dp.h5",
            "U",
            0.95,
            "--algo secure-hals --transpose --secure-sum --dp gaussian --epsilon 8 --max-iters 8 --budget {site}/budget.json \
             --budget-limit 8",
        ),
    ] {
        together(&mut stage, |_| format!("{line} -k 4 --seed 1 --input {{site}}/cells.csv --output {{site}}/{name}"));
        let found = SITES.map(|site| factor(&stage.at(site).join(name), shared));
        assert!(found.iter().all(|other| *other == found[0]), "{name}: one shared factor");
        let least = cosines(&found[0], &expected).into_iter().fold(1.0, f64::min);
        assert!(least >= bound, "{name}: {least}");
    }
}

/// The table of results of cNMF in a file: names of rows, and numbers.
fn table(path: &Path) -> (Vec<String>, Array2<f64>) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let names = lines.iter().map(|line| line[0].to_string()).collect();
    let numbers: Vec<f64> = lines.iter().flat_map(|line| &line[1..]).map(|x| x.parse().unwrap()).collect();
    (names, Array2::from_shape_vec((lines.len(), lines[0].len() - 1), numbers).unwrap())
}

/// Programmes, spectra and scores of all parties' cells are those of one owner of all cells, and usages are those of the own cells.
#[test]
fn programmes_by_masked_sums_are_those_of_all_cells() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (genes, counts) = cells();
    let all: Vec<Vec<u64>> = counts.rows().into_iter().map(|row| row.to_vec()).collect();
    let first = |party: usize| CELLS[..party].iter().sum::<usize>();
    for party in 0..3 {
        let own = &all[first(party)..][..CELLS[party]];
        write(at(&format!("raw-{party}.csv")).as_ref(), &genes, own, Form::Cells);
    }
    write(at("raw.csv").as_ref(), &genes, &all, Form::Cells);
    for (raw, cells, tpm) in
        [("raw-{party}.csv", "cells-{party}.csv", "tpm-{party}.csv"), ("raw.csv", "cells.csv", "tpm.csv")]
    {
        let raw = at(raw);
        for (recipe, output) in
            [("--keep-counts --variable-columns 30 --unit-variance", cells), ("--row-total 1e6", tpm)]
        {
            let done = fednmf(0, &format!("prepare counts {raw} {recipe} --output {}", at(output))).run();
            assert_eq!(done.code, Some(0), "{}", done.stderr);
        }
    }
    let mut runs = Vec::new();
    for (k, seed) in [3, 4].into_iter().flat_map(|k| (1..=4).map(move |seed| (k, seed))) {
        let run = at(&format!("k{k}-{seed}.h5"));
        let line = "--algo fnmf --update hals --secure-sum --accept-risk membership --max-iters 40";
        fednmf(0, &format!("{line} -k {k} --seed {seed} --input {} --output {run}", at("cells-{party}.csv"))).ok();
        runs.push(run);
    }
    // In any order.
    let backwards: Vec<&str> = runs.iter().rev().map(String::as_str).collect();
    let of_all = format!(
        "programs {} --input {} --tpm {} --cnmf {}",
        backwards.join(" "),
        at("cells.csv"),
        at("tpm.csv"),
        at("all")
    );
    assert_eq!(fednmf(0, &of_all).run().code, Some(0));
    let runs = runs.join(" ");
    let parties = |more: &str| {
        let names = ["cells-{party}.csv", "tpm-{party}.csv", "site-{party}"].map(at);
        let [input, tpm, cnmf] = names;
        format!("programs {runs} --input {input} --tpm {tpm} --cnmf {cnmf} {more}")
    };
    // On any number of ranks.
    let mut scores = Vec::new();
    for ranks in [0, 3, 2] {
        let done = fednmf(ranks, &parties("")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        scores.push(std::fs::read(dir.path().join("site-1/site-1.gene_spectra_score.k_4.dt_0_5.txt")).unwrap());
    }
    assert!(scores.iter().all(|other| *other == scores[0]), "sums over parties are exact");
    for k in [3, 4] {
        let file = |folder: &str, kind: &str| {
            dir.path().join(folder).join(format!("{folder}.{}.txt", kind.replace('K', &k.to_string())))
        };
        for kind in ["gene_spectra_score.k_K.dt_0_5", "gene_spectra_tpm.k_K.dt_0_5", "spectra.k_K.dt_0_5.consensus"] {
            let expected = table(&file("all", kind)).1;
            let most = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            for party in 0..3 {
                let found = table(&file(&format!("site-{party}"), kind)).1;
                let off = (&found - &expected).iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                assert!(found.dim() == expected.dim() && off <= 1e-9 * most, "{kind}, party {party}: {off} of {most}");
            }
        }
        let (_, expected) = table(&file("all", "usages.k_K.dt_0_5.consensus"));
        for party in 0..3 {
            let (cells, found) = table(&file(&format!("site-{party}"), "usages.k_K.dt_0_5.consensus"));
            assert_eq!((cells.len(), cells[1].as_str()), (CELLS[party], "cell1"), "its own cells alone");
            let expected = expected.slice(ndarray::s![first(party)..first(party) + CELLS[party], ..]);
            let off = (&found - &expected).iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            assert!(off < 1e-8, "party {party}: {off}");
        }
    }
    let tables = dir.path().join("site-0/cnmf_tmp");
    for kind in ["spectra.k_3.merged", "local_density_cache.k_4.merged"] {
        assert!(tables.join(format!("site-0.{kind}.df.npz")).exists());
    }
    assert!(dir.path().join("site-0/site-0.k_selection_stats.df.npz").exists());

    let refused = |ranks: usize, line: String, words: &[&str]| {
        fednmf(ranks, &line).own_process().refused(words);
    };
    refused(4, parties(""), &["4 ranks, but 3 parties"]);
    // A gene of one cell would give its usages away.
    let mut rare = all.clone();
    rare.iter_mut().for_each(|cell| cell[0] = 0);
    rare[1][0] = 3;
    for party in 0..3 {
        write(at(&format!("rare-{party}.csv")).as_ref(), &genes, &rare[first(party)..][..CELLS[party]], Form::Cells);
    }
    for (options, output) in [("", "tpm-rare-{party}.csv"), ("--suppress-rare 3", "tpm-kept-{party}.csv")] {
        let line =
            format!("prepare counts {} --min-rows-per-column 1 --row-total 1e6 {options}", at("rare-{party}.csv"));
        let done = fednmf(0, &format!("{line} --output {}", at(output))).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
    let with = |tpm: &str, more: &str| parties(more).replace("/tpm-{party}", &format!("/{tpm}-{{party}}"));
    for ranks in [0, 3] {
        refused(ranks, with("tpm-rare", ""), &["fewer than 3 of its rows", "--suppress-rare 3"]);
    }
    for line in [with("tpm-rare", "--suppress-rare 3"), with("tpm-kept", "")] {
        let done = fednmf(3, &line).run();
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
    }
    refused(3, parties("--colluding 2 --min-rows 300"), &["--min-rows 300", "--accept-risk few-rows"]);
    refused(3, parties("--density-threshold 1e-9"), &["--density-threshold", "larger threshold"]);
    let nowhere = of_all.replace("/all", "/nowhere");
    refused(0, nowhere.replace("cells.csv", "tpm.csv"), &["tpm.csv: has other genes than the runs"]);
    refused(0, format!("{nowhere} --memory 1"), &["--memory"]);
    assert!(!dir.path().join("nowhere").exists(), "a refused command makes no directory");
    refused(0, format!("{of_all} --colluding 2"), &["--colluding", "{party}"]);
    refused(0, of_all.replace("/tpm.csv", "/tpm-0.csv"), &["tpm-0.csv: has other cells"]);
}

#[test]
#[cfg(feature = "sites")]
fn wrong_counts_are_refused_before_anything_leaves() {
    let mut stage = Stage::new();
    write_all_raw(&stage);
    let (genes, cells) = raw(2);
    let others: Vec<String> = (0..genes.len()).map(|j| format!("other{j}")).collect();
    let twice: Vec<String> =
        genes.iter().map(|name| if name == &genes[7] { &genes[3] } else { name }.clone()).collect();
    write(&stage.at("c").join("others.csv"), &others, &cells, Form::Genes);
    write(&stage.at("c").join("twice.csv"), &twice, &cells, Form::Genes);
    let table = text(&stage.at("c").join("raw.csv"));
    for (name, entry) in [("negative.csv", "-1"), ("shares.csv", "0.5")] {
        let (last, rest) = (table.rfind(',').unwrap(), table.len());
        let changed = format!("{},{entry}{}", &table[..last], &table[rest - 1..]);
        std::fs::write(stage.at("c").join(name), changed).unwrap();
    }
    stage.start_hub("--keep --sites a,b,c");
    for (name, why) in [
        ("others.csv", "site c has 51 names, of which others have 0; use the same identifiers"),
        ("twice.csv", "has the name of an earlier one"),
        ("negative.csv", "is negative"),
        ("shares.csv", "entries are not whole numbers"),
    ] {
        let before = SITES.map(|site| stage.says(site).len());
        let found = codes(&mut stage, |site| {
            let (_, file, more) = FILES[site];
            let file = if site == 2 { name } else { file };
            format!(
                "--transcript {{site}}/{name}.jsonl prepare counts {{site}}/{file} --common-columns {more} --output {{site}}/o.csv"
            )
        });
        assert_eq!(found, [Some(2); 3], "{name}: {}", stage.says("c"));
        for (site, before) in SITES.iter().zip(before) {
            let says = &stage.says(site)[before..];
            let errors: Vec<&str> = says.lines().filter(|line| line.starts_with("error: ")).collect();
            let own = *site == "c" || name == "others.csv";
            let why = if own { why } else { "site c cannot go on, for a reason that it prints itself" };
            assert!(matches!(errors[..], [error] if error.contains(why)), "{name} at {site}: {says}");
            // Names can only be compared by their digests.
            let allowed: &[&str] =
                if name == "others.csv" { &["agreement", "load headers", "digests of names"] } else { &["agreement"] };
            let sent = sent(&stage.at(site).join(format!("{name}.jsonl")));
            assert!(
                !sent.is_empty() && sent.iter().all(|[kind, _]| allowed.contains(&kind.as_str())),
                "{name}: {sent:?}"
            );
            assert!(!stage.at(site).join("o.csv").exists(), "{name}");
        }
    }
}

#[test]
#[cfg(feature = "sites")]
fn a_site_that_leaves_a_preparation_is_named_and_may_return() {
    let mut stage = Stage::new();
    write_all_raw(&stage);
    stage.start_hub("--keep --patience 1 --sites a,b,c");
    let words = |site: usize| {
        let (_, file, more) = FILES[site];
        format!("prepare counts {{site}}/{file} --common-columns {more} --variable-columns 20 --output {{site}}/o.csv")
    };

    // Before the last site is there.
    let a = start(&stage, 0, &words(0));
    let mut b = start(&stage, 1, &words(1));
    stage.wait_for(|stage| stage.hub_says().contains("site b joined"));
    b.kill().unwrap();
    b.wait().unwrap();
    stage.wait_for(|stage| stage.hub_says().contains("site b has gone"));
    stage.sites = vec![a, start(&stage, 1, &words(1)), start(&stage, 2, &words(2))];
    let found: Vec<_> = stage.finish_sites().into_iter().map(|(code, _)| code).collect();
    assert_eq!(found, [Some(0); 3], "{}", stage.says("b"));

    // In the middle: its file does not come to an end.
    SITES.iter().for_each(|site| std::fs::remove_file(stage.at(site).join("o.csv")).unwrap());
    let endless = stage.at("b").join("endless.csv");
    assert!(Command::new("mkfifo").arg(&endless).status().unwrap().success());
    let before = SITES.map(|site| stage.says(site).len());
    let endless = words(1).replace("{site}/raw", "{site}/endless.csv");
    stage.sites = vec![start(&stage, 0, &words(0)), start(&stage, 1, &endless), start(&stage, 2, &words(2))];
    stage.wait_for(|stage| (0..3).all(|site| stage.says(SITES[site])[before[site]..].contains("is party")));
    stage.sites[1].kill().unwrap();
    let found: Vec<_> = stage.finish_sites().into_iter().map(|(code, _)| code).collect();
    assert_eq!([found[0], found[2]], [Some(1); 2], "{}", stage.says("a"));
    for site in [0, 2] {
        let says = &stage.says(SITES[site])[before[site]..];
        assert!(says.contains("site b was lost"), "{says}");
        assert!(!stage.at(SITES[site]).join("o.csv").exists());
    }
    together(&mut stage, words);
}

/// The kinds of messages in a transcript, with their payloads.
#[cfg(feature = "sites")]
fn sent(transcript: &Path) -> Vec<[String; 2]> {
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let kind = |line: Value| ["kind", "payload"].map(|name| line[name].as_str().unwrap_or_default().to_string());
    let mut kinds: Vec<_> =
        text(transcript).lines().skip(1).map(|text| kind(line(text))).filter(|[kind, _]| !kind.is_empty()).collect();
    kinds.retain(|[kind, _]| kind != "control");
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
#[cfg(feature = "sites")]
fn a_preparation_is_proposed_approved_and_recorded() {
    let mut stage = Stage::new();
    stage.start_hub("--keep");
    let file = stage.at("proposal.json");
    let work = "prepare counts {site}/rows.npy --variable-columns 10 --unit-variance --output {site}/out.npy";
    let (code, shown) = end_of(stage.join("a", &format!("--propose {} {work}", file.display())).spawn().unwrap(), "a");
    assert_eq!(code, Some(0), "{}", stage.says("a"));
    assert!(shown.contains("--variable-columns 10") && shown.contains("sums and squares of the columns"), "{shown}");
    for site in NAMES {
        let approval = stage.at(site).join("approved.json");
        let line = format!("approve {} --as Ada<ada@{site}.org> -o {}", file.display(), approval.display());
        let keys = ["--cert", "--key", "--ca"].into_iter().zip([
            format!("{site}.pem"),
            format!("{site}.key"),
            "ca.pem".into(),
        ]);
        let run = keys.fold(fednmf(0, &line), |run, (option, file)| run.arg(option).arg(stage.keys(&file))).run();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    }
    let policy = stage.at("p.json");
    let rules = r#"{"methods": ["prepare", "fed-kl"], "require": ["secure-sum", "transcript", "site-log"], "approval": "required",
        "min_parties": 3, "min_rows": 40, "in_the_clear": ["agreement", "load headers"],
        "masked": ["rows with an entry in each column", "sums and squares of the columns"]}"#;
    std::fs::write(&policy, rules).unwrap();
    let options = format!(
        "--policy {} --approved {{site}}/approved.json --transcript {{site}}/t.jsonl --site-log {{site}}/log.jsonl",
        policy.display()
    );
    stage.start_sites(&format!("{options} {work}"));
    let ends = stage.finish_sites();
    assert!(
        ends.iter().all(|(code, _)| *code == Some(0)),
        "{:?}\n{}",
        NAMES.map(|site| stage.says(site)),
        stage.hub_says()
    );
    let proposal: Value = serde_json::from_str(&text(&file)).unwrap();
    let mut planned: Vec<[String; 2]> = (proposal["document"]["messages"].as_array().unwrap().iter())
        .map(|message| ["what", "payload"].map(|name| message[name].as_str().unwrap().to_string()))
        .collect();
    planned.sort();
    // Settings are compared before the transcript begins.
    planned.retain(|[kind, _]| kind != "control");
    for site in NAMES {
        let own = stage.at(site);
        assert_eq!(sent(&own.join("t.jsonl")), planned, "site {site} sends what was proposed");
        let verified = fednmf(0, "audit verify").arg(own.join("t.jsonl")).arg("--ca").arg(stage.keys("ca.pem")).run();
        assert_eq!(verified.code, Some(0), "{}", verified.stderr);
        assert!(text(&own.join("log.jsonl")).contains("\"prepare\""), "{}", text(&own.join("log.jsonl")));
        assert!(stage.says(site).contains("What leaves this site with prepare"), "{}", stage.says(site));
    }

    // What is refused before the site connects.
    for (words, why) in [
        (
            "--transcript {site}/u.jsonl prepare counts {site}/rows.npy --log1p --output {site}/o.npy",
            "approves another run",
        ),
        ("-k 3 prepare counts {site}/rows.npy --output {site}/o.npy", "--components: is about a factorisation"),
        (
            "--profile clinical prepare counts {site}/rows.npy --output {site}/o.npy",
            "--profile: is about a factorisation",
        ),
        ("prepare quantile {site}/rows.npy --output {site}/o.npy", "prepare quantile"),
        ("prepare counts {site}/rows.npy --parties 4 --output {site}/o.npy", "each site is a party"),
        ("prepare counts rows-{party}.npy --output {site}/o.npy", "without {party}"),
        ("prepare counts {site}/rows.npy --output {site}/rows.npy", "would overwrite"),
    ] {
        let approved = if why.contains("approves") { "--approved {site}/approved.json " } else { "" };
        let before = stage.says("b").len();
        let (code, _) = end_of(stage.join("b", &format!("--wait 1 {approved}{words}")).spawn().unwrap(), words);
        assert!(
            code == Some(2) && stage.says("b")[before..].contains(why),
            "{words}: {code:?} {}",
            &stage.says("b")[before..]
        );
    }
    for (rules, why) in [
        (r#"{"methods": ["fed-kl"]}"#, "does not allow prepare, only fed-kl"),
        (r#"{"max_epsilon": 2}"#, "max_epsilon: demands noise, and prepare adds none"),
        (r#"{"require": ["dp"]}"#, "require: demands noise, and prepare adds none"),
        (r#"{"require": ["hold"]}"#, "require: requires --hold, and prepare puts no results aside"),
        (r#"{"min_rows": 41}"#, "requires 41 rows"),
        (r#"{"in_the_clear": ["agreement"]}"#, "in_the_clear: does not allow 'load headers' to leave in the clear"),
        (
            r#"{"masked": ["rows with an entry in each column"]}"#,
            "masked: does not allow 'sums and squares of the columns' to leave masked; it leaves once with --variable-columns",
        ),
    ] {
        std::fs::write(&policy, rules).unwrap();
        let before = stage.says("b").len();
        let line = format!("--wait 1 --policy {} {work}", policy.display());
        let (code, _) = end_of(stage.join("b", &line).spawn().unwrap(), why);
        assert!(
            code == Some(2) && stage.says("b")[before..].contains(why),
            "{why}: {code:?} {}",
            &stage.says("b")[before..]
        );
    }

    // And of a run.
    std::fs::write(&policy, r#"{"masked": ["statistics of the matrix", "evaluation: squared residual"]}"#).unwrap();
    let line = format!("--wait 1 --policy {} --algo fed-kl --secure-sum -k 2 --max-iters 2", policy.display());
    assert_eq!(end_of(stage.join("b", &line).spawn().unwrap(), "fed-kl").0, Some(2));
    let why = "masked: does not allow 'sum of the terms of V's update' to leave masked; it leaves each iteration";
    assert!(stage.says("b").contains(why), "{}", stage.says("b"));

    // The others hear once that this site has refused.
    for site in ["a", "c", "d"] {
        let (code, _) = end_of(stage.join(site, work).spawn().unwrap(), site);
        assert!(
            code == Some(2) && stage.says(site).contains("site b takes no part in the run"),
            "{}",
            stage.says(site)
        );
    }

    // Sites that differ are told so.
    let start = |site: &&str| {
        let log1p = if **site == *"c" { "--log1p" } else { "" };
        stage.join(site, &format!("prepare counts {{site}}/rows.npy {log1p} --output {{site}}/o.npy")).spawn().unwrap()
    };
    stage.sites = NAMES.iter().map(start).collect();
    let codes: Vec<_> = stage.finish_sites().into_iter().map(|(code, _)| code).collect();
    assert!(codes.iter().all(|code| *code == Some(2)), "{codes:?}");
    assert!(stage.says("b").contains("the sites differ in --log1p: a has false, c has true"), "{}", stage.says("b"));
}

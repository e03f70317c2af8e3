//! The report: one well-formed page that loads nothing from elsewhere.

use std::path::Path;

use ndarray::Array2;
use tempfile::tempdir;

use crate::common::{data, fednmf, save_npy};

/// Four blocks with noise.
const BLOCKS: &str = "synthetic:blocks,m=90,n=60,k=4,noise=0.05,seed=3";

/// The text of a page; panics if it is not well formed, refers to something outside, or lacks what screen readers need.
fn page(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document = roxmltree::Document::parse_with_options(&text, options).unwrap_or_else(|e| panic!("{e}"));
    for node in document.descendants() {
        for attribute in node.attributes().filter(|a| ["src", "href"].contains(&a.name())) {
            assert!(attribute.value().starts_with("data:"), "loads {}", attribute.value());
        }
        if node.tag_name().name() == "svg" {
            let has = |name: &str| {
                let text = |c: roxmltree::Node<'_, '_>| c.text().is_some_and(|text| !text.is_empty());
                node.children().any(|c| c.tag_name().name() == name && text(c))
            };
            assert!(
                node.attribute("role") == Some("img") && has("title") && has("desc"),
                "a plot without a description"
            );
        }
    }
    assert!(!text.contains("url(") && !text.contains("@import") && !text.contains("NaN"));
    readable_aloud(&document);
    text
}

/// Rows are compared on the entries that the run has seen, however the others are given.
#[test]
fn missing_entries_have_no_part_in_the_errors_of_rows() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let planted = |(i, j): (usize, usize)| 1.0 + ((3 * i + 5 * j + i * j) % 7) as f64;
    let hidden = |i: usize, j: usize| (i * i + j).is_multiple_of(2 + i % 5);
    for (name, given) in [("nan.npy", f64::NAN), ("zero.npy", 0.0), ("marked.npy", 500.0)] {
        save_npy(
            &at(name),
            &Array2::from_shape_fn((40, 30), |(i, j)| if hidden(i, j) { given } else { planted((i, j)) }),
        );
    }
    save_npy(&at("marks.npy"), &Array2::from_shape_fn((40, 30), |(i, j)| f64::from(u8::from(hidden(i, j)))));
    let mut first: Option<Vec<String>> = None;
    for (name, missing) in [
        ("nan.npy", "nan".into()),
        ("zero.npy", "zero-unobserved".into()),
        ("marked.npy", at("marks.npy").display().to_string()),
    ] {
        for ranks in [0, 2] {
            let (html, trace) = (at(&format!("{name}-{ranks}.html")), at(&format!("{name}-{ranks}.jsonl")));
            let run =
                fednmf(ranks, &format!("--algo hals --seed 3 -k 3 --max-iters 30 --quiet --missing {missing} --input"));
            run.arg(at(name))
                .arg("--report")
                .arg(&html)
                .arg("--trace")
                .arg(&trace)
                .arg("--output")
                .arg(at("f.h5"))
                .ok();
            let again = at("again.html");
            fednmf(0, "report").arg(&trace).arg("--output").arg(&again).run();
            for page in [&html, &again].map(|path| page(path)) {
                let shown =
                    |text: &str| ["best: row", "median: row", "worst: row"].iter().any(|word| text.starts_with(word));
                let rows: Vec<String> = page
                    .split("<desc>")
                    .skip(1)
                    .filter_map(|rest| rest.split("</desc>").next())
                    .map(String::from)
                    .collect();
                let rows: Vec<String> = rows
                    .into_iter()
                    .flat_map(|rows| rows.split("; ").map(String::from).collect::<Vec<_>>())
                    .filter(|row| shown(row))
                    .collect();
                assert!(rows.len() >= 6, "{rows:?}");
                assert_eq!(first.get_or_insert_with(|| rows.clone()), &rows, "{name} on {ranks} ranks");
            }
        }
    }
}

/// What axe checks in a browser and this test can: language, landmark, headings in order, unique names, labelled tables.
fn readable_aloud(document: &roxmltree::Document<'_>) {
    let all = |name: &'static str| document.descendants().filter(move |node| node.tag_name().name() == name);
    assert!(document.root_element().attribute("lang") == Some("en") && all("main").count() == 1);
    assert!(all("head").flat_map(|head| head.children()).any(|node| node.tag_name().name() == "title"));
    let levels = document.descendants().filter_map(|node| node.tag_name().name().strip_prefix('h')?.parse::<u8>().ok());
    let levels: Vec<u8> = levels.collect();
    assert!(levels[0] == 1 && levels[1..].iter().all(|level| *level > 1), "{levels:?}");
    assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
    for name in ["id", "aria-label"] {
        let values: Vec<&str> = document.descendants().filter_map(|node| node.attribute(name)).collect();
        let unique: std::collections::BTreeSet<&str> = values.iter().copied().collect();
        assert!(values.len() == unique.len() && !unique.contains(""), "{name}: {values:?}");
    }
    for table in all("table") {
        let region = table.parent().unwrap();
        let has = |name: &str| region.attribute(name).is_some();
        assert!(has("tabindex") && has("aria-label") && region.attribute("role") == Some("region"));
    }
    assert!(all("th").all(|head| head.attribute("scope") == Some("col")));
    assert!(all("details").all(|part| part.first_element_child().is_some_and(|c| c.tag_name().name() == "summary")));
}

fn ids(page: &str) -> Vec<&str> {
    page.split("<figure id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// The headings of the sections.
fn headings(page: &str) -> Vec<&str> {
    page.split("<h2>").skip(1).filter_map(|rest| rest.split('<').next()).collect()
}

/// The description of a figure's drawing.
fn description<'a>(page: &'a str, id: &str) -> &'a str {
    let figure = page.split(&format!("<figure id=\"{id}\"")).nth(1).unwrap_or_else(|| panic!("no {id}"));
    figure.split("<desc>").nth(1).and_then(|rest| rest.split("</desc>").next()).unwrap()
}

#[test]
fn the_report_of_a_run_can_be_repeated_from_its_trace() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (ranks, algo, image) in [(2, "dsanls", ""), (3, "hals", "8x8")] {
        let mut run = fednmf(ranks, &format!("--algo {algo} -k 5 --max-iters 20 --seed 1"))
            .arg("--input")
            .arg(data("digits.npy"));
        run = run.arg("--trace").arg(file(&format!("{algo}.jsonl"))).arg("--report").arg(file(&format!("{algo}.html")));
        if !image.is_empty() {
            run = run.arg("--image").arg(image).arg("--output").arg(file("o.h5"));
        }
        // The page quotes the command line of the process.
        let summary = run.own_process().ok();
        let text = page(&file(&format!("{algo}.html")));
        let wanted = [
            "components-0",
            "usage-0",
            "error-over-iterations",
            "error-over-time",
            "reconstruction-0",
            "error-over-traffic",
            "time-0",
            "traffic-0",
        ];
        assert_eq!(ids(&text), wanted, "{algo}");
        assert!(text.contains(&format!("mpirun -n {ranks} fednmf --algo {algo}")), "the command");
        assert!(text.contains(&format!("{:.6}", summary["rel_error"].as_f64().unwrap())), "the error");
        assert!((0..ranks).all(|r| text.contains(&format!("rank {r}, "))), "the time of each rank");
        assert!(text.contains("gather V") || algo == "dsanls");
        // One heat map, or one image per component; the use of the components; two images for each of the six rows.
        assert_eq!(text.matches("<image").count(), if image.is_empty() { 1 } else { 5 } + 1 + 12);
        let order = ["Components", "Use of the components", "Fit", "Reconstruction", "Performance", "Reproduce"];
        assert_eq!(headings(&text), order);
        assert!(text.contains("Paper to cite: "), "{algo}");
        assert!(text.contains(&format!("<h1>digits.npy: k = 5, {algo}</h1>")), "a name instead of a path");
        assert_eq!(text.matches("<dt>").count(), 5, "the numbers of the headline");
        // 1797 rows in total, and six of them.
        let counts = description(&text, "usage-0").split(" in ").skip(1);
        let count = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse::<usize>().ok());
        assert_eq!(counts.filter_map(count).sum::<usize>(), 1797);
        let rows = description(&text, "reconstruction-0").trim_end_matches('.').split("; ");
        let rows: Vec<(&str, f64)> = rows
            .map(|row| (row.split(':').next().unwrap(), row.rsplit(' ').next().unwrap().parse().unwrap()))
            .collect();
        assert!(rows.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{rows:?}");
        let words: Vec<&str> = rows.iter().map(|row| row.0).collect();
        assert_eq!(words, ["best", "best", "median", "median", "worst", "worst"]);
    }
    // No file of factors was left next to the report.
    let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["dsanls.html", "dsanls.jsonl", "hals.html", "hals.jsonl", "o.h5"]);

    // Factors of another run are shown, but not in silence.
    let mixed = fednmf(0, "report").arg(file("dsanls.jsonl")).arg("--factors").arg(file("o.h5"));
    let done = mixed.arg("--output").arg(file("mixed.html")).run();
    assert!(done.code == Some(0) && done.stderr.contains("warning: "), "{}", done.stderr);
    assert!(done.stderr.contains("another run") && page(&file("mixed.html")).contains("another run"));
    let own = fednmf(0, "report").arg(file("hals.jsonl")).arg("--factors").arg(file("o.h5"));
    assert!(!own.arg("--output").arg(file("own.html")).run().stderr.contains("another run"));

    let both = fednmf(0, "report --image 8x8").arg(file("dsanls.jsonl")).arg(file("hals.jsonl"));
    let done = both.arg("--output").arg(file("both.html")).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let text = page(&file("both.html"));
    // The measure of the methods is the relative error, so there is no other chart.
    assert!(!ids(&text).contains(&"measure-over-iterations"));
    // The run without --output saved no factors.
    assert!(ids(&text).contains(&"components-1") && !ids(&text).contains(&"components-0"));
    assert!(text.contains("kept no factors") && ids(&text).contains(&"reconstruction-1"));
    // A sentence, no section.
    assert_eq!(text.matches("kept no factors").count(), 1);
    assert!(!text.contains("<h3>dsanls</h3>") && !ids(&text).contains(&"matches-1"));

    // Any number of ranks reads the same rows, which gives the same images.
    let alone = fednmf(2, "report --image 8x8").arg(file("hals.jsonl")).arg("--output").arg(file("alone.html"));
    assert_eq!(alone.run().code, Some(0));
    let figure = |name: &str| {
        let text = page(&file(name));
        text.split("<figure id=\"reconstruction-0\">").nth(1).unwrap().split("</figure>").next().unwrap().to_string()
    };
    assert!(figure("alone.html") == figure("hals.html"));
}

/// The components of two runs are matched, and their common sentence says how many agree.
/// Names tell that another program has sorted the factors, or the matrix.
#[test]
fn factors_in_another_order_than_the_matrix_are_not_shown() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let rows: [[u8; 3]; 5] = [[9, 1, 4], [2, 8, 1], [7, 3, 3], [1, 9, 2], [5, 5, 6]];
    let table = |order: [usize; 3], from_last: bool| {
        let titles = order.map(|j| ["a", "b", "c"][j]).join(",");
        let mut lines: Vec<String> = rows
            .iter()
            .enumerate()
            .map(|(i, row)| format!("r{i},{}\n", order.map(|j| row[j].to_string()).join(",")))
            .collect();
        if from_last {
            lines.reverse();
        }
        format!("id,{titles}\n{}", lines.concat())
    };
    std::fs::write(file("x.csv"), table([0, 1, 2], false)).unwrap();
    std::fs::write(file("y.csv"), table([2, 0, 1], false)).unwrap();
    std::fs::write(file("z.csv"), table([0, 1, 2], true)).unwrap();
    std::fs::write(file("other.csv"), table([0, 1, 2], false).replace("r3", "r9")).unwrap();
    let run = fednmf(0, "--algo hals -k 2 --max-iters 5 --input").arg(file("x.csv"));
    run.arg("--output").arg(file("f.npz")).arg("--trace").arg(file("t.jsonl")).ok();
    let report = |input: &str| {
        let line = fednmf(0, "report").arg(file("t.jsonl")).arg("--factors").arg(file("f.npz"));
        line.arg("--input").arg(file(input)).arg("--output").arg(file("r.html")).run()
    };
    assert_eq!(report("x.csv").code, Some(0));
    for (input, words) in [
        ("y.csv", "y.csv are in another order than in the run"),
        ("z.csv", "z.csv are in another order than in the run"),
        ("other.csv", "its rows are others than those of --input"),
    ] {
        let refused = report(input);
        assert!(refused.code == Some(2) && refused.stderr.contains(words), "{input}: {}", refused.stderr);
    }
    // The factors that the trace names are left out.
    let line = fednmf(0, "report").arg(file("t.jsonl")).arg("--input").arg(file("z.csv"));
    assert_eq!(line.arg("--output").arg(file("r.html")).run().code, Some(0));
    let text = page(&file("r.html"));
    assert!(text.contains("The components are not shown: the rows of --input "), "{text}");
}

/// Names, not places, tell which entries of the components of two runs are compared.
#[test]
fn the_components_of_runs_with_columns_in_another_order_are_compared_by_name() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    // Three blocks of four columns each.
    let entry = |i: usize, j: usize| if i % 3 == j / 4 { 5 + (i * 7 + j * 3) % 4 } else { 0 };
    let table = |order: &[usize], prefix: &str| {
        let line = |of: &dyn Fn(usize) -> String| order.iter().map(|&j| format!(",{}", of(j))).collect::<String>();
        let rows = (0..30).map(|i| format!("r{i}{}\n", line(&|j| entry(i, j).to_string())));
        format!("id{}\n{}", line(&|j| format!("{prefix}{j}")), rows.collect::<String>())
    };
    let turned = [5, 0, 9, 2, 11, 7, 4, 1, 10, 3, 8, 6];
    let in_order: Vec<usize> = (0..12).collect();
    for (name, text) in [
        ("a", table(&in_order, "g")),
        ("turned", table(&turned, "g")),
        ("fewer", table(&turned[..9], "g")),
        ("others", table(&in_order, "h")),
    ] {
        std::fs::write(file(&format!("{name}.csv")), text).unwrap();
        let run = fednmf(0, "--algo hals -k 3 --max-iters 100 --seed 2 --input").arg(file(&format!("{name}.csv")));
        run.arg("--trace").arg(file(&format!("{name}.jsonl"))).arg("--output").arg(file(&format!("{name}.h5"))).ok();
    }
    let run = ["a", "turned", "fewer", "others"]
        .iter()
        .fold(fednmf(0, "report"), |run, name| run.arg(file(&format!("{name}.jsonl"))));
    assert_eq!(run.arg("--output").arg(file("r.html")).run().code, Some(0));
    let text = page(&file("r.html"));
    for (name, columns) in [("turned", ""), ("fewer", "; by the 9 columns that both have")] {
        let wanted =
            format!("3 of 3 components of a have a counterpart in {name} with a cosine of at least 0.9{columns}<");
        assert!(text.contains(&wanted), "{name}: {text}");
    }
    assert!(text.contains("not matched with those of a: the runs have no name of a column in common."), "{text}");
    assert!(!ids(&text).contains(&"matches-3"));
}

#[test]
fn the_components_of_two_runs_are_compared() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (name, more) in [("a", "--algo hals -k 4"), ("b", "--algo bpp -k 3"), ("c", "--algo hals -k 4")] {
        let run = fednmf(0, &format!("{more} --max-iters 200 --seed 3 --input {BLOCKS}"));
        run.arg("--trace").arg(file(&format!("{name}.jsonl"))).arg("--output").arg(file(&format!("{name}.h5"))).ok();
    }
    let traces = ["a.jsonl", "b.jsonl", "c.jsonl"].map(file);
    let run = traces.iter().fold(fednmf(0, "report"), |run, trace| run.arg(trace));
    assert_eq!(run.arg("--output").arg(file("r.html")).run().code, Some(0));
    let text = page(&file("r.html"));
    assert!(text.contains("3 runs compared</h1>"), "{text}");
    let place = |id: &str| ids(&text).iter().position(|found| *found == id).unwrap_or_else(|| panic!("no {id}"));
    assert!(place("matches-1") < place("matches-2") && place("matches-2") < place("components-0"));
    // The same run twice, and one with a component less.
    assert!(text.contains("4 of 4 components of a have a counterpart in c with a cosine of at least 0.9"));
    assert_eq!(description(&text, "matches-2").matches("1.000").count(), 4);
    assert_eq!(description(&text, "matches-1").matches("none").count(), 1);
    assert!(["components", "usage", "reconstruction"].iter().all(|stem| place(&format!("{stem}-2")) > 0));
}

/// Rows of another matrix are not those that the factors reconstruct.
#[test]
fn rows_of_an_input_that_has_changed_are_not_shown() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let input = |shift: usize| Array2::from_shape_fn((9, 6), |(i, j)| ((i * 5 + j * 3 + shift) % 7) as f64 / 3.0);
    for precision in ["f64", "f32"] {
        save_npy(&file("x.npy"), &input(0));
        let line = format!("--algo hals -k 2 --max-iters 5 --precision {precision}");
        let run = fednmf(0, &line).arg("--input").arg(file("x.npy"));
        run.arg("--output").arg(file("f.h5")).arg("--trace").arg(file(&format!("{precision}.jsonl"))).ok();
        let report = || {
            let trace = file(&format!("{precision}.jsonl"));
            let done = fednmf(2, "report").arg(trace).arg("--output").arg(file("r.html")).run();
            assert_eq!(done.code, Some(0), "{done:?}");
            (done.stderr, page(&file("r.html")))
        };
        let (told, text) = report();
        assert!(!told.contains("warning") && ids(&text).contains(&"reconstruction-0"), "{told}");
        save_npy(&file("x.npy"), &input(1));
        let (told, text) = report();
        assert!(told.contains("warning") && told.contains("x.npy is not as it was in the run"), "{told}");
        assert!(!ids(&text).contains(&"reconstruction-0") && text.contains("not as it was in the run"));
    }
}

#[test]
fn terms_are_listed_by_name_and_private_data_stays_private() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = fednmf(0, "--algo hals -k 3 --max-iters 5 --input").arg(data("formats/counts.h5ad"));
    run.arg("--report").arg(file("r.html")).ok();
    let text = page(&file("r.html"));
    assert!(text.contains("Terms of the components") && text.contains("<title>29: ") || text.contains("<title>7: "));
    let run = fednmf(2, "--algo syn-sd --parties 3 -k 3 --max-iters 5 --input").arg(data("digits.npy"));
    run.arg("--report").arg(file("p.html")).ok();
    let text = page(&file("p.html"));
    assert!(text.contains("parties&#39; own") && !ids(&text).contains(&"reconstruction-0"));
    assert!(ids(&text).contains(&"components-0") && text.contains("What each party sent"));
    assert!(text.contains("<h1>Data of 3 parties: k = 3, syn-sd</h1>"), "the name of the file is private");
    // The sentence comes before the ledger. All ranks have read one file, so nothing was private.
    let privacy = text.split("<h2>Privacy</h2>").nth(1).unwrap();
    assert!(privacy.find("nothing in this run was private") < privacy.find("What each party sent"), "{privacy}");
    let run = fednmf(1, "--algo syn-sd --parties 3 -k 3 --max-iters 5 --input").arg(data("digits.npy"));
    run.arg("--report").arg(file("q.html")).ok();
    assert!(page(&file("q.html")).contains("No message of this run carried entries of the matrix."));
    fednmf(0, "--max-iters 1 --image 5x5 --report")
        .arg(file("x.html"))
        .arg("--input")
        .arg(data("digits.npy"))
        .refused(&["5x5", "64"]);
    fednmf(0, "report --output").arg(file("x.html")).arg(data("digits.npy")).refused(&["digits.npy", "line 1"]);
    assert!(!file("x.html").exists());
}

#[test]
fn the_measure_of_the_method_leads_its_report() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("felb.html");
    let run = fednmf(0, "--algo felb --input synthetic:tiles,m=40,n=30,k=3 -k 3 --max-iters 20 --report");
    run.arg(&path).ok();
    let text = page(&path);
    let place = |id: &str| ids(&text).iter().position(|found| *found == id).unwrap_or_else(|| panic!("no {id}"));
    assert!(place("measure-over-iterations") < place("error-over-iterations"));
    assert!(text.contains("F1 over iterations") && text.contains("<dt>F1</dt>"));
}

/// An array of images keeps their shape: --image is not needed.
#[test]
fn images_of_the_input_are_drawn_as_images() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    // 30 images of 6 x 4 pixels.
    let pixels: Vec<u8> = (0..30 * 24u32).map(|i| (i * i % 251) as u8).collect();
    let mut idx = vec![0, 0, 8, 3, 0, 0, 0, 30, 0, 0, 0, 6, 0, 0, 0, 4];
    idx.extend(&pixels);
    std::fs::write(file("images.idx"), idx).unwrap();
    let mut npy = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    npy.extend(format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (30, 6, 4), }").bytes());
    npy.extend(&pixels);
    std::fs::write(file("images.npy"), npy).unwrap();
    for name in ["images.idx", "images.npy"] {
        for (ranks, more) in [(2, ""), (1, "--transpose")] {
            let run = fednmf(ranks, &format!("--algo hals -k 3 --max-iters 5 {more} --input")).arg(file(name));
            let run = run.arg("--report").arg(file("r.html")).arg("--trace").arg(file("t.jsonl"));
            run.arg("--output").arg(file("o.h5")).own_process().ok();
            let done = fednmf(0, "report").arg(file("t.jsonl")).arg("--output").arg(file("again.html")).run();
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            for page_of in ["r.html", "again.html"] {
                let text = page(&file(page_of));
                assert!(text.contains("Components as images"), "{name} {more} {page_of}");
                // Three components, their use, and two images for each of the six rows.
                assert_eq!(text.matches("<image").count(), 3 + 1 + 12, "{name} {more} {page_of}");
            }
        }
    }
}

#[test]
fn the_unit_of_errors_of_divided_entries_is_told() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    crate::common::save_npy(&at("x.npy"), &ndarray::Array2::from_shape_fn((8, 6), |(i, j)| ((i * j) % 5) as f64 * 2.5));
    let words = "--scale max divided the entries by 10";
    for scale in ["max", "none"] {
        let run = fednmf(0, &format!("-k 2 --max-iters 5 --scale {scale} --input")).arg(at("x.npy"));
        run.arg("--report").arg(at("r.html")).ok();
        assert_eq!(page(&at("r.html")).contains(words), scale == "max");
        let folder = at(&format!("sweep-{scale}"));
        let sweep = fednmf(0, &format!("sweep --k 1,2 --runs 2 --max-iters 5 --scale {scale} --input"));
        let done = sweep.arg(at("x.npy")).arg("--output").arg(&folder).run();
        let page = page(&folder.join("sweep.html"));
        assert_eq!([done.stdout.contains(words), page.contains(words)], [scale == "max"; 2], "{}", done.stdout);
        let numbers = std::fs::read_to_string(folder.join("sweep.json")).unwrap();
        assert_eq!(numbers.contains("\"scale_divisor\": 10.0"), scale == "max", "{numbers}");
    }
}

//! `fednmf top`: the rows of a factor with the largest weights in each component, or the specific ones, or those that mark it.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use ndarray::{Array2, ArrayView1, Axis};
use serde_json::json;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print;
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_comm::Communicator;
use fednmf_files::names;
use fednmf_files::output::own_mark::{MARK, seal};
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};

use super::factor_rows::{FactorRows, Scale, Side};

/// How rows are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Ranking {
    /// By their weight in the component
    Weight,
    /// By their weight times its share of their weights in all components, both of components with sum 1
    Specific,
    /// Those with their largest weight in this component, by how much they belong to few components alone
    Marker,
}

/// `fednmf top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// File with U and V, as --output writes it (.h5, .h5ad, .npz)
    pub factors: PathBuf,
    /// Rows for each component
    #[arg(short = 'n', long, value_name = "N", default_value = "20")]
    pub count: usize,
    /// What is listed: columns of the matrix, which are the rows of V, or its rows
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Side::Columns)]
    pub of: Side,
    /// How they are ranked. weight. specific: by the weight times its share of the weights in all components, both of components
    /// with sum 1, for genes and words. marker: by the feature score of Kim and Park (2007), which small weights can have too
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Ranking::Weight, hide_possible_values = true)]
    pub by: Ranking,
    /// Names instead of those in the file: one a line (FILE:2: its second column, between tabs)
    #[arg(long, value_name = "FILE")]
    pub terms: Option<String>,
    /// Write to this .tsv or .json instead of printing
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One of the rows that are listed.
struct Top {
    row: usize,
    weight: f64,
    score: f64,
}

/// Lists the top rows of each component. On one rank.
///
/// # Errors
/// If the factors cannot be read, or the output cannot be written.
pub fn top(args: &TopArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("top: works on one rank; start it without mpirun").on_all_ranks().into());
    }
    if args.count == 0 {
        return Err(Error::input("--count 0: must be at least 1"));
    }
    let as_json = match &args.output {
        Some(path) => is_json(path, args)?,
        None => args.json,
    };
    let rows = FactorRows::read(&args.factors, args.of, Scale::Unit, args.terms.as_deref())?;
    let lists = ranked(&rows.weights, args.by, args.count);
    let mark = args.output.as_ref().map(|_| MARK);
    let text = if as_json { json(&lists, &rows, mark) } else { table(&lists, &rows) };
    let write = |out: &mut std::fs::File| {
        out.write_all(text.as_bytes())?;
        if as_json { seal(out) } else { Ok(()) }
    };
    match &args.output {
        None if !as_json && std::io::stdout().is_terminal() => print(&listed(&lists, &rows))?,
        None => print(&text)?,
        Some(path) => unfinished::replace(path, Access::as_of([&args.factors]), write)
            .map_err(|e| Error::failed(format!("{}: cannot be written ({e}); check the free space", path.display())))?,
    }
    Ok(EXIT_DONE)
}

/// The titles of the table.
const HEADER: &str = "component\trank\tname\tweight\tscore";

/// Checks the output; returns whether it is JSON.
fn is_json(path: &Path, args: &TopArgs) -> Result<bool> {
    let as_json = match path.extension().and_then(|end| end.to_str()) {
        Some("json") => true,
        Some("tsv") => false,
        _ => return Err(Error::input(format!("--output {}: terms are written to .tsv or .json", path.display()))),
    };
    let mut sources = vec![("FACTORS", args.factors.clone())];
    sources.extend(args.terms.as_deref().map(|text| ("--terms", names::file_of(text))));
    let content = if as_json { Content::Marked } else { Content::Table(HEADER) };
    targets::check(&[Target { option: "--output", path, content }], &sources)?;
    Ok(as_json)
}

/// The feature score of a row (Kim and Park, Sparse non-negative matrix factorizations via alternating non-negativity-
/// constrained least squares, Bioinformatics 23, 2007): 1 for a row with only one component, 0 for equal weights in all.
fn feature_score(weights: impl Iterator<Item = f64> + Clone) -> f64 {
    let (sum, k) = weights.clone().fold((0.0, 0), |(sum, k), w| (sum + w, k + 1));
    if sum <= 0.0 || k < 2 {
        return f64::from(u8::from(sum > 0.0));
    }
    let entropy: f64 = weights.filter(|w| *w > 0.0).map(|w| -(w / sum) * (w / sum).log2()).sum();
    1.0 - entropy / f64::from(k).log2()
}

/// The top rows of each component of a factor whose components have norm 1.
fn ranked(weights: &Array2<f64>, by: Ranking, count: usize) -> Vec<Vec<Top>> {
    let scores: Vec<f64> = weights.rows().into_iter().map(|row| feature_score(row.iter().copied())).collect();
    // Of components with sum 1, so that the scale of a component does not count.
    let shares = weights / &weights.sum_axis(Axis(0)).mapv(|sum| if sum > 0.0 { sum } else { 1.0 });
    let sums = shares.sum_axis(Axis(1));
    let largest: Vec<f64> = weights.rows().into_iter().map(|row| row.fold(0.0, |most: f64, w| most.max(*w))).collect();
    let key = |top: &Top, component: usize| match by {
        Ranking::Weight => [top.weight, top.score],
        Ranking::Specific => [shares[[top.row, component]].powi(2) / sums[top.row], top.score],
        Ranking::Marker => [top.score, top.weight],
    };
    let list = |(component, column): (usize, ArrayView1<'_, f64>)| {
        let listed = |row: &usize| column[*row] > 0.0 && (by != Ranking::Marker || column[*row] == largest[*row]);
        let mut all: Vec<Top> =
            (0..column.len()).filter(listed).map(|row| Top { row, weight: column[row], score: scores[row] }).collect();
        let falling = |a: &Top, b: &Top| {
            let ([a_first, a_second], [b_first, b_second]) = (key(a, component), key(b, component));
            b_first.total_cmp(&a_first).then(b_second.total_cmp(&a_second)).then(a.row.cmp(&b.row))
        };
        all.sort_by(falling);
        all.truncate(count);
        all
    };
    weights.columns().into_iter().enumerate().map(list).collect()
}

fn table(lists: &[Vec<Top>], rows: &FactorRows) -> String {
    let mut out = format!("{HEADER}\n");
    for (component, list) in lists.iter().enumerate() {
        for (rank, top) in list.iter().enumerate() {
            let name = rows.cell(top.row);
            let _ = writeln!(out, "{component}\t{}\t{name}\t{}\t{}", rank + 1, top.weight, top.score);
        }
    }
    out
}

/// The names without their numbers, a line for each component.
fn listed(lists: &[Vec<Top>], rows: &FactorRows) -> String {
    let mut out = String::from("component  names, in descending order\n");
    for (component, list) in lists.iter().enumerate() {
        let names: Vec<String> = list.iter().map(|top| rows.cell(top.row)).collect();
        let _ = writeln!(out, "{component:<9}  {}", names.join(", "));
    }
    out
}

/// With the mark of a file, if it is for one.
fn json(lists: &[Vec<Top>], rows: &FactorRows, mark: Option<&str>) -> String {
    let term =
        |top: &Top| json!({"name": rows.name(top.row), "row": top.row, "weight": top.weight, "score": top.score});
    let terms = |list: &Vec<Top>| list.iter().map(term).collect::<Vec<_>>();
    let component = |(number, list)| json!({"component": number, "terms": terms(list)});
    let mut all = json!({"components": lists.iter().enumerate().map(component).collect::<Vec<_>>()});
    if let Some(mark) = mark {
        all["mark"] = mark.into();
    }
    format!("{all}\n")
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn scores_are_one_for_one_component_and_zero_for_equal_weights() {
        let score = |weights: &[f64]| feature_score(weights.iter().copied());
        assert_eq!(score(&[0.0, 3.0, 0.0]), 1.0);
        assert!(score(&[2.0, 2.0, 2.0]).abs() < 1e-12);
        // 1 + (3/4 log2 3/4 + 1/4 log2 1/4) / log2 2
        assert!((score(&[3.0, 1.0]) - (1.0 + 0.75 * 0.75f64.log2() - 0.5)).abs() < 1e-12);
        assert_eq!((score(&[0.0, 0.0]), score(&[5.0])), (0.0, 1.0));
    }

    #[test]
    fn markers_belong_to_one_component() {
        let weights = array![[0.9, 0.8], [0.3, 0.0], [0.1, 0.5], [0.0, 0.0]];
        let rows = |by, count| -> Vec<Vec<usize>> {
            ranked(&weights, by, count).iter().map(|list| list.iter().map(|top| top.row).collect()).collect()
        };
        assert_eq!(rows(Ranking::Weight, 2), [[0, 1], [0, 2]]);
        assert_eq!(rows(Ranking::Marker, 9), [vec![1, 0], vec![2]]);
        // The sums are 1.3: 0.9² / 1.7, 0.3 and 0.1² / 0.6; 0.8² / 1.7 and 0.5² / 0.6, over 1.3.
        assert_eq!(rows(Ranking::Specific, 9), [vec![0, 1, 2], vec![2, 0]]);
        // Another scale of a component changes nothing.
        let scaled = &weights * &array![[1.0, 0.01]];
        let of =
            |weights| ranked(weights, Ranking::Specific, 9).iter().flatten().map(|top| top.row).collect::<Vec<_>>();
        assert_eq!(of(&scaled), of(&weights));
    }
}

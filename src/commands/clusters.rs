//! `fednmf clusters`: the component that each row of the matrix belongs to most, and how well these clusters agree with
//! known ones.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use ndarray::Array2;
use serde_json::json;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::{print, print_table};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::warning::note;
use fednmf_comm::Communicator;
use fednmf_files::names;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};

use super::factor_rows::{FactorRows, Scale, Side};

/// `fednmf clusters`.
#[derive(Debug, Args)]
pub struct ClustersArgs {
    /// File with U and V, as --output writes it (.h5, .h5ad, .npz)
    pub factors: PathBuf,
    /// What is clustered: rows of the matrix, or its columns
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Side::Rows)]
    pub of: Side,
    /// Known clusters: print the adjusted Rand index. FILE.h5ad:obs/COLUMN, FILE:COLUMN with the title of a column of a .csv or
    /// .tsv table (FILE:2: the second one, between tabs, without titles), .npy, idx, or a text file with a label a line; matched
    /// by name where the file has the names of the rows, otherwise in their order. Missing labels are left out
    #[arg(long, value_name = "FILE")]
    pub labels: Option<String>,
    /// Write the clusters to this .tsv instead of printing them
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the sizes, and the adjusted Rand index, as JSON
    #[arg(long)]
    pub json: bool,
}

/// Assigns each row to a component. On one rank.
///
/// # Errors
/// If factors or labels cannot be read, or the output cannot be written.
pub fn clusters(args: &ClustersArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("clusters: works on one rank; start it without mpirun").on_all_ranks().into());
    }
    if let Some(path) = &args.output {
        if path.extension().is_none_or(|end| end != "tsv") {
            return Err(Error::input(format!("--output {}: clusters are written to .tsv", path.display())));
        }
        let mut sources = vec![("FACTORS", args.factors.clone())];
        sources.extend(args.labels.as_deref().map(|text| ("--labels", names::file_of(text))));
        targets::check(&[Target { option: "--output", path, content: Content::Table(HEADER) }], &sources)?;
    }
    let rows = FactorRows::read(&args.factors, args.of, Scale::Balanced, None)?;
    let found = assigned(&rows.weights, &rows.other_sums);
    let index = args.labels.as_deref().map(|text| agreement(text, &rows, &found)).transpose()?;
    if let Some(path) = &args.output {
        let text = table(&rows, &found);
        unfinished::replace(path, Access::as_of([&args.factors]), |out| out.write_all(text.as_bytes()))
            .map_err(|e| Error::failed(format!("{}: cannot be written ({e}); check the free space", path.display())))?;
    }
    let mut sizes = vec![0u64; rows.weights.ncols()];
    found.iter().flatten().for_each(|(cluster, _)| sizes[*cluster] += 1);
    let unassigned = found.iter().filter(|found| found.is_none()).count();
    if args.json {
        print(&format!("{}\n", json!({"sizes": sizes, "unassigned": unassigned, "adjusted_rand": index})))?;
    } else if let Some(index) = index {
        let without = if unassigned > 0 { format!(", without {unassigned} of zeros alone") } else { String::new() };
        let rows = found.len() - unassigned;
        print(&format!("adjusted Rand index {index:.6} ({rows} rows in {} clusters{without})\n", sizes.len()))?;
    } else if args.output.is_none() {
        print_table(&table(&rows, &found))?;
    }
    Ok(EXIT_DONE)
}

/// The component with the largest weight in each row, and its share of the row's sum in U Vᵀ; `None` for a row of
/// zeros.
fn assigned(weights: &Array2<f64>, other_sums: &Array2<f64>) -> Vec<Option<(usize, f64)>> {
    let one = |(i, row): (usize, ndarray::ArrayView1<'_, f64>)| {
        // One row of sums is for all.
        let other_sums = other_sums.row(i.min(other_sums.nrows() - 1));
        let first = (0..row.len()).fold(0, |best, l| if row[l] > row[best] { l } else { best });
        // A component that is zero in either factor has no weight, and its sum may not be finite.
        let term = |l: usize| if row[l] > 0.0 { row[l] * other_sums[l] } else { 0.0 };
        let sum: f64 = (0..row.len()).map(term).sum();
        (row.first().is_some() && row[first] > 0.0).then(|| (first, if sum > 0.0 { term(first) / sum } else { 0.0 }))
    };
    weights.rows().into_iter().enumerate().map(one).collect()
}

/// The titles of the table.
const HEADER: &str = "name\tcluster\tshare";

/// A row without a cluster has an empty field.
fn table(rows: &FactorRows, found: &[Option<(usize, f64)>]) -> String {
    let mut out = format!("{HEADER}\n");
    for (row, found) in found.iter().enumerate() {
        let cells = found.map_or_else(|| "\t0".to_string(), |(cluster, share)| format!("{cluster}\t{share}"));
        let _ = writeln!(out, "{}\t{cells}", rows.cell(row));
    }
    out
}

/// The adjusted Rand index of the clusters and the labels of a file, of the rows that have a cluster.
fn agreement(text: &str, rows: &FactorRows, found: &[Option<(usize, f64)>]) -> Result<f64> {
    let labels = names::labels("--labels", text, rows.names(), found.len())?;
    let wrong = |what: String| Error::input(format!("--labels {text}: {what}"));
    let there = labels.iter().flatten().count();
    let distinct: HashSet<&String> = labels.iter().flatten().collect();
    if there == 0 {
        return Err(wrong("has no label that is not missing".into()));
    }
    if there > 1 && distinct.len() == there {
        return Err(wrong(
            "each row has a label of its own, which makes no clusters; if the labels are a column of a table, name it \
             (FILE:COLUMN)"
                .into(),
        ));
    }
    if there < labels.len() {
        note(&format!(
            "--labels {text}: {} of {} rows have no label and are not compared",
            labels.len() - there,
            labels.len()
        ));
    }
    let both = found.iter().zip(&labels).filter_map(|(found, label)| Some(((*found)?.0, label.as_ref()?)));
    let (clusters, labels): (Vec<usize>, Vec<&String>) = both.unzip();
    Ok(adjusted_rand(&clusters, &labels))
}

/// The adjusted Rand index of two partitions (Hubert and Arabie 1985): 1 for equal ones, 0 on average for random ones.
fn adjusted_rand<A: std::hash::Hash + Eq, B: std::hash::Hash + Eq>(a: &[A], b: &[B]) -> f64 {
    let pairs = |count: f64| 0.5 * count * (count - 1.0);
    let (mut both, mut of_a, mut of_b) = (HashMap::new(), HashMap::new(), HashMap::new());
    for pair @ (a, b) in a.iter().zip(b) {
        *both.entry(pair).or_insert(0.0) += 1.0;
        *of_a.entry(a).or_insert(0.0) += 1.0;
        *of_b.entry(b).or_insert(0.0) += 1.0;
    }
    let together: f64 = both.values().map(|count| pairs(*count)).sum();
    let [in_a, in_b]: [f64; 2] =
        [of_a.values().map(|count| pairs(*count)).sum(), of_b.values().map(|count| pairs(*count)).sum()];
    let expected = in_a * in_b / pairs(a.len() as f64).max(1.0);
    let most = 0.5 * (in_a + in_b);
    // Both partitions have a single cluster, or only singletons.
    if most == expected { 1.0 } else { (together - expected) / (most - expected) }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn rows_belong_to_their_largest_component() {
        let found = assigned(&array![[0.2, 0.6], [0.5, 0.5], [0.0, 0.0]], &array![[1.0, 3.0]]);
        assert_eq!(found[0].map(|(l, _)| l), Some(1));
        assert!((found[0].unwrap().1 - 0.9).abs() < 1e-12, "a part of the sum of the row of U Vᵀ");
        assert_eq!((found[1], found[2]), (Some((0, 0.25)), None));
    }

    #[test]
    fn the_index_is_that_of_scikit_learn() {
        // sklearn.metrics.adjusted_rand_score([0, 0, 1, 1], [0, 0, 1, 2]), and with [0, 1, 0, 1]
        assert!((adjusted_rand(&[0, 0, 1, 1], &[0, 0, 1, 2]) - 0.571_428_571_428_571_4).abs() < 1e-12);
        assert!((adjusted_rand(&[0, 0, 1, 1], &[0, 1, 0, 1]) + 0.5).abs() < 1e-12);
        assert_eq!(adjusted_rand(&[0, 0, 1], &["b", "b", "a"]), 1.0);
        assert_eq!(adjusted_rand(&[0, 1, 2], &["b", "c", "a"]), 1.0);
        assert_eq!(adjusted_rand(&[0, 0], &["b", "b"]), 1.0);
    }
}

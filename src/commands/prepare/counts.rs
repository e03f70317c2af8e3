//! Counts of cells or documents: columns that enough rows have, rows at a common total, logarithms, the most variable columns,
//! columns with variance 1.

use std::collections::HashMap;

use clap::Args;
use serde::{Deserialize, Serialize};
#[cfg(feature = "sites")]
use serde_json::{Map, Value, json};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_files::names;
use fednmf_methods::parameters;

use super::matrix::{Matrix, Places, Row, Transform};
use super::rules::warn_of_positions;
use super::sums::{ColumnSums, of_each};
use super::variable::{Moments, Rule, Standard, above_expectation, deviations, largest, within_bins};
use crate::cli::parameters::words;

/// The options of `prepare counts`.
#[derive(Debug, Clone, Args)]
pub struct CountsArgs {
    /// For counts: leave out columns in which fewer than N rows, of all parties together, have an entry [default: 1; 3 with files
    /// of parties]
    #[arg(long, value_name = "N", value_parser = parameters::count(1), conflicts_with = "rules")]
    pub min_rows_per_column: Option<usize>,
    /// For counts: multiply each row by a number so that its sum is T [default: 10000]
    #[arg(long, value_name = "T", value_parser = total, conflicts_with = "rules")]
    pub row_total: Option<f64>,
    /// For counts: write the counts themselves. Rows with a common total only decide which columns are the most variable
    #[arg(long, conflicts_with_all = ["rules", "log1p"])]
    pub keep_counts: bool,
    /// For counts: write ln(1 + x) of the entries x
    #[arg(long, conflicts_with = "rules")]
    pub log1p: bool,
    /// For counts: write only the N most variable columns
    #[arg(long, value_name = "N", value_parser = parameters::count(1), conflicts_with = "rules")]
    pub variable_columns: Option<usize>,
    /// Which columns are the most variable [default: cnmf]
    #[arg(long, value_name = "RULE", value_parser = words::<Rule>(), requires = "variable_columns")]
    pub variable_by: Option<Rule>,
    /// For counts: divide each written column by its standard deviation, without centring it
    #[arg(long, conflicts_with = "rules")]
    pub unit_variance: bool,
}

/// The sum of each row if the user names none, as in scanpy's tutorials.
const TOTAL: f64 = 1e4;

/// Whole numbers beyond this one are not exact as floats.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

fn total(text: &str) -> std::result::Result<f64, String> {
    let parsed = text.parse().ok().filter(|total: &f64| *total > 0.0 && *total <= 1e12);
    parsed.ok_or_else(|| "must be a positive number of at most 1e12, such as 10000".to_string())
}

impl CountsArgs {
    /// The first option that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--min-rows-per-column", self.min_rows_per_column.is_some()),
            ("--row-total", self.row_total.is_some()),
            ("--keep-counts", self.keep_counts),
            ("--log1p", self.log1p),
            ("--variable-columns", self.variable_columns.is_some()),
            ("--unit-variance", self.unit_variance),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// The options that parties agree on, by name.
    #[cfg(feature = "sites")]
    pub fn to_json(&self) -> Map<String, Value> {
        let all = json!({
            "min_rows_per_column": self.min_rows_per_column, "row_total": self.row_total, "keep_counts": self.keep_counts,
            "log1p": self.log1p, "variable_columns": self.variable_columns,
            "variable_by": self.variable_by.map(Rule::name), "unit_variance": self.unit_variance,
        });
        all.as_object().cloned().unwrap_or_default()
    }

    /// The number of sums over the rows that are opened.
    pub fn opened_sums(&self) -> usize {
        let passes = self.variable_columns.map_or(0, |_| self.rule().passes());
        1 + 2 * (passes + usize::from(self.unit_variance))
    }

    fn rule(&self) -> Rule {
        self.variable_by.unwrap_or(Rule::Cnmf)
    }

    fn form(&self) -> Form {
        match (self.keep_counts, self.log1p) {
            (true, _) => Form::Counts,
            (false, true) => Form::Log1p,
            (false, false) => Form::Shares,
        }
    }
}

/// What is written for a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    Counts,
    /// The count, with its row at the common total.
    Shares,
    /// ln(1 + x) of that.
    Log1p,
}

/// What was derived from counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountRules {
    /// Number of columns of the matrix.
    all: usize,
    /// The columns over which rows are summed: those that enough rows have.
    carried: Vec<usize>,
    /// Their names.
    names: Option<Vec<String>>,
    row_total: f64,
    form: Form,
    /// The written columns, as places in `carried`.
    written: Vec<usize>,
    /// What they are divided by.
    deviations: Option<Vec<f64>>,
}

/// Derives the rules from the counts of all parties together; `own` are the matrices of the hosted ones. Collective.
///
/// # Errors
/// On all ranks, if no column is left, or a file cannot be read.
pub fn derive(own: &[Matrix], args: &CountsArgs, least: usize, sums: &mut ColumnSums) -> SharedResult<CountRules> {
    let carriers = sums.carriers(own)?;
    let carried: Vec<usize> = (0..carriers.len()).filter(|&j| carriers[j] >= least).collect();
    if carried.is_empty() {
        let why = format!("no column has an entry in {least} rows; give a smaller --min-rows-per-column");
        return Err(Error::input(why).on_all_ranks());
    }
    let names = own.first().and_then(|matrix| matrix.column_names.as_ref());
    let mut rules = CountRules {
        all: carriers.len(),
        names: names.map(|names| carried.iter().map(|&j| names[j].clone()).collect()),
        row_total: args.row_total.unwrap_or(TOTAL),
        form: args.form(),
        written: (0..carried.len()).collect(),
        carried,
        deviations: None,
    };
    if let Some(count) = args.variable_columns {
        let scores = match args.rule() {
            Rule::SeuratV3 => {
                let counts = rules.moments(own, Form::Counts, None, sums)?;
                let standard = Standard::new(&counts, sums.rows).map_err(Error::on_all_ranks)?;
                standard.scores(&rules.moments(own, Form::Counts, Some(&standard.limits()), sums)?)
            }
            Rule::Cnmf => above_expectation(&rules.moments(own, Form::Shares, None, sums)?, sums.rows),
            Rule::Seurat => within_bins(&rules.moments(own, Form::Shares, None, sums)?, sums.rows),
        };
        rules.written = largest(&scores, count);
    }
    if args.unit_variance {
        let columns = rules.moments(own, rules.form, None, sums)?;
        rules.deviations = Some(deviations(&columns, sums.rows));
    }
    Ok(rules)
}

/// Refuses entries that are no counts, for instance since they were prepared already. The message may reach other parties.
///
/// # Errors
/// If an entry is not a whole number, or the file cannot be read.
pub fn check_whole(matrix: &Matrix) -> Result<()> {
    matrix.each(|row| {
        if row.iter().any(|(_, x)| x.fract() != 0.0) {
            return Err(Error::input(
                "entries are not whole numbers, so they are no counts, or were prepared already; give the raw counts (in AnnData \
                 perhaps FILE.h5ad:layers/counts or FILE.h5ad:raw/X)",
            ));
        }
        match row.iter().all(|(_, x)| *x <= MOST_EXACT) {
            true => Ok(()),
            false => Err(Error::input("entries are above 2^53, beyond which numbers are not exact, so they are no counts")),
        }
    })
}

impl Form {
    /// The number for a count in a row with this factor.
    fn of(self, count: f64, factor: f64) -> f64 {
        match self {
            Form::Counts => count,
            Form::Shares => count * factor,
            Form::Log1p => (count * factor).ln_1p(),
        }
    }
}

impl CountRules {
    /// The sums of the written columns of all parties, in this form; with `limits`, entries above that of their column count as it.
    fn moments(
        &self,
        own: &[Matrix],
        form: Form,
        limits: Option<&[f64]>,
        sums: &mut ColumnSums,
    ) -> SharedResult<Vec<Moments>> {
        let carried = Places::of(&self.carried, self.all);
        let written = Places::of(&self.written, self.carried.len());
        let of_party = |matrix: &Matrix| {
            let mut columns = vec![[0.0; 2]; self.written.len()];
            matrix.each(|row| {
                let factor = self.scale(&carried, &written, row);
                for (place, x) in row.iter().map(|(place, x)| (*place, form.of(*x, factor))) {
                    let x = limits.map_or(x, |limits| x.min(limits[place]));
                    columns[place][0] += x;
                    columns[place][1] += x * x;
                }
                Ok(())
            })?;
            Ok(columns)
        };
        sums.moments(&of_each(own, of_party)?, self.written.len())
    }

    /// Leaves the written columns of a row, and returns what multiplies its entries: its sum is over the carried ones.
    fn scale(&self, carried: &Places, written: &Places, row: &mut Row) -> f64 {
        carried.apply(row);
        let sum: f64 = row.iter().map(|(_, x)| x).sum();
        written.apply(row);
        if sum > 0.0 { self.row_total / sum } else { 0.0 }
    }

    /// What these rules make of a matrix.
    ///
    /// # Errors
    /// If it lacks a column of the rules, or the rules contradict themselves.
    pub fn transform(&self, matrix: &Matrix) -> Result<Transform<'_>> {
        self.check()?;
        let places = self.carried_in(matrix)?;
        let names = matrix.column_names.as_ref();
        let name = |at: &usize| names.map_or_else(|| places[*at].to_string(), |names| names[places[*at]].clone());
        // Without the number of its column, an entry would seem to be of another one.
        let is_named = names.is_some() || self.written.len() < matrix.cols;
        let column_names = is_named.then(|| self.written.iter().map(name).collect());
        let carried = Places::of(&places, matrix.cols);
        let written = Places::of(&self.written, self.carried.len());
        let of_row = move |row: &mut Row| {
            let factor = self.scale(&carried, &written, row);
            let deviation = |j: usize| self.deviations.as_ref().map_or(1.0, |all| all[j]);
            row.iter_mut().for_each(|(j, x)| *x = self.form.of(*x, factor) / deviation(*j));
        };
        Ok(Transform { cols: self.written.len(), column_names, of_row: Box::new(of_row) })
    }

    /// How many columns too few rows have, in words.
    pub fn left_out(&self) -> Option<String> {
        let count = self.all - self.carried.len();
        (count > 0).then(|| {
            let all = self.all;
            format!(
                "left out: {count} of {all} columns, in which no row or too few have entries (--min-rows-per-column)"
            )
        })
    }

    /// The number of columns that are written.
    pub fn written(&self) -> usize {
        self.written.len()
    }

    /// The places of the carried columns in another matrix: by name if both have names, otherwise by position.
    fn carried_in(&self, matrix: &Matrix) -> Result<Vec<usize>> {
        let Some((known, names)) = self.names.as_ref().zip(matrix.column_names.as_ref()) else {
            return match matrix.cols == self.all {
                true => {
                    warn_of_positions(matrix.column_names.is_some(), self.names.is_some());
                    Ok(self.carried.clone())
                }
                false => Err(Error::input(format!(
                    "--rules: the rules are for {} columns, but the matrix has {}; prepare matrices with the same columns, or \
                     with names of columns",
                    self.all, matrix.cols
                ))),
            };
        };
        // Names may be repeated as long as they need not be looked up.
        if names.len() == self.all && known.iter().zip(&self.carried).all(|(name, &j)| names[j] == *name) {
            return Ok(self.carried.clone());
        }
        let mut places = HashMap::new();
        for (j, name) in names.iter().enumerate() {
            if places.insert(name, j).is_some() {
                return Err(Error::input(format!("--rules: {}", names::repeated("column", name))));
            }
        }
        let lacking: Vec<&String> = known.iter().filter(|name| !places.contains_key(name)).collect();
        if !lacking.is_empty() {
            let (all, some) = (known.len(), &lacking[..lacking.len().min(LISTED)]);
            let some: Vec<&str> = some.iter().map(|name| name.as_str()).collect();
            let more = if lacking.len() > LISTED { ", …" } else { "" };
            return Err(Error::input(format!(
                "--rules: the matrix lacks {} of the {all} columns of the rules: {}{more}; add a column of zeros for what was \
                 measured and never seen; what was not measured cannot be prepared by these rules",
                lacking.len(),
                some.join(", ")
            )));
        }
        Ok(known.iter().map(|name| places[name]).collect())
    }

    /// Checks what a file says.
    fn check(&self) -> Result<()> {
        let places = |places: &[usize], below: usize| places.is_sorted_by(|a, b| a < b) && places.last() < Some(&below);
        let of_names = self.names.as_ref().is_none_or(|names| names.len() == self.carried.len());
        let divides = |x: &f64| x.is_finite() && *x > 0.0;
        let of_deviations =
            self.deviations.as_ref().is_none_or(|all| all.len() == self.written.len() && all.iter().all(divides));
        let is_sound = places(&self.carried, self.all)
            && places(&self.written, self.carried.len())
            && of_names
            && of_deviations
            && divides(&self.row_total);
        if is_sound { Ok(()) } else { Err(Error::input("--rules: the file contradicts itself; save the rules again")) }
    }
}

/// At most this many missing columns are named.
const LISTED: usize = 5;

#[cfg(test)]
mod tests {
    use fednmf_comm::{Communicator, Parties};

    use super::*;

    const ARGS: CountsArgs = CountsArgs {
        min_rows_per_column: None,
        row_total: Some(10.0),
        keep_counts: false,
        log1p: false,
        variable_columns: None,
        variable_by: None,
        unit_variance: false,
    };

    fn matrix(rows: &[[f64; 3]], names: Option<[&str; 3]>) -> Matrix {
        let nonzeros = |row: &[f64; 3]| row.iter().copied().enumerate().filter(|(_, x)| *x != 0.0).collect();
        let column_names = names.map(|names| names.map(String::from).to_vec());
        Matrix::of_rows(rows.iter().map(nonzeros).collect(), 3).named(None, column_names)
    }

    fn derived(own: &[Matrix], args: &CountsArgs, least: usize) -> SharedResult<CountRules> {
        let rows = own.iter().map(|matrix| matrix.rows).sum();
        let parties = Parties { count: own.len(), ranks: 1 };
        derive(own, args, least, &mut ColumnSums::new(&Communicator::local(), parties, (rows, 3)).unwrap())
    }

    fn prepared(matrix: &[[f64; 3]], args: &CountsArgs, least: usize) -> Vec<Row> {
        let own = self::matrix(matrix, None);
        let rules = derived(std::slice::from_ref(&own), args, least).unwrap();
        own.written(&rules.transform(&own).unwrap())
    }

    #[test]
    fn rows_have_the_total_over_the_columns_that_are_left() {
        let rows = [[3.0, 0.0, 2.0], [1.0, 7.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 4.0]];
        assert_eq!(
            prepared(&rows, &ARGS, 1),
            [vec![(0, 6.0), (2, 4.0)], vec![(0, 1.25), (1, 8.75)], vec![], vec![(2, 10.0)]]
        );
        // The second column is in one row only.
        assert_eq!(prepared(&rows, &ARGS, 2), [vec![(0, 6.0), (1, 4.0)], vec![(0, 10.0)], vec![], vec![(1, 10.0)]]);
        let log = prepared(&rows, &CountsArgs { log1p: true, ..ARGS }, 2);
        assert_eq!(log[0], [(0, 7.0f64.ln()), (1, 5.0f64.ln())]);
        let refused = derived(&[matrix(&rows, None)], &ARGS, 3).unwrap_err();
        assert!(refused.message.contains("--min-rows-per-column"), "{refused}");
    }

    #[test]
    fn written_columns_have_unit_variance() {
        let rows = [[3.0, 1.0, 2.0], [1.0, 1.0, 0.0], [5.0, 1.0, 4.0]];
        let counts = prepared(&rows, &CountsArgs { keep_counts: true, unit_variance: true, ..ARGS }, 1);
        // numpy.std([3, 1, 5], ddof=1) = numpy.std([2, 0, 4], ddof=1) = 2; the column without variance stays.
        let near = |((j, x), (k, y)): (&(usize, f64), (usize, f64))| *j == k && (x - y).abs() < 1e-12;
        assert!(counts[0].iter().zip([(0, 1.5), (1, 1.0), (2, 1.0)]).all(near), "{counts:?}");
    }

    /// Each party writes what it would in one matrix with all rows, to the bit.
    #[test]
    fn parties_have_the_rules_of_their_rows_in_one_matrix() {
        let rows = [[3.0, 1.0, 2.0], [1.0, 4.0, 0.0], [5.0, 1.0, 4.0], [0.0, 2.0, 1.0], [2.0, 2.0, 9.0]];
        let args = CountsArgs { log1p: true, variable_columns: Some(2), unit_variance: true, ..ARGS };
        let names = Some(["a", "b", "c"]);
        let one = derived(&[matrix(&rows, names)], &args, 1).unwrap();
        let parts = [matrix(&rows[..2], names), matrix(&rows[2..3], names), matrix(&rows[3..], names)];
        let three = derived(&parts, &args, 1).unwrap();
        assert_eq!((&one.written, &one.names), (&three.written, &three.names));
        let pairs = one.deviations.iter().flatten().zip(three.deviations.iter().flatten());
        assert!(pairs.clone().count() == 2 && pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn rules_find_their_columns_by_name() {
        let rules = derived(&[matrix(&[[3.0, 1.0, 2.0], [1.0, 0.0, 5.0]], Some(["a", "b", "c"]))], &ARGS, 2).unwrap();
        let other = matrix(&[[4.0, 9.0, 6.0]], Some(["c", "new", "a"]));
        let transform = rules.transform(&other).unwrap();
        assert_eq!(other.written(&transform), [[(0, 6.0), (1, 4.0)]]);
        assert_eq!(transform.column_names.unwrap().concat(), "ac");
        let lacking = rules.transform(&matrix(&[[1.0; 3]], Some(["a", "b", "d"]))).err().unwrap();
        assert!(lacking.message.contains("lacks 1 of the 2 columns of the rules: c"), "{lacking}");
        let twice = rules.transform(&matrix(&[[1.0; 3]], Some(["c", "a", "a"]))).err().unwrap();
        assert!(twice.message.contains("called a"), "{twice}");
        let wrong = CountRules { carried: vec![0, 7], ..rules.clone() };
        let wrong = wrong.transform(&matrix(&[[1.0; 3]], None)).err().unwrap();
        assert!(wrong.message.contains("contradicts itself"));
    }

    /// A column of a matrix without names keeps its number where others are left out.
    #[test]
    fn left_columns_are_named_by_their_numbers() {
        let rows = [[3.0, 0.0, 2.0], [1.0, 0.0, 5.0]];
        let own = [matrix(&rows, None)];
        let rules = derived(&own, &ARGS, 1).unwrap();
        assert_eq!(rules.transform(&own[0]).unwrap().column_names.unwrap(), ["0", "2"]);
        // Another matrix by position.
        let other = matrix(&[[4.0, 9.0, 6.0]], None);
        let transform = rules.transform(&other).unwrap();
        assert_eq!(
            (other.written(&transform), transform.column_names.unwrap().concat()),
            (vec![vec![(0, 4.0), (1, 6.0)]], "02".into())
        );
        let all = [matrix(&[[3.0, 1.0, 2.0]], None)];
        assert!(derived(&all, &ARGS, 1).unwrap().transform(&all[0]).unwrap().column_names.is_none());
    }

    #[test]
    fn only_whole_numbers_are_counts() {
        assert!(check_whole(&matrix(&[[0.0, 3.0, 1e6]], None)).is_ok());
        for (wrong, why) in [(0.5, "raw counts"), (1e20, "above 2^53")] {
            assert!(check_whole(&matrix(&[[0.0, 3.0, wrong]], None)).unwrap_err().message.contains(why));
        }
    }
}

//! The unit of privacy of a `--budget` file. Losses of the same unit compose; a sum over different units bounds
//! the loss of neither.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The units that a budget protects: two runs share a file if and only if theirs are equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetScope {
    pub unit: BudgetUnit,
    pub covers: Covers,
    /// Which data belong to which party; `None` if the owner of a unit does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<Division>,
}

/// The privacy unit: the part in which neighbouring data differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetUnit {
    /// The whole data of a party.
    Party,
    /// A column of the input, before any `--transpose`.
    Column,
    /// A row of the input, before any `--transpose`.
    Row,
}

/// The parties whose units a file counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Covers {
    AllParties,
    OneParty,
}

/// How the data are divided among the parties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Division {
    /// Each party has its own file. It stays the same party, however many others take part.
    OwnFiles,
    /// Each party has consecutive rows or columns of one matrix.
    Cut { parties: usize, along: Lines, sizes: String },
}

/// Rows or columns of the input, before any `--transpose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lines {
    Rows,
    Columns,
}

impl BudgetUnit {
    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            BudgetUnit::Party => "the whole data of a party",
            BudgetUnit::Column => "one column of your file",
            BudgetUnit::Row => "one row of your file",
        }
    }

    /// What is replaced by any other in neighbouring inputs.
    pub fn replaced(self) -> String {
        format!("{}, replaced by any other", self.describe())
    }
}

impl BudgetScope {
    /// `division` is that of the run. It is stored only if it determines the units or their owners.
    pub fn new(unit: BudgetUnit, covers: Covers, division: Division) -> Self {
        let same_for_all = unit != BudgetUnit::Party && covers == Covers::AllParties;
        BudgetScope { unit, covers, division: (!same_for_all).then_some(division) }
    }

    /// In words: the unit, the parties, and whose budget it is.
    pub fn describe(&self) -> String {
        let unit = self.unit.describe();
        let division = match &self.division {
            None => String::new(),
            Some(Division::OwnFiles) => ", each party with a file of its own".into(),
            Some(Division::Cut { parties, along, sizes }) => {
                let lines = if *along == Lines::Rows { "rows" } else { "columns" };
                format!(", {parties} parties with {lines} of one matrix ({sizes})")
            }
        };
        let covers = match self.covers {
            Covers::AllParties => "one budget for all parties",
            Covers::OneParty => "the budget of one party",
        };
        format!("{unit}{division}; {covers}")
    }
}

impl Division {
    /// A matrix that is cut into these parts, one for each party.
    pub fn cut(along: Lines, parts: &[Range<usize>]) -> Self {
        let runs = parts.chunk_by(|a, b| a.len() == b.len()).map(|run| format!("{} x {}", run.len(), run[0].len()));
        Division::Cut { parties: parts.len(), along, sizes: runs.collect::<Vec<_>>().join(" + ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(sizes: &[usize]) -> Division {
        let mut end = 0;
        let parts: Vec<_> = sizes
            .iter()
            .map(|size| {
                end += size;
                end - size..end
            })
            .collect();
        Division::cut(Lines::Columns, &parts)
    }

    #[test]
    fn parties_are_the_same_if_they_have_the_same_lines() {
        let party = |division| BudgetScope::new(BudgetUnit::Party, Covers::AllParties, division);
        let four = party(columns(&[3, 3, 3, 3]));
        assert_eq!(four, party(columns(&[3; 4])));
        let rows = party(Division::Cut { parties: 4, along: Lines::Rows, sizes: "4 x 3".into() });
        let own = party(Division::OwnFiles);
        let one = BudgetScope { covers: Covers::OneParty, ..four.clone() };
        let column = BudgetScope::new(BudgetUnit::Column, Covers::AllParties, columns(&[3; 4]));
        for other in [party(columns(&[4; 3])), party(columns(&[4, 2, 3, 3])), rows, own, one, column] {
            assert_ne!(four, other);
            assert_ne!(four.describe(), other.describe());
        }
        assert!(
            party(columns(&[4, 3, 3, 2]))
                .describe()
                .contains("4 parties with columns of one matrix (1 x 4 + 2 x 3 + 1 x 2)")
        );
    }

    /// A column is the same whichever party has it, unless each party has its own budget.
    #[test]
    fn the_division_counts_for_columns_where_each_party_has_a_budget() {
        let column = |covers, sizes: &[usize]| BudgetScope::new(BudgetUnit::Column, covers, columns(sizes));
        assert_eq!(column(Covers::AllParties, &[6, 6]), column(Covers::AllParties, &[4, 4, 4]));
        assert_ne!(column(Covers::OneParty, &[6, 6]), column(Covers::OneParty, &[4, 4, 4]));
    }
}

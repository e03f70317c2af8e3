//! `fednmf report`: its arguments.

use std::path::PathBuf;

use clap::Args;

use crate::data::names;
use crate::error::Result;
use crate::report::{Wishes, image_size};

/// What a report shows of factors and data.
#[derive(Debug, Args)]
pub struct WishArgs {
    /// Report: show components as images of this height and width, where a row or column of the matrix is one
    #[arg(long, value_name = "HxW", help_heading = "Output")]
    pub image: Option<String>,

    /// Report: show components by their top terms, with the names in this file, one a line (FILE:2: its second column,
    /// between tabs); AnnData and 10x files bring names along
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub terms: Option<String>,

    /// Report: number of rows to show beside their reconstruction [default: 6]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub report_rows: Option<usize>,
}

impl WishArgs {
    /// What was typed, checked; the list of names is read.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    pub fn check(&self) -> Result<Wishes> {
        let image = self.image.as_deref().map(image_size).transpose()?;
        let names = self.terms.as_deref().map(names::list).transpose()?;
        Ok(Wishes { image, names, rows: self.report_rows.unwrap_or(6) })
    }

    /// Whether anything was typed.
    pub fn any(&self) -> bool {
        self.image.is_some() || self.terms.is_some() || self.report_rows.is_some()
    }
}

/// `fednmf report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files that --trace wrote, one for each run
    #[arg(required = true)]
    pub traces: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "F.html")]
    pub output: PathBuf,
    /// Factors of the run, as --output wrote them [default: where the trace says that they are; several runs: each its own]
    #[arg(long, value_name = "F.h5")]
    pub factors: Option<PathBuf>,
    /// The matrix, for rows beside their reconstruction [default: the one that the trace names, unless it is large]
    #[arg(long, value_name = "PATH")]
    pub input: Option<String>,
    #[command(flatten)]
    pub wishes: WishArgs,
}


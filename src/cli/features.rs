//! The options that choose features of single-cell data.

use clap::Args;

use fednmf_base::printable::shown;
use fednmf_files::features::{FeatureChoice, FeatureType};

/// Which features are used.
#[derive(Debug, Clone, Default, Args)]
pub struct FeatureArgs {
    /// Use only the features of this type, where the data of 10x or AnnData have several: Gene Expression, Antibody Capture, ...
    /// ('fednmf inspect' lists them)
    #[arg(long, value_name = "NAME", value_parser = shown)]
    pub feature_type: Option<String>,
    /// Use only the genes that an .h5ad file marks in var/highly_variable
    #[arg(long)]
    pub highly_variable: bool,
}

impl FeatureArgs {
    pub fn choice(&self) -> FeatureChoice {
        FeatureChoice {
            feature_type: self.feature_type.clone().map_or(FeatureType::Only, FeatureType::Named),
            highly_variable: self.highly_variable.then_some(true),
        }
    }

    /// The options that were given, as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let named = self.feature_type.iter().flat_map(|name| ["--feature-type".to_string(), name.clone()]);
        named.chain(self.highly_variable.then(|| "--highly-variable".to_string())).collect()
    }
}

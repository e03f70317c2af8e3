//! What `join` asks of a preparation.

use clap::ValueEnum as _;
use serde_json::{Map, Value, json};

use fednmf_base::error::Result;
use fednmf_base::parameters;
use fednmf_comm::party_sum::KEYS;
use fednmf_comm::{Communicator, Payload};
use fednmf_data::messages::NAME_DIGESTS;
use fednmf_files as data;
use fednmf_files::InputSpec;
use fednmf_methods::description::{Description, MessageSpec};
use fednmf_methods::parameters::ParamType as _;

use super::read::{COLUMN_NAMES, USED_COLUMNS};
use super::sums::CARRIERS;
use super::{Preparation, PrepareArgs, sums};
use crate::commands::join::work::Joint;

impl Joint for Preparation {
    fn description(&self) -> &'static Description {
        &sums::DESCRIPTION
    }

    fn accepted(&self) -> String {
        self.args.disclosure.0.accept_risk.text().unwrap_or_default()
    }

    fn settings(&self) -> Map<String, Value> {
        let PrepareArgs { how, common_columns, all_columns, rules, disclosure, .. } = &self.args;
        let how = how.to_possible_value().map(|word| word.get_name().to_string());
        let mut all = parameters::to_json(&disclosure.0);
        all.extend(self.args.counts.to_json());
        let rules = if rules.is_some() { "given" } else { "none" };
        let more = [
            ("prepare", json!(how)),
            ("common_columns", json!(common_columns)),
            ("all_columns", json!(all_columns)),
            ("rules", json!(rules)),
        ];
        all.extend(more.map(|(name, value)| (name.to_string(), value)));
        all
    }

    fn transposes(&self) -> bool {
        self.spec.transpose
    }

    fn own_shape(&self) -> Result<(usize, usize)> {
        let spec = InputSpec { own_disk: false, common_columns: false, ..self.spec.clone() };
        let input = data::open(&spec, &Communicator::local())?;
        Ok((input.header().rows, input.header().cols))
    }

    fn perform_with(mut self: Box<Self>, comm: &Communicator) -> Result<i32> {
        self.spec.parties = Some(comm.size());
        self.perform(comm)
    }
}

/// All that may leave a site in a preparation with these settings.
pub fn sent(settings: &Map<String, Value>) -> Vec<&'static MessageSpec> {
    let is = |name: &str, value: Value| settings.get(name) == Some(&value);
    let found = is("rules", "none".into());
    let moments = settings.get("variable_columns").is_some_and(|n| !n.is_null()) || is("unit_variance", true.into());
    let sends = |w: &&MessageSpec| match w.payload {
        _ if w.kind == NAME_DIGESTS.kind => is("common_columns", true.into()),
        _ if w.kind == COLUMN_NAMES.kind => is("all_columns", true.into()),
        _ if w.kind == USED_COLUMNS.kind => is("common_columns", true.into()) || is("all_columns", true.into()),
        _ if w.kind == KEYS.kind => found,
        Payload::Masked => found && (w.kind == CARRIERS.kind || moments),
        _ => true,
    };
    sums::messages().into_iter().filter(sends).collect()
}

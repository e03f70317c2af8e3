//! A run in the log of its site: `--site-log`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use fednmf_base::error::{EXIT_DONE, EXIT_INPUT, EXIT_REQUEUE, Error, Result};
use fednmf_base::failure::at_failure;
use fednmf_driver::budget;
use fednmf_files::PARTY;
use fednmf_files::output::attributes;
use fednmf_sites::{Binary, BudgetState, Event, Signed, SiteLog, Sites, never_falls};

use super::agreement::Agreement;
use super::hold::PutAside;
use super::work::Work;

/// The run in the log of the site. If the process ends with an error, the log says so.
pub struct RunLog(Arc<Mutex<Option<Record>>>);

struct Record {
    log: SiteLog,
    run: String,
    budget: Option<PathBuf>,
}

impl RunLog {
    /// Notes that the run begins, at the site of this `rank`.
    ///
    /// # Errors
    /// If log or budget cannot be read or written.
    pub fn begin(log: SiteLog, work: &Work, (sites, rank): (&Sites, usize), agreement: &Agreement) -> Result<RunLog> {
        let budget = work.run().and_then(|spec| spec.method.assumed().groups().dp?.budget_path());
        let budget =
            budget.map(|budget| PathBuf::from(budget.path.display().to_string().replace(PARTY, &rank.to_string())));
        let record = Record { log, run: sites.run().into(), budget };
        record.check_budget()?;
        record.add(Event::Begin {
            run: record.run.clone(),
            method: work.description().name.into(),
            sites: sites.names().to_vec(),
            policy: work.consent().policy.clone(),
            proposal: work.consent().proposal.clone(),
            approved_by: agreement.approved_by().map(String::from),
            parameters: Signed::digest_of(&json!(work.compared())),
            budget: record.budget()?,
            binary: Binary::own(attributes::VERSION, attributes::revision())?,
        })?;
        let record = Arc::new(Mutex::new(Some(record)));
        let open = record.clone();
        at_failure(move || {
            let open = open.try_lock().ok().and_then(|mut open| open.take());
            // What cannot be written now stays without an end.
            let _ = open.map(|record| record.end("failed"));
        });
        Ok(RunLog(record))
    }

    /// Notes how the run ended, and what was put aside.
    ///
    /// # Errors
    /// As [`RunLog::begin`].
    pub fn end(self, done: &Result<i32>, held: Option<PutAside>) -> Result<()> {
        let outcome = match done {
            Ok(EXIT_REQUEUE) => "stopped early, with a checkpoint",
            Ok(EXIT_DONE) => "done",
            // By a signal, without a checkpoint.
            Ok(_) => "stopped early",
            Err(e) if e.exit_code() == EXIT_INPUT => "refused",
            Err(_) => "failed",
        };
        let Some(record) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        record.end(outcome)?;
        match held.filter(|held| !held.results.is_empty()) {
            Some(PutAside { results, keys }) => record.add(Event::Hold { run: record.run.clone(), results, keys }),
            None => Ok(()),
        }
    }
}

impl Record {
    fn end(&self, outcome: &str) -> Result<()> {
        self.add(Event::End { run: self.run.clone(), outcome: outcome.into(), budget: self.budget()? })
    }

    fn add(&self, event: Event) -> Result<()> {
        self.log.add(attributes::now(), event)
    }

    /// Checks that no earlier copy of the budget was put back.
    fn check_budget(&self) -> Result<()> {
        let Some(path) = &self.budget else { return Ok(()) };
        let now = self.budget()?.unwrap_or(BudgetState { epsilon: 0.0, delta: 0.0, limit: 0.0 });
        never_falls(&self.log.entries()?, (&format!("--budget {}", path.display()), now)).map_err(|e| {
            Error::input(format!(
                "{}. Put back the budget and its key as they were after the last run in the log; a log belongs to one budget",
                e.message
            ))
        })
    }

    /// What all runs on the data have spent by now.
    fn budget(&self) -> Result<Option<BudgetState>> {
        let Some(path) = self.budget.as_ref().filter(|path| path.exists()) else { return Ok(None) };
        let file = budget::read(path)?;
        let (epsilon, delta) = file.spent();
        Ok(Some(BudgetState { epsilon, delta, limit: file.limit }))
    }
}

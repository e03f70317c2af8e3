//! Rounds: exchanges between all sites that continue if a site is lost.
//!
//! In a round each site sends a message to each other one, and ends the round when it has the messages of all sites that
//! are present. So two sites are at most one round apart. When the hub reports a site as lost, the others agree on the loss
//! among themselves: each sends the others the list of lost sites, with its copies of their messages of the rounds that
//! a site may still be in; from then on it accepts nothing more from them. It continues when all remaining sites have sent
//! the same list. All of them then have the same messages of the lost site, so a message counts at all sites or at none.
//!
//! A site believes the hub when it reports a loss, but the hub cannot make two groups continue separately: each group needs
//! sealed messages of all its members, more than half of all sites must remain, and no site continues with one that was
//! named as lost.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use fednmf_base::warning::warn;
use fednmf_comm::transport::Loss;

use super::link::{Inbox, Kind, Link, RESUME, fail};

/// The group of all sites.
const ALL: u64 = 0;

/// Whether all receivers get the same text in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    ForAll = 0,
    /// Each receiver has a text of its own, which the others must not see.
    ForEach = 1,
}

/// A message of a round.
#[derive(Debug, Clone)]
struct RoundMessage {
    text: Rc<Vec<u8>>,
    for_all: bool,
}

/// The lost sites, and the sender's copies of their messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct LossReport {
    lost: Vec<usize>,
    /// Site, round and text of each copy.
    heard: Vec<(usize, u64, Vec<u8>)>,
}

impl LossReport {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut number = |x: u64| bytes.extend(x.to_le_bytes());
        number(self.lost.len() as u64);
        self.lost.iter().for_each(|&site| number(site as u64));
        for (site, round, text) in &self.heard {
            for x in [*site as u64, *round, text.len() as u64] {
                bytes.extend(x.to_le_bytes());
            }
            bytes.extend(text);
        }
        bytes
    }

    /// `None` if the bytes are no loss report about `sites` sites.
    fn decode(mut bytes: &[u8], sites: usize) -> Option<LossReport> {
        let number = |bytes: &mut &[u8]| bytes.split_off(..8).map(|x| u64::from_le_bytes(x.try_into().expect("eight")));
        let mut report = LossReport::default();
        for _ in 0..number(&mut bytes).filter(|count| *count <= sites as u64)? {
            report.lost.push(usize::try_from(number(&mut bytes)?).ok().filter(|&site| site < sites)?);
        }
        while !bytes.is_empty() {
            let site = usize::try_from(number(&mut bytes)?).ok().filter(|site| report.lost.contains(site))?;
            let round = number(&mut bytes)?;
            let length = usize::try_from(number(&mut bytes)?).ok()?;
            report.heard.push((site, round, bytes.split_off(..length)?.to_vec()));
        }
        Some(report)
    }
}

/// The contribution of each site to a round; `None` if it is lost.
pub type Contributions = Vec<Option<Rc<Vec<u8>>>>;

/// The rounds of a run.
pub struct Rounds {
    link: Arc<Link>,
    /// Minimum number of sites to continue.
    min_sites: usize,
    round: u64,
    present: Vec<bool>,
    /// The messages that have arrived from each site, by round.
    heard: Vec<BTreeMap<u64, RoundMessage>>,
    /// The sites that each site has last named as lost.
    named: Vec<Vec<usize>>,
    losses: Vec<Loss>,
    /// Whether this is the last round, after which a site may disconnect.
    last: bool,
}

impl Rounds {
    /// Rounds of all sites of the run.
    pub fn new(link: Arc<Link>, min_sites: usize) -> Rounds {
        let sites = link.sites().len();
        link.continue_without_lost(min_sites);
        Rounds {
            link,
            min_sites,
            round: 0,
            present: vec![true; sites],
            heard: vec![BTreeMap::new(); sites],
            named: vec![Vec::new(); sites],
            losses: Vec::new(),
            last: false,
        }
    }

    /// Whether a site is still there, as far as this one knows.
    pub fn is_present(&self, site: usize) -> bool {
        self.present[site]
    }

    /// The lost sites, in the order of detection.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        let me = self.link.me();
        (0..self.present.len()).filter(move |&site| site != me && self.present[site])
    }

    /// Sends the same text to all others and returns the texts of all sites, the same at all sites.
    pub fn share(&mut self, text: &[u8]) -> Contributions {
        self.exchange(Text::ForAll, |_| text)
    }

    /// Sends each other site its own text and returns the texts for this site, without those of senders that not all sites
    /// have heard.
    pub fn distribute<'a>(&mut self, text: impl Fn(usize) -> &'a [u8]) -> Contributions {
        let mut heard = self.exchange(Text::ForEach, text);
        // A site that was lost meanwhile may have reached only some of the others.
        let mine: Vec<u8> = heard.iter().map(|text| u8::from(text.is_some())).collect();
        for reached in self.share(&mine).into_iter().flatten() {
            for (text, _) in heard.iter_mut().zip(reached.iter()).filter(|(_, reached)| **reached == 0) {
                *text = None;
            }
        }
        heard
    }

    /// The end of the run: returns when all others have the messages of this site that they need.
    pub fn finish(&mut self) {
        self.last = true;
        self.share(&[]);
    }

    fn exchange<'a>(&mut self, kind: Text, text: impl Fn(usize) -> &'a [u8]) -> Contributions {
        self.round += 1;
        let round = self.round;
        // The others have ended the round before the last.
        self.heard.iter_mut().for_each(|heard| heard.retain(|of, _| *of + 1 >= round));
        let message = |text: &[u8]| [&round.to_le_bytes()[..], &[kind as u8], text].concat();
        self.others().for_each(|site| self.link.send(site, ALL, Kind::Round, &message(text(site))));
        let me = self.link.me();
        let own = RoundMessage { text: Rc::new(text(me).to_vec()), for_all: kind == Text::ForAll };
        self.heard[me].insert(round, own);
        let link = self.link.clone();
        while !link.until(|inbox| self.look(inbox).transpose()).unwrap_or_else(|why| fail(&why)) {
            self.agree_on_losses().unwrap_or_else(|why| fail(&why));
        }
        self.heard.iter().map(|heard| heard.get(&round).map(|heard| heard.text.clone())).collect()
    }

    /// Reads the messages of a round; `true` if all have arrived, `false` if a site was lost.
    fn look(&mut self, inbox: &mut Inbox<'_>) -> Result<Option<bool>, String> {
        for site in 0..self.present.len() {
            self.record_loss_report(site, inbox)?;
            while self.present[site]
                && let Some(message) = inbox.next(site, ALL, Kind::Round)
            {
                self.take_round(site, &message)?;
            }
        }
        if !self.newly_lost(inbox).is_empty() {
            return Ok(Some(false));
        }
        let done = |site: usize| self.heard[site].contains_key(&self.round) || self.last && inbox.has_left(site);
        Ok(self.others().all(done).then_some(true))
    }

    fn take_round(&mut self, site: usize, message: &[u8]) -> Result<(), String> {
        let head = message.split_first_chunk::<8>().and_then(|(round, rest)| Some((round, rest.split_first()?)));
        let (round, (kind, text)) = head.ok_or_else(|| self.protocol_error(site))?;
        let round = u64::from_le_bytes(*round);
        if round < self.round || round > self.round + 1 {
            return Err(self.protocol_error(site));
        }
        let heard = RoundMessage { text: Rc::new(text.to_vec()), for_all: *kind == Text::ForAll as u8 };
        self.heard[site].insert(round, heard);
        Ok(())
    }

    fn protocol_error(&self, site: usize) -> String {
        let site = &self.link.sites()[site];
        format!(
            "site {site} is not at the same point of the run; do all sites run the same command and version?{RESUME}"
        )
    }

    /// Reads which sites another site reports as lost, with its copies of their messages.
    fn record_loss_report(&mut self, site: usize, inbox: &mut Inbox<'_>) -> Result<(), String> {
        while let Some(message) = inbox.next(site, ALL, Kind::Lost) {
            let LossReport { lost, heard } =
                LossReport::decode(&message, self.present.len()).ok_or_else(|| self.protocol_error(site))?;
            if lost.contains(&self.link.me()) {
                return Err(format!(
                    "site {} says that this site is gone, and that the others go on without it; to bring it back, stop \
                     them (SIGTERM), and start all sites again with --resume",
                    self.link.sites()[site]
                ));
            }
            // Two sites are at most one round apart, and one may have the messages of the round after its own.
            if heard.iter().any(|(_, round, _)| *round > self.round + 2) {
                return Err(self.protocol_error(site));
            }
            // The report of a lost site is ignored.
            if self.present[site] {
                for (of, round, text) in heard {
                    self.heard[of].entry(round).or_insert(RoundMessage { text: Rc::new(text), for_all: true });
                }
                self.named[site] = lost;
            }
        }
        Ok(())
    }

    /// Sites that count as present but were reported as lost by the hub or a site, with the reason.
    fn newly_lost(&self, inbox: &Inbox<'_>) -> Vec<(usize, String)> {
        let why = |site: usize| match inbox.lost(site) {
            // A site that has finished sends nothing more.
            _ if self.last && inbox.has_left(site) => None,
            Some(why) => Some(why.to_string()),
            None => {
                let by = self.others().find(|&by| by != site && self.named[by].contains(&site))?;
                Some(format!("is gone, as site {} says", self.link.sites()[by]))
            }
        };
        self.others().filter_map(|site| Some((site, why(site)?))).collect()
    }

    /// Agrees with the remaining sites on who is lost, and on which messages of the lost sites count.
    fn agree_on_losses(&mut self) -> Result<(), String> {
        let (link, before, all) = (self.link.clone(), self.losses.len(), self.present.len());
        let mut announced = Vec::new();
        loop {
            for (rank, why) in link.until(|inbox| Some(self.newly_lost(inbox))) {
                self.present[rank] = false;
                self.losses.push(Loss { rank, why });
            }
            let lost: Vec<usize> = (0..all).filter(|&site| !self.present[site]).collect();
            let left = all - lost.len();
            if left < self.min_sites {
                let Loss { rank, why } = self.losses.last().expect("somebody is gone");
                return Err(format!(
                    "site {} {why}; {left} of {all} sites are left, and --secure-threshold needs {}; the run ends\
                     {RESUME}",
                    link.sites()[*rank],
                    self.min_sites
                ));
            }
            if announced != lost {
                self.name(&lost, &announced);
                announced.clone_from(&lost);
            }
            let agreed = link.until(|inbox| {
                if let Err(why) = (0..all).try_for_each(|site| self.record_loss_report(site, inbox)) {
                    return Some(Err(why));
                }
                if !self.newly_lost(inbox).is_empty() {
                    return Some(Ok(false));
                }
                let same = |site: usize| self.named[site] == lost || self.last && inbox.has_left(site);
                self.others().all(same).then_some(Ok(true))
            })?;
            if agreed {
                break;
            }
        }
        for Loss { rank, why } in &self.losses[before..] {
            warn(&format!(
                "site {} {why}; the run goes on without it, with {} of {all} sites",
                link.sites()[*rank],
                all - announced.len()
            ));
        }
        Ok(())
    }

    /// Sends the list of lost sites to all sites except those announced as lost `before`. The remaining sites also get
    /// this site's copies of the others' messages.
    fn name(&self, lost: &[usize], before: &[usize]) {
        let of = |&site: &usize| {
            let shared = self.heard[site].iter().filter(|(_, heard)| heard.for_all);
            shared.map(move |(round, heard)| (site, *round, heard.text.to_vec()))
        };
        let full = LossReport { lost: lost.to_vec(), heard: lost.iter().flat_map(of).collect() }.encode();
        let names = LossReport { lost: lost.to_vec(), heard: Vec::new() }.encode();
        self.others().for_each(|site| self.link.send(site, ALL, Kind::Lost, &full));
        for &site in lost.iter().filter(|site| !before.contains(site)) {
            self.link.send(site, ALL, Kind::Lost, &names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_a_site_names_survives_its_way_and_nonsense_is_refused() {
        let report = LossReport { lost: vec![1, 3], heard: vec![(3, 7, vec![1, 2, 3]), (1, 8, Vec::new())] };
        let bytes = report.encode();
        assert_eq!(LossReport::decode(&bytes, 4), Some(report));
        assert_eq!(LossReport::decode(&bytes, 3), None, "there is no site 3");
        for length in (0..bytes.len()).filter(|length| ![24, 51].contains(length)) {
            assert_eq!(LossReport::decode(&bytes[..length], 4), None, "cut to {length}");
        }
        let other = LossReport { lost: vec![1], heard: vec![(3, 7, Vec::new())] };
        assert_eq!(LossReport::decode(&other.encode(), 4), None, "a message of a site that is not gone");
        let mut long = bytes;
        long[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(LossReport::decode(&long, 4), None, "longer than it is");
    }
}

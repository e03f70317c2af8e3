//! Rounds: exchanges between all sites that go on when a site is gone.
//!
//! In a round each site sends a message to each other one, and ends the round when it has those of all that are
//! present. So two sites are at most one round apart. When the hub says that a site is gone, the others agree on that
//! among themselves: each tells the others who is gone, and what it has of those sites' messages of the rounds that
//! somebody may still be in; from then on it takes nothing more from them. It goes on when all that are left have told
//! it the same. What one of them has of a lost site's message is then every one's, so a message counts at all or at
//! none.
//!
//! The hub is believed when it says that somebody is gone, but it cannot make two groups go on: each needs the sealed
//! word of all its members, more than half of all sites have to be left, and who is named as gone goes on with nobody.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use fednmf_base::warning::warn;
use fednmf_comm::transport::Loss;

use super::link::{Arrived, Kind, Link, RESUME, fail};

/// The group of all sites.
const ALL: u64 = 0;

/// To whom what is sent in a round is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    ForAll = 0,
    /// Each receiver has a text of its own, which the others must not see.
    ForEach = 1,
}

/// A message of a round.
#[derive(Debug, Clone)]
struct Heard {
    text: Rc<Vec<u8>>,
    for_all: bool,
}

/// Who is gone, and what the sender has of their messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lost {
    gone: Vec<usize>,
    /// Site, round and text.
    heard: Vec<(usize, u64, Vec<u8>)>,
}

impl Lost {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut number = |x: u64| bytes.extend(x.to_le_bytes());
        number(self.gone.len() as u64);
        self.gone.iter().for_each(|&site| number(site as u64));
        for (site, round, text) in &self.heard {
            for x in [*site as u64, *round, text.len() as u64] {
                bytes.extend(x.to_le_bytes());
            }
            bytes.extend(text);
        }
        bytes
    }

    /// `None` if the bytes are no such message about `sites` sites.
    fn decode(mut bytes: &[u8], sites: usize) -> Option<Lost> {
        let number = |bytes: &mut &[u8]| bytes.split_off(..8).map(|x| u64::from_le_bytes(x.try_into().expect("eight")));
        let mut lost = Lost::default();
        for _ in 0..number(&mut bytes).filter(|count| *count <= sites as u64)? {
            lost.gone.push(usize::try_from(number(&mut bytes)?).ok().filter(|&site| site < sites)?);
        }
        while !bytes.is_empty() {
            let site = usize::try_from(number(&mut bytes)?).ok().filter(|site| lost.gone.contains(site))?;
            let round = number(&mut bytes)?;
            let length = usize::try_from(number(&mut bytes)?).ok()?;
            lost.heard.push((site, round, bytes.split_off(..length)?.to_vec()));
        }
        Some(lost)
    }
}

/// What each site has contributed to a round; `None` if it is gone.
pub type Contributions = Vec<Option<Rc<Vec<u8>>>>;

/// The rounds of a run.
pub struct Rounds {
    link: Arc<Link>,
    /// Fewer sites do not go on.
    least: usize,
    round: u64,
    present: Vec<bool>,
    /// Of each site, by round.
    heard: Vec<BTreeMap<u64, Heard>>,
    /// Whom each site has last named as gone.
    named: Vec<Vec<usize>>,
    losses: Vec<Loss>,
    /// Whether this is the last round, after which a site may be away.
    last: bool,
}

impl Rounds {
    /// Rounds of all sites of the run.
    pub fn new(link: Arc<Link>, least: usize) -> Rounds {
        let sites = link.sites().len();
        link.goes_on(least);
        Rounds {
            link,
            least,
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

    /// The sites that are gone, in the order in which that was found out.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        let me = self.link.me();
        (0..self.present.len()).filter(move |&site| site != me && self.present[site])
    }

    /// Sends the same to all others and returns what all have sent, the same at all sites.
    pub fn share(&mut self, text: &[u8]) -> Contributions {
        self.exchange(Text::ForAll, |_| text)
    }

    /// Sends each other site its own text and returns what the others have sent to this one: for each site that all
    /// have heard.
    pub fn distribute<'a>(&mut self, text: impl Fn(usize) -> &'a [u8]) -> Contributions {
        let mut heard = self.exchange(Text::ForEach, text);
        // A site that was lost in between has reached some of the others only.
        let mine: Vec<u8> = heard.iter().map(|text| u8::from(text.is_some())).collect();
        for reached in self.share(&mine).into_iter().flatten() {
            for (text, _) in heard.iter_mut().zip(reached.iter()).filter(|(_, reached)| **reached == 0) {
                *text = None;
            }
        }
        heard
    }

    /// The end of the run: returns when all others have what they need of this site.
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
        let own = Heard { text: Rc::new(text(me).to_vec()), for_all: kind == Text::ForAll };
        self.heard[me].insert(round, own);
        let link = self.link.clone();
        while !link.until(|arrived| self.look(arrived).transpose()).unwrap_or_else(|why| fail(&why)) {
            self.agree_on_losses().unwrap_or_else(|why| fail(&why));
        }
        self.heard.iter().map(|heard| heard.get(&round).map(|heard| heard.text.clone())).collect()
    }

    /// Takes in what has arrived in a round; whether that is all, or `false` if somebody is gone.
    fn look(&mut self, arrived: &mut Arrived<'_>) -> Result<Option<bool>, String> {
        for site in 0..self.present.len() {
            self.take_names(site, arrived)?;
            while self.present[site]
                && let Some(message) = arrived.next(site, ALL, Kind::Round)
            {
                self.take_round(site, &message)?;
            }
        }
        if !self.newly_gone(arrived).is_empty() {
            return Ok(Some(false));
        }
        let done = |site: usize| self.heard[site].contains_key(&self.round) || self.last && arrived.has_left(site);
        Ok(self.others().all(done).then_some(true))
    }

    fn take_round(&mut self, site: usize, message: &[u8]) -> Result<(), String> {
        let head = message.split_first_chunk::<8>().and_then(|(round, rest)| Some((round, rest.split_first()?)));
        let (round, (kind, text)) = head.ok_or_else(|| self.nonsense(site))?;
        let round = u64::from_le_bytes(*round);
        if round < self.round || round > self.round + 1 {
            return Err(self.nonsense(site));
        }
        let heard = Heard { text: Rc::new(text.to_vec()), for_all: *kind == Text::ForAll as u8 };
        self.heard[site].insert(round, heard);
        Ok(())
    }

    fn nonsense(&self, site: usize) -> String {
        let site = &self.link.sites()[site];
        format!(
            "site {site} is not at the same point of the run; do all sites run the same command and version?{RESUME}"
        )
    }

    /// Takes in whom a site names as gone, and what it has of them.
    fn take_names(&mut self, site: usize, arrived: &mut Arrived<'_>) -> Result<(), String> {
        while let Some(message) = arrived.next(site, ALL, Kind::Lost) {
            let Lost { gone, heard } = Lost::decode(&message, self.present.len()).ok_or_else(|| self.nonsense(site))?;
            if gone.contains(&self.link.me()) {
                return Err(format!(
                    "site {} says that this site is gone, and that the others go on without it; to bring it back, stop \
                     them (SIGTERM), and start all sites again with --resume",
                    self.link.sites()[site]
                ));
            }
            // A site that is itself gone has no say.
            if self.present[site] {
                for (of, round, text) in heard {
                    self.heard[of].entry(round).or_insert(Heard { text: Rc::new(text), for_all: true });
                }
                self.named[site] = gone;
            }
        }
        Ok(())
    }

    /// Who counts as present, but is gone as the hub or a site says: site, and why.
    fn newly_gone(&self, arrived: &Arrived<'_>) -> Vec<(usize, String)> {
        let why = |site: usize| match arrived.gone(site) {
            // Who has left has nothing more to say.
            _ if self.last && arrived.has_left(site) => None,
            Some(why) => Some(why.to_string()),
            None => {
                let by = self.others().find(|&by| by != site && self.named[by].contains(&site))?;
                Some(format!("is gone, as site {} says", self.link.sites()[by]))
            }
        };
        self.others().filter_map(|site| Some((site, why(site)?))).collect()
    }

    /// Agrees with all that are left on who is gone, and on which of their messages count.
    fn agree_on_losses(&mut self) -> Result<(), String> {
        let (link, before, all) = (self.link.clone(), self.losses.len(), self.present.len());
        let mut told = Vec::new();
        loop {
            for (rank, why) in link.until(|arrived| Some(self.newly_gone(arrived))) {
                self.present[rank] = false;
                self.losses.push(Loss { rank, why });
            }
            let gone: Vec<usize> = (0..all).filter(|&site| !self.present[site]).collect();
            let left = all - gone.len();
            if left < self.least {
                let Loss { rank, why } = self.losses.last().expect("somebody is gone");
                return Err(format!(
                    "site {} {why}; {left} of {all} sites are left, and --secure-threshold needs {}; the run ends\
                     {RESUME}",
                    link.sites()[*rank],
                    self.least
                ));
            }
            if told != gone {
                self.name(&gone, &told);
                told.clone_from(&gone);
            }
            let agreed = link.until(|arrived| {
                if let Err(why) = (0..all).try_for_each(|site| self.take_names(site, arrived)) {
                    return Some(Err(why));
                }
                if !self.newly_gone(arrived).is_empty() {
                    return Some(Ok(false));
                }
                let same = |site: usize| self.named[site] == gone || self.last && arrived.has_left(site);
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
                all - told.len()
            ));
        }
        Ok(())
    }

    /// Tells all sites but those that were told before to be gone who is gone, and those that are left what this site
    /// has of the others' messages.
    fn name(&self, gone: &[usize], before: &[usize]) {
        let of = |&site: &usize| {
            let shared = self.heard[site].iter().filter(|(_, heard)| heard.for_all);
            shared.map(move |(round, heard)| (site, *round, heard.text.to_vec()))
        };
        let full = Lost { gone: gone.to_vec(), heard: gone.iter().flat_map(of).collect() }.encode();
        let names = Lost { gone: gone.to_vec(), heard: Vec::new() }.encode();
        self.others().for_each(|site| self.link.send(site, ALL, Kind::Lost, &full));
        for &site in gone.iter().filter(|site| !before.contains(site)) {
            self.link.send(site, ALL, Kind::Lost, &names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_a_site_names_survives_its_way_and_nonsense_is_refused() {
        let lost = Lost { gone: vec![1, 3], heard: vec![(3, 7, vec![1, 2, 3]), (1, 8, Vec::new())] };
        let bytes = lost.encode();
        assert_eq!(Lost::decode(&bytes, 4), Some(lost));
        assert_eq!(Lost::decode(&bytes, 3), None, "there is no site 3");
        for length in (0..bytes.len()).filter(|length| ![24, 51].contains(length)) {
            assert_eq!(Lost::decode(&bytes[..length], 4), None, "cut to {length}");
        }
        let other = Lost { gone: vec![1], heard: vec![(3, 7, Vec::new())] };
        assert_eq!(Lost::decode(&other.encode(), 4), None, "a message of a site that is not gone");
        let mut long = bytes;
        long[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Lost::decode(&long, 4), None, "longer than it is");
    }
}

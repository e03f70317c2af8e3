//! The specification of a synthetic matrix: `KIND,key=value,…`.

use fednmf_base::error::{Error, Result};
use fednmf_base::units::whole_number;

/// The kind of matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticKind {
    /// max(0, UVᵀ + mean(UVᵀ) · noise); entries of U, V are U(0, 1), each kept with probability `density`.
    Planted,
    /// Independent entries of probability `density`, uniform over the columns or by a power law.
    Sparse,
    /// `k` blocks with entries from U(½, 1½), each kept with probability `density`, plus the magnitude of noise: only
    /// outside the blocks if these are on the diagonal, everywhere if they are at random places ([`Placement`]).
    Blocks,
    /// Boolean: `k` overlapping tiles, each cell kept with probability `density`, then flipped with probability `noise`.
    Tiles,
    /// XY + N(0, noise) with exponential entries, of mean 0.033 in X and 0.8 in Y: the synthetic spectra of the PPDNMF
    /// paper. A few entries are negative. `noise` is a variance.
    Exponential,
    /// The adjacency matrix of a stochastic block model: `k` groups of equal size, with an edge of probability `density`
    /// between members of a group and of probability `noise` between others.
    Graph,
}

/// The law of the noise of [`SyntheticKind::Planted`] and [`SyntheticKind::Blocks`], with parameter σ = `noise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseLaw {
    /// N(0, σ²)
    Gaussian,
    /// Exponential with mean σ.
    Exponential,
    /// 1 with probability σ: binomial with a single trial.
    Binomial,
}

/// Where the blocks of [`SyntheticKind::Blocks`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// On the diagonal; they do not overlap.
    Diagonal,
    /// At random places: each has 10 to 30 % of the rows and 5 to 20 % of the columns. Overlapping blocks are added.
    Random,
}

/// How the density varies over the columns of [`SyntheticKind::Sparse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnDensity {
    Uniform,
    /// Column j has a density ∝ (j + 1)^-0.7, like words in texts.
    Power,
}

/// The distribution of the entries of [`SyntheticKind::Sparse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryValues {
    /// U(0, 1], never zero.
    Uniform,
    /// 1, 2, 3, … with probabilities ½, ¼, ⅛, …
    Counts,
    Ones,
}

/// A synthetic matrix, m × n.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    pub kind: SyntheticKind,
    pub m: usize,
    pub n: usize,
    /// Number of planted components.
    pub k: usize,
    pub density: f64,
    pub noise: f64,
    pub noise_law: NoiseLaw,
    pub place: Placement,
    pub seed: u64,
    pub law: ColumnDensity,
    pub values: EntryValues,
    /// Number of clients: blocks of rows of [`SyntheticKind::Tiles`].
    pub clients: usize,
    /// Fraction of the tiles that belong to a single client.
    pub private: f64,
}

/// The name of each kind, its defaults, and the keys that it takes.
const KINDS: [(&str, Synthetic, &[&str]); 6] = [
    (
        "planted",
        base(SyntheticKind::Planted, [2000, 1000, 10], 0.6, 0.05),
        &["m", "n", "k", "density", "noise", "noise-law", "seed"],
    ),
    (
        "sparse",
        base(SyntheticKind::Sparse, [20_000, 5000, 1], 0.005, 0.0),
        &["m", "n", "density", "law", "values", "seed"],
    ),
    (
        "blocks",
        base(SyntheticKind::Blocks, [1000, 500, 5], 1.0, 0.1),
        &["m", "n", "k", "density", "noise", "noise-law", "place", "seed"],
    ),
    ("tiles", base(SyntheticKind::Tiles, [1000, 200, 10], 0.9, 0.1), TILES),
    ("exponential", base(SyntheticKind::Exponential, [30, 200, 5], 1.0, 3.6e-4), &["m", "n", "k", "noise", "seed"]),
    ("graph", base(SyntheticKind::Graph, [1000, 1000, 5], 0.1, 0.01), &["n", "k", "density", "noise", "seed"]),
];

const TILES: &[&str] = &["m", "n", "k", "density", "noise", "seed", "clients", "private"];

const fn base(kind: SyntheticKind, [m, n, k]: [usize; 3], density: f64, noise: f64) -> Synthetic {
    Synthetic {
        kind,
        m,
        n,
        k,
        density,
        noise,
        noise_law: NoiseLaw::Gaussian,
        place: Placement::Diagonal,
        seed: 1,
        law: ColumnDensity::Uniform,
        values: EntryValues::Uniform,
        clients: 1,
        private: 0.0,
    }
}

impl Synthetic {
    /// Parses `KIND,key=value,…`.
    ///
    /// # Errors
    /// If a kind or key is unknown, or a value out of range; the message names what is allowed.
    pub fn parse(text: &str) -> Result<Self> {
        let mut words = text.split(',').map(str::trim);
        let name = words.next().unwrap_or_default();
        let Some((_, base, keys)) = KINDS.iter().find(|(kind, ..)| *kind == name) else {
            let kinds: Vec<&str> = KINDS.iter().map(|(kind, ..)| *kind).collect();
            return Err(Error::input(format!("synthetic:{name}: unknown kind; the kinds are {}", kinds.join(", "))));
        };
        let mut spec = base.clone();
        let mut given = Vec::new();
        for word in words.filter(|w| !w.is_empty()) {
            let wrong = |why: String| Error::input(format!("synthetic:{name}: {word}: {why}"));
            let (key, value) = word.split_once('=').ok_or_else(|| wrong("write key=value".into()))?;
            if !keys.contains(&key) {
                return Err(wrong(format!("unknown key; {name} takes {}", keys.join(", "))));
            }
            if given.contains(&key) {
                return Err(wrong("is given twice; leave one out".into()));
            }
            given.push(key);
            let count = || match whole_number(value) {
                Some(count) if count > 0 && count <= i32::MAX as usize => Ok(count),
                _ => Err(wrong("must be a whole number from 1 to 2147483647".into())),
            };
            let share = |most: f64, least_open: bool| match value.parse::<f64>() {
                Ok(x) if x <= most && (x > 0.0 || !least_open && x == 0.0) => Ok(x),
                _ => Err(wrong(format!(
                    "must be a number {} 0, at most {most}",
                    if least_open { "above" } else { "from" }
                ))),
            };
            match key {
                "m" => spec.m = count()?,
                "n" => spec.n = count()?,
                "k" => spec.k = count()?,
                "clients" => spec.clients = count()?,
                "private" => spec.private = share(1.0, false)?,
                "density" => spec.density = share(1.0, true)?,
                "noise" => spec.noise = share(spec.kind.most_noise(), false)?,
                "seed" => spec.seed = value.parse().map_err(|_| wrong("must be a whole number from 0".into()))?,
                "noise-law" => {
                    spec.noise_law = match value {
                        "gaussian" => NoiseLaw::Gaussian,
                        "exponential" => NoiseLaw::Exponential,
                        "binomial" => NoiseLaw::Binomial,
                        _ => return Err(wrong("must be gaussian, exponential or binomial".into())),
                    }
                }
                "place" => {
                    spec.place = match value {
                        "diagonal" => Placement::Diagonal,
                        "random" => Placement::Random,
                        _ => return Err(wrong("must be diagonal or random".into())),
                    }
                }
                "law" => {
                    spec.law = match value {
                        "uniform" => ColumnDensity::Uniform,
                        "power" => ColumnDensity::Power,
                        _ => return Err(wrong("must be uniform or power".into())),
                    }
                }
                _ => {
                    spec.values = match value {
                        "uniform" => EntryValues::Uniform,
                        "counts" => EntryValues::Counts,
                        "ones" => EntryValues::Ones,
                        _ => return Err(wrong("must be uniform, counts or ones".into())),
                    }
                }
            }
        }
        if spec.kind == SyntheticKind::Graph {
            spec.m = spec.n;
            if spec.k > spec.n {
                return Err(Error::input(format!("synthetic:graph: k={} groups need at least as many nodes", spec.k)));
            }
        }
        if spec.noise_law == NoiseLaw::Binomial && spec.noise > 1.0 {
            return Err(Error::input(format!(
                "synthetic:{name}: noise={}: with noise-law=binomial it is a probability, at most 1",
                spec.noise
            )));
        }
        if spec.kind == SyntheticKind::Blocks && spec.place == Placement::Diagonal && spec.k > spec.m.min(spec.n) {
            return Err(Error::input(format!(
                "synthetic:blocks: k={} blocks need at least as many rows and columns",
                spec.k
            )));
        }
        Ok(spec)
    }

    /// The name of the kind.
    pub fn name(&self) -> &'static str {
        KINDS.iter().find(|(_, base, _)| base.kind == self.kind).map_or("synthetic", |(name, ..)| name)
    }

    /// Whether a matrix of this kind is generated from factors, which every process holds.
    pub fn has_factors(&self) -> bool {
        matches!(self.kind, SyntheticKind::Planted | SyntheticKind::Exponential)
    }

    /// Whether noise may make entries negative.
    pub fn may_be_negative(&self) -> bool {
        self.kind == SyntheticKind::Exponential && self.noise > 0.0
    }

    /// Number of entries that are written; the expected number for a sparse kind.
    pub fn entries(&self) -> f64 {
        let (m, n) = (self.m as f64, self.n as f64);
        let share = match self.kind {
            SyntheticKind::Sparse => self.density,
            SyntheticKind::Graph => self.noise + (self.density - self.noise) / self.k as f64,
            _ => 1.0,
        };
        m * n * share
    }

    /// Whether its blocks are stored sparse.
    pub fn sparse(&self) -> bool {
        matches!(self.kind, SyntheticKind::Sparse | SyntheticKind::Graph)
    }
}

impl SyntheticKind {
    /// The largest allowed `noise`, which is a probability for some kinds.
    fn most_noise(self) -> f64 {
        if matches!(self, SyntheticKind::Tiles | SyntheticKind::Graph) { 1.0 } else { 1e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_before_they_are_made() {
        let entries = |text: &str| Synthetic::parse(text).unwrap().entries();
        assert_eq!(entries("planted,m=30,n=20,density=0.1"), 600.0);
        assert_eq!(entries("sparse,m=30,n=20,density=0.1"), 60.0);
        // Two groups of ten: half of the pairs are within one.
        assert!((entries("graph,n=20,k=2,density=0.4,noise=0.1") - 100.0).abs() < 1e-9);
    }

    #[test]
    fn refusals_name_what_is_allowed() {
        for (text, names) in [
            ("plante", "planted, sparse"),
            ("planted,law=power", "m, n, k"),
            ("sparse,law=cubic", "uniform or power"),
            ("sparse,density=0", "above 0"),
            ("planted,m=0", "from 1"),
            ("planted,m=5,n=4,m=6", "twice"),
            ("planted,m", "key=value"),
            ("planted,noise=nan", "from 0"),
            ("blocks,m=3,k=4", "at least as many"),
            ("blocks,noise-law=poisson", "gaussian, exponential or binomial"),
            ("blocks,noise-law=binomial,noise=1.5", "probability"),
            ("blocks,place=left", "diagonal or random"),
            ("tiles,noise-law=gaussian", "unknown key"),
            ("graph,m=9", "n, k"),
            ("graph,n=9,k=10", "at least as many"),
            ("graph,noise=2", "at most 1"),
        ] {
            let message = Synthetic::parse(text).unwrap_err().message;
            assert!(message.contains(names), "{text}: {message}");
        }
        let spec = Synthetic::parse("sparse,m=7,law=power,values=counts,seed=3").unwrap();
        assert_eq!((spec.m, spec.law, spec.values, spec.seed), (7, ColumnDensity::Power, EntryValues::Counts, 3));
        assert_eq!(spec.name(), "sparse");
    }
}

//! Synthetic matrices: what may be asked for (here), and the making of it. Any rectangle of one is made anywhere with the
//! same bits: all random numbers are keyed on the global index, so each rank makes its own tiles and nothing is sent.

mod generator;
mod pattern;
mod tiles;

use crate::error::{Error, Result};

pub use generator::Generator;
pub use tiles::Tiles;

/// What kind of matrix is made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// max(0, UVᵀ + noise · mean(UVᵀ) · N(0, 1)); entries of U, V are U(0, 1), each kept with probability `density`.
    Planted,
    /// Independent entries of probability `density`, uniform over the columns or by a power law.
    Sparse,
    /// `k` blocks on the diagonal with entries from U(½, 1½) over a background of |noise · N(0, 1)|.
    Blocks,
    /// Boolean: `k` overlapping tiles, each cell kept with probability `density`, then flipped with probability `noise`.
    Tiles,
    /// XY + N(0, noise), X entries exponential of mean 0.033, Y of mean 0.8: the made-up spectra of PPDNMF's paper, a few
    /// negative entries kept. `noise` is a variance.
    Exponential,
}

/// How columns share the entries of [`Kind::Sparse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    Uniform,
    /// Column j has a density ∝ (j + 1)^-0.7, as words in texts have.
    Power,
}

/// What the entries of [`Kind::Sparse`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// U(0, 1], never zero.
    Uniform,
    /// 1, 2, 3, … with probabilities ½, ¼, ⅛, …
    Counts,
    Ones,
}

/// A synthetic matrix, m × n.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    pub kind: Kind,
    pub m: usize,
    pub n: usize,
    /// Number of components planted.
    pub k: usize,
    pub density: f64,
    pub noise: f64,
    pub seed: u64,
    pub law: Law,
    pub values: Values,
    /// Blocks of rows that [`Kind::Tiles`] may keep tiles to.
    pub clients: usize,
    /// Share of the tiles that only one of them has.
    pub private: f64,
}

/// A kind's name, what it is by default, and the keys it takes.
const KINDS: [(&str, Synthetic, &[&str]); 5] = [
    ("planted", base(Kind::Planted, [2000, 1000, 10], 0.6, 0.05), &["m", "n", "k", "density", "noise", "seed"]),
    ("sparse", base(Kind::Sparse, [20_000, 5000, 1], 0.005, 0.0), &["m", "n", "density", "law", "values", "seed"]),
    ("blocks", base(Kind::Blocks, [1000, 500, 5], 1.0, 0.1), &["m", "n", "k", "noise", "seed"]),
    ("tiles", base(Kind::Tiles, [1000, 200, 10], 0.9, 0.1), TILES),
    ("exponential", base(Kind::Exponential, [30, 200, 5], 1.0, 3.6e-4), &["m", "n", "k", "noise", "seed"]),
];

const TILES: &[&str] = &["m", "n", "k", "density", "noise", "seed", "clients", "private"];

const fn base(kind: Kind, [m, n, k]: [usize; 3], density: f64, noise: f64) -> Synthetic {
    Synthetic {
        kind,
        m,
        n,
        k,
        density,
        noise,
        seed: 1,
        law: Law::Uniform,
        values: Values::Uniform,
        clients: 1,
        private: 0.0,
    }
}

impl Synthetic {
    /// Reads `KIND,key=value,…`.
    ///
    /// # Errors
    /// On an unknown kind or key, or a value out of its range; the message names what is allowed.
    pub fn parse(text: &str) -> Result<Self> {
        let mut words = text.split(',').map(str::trim);
        let name = words.next().unwrap_or_default();
        let Some((_, base, keys)) = KINDS.iter().find(|(kind, ..)| *kind == name) else {
            let kinds: Vec<&str> = KINDS.iter().map(|(kind, ..)| *kind).collect();
            return Err(Error::input(format!("synthetic:{name}: unknown kind; there are {}", kinds.join(", "))));
        };
        let mut made = base.clone();
        for word in words.filter(|w| !w.is_empty()) {
            let wrong = |why: String| Error::input(format!("synthetic:{name}: {word}: {why}"));
            let (key, value) = word.split_once('=').ok_or_else(|| wrong("write key=value".into()))?;
            if !keys.contains(&key) {
                return Err(wrong(format!("unknown key; {name} takes {}", keys.join(", "))));
            }
            let count = || match value.parse::<usize>() {
                Ok(count) if count > 0 && count <= i32::MAX as usize => Ok(count),
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
                "m" => made.m = count()?,
                "n" => made.n = count()?,
                "k" => made.k = count()?,
                "clients" => made.clients = count()?,
                "private" => made.private = share(1.0, false)?,
                "density" => made.density = share(1.0, true)?,
                "noise" => made.noise = share(if made.kind == Kind::Tiles { 1.0 } else { 1e9 }, false)?,
                "seed" => made.seed = value.parse().map_err(|_| wrong("must be a whole number from 0".into()))?,
                "law" => {
                    made.law = match value {
                        "uniform" => Law::Uniform,
                        "power" => Law::Power,
                        _ => return Err(wrong("must be uniform or power".into())),
                    }
                }
                _ => {
                    made.values = match value {
                        "uniform" => Values::Uniform,
                        "counts" => Values::Counts,
                        "ones" => Values::Ones,
                        _ => return Err(wrong("must be uniform, counts or ones".into())),
                    }
                }
            }
        }
        if made.kind == Kind::Blocks && made.k > made.m.min(made.n) {
            return Err(Error::input(format!(
                "synthetic:blocks: k={} blocks need at least as many rows and columns",
                made.k
            )));
        }
        Ok(made)
    }

    /// The kind's name.
    pub fn name(&self) -> &'static str {
        KINDS.iter().find(|(_, base, _)| base.kind == self.kind).map_or("synthetic", |(name, ..)| name)
    }

    /// Whether its blocks are stored sparse.
    pub fn sparse(&self) -> bool {
        self.kind == Kind::Sparse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_are_refused_and_the_allowed_ones_named() {
        for (text, names) in [
            ("plante", "planted, sparse"),
            ("planted,law=power", "m, n, k"),
            ("sparse,law=cubic", "uniform or power"),
            ("sparse,density=0", "above 0"),
            ("planted,m=0", "from 1"),
            ("planted,m", "key=value"),
            ("planted,noise=nan", "from 0"),
            ("blocks,m=3,k=4", "at least as many"),
        ] {
            let message = Synthetic::parse(text).unwrap_err().message;
            assert!(message.contains(names), "{text}: {message}");
        }
        let made = Synthetic::parse("sparse,m=7,law=power,values=counts,seed=3").unwrap();
        assert_eq!((made.m, made.law, made.values, made.seed), (7, Law::Power, Values::Counts, 3));
        assert_eq!(made.name(), "sparse");
    }
}

//! Options that belong to some algorithms only. Each is defined once here; an algorithm names those it takes, with its
//! own default. Parser, `--help`, the refusal of an option that does not belong, and the docs are made from this.

mod all;
mod ppdnmf;
mod privacy;
mod secure;

pub use all::*;
pub use ppdnmf::*;
pub use privacy::*;
pub use secure::*;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};

/// What a value must look like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Check {
    /// Present or not.
    Flag,
    /// A whole number of at least `min`.
    Count { min: u64 },
    /// A whole number of at least 1, or `auto`: the algorithm's choice.
    CountOrAuto,
    /// A whole number of at least `min`, or `none`.
    CountOrNone { min: u64 },
    /// A number in [min, max].
    Number { min: f64, max: f64 },
    /// A number of at least 0, or `auto`: the algorithm's choice.
    NumberOrAuto,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One or two sizes, `U[,V]`: counts, or shares with `%`; or `auto`.
    Sizes,
    /// Rows and columns of a grid of ranks, `PRxPC`; or `auto`.
    Grid,
    /// Any text; whoever takes it checks it.
    Text,
    /// A file, or `none`.
    File,
    /// A whole number, or `os`: from the operating system.
    Seed,
}

/// One option: `--name VALUE`.
#[derive(Debug, PartialEq)]
pub struct Opt {
    pub name: &'static str,
    pub value: &'static str,
    pub help: &'static str,
    pub check: Check,
}

/// A size as typed: a count, or a share of what it is a size of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    Count(usize),
    Share(f64),
}

impl Size {
    /// The count that this is of `total`: at least 1 unless `total` is 0.
    pub fn of(self, total: usize) -> usize {
        match self {
            Size::Count(c) => c,
            Size::Share(s) => ((total as f64 * s).round() as usize).clamp(1, total.max(1)),
        }
    }

    fn parse(text: &str) -> Option<Size> {
        let text = text.trim();
        match text.strip_suffix('%') {
            Some(share) => {
                share.trim().parse().ok().filter(|&s: &f64| s > 0.0 && s <= 100.0).map(|s| Size::Share(s / 100.0))
            }
            None => text.parse().ok().filter(|&c| c > 0).map(Size::Count),
        }
    }
}

/// A checked value.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Flag(bool),
    Count(u64),
    Number(f64),
    Auto,
    None,
    Word(String),
    Sizes(Option<(Size, Size)>),
    Grid(Option<(usize, usize)>),
}

impl Opt {
    #[cfg(test)]
    fn parse(&self, text: &str) -> Result<Value> {
        self.parse_as(self.check, text)
    }

    fn parse_as(&self, check: Check, text: &str) -> Result<Value> {
        let wrong = |must: String| Error::input(format!("--{} {text}: must be {must}", self.name));
        match check {
            Check::Flag => match text {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => Err(wrong("given without a value".into())),
            },
            Check::Count { min } => text
                .parse()
                .ok()
                .filter(|&c| c >= min)
                .map(Value::Count)
                .ok_or_else(|| wrong(format!("a whole number of at least {min}"))),
            Check::CountOrAuto if text == "auto" => Ok(Value::Auto),
            Check::CountOrAuto => text
                .parse()
                .ok()
                .filter(|&c| c >= 1)
                .map(Value::Count)
                .ok_or_else(|| wrong("a whole number of at least 1, or auto".into())),
            Check::CountOrNone { .. } if text == "none" => Ok(Value::None),
            Check::CountOrNone { min } => text
                .parse()
                .ok()
                .filter(|&c| c >= min)
                .map(Value::Count)
                .ok_or_else(|| wrong(format!("a whole number of at least {min}, or none"))),
            Check::Number { min, max } => {
                text.parse().ok().filter(|x: &f64| (min..=max).contains(x)).map(Value::Number).ok_or_else(|| {
                    wrong(if max.is_finite() {
                        format!("a number from {min} to {max}")
                    } else {
                        format!("a number of at least {min}")
                    })
                })
            }
            Check::NumberOrAuto if text == "auto" => Ok(Value::Auto),
            Check::NumberOrAuto => text
                .parse()
                .ok()
                .filter(|x: &f64| *x >= 0.0 && x.is_finite())
                .map(Value::Number)
                .ok_or_else(|| wrong("a number of at least 0, or auto".into())),
            Check::OneOf(words) => words
                .contains(&text)
                .then(|| Value::Word(text.to_string()))
                .ok_or_else(|| wrong(format!("one of {}", words.join(", ")))),
            Check::File if text == "none" => Ok(Value::None),
            Check::File if text.is_empty() => Err(wrong("the name of a file, or none".into())),
            Check::Text | Check::File => Ok(Value::Word(text.to_string())),
            Check::Seed if text == "os" => Ok(Value::Word(text.to_string())),
            Check::Seed => text.parse().ok().map(Value::Count).ok_or_else(|| wrong("a whole number, or os".into())),
            Check::Grid if text == "auto" => Ok(Value::Grid(None)),
            Check::Grid => {
                let count = |t: &str| t.parse().ok().filter(|&c: &usize| c > 0);
                let pair = text.split_once('x').and_then(|(r, c)| count(r).zip(count(c)));
                pair.map(|grid| Value::Grid(Some(grid)))
                    .ok_or_else(|| wrong("rows x columns of ranks as in 4x2, or auto".into()))
            }
            Check::Sizes => {
                if text == "auto" {
                    return Ok(Value::Sizes(None));
                }
                let mut parts = text.split(',');
                let first = parts.next().and_then(Size::parse);
                let second = parts.next().map_or(first, Size::parse);
                match (first, second, parts.next()) {
                    (Some(u), Some(v), None) => Ok(Value::Sizes(Some((u, v)))),
                    _ => Err(wrong("one or two sizes as in 200, 10%, or 50%,10%; or auto".into())),
                }
            }
        }
    }
}

/// An option with the default of one algorithm.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub opt: &'static Opt,
    pub default: &'static str,
    /// The words that this algorithm knows, where they are not those of all.
    pub words: Option<&'static [&'static str]>,
}

impl Opt {
    /// This option with an algorithm's default.
    pub const fn or(&'static self, default: &'static str) -> Taken {
        Taken { opt: self, default, words: None }
    }

    /// The same for an algorithm that knows these words only.
    pub const fn among(&'static self, words: &'static [&'static str], default: &'static str) -> Taken {
        Taken { opt: self, default, words: Some(words) }
    }
}

/// The checked values of all options that an algorithm takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    values: BTreeMap<&'static str, Value>,
}

impl Options {
    /// Checks the typed values of the options in `taken`; what was not typed gets its default.
    ///
    /// # Errors
    /// When a value is not what the option asks for.
    pub fn check(taken: &[Taken], typed: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut values = BTreeMap::new();
        for t in taken {
            let text = typed(t.opt.name).unwrap_or_else(|| t.default.to_string());
            values.insert(t.opt.name, t.opt.parse_as(t.words.map_or(t.opt.check, Check::OneOf), &text)?);
        }
        Ok(Options { values })
    }

    fn get(&self, opt: &Opt) -> &Value {
        self.values.get(opt.name).unwrap_or_else(|| panic!("the registry gives this algorithm no --{}", opt.name))
    }

    /// Whether the algorithm takes this option.
    pub fn takes(&self, opt: &Opt) -> bool {
        self.values.contains_key(opt.name)
    }

    pub fn flag(&self, opt: &Opt) -> bool {
        matches!(self.get(opt), Value::Flag(true))
    }

    pub fn count(&self, opt: &Opt) -> usize {
        match self.get(opt) {
            Value::Count(c) => *c as usize,
            other => unreachable!("--{} holds {other:?}", opt.name),
        }
    }

    /// `None` for `auto`.
    pub fn count_or_auto(&self, opt: &Opt) -> Option<usize> {
        match self.get(opt) {
            Value::Auto => None,
            _ => Some(self.count(opt)),
        }
    }

    /// `None` for `none`, and for an algorithm that takes no such option.
    pub fn count_or_none(&self, opt: &Opt) -> Option<usize> {
        match self.values.get(opt.name) {
            Some(Value::Count(c)) => Some(*c as usize),
            _ => None,
        }
    }

    pub fn number(&self, opt: &Opt) -> f64 {
        match self.get(opt) {
            Value::Number(x) => *x,
            other => unreachable!("--{} holds {other:?}", opt.name),
        }
    }

    /// `None` for `auto`.
    pub fn number_or_auto(&self, opt: &Opt) -> Option<f64> {
        match self.get(opt) {
            Value::Auto => None,
            _ => Some(self.number(opt)),
        }
    }

    pub fn word(&self, opt: &Opt) -> &str {
        match self.get(opt) {
            Value::Word(w) => w,
            other => unreachable!("--{} holds {other:?}", opt.name),
        }
    }

    /// The file, if one was named; `None` for an algorithm that takes no such option too.
    pub fn file(&self, opt: &Opt) -> Option<&Path> {
        match self.values.get(opt.name) {
            Some(Value::Word(name)) => Some(Path::new(name)),
            _ => None,
        }
    }

    /// `None` for `os`: secrets come from the operating system, as they should.
    pub fn seed(&self, opt: &Opt) -> Option<u64> {
        match self.get(opt) {
            Value::Count(c) => Some(*c),
            _ => None,
        }
    }

    /// The sizes for U's and V's update; `None` for `auto`.
    pub fn sizes(&self, opt: &Opt) -> Option<(Size, Size)> {
        match self.get(opt) {
            Value::Sizes(s) => *s,
            other => unreachable!("--{} holds {other:?}", opt.name),
        }
    }

    /// Rows and columns of the grid of ranks; `None` for `auto`, and for an algorithm that has no grid.
    pub fn grid(&self) -> Option<(usize, usize)> {
        match self.values.get(GRID.name) {
            Some(Value::Grid(grid)) => *grid,
            _ => None,
        }
    }

    /// The file that `--init` names; `None` for the other starts, and for an algorithm that does not take it.
    pub fn init_file(&self) -> Option<&str> {
        match self.values.get(INIT.name) {
            Some(Value::Word(w)) if !["random", "nndsvd"].contains(&w.as_str()) => Some(w),
            _ => None,
        }
    }

    /// What `--missing` says, where the algorithm takes it and not all entries count.
    pub fn missing(&self) -> Option<&str> {
        match (self.values.get(MISSING.name), self.values.get(HOLDOUT.name)) {
            (Some(Value::Word(word)), _) if word != "none" => Some(word),
            (Some(Value::Word(word)), Some(Value::Number(share))) if *share > 0.0 => Some(word),
            _ => None,
        }
    }

    /// The file of `--missing`, if it is one.
    pub fn missing_file(&self) -> Option<&str> {
        self.missing().filter(|word| !["none", "nan", "zero-unobserved"].contains(word))
    }

    /// Names and values, for trace and output.
    pub fn to_json(&self) -> serde_json::Map<String, serde_json::Value> {
        let size = |s: &Size| match s {
            Size::Count(c) => c.to_string(),
            Size::Share(s) => format!("{}%", s * 100.0),
        };
        self.values
            .iter()
            .map(|(name, value)| {
                let json = match value {
                    Value::Flag(b) => (*b).into(),
                    Value::Count(c) => (*c).into(),
                    Value::Number(x) => (*x).into(),
                    Value::Auto => "auto".into(),
                    Value::None => serde_json::Value::Null,
                    Value::Word(w) => w.clone().into(),
                    Value::Sizes(None) | Value::Grid(None) => "auto".into(),
                    Value::Grid(Some((pr, pc))) => format!("{pr}x{pc}").into(),
                    Value::Sizes(Some((u, v))) => format!("{},{}", size(u), size(v)).into(),
                };
                (name.replace('-', "_"), json)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counts_or_shares() {
        let parse = |t| SKETCH_SIZE.parse(t);
        assert_eq!(parse("200"), Ok(Value::Sizes(Some((Size::Count(200), Size::Count(200))))));
        assert_eq!(parse("50%, 7"), Ok(Value::Sizes(Some((Size::Share(0.5), Size::Count(7))))));
        assert_eq!(parse("auto"), Ok(Value::Sizes(None)));
        for wrong in ["", "0", "1,2,3", "101%", "-5", "x", "10%%", "0%"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Size::Share(0.001).of(5), 1);
    }

    #[test]
    fn a_grid_is_two_counts() {
        assert_eq!(GRID.parse("4x2"), Ok(Value::Grid(Some((4, 2)))));
        assert_eq!(GRID.parse("auto"), Ok(Value::Grid(None)));
        for wrong in ["", "4", "0x2", "4x", "x2", "4x2x1", "-4x2", "4 x 2", "1e1x2"] {
            let error = GRID.parse(wrong).unwrap_err();
            assert!(error.message.contains("--grid") && error.message.contains("4x2"), "{wrong}: {error}");
        }
    }

    #[test]
    fn wrong_values_name_the_option() {
        let error = Options::check(&[SOLVER.or("pcd")], |_| Some("newton".into())).unwrap_err();
        assert!(error.message.contains("--solver newton") && error.message.contains("pcd, pgd"), "{error}");
        let numbers = [MU_BETA.or("0.01")];
        for wrong in ["nan", "-1", "x", ""] {
            assert!(Options::check(&numbers, |_| Some(wrong.into())).is_err(), "{wrong}");
        }
        assert_eq!(Options::check(&numbers, |_| None).unwrap().number(&MU_BETA), 0.01);
    }
}

//! Types and parsers of parameter values other than plain numbers and keywords.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use fednmf_base::parameters::{Ignored, ParamType, ParamValue, Parameter, Parameters, Parsed, all, group, to_json};
use fednmf_base::units;

/// A value, or `auto` if the method chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Auto<V> {
    #[default]
    Auto,
    Given(V),
}

impl<V: Copy> Auto<V> {
    /// The value if one was given; `None` for `auto`.
    pub fn given(self) -> Option<V> {
        match self {
            Auto::Auto => None,
            Auto::Given(value) => Some(value),
        }
    }
}

impl<V> From<V> for Auto<V> {
    fn from(value: V) -> Self {
        Auto::Given(value)
    }
}

impl<V: ParamType + 'static> ParamType for Auto<V> {
    fn value(&self) -> ParamValue {
        match self {
            Auto::Auto => ParamValue::Text("auto".into()),
            Auto::Given(value) => value.value(),
        }
    }

    fn parse(text: &str) -> Parsed<Self> {
        auto(V::parse)(text)
    }
}

/// A value, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OrNone<V> {
    #[default]
    None,
    Given(V),
}

impl<V> OrNone<V> {
    /// The value that was given.
    pub fn as_ref(&self) -> Option<&V> {
        match self {
            OrNone::None => None,
            OrNone::Given(value) => Some(value),
        }
    }
}

impl<V> From<V> for OrNone<V> {
    fn from(value: V) -> Self {
        OrNone::Given(value)
    }
}

impl<V: ParamType + 'static> ParamType for OrNone<V> {
    fn value(&self) -> ParamValue {
        self.as_ref().map_or(ParamValue::None, V::value)
    }

    fn parse(text: &str) -> Parsed<Self> {
        or_none(V::parse)(text)
    }

    fn text(&self) -> Option<String> {
        self.as_ref().map_or_else(|| Some("none".into()), V::text)
    }
}

/// Parser of an integer of at least `least`, also written as 1_000_000 or 1e6.
pub fn count(least: usize) -> impl Fn(&str) -> Parsed<usize> + Clone + Send + Sync + 'static {
    move |text| {
        let parsed = units::whole_number(text).filter(|&c| c >= least);
        parsed.ok_or_else(|| format!("must be a whole number of at least {least}"))
    }
}

/// Parser of a whole number between two others.
pub fn count_to(least: usize, most: usize) -> impl Fn(&str) -> Parsed<usize> + Clone + Send + Sync + 'static {
    move |text| {
        let parsed = units::whole_number(text).filter(|&c| (least..=most).contains(&c));
        parsed.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
    }
}

/// A seed of random numbers.
pub fn seed(text: &str) -> Parsed<u64> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

/// Parses a nonnegative integer, also written as 1_000_000, 1e6 or 2.5e5.
pub fn whole_number(text: &str) -> Parsed<usize> {
    usize::parse(text)
}

/// Parses any number whose range depends on other options.
pub fn any_number(text: &str) -> Parsed<f64> {
    f64::parse(text)
}

/// Parser of a time in seconds: a number, or one with the unit s, m, h or d. The value is checked later.
///
/// # Errors
/// If the text is neither; the message states what it must be.
pub fn duration(text: &str) -> Parsed<f64> {
    let unit = |suffix: char| match suffix {
        's' => Some(1.0),
        'm' => Some(60.0),
        'h' => Some(3600.0),
        'd' => Some(86_400.0),
        _ => None,
    };
    let with_unit = || {
        let suffix = text.chars().last()?;
        let number: f64 = text[..text.len() - suffix.len_utf8()].parse().ok()?;
        Some(number * unit(suffix)?)
    };
    // As in the scripts of Slurm.
    let with_colons = || {
        let parts: Vec<f64> = text.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        (parts.len() == 3).then(|| parts[0] * 3600.0 + parts[1] * 60.0 + parts[2])
    };
    text.parse()
        .ok()
        .or_else(with_unit)
        .or_else(with_colons)
        .ok_or_else(|| "must be a number of seconds, or a time as in 90s, 30m, 2h, 01:30:00".to_string())
}

/// Parser of a number from `least` to `most`.
pub fn number(least: f64, most: f64) -> impl Fn(&str) -> Parsed<f64> + Clone + Send + Sync + 'static {
    move |text| {
        text.parse().ok().filter(|x: &f64| x.is_finite() && (least..=most).contains(x)).ok_or_else(|| {
            if least == f64::MIN_POSITIVE {
                format!("must be a number above 0 and at most {most}")
            } else if most.is_finite() {
                format!("must be a number from {least} to {most}")
            } else {
                format!("must be a number of at least {least}")
            }
        })
    }
}

/// Parser of everything that `parse` accepts, and of `auto`.
pub fn auto<V: 'static>(
    parse: impl Fn(&str) -> Parsed<V> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Parsed<Auto<V>> + Clone + Send + Sync + 'static {
    move |text| match text {
        "auto" => Ok(Auto::Auto),
        _ => parse(text).map(Auto::Given).map_err(|must| format!("{must}, or auto")),
    }
}

/// Parser of everything that `parse` accepts, and of `none`.
pub fn or_none<V: 'static>(
    parse: impl Fn(&str) -> Parsed<V> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Parsed<OrNone<V>> + Clone + Send + Sync + 'static {
    move |text| match text {
        "none" => Ok(OrNone::None),
        _ => parse(text).map(OrNone::Given).map_err(|must| format!("{must}, or none")),
    }
}

/// A keyword that an option accepts in addition to file names, and its names in other programs.
type Meaning = (&'static str, &'static [&'static str]);

/// The keyword that `text` probably means. `text` is neither a keyword nor a file name with a directory or an
/// extension.
fn similar(text: &str, words: &[Meaning]) -> Option<&'static str> {
    let text = text.to_lowercase();
    if let Some((word, _)) = words.iter().find(|(word, others)| *word == text || others.contains(&&*text)) {
        return Some(word);
    }
    if text.contains(['/', '.']) {
        return None;
    }
    let near = |word: &str| text.len() >= 3 && word.starts_with(&text) || edits(&text, word) <= word.len() / 4;
    let nearest = words.iter().filter(|(word, _)| near(word)).min_by_key(|(word, _)| edits(&text, word));
    nearest.map(|(word, _)| *word)
}

/// The error message for a text that is [`similar`] to a keyword.
fn meant(text: &str, words: &[Meaning]) -> String {
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let word = similar(text, words).unwrap_or_default();
    format!("did you mean {word}? It must be {}, or the name of a file (./{text} if this is one)", all.join(", "))
}

/// The word of `known` that was probably meant: at most a third of its letters differ.
pub fn meant_among<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = known.min_by_key(|known| edits(typed, known));
    nearest.filter(|known| edits(typed, known) <= known.len() / 3)
}

/// Number of letters to insert, remove or replace to turn one word into another.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// A size as typed: a count, or a fraction of the total.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    Count(usize),
    Share(f64),
}

impl Size {
    /// The size as a count, for this `total`: at least 1 unless `total` is 0.
    pub fn of(self, total: usize) -> usize {
        match self {
            Size::Count(c) => c,
            Size::Share(s) => ((total as f64 * s).round() as usize).clamp(1, total.max(1)),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Count(c) => write!(f, "{c}"),
            Size::Share(s) => write!(f, "{}%", s * 100.0),
        }
    }
}

impl FromStr for Size {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let text = text.trim();
        let size = match text.strip_suffix('%') {
            Some(share) => {
                let share = share.trim().parse().ok().filter(|&s: &f64| s > 0.0 && s <= 100.0);
                share.map(|s| Size::Share(s / 100.0))
            }
            None => text.parse().ok().filter(|&c| c > 0).map(Size::Count),
        };
        size.ok_or(())
    }
}

/// Sketch sizes for the updates of U and of V: `200`, `10%` or `50%,10%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes {
    pub u: Size,
    pub v: Size,
}

/// Parses [`Sizes`].
pub fn sizes(text: &str) -> Parsed<Sizes> {
    let mut parts = text.split(',').map(str::parse);
    let parsed = match (parts.next(), parts.next(), parts.next()) {
        (Some(Ok(both)), None, None) => Some(Sizes { u: both, v: both }),
        (Some(Ok(u)), Some(Ok(v)), None) => Some(Sizes { u, v }),
        _ => None,
    };
    parsed.ok_or_else(|| "must be one or two sizes as in 200, 10%, or 50%,10%".into())
}

impl ParamType for Sizes {
    fn value(&self) -> ParamValue {
        ParamValue::Text(format!("{},{}", self.u, self.v))
    }

    fn parse(text: &str) -> Parsed<Self> {
        sizes(text)
    }
}

/// Rows and columns of a grid of ranks: `4x2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridShape {
    pub rows: usize,
    pub cols: usize,
}

/// Parses a [`GridShape`].
pub fn grid_shape(text: &str) -> Parsed<GridShape> {
    let count = |t: &str| t.parse().ok().filter(|&c: &usize| c > 0);
    let pair = text.split_once('x').and_then(|(r, c)| count(r).zip(count(c)));
    pair.map(|(rows, cols)| GridShape { rows, cols }).ok_or_else(|| "must be rows x columns of ranks as in 4x2".into())
}

impl ParamType for GridShape {
    fn value(&self) -> ParamValue {
        ParamValue::Text(format!("{}x{}", self.rows, self.cols))
    }

    fn parse(text: &str) -> Parsed<Self> {
        grid_shape(text)
    }
}

/// Where the factors start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Init {
    /// The method's default: random, except that `--algo auto` chooses by the sizes.
    Auto,
    /// Chosen by the sizes, as `--algo auto` requests.
    BySize,
    Random,
    Nndsvd,
    /// NNDSVD with zeros replaced by the mean of the data.
    Nndsvda,
    /// NNDSVD with zeros replaced by small random numbers.
    Nndsvdar,
    Compressed,
    Sampled,
    File(PathBuf),
}

/// The names of starts, with their names in other programs.
const STARTS: [Meaning; 7] = [
    ("auto", &["default"]),
    ("random", &["rand", "rnd", "randn", "uniform"]),
    ("nndsvd", &["svd", "pca"]),
    ("nndsvda", &["svda"]),
    ("nndsvdar", &["svdar"]),
    ("compressed", &["compress", "compression", "low-rank", "lowrank"]),
    ("sampled", &["sample", "sampling", "subsample", "subset"]),
];

/// Parses an [`Init`].
pub fn init(text: &str) -> Parsed<Init> {
    Ok(match text {
        "auto" => Init::Auto,
        "random" => Init::Random,
        "nndsvd" => Init::Nndsvd,
        "nndsvda" => Init::Nndsvda,
        "compressed" => Init::Compressed,
        "sampled" => Init::Sampled,
        "nndsvdar" => Init::Nndsvdar,
        _ if similar(text, &STARTS).is_some() => return Err(meant(text, &STARTS)),
        _ => Init::File(
            PathBuf::parse(text)
                .map_err(|must| format!("{must}, auto, random, sampled, nndsvd, nndsvda, nndsvdar or compressed"))?,
        ),
    })
}

impl Init {
    /// The keyword; `None` for a file.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Init::Auto | Init::BySize => Some("auto"),
            Init::Random => Some("random"),
            Init::Nndsvd => Some("nndsvd"),
            Init::Nndsvda => Some("nndsvda"),
            Init::Nndsvdar => Some("nndsvdar"),
            Init::Compressed => Some("compressed"),
            Init::Sampled => Some("sampled"),
            Init::File(_) => None,
        }
    }
}

impl ParamType for Init {
    fn value(&self) -> ParamValue {
        match (self, self.name()) {
            (Init::File(path), _) => path.value(),
            (_, name) => ParamValue::Text(name.unwrap_or_default().into()),
        }
    }

    fn parse(text: &str) -> Parsed<Self> {
        init(text)
    }
}

/// Which entries of the data are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    None,
    Nan,
    ZeroUnobserved,
    /// A matrix of the same shape, whose nonzeros mark missing entries.
    Marks(String),
}

impl Missing {
    /// The input that marks missing entries, if one was named.
    pub fn marks(&self) -> Option<&str> {
        if let Missing::Marks(input) = self { Some(input) } else { None }
    }
}

/// The names of kinds of missing entries, with their names in other programs.
const KINDS: [Meaning; 3] = [
    ("none", &["no", "off", "false"]),
    ("nan", &["na", "n/a", "null", "empty"]),
    ("zero-unobserved", &["0", "zero", "zeros", "unobserved", "zeros-unobserved", "zero-missing"]),
];

/// Parses a [`Missing`].
pub fn missing(text: &str) -> Parsed<Missing> {
    Ok(match text {
        "none" => Missing::None,
        "nan" => Missing::Nan,
        "zero-unobserved" => Missing::ZeroUnobserved,
        "" => return Err("must be none, nan, zero-unobserved, or the name of a file".into()),
        _ if similar(text, &KINDS).is_some() => return Err(meant(text, &KINDS)),
        _ => Missing::Marks(text.into()),
    })
}

impl ParamType for Missing {
    fn value(&self) -> ParamValue {
        ParamValue::Text(match self {
            Missing::None => "none".into(),
            Missing::Nan => "nan".into(),
            Missing::ZeroUnobserved => "zero-unobserved".into(),
            Missing::Marks(input) => input.clone(),
        })
    }

    fn parse(text: &str) -> Parsed<Self> {
        missing(text)
    }
}

/// The source of secret random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretSource {
    OperatingSystem,
    Seed(u64),
}

impl SecretSource {
    /// The seed; `None` if secrets come from the operating system.
    pub fn seed(self) -> Option<u64> {
        if let SecretSource::Seed(seed) = self { Some(seed) } else { None }
    }
}

/// Parses a [`SecretSource`].
pub fn secret_source(text: &str) -> Parsed<SecretSource> {
    match text {
        "os" => Ok(SecretSource::OperatingSystem),
        _ => text.parse().map(SecretSource::Seed).map_err(|_| "must be a whole number, or os".into()),
    }
}

impl ParamType for SecretSource {
    fn value(&self) -> ParamValue {
        match self {
            SecretSource::OperatingSystem => ParamValue::Text("os".into()),
            SecretSource::Seed(seed) => ParamValue::Count(*seed),
        }
    }

    fn parse(text: &str) -> Parsed<Self> {
        secret_source(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counts_or_shares() {
        let parse = auto(sizes);
        let both = |size| Auto::Given(Sizes { u: size, v: size });
        assert_eq!(parse("200"), Ok(both(Size::Count(200))));
        assert_eq!(parse("50%, 7"), Ok(Auto::Given(Sizes { u: Size::Share(0.5), v: Size::Count(7) })));
        assert_eq!(parse("auto"), Ok(Auto::Auto));
        for wrong in ["", "0", "1,2,3", "101%", "-5", "x", "10%%", "0%"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Size::Share(0.001).of(5), 1);
        assert_eq!(Sizes { u: Size::Share(0.1), v: Size::Count(20) }.text().as_deref(), Some("10%,20"));
    }

    #[test]
    fn whole_numbers_have_several_forms() {
        for (text, number) in [
            ("0", 0),
            ("17", 17),
            ("1_000_000", 1_000_000),
            ("1e6", 1_000_000),
            ("1E+2", 100),
            ("2.5e5", 250_000),
            ("2.50e1", 25),
            ("3.0", 3),
            ("1_0.5e1", 105),
            ("9007199254740993", 9_007_199_254_740_993),
        ] {
            assert_eq!(whole_number(text), Ok(number), "{text}");
        }
        for wrong in
            ["", "2.5", "1e-1", "-1", "1e", "e5", ".5e1", "5.", "_1", "1_", "1__0", "1e30", "x", "1e1e1", "nan", "0x10"]
        {
            assert!(whole_number(wrong).is_err_and(|must| must.contains("1e6")), "{wrong}");
        }
    }

    #[test]
    fn a_mistyped_word_is_no_file() {
        for (typed, word) in [
            ("compress", "compressed"),
            ("compresed", "compressed"),
            ("comp", "compressed"),
            ("Compressed", "compressed"),
            ("svd", "nndsvd"),
            ("nnsvd", "nndsvd"),
            ("NNDSVDa", "nndsvda"),
            ("nndsvda1", "nndsvda"),
            ("rand", "random"),
            ("randon", "random"),
            ("uniform", "random"),
            ("default", "auto"),
            ("Auto", "auto"),
        ] {
            let must = init(typed).unwrap_err();
            assert!(
                must.starts_with(&format!("did you mean {word}?")) && must.contains(&format!("./{typed}")),
                "{must}"
            );
        }
        for name in ["factors", "./compress", "runs/rand", "random.h5", "start", "k5"] {
            assert_eq!(init(name), Ok(Init::File(name.into())));
        }
        for (typed, word) in
            [("NaN", "nan"), ("NA", "nan"), ("zero", "zero-unobserved"), ("0", "zero-unobserved"), ("No", "none")]
        {
            assert!(missing(typed).unwrap_err().starts_with(&format!("did you mean {word}?")), "{typed}");
        }
        assert_eq!(missing("mask.mtx"), Ok(Missing::Marks("mask.mtx".into())));
        assert_eq!((edits("abc", "abc"), edits("", "ab"), edits("kitten", "sitting")), (0, 2, 3));
    }

    #[test]
    fn a_grid_is_two_counts() {
        assert_eq!(grid_shape("4x2"), Ok(GridShape { rows: 4, cols: 2 }));
        for wrong in ["", "4", "0x2", "4x", "x2", "4x2x1", "-4x2", "4 x 2", "1e1x2"] {
            assert!(grid_shape(wrong).unwrap_err().contains("4x2"), "{wrong}");
        }
    }

    #[test]
    fn numbers_keep_to_their_range() {
        for wrong in ["nan", "-1", "x", "", "inf"] {
            assert!(number(0.0, f64::INFINITY)(wrong).is_err(), "{wrong}");
        }
        assert_eq!(number(0.0, 1.0)("0.5"), Ok(0.5));
        assert!(number(0.0, 1.0)("1.5").unwrap_err().contains("from 0 to 1"));
        assert!(count(1)("0").is_err());
    }
}

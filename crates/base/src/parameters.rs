//! Parameters, each declared once: type, default, check, help, and the parameters that it needs
//! ([`parameters!`](crate::parameters!)).

use std::any::Any;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::units;
use crate::words::{Word, Words, paragraph};

/// The result of parsing the value of one parameter; the error states what the value must be.
pub type Parsed<V> = std::result::Result<V, String>;

/// The value of any parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamValue {
    None,
    Flag(bool),
    Count(u64),
    Number(f64),
    /// A word, a file name, or a value in a notation of its own.
    Text(String),
}

impl From<ParamValue> for Value {
    fn from(value: ParamValue) -> Value {
        match value {
            ParamValue::None => Value::Null,
            ParamValue::Flag(flag) => flag.into(),
            ParamValue::Count(count) => count.into(),
            ParamValue::Number(number) => number.into(),
            ParamValue::Text(text) => text.into(),
        }
    }
}

/// The type of a parameter.
pub trait ParamType: Sized {
    fn value(&self) -> ParamValue;

    /// Parses the text that the user typed.
    ///
    /// # Errors
    /// What the value must be.
    fn parse(text: &str) -> Parsed<Self>;

    /// The value as the user types it; `None` if the value means that the parameter is not given.
    fn text(&self) -> Option<String> {
        match self.value() {
            ParamValue::None => None,
            ParamValue::Flag(flag) => Some(flag.to_string()),
            ParamValue::Count(count) => Some(count.to_string()),
            // With an exponent where that is shorter.
            ParamValue::Number(number) => Some(format!("{number:?}").trim_end_matches(".0").to_string()),
            ParamValue::Text(text) => Some(text),
        }
    }

    /// The words that are allowed as values; empty if other values are allowed.
    fn words() -> Vec<Word> {
        Vec::new()
    }

    /// Whether the text is a list by commas. An option that is given several times then has the values of all.
    const LIST: bool = false;
}

impl<W: Words> ParamType for W {
    fn value(&self) -> ParamValue {
        ParamValue::Text(self.name().to_string())
    }

    fn parse(text: &str) -> Parsed<Self> {
        <W as Words>::parse(text).ok_or_else(|| {
            let names: Vec<&str> = W::ALL.iter().map(|one| one.name()).collect();
            format!("must be one of {}", names.join(", "))
        })
    }

    fn words() -> Vec<Word> {
        W::list()
    }
}

impl ParamType for bool {
    fn value(&self) -> ParamValue {
        ParamValue::Flag(*self)
    }

    fn parse(text: &str) -> Parsed<Self> {
        text.parse().map_err(|_| "must be true or false".into())
    }
}

impl ParamType for usize {
    fn value(&self) -> ParamValue {
        ParamValue::Count(*self as u64)
    }

    fn parse(text: &str) -> Parsed<Self> {
        units::whole_number(text).ok_or_else(|| "must be a whole number as in 1000000, 1_000_000 or 1e6".into())
    }
}

impl ParamType for f64 {
    fn value(&self) -> ParamValue {
        ParamValue::Number(*self)
    }

    fn parse(text: &str) -> Parsed<Self> {
        text.parse().map_err(|_| "must be a number, as in 0.001 or 1e-3".into())
    }
}

impl ParamType for PathBuf {
    fn value(&self) -> ParamValue {
        ParamValue::Text(self.to_string_lossy().into_owned())
    }

    fn parse(text: &str) -> Parsed<Self> {
        if text.is_empty() { Err("must be the name of a file".into()) } else { Ok(text.into()) }
    }
}

impl<V: ParamType> ParamType for Option<V> {
    fn value(&self) -> ParamValue {
        self.as_ref().map_or(ParamValue::None, V::value)
    }

    fn parse(text: &str) -> Parsed<Self> {
        V::parse(text).map(Some)
    }

    fn words() -> Vec<Word> {
        V::words()
    }
}

/// A parameter with its value.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// The name of its field.
    pub name: &'static str,
    /// The placeholder of its value in help texts; `None` for a flag.
    pub value_name: Option<&'static str>,
    /// The doc comment.
    pub doc: &'static str,
    pub value: ParamValue,
    /// The value as the user types it; `None` as in [`ParamType::text`].
    pub text: Option<String>,
    /// See [`ParamType::words`].
    pub words: fn() -> Vec<Word>,
    /// Whether the help text says what the words mean.
    pub words_in_help: bool,
    /// See [`ParamType::LIST`].
    pub list: bool,
    /// Whether it can change the factors; a resumed run must then have the same value.
    pub affects_result: bool,
}

impl Parameter {
    pub fn new<V: ParamType>(
        name: &'static str,
        doc: &'static str,
        value_name: Option<&'static str>,
        value: &V,
    ) -> Self {
        Parameter {
            name,
            value_name,
            doc,
            value: value.value(),
            text: value.text(),
            words: V::words,
            words_in_help: false,
            list: V::LIST,
            affects_result: true,
        }
    }

    /// Its name on the command line, without dashes in front.
    pub fn option(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The help text, as one paragraph.
    pub fn help(&self) -> String {
        paragraph(self.doc)
    }
}

/// A given parameter that would have no effect, with advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ignored {
    pub name: &'static str,
    /// The purpose of the parameter, and the remedy.
    pub advice: &'static str,
}

/// A struct of parameters; [`parameters!`](crate::parameters!) declares one.
pub trait Parameters {
    /// Visits each parameter, those of groups in their place.
    fn visit(&self, visit: &mut dyn FnMut(Parameter));

    /// Sets a parameter from text; `None` if there is no parameter of this name.
    fn set(&mut self, name: &str, text: &str) -> Option<Parsed<()>>;

    /// Visits each group of parameters, at any depth.
    fn each_group<'a>(&'a self, visit: &mut dyn FnMut(&'a dyn Any));

    /// The first of the `given` parameters that would be ignored.
    fn ignored(&self, given: &dyn Fn(&str) -> bool) -> Option<Ignored>;
}

/// All parameters with their values.
pub fn all(parameters: &(impl Parameters + ?Sized)) -> Vec<Parameter> {
    let mut all = Vec::new();
    parameters.visit(&mut |parameter| all.push(parameter));
    all
}

/// The group of this type, if it is among the parameters.
pub fn group<G: 'static>(parameters: &(impl Parameters + ?Sized)) -> Option<&G> {
    let mut found = None;
    parameters.each_group(&mut |group| found = found.or(group.downcast_ref()));
    found
}

/// Names and values, for traces and files.
pub fn to_json(parameters: &(impl Parameters + ?Sized)) -> Map<String, Value> {
    all(parameters).into_iter().map(|parameter| (parameter.name.to_string(), parameter.value.into())).collect()
}

/// Declares a struct of parameters: its fields with doc comments as help texts, `Default` and
/// [`Parameters`].
///
/// A line `pub name: Type = DEFAULT, "VALUE NAME", CHECK;` is a parameter; without CHECK, [`ParamType::parse`] parses it.
/// A line `pub name: bool;` is a flag. A line `group name: Type;` is a group of parameters that other structs share; its
/// type may be a type parameter of the struct. A parameter may have these attributes, in this order:
/// - `#[needs(other | another: "advice")]`: it is ignored unless one of these parameters of the struct is given too;
/// - `#[without(other: "advice")]`: it is ignored if the other one is given;
/// - `#[unless(|p| CONDITION, "advice")]`: it is ignored if the condition holds for the struct p;
/// - `#[affects_result = false]`: it does not change the factors;
/// - `#[words_in_help = true]`: its help text explains its words.
#[macro_export]
macro_rules! parameters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident $(<$($Param:ident : $Bound:path),+>)? {
            $(
                $(#[doc = $help:literal])*
                $(#[needs($($needed:ident)|+ : $needs:literal)])*
                $(#[without($other:ident : $without:literal)])*
                $(#[unless(|$this:ident| $vain:expr, $unless:literal)])*
                $(#[affects_result = $affects:literal])?
                $(#[words_in_help = $listed:literal])?
                $kind:ident $field:ident : $Type:ty $(= $default:expr, $value:literal $(, $check:expr)?)? ;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $Name $(<$($Param: $Bound),+>)? {
            $( $(#[doc = $help])* pub $field: $Type, )*
        }

        impl $(<$($Param: $Bound),+>)? Default for $Name $(<$($Param),+>)? {
            fn default() -> Self {
                $Name { $( $field: $crate::parameters!(@default $($default)?), )* }
            }
        }

        impl $(<$($Param: $Bound),+>)? $crate::parameters::Parameters for $Name $(<$($Param),+>)? {
            fn visit(&self, visit: &mut dyn FnMut($crate::parameters::Parameter)) {
                let _ = &visit;
                $( $crate::parameters!(
                    @visit $kind self.$field, visit, $field, [$($help)*] [$($value)?] [$($affects)?] [$($listed)?]
                ); )*
            }

            fn set(&mut self, name: &str, text: &str) -> Option<$crate::parameters::Parsed<()>> {
                let _ = (name, text);
                $( $crate::parameters!(@set $kind self.$field, name, text, $field, [$($($check)?)?]); )*
                None
            }

            fn each_group<'a>(&'a self, visit: &mut dyn FnMut(&'a dyn std::any::Any)) {
                let _ = &visit;
                $( $crate::parameters!(@groups $kind self.$field, visit); )*
            }

            fn ignored(&self, given: &dyn Fn(&str) -> bool) -> Option<$crate::parameters::Ignored> {
                let _ = given;
                $( $crate::parameters!(@ignored $kind self.$field, given); )*
                $( if given(stringify!($field)) {
                    let ignored = |advice| Some($crate::parameters::Ignored { name: stringify!($field), advice });
                    $(
                        // Compiles only if these are fields.
                        $( let _ = &self.$needed; )+
                        if !($(given(stringify!($needed)))||+) {
                            return ignored($needs);
                        }
                    )*
                    $(
                        let _ = &self.$other;
                        if given(stringify!($other)) {
                            return ignored($without);
                        }
                    )*
                    $(
                        let is_vain = |$this: &Self| $vain;
                        if is_vain(self) {
                            return ignored($unless);
                        }
                    )*
                    let _ = ignored;
                } )*
                None
            }
        }
    };

    (@default) => { Default::default() };
    (@default $default:expr) => { $default };

    (@visit pub $this:expr, $visit:ident, $field:ident,
        [$($help:literal)*] [$($value:literal)?] [$($affects:literal)?] [$($listed:literal)?]) => {
        $visit($crate::parameters::Parameter {
            $( affects_result: $affects, )?
            $( words_in_help: $listed, )?
            ..$crate::parameters::Parameter::new(
                stringify!($field),
                concat!($($help, "\n"),*),
                None $(.or(Some($value)))?,
                &$this,
            )
        });
    };
    (@visit group $this:expr, $visit:ident, $($rest:tt)*) => { $crate::parameters::Parameters::visit(&$this, $visit); };

    (@set pub $this:expr, $name:ident, $text:ident, $field:ident, [$($check:expr)?]) => {
        if $name == stringify!($field) {
            return Some($crate::parameters!(@parse $text $($check)?).map(|value| $this = value));
        }
    };
    (@set group $this:expr, $name:ident, $text:ident, $($rest:tt)*) => {
        if let Some(done) = $crate::parameters::Parameters::set(&mut $this, $name, $text) {
            return Some(done);
        }
    };

    (@parse $text:ident) => { $crate::parameters::ParamType::parse($text) };
    (@parse $text:ident $check:expr) => { ($check)($text) };

    (@groups pub $this:expr, $visit:ident) => {};
    (@groups group $this:expr, $visit:ident) => {
        $visit(&$this);
        $crate::parameters::Parameters::each_group(&$this, $visit);
    };

    (@ignored pub $this:expr, $given:ident) => {};
    (@ignored group $this:expr, $given:ident) => {
        if let Some(ignored) = $crate::parameters::Parameters::ignored(&$this, $given) {
            return Some(ignored);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    parameters! {
        /// A group.
        struct Noise {
            /// Standard deviation
            #[affects_result = false]
            pub deviation: f64 = 1e-5, "X";
            /// The seed
            #[needs(deviation: "add --deviation")]
            pub seed: Option<usize> = None, "N";
        }
    }

    parameters! {
        /// All.
        struct Shape {
            /// Rows,
            /// at least one.
            pub rows: usize = 3, "N", |text: &str| usize::parse(text).ok().filter(|n| *n > 0).ok_or("no".to_string());
            group noise: Noise;
            /// Whether it is square
            #[unless(|p| p.rows == 1, "one row is always square")]
            pub square: bool;
        }
    }

    #[test]
    fn each_parameter_is_declared_once() {
        let mut shape = Shape { rows: 4, square: true, noise: Noise::default() };
        let all = all(&shape);
        let names: Vec<&str> = all.iter().map(|parameter| parameter.name).collect();
        assert_eq!(names, ["rows", "deviation", "seed", "square"]);
        assert_eq!((all[0].help().as_str(), all[0].value_name), ("Rows, at least one", Some("N")));
        assert_eq!((all[1].text.as_deref(), all[2].text.as_deref(), all[3].value_name), (Some("1e-5"), None, None));
        assert!(!all[1].affects_result && all[0].affects_result);
        assert_eq!(
            Value::from(to_json(&shape)).to_string(),
            r#"{"rows":4,"deviation":0.00001,"seed":null,"square":true}"#
        );

        assert_eq!(shape.set("seed", "7"), Some(Ok(())));
        assert_eq!(shape.set("rows", "0"), Some(Err("no".into())));
        assert_eq!(shape.set("columns", "0"), None);
        assert_eq!(group::<Noise>(&shape).and_then(|noise| noise.seed), Some(7));
        assert!(group::<Shape>(&shape).is_none());
    }

    #[test]
    fn a_parameter_without_effect_is_found() {
        let shape = Shape::default();
        let ignored =
            |shape: &Shape, given: &[&str]| shape.ignored(&|name| given.contains(&name)).map(|ignored| ignored.name);
        assert_eq!(ignored(&shape, &["seed"]), Some("seed"));
        assert_eq!(ignored(&shape, &["seed", "deviation", "square"]), None);
        assert_eq!(ignored(&Shape { rows: 1, ..shape }, &["square"]), Some("square"));
    }
}

//! Parameters that are declared with `parameters!` and `words!`, as arguments of the command line.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use fednmf_base::error::Result;
use fednmf_base::parameters;
use fednmf_base::parameters::{Parameter, Parameters, Parsed};
use fednmf_base::words::{Word, Words};
use fednmf_files::TableOptions;
use fednmf_methods::distributed::divergence::volume::VolumeParams;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::shared::disclosure::DisclosureParams;
use fednmf_methods::shared::regularization::RegularizationParams;

/// Checks the text of the parameter with this name.
type Check = Arc<dyn Fn(&str, &str) -> Parsed<()> + Send + Sync>;

/// The arguments of a method.
pub fn args(method: &'static dyn ConfiguredMethod) -> Vec<Arg> {
    let heading = format!("Options of {}", method.description().name);
    let check: Check = Arc::new(|name, text| method.check_value(name, text));
    let own = |parameter| {
        let arg = arg(&parameter, &check).help_heading(heading.clone());
        // Our own parsers take negative numbers; they report which values are allowed.
        if parameter.value_name.is_some() { arg.allow_hyphen_values(true) } else { arg }
    };
    method.parameters().into_iter().map(own).collect()
}

/// The method with the parameters that were typed, its defaults for the rest.
///
/// # Errors
/// Naming the option that is wrong.
pub fn configure(method: &dyn ConfiguredMethod, matches: &ArgMatches) -> Result<Arc<dyn ConfiguredMethod>> {
    let given = given(&method.parameters(), matches);
    let given: Vec<(&str, &str)> = given.iter().map(|(name, text)| (*name, &**text)).collect();
    method.configure(&given)
}

/// The arguments of a struct of parameters. What was typed is kept in `.0`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Group<P>(pub P);

/// The heading of a [`Group`] in help texts.
pub trait Headed {
    const HEADING: Option<&'static str>;
}

impl Headed for TableOptions {
    const HEADING: Option<&'static str> = Some("Tables in text");
}

impl Headed for DisclosureParams {
    const HEADING: Option<&'static str> = Some("Parties");
}

impl Headed for VolumeParams {
    const HEADING: Option<&'static str> = None;
}

impl Headed for RegularizationParams {
    const HEADING: Option<&'static str> = None;
}

impl<P: Parameters + Headed + Default> clap::Args for Group<P> {
    fn augment_args(command: Command) -> Command {
        let check: Check = Arc::new(|name, text| P::default().set(name, text).unwrap_or(Ok(())));
        let arg = |parameter: &Parameter| match P::HEADING {
            Some(heading) => arg(parameter, &check).help_heading(heading),
            None => arg(parameter, &check),
        };
        command.args(parameters::all(&P::default()).iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<P: Parameters + Default> clap::FromArgMatches for Group<P> {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut group = Group(P::default());
        group.update_from_arg_matches(matches)?;
        Ok(group)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        for (name, text) in given(&parameters::all(&self.0), matches) {
            let set = self.0.set(name, &text).unwrap_or(Ok(()));
            set.map_err(|must| clap::Error::raw(ErrorKind::ValueValidation, must))?;
        }
        Ok(())
    }
}

/// Names and texts of the parameters that were typed; of a list that was typed several times all parts.
fn given(parameters: &[Parameter], matches: &ArgMatches) -> Vec<(&'static str, String)> {
    let typed = |parameter: &&Parameter| matches.value_source(parameter.name) == Some(ValueSource::CommandLine);
    let text = |parameter: &Parameter| match parameter.value_name {
        Some(_) => {
            let texts: Vec<&str> = matches.get_many::<String>(parameter.name)?.map(String::as_str).collect();
            Some(texts.join(","))
        }
        None => Some("true".to_string()),
    };
    parameters.iter().filter(typed).filter_map(|parameter| Some((parameter.name, text(parameter)?))).collect()
}

fn arg(parameter: &Parameter, check: &Check) -> Arg {
    let arg = Arg::new(parameter.name).long(parameter.option()).help(parameter.help());
    let Some(value_name) = parameter.value_name else { return arg.action(ArgAction::SetTrue) };
    let parser = ValueParser { name: parameter.name, words: (parameter.words)(), check: check.clone() };
    let arg = arg.value_name(value_name).value_parser(parser).hide_possible_values(parameter.words_in_help);
    let arg = if parameter.list { arg.action(ArgAction::Append) } else { arg };
    match &parameter.text {
        Some(default) => arg.default_value(default.clone()),
        None => arg,
    }
}

/// Lets the parameter check its text.
#[derive(Clone)]
struct ValueParser {
    name: &'static str,
    words: Vec<Word>,
    check: Check,
}

impl TypedValueParser for ValueParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> std::result::Result<String, clap::Error> {
        // clap refuses a word that is not in the list, and shows the list.
        let refused = value.to_str().and_then(|text| (self.check)(self.name, text).err());
        if !self.words.is_empty() && refused.is_some_and(|must| must.starts_with("must be one of ")) {
            let words = self.words.iter().cloned().map(possible);
            return PossibleValuesParser::new(words).parse_ref(command, arg, value);
        }
        let ValueParser { name, check, .. } = self.clone();
        let checked = move |text: String| check(name, &text).map(|()| text);
        StringValueParser::new().try_map(checked).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        (!self.words.is_empty()).then(|| Box::new(self.words.iter().cloned().map(possible)) as _)
    }
}

fn possible(word: Word) -> PossibleValue {
    let value = PossibleValue::new(word.name);
    match word.help {
        Some(help) => value.help(help),
        None => value,
    }
}

/// A parser for one of the words of W.
pub const fn words<W: Words>() -> WordParser<W> {
    WordParser(PhantomData)
}

/// See [`words`].
#[derive(Debug, Clone, Copy)]
pub struct WordParser<W>(PhantomData<W>);

impl<W: Words> WordParser<W> {
    fn all() -> impl Iterator<Item = PossibleValue> {
        W::ALL.iter().map(|one| possible(one.word()).aliases(one.aliases().iter().copied()))
    }
}

impl<W: Words> TypedValueParser for WordParser<W> {
    type Value = W;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> std::result::Result<W, clap::Error> {
        let text = PossibleValuesParser::new(Self::all()).parse_ref(command, arg, value)?;
        Ok(W::parse(&text).expect("one of the words"))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Self::all()))
    }
}

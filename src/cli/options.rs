//! The options of all methods together: for the man page, completions, the reference, and to say which methods take an
//! option that the chosen one does not.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction};

use fednmf_base::parameters::Parameter;
use fednmf_methods::registry;

/// An option of one or more methods.
pub struct MethodOption {
    pub name: String,
    /// As the first of the methods declares it.
    first: Parameter,
    /// The methods that take it, with their defaults.
    pub defaults: Vec<(&'static str, String)>,
}

impl MethodOption {
    /// The names of the methods that take it.
    pub fn takers(&self) -> impl Iterator<Item = &'static str> {
        self.defaults.iter().map(|(method, _)| *method)
    }

    pub fn value_name(&self) -> Option<&'static str> {
        self.first.value_name
    }

    pub fn help(&self) -> String {
        self.first.help()
    }

    /// The values that some method takes, where they are words.
    pub fn words(&self) -> Vec<&'static str> {
        let mut words = Vec::new();
        for parameter in registry::ALL.iter().flat_map(|entry| entry.parameters()) {
            if parameter.name == self.first.name {
                let new = (parameter.words)().into_iter().map(|word| word.name);
                new.for_each(|word| {
                    if !words.contains(&word) {
                        words.push(word)
                    }
                });
            }
        }
        words
    }

    /// An argument that accepts what any of the methods accepts.
    pub fn arg(&self) -> Arg {
        let takers: Vec<&str> = self.takers().collect();
        let help = format!("{} (for {})", self.help(), takers.join(", "));
        let arg =
            Arg::new(self.name.clone()).long(self.name.clone()).help(help).help_heading("Options of some methods");
        match self.value_name() {
            Some(value) => {
                let words = self.words();
                let arg = arg.value_name(value);
                if words.is_empty() { arg } else { arg.value_parser(PossibleValuesParser::new(words)) }
            }
            None => arg.action(ArgAction::SetTrue),
        }
    }
}

/// Every option of every method, in the order of the registry.
pub fn all() -> Vec<MethodOption> {
    let mut all: Vec<MethodOption> = Vec::new();
    for entry in registry::ALL.iter() {
        let method = entry.description().name;
        for parameter in entry.parameters() {
            let name = parameter.option();
            let default = parameter.text.clone().unwrap_or_default();
            match all.iter_mut().find(|option| option.name == name) {
                Some(option) => option.defaults.push((method, default)),
                None => all.push(MethodOption { name, first: parameter, defaults: vec![(method, default)] }),
            }
        }
    }
    // `auto` has the options of the methods among which it chooses, and few of its own.
    for parameter in registry::AUTO.parameters() {
        let (name, default) = (parameter.option(), parameter.text.clone().unwrap_or_default());
        if all.iter().all(|option| option.name != name) {
            let defaults = vec![(registry::AUTO.description().name, default)];
            all.push(MethodOption { name, first: parameter, defaults });
        }
    }
    all
}

/// The option of that name.
pub fn find(name: &str) -> Option<MethodOption> {
    all().into_iter().find(|option| option.name == name)
}

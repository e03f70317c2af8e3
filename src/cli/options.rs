//! The options of all methods together: for the man page, completions, the reference, and to say which methods take an
//! option that the chosen one does not.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction};

use fednmf_methods::registry;

/// An option of one or more methods.
pub struct MethodOption {
    pub name: String,
    /// As the first of the methods declares it.
    first: Arg,
    /// The methods that take it, with their defaults.
    pub defaults: Vec<(&'static str, String)>,
}

impl MethodOption {
    /// The names of the methods that take it.
    pub fn takers(&self) -> impl Iterator<Item = &'static str> {
        self.defaults.iter().map(|(method, _)| *method)
    }

    pub fn value_name(&self) -> Option<&str> {
        let takes = self.first.get_action().takes_values();
        self.first.get_value_names().filter(|_| takes).and_then(|names| names.first()).map(|name| name.as_str())
    }

    pub fn help(&self) -> String {
        self.first.get_help().map(ToString::to_string).unwrap_or_default()
    }

    /// The values that some method takes, where they are words.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for entry in registry::ALL.iter().filter(|entry| entry.takes(&self.name)) {
            for arg in entry.options().iter().filter(|arg| arg.get_long() == Some(&self.name)) {
                for value in arg.get_possible_values() {
                    if !words.iter().any(|word| word == value.get_name()) && arg.get_action().takes_values() {
                        words.push(value.get_name().to_string());
                    }
                }
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
                let arg = arg.value_name(value.to_string());
                if words.is_empty() { arg } else { arg.value_parser(PossibleValuesParser::new(words)) }
            }
            None => arg.action(ArgAction::SetTrue),
        }
    }
}

/// Every option of every method, in the order of the registry.
pub fn all() -> Vec<MethodOption> {
    let mut all: Vec<MethodOption> = Vec::new();
    for entry in registry::ALL {
        let method = entry.description().name;
        for arg in entry.options() {
            let name = arg.get_long().expect("options are long").to_string();
            let default = match arg.get_action().takes_values() {
                true => arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect::<Vec<_>>().join(","),
                false => "false".to_string(),
            };
            match all.iter_mut().find(|option| option.name == name) {
                Some(option) => option.defaults.push((method, default)),
                None => all.push(MethodOption { name, first: arg, defaults: vec![(method, default)] }),
            }
        }
    }
    all
}

/// The option of that name.
pub fn find(name: &str) -> Option<MethodOption> {
    all().into_iter().find(|option| option.name == name)
}

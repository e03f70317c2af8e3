//! The options of all methods together: for the man page, completions, the reference, and to say which methods take an
//! option that the chosen one does not.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction};

use fednmf_base::parameters::Parameter;
use fednmf_base::words::Word;
use fednmf_methods::registry;

/// An option of one or more methods.
pub struct MethodOption {
    pub name: String,
    /// What it means, in the order of the registry.
    pub meanings: Vec<Meaning>,
    /// The methods that take it, with their defaults.
    pub defaults: Vec<(&'static str, String)>,
}

/// What an option means for those methods that describe it alike and take the same words.
pub struct Meaning {
    /// As the first of them declares it.
    parameter: Parameter,
    pub methods: Vec<&'static str>,
}

impl Meaning {
    pub fn help(&self) -> String {
        self.parameter.help()
    }

    /// The values that are allowed, if they are words, with their meanings.
    pub fn values(&self) -> Vec<Word> {
        (self.parameter.words)()
    }

    fn words(&self) -> Vec<&'static str> {
        words(&self.parameter)
    }
}

fn words(parameter: &Parameter) -> Vec<&'static str> {
    (parameter.words)().into_iter().map(|word| word.name).collect()
}

impl MethodOption {
    /// An option that no method takes yet.
    fn new(name: String) -> MethodOption {
        MethodOption { name, meanings: Vec::new(), defaults: Vec::new() }
    }

    /// Adds a method that takes it.
    fn add(&mut self, method: &'static str, parameter: Parameter) {
        self.defaults.push((method, parameter.text.clone().unwrap_or_default()));
        let is_same = |other: &&mut Meaning| other.help() == parameter.help() && other.words() == words(&parameter);
        match self.meanings.iter_mut().find(is_same) {
            Some(meaning) => meaning.methods.push(method),
            None => self.meanings.push(Meaning { parameter, methods: vec![method] }),
        }
    }

    /// The names of the methods that take it.
    pub fn takers(&self) -> impl Iterator<Item = &'static str> {
        self.defaults.iter().map(|(method, _)| *method)
    }

    pub fn value_name(&self) -> Option<&'static str> {
        self.meanings.iter().find_map(|meaning| meaning.parameter.value_name)
    }

    /// The values that some method takes, where they are words.
    fn words(&self) -> Vec<&'static str> {
        let mut words = Vec::new();
        for word in self.meanings.iter().flat_map(Meaning::words) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words
    }

    /// An argument that accepts what any of the methods accepts.
    pub fn arg(&self) -> Arg {
        let meaning = |one: &Meaning| format!("{} (for {})", one.help(), one.methods.join(", "));
        let help = self.meanings.iter().map(meaning).collect::<Vec<_>>().join(". ");
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
            let at = all.iter().position(|option| option.name == name).unwrap_or_else(|| {
                all.push(MethodOption::new(name));
                all.len() - 1
            });
            all[at].add(method, parameter);
        }
    }
    // `auto` has the options of the methods among which it chooses, and few of its own.
    for parameter in registry::AUTO.parameters() {
        let name = parameter.option();
        if all.iter().all(|option| option.name != name) {
            let mut option = MethodOption::new(name);
            option.add(registry::AUTO.description().name, parameter);
            all.push(option);
        }
    }
    all
}

/// The option of that name.
pub fn find(name: &str) -> Option<MethodOption> {
    all().into_iter().find(|option| option.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_describe_an_option_differently_have_meanings_of_their_own() {
        let tau = find("tau").unwrap();
        let methods: Vec<_> = tau.meanings.iter().map(|meaning| meaning.methods.as_slice()).collect();
        assert_eq!(methods, [["asso"], ["mebf"]]);
        let help = tau.arg().get_help().unwrap().to_string();
        assert!(tau.meanings.iter().all(|meaning| help.contains(&meaning.help())), "{help}");
        let solver = find("solver").unwrap();
        let words: Vec<_> = solver.meanings.iter().map(Meaning::words).collect();
        assert_eq!(words, [["pcd", "pgd"], ["bpp", "hals"]]);
        assert_eq!(solver.words(), ["pcd", "pgd", "bpp", "hals"]);
        assert_eq!(find("seed").map(|option| option.name), None);
        assert_eq!(find("secure-sum").map(|option| option.meanings.len()), Some(1));
    }
}

//! The modules of `src` import one another in one direction: there are no cycles among the members of a folder. Methods
//! whose blocks belong to parties communicate through releases alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Module = Vec<String>;

/// A source file: its module (that of `a/mod.rs` is `a::mod`), its code without comments and tests.
struct Source {
    module: Module,
    code: String,
}

fn read_sources(folder: &Path, module: &Module, sources: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = entry.file_stem().unwrap().to_str().unwrap().to_string();
        let module = [&module[..], std::slice::from_ref(&name)].concat();
        if entry.is_dir() {
            read_sources(&entry, &module, sources);
        } else if name != "main" && !name.ends_with("tests") {
            let text = std::fs::read_to_string(&entry).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
            let code = code.lines().map(|l| l.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
            sources.push(Source { module, code });
        }
    }
}

/// All paths of a `use` tree or expression at the front of `text`, appended to `prefix`; returns the rest of the text.
fn paths<'a>(text: &'a str, prefix: &[&'a str], found: &mut Vec<Vec<&'a str>>) -> &'a str {
    if let Some(mut text) = text.strip_prefix('{') {
        while !text.is_empty() && !text.starts_with('}') {
            text = paths(text.trim_start(), prefix, found);
            text = text.find([',', '}']).map_or("", |end| &text[end..]);
            text = text.strip_prefix(',').unwrap_or(text).trim_start();
        }
        return text.strip_prefix('}').unwrap_or(text);
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let path = if name.is_empty() || name == "self" { prefix.to_vec() } else { [prefix, &[name]].concat() };
    match rest.strip_prefix("::") {
        Some(rest) => paths(rest, &path, found),
        None => {
            found.push(path);
            rest
        }
    }
}

struct Graph {
    sources: Vec<Source>,
    /// Every module with the modules in it; a file that is not a `mod.rs` has none.
    children: BTreeMap<Module, BTreeSet<String>>,
    /// Names that a folder re-exports from its members, and what they stand for.
    exports: BTreeMap<(Module, String), Module>,
}

impl Graph {
    fn read() -> Graph {
        let mut sources = Vec::new();
        read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &Vec::new(), &mut sources);
        let mut children: BTreeMap<Module, BTreeSet<String>> = BTreeMap::new();
        for Source { module, .. } in &sources {
            for depth in 0..module.len() {
                children.entry(module[..depth].to_vec()).or_default().insert(module[depth].clone());
            }
        }
        let mut graph = Graph { sources, children, exports: BTreeMap::new() };
        for source in &graph.sources {
            let (folder, _) = graph.home(source);
            for statement in source.code.split("pub use ").skip(1) {
                let (mut found, statement) = (Vec::new(), statement.split(';').next().unwrap());
                paths(statement, &[], &mut found);
                for path in found {
                    let target = graph.absolute(source, &path);
                    if let (Some(target), Some(name)) = (target, path.last()) {
                        graph.exports.insert((folder.clone(), (*name).to_string()), target);
                    }
                }
            }
        }
        graph
    }

    /// The module to which the items of a file belong, and whether it is a folder.
    fn home(&self, source: &Source) -> (Module, bool) {
        match source.module.split_last() {
            Some((last, folder)) if last == "mod" || last == "lib" && folder.is_empty() => (folder.to_vec(), true),
            _ => (source.module.clone(), false),
        }
    }

    /// A path that begins with `crate`, `super`, `self` or a member of the file's own folder, as seen from the root.
    fn absolute(&self, source: &Source, path: &[&str]) -> Option<Module> {
        let (mut base, folder) = self.home(source);
        let mut rest = path;
        match *path.first()? {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "super" => {
                while rest.first() == Some(&"super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            member if folder && self.children[&base].contains(member) => {}
            _ => return None,
        }
        base.extend(rest.iter().map(ToString::to_string));
        Some(base)
    }

    /// The file that defines what an absolute path names.
    fn file(&self, path: &[String]) -> Module {
        for depth in 0..=path.len() {
            let (module, rest) = path.split_at(depth);
            let Some(children) = self.children.get(module) else { return module.to_vec() };
            let Some(next) = rest.first().filter(|name| !children.contains(*name)) else { continue };
            if let Some(target) = self.exports.get(&(module.to_vec(), next.clone())) {
                return self.file(&[target, &rest[1..]].concat());
            }
            return [module, &[if depth == 0 { "lib" } else { "mod" }.to_string()]].concat();
        }
        [path, &["mod".to_string()]].concat()
    }

    /// The files that a source imports; a folder's re-export of its own members is no import.
    fn imports(&self, source: &Source) -> BTreeSet<Module> {
        let (folder, _) = self.home(source);
        let mut found = Vec::new();
        let mut names: Vec<&str> = vec!["crate", "super"];
        let members = self.children.get(&folder).into_iter().flatten();
        names.extend(members.map(String::as_str).filter(|name| *name != "mod"));
        for statement in source.code.split_inclusive(';') {
            let mut paths_here = Vec::new();
            for name in &names {
                for (at, _) in statement.match_indices(&format!("{name}::")) {
                    let before = statement[..at].chars().next_back();
                    if !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '$')) {
                        paths(&statement[at..], &[], &mut paths_here);
                    }
                }
            }
            let reexport = statement.contains("pub use ");
            let targets = paths_here.iter().filter_map(|path| self.absolute(source, path)).map(|path| self.file(&path));
            found.extend(targets.filter(|file| !(reexport && file.starts_with(&folder))));
        }
        found.into_iter().filter(|file| *file != source.module).collect()
    }
}

/// A cycle among the nodes, if there is one.
fn cycle(arrows: &BTreeMap<String, BTreeMap<String, String>>) -> Option<Vec<String>> {
    fn visit(
        node: &String,
        arrows: &BTreeMap<String, BTreeMap<String, String>>,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|n| n == node) {
            return Some(path[start..].to_vec());
        }
        if !done.insert(node.clone()) {
            return None;
        }
        path.push(node.clone());
        let found = arrows.get(node).into_iter().flatten().find_map(|(next, _)| visit(next, arrows, path, done));
        path.pop();
        found
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|node| visit(node, arrows, &mut Vec::new(), &mut done))
}

#[test]
fn folders_have_no_import_cycles() {
    let graph = Graph::read();
    // Folder, importing member, imported member, example.
    let mut folders: BTreeMap<Module, BTreeMap<String, BTreeMap<String, String>>> = BTreeMap::new();
    for source in &graph.sources {
        for target in graph.imports(source) {
            let depth = source.module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (source.module.get(depth), target.get(depth)) else { continue };
            let example = format!("{} imports {}", source.module.join("::"), target.join("::"));
            let arrows = folders.entry(target[..depth].to_vec()).or_default();
            arrows.entry(from.clone()).or_default().entry(to.clone()).or_insert(example);
        }
    }
    let data = &folders[&["data".to_string()][..]];
    assert!(data["distribute"].contains_key("formats"), "imports are not recognised");
    let mut cycles = Vec::new();
    for (folder, arrows) in &folders {
        let path = folder.join("/");
        if let Some(cycle) = cycle(arrows) {
            let next = cycle.iter().cycle().skip(1);
            let steps: Vec<&str> = cycle.iter().zip(next).map(|(a, b)| arrows[a][b].as_str()).collect();
            cycles.push(format!("src/{path}: {} in a circle\n  {}", cycle.join(" -> "), steps.join("\n  ")));
        }
    }
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

/// The folders of the methods whose blocks belong to parties.
const PARTIES: [&str; 4] = ["columns", "rows", "boolean", "network"];

#[test]
fn methods_of_parties_have_no_raw_messages() {
    let graph = Graph::read();
    let of_parties = |source: &&Source| {
        source.module.first().is_some_and(|m| m == "algorithms")
            && source.module.get(1).is_some_and(|m| PARTIES.contains(&m.as_str()))
    };
    let sources: Vec<&Source> = graph.sources.iter().filter(of_parties).collect();
    assert!(sources.len() > 30, "the folders are elsewhere: {}", sources.len());
    for source in sources {
        let words: Vec<&str> = source.code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        // A server's ranks exchange what the parties have handed over.
        let server = source.module.contains(&"barycenter".to_string());
        assert!(server || !words.contains(&"Communicator"), "{:?}: sends raw messages", source.module);
        assert!(!source.code.contains(".ranks()"), "{:?}: sends raw messages", source.module);
    }
}

#[test]
fn warnings_are_printed_in_one_place() {
    let graph = Graph::read();
    let prints = |source: &&Source| source.code.contains("fednmf: warning");
    let found: Vec<&Module> = graph.sources.iter().filter(prints).map(|source| &source.module).collect();
    assert_eq!(found, [&["warning".to_string()]], "use warning::warn or Progress::warn");
}

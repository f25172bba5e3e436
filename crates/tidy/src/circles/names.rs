//! From a name to the file that declares it, through imports and re-exports.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    components::Arrows,
    mentions::{Method, Path},
    modules::Modules,
};

/// More imports than this, one through another, name each other.
const DEPTH: usize = 16;

/// What a path leads to.
enum Found {
    Module(usize),
    /// Something declared in this module, and the last name behind it: a variant, an associated function.
    Item(usize, Option<String>),
}

/// Where each method is defined of which the crate has one, with its number of arguments.
type Methods<'a> = BTreeMap<&'a str, (usize, usize)>;

/// Which file uses which. `foreign`: methods that are not only of this crate.
pub(super) fn arrows(modules: &Modules, foreign: &BTreeSet<String>) -> Arrows {
    let mut arrows = Arrows::new();
    let methods = only_methods(modules);
    for (number, module) in modules.all.iter().enumerate() {
        let mut add = |to: usize, line: usize, what: String| {
            let to = &modules.all[to].file;
            if *to != module.file {
                arrows.entry((module.file.clone(), to.clone())).or_insert((line, what));
            }
        };
        let mentions = &module.mentions;
        for (path, line) in mentions.uses.iter().chain(&mentions.paths) {
            let Some(Found::Item(to, inside)) = modules.resolve(number, path, DEPTH) else { continue };
            add(to, *line, path.join("::"));
            if let Some((to, _)) = inside.and_then(|name| methods.get(name.as_str())) {
                add(*to, *line, path.join("::"));
            }
        }
        for call in &mentions.calls {
            if let Some((to, arguments)) = methods.get(call.name.as_str())
                && *arguments == call.arguments
                && !foreign.contains(&call.name)
            {
                add(*to, call.line, format!(".{}()", call.name));
            }
        }
    }
    arrows
}

fn only_methods(modules: &Modules) -> Methods<'_> {
    let mut found: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    for (number, method) in modules.methods() {
        found.entry(&method.name).or_default().push((number, method.arguments));
    }
    let only = |places: Vec<_>| <[_; 1]>::try_from(places).ok().map(|[place]| place);
    found.into_iter().filter_map(|(name, places)| Some((name, only(places)?))).collect()
}

impl Modules {
    /// All methods and associated functions, each with the number of its module.
    pub(super) fn methods(&self) -> impl Iterator<Item = (usize, &Method)> {
        let all = self.all.iter().enumerate();
        all.flat_map(|(number, module)| module.mentions.methods.iter().map(move |method| (number, method)))
    }

    /// What a path leads to that stands in this module; nothing where that is outside the crate, or a variable.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Found> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.enter(0, rest, depth),
            "Self" => Some(Found::Item(from, rest.last().cloned())),
            _ => self.enter(from, path, depth),
        }
    }

    /// The same for a path that goes on within this module.
    fn enter(&self, at: usize, path: &[String], depth: usize) -> Option<Found> {
        let Some((name, rest)) = path.split_first() else { return Some(Found::Module(at)) };
        let depth = depth.checked_sub(1)?;
        let module = &self.all[at];
        match (name.as_str(), module.children.get(name)) {
            ("self", _) => return self.enter(at, rest, depth),
            ("super", _) => return self.enter(module.parent, rest, depth),
            // A function may be called as a module is.
            (_, Some(child)) if !rest.is_empty() => return self.enter(*child, rest, depth),
            _ => {}
        }
        if module.declared.contains(name) {
            return Some(Found::Item(at, rest.last().cloned()));
        }
        if let Some(import) = module.imports.get(name) {
            let whole: Path = import.iter().chain(rest).cloned().collect();
            return self.resolve(at, &whole, depth);
        }
        if let Some(child) = module.children.get(name) {
            return Some(Found::Module(*child));
        }
        module.globs.iter().find_map(|glob| match self.resolve(at, glob, depth)? {
            Found::Module(to) if to != at => self.enter(to, path, depth),
            _ => None,
        })
    }
}

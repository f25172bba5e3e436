//! The modules of a crate, each with its file, what it declares and what it imports.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Item};

use super::mentions::{Import, Mentions, Path, imports, is_for_tests, plain};
use crate::Tree;

/// Modules of a crate, the root first.
#[derive(Default)]
pub(super) struct Modules {
    pub(super) all: Vec<Module>,
}

/// One module: a file, or a part of one.
#[derive(Default)]
pub(super) struct Module {
    /// From the folder of sources.
    pub(super) file: String,
    /// The root is its own parent.
    pub(super) parent: usize,
    pub(super) children: BTreeMap<String, usize>,
    /// Types, functions, constants and macros that are declared here.
    pub(super) declared: BTreeSet<String>,
    /// Names that `use` statements bind, and to what.
    pub(super) imports: BTreeMap<String, Path>,
    /// Modules of which all names are imported.
    pub(super) globs: Vec<Path>,
    pub(super) mentions: Mentions,
}

impl Modules {
    /// Follows `mod` from the root of the crate in this folder.
    pub(super) fn read(tree: &Tree, folder: &str) -> Result<Self, String> {
        let mut modules = Self::default();
        let sources = format!("{folder}/src/");
        let roots = ["lib.rs", "main.rs"].map(|name| format!("{sources}{name}"));
        let root = roots.iter().find(|root| tree.get(root).is_some()).ok_or("no crate is there")?;
        modules.follow(&Reading { tree, sources: &sources }, root, &sources, 0)?;
        Ok(modules)
    }

    /// Reads a file; `below`: the folder of its child modules.
    fn follow(&mut self, reading: &Reading<'_>, path: &str, below: &str, parent: usize) -> Result<usize, String> {
        let text = reading.tree.get(path).map_or("", |file| &file.text);
        let parsed = syn::parse_file(text).map_err(|error| format!("{path} cannot be read: {error}"))?;
        self.add(reading, path, &parsed.items, (below, parent))
    }

    fn add(
        &mut self,
        reading: &Reading<'_>,
        path: &str,
        items: &[Item],
        (below, parent): (&str, usize),
    ) -> Result<usize, String> {
        let number = self.all.len();
        let file = path.strip_prefix(reading.sources).unwrap_or(path).to_owned();
        let items: Vec<_> = items.iter().filter(|item| !attributes(item).iter().any(is_for_tests)).collect();
        let mut module = Module { file, parent, mentions: Mentions::of(&items), ..Module::default() };
        items.iter().for_each(|item| module.declare(item));
        self.all.push(module);
        for item in items {
            let Item::Mod(child) = item else { continue };
            let name = plain(&child.ident);
            let inside = format!("{below}{name}/");
            let files = [format!("{below}{name}.rs"), format!("{inside}mod.rs")];
            let found = match (&child.content, files.iter().find(|file| reading.tree.get(file).is_some())) {
                (Some((_, items)), _) => self.add(reading, path, items, (&inside, number))?,
                (None, Some(file)) => self.follow(reading, file, &inside, number)?,
                (None, None) => return Err(format!("{path}: no file for module `{name}`")),
            };
            self.all[number].children.insert(name, found);
        }
        Ok(number)
    }
}

/// What is read.
struct Reading<'a> {
    tree: &'a Tree,
    sources: &'a str,
}

impl Module {
    fn declare(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Use(item) => return imports(item).into_iter().for_each(|import| self.import(import)),
            _ => return,
        };
        self.declared.insert(plain(name));
    }

    fn import(&mut self, Import { path, name, .. }: Import) {
        match name {
            Some(name) => drop(self.imports.insert(name, path)),
            None => self.globs.push(path),
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

//! The files the rules look at: what git tracks, or, in an unpacked archive, what lies there.

use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    path::Path,
    process::Command,
};

use crate::source::Source;

/// One text file.
pub struct File {
    /// Path from the root, with `/` between the parts.
    pub path: String,
    /// All of it.
    pub text: String,
    /// For a `.rs` file, what is code in it and what is not.
    pub(crate) source: Option<Source>,
}

/// A repository's text files by path, and the names of all its files.
pub struct Tree {
    files: BTreeMap<String, File>,
    names: HashSet<String>,
}

impl Tree {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// When the folder cannot be listed. A file that vanishes meanwhile, or is no UTF-8, is passed over.
    pub fn read(root: &Path) -> io::Result<Self> {
        let names = match tracked(root) {
            Some(names) => names,
            None => {
                let mut names = Vec::new();
                walk(root, "", &mut names)?;
                names
            }
        };
        let texts = names
            .iter()
            .filter_map(|name| fs::read_to_string(root.join(name)).ok().map(|text| (name.clone(), text)))
            .collect();
        let mut tree = Self::of(texts);
        // A file removed from the folder but not yet from git's index is on its way out.
        tree.names.extend(names.into_iter().filter(|name| root.join(name).exists()));
        Ok(tree)
    }

    /// A tree of these paths and texts.
    pub fn of(texts: Vec<(String, String)>) -> Self {
        let names = texts.iter().map(|(path, _)| path.clone()).collect();
        let files = texts
            .into_iter()
            .map(|(path, text)| {
                let source = path.ends_with(".rs").then(|| Source::scan(&text));
                (path.clone(), File { path, text, source })
            })
            .collect();
        Self { files, names }
    }

    /// Every text file, by path.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    /// Text files whose names end so.
    pub(crate) fn ending<'a>(&'a self, endings: &'a [&str]) -> impl Iterator<Item = &'a File> {
        self.files().filter(move |file| endings.iter().any(|ending| file.path.ends_with(ending)))
    }

    /// Rust files with their scans.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files().filter_map(|file| file.source.as_ref().map(|source| (file, source)))
    }

    /// The text file at this path.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Whether a file, of any kind, or a folder of files stands at this path.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty() || self.names.contains(path) || self.names.iter().any(|name| name.starts_with(&folder))
    }
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]).output().ok()?;
    let names = String::from_utf8(output.stdout).ok()?;
    let names: Vec<_> = names.split_terminator('\0').map(str::to_owned).collect();
    (output.status.success() && !names.is_empty()).then_some(names)
}

fn walk(root: &Path, under: &str, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(under))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if under.is_empty() { name.clone() } else { format!("{under}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && name != "target" && name != ".git" {
            walk(root, &path, names)?;
        } else if kind.is_file() {
            names.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpacked_archive_is_walked_without_its_build_output() {
        let root = std::env::temp_dir().join(format!("picaflor-tidy-{}", std::process::id()));
        fs::create_dir_all(root.join("src/deep")).unwrap();
        fs::create_dir_all(root.join("target")).unwrap();
        fs::write(root.join("src/deep/a.rs"), "//! a\n").unwrap();
        fs::write(root.join("target/b.rs"), "").unwrap();
        fs::write(root.join("image.bin"), [0xff, 0xfe]).unwrap();
        let tree = Tree::read(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(tree.files().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["src/deep/a.rs"]);
        assert!(tree.exists("image.bin") && tree.exists("src/deep") && !tree.exists("target"));
    }
}

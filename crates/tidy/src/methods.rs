//! How many methods a type of the engine has: one with very many is several parts that have one name.

use std::collections::BTreeMap;

use syn::{File, ImplItem, Item, Type};

use crate::{Finding, Tree, table};

/// No type of the engine but its facade has more than [`table::METHODS`] inherent methods, in all files together.
pub(crate) fn count(tree: &Tree) -> Vec<Finding> {
    let mut counts = BTreeMap::<String, (usize, String)>::new();
    let files = tree.rust().filter(|(file, _)| file.path.starts_with(table::METHODS.0));
    for (file, source) in files.filter(|(file, _)| !file.path.contains("/models/")) {
        let Ok(parsed) = syn::parse_file(&file.text) else { continue };
        for (name, line) in methods(&parsed) {
            if !source.is_test(line) {
                counts.entry(name).or_insert((0, file.path.clone())).0 += 1;
            }
        }
    }
    let (_, facade, most) = table::METHODS;
    let large = counts.into_iter().filter(|(name, (count, _))| name != facade && *count > most);
    let finding = |(name, (count, path)): (String, (usize, String))| {
        Finding::new(&path, 0, format!("{name} has {count} methods, at most {most}: which part of it has a name?"))
    };
    large.map(finding).collect()
}

/// The type of each inherent method, and the line where it stands.
fn methods(file: &File) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for item in &file.items {
        let Item::Impl(item) = item else { continue };
        let (None, Type::Path(path)) = (&item.trait_, &*item.self_ty) else { continue };
        let Some(name) = path.path.segments.last().map(|segment| segment.ident.to_string()) else { continue };
        for inner in &item.items {
            if let ImplItem::Fn(method) = inner {
                found.push((name.clone(), method.sig.ident.span().start().line));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{places, tree};

    #[test]
    fn a_type_of_many_methods_is_found_wherever_they_stand() {
        let methods = |count: usize| format!("impl Many {{\n{}}}\n", "    fn a(&self) {}\n".repeat(count));
        let two = |count| [("crates/engine/src/a.rs", methods(16)), ("crates/engine/src/b.rs", methods(count))];
        let found = |count| {
            let files = two(count);
            let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            places(&count_of(&files)).len()
        };
        assert_eq!((found(14), found(15)), (0, 1));
        let facade = methods(31).replace("Many", "Store");
        let of_a_trait = methods(31).replace("impl Many", "impl Clone for Many");
        let tested = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", methods(31));
        for text in [facade, of_a_trait, tested] {
            assert!(count_of(&[("crates/engine/src/a.rs", &text)]).is_empty(), "{text}");
        }
    }

    fn count_of(files: &[(&str, &str)]) -> Vec<Finding> {
        count(&tree(files))
    }
}

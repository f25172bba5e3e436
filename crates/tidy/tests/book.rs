//! The book of `docs/` builds without a warning, has every page that lies there, and each of its links leads somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use mdbook_driver::{MDBook, book::BookItem};
use tracing::{Event, Level, Metadata, Subscriber, field::Visit, span};

/// Collects what is logged as a warning or worse.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Visit for &Warnings {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().expect("no test panics with it").push(format!("{field}: {value:?}"));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut &*self);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Everything that is wrong with the book at `root`.
fn faults(root: &Path) -> Vec<String> {
    let out = tempfile::tempdir().expect("there is room for the book");
    let warnings = Warnings::default();
    let listed: BTreeSet<String> = tracing::subscriber::with_default(warnings.clone(), || {
        let mut book = MDBook::load(root).expect("book.toml and SUMMARY.md can be read");
        book.config.build.build_dir = out.path().to_path_buf();
        book.build().expect("the book builds");
        let chapters = book.iter().filter_map(|item| match item {
            BookItem::Chapter(chapter) => chapter.source_path.clone(),
            _ => None,
        });
        chapters.map(|path| path.display().to_string()).collect()
    });
    let mut faults = warnings.0.lock().expect("no test panics with it").clone();
    let docs = root.join("docs");
    let unlisted = files(&docs, "md").into_iter().filter(|page| page != "SUMMARY.md" && !listed.contains(page));
    faults.extend(unlisted.map(|page| format!("SUMMARY.md does not list {page}")));
    for page in files(out.path(), "html") {
        let text = fs::read_to_string(out.path().join(&page)).expect("the book was just written");
        let lost = links(&text).filter(|link| !leads_somewhere(out.path(), &page, link));
        faults.extend(lost.map(|link| format!("{page}: link to nothing: {link}")));
    }
    faults
}

/// Files below a folder whose names end so, by their paths in it.
fn files(folder: &Path, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder that is there can be listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path.strip_prefix(folder).expect("it lies below").display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Links and pictures of a page that lead to no other site.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = ["href=\"", "src=\""].into_iter().flat_map(|opening| page.split(opening).skip(1));
    targets.filter_map(|rest| rest.split('"').next()).filter(|link| !link.contains(':'))
}

fn leads_somewhere(book: &Path, page: &str, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => book.join(page),
        path => book.join(page).parent().unwrap_or(book).join(path),
    };
    match anchor {
        "" => target.exists(),
        anchor => fs::read_to_string(target).is_ok_and(|text| text.contains(&format!("id=\"{anchor}\""))),
    }
}

#[test]
fn the_book_is_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let faults = faults(&root);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_fault_of_a_book_is_found() {
    let root = tempfile::tempdir().expect("there is room for a page");
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).expect("there is room for a page");
    fs::create_dir(root.path().join("docs")).expect("there is room for a folder");
    write("book.toml", "[book]\nsrc = \"docs\"\n");
    write("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n");
    write("docs/a.md", "# A\n\n[one](b.md) [two](#c) [three](#a) <b>four\n");
    write("docs/d.md", "# D\n");
    let faults = faults(root.path()).join("\n");
    for part in ["unclosed", "does not list d.md", "nothing: b.html", "nothing: #c"] {
        assert!(faults.contains(part), "{part}:\n{faults}");
    }
    assert!(!faults.contains("nothing: #a"), "{faults}");
}

//! Circles in a graph of files, and the arrows that close them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The arrows between the files of a crate, each with the first line and name that makes it.
pub(super) type Arrows = BTreeMap<(String, String), (usize, String)>;

/// Files each of which leads to every other one.
pub struct Circle {
    files: BTreeSet<String>,
    /// Without these there is no circle: from, line, to, and the name that is used. Few, not always the fewest.
    closing: Vec<(String, usize, String, String)>,
}

impl Circle {
    /// Number of files.
    #[expect(clippy::len_without_is_empty, reason = "a circle has two files at least")]
    pub fn len(&self) -> usize {
        self.files.len()
    }
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<_> = self.files.iter().map(String::as_str).collect();
        writeln!(f, "  {} files: {}", files.len(), files.join(" "))?;
        write!(f, "  without these arrows there is no circle:")?;
        self.closing.iter().try_for_each(|(from, line, to, what)| write!(f, "\n    {from}:{line} -> {to}   {what}"))
    }
}

type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Every circle, the largest first.
pub(super) fn circles(arrows: &Arrows) -> Vec<Circle> {
    let mut graph = Graph::new();
    for (from, to) in arrows.keys() {
        graph.entry(from).or_default().insert(to);
        graph.entry(to).or_default();
    }
    let mut found: Vec<_> = components(&graph).into_iter().map(|files| circle(arrows, &files)).collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// Sets of two and more files that lead to each other: Tarjan's algorithm.
fn components<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let mut search = Search { graph, seen: BTreeMap::new(), path: Vec::new(), found: Vec::new() };
    for file in graph.keys() {
        if !search.seen.contains_key(file) {
            search.visit(file);
        }
    }
    search.found
}

struct Search<'g, 'a> {
    graph: &'g Graph<'a>,
    /// Number in the order of visits.
    seen: BTreeMap<&'a str, usize>,
    path: Vec<&'a str>,
    found: Vec<BTreeSet<&'a str>>,
}

impl<'a> Search<'_, 'a> {
    /// The least number that can be reached from a file without leaving the path.
    fn visit(&mut self, file: &'a str) -> usize {
        let number = self.seen.len();
        self.seen.insert(file, number);
        self.path.push(file);
        let mut least = number;
        for next in &self.graph[file] {
            match self.seen.get(next) {
                None => least = least.min(self.visit(next)),
                Some(number) if self.path.contains(next) => least = least.min(*number),
                Some(_) => {}
            }
        }
        if least == number {
            let start = self.path.iter().position(|other| *other == file).unwrap_or(0);
            let files: BTreeSet<_> = self.path.drain(start..).collect();
            if files.len() > 1 {
                self.found.push(files);
            }
        }
        least
    }
}

/// A set of files with the arrows that go backwards when the files stand in a good order.
fn circle(arrows: &Arrows, files: &BTreeSet<&str>) -> Circle {
    let inside: Vec<_> =
        arrows.iter().filter(|((from, to), _)| files.contains(from.as_str()) && files.contains(to.as_str())).collect();
    let order = order(files, inside.iter().map(|((from, to), _)| (from.as_str(), to.as_str())).collect());
    let closing = inside
        .into_iter()
        .filter(|((from, to), _)| order[from.as_str()] > order[to.as_str()])
        .map(|((from, to), (line, what))| (from.clone(), *line, to.clone(), what.clone()))
        .collect();
    Circle { files: files.iter().map(|file| (*file).to_owned()).collect(), closing }
}

/// Places in an order in which few arrows go backwards (Eades, Lin and Smyth 1993): what nothing uses comes first, what
/// uses nothing last, and of the others next the one that uses most for each that uses it.
fn order<'a>(files: &BTreeSet<&'a str>, mut arrows: Vec<(&'a str, &'a str)>) -> BTreeMap<&'a str, usize> {
    let mut left = files.clone();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let out = |file: &str| arrows.iter().filter(|(from, _)| *from == file).count() as i64;
        let into = |file: &str| arrows.iter().filter(|(_, to)| *to == file).count() as i64;
        let next = match left.iter().find(|file| out(file) == 0) {
            Some(file) => {
                last.push(*file);
                *file
            }
            None => {
                let source = left.iter().find(|file| into(file) == 0);
                let Some(file) = source.or_else(|| left.iter().max_by_key(|file| out(file) - into(file))) else {
                    break;
                };
                first.push(*file);
                *file
            }
        };
        left.remove(next);
        arrows.retain(|(from, to)| *from != next && *to != next);
    }
    first.into_iter().chain(last.into_iter().rev()).enumerate().map(|(place, file)| (file, place)).collect()
}

//! A small site that is published from its fragments, with two caches: the source of each fragment as it was
//! written, and what was assembled from them. Run it twice: the second run finds everything as the first left it.
//!
//!     cargo run --release -p picaflor-graph --example site -- /tmp/site
//!
//! A source names another fragment as `{{name}}`. When a fragment changes, the graph says what is built from it,
//! and only that is assembled again.

use std::{error::Error, path::PathBuf, sync::Arc};

use picaflor_device::{FileDevice, OpenOptions};
use picaflor_graph::{Change, Graph, GraphOptions};
use picaflor_table::{
    blocks::BlockOptions,
    htod::{HashTables, HtodOptions, Table},
};

const SITE: [(&str, &str); 6] = [
    ("header", "<h1>Games</h1>"),
    ("medals/uy", "1"),
    ("medals/nz", "4"),
    ("table", "<table><tr><td>Uruguay<td>{{medals/uy}}<tr><td>New Zealand<td>{{medals/nz}}</table>"),
    ("index.html", "{{header}}<p>Welcome</p>{{table}}"),
    ("about.html", "{{header}}<p>Who we are</p>"),
];

struct Site {
    graph: Graph,
    caches: HashTables,
    source: Table,
    assembled: Table,
}

fn device(path: PathBuf) -> Result<Arc<FileDevice>, Box<dyn Error>> {
    let options = OpenOptions { capacity: Some(64 << 20), create: true, block_size: 512, ..OpenOptions::default() };
    Ok(Arc::new(FileDevice::open(path, options)?))
}

/// The fragments that a source names.
fn names(source: &str) -> Vec<String> {
    let pieces = source.split("{{").skip(1);
    pieces.filter_map(|piece| Some(piece.split_once("}}")?.0.to_owned())).collect()
}

impl Site {
    fn open(folder: &str) -> Result<Self, Box<dyn Error>> {
        std::fs::create_dir_all(folder)?;
        let graph = Graph::open(device(PathBuf::from(folder).join("graph"))?, &GraphOptions::default())?;
        let place = device(PathBuf::from(folder).join("caches"))?;
        let (caches, _) = HashTables::open(place, BlockOptions::default(), HtodOptions::default())?;
        let (source, assembled) = (caches.table("source")?, caches.table("assembled")?);
        Ok(Self { graph, caches, source, assembled })
    }

    fn text(table: &Table, name: &str) -> Result<String, Box<dyn Error>> {
        Ok(String::from_utf8(table.get(name.as_bytes())?.unwrap_or_default())?)
    }

    /// Takes a fragment in, and assembles what is built from it.
    fn publish(&self, name: &str, source: &str) -> Result<(), Box<dyn Error>> {
        let dependencies = names(source);
        let page = name.ends_with(".html");
        self.graph.apply(&[Change::Put { name: name.to_owned(), page, dependencies, expiry: None }])?;
        self.source.put(name.as_bytes(), source.as_bytes())?;
        self.assemble(name)?;
        for dependent in self.graph.publish(&[name])? {
            println!("  {name} changed: {dependent} is assembled again");
            self.assemble(&dependent)?;
        }
        Ok(())
    }

    /// What it is built from was assembled before: the graph's order sees to that.
    fn assemble(&self, name: &str) -> Result<(), Box<dyn Error>> {
        let mut text = Self::text(&self.source, name)?;
        for part in names(&text) {
            text = text.replace(&format!("{{{{{part}}}}}"), &Self::text(&self.assembled, &part)?);
        }
        Ok(self.assembled.put(name.as_bytes(), text.as_bytes())?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "site-data".to_owned());
    let site = Site::open(&folder)?;
    if site.source.is_empty() {
        for (name, source) in SITE {
            site.publish(name, source)?;
        }
    }
    println!("{}", Site::text(&site.assembled, "index.html")?);
    let medals: u32 = Site::text(&site.source, "medals/uy")?.parse()?;
    site.publish("medals/uy", &(medals + 1).to_string())?;
    println!("{}", Site::text(&site.assembled, "index.html")?);
    site.graph.close()?;
    Ok(site.caches.close()?)
}

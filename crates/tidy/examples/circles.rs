//! Shows the circles of files in each crate of the table, and the arrows that close them:
//! `cargo run -p picaflor-tidy --example circles`.

use std::path::Path;

use picaflor_tidy::{Circle, Tree, circles, table};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the repository can be listed");
    let folders: Vec<_> = table::CIRCLES.iter().map(|(folder, _)| *folder).collect();
    for (folder, found) in folders.iter().zip(circles(&tree, &folders)) {
        match found {
            Ok(found) => {
                println!("{folder}: {:?}", found.iter().map(Circle::len).collect::<Vec<_>>());
                found.iter().for_each(|circle| println!("{circle}"));
            }
            Err(why) => println!("{folder}: {why}"),
        }
    }
}

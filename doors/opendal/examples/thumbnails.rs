//! Thumbnails behind OpenDAL: `thumbnails STORE`. Lines of standard input are commands: `make PATH BYTES`, `drop PATH`,
//! `list FOLDER`. Each is answered by a line.

use opendal::Operator;
use picaflor_opendal::{
    Picaflor,
    picaflor::{Durability, Options},
};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::args().nth(1).ok_or("usage: thumbnails STORE")?;
    // What was written or deleted survives any crash from then on; without this line, from a second later on.
    let options = Options::new(store).durability(Durability::EveryPut).with(|options| options.delete_count = 1);
    let operator = Operator::new(Picaflor::new(options.capacity(256 << 20).memory(64 << 20)))?;

    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match *line.split(' ').collect::<Vec<_>>() {
            ["make", path, bytes] => match operator.read(path).await {
                Ok(image) => println!("there {}", image.len()),
                Err(error) if error.kind() == opendal::ErrorKind::NotFound => {
                    let image: Vec<u8> = (0..bytes.parse()?).map(|at: u32| (at.wrapping_mul(at) >> 3) as u8).collect();
                    operator.write_with(path, image).content_type("image/webp").await?;
                    println!("made {bytes}");
                }
                Err(error) => return Err(error.into()),
            },
            ["drop", path] => {
                operator.delete(path).await?;
                println!("dropped");
            }
            ["list", folder] => {
                let found = operator.list(folder).await?;
                println!("{}", found.iter().map(opendal::Entry::path).collect::<Vec<_>>().join(" "));
            }
            _ => return Err(format!("unknown: {line}").into()),
        }
    }
    Ok(())
}

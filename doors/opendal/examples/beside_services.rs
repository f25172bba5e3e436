//! This service beside others of OpenDAL's, for the table of the README.

use std::error::Error;

use doors_kit::beside::{Arguments, Door, run};
use opendal::{ErrorKind, Operator, services};
use picaflor_opendal::{Picaflor, picaflor::Options};

struct Service(Operator);

impl Door for Service {
    async fn put(&self, number: usize, body: Vec<u8>) -> Result<(), Box<dyn Error>> {
        self.0.write(&format!("object/{number}"), body).await?;
        Ok(())
    }

    async fn get(&self, number: usize) -> Result<Option<usize>, Box<dyn Error>> {
        match self.0.read(&format!("object/{number}")).await {
            Ok(body) => Ok(Some(body.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read("picaflor|picaflor-in-memory|moka|fs")?;
    let store = |memory| Picaflor::new(Options::new(arguments.folder.join("store")).capacity(4 << 30).memory(memory));
    let operator = match arguments.name.as_str() {
        "picaflor" => Operator::new(store(64 << 20))?,
        "picaflor-in-memory" => Operator::new(store(1 << 30))?,
        "moka" => Operator::new(services::Moka::default())?,
        _ => Operator::new(services::Fs::default().root(&arguments.folder.to_string_lossy()))?,
    };
    run(&Service(operator), &arguments).await
}

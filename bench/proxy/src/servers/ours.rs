//! `picaflor serve`, one worker, everything else as it comes.

use std::fs;

use anyhow::Result;

use super::{Running, Setup};

pub(super) fn start(setup: &Setup) -> Result<Running> {
    let config = setup.folder.join("picaflor.toml");
    let text = format!(
        "listen = [\"{}\"]\nworkers = 1\n\n[store]\npath = \"{}\"\ncapacity = \"4 GiB\"\nmemory = {}\n\n\
         [admin]\nlisten = \"127.0.0.1:{}\"\n\n[[origin]]\nurl = \"http://{}\"\n",
        setup.listen,
        setup.folder.join("store").display(),
        setup.memory,
        setup.listen.port() + 1,
        setup.origin,
    );
    fs::write(&config, text)?;
    Running::start(setup, &setup.picaflor, &["serve", "--config", &config.to_string_lossy()], &[])
}

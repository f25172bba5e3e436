//! `picaflor serve`, one worker. What clients say of caches does not count, as for nginx; everything else as it comes.

use std::fs;

use anyhow::Result;

use super::{Running, Setup};

pub(super) fn start(setup: &Setup) -> Result<Running> {
    started(setup, "off")
}

pub(super) fn with_log(setup: &Setup) -> Result<Running> {
    started(setup, &setup.folder.join("access.log").display().to_string())
}

fn started(setup: &Setup, log: &str) -> Result<Running> {
    let config = setup.folder.join("picaflor.toml");
    let text = format!(
        "listen = [\"{}\"]\nworkers = 1\n\n[store]\npath = \"{}\"\ncapacity = {}\nmemory = {}\n\n\
         [admin]\nlisten = \"127.0.0.1:{}\"\n\n[cache]\nclient_directives = \"ignore\"\n\n[log]\nto = \"{log}\"\n\n\
         [[origin]]\nurl = \"http://{}\"\n",
        setup.listen,
        setup.folder.join("store").display(),
        setup.capacity,
        setup.memory,
        setup.listen.port() + 1,
        setup.origin,
    );
    fs::write(&config, text)?;
    Running::start(setup, &setup.picaflor, &["serve", "--config", &config.to_string_lossy()], &[])
}

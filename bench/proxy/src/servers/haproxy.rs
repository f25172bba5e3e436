//! HAProxy's cache: memory only, one thread.

use std::{fs, path::Path};

use anyhow::Result;

use super::{Running, Setup};

pub(super) fn start(setup: &Setup) -> Result<Running> {
    // It counts in whole megabytes and takes at most 4,095.
    let megabytes = (setup.memory >> 20).clamp(1, 4095);
    let text = format!(
        "global\n  nbthread 1\n  maxconn 9000\n\
         cache objects\n  total-max-size {megabytes}\n  max-object-size 4194304\n  max-age 86400\n\
         defaults\n  mode http\n  option http-keep-alive\n  http-reuse always\n\
         \x20 timeout connect 5s\n  timeout client 600s\n  timeout server 60s\n\
         frontend in\n  bind {}\n  http-request cache-use objects\n  http-response cache-store objects\n\
         \x20 default_backend origin\n\
         backend origin\n  server origin {}\n",
        setup.listen, setup.origin,
    );
    let config = setup.folder.join("haproxy.cfg");
    fs::write(&config, text)?;
    Running::start(setup, Path::new("haproxy"), &["-db", "-f", &config.to_string_lossy()], &[])
}

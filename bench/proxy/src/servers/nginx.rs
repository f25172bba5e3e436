//! nginx's `proxy_cache` in the ways that were best for one work or another: with and without `sendfile`, with open
//! descriptors kept, and with reads of the disk in threads.

use std::{fs, path::Path};

use anyhow::Result;
use nix::sys::resource::{Resource, getrlimit};

use super::{Running, Setup};

pub(super) fn sendfile(setup: &Setup) -> Result<Running> {
    start(setup, "sendfile on;")
}

/// Answers that do not fill their last packet wait for the delayed acknowledgement of what is before it.
pub(super) fn nopush(setup: &Setup) -> Result<Running> {
    start(setup, "sendfile on; tcp_nopush on;")
}

pub(super) fn open_file_cache(setup: &Setup) -> Result<Running> {
    start(
        setup,
        "sendfile on; open_file_cache max={files} inactive=10m; open_file_cache_valid 10m; \
         open_file_cache_min_uses 1;",
    )
}

pub(super) fn no_sendfile(setup: &Setup) -> Result<Running> {
    start(
        setup,
        "sendfile off; output_buffers 2 128k; open_file_cache max={files} inactive=10m; open_file_cache_valid 10m; \
         open_file_cache_min_uses 1;",
    )
}

pub(super) fn aio_threads(setup: &Setup) -> Result<Running> {
    start(
        setup,
        "sendfile on; aio threads; open_file_cache max={files} inactive=10m; open_file_cache_valid 10m; \
         open_file_cache_min_uses 1;",
    )
}

/// As many descriptors as nginx may have: with more kept open than that it fails requests.
fn descriptors() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(_, hard)| hard.min(100_000))
}

fn start(setup: &Setup, how: &str) -> Result<Running> {
    let Setup { folder, listen, origin, .. } = setup;
    let at = folder.display();
    // As root, nginx hands its worker to a user who may not enter the folder.
    let user = if nix::unistd::geteuid().is_root() { "user root;" } else { "" };
    let descriptors = descriptors();
    let how = how.replace("{files}", &(descriptors * 3 / 4).to_string());
    let text = format!(
        "{user} worker_processes 1; worker_rlimit_nofile {descriptors}; daemon off; pid {at}/pid; error_log {at}/error.log;\n\
         events {{ worker_connections 9000; multi_accept on; }}\n\
         http {{\n\
         access_log off; keepalive_timeout 600s; keepalive_requests 1000000000; tcp_nodelay on; {how}\n\
         client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
         uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
         proxy_cache_path {at}/cache levels=1:2 keys_zone=objects:100m max_size=8g inactive=1d use_temp_path=off;\n\
         upstream origin {{ server {origin}; keepalive 64; }}\n\
         server {{ listen {listen} backlog=1024;\n\
         location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_cache objects; proxy_cache_key $uri; proxy_cache_valid 200 1d; proxy_cache_lock on; proxy_force_ranges on; }} }} }}\n",
    );
    let config = folder.join("nginx.conf");
    fs::write(&config, text)?;
    fs::create_dir_all(folder.join("cache"))?;
    Running::start(setup, Path::new("nginx"), &["-c", &config.to_string_lossy(), "-p", &folder.to_string_lossy()], &[])
}

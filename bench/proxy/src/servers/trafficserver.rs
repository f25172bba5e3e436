//! Apache Traffic Server with one event thread, its RAM cache as large as the memory given, its disk cache a file.

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};

use super::{Running, Setup};

pub(super) fn start(setup: &Setup) -> Result<Running> {
    let root = setup.folder.join("root");
    let etc = root.join("etc");
    let storage = root.join("storage");
    for name in ["storage", "run", "log", "cache"] {
        fs::create_dir_all(root.join(name))?;
    }
    // The system's own configuration where nothing is said below.
    let copied = Command::new("cp").arg("-r").arg("/etc/trafficserver").arg(&etc).status()?;
    ensure!(copied.success(), "/etc/trafficserver cannot be copied");
    // Its own layout in a folder of its own; only programs and modules are the system's.
    let at = root.display();
    let layout = format!(
        "prefix: {at}\nexec_prefix: /usr\nbindir: /usr/bin\nsbindir: /usr/sbin\nsysconfdir: {at}/etc\n\
         datadir: {at}/cache\nincludedir: /usr/include\nlibdir: /usr/lib/trafficserver\n\
         libexecdir: /usr/lib/trafficserver/modules\nlocalstatedir: {at}\nruntimedir: {at}/run\nlogdir: {at}/log\n\
         cachedir: {at}/cache\n"
    );
    let root_file = root.join("runroot.yaml");
    fs::write(&root_file, layout)?;
    let records = [
        ("http.server_ports", format!("STRING {}:ip-in={}", setup.listen.port(), setup.listen.ip())),
        ("exec_thread.autoconfig", "INT 0".into()),
        ("exec_thread.limit", "INT 1".into()),
        ("accept_threads", "INT 0".into()),
        ("task_threads", "INT 1".into()),
        ("cache.threads_per_disk", "INT 8".into()),
        ("cache.ram_cache.size", format!("INT {}", setup.memory)),
        ("cache.min_average_object_size", "INT 4096".into()),
        ("http.cache.required_headers", "INT 0".into()),
        ("http.keep_alive_no_activity_timeout_in", "INT 600".into()),
        ("http.transaction_no_activity_timeout_in", "INT 600".into()),
        ("http.insert_response_via_str", "INT 0".into()),
        ("log.logging_enabled", "INT 0".into()),
        ("admin.user_id", "STRING #-1".into()),
        ("url_remap.remap_required", "INT 1".into()),
        ("url_remap.pristine_host_hdr", "INT 1".into()),
    ];
    let text: String = records.iter().map(|(name, value)| format!("CONFIG proxy.config.{name} {value}\n")).collect();
    fs::write(etc.join("records.config"), text)?;
    fs::write(etc.join("remap.config"), format!("map / http://{}/\n", setup.origin))?;
    fs::write(etc.join("storage.config"), format!("{} {}\n", storage.display(), setup.capacity))?;
    Running::start(setup, Path::new("traffic_server"), &[], &[("TS_RUNROOT", &root_file.to_string_lossy())])
}

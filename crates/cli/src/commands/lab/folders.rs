//! Folders of runs: for results, made first, and for stores, removed whatever happens.

use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};

use super::super::Failure;

/// Made before anything is run: what cannot be kept need not be found out.
pub(super) fn make_folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|e| Failure::Failed(format!("making {}: {e}", path.display())))
}

/// Runs in folders of this machine lay stores there, which go when they end, also by interruption: removes them
/// and ends the process when it is asked to.
pub(super) fn leave_no_folder() -> Result<(), Failure> {
    let cannot = |e: std::io::Error| Failure::Failed(format!("waiting for signals: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(cannot)?, signal(SignalKind::terminate()).map_err(cannot)?)
    };
    let ending = std::thread::Builder::new().name("picaflor-signals".into()).spawn(move || {
        let code = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            }
        });
        picaflor_lab::age::unmount_all();
        picaflor_lab::run::remove_folders();
        std::process::exit(code);
    });
    ending.map(drop).map_err(|e| Failure::Failed(format!("starting the thread that waits for signals: {e}")))
}

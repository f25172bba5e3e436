//! `picaflor share STORE`: one process has the store open and serves the others, until a signal stops it.

use std::path::PathBuf;

use clap::Args;
use picaflor::{Durability, Mode, Options};
use picaflor_proxy::config::{Deletes, Size, durability};
use picaflor_shared::{Limits, Socket};
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::{open::OneStore, output::say, policies::Policies};

const EXAMPLES: &str = "\
Examples:
  One process has the store, the others ask it; its socket stands where a store would:
      picaflor share cache.store &
      picaflor put cache.store.sock logo logo.png
      picaflor get cache.store.sock logo -o copy.png
      picaflor ls --long cache.store.sock

  A store that never drops anything by itself, every put and delete durable before it returns:
      picaflor share /dev/nvme1n1 --socket /run/pictures.sock --store-mode --durability every-put

  From a program: the crate `picaflor_shared`, whose `Client` has the verbs of a store.

Only the user who runs it, and root, may connect; the socket has mode 0600. TERM and INT: no new requests, answers under \
way end, the store writes its checkpoint. Clients connect again by themselves when it is started again; until then they \
say that nobody is there. After kill -9 start it again: the socket that is left over is in nobody's way.";

/// Serves a store to other processes of this machine, over a Unix socket
///
/// The store is made if it is not there.
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor share --help` has examples.")]
pub(crate) struct Share {
    #[command(flatten)]
    store: OneStore,
    /// The socket [default: STORE.sock]
    #[arg(short, long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Most clients' connections at one time
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections)]
    connections: usize,
    /// How durable puts are, and deletes: none (deletes 1s), every-put, or a time that a crash may cost [default: 1s]
    #[arg(long, value_name = "BOUND", value_parser = bound)]
    durability: Option<Durability>,
    /// Bytes of the store: a new one has so many [default: 1GiB], one with fewer grows, to eight times its first ones,
    /// and one with more gives the rest back
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// A new store never drops an object to make room, but says that it is full
    #[arg(long)]
    store_mode: bool,
    /// Storage manager: picaflor, or one of the literature's [default: as the store is, or picaflor]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    #[command(flatten, next_help_heading = "How objects are laid in clusters")]
    policies: Policies,
}

fn bound(text: &str) -> Result<Durability, String> {
    durability(text).ok_or_else(|| format!("`{text}` is not `none`, `every-put` or a time such as `1s`"))
}

impl Share {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.store.refuse_socket("it is served already")?;
        let socket = self.socket.clone().unwrap_or_else(|| self.store.beside(".sock"));
        // First: a store that cannot be served is not made.
        let socket = Socket::bind(socket).map_err(failure)?;
        let mode = if self.store_mode { Mode::Store } else { Mode::Cache };
        let capacity = self.capacity.map_or(0, |size| size.0);
        let durability = self.durability.unwrap_or_default();
        let new = Options::new("").mode(mode).capacity(capacity).durability(durability);
        let new = new.with(|new| Deletes::like(durability).bind(new));
        let store = self.store.write_or_create(new, self.preset.as_deref(), self.policies)?;
        let limits = Limits::default().connections(self.connections);
        // Before it serves: a signal that comes early is not to be lost.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
        let (mut term, mut int) = runtime.block_on(async {
            let of = |kind| signal(kind).map_err(failure);
            Ok::<_, Failure>((of(SignalKind::terminate())?, of(SignalKind::interrupt())?))
        })?;
        let server = socket.serve(store.clone(), limits).map_err(failure)?;
        say!("listen   {}", server.path().display());
        say!("receipt  {}", store.receipt());
        runtime.block_on(async {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        });
        eprintln!("picaflor: stopping; once more to exit at once");
        runtime.block_on(async {
            let stopping = super::beside(move || {
                server.stop();
                store.close()
            });
            tokio::select! {
                stopped = stopping => match stopped {
                    Some(closed) => Ok(closed?),
                    None => Err(Failure::Failed("closing the store did not end as it should".into())),
                },
                _ = term.recv() => std::process::exit(1),
                _ = int.recv() => std::process::exit(1),
            }
        })
    }
}

fn failure(e: std::io::Error) -> Failure {
    Failure::Failed(e.to_string())
}

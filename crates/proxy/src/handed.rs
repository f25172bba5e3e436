//! Sockets that listen already, handed over by the parent of the process: clients that come while one proxy stops and
//! the next one starts wait there, and none is refused.
//!
//! Invariant: each is at an address that the configuration names; what it names beside them is bound here.

use std::net::{SocketAddr, TcpListener};

use socket2::Socket;

use crate::lifecycle::StartError;

pub(crate) struct Handed(Vec<(Socket, SocketAddr)>);

impl Handed {
    /// # Errors
    /// One is of no address, or stays blocking.
    pub(crate) fn new(sockets: Vec<TcpListener>) -> Result<Self, StartError> {
        let own = |socket: TcpListener| {
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok((Socket::from(socket), address))
        };
        let all = sockets.into_iter().map(own).collect::<std::io::Result<_>>();
        all.map(Self).map_err(|e| StartError::Setting(format!("a socket that was handed over is of no use: {e}")))
    }

    /// The one at this address, if there is one.
    pub(crate) fn take(&mut self, address: SocketAddr) -> Option<Socket> {
        let at = self.0.iter().position(|(_, of)| *of == address)?;
        Some(self.0.swap_remove(at).0)
    }

    /// # Errors
    /// One was not taken.
    pub(crate) fn all_taken(&self) -> Result<(), StartError> {
        let Some((_, address)) = self.0.first() else { return Ok(()) };
        Err(StartError::Setting(format!(
            "a socket at {address} was handed over, and no listener has that address; name it in listen, tls.listen or \
             admin.listen, or take it out of the socket unit"
        )))
    }
}

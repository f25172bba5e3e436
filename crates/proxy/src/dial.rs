//! Connecting to what a name stands for, unless that is where this client must not go.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::net::TcpStream;

use crate::{
    reason::{Denied, NoAnswer, OriginFailure},
    target::Trust,
};

/// Which destinations may be connected to.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    /// Our own listeners.
    pub(crate) own: Arc<[SocketAddr]>,
    pub(crate) trust: Trust,
}

/// A destination that must not be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the destination is this proxy")]
    Own,
    #[error("the destination is this machine or its link, and the client is not")]
    Near,
    #[error("cannot resolve: {0}")]
    Resolve(std::io::Error),
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("connecting took too long")]
    Timeout,
    #[error("no TLS: {0}")]
    Tls(OriginFailure),
}

impl From<&DialError> for NoAnswer {
    fn from(error: &DialError) -> Self {
        match error {
            DialError::Own => Self::Denied(Denied::SelfDestination),
            DialError::Near => Self::Denied(Denied::LocalDestination),
            DialError::Resolve(_) => Self::Failed(OriginFailure::Resolve),
            DialError::Connect(_) => Self::Failed(OriginFailure::Connect),
            DialError::Timeout => Self::Failed(OriginFailure::ConnectTimeout),
            DialError::Tls(why) => Self::Failed(*why),
        }
    }
}

impl Guard {
    fn check(&self, to: SocketAddr) -> Result<(), DialError> {
        let ip = to.ip().to_canonical();
        let to_us = self.own.iter().any(|own| {
            own.port() == to.port()
                && (own.ip().to_canonical() == ip || ip.is_unspecified() || ip.is_loopback() || is_this_machine(ip))
        });
        let near = || ip.is_loopback() || ip.is_unspecified() || is_link_local(ip) || is_this_machine(ip);
        match self.trust {
            _ if to_us => Err(DialError::Own),
            Trust::RemoteClient if near() => Err(DialError::Near),
            _ => Ok(()),
        }
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// An address of this machine is one that can be bound.
fn is_this_machine(ip: IpAddr) -> bool {
    std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// Connects to the first address of a name that is allowed and answers.
pub(crate) async fn dial(host: &str, port: u16, guard: &Guard, limit: Duration) -> Result<TcpStream, DialError> {
    let attempt = async {
        let addresses: Vec<_> = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => tokio::net::lookup_host((host, port)).await.map_err(DialError::Resolve)?.collect(),
        };
        let mut last = DialError::Resolve(std::io::ErrorKind::NotFound.into());
        for (n, address) in addresses.iter().enumerate() {
            if let Err(why) = guard.check(*address) {
                last = why;
                continue;
            }
            // A dead first address must not use up the time of those after it.
            let left = u32::try_from(addresses.len() - n).unwrap_or(1);
            match tokio::time::timeout(limit / left, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(e)) => last = DialError::Connect(e),
                Err(_) => last = DialError::Timeout,
            }
        }
        Err(last)
    };
    tokio::time::timeout(limit, attempt).await.unwrap_or(Err(DialError::Timeout))
}

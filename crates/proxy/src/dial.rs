//! Connecting to what a name stands for, unless that is where this client must not go.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
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
            Trust::RemoteClient | Trust::Redirect if near() => Err(DialError::Near),
            Trust::Redirect if is_private(ip) => Err(DialError::Near),
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

/// Of a network that is not the internet: RFC 1918, RFC 6598, RFC 4193, and IPv4's own network (RFC 1122).
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, second, ..] = ip.octets();
            ip.is_private() || first == 0 || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(ip) => {
            // By a gateway that translates (RFC 6052) or relays (RFC 3056) it may be one of IPv4 after all.
            let inner = match ip.segments() {
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some((high, low)),
                _ => None,
            };
            let inner = inner.map(|(high, low)| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
            let is_near = |ip: Ipv4Addr| ip.is_loopback() || ip.is_link_local() || is_private(ip.into());
            // Site-local addresses are deprecated, not gone (RFC 3879).
            ip.is_unique_local() || ip.segments()[0] & 0xffc0 == 0xfec0 || inner.is_some_and(is_near)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_reaches_the_internet_and_nothing_else() {
        let guard = Guard { own: Arc::new([]), trust: Trust::Redirect };
        for (address, is_reached) in [
            ("192.0.2.1", true),
            ("172.15.0.1", true),
            ("172.16.0.1", false),
            ("10.1.2.3", false),
            ("192.168.0.1", false),
            ("100.63.0.1", true),
            ("100.127.0.1", false),
            ("127.0.0.53", false),
            ("169.254.169.254", false),
            ("0.1.2.3", false),
            ("2001:db8::1", true),
            ("::1", false),
            ("::ffff:10.0.0.1", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("fec0::1", false),
            ("64:ff9b::a00:1", false),
            ("64:ff9b::c000:201", true),
            ("2002:7f00:1::", false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(guard.check(SocketAddr::new(address, 443)).is_ok(), is_reached, "{address}");
        }
    }
}

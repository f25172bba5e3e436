//! A running server, asked through its admin listener.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, Response, Uri, body::Incoming, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::Failure;
use crate::key;

const IS_IT: &str = "is this the address of the admin listener?";
/// Longest that a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer that we take.
const ANSWER_MAX: usize = 16 << 20;

/// What lets us in.
#[derive(Args)]
pub(super) struct Token {
    /// File with the server's admin token; default picaflor.store.token
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// The server's admin token itself; wins over the file
    #[arg(long, value_name = "TOKEN", env = "PICAFLOR_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

/// Which server is asked, and by what right.
#[derive(Args)]
pub(super) struct Admin {
    /// The address of the server's admin listener
    #[arg(long, value_name = "http://IP:PORT", default_value = "http://127.0.0.1:3129")]
    pub(super) admin: Uri,
    #[command(flatten)]
    token: Token,
}

impl Admin {
    /// As [`Server::new`].
    pub(super) fn server(&self) -> Result<Server, Failure> {
        Server::new(&self.admin, &self.token)
    }
}

/// See the head of this file.
pub(super) struct Server {
    admin: Uri,
    address: String,
    token: String,
    /// What to say of a token that is refused.
    token_is: String,
    runtime: Runtime,
}

impl Server {
    /// Nothing is asked yet.
    pub(super) fn new(admin: &Uri, token: &Token) -> Result<Self, Failure> {
        let (Some("http"), Some(authority)) = (admin.scheme_str(), admin.authority()) else {
            return Err(Failure::Usage(format!("--admin {admin}: expected http://IP:PORT")));
        };
        let address = match authority.port_u16() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:80"),
        };
        let (token, token_is) = match &token.token {
            Some(token) => (token.clone(), "that was given".into()),
            None => {
                let path = token.token_file.clone().unwrap_or_else(|| "picaflor.store.token".into());
                let text = std::fs::read_to_string(&path).map_err(|e| {
                    let mend = "name the server's with --token-file; `picaflor serve` prints where it is";
                    Failure::Failed(format!("reading the token file {}: {e}; {mend}", path.display()))
                })?;
                (text.trim().to_owned(), format!("of {}", path.display()))
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::Failed(format!("asking {admin}: {e}")))?;
        Ok(Self { admin: admin.clone(), address, token, token_is, runtime })
    }

    /// The JSON at this path.
    pub(super) fn ask(&self, path: &str) -> Result<Value, Failure> {
        let fail = |why| self.failed(why);
        let asked = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, self.fetch(path)).await });
        match asked {
            Err(_) => Err(fail(format!("no answer for {} s", PATIENCE.as_secs()))),
            Ok(Err(why)) => Err(fail(why)),
            Ok(Ok((200, body))) => {
                serde_json::from_slice(&body).map_err(|e| fail(format!("the answer is not JSON ({e}); {IS_IT}")))
            }
            Ok(Ok((status, _))) => Err(self.refused(status)),
        }
    }

    fn failed(&self, why: String) -> Failure {
        Failure::Failed(format!("asking {}: {why}", self.admin))
    }

    /// By an answer of this status.
    fn refused(&self, status: u16) -> Failure {
        self.failed(match status {
            401 => format!("it refused the token {}", self.token_is),
            status => format!("status {status}; {IS_IT}"),
        })
    }

    /// Each line of JSON at this path, as it comes, until one of them is enough: `each` says whether it goes on.
    pub(super) fn lines(
        &self,
        path: &str,
        mut each: impl FnMut(Value) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let fail = |why| self.failed(why);
        self.runtime.block_on(async {
            let answer = self.answer(path, None).await.map_err(fail)?;
            match answer.status().as_u16() {
                200 => {}
                404 => return Err(fail("it does not list what it has; is it of an earlier version?".into())),
                status => return Err(self.refused(status)),
            }
            let (mut body, mut line) = (answer.into_body(), Vec::new());
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| fail(format!("{e}; what was listed is not all")))?;
                for part in frame.into_data().unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
                    line.extend_from_slice(part);
                    if part.ends_with(b"\n") {
                        let value = serde_json::from_slice(&line);
                        if !each(value.map_err(|e| fail(format!("a line is not JSON ({e}); {IS_IT}")))?)? {
                            return Ok(());
                        }
                        line.clear();
                    }
                }
            }
            Ok(())
        })
    }

    /// The bytes at this path, or a range of them, as they come: of `what`, if there are none.
    pub(super) fn bytes(&self, path: &str, range: Option<&str>, what: &str) -> Result<Pieces<'_>, Failure> {
        let answer = self.runtime.block_on(self.answer(path, range)).map_err(|why| self.failed(why))?;
        match answer.status().as_u16() {
            200 | 206 => {
                let len = answer.headers().get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
                let len = len.ok_or_else(|| self.failed(format!("no length; {IS_IT}")))?;
                Ok(Pieces { server: self, len, body: answer.into_body() })
            }
            // Why it has none.
            404 | 409 | 416 => {
                let why = self.runtime.block_on(whole(answer)).map_err(|why| self.failed(why))?;
                Err(Failure::Failed(format!("{what}: {}", key::harmless(String::from_utf8_lossy(&why).trim()))))
            }
            status => Err(self.refused(status)),
        }
    }

    /// Status and body.
    async fn fetch(&self, path: &str) -> Result<(u16, Vec<u8>), String> {
        let answer = self.answer(path, None).await?;
        let status = answer.status().as_u16();
        Ok((status, whole(answer).await?))
    }

    async fn answer(&self, path: &str, range: Option<&str>) -> Result<Response<Incoming>, String> {
        let stream = tokio::net::TcpStream::connect(&self.address)
            .await
            .map_err(|e| format!("{e}; is `picaflor serve` running, and is this its admin address?"))?;
        let text = |e: hyper::Error| e.to_string();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
        tokio::spawn(connection);
        let request = Request::get(path)
            .header(header::HOST, &self.address)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        let request = range
            .into_iter()
            .fold(request, |request, range| request.header(header::RANGE, format!("bytes={range}")))
            .body(Empty::<bytes::Bytes>::new())
            .map_err(|e| e.to_string())?;
        sender.send_request(request).await.map_err(text)
    }
}

/// The body of a short answer.
async fn whole(answer: Response<Incoming>) -> Result<Vec<u8>, String> {
    let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await.map_err(|e| e.to_string())?;
    Ok(body.to_bytes().to_vec())
}

/// A body as it comes, of this length.
pub(super) struct Pieces<'a> {
    server: &'a Server,
    pub(super) len: u64,
    body: Incoming,
}

impl Iterator for Pieces<'_> {
    type Item = Result<bytes::Bytes, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let frame = self.server.runtime.block_on(self.body.frame())?;
        let why = |e: hyper::Error| self.server.failed(format!("{e}; what was written is not whole"));
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(why))
    }
}

/// The server of an argument that may name one instead of a store.
pub(super) fn named(argument: &Path, token: &Token) -> Result<Option<Server>, Failure> {
    let text = argument.to_str().filter(|text| text.starts_with("http://"));
    let admin = text.map(|text| text.parse::<Uri>().map_err(|e| Failure::Usage(format!("{text}: {e}"))));
    admin.transpose()?.map(|admin| Server::new(&admin, token)).transpose()
}

/// Percent-encoded but for what means nothing in a query.
pub(super) fn encoded(url: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    url.bytes().map(byte).collect()
}

/// The text at a place of an answer, made harmless; empty if there is none.
pub(super) fn word(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).map(key::harmless).unwrap_or_default()
}

/// The number at a place of an answer, 0 if there is none.
pub(super) fn number(value: &Value, at: &str) -> u64 {
    value.pointer(at).and_then(Value::as_u64).unwrap_or(0)
}

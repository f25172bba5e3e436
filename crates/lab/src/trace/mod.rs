//! Traces: recorded sequences of requests, whatever log they come from.

/// What a request asks for, as far as it is known: pages bring embedded objects with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A page: an HTML document.
    Page,
    /// Anything else, by its extension: an image, a style sheet, an archive.
    Part,
    /// The trace does not say.
    #[default]
    Unknown,
}

/// One request of a trace. Keys, clients and servers are hashes of what the log calls them, so that a reader needs
/// no memory of the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Milliseconds, since 1970 or since the trace began.
    pub time: u64,
    /// The object.
    pub key: u64,
    /// Bytes of its body, as this line has it. Of answers without a body, and where the trace does not say, 0.
    pub size: u64,
    /// Who asked; 0 if unknown.
    pub client: u64,
    /// Origin server; 0 if unknown.
    pub server: u64,
    /// The object that led to this one; 0 if unknown.
    pub referer: u64,
    /// Page or part of one.
    pub kind: Kind,
    /// Changes when the object's content does; 0 where the trace does not say.
    pub version: u32,
}

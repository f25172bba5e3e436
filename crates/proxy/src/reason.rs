//! Why something was not done. Closed lists: every refusal, bypass and failure of the proxy is one of these
//! names, and the same name stands in `Cache-Status`, in the metrics and in the access log.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $text:literal),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All of them, in the order of their counters.
            pub(crate) const ALL: &'static [$name] = &[$(Self::$variant),+];

            /// The name as users see it.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    )+};
}

reasons! {
    /// What became of a request, one counter each.
    Outcome {
        /// Answered from memory by the fast path.
        HitFast => "hit-fast",
        /// Answered from memory.
        HitMemory => "hit-memory",
        /// Answered from the device, or from a buffer on its way there.
        HitDevice => "hit-device",
        /// A stale response was served: revalidating in the background, or the origin failed.
        HitStale => "hit-stale",
        /// The origin confirmed the stored response.
        Revalidated => "revalidated",
        /// Streamed from another request's fetch.
        Collapsed => "collapsed",
        /// Fetched from the origin.
        Miss => "miss",
        /// Fetched past the cache.
        Bypass => "bypass",
        /// A CONNECT tunnel.
        Tunnel => "tunnel",
        /// Refused by the proxy.
        Denied => "denied",
        /// The origin could not answer and nothing stored may be served.
        Failed => "failed",
    }

    /// Why a response was not stored (RFC 9111 section 3 and our limits).
    NotStored {
        /// Only GET responses are stored.
        Method => "method",
        /// The status is not understood or never stored.
        Status => "status",
        /// The response says `no-store`.
        NoStore => "no-store",
        /// The request says `no-store`.
        RequestNoStore => "request-no-store",
        /// The response is for one user.
        Private => "private",
        /// The request carried `Authorization` and the response does not allow sharing.
        Authorization => "authorization",
        /// `Vary: *`, or by the client's address.
        VaryStar => "vary-star",
        /// `Set-Cookie` without `public` or `s-maxage`.
        SetCookie => "set-cookie",
        /// No lifetime, explicit or heuristic, and no validator.
        NoFreshness => "no-freshness",
        /// A part of a body.
        Partial => "partial",
        /// Larger than `cache.max_object`.
        TooLarge => "too-large",
        /// Head fields longer than the store's metadata.
        HeadTooLarge => "head-too-large",
        /// More than 1,024 tags and groups.
        TooManyTags => "too-many-tags",
        /// The body ended before its length.
        Truncated => "truncated",
        /// An error without a lifetime, and the URL has a fresh 200.
        FreshStays => "fresh-stays",
        /// An unsafe method or a purge touched the URL during the fetch.
        Invalidated => "invalidated",
        /// What is stored came after this response's head.
        Superseded => "superseded",
        /// The store declined.
        StoreRefused => "store-refused",
        /// The store failed.
        StoreFailed => "store-failed",
        /// Caching is off.
        Off => "cache-off",
    }

    /// Why the store was not asked, or its answer not waited for.
    Bypass {
        /// The request says `no-store`.
        RequestNoStore => "request-no-store",
        /// A GET with a body.
        RequestBody => "request-body",
        /// Not GET or HEAD.
        Method => "method",
        /// A rule says so.
        Rule => "rule",
        /// A range of an object too large to fetch whole.
        RangeTooLarge => "range-too-large",
        /// The origin does not send a slice that is asked for.
        SliceNotSent => "slice-not-sent",
        /// A recent response of this URL was for one client, so no request waits for one.
        RecentlyPrivate => "recently-private",
        /// A recent response of this URL could not be stored for another reason, so no request waits for one.
        RecentlyNotStored => "recently-not-stored",
        /// The beginning of the fetch in progress is in the store only, and its end is far.
        CollapseLate => "collapse-late",
        /// The response of the fetch waited for is not for this request.
        CollapseMismatch => "collapse-mismatch",
        /// `If-Match` or `If-Unmodified-Since`: only the origin may judge them.
        Precondition => "precondition",
        /// A protocol upgrade was asked for.
        Upgrade => "upgrade",
        /// A front names another host than `Host`, or several schemes.
        Disputed => "front-disputed",
        /// A range or a condition of a request with `Authorization`, whose answer is seldom shared.
        Authorization => "authorization",
    }

    /// Why a request was refused.
    Denied {
        /// No host, several, or not a host.
        BadHost => "bad-host",
        /// The request target is not one we serve.
        BadTarget => "bad-target",
        /// The URL is longer than 8,000 bytes.
        UrlTooLong => "url-too-long",
        /// Both `Content-Length` and `Transfer-Encoding`, several lengths, or one that is no number.
        AmbiguousLength => "ambiguous-length",
        /// The head is not HTTP/1.
        Malformed => "malformed",
        /// HTTP/2 without TLS.
        PlainHttp2 => "plain-http2",
        /// More fields than a head may have, or longer ones.
        HeadTooLarge => "head-too-large",
        /// A transfer coding other than `chunked`.
        TransferCoding => "transfer-coding",
        /// `Expect` wants something other than `100-continue`.
        Expectation => "expectation",
        /// CONNECT with a body.
        ConnectBody => "connect-body",
        /// The request's body is not HTTP, or it broke off.
        BrokenBody => "broken-body",
        /// The request's body is longer than `limits.upload_max`.
        UploadTooLong => "upload-too-long",
        /// The request's body comes slower than `limits.upload_rate`.
        UploadTooSlow => "upload-too-slow",
        /// This client may not use the proxy to go elsewhere.
        ForwardClient => "forward-client",
        /// The forward side asks for the credentials of a user (`forward.users`), and there are none, or wrong ones.
        Credentials => "credentials",
        /// No entry of `forward.access` lets it go there.
        ForwardAccess => "forward-access",
        /// Forwarding is off.
        ForwardOff => "forward-off",
        /// CONNECT to a port outside `forward.connect_ports`.
        ConnectPort => "connect-port",
        /// The destination is this proxy.
        SelfDestination => "self-destination",
        /// The destination is on this machine or its link, and the client is not.
        LocalDestination => "local-destination",
        /// The request came through this proxy before (`Via`).
        Loop => "loop",
        /// No origin is configured for the host.
        NoOrigin => "no-origin",
        /// TRACE, or PURGE outside the admin listener.
        Method => "method-not-allowed",
        /// `only-if-cached` and nothing stored.
        OnlyIfCached => "only-if-cached",
        /// `https` URLs are reached through CONNECT.
        Scheme => "scheme",
        /// An extended CONNECT (RFC 8441) to a protocol that it may not switch to.
        UpgradeProtocol => "upgrade-protocol",
        /// The client has `limits.connections_per_client`.
        ClientConnections => "client-connections",
        /// A client of HTTP/2 that resets what it has just asked for, again and again.
        RapidReset => "rapid-reset",
        /// A connection from a trusted network that does not begin with a PROXY header.
        ProxyHeader => "proxy-header",
    }

    /// How an origin failed.
    OriginFailure {
        /// The name does not resolve.
        Resolve => "resolve",
        /// No server accepts.
        Connect => "connect",
        /// `limits.connect_timeout` passed.
        ConnectTimeout => "connect-timeout",
        /// `limits.response_timeout` passed before the head.
        ResponseTimeout => "response-timeout",
        /// `limits.body_timeout` passed between two pieces of the body.
        BodyTimeout => "body-timeout",
        /// It did not answer a moment ago, and `limits.origin_pause` is not over.
        Paused => "paused",
        /// It has `limits.origin_connections` requests, and too many wait, or for too long.
        Busy => "origin-busy",
        /// Its body came slower than `limits.origin_rate`.
        BodySlow => "body-slow",
        /// Its certificate is of no authority that is trusted.
        TlsUntrusted => "tls-untrusted",
        /// Its certificate has expired, or does not count yet.
        TlsExpired => "tls-expired",
        /// Its certificate is for other names.
        TlsName => "tls-name",
        /// Something else is wrong with its certificate.
        TlsCertificate => "tls-certificate",
        /// It does not speak TLS, or nothing of it that both have, or the connection ended in it.
        TlsHandshake => "tls-handshake",
        /// It does not take the certificate that it is shown, or wants one.
        TlsRefused => "tls-refused",
        /// Its redirects do not end, or are more than `rule.follow_redirects`.
        RedirectLoop => "redirect-loop",
        /// The page is put together of fragments, and its markup is not well formed, or a fragment is not to be had.
        Esi => "esi",
        /// It redirects to this proxy, this machine or a private network.
        RedirectRefused => "redirect-refused",
        /// What came is not HTTP/1.
        Protocol => "protocol",
        /// The connection ended before the answer.
        Closed => "closed",
    }
}

reasons! {
    /// What became of a slice of a large object that an answer wanted.
    SliceOutcome {
        /// It was in the store.
        Hit => "hit",
        /// This answer had the origin asked for it.
        Miss => "miss",
        /// Another answer had.
        Collapsed => "collapsed",
        /// The origin has another version by now, or none.
        Changed => "changed",
        /// The origin did not send it, but something that says nothing of the object.
        Refused => "refused",
        /// The origin failed.
        Failed => "failed",
        /// It is not in the store, and the client wants nothing of the origin.
        OnlyIfCached => "only-if-cached",
        /// A first one whose origin gives it no strong validator, or does not let it be stored: the whole is asked for.
        Unfit => "unfit",
    }

    /// Why a handshake with a client failed.
    TlsFailure {
        /// It does not begin as TLS does: HTTP, mostly.
        NotTls => "not-tls",
        /// No version, cipher or kind of key that both have.
        NothingInCommon => "nothing-in-common",
        /// None of the client's protocols (ALPN) is ours.
        NoProtocol => "no-protocol",
        /// The client does not go on, for it does not like the certificate or something else.
        Refused => "client-refused",
        /// The client's certificate is missing, or is not one that is taken.
        ClientCertificate => "client-certificate",
        /// `limits.handshake_timeout` passed.
        Timeout => "timeout",
        /// The connection ended.
        Closed => "closed",
        /// What came is not TLS as it should be.
        Protocol => "protocol",
    }

    /// Why a body ended early. The connection is closed then, so that the client notices.
    Broken {
        /// The origin's body broke off.
        Origin => "origin-broke-off",
        /// Every client left.
        Abandoned => "abandoned",
        /// The fetch went on without this reader, and the response was not stored.
        LeftBehind => "left-behind",
        /// The store lost a part of it, and there is no origin to ask for the rest.
        Store => "cut-unreadable",
        /// The same, and it has no strong validator by which the origin could be asked for the rest of it.
        NoValidator => "cut-no-validator",
        /// The same, or a slice is missing, and the origin has another version, or does not send what is missing of
        /// this one.
        OriginChanged => "cut-origin-changed",
        /// The same, or a slice is missing, and the origin failed.
        OriginFailed => "cut-origin-failed",
        /// The same, or a slice is missing, and the client wants nothing of the origin.
        OnlyIfCached => "cut-only-if-cached",
        /// A page is put together of fragments, and its markup is not well formed, or a fragment is not to be had.
        Esi => "cut-esi",
    }
}

impl std::error::Error for Broken {}

/// What the log says of a body whose rest came from the origin, for the store's broke off.
pub(crate) const REST_FROM_ORIGIN: &str = "rest-from-origin";

impl Bypass {
    /// What later requests of a URL pass by, whose response was not stored.
    pub(crate) fn like(why: NotStored) -> Self {
        match why {
            NotStored::Private | NotStored::SetCookie => Self::RecentlyPrivate,
            _ => Self::RecentlyNotStored,
        }
    }
}

/// Why there is no response to pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The origin failed.
    Failed(OriginFailure),
    /// It must not be asked, or the client broke off what was to be sent.
    Denied(Denied),
}

impl NoAnswer {
    /// Whether the origin may have had the request, and done what it says.
    pub(crate) fn may_be_done(self) -> bool {
        match self {
            Self::Failed(why) => !matches!(
                why,
                OriginFailure::Resolve
                    | OriginFailure::Connect
                    | OriginFailure::ConnectTimeout
                    | OriginFailure::TlsUntrusted
                    | OriginFailure::TlsExpired
                    | OriginFailure::TlsName
                    | OriginFailure::TlsCertificate
                    | OriginFailure::TlsHandshake
                    | OriginFailure::TlsRefused
                    | OriginFailure::Paused
                    | OriginFailure::Busy
            ),
            Self::Denied(why) => {
                matches!(why, Denied::BrokenBody | Denied::UploadTooLong | Denied::UploadTooSlow)
            }
        }
    }
}

impl From<OriginFailure> for NoAnswer {
    fn from(failure: OriginFailure) -> Self {
        Self::Failed(failure)
    }
}

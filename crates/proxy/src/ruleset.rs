//! The operator's rules: what is done otherwise for some hosts and paths. All rules that match count, in their order;
//! of two that say something of the same, the later one.
//!
//! A rule speaks of the request before anything is looked for (key, bypass, directives, fields), and of the response
//! when it comes, before it is judged (fields, lifetime, size). So what is stored is what the rule made of it, and the
//! fast path, which knows no rules, is right for all requests of which no rule changes the first.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use parking_lot::RwLock;

use crate::{
    config::{CacheConfig, ClientDirectives, LowRule, Size, Span},
    device,
    esi::page,
    follow::{self, Listed},
    key,
    reason::NotStored,
    replace::Replace,
    rules::{
        Policy,
        admit::{self, Exchange},
        vary,
    },
    slices, upgrade, wild,
};

/// A slice waits for the device as a whole, and is fetched to its end.
const LARGEST_SLICE: u64 = 1 << 30;

/// What a request and its response meet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Action {
    ttl: Option<u64>,
    stale_while_revalidate: Option<u64>,
    stale_if_error: Option<u64>,
    pub(crate) bypass: bool,
    /// Clients differ by the class of their device.
    pub(crate) device_class: bool,
    pub(crate) client_directives: Option<ClientDirectives>,
    pub(crate) max_object: Option<u64>,
    /// Bytes of a slice.
    pub(crate) slice: Option<u64>,
    pub(crate) follow_redirects: Option<u8>,
    pub(crate) follow_hosts: Option<Arc<[Listed]>>,
    pub(crate) replace: Option<Replace>,
    /// Pages may be of fragments.
    pub(crate) esi: bool,
    /// Protocols that may be switched to, where it is not WebSocket.
    pub(crate) upgrade: Option<Arc<[String]>>,
    query_keep: Option<Arc<[String]>>,
    query_drop: Option<Arc<[String]>>,
    query_sort: bool,
    request: Fields,
    response: Fields,
}

#[derive(Debug, Clone, Default)]
struct Fields {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
}

impl Fields {
    fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
    }

    fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty()
    }
}

impl Action {
    /// The fields that the origin gets, and by which variants are selected.
    pub(crate) fn on_request(&self, headers: &mut HeaderMap) {
        self.request.apply(headers);
        if self.esi {
            page::announce(headers);
        }
        if self.esi || self.replace.is_some() {
            // What is compressed cannot be read.
            headers.remove(header::ACCEPT_ENCODING);
        }
        if self.device_class {
            device::tell(headers);
        }
    }

    /// The fields of what the origin sent.
    pub(crate) fn on_response(&self, headers: &mut HeaderMap) {
        self.response.apply(headers);
        if self.device_class {
            device::vary(headers);
        }
    }

    /// The names of the fields that select among the responses of a URL; `None` if nothing does.
    pub(crate) fn selecting(&self, response: &HeaderMap, for_origin: bool) -> Option<Vec<String>> {
        let mut names = vary::names(response, for_origin)?;
        if self.device_class {
            device::selecting(&mut names);
        }
        Some(names)
    }

    /// As [`admit::admit`], with what the rules say of it.
    pub(crate) fn admit(&self, exchange: &Exchange<'_>, config: &CacheConfig) -> Result<Policy, NotStored> {
        let is_meant = matches!(exchange.status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308);
        let admitted = admit::admit(exchange, config);
        let mut policy = match (admitted, self.ttl.filter(|ttl| is_meant && *ttl > 0)) {
            (Err(NotStored::NoFreshness), Some(_)) => Policy::of(exchange.received, 0),
            (admitted, _) => admitted?,
        };
        if let Some(ttl) = self.ttl.filter(|_| is_meant) {
            policy.lifetime = ttl;
            if ttl > 0 {
                (policy.no_cache, policy.must_revalidate) = (false, false);
            }
        }
        policy.stale_while_revalidate = self.stale_while_revalidate.unwrap_or(policy.stale_while_revalidate);
        policy.stale_if_error = self.stale_if_error.or(policy.stale_if_error);
        Ok(policy)
    }

    /// Path and query as the origin is asked for them and as they are in the key; `None` if they stay as they are.
    pub(crate) fn path(&self, path_and_query: &str) -> Option<String> {
        if !self.changes_query() {
            return None;
        }
        let (path, query) = path_and_query.split_once('?')?;
        let is_in = |list: &Option<Arc<[String]>>, name: &str| {
            list.as_ref().map(|list| list.iter().any(|pattern| wild::matches(pattern, name.as_bytes())))
        };
        let name = |part: &&str| part.split('=').next().unwrap_or_default().to_owned();
        let mut parts: Vec<&str> = query
            .split('&')
            .filter(|part| is_in(&self.query_keep, &name(part)).unwrap_or(true))
            .filter(|part| !is_in(&self.query_drop, &name(part)).unwrap_or(false))
            .collect();
        if self.query_sort {
            // By names only: of two of one name the order may mean something.
            parts.sort_by_key(name);
        }
        let changed = if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) };
        (changed != path_and_query).then_some(changed)
    }

    fn changes_query(&self) -> bool {
        self.query_keep.is_some() || self.query_drop.is_some() || self.query_sort
    }

    /// Whether an answer of the origin is not just passed on.
    pub(crate) fn changes_answers(&self) -> bool {
        self.replace.is_some() || self.follow_redirects.is_some_and(|most| most > 0)
    }

    /// Whether requests are looked for otherwise than without it.
    fn is_of_requests(&self) -> bool {
        self.bypass
            || self.esi
            || self.replace.is_some()
            || self.device_class
            || self.changes_query()
            || !self.request.is_empty()
    }

    fn add(&mut self, later: &Self) {
        let Self { ttl, stale_while_revalidate, stale_if_error, client_directives, max_object, slice, .. } = later;
        self.ttl = ttl.or(self.ttl);
        self.stale_while_revalidate = stale_while_revalidate.or(self.stale_while_revalidate);
        self.stale_if_error = stale_if_error.or(self.stale_if_error);
        self.client_directives = client_directives.or(self.client_directives);
        self.max_object = max_object.or(self.max_object);
        self.slice = slice.or(self.slice);
        self.follow_redirects = later.follow_redirects.or(self.follow_redirects);
        self.follow_hosts = later.follow_hosts.clone().or(self.follow_hosts.take());
        self.replace = later.replace.clone().or(self.replace.take());
        self.upgrade = later.upgrade.clone().or(self.upgrade.take());
        self.bypass |= later.bypass;
        self.esi |= later.esi;
        self.device_class |= later.device_class;
        if later.changes_query() {
            self.query_keep.clone_from(&later.query_keep);
            self.query_drop.clone_from(&later.query_drop);
            self.query_sort = later.query_sort;
        }
        for (fields, of_later) in [(&mut self.request, &later.request), (&mut self.response, &later.response)] {
            // What is set later is not to be removed by what came before.
            fields.set.retain(|(name, _)| !of_later.remove.contains(name));
            fields.remove.extend(of_later.remove.iter().cloned());
            fields.set.extend(of_later.set.iter().cloned());
        }
    }
}

#[derive(Debug)]
struct Rule {
    host: Option<String>,
    path: Option<String>,
    action: Arc<Action>,
}

impl Rule {
    fn matches(&self, host: &[u8], path: &[u8]) -> bool {
        let without_port = || host.rsplitn(2, |byte| *byte == b':').last().unwrap_or(host);
        self.host.as_ref().is_none_or(|pattern| wild::matches(pattern, host) || wild::matches(pattern, without_port()))
            && self.path.as_ref().is_none_or(|pattern| wild::matches(pattern, path))
    }
}

/// Rules, checked.
#[derive(Debug, Default)]
pub(crate) struct Ruleset {
    rules: Vec<Rule>,
    none: Arc<Action>,
}

/// What is wrong with a rule: the key, and why.
pub(crate) type BadRule = (&'static str, String);

impl Ruleset {
    /// # Errors
    /// Of the first value that cannot work.
    pub(crate) fn new(low: &[LowRule]) -> Result<Self, BadRule> {
        let rules = low.iter().map(rule).collect::<Result<_, _>>()?;
        Ok(Self { rules, none: Arc::default() })
    }

    /// What is done with requests for this host, in its normal form, and this path, a query behind it.
    pub(crate) fn action(&self, host: &[u8], path: &[u8]) -> Arc<Action> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or(path);
        let mut matching = self.rules.iter().filter(|rule| rule.matches(host, path));
        let Some(first) = matching.next() else { return self.none.clone() };
        let mut action = first.action.clone();
        for rule in matching {
            Arc::make_mut(&mut action).add(&rule.action);
        }
        action
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there may be a request that may switch to another protocol.
    fn may_upgrade(&self) -> bool {
        self.rules.iter().fold(true, |may, rule| match &rule.action.upgrade {
            Some(protocols) if !protocols.is_empty() => true,
            Some(_) => may && (rule.host.is_some() || rule.path.is_some()),
            None => may,
        })
    }

    /// A slice that is longer than the largest body stored, where no rule says otherwise.
    pub(crate) fn too_long_slice(&self, max_object: u64) -> Option<u64> {
        let own = self.rules.iter().filter(|rule| rule.action.max_object.is_none());
        own.filter_map(|rule| rule.action.slice).find(|slice| *slice > max_object)
    }
}

fn rule(low: &LowRule) -> Result<Rule, BadRule> {
    let millis = |span: &Option<Span>| span.map(Span::millis);
    let host = low.host.as_ref().map(|host| host.to_ascii_lowercase());
    if let Some(host) = host.as_ref().filter(|host| host.is_empty() || host.contains(['/', ' '])) {
        return Err(("host", format!("`{host}` is no host, such as example.org, *.example.org or example.org:8080")));
    }
    if let Some(path) = low.path.as_ref().filter(|path| !path.starts_with(['/', '*']) || path.contains(['?', ' '])) {
        return Err(("path", format!("`{path}` does not begin with `/` or `*`, or has a query, such as /img/*")));
    }
    let names = |key, names: &Option<Vec<String>>| -> Result<Option<Arc<[String]>>, BadRule> {
        if let Some(bad) = names.iter().flatten().find(|name| name.is_empty() || name.contains(['&', '=', '?'])) {
            return Err((key, format!("`{bad}` is no name of a parameter, such as utm_* or page")));
        }
        Ok(names.clone().map(Arc::from))
    };
    let action = Action {
        ttl: millis(&low.ttl),
        stale_while_revalidate: millis(&low.stale_while_revalidate),
        stale_if_error: millis(&low.stale_if_error),
        bypass: low.bypass.unwrap_or(false),
        device_class: low.device_class.unwrap_or(false),
        client_directives: low.client_directives,
        max_object: low.max_object.map(|size| size.0),
        slice: slice(low)?,
        follow_redirects: follow_redirects(low)?,
        follow_hosts: follow_hosts(low)?,
        replace: replace(low)?,
        esi: low.esi.unwrap_or(false),
        upgrade: low.upgrade.as_deref().map(upgrade::protocols).transpose().map_err(|why| ("upgrade", why))?,
        query_keep: names("query_keep", &low.query_keep)?,
        query_drop: names("query_drop", &low.query_drop)?,
        query_sort: low.query_sort.unwrap_or(false),
        request: fields(("request_remove", &low.request_remove), ("request_set", &low.request_set))?,
        response: fields(("response_remove", &low.response_remove), ("response_set", &low.response_set))?,
    };
    Ok(Rule { host, path: low.path.clone(), action: Arc::new(action) })
}

/// One that is stored as it is, whatever else is.
fn slice(low: &LowRule) -> Result<Option<u64>, BadRule> {
    let Some(Size(size)) = low.slice else { return Ok(None) };
    if !(slices::SMALLEST..=LARGEST_SLICE).contains(&size) || size % 1024 != 0 {
        return Err(("slice", format!("`{}` is not whole KiB between 64 KiB and 1 GiB, such as 8MiB", Size(size))));
    }
    if low.bypass == Some(true) {
        return Err((
            "slice",
            "`bypass` beside it keeps every slice out of the store; leave out one of the two".into(),
        ));
    }
    if let Some(max) = low.max_object.filter(|max| max.0 < size) {
        return Err(("slice", format!("{} is more than max_object, {max}: no slice would be stored", Size(size))));
    }
    Ok(Some(size))
}

fn follow_redirects(low: &LowRule) -> Result<Option<u8>, BadRule> {
    match low.follow_redirects {
        Some(most) if most > follow::MOST => {
            Err(("follow_redirects", format!("{most} is more than {}; 3 does for most origins", follow::MOST)))
        }
        most => Ok(most),
    }
}

fn follow_hosts(low: &LowRule) -> Result<Option<Arc<[Listed]>>, BadRule> {
    let Some(hosts) = &low.follow_hosts else { return Ok(None) };
    if low.follow_redirects.is_none() {
        return Err(("follow_hosts", "no redirect is followed without follow_redirects, such as 3".into()));
    }
    let listed = hosts.iter().map(|host| Listed::parse(host).map_err(|why| ("follow_hosts", why)));
    listed.collect::<Result<_, _>>().map(Some)
}

fn replace(low: &LowRule) -> Result<Option<Replace>, BadRule> {
    let Some(texts) = &low.replace else { return Ok(None) };
    if low.slice.is_some() {
        return Err(("replace", "`slice` beside it is of what the origin has; leave out one of the two".into()));
    }
    Replace::new(texts).map(Some).map_err(|why| ("replace", why))
}

type Lines = std::collections::BTreeMap<String, String>;

fn fields(
    (of_remove, remove): (&'static str, &Option<Vec<String>>),
    (of_set, set): (&'static str, &Option<Lines>),
) -> Result<Fields, BadRule> {
    let mut fields = Fields::default();
    for text in remove.iter().flatten() {
        fields.remove.push(name(of_remove, text)?);
    }
    for (text, value) in set.iter().flatten() {
        let bad = |_| (of_set, format!("the value of `{text}` is not one line of text"));
        fields.set.push((name(of_set, text)?, HeaderValue::from_str(value).map_err(bad)?));
    }
    Ok(fields)
}

/// A field that is not part of how messages are framed and routed.
fn name(key: &'static str, text: &str) -> Result<HeaderName, BadRule> {
    let name = HeaderName::try_from(text).map_err(|_| (key, format!("`{text}` is no name of a field")))?;
    let ours = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
        header::RANGE,
        header::CONTENT_RANGE,
        header::VIA,
        header::AGE,
        header::EXPECT,
    ];
    if ours.contains(&name) {
        return Err((key, format!("`{text}` is the proxy's own: it says how messages end and where they go")));
    }
    Ok(name)
}

/// The rules that run.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    current: RwLock<Arc<Ruleset>>,
    of_requests: AtomicBool,
}

impl Rules {
    pub(crate) fn new(rules: Ruleset) -> Self {
        let all = Self::default();
        all.replace(rules);
        all
    }

    /// Requests from now on have these.
    pub(crate) fn replace(&self, rules: Ruleset) {
        let of_requests = rules.rules.iter().any(|rule| rule.action.is_of_requests());
        let mut current = self.current.write();
        *current = Arc::new(rules);
        self.of_requests.store(of_requests, Release);
    }

    /// See [`Ruleset::action`].
    pub(crate) fn action(&self, host: &[u8], path: &[u8]) -> Arc<Action> {
        self.current.read().action(host, path)
    }

    /// See [`Ruleset::may_upgrade`].
    pub(crate) fn may_upgrade(&self) -> bool {
        self.current.read().may_upgrade()
    }

    /// Whether a request may be looked for as it stands; `url_key` is its key.
    #[inline]
    pub(crate) fn leaves_alone(&self, url_key: &[u8]) -> bool {
        !self.of_requests.load(Acquire) || self.leaves_this_alone(url_key)
    }

    fn leaves_this_alone(&self, url_key: &[u8]) -> bool {
        parts(url_key).is_some_and(|(host, path)| !self.action(host, path).is_of_requests())
    }

    /// What becomes of what requests with this key say of caches, where a rule tells.
    pub(crate) fn client_directives(&self, url_key: &[u8]) -> Option<ClientDirectives> {
        parts(url_key).and_then(|(host, path)| self.action(host, path).client_directives)
    }

    /// The URL of a key, by `http`, as it is stored, if that is another one.
    pub(crate) fn stored_as(&self, url_key: &[u8]) -> Option<String> {
        let (host, path) = parts(url_key)?;
        let changed = self.action(host, path).path(std::str::from_utf8(path).ok()?)?;
        Some(format!("http://{}{changed}", std::str::from_utf8(host).ok()?))
    }
}

/// Host, and path with query, of a key.
fn parts(url_key: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = key::without_scheme(url_key)?;
    Some(rest.split_at(rest.iter().position(|byte| *byte == b'/')?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Low;

    fn rules(text: &str) -> Result<Ruleset, BadRule> {
        Ruleset::new(&Low::parse("test.toml", text).unwrap().rule)
    }

    #[test]
    fn the_query_is_kept_dropped_and_sorted_by_names() {
        let path = |keys: &str, path: &str| {
            let rules = rules(&format!("[[rule]]\nhost = \"*.example\"\npath = \"/a*\"\n{keys}\n")).unwrap();
            rules.action(b"www.example:8080", path.as_bytes()).path(path)
        };
        for (keys, from, to) in [
            ("query_drop = [\"utm_*\"]", "/a?utm_x=1&b=2&utm_y", Some("/a?b=2")),
            ("query_drop = [\"utm_*\"]", "/a?b=2", None),
            ("query_drop = [\"utm_*\"]", "/b?utm_x=1", None),
            ("query_keep = []", "/a?b=2", Some("/a")),
            ("query_keep = [\"page\", \"q\"]", "/a/b?x&q=1&page=2&q=0", Some("/a/b?q=1&page=2&q=0")),
            ("query_sort = true", "/a?c=1&b=2&c=0", Some("/a?b=2&c=1&c=0")),
            ("query_sort = true", "/a", None),
        ] {
            assert_eq!(path(keys, from).as_deref(), to, "{keys} {from}");
        }
    }

    #[test]
    fn later_rules_win_and_the_fast_path_keeps_out_of_those_of_requests() {
        let rules = rules(
            "[[rule]]\nttl = \"1h\"\nresponse_remove = [\"set-cookie\"]\n\
             [[rule]]\npath = \"/api/*\"\nttl = \"1s\"\nbypass = true\n",
        )
        .unwrap();
        let action = rules.action(b"a", b"/api/x?q");
        assert!(action.bypass && action.ttl == Some(1000) && action.response.remove == [header::SET_COOKIE]);
        assert_eq!(rules.action(b"a", b"/x").ttl, Some(3_600_000));
        let rules = Rules::new(rules);
        assert!(rules.leaves_alone(b"origin://a/x") && !rules.leaves_alone(b"origin+https://a/api/x?q"));
    }

    #[test]
    fn upgrades_are_off_where_no_rule_lets_any_through() {
        for (text, may) in [
            ("", true),
            ("upgrade = []", false),
            ("path = \"/a\"\nupgrade = []", true),
            ("upgrade = []\n[[rule]]\npath = \"/chat\"\nupgrade = [\"websocket\"]", true),
        ] {
            assert_eq!(rules(&format!("[[rule]]\n{text}\n")).unwrap().may_upgrade(), may, "{text}");
        }
    }

    #[test]
    fn what_cannot_work_is_named() {
        for (text, key) in [
            ("host = \"http://a\"", "host"),
            ("path = \"img/*\"", "path"),
            ("path = \"/x?y\"", "path"),
            ("query_drop = [\"a=b\"]", "query_drop"),
            ("request_remove = [\"Host\"]", "request_remove"),
            ("response_set = { \"a b\" = \"c\" }", "response_set"),
            ("response_set = { \"a\" = \"b\\nc\" }", "response_set"),
            ("follow_redirects = 11", "follow_redirects"),
            ("follow_hosts = [\"a.example\"]", "follow_hosts"),
            ("follow_redirects = 1\nfollow_hosts = [\"*\"]", "follow_hosts"),
            ("replace = { \"\" = \"b\" }", "replace"),
            ("replace = {}", "replace"),
            ("slice = \"64KiB\"\nreplace = { a = \"b\" }", "replace"),
            ("upgrade = [\"h2c\"]", "upgrade"),
            ("upgrade = [\"TLS/1.0\"]", "upgrade"),
            ("upgrade = [\"a, b\"]", "upgrade"),
            ("slice = \"32KiB\"", "slice"),
            ("slice = \"100001 B\"", "slice"),
            ("slice = \"2GiB\"", "slice"),
            ("slice = \"1MiB\"\nbypass = true", "slice"),
            ("slice = \"2MiB\"\nmax_object = \"1MiB\"", "slice"),
        ] {
            assert_eq!(rules(&format!("[[rule]]\n{text}\n")).unwrap_err().0, key, "{text}");
        }
    }
}

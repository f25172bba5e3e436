//! Users of the forward side: which of them sends a request, by the password or the token in `Proxy-Authorization`.
//!
//! * The file has hashes only: of a password by bcrypt, as `htpasswd -B` makes it, of a token by SHA-256, for a token
//!   is long and random. What is wrong with it is refused as a whole.
//! * bcrypt takes as long as a hundred requests. So it runs beside the workers, few at one time, and what it found
//!   right is remembered, sealed by a key of this process, until the file is read anew. For a name that there is not it
//!   runs all the same, so a refusal does not tell by its time which names there are.
//! * What is looked up is sealed, too: comparing seals tells nothing of what was sealed.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs,
    path::Path,
    str::FromStr,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bcrypt::HashParts;
use http::{HeaderMap, header};
use parking_lot::{Mutex, RwLock};
use ring::{digest, hmac};
use tokio::sync::Semaphore;

use crate::{
    access::{Access, Going},
    config::LowAccess,
    reason::Denied,
};

/// So many passwords are remembered; then all are forgotten.
const MOST: usize = 4096;
/// So many are checked at one time.
const CHECKS: usize = 2;
/// A check by bcrypt of more than this takes a second and more.
const HIGHEST_COST: u32 = 14;
/// What is checked for a name that there is not: of cost 10, and of no password that is known.
const NO_USER: &str = "$2y$10$abcdefghijklmnopqrstuugdwVNqp4gr1BH80N2xdhlUTG/32dWxe";

type Seal = [u8; 32];

/// Users, as a file has them.
#[derive(Debug)]
pub(crate) struct Users {
    passwords: HashMap<String, (Arc<str>, Arc<str>)>,
    tokens: HashMap<Seal, Arc<str>>,
    verified: Mutex<HashMap<Seal, Arc<str>>>,
    checks: Semaphore,
    key: hmac::Key,
}

/// Users and what they may, as it counts now.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    current: RwLock<Current>,
    /// No client is asked for anything.
    is_open: AtomicBool,
}

/// Without users any client of the networks may.
#[derive(Debug, Default, Clone)]
struct Current {
    users: Option<Arc<Users>>,
    access: Arc<Access>,
}

impl Accounts {
    /// Of the file, if there is one, and of the entries of who may go where.
    ///
    /// # Errors
    /// The key whose value will not do, and why.
    pub(crate) fn read(file: Option<&Path>, access: &[LowAccess]) -> Result<Self, (String, String)> {
        let users = file.map(Users::read).transpose().map_err(|why| ("forward.users".to_owned(), why))?;
        let access = Access::new(access, users.as_ref().map(Users::names).as_deref());
        let access = access.map_err(|(key, why)| (format!("forward.access.{key}"), why))?;
        let is_open = AtomicBool::new(users.is_none() && access.is_empty());
        Ok(Self { current: RwLock::new(Current { users: users.map(Arc::new), access: Arc::new(access) }), is_open })
    }

    /// From now on `new` counts.
    pub(crate) fn replace(&self, new: Self) {
        let mut current = self.current.write();
        *current = new.current.into_inner();
        self.is_open.store(new.is_open.into_inner(), Release);
    }

    /// Whether no client is asked for anything, and all may go everywhere.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Acquire)
    }

    /// Whether it may go there.
    pub(crate) fn may(&self, going: &Going<'_>) -> Result<(), Denied> {
        self.current.read().access.check(going)
    }

    /// Whose request this is, where that is asked.
    pub(crate) async fn of(&self, headers: &HeaderMap) -> Result<Option<Arc<str>>, Denied> {
        let users = self.current.read().users.clone();
        match users {
            Some(users) => users.check(headers).await.map(Some).ok_or(Denied::Credentials),
            None => Ok(None),
        }
    }
}

impl Users {
    /// Reads a file of lines `NAME:HASH`.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let place = file.display();
        let text =
            fs::read_to_string(file).map_err(|e| format!("{place}: {e}; make it with htpasswd -B -c {place} NAME"))?;
        let random: Seal = rand::random();
        let mut users = Self {
            passwords: HashMap::new(),
            tokens: HashMap::new(),
            verified: Mutex::default(),
            checks: Semaphore::new(CHECKS),
            key: hmac::Key::new(hmac::HMAC_SHA256, &random),
        };
        for (n, line) in text.lines().map(str::trim).enumerate() {
            if !line.is_empty() && !line.starts_with('#') {
                users.add(line).map_err(|why| format!("{place}:{}: {why}", n + 1))?;
            }
        }
        if users.passwords.is_empty() && users.tokens.is_empty() {
            return Err(format!("{place}: has no user; add one with htpasswd -B {place} NAME"));
        }
        Ok(users)
    }

    /// The names of all.
    fn names(&self) -> Vec<&str> {
        self.passwords.keys().map(String::as_str).chain(self.tokens.values().map(|user| &**user)).collect()
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let (name, hash) = line.split_once(':').ok_or("not NAME:HASH, as htpasswd -B writes it")?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@+".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err("a name is up to 64 letters, digits and . _ - @ +".into());
        }
        let user: Arc<str> = name.into();
        if let Some(hex) = hash.strip_prefix("sha256:") {
            let hash = bytes_of(hex).ok_or("behind sha256: are not 64 hexadecimal digits, as sha256sum writes them")?;
            return match self.tokens.insert(self.seal(&hash), user) {
                None => Ok(()),
                Some(other) => Err(format!("the token is that of {other}, too")),
            };
        }
        let parts = HashParts::from_str(hash)
            .map_err(|_| format!("the hash of {name} is not one of bcrypt; make it with htpasswd -B"))?;
        if parts.get_cost() > HIGHEST_COST {
            return Err(format!("the cost of {name} is {}, at most {HIGHEST_COST}", parts.get_cost()));
        }
        match self.passwords.entry(name.to_owned()) {
            Entry::Vacant(room) => drop(room.insert((user, hash.into()))),
            Entry::Occupied(_) => return Err(format!("{name} is there twice")),
        }
        Ok(())
    }

    fn seal(&self, bytes: &[u8]) -> Seal {
        let mut seal = [0; 32];
        seal.copy_from_slice(hmac::sign(&self.key, bytes).as_ref());
        seal
    }

    async fn check(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let mut lines = headers.get_all(header::PROXY_AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else { return None };
        let (scheme, given) = line.to_str().ok()?.split_once(' ')?;
        let given = given.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            let hash = digest::digest(&digest::SHA256, given.as_bytes());
            return self.tokens.get(&self.seal(hash.as_ref())).cloned();
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let given = STANDARD.decode(given).ok()?;
        let seal = self.seal(&given);
        if let Some(user) = self.verified.lock().get(&seal) {
            return Some(user.clone());
        }
        let user = self.verify(given).await?;
        let mut verified = self.verified.lock();
        if verified.len() >= MOST {
            verified.clear();
        }
        verified.insert(seal, user.clone());
        Some(user)
    }

    /// Asks bcrypt.
    async fn verify(&self, given: Vec<u8>) -> Option<Arc<str>> {
        let at = given.iter().position(|byte| *byte == b':')?;
        let known = std::str::from_utf8(&given[..at]).ok().and_then(|name| self.passwords.get(name));
        let (user, hash) = known.cloned().map_or((None, NO_USER.into()), |(user, hash)| (Some(user), hash));
        let _turn = self.checks.acquire().await.ok()?;
        let verify = move || bcrypt::verify(&given[at + 1..], &hash).unwrap_or(false);
        tokio::task::spawn_blocking(verify).await.ok()?.then_some(user)?
    }
}

fn bytes_of(hex: &str) -> Option<Seal> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(bytes)
}

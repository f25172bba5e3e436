//! What an application can say of which objects belong together.

use serde::{Deserialize, Serialize};

/// What the application tells the store of an object's company.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hints {
    /// Nothing.
    None,
    /// The origin server.
    Server,
    /// A group: the site that the client's page is from, also for what comes from other servers.
    Group,
    /// The page that the client is on.
    Collocate,
    /// Page and origin server.
    #[default]
    All,
}

impl Hints {
    /// The name that an experiment has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Server => "server",
            Self::Group => "group",
            Self::Collocate => "collocate",
            Self::All => "all",
        }
    }

    pub(super) fn says_server(self) -> bool {
        matches!(self, Self::Server | Self::All)
    }

    pub(super) fn says_page(self) -> bool {
        matches!(self, Self::Collocate | Self::All)
    }
}

//! Pages that are put together of others (ESI 1.0, a part of it): what their markup says ([`markup`]), which responses
//! are such pages and what can be said of one that is assembled ([`page`]), and its body ([`assembled`]).

pub(crate) mod assembled;
pub(crate) mod markup;
pub(crate) mod page;

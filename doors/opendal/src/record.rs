//! What lies beside a body: what OpenDAL lets a writer say of it, and when it was written.

use std::collections::BTreeMap;

use opendal_core::{
    Error, ErrorKind, Metadata, MetadataBuilder, Result,
    raw::{OpWrite, Timestamp},
};
use serde::{Deserialize, Serialize};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    /// Milliseconds since the Unix epoch.
    #[serde(rename = "m")]
    modified: i64,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(rename = "e", skip_serializing_if = "Option::is_none")]
    content_encoding: Option<String>,
    #[serde(rename = "d", skip_serializing_if = "Option::is_none")]
    content_disposition: Option<String>,
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    cache_control: Option<String>,
    #[serde(rename = "u", skip_serializing_if = "BTreeMap::is_empty")]
    user: BTreeMap<String, String>,
}

/// What a writer says of its object, as the store's metadata.
pub(crate) fn written(args: &OpWrite) -> Result<Vec<u8>> {
    let text = |it: Option<&str>| it.map(str::to_owned);
    let record = Record {
        modified: Timestamp::now().into_inner().as_millisecond(),
        content_type: text(args.content_type()),
        content_encoding: text(args.content_encoding()),
        content_disposition: text(args.content_disposition()),
        cache_control: text(args.cache_control()),
        user: args.user_metadata().into_iter().flatten().map(|(name, it)| (name.to_owned(), it.to_owned())).collect(),
    };
    serde_json::to_vec(&record).map_err(|error| Error::new(ErrorKind::Unexpected, "metadata").set_source(error))
}

/// What `stat` says of an object. What another program put into the store has nothing but its length.
pub(crate) fn described(path: &str, len: u64, metadata: &[u8]) -> Metadata {
    let mut said = if path.ends_with('/') { MetadataBuilder::dir() } else { MetadataBuilder::file(len) };
    let Ok(record) = serde_json::from_slice::<Record>(metadata) else { return said.build() };
    if let Ok(time) = Timestamp::from_millisecond(record.modified) {
        said.last_modified(time);
    }
    if let Some(it) = record.content_type {
        said.content_type(it);
    }
    if let Some(it) = record.content_encoding {
        said.content_encoding(it);
    }
    if let Some(it) = record.content_disposition {
        said.content_disposition(it);
    }
    if let Some(it) = record.cache_control {
        said.cache_control(it);
    }
    if !record.user.is_empty() {
        said.user_metadata(record.user);
    }
    said.build()
}

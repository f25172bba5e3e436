//! What a case gave.

use serde::Serialize;

use crate::run::Outcome;

/// One combination of what varies, and what its run gave.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Row {
    /// What is replayed.
    pub workload: String,
    /// What the store is told of an object's company.
    pub hints: &'static str,
    /// The preset.
    pub preset: String,
    /// The device.
    pub device: String,
    /// The file-system model on it; empty if there is none.
    pub file_system: String,
    /// Bytes of the second level in MiB; of a cache, of its device.
    pub disk_mib: u64,
    /// What share of the device the live objects were to take.
    pub target_utilisation: f64,
    /// Open buffers; 0 is the engine's default.
    pub buffers: usize,
    /// Longest object that shares an area, in blocks; 0 is the engine's default.
    pub threshold: u32,
    /// KiB of the pages that groups' clusters are divided into, with a plus between several.
    pub pages_kib: String,
    /// How it lays objects, where that is not the preset's way.
    pub policies: String,
    /// The seed.
    pub seed: u64,
    /// What the run gave.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Row {
    /// A field by its name in the JSON, as a number.
    pub fn number(&self, field: &str) -> Option<f64> {
        self.fields().get(field)?.as_f64()
    }

    /// A field as text.
    pub fn text(&self, field: &str) -> Option<String> {
        Some(match self.fields().get(field)? {
            serde_json::Value::String(text) => text.clone(),
            // A rate where no time passed.
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        })
    }

    pub(crate) fn fields(&self) -> serde_json::Map<String, serde_json::Value> {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        }
    }
}

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod io;
mod record;

use std::fmt;

use opendal_core::{
    Capability, Error, ErrorKind, OperationContext, OperatorRegistry, Result,
    raw::{
        OpCopy, OpCreateDir, OpList, OpPresign, OpRead, OpRename, OpStat, OpWrite, RpCreateDir, RpPresign, RpRename,
        RpStat, Service, ServiceInfo, build_abs_path, oio,
    },
};
pub use picaflor;
use picaflor::Store;

pub use crate::config::{Picaflor, PicaflorConfig};
use crate::io::{Deleter, Lister, Reader, Writer};

/// The scheme of this service.
pub const PICAFLOR_SCHEME: &str = "picaflor";

/// Makes `picaflor:///var/cache/pages.store?memory=67108864` and `Operator::via_iter("picaflor", ..)` known.
pub fn register_picaflor_service(registry: &OperatorRegistry) {
    registry.register::<Picaflor>(PICAFLOR_SCHEME);
}

/// The service that [`Picaflor`] builds: each object lies under its path, from the root on, without a slash before it.
#[derive(Clone)]
struct Backend {
    store: Store,
    root: String,
    /// What error messages and `Operator::info` call the store.
    name: String,
}

impl Backend {
    fn key(&self, path: &str) -> String {
        build_abs_path(&self.root, path)
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picaflor").field("name", &self.name).field("root", &self.root).finish_non_exhaustive()
    }
}

/// The store's error as OpenDAL's, in picaflor's words.
fn failed(error: picaflor::Error) -> Error {
    use picaflor::{Error as Ours, Refusal};
    let kind = match &error {
        Ours::Option { .. } => ErrorKind::ConfigInvalid,
        Ours::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        Ours::Limit { .. } | Ours::Refused(Refusal::TooLarge | Refusal::ReadOnly) => ErrorKind::Unsupported,
        _ => ErrorKind::Unexpected,
    };
    let is_passing = matches!(error, Ours::Refused(Refusal::Busy | Refusal::NoCleanSpace | Refusal::Recovering));
    let told = Error::new(kind, error.to_string()).set_source(error);
    if is_passing { told.set_temporary() } else { told }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "operation is not supported"))
}

impl Service for Backend {
    type Reader = oio::StreamReader<Reader>;
    type Writer = Writer;
    type Lister = oio::HierarchyLister<Lister>;
    type Deleter = Deleter;
    type Copier = ();
    type Composer = ();

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new(PICAFLOR_SCHEME, &self.root, &self.name)
    }

    fn capability(&self) -> Capability {
        Capability {
            stat: true,
            read: true,
            read_with_suffix: true,
            write: true,
            write_can_empty: true,
            write_can_multi: true,
            write_with_cache_control: true,
            write_with_content_disposition: true,
            write_with_content_encoding: true,
            write_with_content_type: true,
            write_with_user_metadata: true,
            write_total_max_size: usize::try_from(self.store.object_max()).ok(),
            delete: true,
            list: true,
            list_with_recursive: true,
            ..Default::default()
        }
    }

    /// OpenDAL itself writes an empty object whose path ends with a slash.
    async fn create_dir(&self, _: &OperationContext, _: &str, _: OpCreateDir) -> Result<RpCreateDir> {
        unsupported()
    }

    async fn stat(&self, _: &OperationContext, path: &str, _: OpStat) -> Result<RpStat> {
        let object = io::found(&self.store, &self.key(path)).await?;
        Ok(RpStat::new(record::described(path, object.len(), object.metadata())))
    }

    fn read(&self, _: &OperationContext, path: &str, _: OpRead) -> Result<Self::Reader> {
        Ok(oio::StreamReader::new(Reader::new(self.store.clone(), self.key(path))))
    }

    fn write(&self, _: &OperationContext, path: &str, args: OpWrite) -> Result<Writer> {
        Writer::begin(&self.store, path, &self.key(path), &args)
    }

    fn delete(&self, _: &OperationContext) -> Result<Deleter> {
        Ok(Deleter::new(self.clone()))
    }

    fn list(&self, _: &OperationContext, path: &str, args: OpList) -> Result<Self::Lister> {
        let lister = Lister::new(self.store.clone(), self.root.clone(), self.key(path));
        Ok(oio::HierarchyLister::new(lister, path, args.recursive()))
    }

    fn copy(&self, _: &OperationContext, _: &str, _: &str, _: OpCopy) -> Result<()> {
        unsupported()
    }

    async fn rename(&self, _: &OperationContext, _: &str, _: &str, _: OpRename) -> Result<RpRename> {
        unsupported()
    }

    async fn presign(&self, _: &OperationContext, _: &str, _: OpPresign) -> Result<RpPresign> {
        unsupported()
    }
}

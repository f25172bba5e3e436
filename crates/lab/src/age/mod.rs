//! How storage ages: volumes are filled and their objects replaced, and what becomes of them is measured by storage age
//! (Sears & van Ingen, CIDR 2007).
//!
//! A *spec* is lists of values, and every combination of them a *case* (`spec`, `matrix`). What a case does is a
//! *load*: which objects are written and deleted, in which order, on a clock that counts bytes (`load`, `clock`), and
//! before, where that is asked for, small ones that leave holes (`chaff`). It is done to a *candidate*, a store on a
//! volume of its own (`kind`, `candidates`). At some ages the volume is looked at: where objects lie is read from the
//! volume by the marks in their bytes (`marks`) and asked of the file system (`extents`), drawn (`map`) and replayed
//! on simulated disks (`replay`). `run` is the order of these steps, `keep` what makes it go on where it was
//! interrupted, `report` what is said of it.
//!
//! Where objects lie is a function of the case for stores that run on their own here. On a file system it depends on
//! the kernel too, and rates of this machine on whatever else it does.

mod advice;
mod candidates;
mod chaff;
mod clock;
mod compare;
mod extents;
mod keep;
mod kind;
mod limit;
mod load;
mod map;
mod marks;
mod matrix;
mod replay;
mod report;
mod run;
mod sizes;
mod spec;

pub use advice::of as advice;
pub use candidates::{can_mount, unmount_all};
pub use clock::StorageAge;
pub use keep::Done;
pub use kind::Kind;
pub use limit::Limit;
pub use map::Map;
pub use matrix::standard;
pub use report::{json, write};
pub use run::{Aged, Fragments, Sample, check, run};
pub use sizes::{Law, Sizes};
pub use spec::{Case, Deletes, Force, Medium, Request, Spec, Start};

//! Children broken on purpose. Rounds that do not notice them prove nothing.

use std::{io, ops::Range, path::Path};

use super::{breaks::Break, proxied::run_proxied, series::run_series, setup::Setup, tally::Fault, wish::Wish};
use picaflor::{Durability, Mode};

/// Runs seeds until this break is noticed, or there are none left; through the proxy if one is given, of which the
/// clients can break less ([`Break::PROXIED`]).
///
/// # Errors
/// Those of the system: no process, no file.
pub fn notice_break(
    sabotage: Break,
    wish: &Wish,
    seeds: Range<u64>,
    proxy: Option<&Path>,
) -> io::Result<Option<Fault>> {
    for seed in seeds {
        // Where everything acknowledged is durable, it is the acknowledgement that lies.
        let durability = matches!(sabotage, Break::EarlyAcks | Break::RolledBack).then_some(Durability::EveryPut);
        let wish = Wish {
            sabotage,
            preset: wish.preset.or(Some("picaflor")),
            mode: wish.mode.or(Some(Mode::Store)),
            places: wish.places.or(Some(1)),
            durability: wish.durability.or(durability),
            ..wish.clone()
        };
        let mut series = match proxy {
            Some(picaflor) => run_proxied(picaflor, seed, &wish)?,
            None => run_series(&Setup::new(seed, &wish), &wish)?,
        };
        if let Some(fault) = series.faults.pop() {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

//! Memory as the system counts it, of stores under many small objects. Alone in its process, for the count is the
//! process's; the lightest store first, for what one leaves to the allocator is less than the next one takes.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use picaflor_torture::rss::{STRAINS, bound, strained};

#[test]
fn no_more_is_resident_than_the_cap_and_a_little() {
    for strain in STRAINS {
        let (resident, counted) = strained(&strain).unwrap();
        println!("{strain:?}: {resident} resident, {counted} counted");
        assert!(counted <= strain.memory, "{strain:?}: {counted} counted");
        assert!(resident <= bound(strain.memory), "{strain:?}: {resident} resident");
    }
}

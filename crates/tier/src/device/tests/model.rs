//! A pair beside a model, through power cuts.

use super::*;

/// What happens to a pair in a run.
#[derive(Debug, Clone)]
enum Act {
    Write { first: u64, sectors: usize, seed: u64 },
    WriteEach { firsts: Vec<u64>, seed: u64 },
    Discard { first: u64, sectors: u64 },
    Sync,
    Drain,
    Index,
    Tend,
    Reopen,
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..HOME, 1..20usize, any::<u64>()).prop_map(|(first, sectors, seed)| {
            Act::Write { first, sectors: sectors.min((HOME - first) as usize), seed }
        }),
        3 => (proptest::collection::vec(0..HOME, 1..12), any::<u64>())
            .prop_map(|(firsts, seed)| Act::WriteEach { firsts, seed }),
        1 => (0..HOME, 1..9u64).prop_map(|(first, sectors)| {
            Act::Discard { first, sectors: sectors.min(HOME - first) }
        }),
        3 => Just(Act::Sync),
        2 => Just(Act::Drain),
        2 => Just(Act::Index),
        1 => Just(Act::Tend),
        1 => Just(Act::Reopen),
        2 => Just(Act::Crash),
    ]
}

/// What a sector may hold: anything, or one of these, the last of which it holds while nothing fails.
#[derive(Debug, Clone)]
struct Cell {
    any: bool,
    may: Vec<Vec<u8>>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn a_pair_is_as_a_model_says_through_power_cuts(
        acts in proptest::collection::vec(act(), 1..80),
        nth in 1u64..5,
        copy_sectors_max in prop::sample::select(vec![0, 6, 1000]),
        seed in any::<u16>(),
    ) {
        let pair = Pair { copy_sectors_max, ..Pair::new(seed.into(), nth) };
        let mut device = pair.opened();
        let mut model = vec![Cell { any: false, may: vec![vec![0; SECTOR_BYTES]] }; HOME as usize];
        for act in acts {
            match &act {
                Act::Write { first, sectors, seed } => {
                    let bytes = sector_pattern(*seed, *sectors);
                    device.write(Sector(*first), &bytes).expect("write");
                    for (cell, bytes) in model[*first as usize..].iter_mut().zip(bytes.chunks_exact(SECTOR_BYTES)) {
                        cell.may.push(bytes.to_vec());
                    }
                }
                Act::WriteEach { firsts, seed } => {
                    let mut firsts = firsts.clone();
                    firsts.sort_unstable();
                    firsts.dedup();
                    let bytes = sector_pattern(*seed, firsts.len());
                    let parts = firsts.iter().copied().map(Sector).zip(bytes.chunks_exact(SECTOR_BYTES));
                    let writes: Vec<(Sector, &[u8])> = parts.collect();
                    device.write_each(&writes).expect("write");
                    for (first, bytes) in writes {
                        model[first.0 as usize].may.push(bytes.to_vec());
                    }
                }
                Act::Discard { first, sectors } => {
                    let range = SectorRange { first: Sector(*first), sectors: *sectors };
                    device.discard(range).expect("discard");
                    for cell in &mut model[*first as usize..(first + sectors) as usize] {
                        *cell = Cell { any: true, may: Vec::new() };
                    }
                }
                Act::Sync | Act::Drain => {
                    if matches!(act, Act::Drain) {
                        device.drain().expect("drain");
                    }
                    device.sync().expect("sync");
                    for cell in &mut model {
                        let from = cell.may.len().saturating_sub(1);
                        cell.any &= cell.may.is_empty();
                        cell.may.drain(..from);
                    }
                }
                Act::Index => {
                    device.index();
                }
                Act::Tend => drop(device.tend().expect("tend")),
                Act::Reopen => {
                    index::assert_as_whole(&pair);
                    device = pair.opened();
                    // An opening makes durable what it finds: all that was written, but for what no header lists yet. Nothing is torn.
                    for (sector, cell) in (0..).zip(&mut model) {
                        match content(&device, sector) {
                            _ if cell.any && cell.may.is_empty() => {}
                            Some(found) if cell.any || cell.may.contains(&found) => {
                                *cell = Cell { any: false, may: vec![found] };
                            }
                            found => prop_assert!(false, "sector {} is {}", sector, found.map_or("lost", |_| "stale")),
                        }
                    }
                }
                Act::Crash => {
                    pair.crash();
                    index::assert_as_whole(&pair);
                    device = pair.opened();
                    for (sector, cell) in (0..).zip(&mut model) {
                        match content(&device, sector) {
                            _ if cell.any => cell.may.clear(),
                            Some(found) if cell.may.contains(&found) => cell.may = vec![found],
                            // Torn, or unreadable until it is written: nothing was promised.
                            _ if cell.may.len() > 1 => *cell = Cell { any: true, may: Vec::new() },
                            found => prop_assert!(false, "sector {} is {}", sector, found.map_or("lost", |_| "stale")),
                        }
                    }
                }
            }
            for (sector, cell) in (0..).zip(&model) {
                if let Some(newest) = cell.may.last() {
                    let found = content(&device, sector);
                    prop_assert!(found.as_ref() == Some(newest), "sector {} after {:?}", sector, act);
                }
            }
        }
    }
}

//! Which stripes of a volume shall have another form: a pure function.
//!
//! Source: [hacfs §3.1]: what is written much is replicated, what is not is coded, and a bound on space decides between
//! them. Source: [drc-dpu §dynamic redundancy control]: stripe by stripe, by how often it is written.
//!
//! ```text
//!              heat < COLD_BELOW, or the bound is exceeded (the coldest first)
//!      +------------------------------------------------------------------------------+
//!      |                                                                              v
//!  mirrored                                                                         coded
//!      ^                                                                              |
//!      +------------------------------------------------------------------------------+
//!              heat >= HOT_FROM, and there is room under the bound, or the coldest
//!              mirrored stripe has a quarter of its heat or less, and is coded first
//! ```
//!
//! Where we differ: the paper turns back as soon as storage is below the bound, which goes back and forth at the bound.
//!
//! Invariants:
//! 1. Carried out in order, no stripe is mirrored beyond the bound.
//! 2. Without further writes a stripe changes its form at most twice: all heat falls alike then, and a stripe is mirrored at
//!    32 times the heat at which it is coded, or at 4 times that of the stripe whose room it takes.

use std::cmp::Ordering;

/// What a stripe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Copies of its data chunks.
    Mirrored,
    /// Parity.
    Coded,
}

/// A stripe as the planner sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StripeHeat {
    /// Its position in the volume.
    pub position: u64,
    /// What it is; `None`: it has a code of before the volume's redundancy was set anew.
    pub form: Option<Form>,
    /// Chunks that it has.
    pub chunks: u64,
    /// Writes, decayed.
    pub heat: f64,
    /// It stays as it is for now: an attempt has failed a short while ago.
    pub stays: bool,
}

/// Chunks of both forms, and how many there may be beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Data chunks of a stripe.
    pub data: u64,
    /// Chunks of a mirrored stripe.
    pub mirrored: u64,
    /// Chunks of a coded stripe.
    pub coded: u64,
    /// Chunks that would be as long as the log may become, with all of its copies.
    pub log: u64,
    /// Chunks for a hundred data chunks, over all stripes and the log, at most.
    pub percent_max: Option<u32>,
}

impl Bound {
    /// Whether so many stripes may have so many chunks together.
    pub fn allows(&self, stripes: u64, chunks: u64) -> bool {
        self.percent_max.is_none_or(|percent| (chunks + self.log) * 100 <= u64::from(percent) * stripes * self.data)
    }

    /// What so many stripes take at least, all of them coded, and the log's part of it: for a hundred data chunks, rounded up.
    pub fn percent_min(&self, stripes: u64) -> (u64, u64) {
        let percent = |chunks: u64| (chunks * 100).div_ceil((stripes * self.data).max(1));
        (percent(stripes * self.coded + self.log), percent(self.log))
    }
}

/// A stripe gets another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Its position in the volume.
    pub position: u64,
    /// What it becomes.
    pub to: Form,
}

/// Plans at most `limit` switches, in the order to carry them out: what is coded makes room for what is mirrored then.
pub fn plan_switches(stripes: &[StripeHeat], bound: &Bound, limit: usize) -> Vec<Switch> {
    let count = stripes.len() as u64;
    let free = || stripes.iter().filter(|stripe| !stripe.stays);
    let mut chunks: u64 = stripes.iter().map(|stripe| stripe.chunks).sum();
    // What is not coded yet, the coldest first: what is cold, and what the bound has no room for.
    let mut uncoded: Vec<&StripeHeat> = free().filter(|stripe| stripe.form != Some(Form::Coded)).collect();
    uncoded.sort_by(|a, b| by_heat(a, b));
    let mut uncoded = uncoded.into_iter().peekable();
    let mut coded: Vec<&StripeHeat> = Vec::new();
    while let Some(stripe) = uncoded.next_if(|stripe| stripe.heat < COLD_BELOW || !bound.allows(count, chunks)) {
        chunks = chunks - stripe.chunks + bound.coded;
        coded.push(stripe);
    }
    // What has some other code is coded, unless it is so hot that it is mirrored below.
    let (others, mirrored): (Vec<&StripeHeat>, Vec<&StripeHeat>) = uncoded.partition(|stripe| stripe.form.is_none());
    for stripe in &others {
        chunks = chunks - stripe.chunks + bound.coded;
    }
    coded.extend(others.iter().filter(|stripe| stripe.heat < HOT_FROM));
    let has_parity = free().filter(|stripe| stripe.form == Some(Form::Coded)).chain(others);
    let mut hottest: Vec<&StripeHeat> = has_parity.filter(|stripe| stripe.heat >= HOT_FROM).collect();
    hottest.sort_by(|a, b| by_heat(b, a));
    let mut coldest = mirrored.into_iter().peekable();
    let mut hot: Vec<&StripeHeat> = Vec::new();
    for stripe in hottest {
        let has_room = |chunks: u64| bound.allows(count, chunks - bound.coded + bound.mirrored);
        if !has_room(chunks)
            && let Some(colder) = coldest.next_if(|colder| colder.heat * EXCHANGE <= stripe.heat)
        {
            chunks = chunks - colder.chunks + bound.coded;
            coded.push(colder);
        }
        if has_room(chunks) {
            chunks = chunks - bound.coded + bound.mirrored;
            hot.push(stripe);
        } else if stripe.form.is_none() {
            coded.push(stripe);
        }
    }
    let switches_of = |stripes: Vec<&StripeHeat>, to| -> Vec<Switch> {
        stripes.into_iter().map(|stripe| Switch { position: stripe.position, to }).collect()
    };
    let mut switches = switches_of(coded, Form::Coded);
    switches.extend(switches_of(hot, Form::Mirrored));
    switches.truncate(limit);
    switches
}

fn by_heat(a: &StripeHeat, b: &StripeHeat) -> Ordering {
    a.heat.total_cmp(&b.heat).then(a.position.cmp(&b.position))
}

/// A mirrored stripe of less heat is coded.
pub const COLD_BELOW: f64 = 2.0;
/// A coded stripe of this heat is mirrored.
pub const HOT_FROM: f64 = 64.0;
/// A stripe takes the room of one that is so many times colder.
const EXCHANGE: f64 = 4.0;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// `replica:3/rs:4+2`.
    fn bound(percent_max: Option<u32>) -> Bound {
        Bound { data: 4, mirrored: 12, coded: 6, log: 0, percent_max }
    }

    /// Stripes of these heats at the positions from 0; `m`: mirrored, `c`: coded, `o`: of another code, of 8 chunks.
    fn stripes(of: &[(char, f64)]) -> Vec<StripeHeat> {
        let stripe = |(position, (form, heat)): (u64, &(char, f64))| {
            let (form, chunks) = match form {
                'm' => (Some(Form::Mirrored), 12),
                'c' => (Some(Form::Coded), 6),
                _ => (None, 8),
            };
            StripeHeat { position, form, chunks, heat: *heat, stays: false }
        };
        (0..).zip(of).map(stripe).collect()
    }

    fn plan(of: &[(char, f64)], percent_max: Option<u32>) -> Vec<(u64, char)> {
        let letter = |to| if to == Form::Mirrored { 'm' } else { 'c' };
        let switches = plan_switches(&stripes(of), &bound(percent_max), usize::MAX);
        switches.into_iter().map(|switch| (switch.position, letter(switch.to))).collect()
    }

    /// Test of: [drc-dpu §dynamic redundancy control], [hacfs §3.1]: what is written much is replicated, what is not is coded.
    #[test]
    fn cold_is_coded_and_hot_is_mirrored_and_what_is_between_stays() {
        let all = [('m', 1.9), ('m', 2.0), ('m', 70.0), ('c', 0.0), ('c', 63.9), ('c', 64.0), ('m', 0.5)];
        assert_eq!(plan(&all, None), [(6, 'c'), (0, 'c'), (5, 'm')]);
        assert_eq!(plan(&[], None), []);
    }

    #[test]
    fn beyond_the_bound_the_coldest_are_coded_however_hot_they_are() {
        // 48 chunks of four stripes; 200 % are 32.
        let all = [('m', 400.0), ('m', 100.0), ('m', 300.0), ('m', 200.0)];
        assert_eq!(plan(&all, Some(200)), [(1, 'c'), (3, 'c'), (2, 'c')]);
        assert_eq!(plan(&all, Some(300)), []);
    }

    /// Test of: [drc-dpu §differential data merge]: what the log takes is made up for by coding more.
    #[test]
    fn what_the_log_takes_is_coded_for() {
        let all = stripes(&[('m', 400.0), ('m', 100.0), ('m', 300.0), ('m', 200.0)]);
        let coded = |log, percent_max| plan_switches(&all, &Bound { log, ..bound(percent_max) }, usize::MAX).len();
        assert_eq!([0, 1, 6, 7, 24].map(|log| coded(log, Some(300))), [0, 1, 1, 2, 4]);
        assert_eq!(coded(1000, Some(300)), 4, "beyond the bound all are coded");
        assert_eq!(coded(1000, None), 0);
        let bound = Bound { log: 5, ..bound(None) };
        assert_eq!((bound.percent_min(4), bound.percent_min(1)), ((182, 32), (275, 125)));
        for stripes in 1..20 {
            let least = Bound { percent_max: Some(bound.percent_min(stripes).0 as u32), ..bound };
            assert!(least.allows(stripes, stripes * least.coded));
            let less = Bound { percent_max: Some(bound.percent_min(stripes).0 as u32 - 1), ..bound };
            assert!(!less.allows(stripes, stripes * less.coded));
        }
    }

    #[test]
    fn at_the_bound_the_hot_take_the_room_of_the_much_colder_only() {
        // 30 of 32 chunks.
        let all = |colder: f64| [('m', colder), ('c', 100.0), ('c', 3.0), ('c', 90.0)];
        assert_eq!(plan(&all(25.0), Some(200)), [(0, 'c'), (1, 'm')]);
        assert_eq!(plan(&all(25.1), Some(200)), []);
        // Room for one: the hottest has it.
        assert_eq!(plan(&all(25.1), Some(225)), [(1, 'm')]);
    }

    #[test]
    fn what_has_another_code_gets_one_of_the_two() {
        let all = [('o', 1.0), ('o', 10.0), ('o', 80.0), ('o', 90.0)];
        assert_eq!(plan(&all, None), [(0, 'c'), (1, 'c'), (3, 'm'), (2, 'm')]);
        assert_eq!(plan(&all, Some(190)), [(0, 'c'), (1, 'c'), (2, 'c'), (3, 'm')]);
        assert_eq!(plan(&all, Some(150)), [(0, 'c'), (1, 'c'), (2, 'c'), (3, 'c')]);
    }

    #[test]
    fn what_failed_a_short_while_ago_stays_and_counts() {
        let mut all = stripes(&[('m', 0.0), ('m', 10.0), ('c', 100.0)]);
        all[0].stays = true;
        let switches = plan_switches(&all, &bound(Some(200)), usize::MAX);
        assert_eq!(switches, [Switch { position: 1, to: Form::Coded }], "24 chunks are all that may be");
    }

    fn form() -> impl Strategy<Value = char> {
        prop::sample::select(vec!['m', 'c', 'o'])
    }

    proptest! {
        #[test]
        fn no_step_goes_beyond_the_bound_and_what_is_planned_is_enough(
            of in prop::collection::vec((form(), 0.0..200.0f64), 0..20), percent in prop::option::of(150u32..320),
            log in 0u64..20,
        ) {
            let (stripes, bound) = (stripes(&of), Bound { log, ..bound(percent) });
            let switches = plan_switches(&stripes, &bound, usize::MAX);
            let count = stripes.len() as u64;
            let mut chunks: BTreeMap<u64, u64> = stripes.iter().map(|stripe| (stripe.position, stripe.chunks)).collect();
            for switch in &switches {
                let becomes = if switch.to == Form::Mirrored { bound.mirrored } else { bound.coded };
                let was = chunks.insert(switch.position, becomes).expect("a stripe there is");
                let adds = becomes > was;
                prop_assert!(adds == (switch.to == Form::Mirrored), "{:?}", switches);
                prop_assert!(!adds || bound.allows(count, chunks.values().sum()), "{:?}", switches);
            }
            let can_be_kept = bound.allows(count, count * bound.coded);
            prop_assert!(!can_be_kept || bound.allows(count, chunks.values().sum()), "{:?}", switches);
            let distinct: std::collections::BTreeSet<u64> = switches.iter().map(|switch| switch.position).collect();
            prop_assert_eq!(distinct.len(), switches.len(), "each once");
        }

        /// Nobody writes, and heat halves again and again: nothing goes back and forth.
        #[test]
        fn nothing_oscillates(
            of in prop::collection::vec((form(), 0.0..2000.0f64), 0..20), percent in prop::option::of(150u32..320),
            limit in 1usize..5, fall in 0.5..0.98f64,
        ) {
            let (mut stripes, bound) = (stripes(&of), bound(percent));
            let mut switched: BTreeMap<u64, u32> = BTreeMap::new();
            let mut idle = 0;
            for _ in 0..2000 {
                let switches = plan_switches(&stripes, &bound, limit);
                idle = if switches.is_empty() { idle + 1 } else { 0 };
                for switch in switches {
                    let stripe = &mut stripes[switch.position as usize];
                    stripe.form = Some(switch.to);
                    stripe.chunks = if switch.to == Form::Mirrored { bound.mirrored } else { bound.coded };
                    *switched.entry(switch.position).or_default() += 1;
                }
                stripes.iter_mut().for_each(|stripe| stripe.heat *= fall);
            }
            prop_assert!(idle > 100);
            prop_assert!(switched.values().all(|times| *times <= 2), "{:?}", switched);
            prop_assert!(stripes.iter().all(|stripe| stripe.form == Some(Form::Coded)));
        }
    }
}

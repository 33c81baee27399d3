//! Which data chunks of a volume shall have another form: a pure function.
//!
//! Source: [hacfs §3.1]: what is written much is replicated, what is not is coded, and a bound on space decides between
//! them. Source: [drc-dpu §dynamic redundancy control]: chunk by chunk, by how often it is written.
//!
//! ```text
//!              heat < COLD_BELOW, or the bound is exceeded (the coldest first)
//!      +------------------------------------------------------------------------------+
//!      |                                                                              v
//!  mirrored                                                                         coded
//!      ^                                                                              |
//!      +------------------------------------------------------------------------------+
//!              heat >= HOT_FROM, and there is room under the bound, or the coldest
//!              mirrored chunks have a quarter of its heat or less, and are coded first
//! ```
//!
//! A *part* is what turns by itself: a data chunk, or where the volume's code has no mixed form, a whole stripe, with the writes of all
//! its chunks.
//!
//! Where we differ: the paper turns back as soon as storage is below the bound, which goes back and forth at the bound. And parity goes with the
//! last chunk that is coded: where that alone takes as much as its copies, it is mirrored too, and coded only with another one.
//!
//! Invariants:
//! 1. Carried out in order, nothing is mirrored beyond the bound.
//! 2. Without further writes what changes its form does so a few times at most: all heat falls alike then, and a part is mirrored at
//!    32 times the heat at which it is coded, or at 4 times that of those whose room it takes.

use std::cmp::Ordering;

use claystone_code::{ChunkIndex, ChunkSet};

/// What a stripe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Copies of its data chunks.
    Mirrored,
    /// Parity.
    Coded,
    /// Copies of some of its data chunks, but not of all, and parity of the others.
    Mixed(ChunkSet),
}

impl Form {
    /// The form in which these of so many data chunks are mirrored.
    pub fn of(mirrored: ChunkSet, data: u16) -> Form {
        match mirrored.count() {
            0 => Form::Coded,
            all if all == data => Form::Mirrored,
            _ => Form::Mixed(mirrored),
        }
    }

    /// How many of so many data chunks are mirrored.
    pub fn mirrored(self, data: u16) -> u16 {
        match self {
            Form::Mirrored => data,
            Form::Coded => 0,
            Form::Mixed(mirrored) => mirrored.count(),
        }
    }

    /// How many of so many data chunks are mirrored that were not, and how many coded that were not.
    pub fn turned(self, before: Option<Form>, data: u16) -> (u64, u64) {
        let mirrored = |form: Form, chunk: ChunkIndex| match form {
            Form::Mirrored => true,
            Form::Coded => false,
            Form::Mixed(mirrored) => mirrored.contains(chunk),
        };
        let turned = (0..data)
            .map(ChunkIndex)
            .filter(|chunk| before.is_none_or(|before| mirrored(before, *chunk) != mirrored(self, *chunk)));
        let (to_mirrored, to_coded): (Vec<ChunkIndex>, _) = turned.partition(|chunk| mirrored(self, *chunk));
        (to_mirrored.len() as u64, to_coded.len() as u64)
    }
}

/// A stripe as the planner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct StripeHeat {
    /// Its position in the volume.
    pub position: u64,
    /// What it is; `None`: it has a code of before the volume's redundancy was set anew.
    pub form: Option<Form>,
    /// Chunks that it has.
    pub chunks: u64,
    /// Writes of each part, decayed: of each data chunk, or one for all.
    pub heats: Vec<f64>,
    /// It stays as it is for now: an attempt has failed a short while ago.
    pub stays: bool,
}

/// Chunks of the forms, and how many there may be beside the log.
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

    /// Chunks of a stripe of which these parts of so many are mirrored.
    fn chunks(&self, mirrored: ChunkSet, parts: u16) -> u64 {
        match u64::from(mirrored.count()) {
            0 => self.coded,
            count if count == u64::from(parts) => self.mirrored,
            count => self.coded + count * (self.mirrored / self.data - 1),
        }
    }

    /// These parts, or all where that takes no more than some.
    fn filled(&self, mirrored: ChunkSet, parts: u16) -> ChunkSet {
        match !mirrored.is_empty() && self.chunks(mirrored, parts) >= self.mirrored {
            true => ChunkSet::first(parts),
            false => mirrored,
        }
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

/// Plans at most `limit` switches, in the order to carry them out: what takes less than before makes room for what takes more. Beside
/// `stripes` there are so many that are `settled`: coded, and no part of them is hot.
pub fn plan_switches(stripes: &[StripeHeat], settled: u64, bound: &Bound, limit: usize) -> Vec<Switch> {
    let mut planner = Planner::new(stripes, settled, bound);
    // The coldest first: what the bound has no room for.
    let mirrored = if bound.percent_max.is_some() { planner.mirrored() } else { Vec::new() };
    let mut coldest = mirrored.as_slice();
    while !planner.is_allowed(0)
        && let Some((first, rest)) = coldest.split_first()
    {
        planner.code(first);
        coldest = rest;
    }
    for (at, part, heat) in planner.hottest() {
        let more = planner.adds(at, part);
        if !planner.is_allowed(more) {
            let before = (planner.chunks, coldest);
            while !planner.is_allowed(planner.adds(at, part))
                && let Some((colder, rest)) = coldest.split_first().filter(|(colder, _)| colder.heat * EXCHANGE <= heat)
            {
                planner.code(colder);
                coldest = rest;
            }
            if !planner.is_allowed(planner.adds(at, part)) {
                let given = &before.1[..before.1.len() - coldest.len()];
                given.iter().for_each(|step| planner.mirror(step));
                coldest = before.1;
                assert_eq!(planner.chunks, before.0, "all is as it was");
                continue;
            }
        }
        planner.mirror(&Step { at, parts: ChunkSet::default().with(part), heat });
    }
    planner.switches(limit)
}

/// Parts of one stripe that are coded together, since fewer would take as much.
#[derive(Debug, Clone)]
struct Step {
    at: usize,
    parts: ChunkSet,
    // Of the hottest of them.
    heat: f64,
}

/// What each stripe is to become.
struct Planner<'a> {
    stripes: &'a [StripeHeat],
    // Stripes beside these.
    settled: u64,
    bound: &'a Bound,
    // What of each is mirrored.
    wanted: Vec<ChunkSet>,
    // Chunks of all stripes, if they become that.
    chunks: u64,
}

impl Planner<'_> {
    /// All as it is, but for what is cold, and for what has another code: that is coded.
    fn new<'a>(stripes: &'a [StripeHeat], settled: u64, bound: &'a Bound) -> Planner<'a> {
        let wanted = |stripe: &StripeHeat| -> ChunkSet {
            let is_warm = |part: &ChunkIndex| stripe.heats[part.at()] >= COLD_BELOW;
            mirrored_of(stripe).iter().filter(is_warm).collect()
        };
        let mut planner = Planner { stripes, settled, bound, wanted: stripes.iter().map(wanted).collect(), chunks: 0 };
        planner.chunks = settled * bound.coded + (0..stripes.len()).map(|at| planner.chunks_of(at)).sum::<u64>();
        planner
    }

    fn parts(&self, at: usize) -> u16 {
        self.stripes[at].heats.len() as u16
    }

    fn chunks_of(&self, at: usize) -> u64 {
        let stripe = &self.stripes[at];
        if stripe.stays { stripe.chunks } else { self.chunks_with(at, self.wanted[at]) }
    }

    fn chunks_with(&self, at: usize, mirrored: ChunkSet) -> u64 {
        let parts = self.parts(at);
        self.bound.chunks(self.bound.filled(mirrored, parts), parts)
    }

    /// Whether so many chunks more are within the bound.
    fn is_allowed(&self, more: u64) -> bool {
        self.bound.allows(self.stripes.len() as u64 + self.settled, self.chunks + more)
    }

    /// Chunks that come with one more part that is mirrored.
    fn adds(&self, at: usize, part: ChunkIndex) -> u64 {
        self.chunks_with(at, self.wanted[at].with(part)).saturating_sub(self.chunks_of(at))
    }

    fn become_wanted(&mut self, at: usize, wanted: ChunkSet) {
        self.chunks -= self.chunks_of(at);
        self.wanted[at] = wanted;
        self.chunks += self.chunks_of(at);
    }

    fn code(&mut self, step: &Step) {
        self.become_wanted(step.at, self.wanted[step.at].minus(step.parts));
    }

    fn mirror(&mut self, step: &Step) {
        self.become_wanted(step.at, step.parts.iter().fold(self.wanted[step.at], ChunkSet::with));
    }

    /// What is mirrored and may be coded, the coldest first.
    fn mirrored(&self) -> Vec<Step> {
        let free = (0..self.stripes.len()).filter(|at| !self.stripes[*at].stays);
        let mut steps: Vec<Step> = free.flat_map(|at| self.steps(at)).collect();
        steps.sort_by(|a, b| self.by_heat((a.at, a.heat), (b.at, b.heat)));
        steps
    }

    /// How the mirrored parts of a stripe are coded, the coldest first: each step takes fewer chunks.
    fn steps(&self, at: usize) -> Vec<Step> {
        let heats = &self.stripes[at].heats;
        let mut left = self.wanted[at];
        let mut parts: Vec<ChunkIndex> = left.iter().collect();
        parts.sort_by(|a, b| heats[a.at()].total_cmp(&heats[b.at()]));
        let (mut steps, mut together) = (Vec::new(), ChunkSet::default());
        let mut chunks = self.chunks_with(at, left);
        for part in parts {
            (left, together) = (left.without(part), together.with(part));
            let after = self.chunks_with(at, left);
            if after < chunks {
                steps.push(Step { at, parts: together, heat: heats[part.at()] });
                (chunks, together) = (after, ChunkSet::default());
            }
        }
        steps
    }

    /// The hot parts that are coded, the hottest first: stripe, part and heat.
    fn hottest(&self) -> Vec<(usize, ChunkIndex, f64)> {
        let free = (0..self.stripes.len()).filter(|at| !self.stripes[*at].stays);
        let parts = free.flat_map(|at| {
            let heats = (0..).map(ChunkIndex).zip(&self.stripes[at].heats);
            heats
                .filter(move |(part, heat)| **heat >= HOT_FROM && !self.wanted[at].contains(*part))
                .map(move |(part, heat)| (at, part, *heat))
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by(|a, b| self.by_heat((b.0, b.2), (a.0, a.2)));
        parts
    }

    fn by_heat(&self, a: (usize, f64), b: (usize, f64)) -> Ordering {
        a.1.total_cmp(&b.1).then(self.stripes[a.0].position.cmp(&self.stripes[b.0].position))
    }

    /// What becomes another form, what takes less first.
    fn switches(&self, limit: usize) -> Vec<Switch> {
        let mut switches: Vec<(bool, f64, Switch)> = Vec::new();
        for (at, stripe) in self.stripes.iter().enumerate().filter(|(_, stripe)| !stripe.stays) {
            let parts = self.parts(at);
            let wanted = self.bound.filled(self.wanted[at], parts);
            if stripe.form.is_some() && wanted == mirrored_of(stripe) {
                continue;
            }
            let to = Form::of(wanted, parts);
            let adds = to != Form::Coded && self.chunks_of(at) > stripe.chunks;
            let heat = stripe.heats.iter().copied().fold(0.0, f64::max);
            switches.push((adds, heat, Switch { position: stripe.position, to }));
        }
        // The coldest of those that take no more first, and of the others the hottest. What has a code of before may take more when it is coded.
        let key = |(adds, heat, _): &(bool, f64, Switch)| (*adds, if *adds { -*heat } else { *heat });
        switches.sort_by(|a, b| {
            let ((a_adds, a_key), (b_adds, b_key)) = (key(a), key(b));
            a_adds.cmp(&b_adds).then(a_key.total_cmp(&b_key)).then(a.2.position.cmp(&b.2.position))
        });
        switches.into_iter().map(|(_, _, switch)| switch).take(limit).collect()
    }
}

/// The parts of a stripe that are mirrored; none of one that has another code.
fn mirrored_of(stripe: &StripeHeat) -> ChunkSet {
    match stripe.form {
        Some(Form::Mirrored) => ChunkSet::first(stripe.heats.len() as u16),
        Some(Form::Mixed(mirrored)) => mirrored,
        Some(Form::Coded) | None => ChunkSet::default(),
    }
}

/// A mirrored part of less heat is coded.
pub const COLD_BELOW: f64 = 2.0;
/// A coded part of this heat is mirrored.
pub const HOT_FROM: f64 = 64.0;
/// A part takes the room of others that are so many times colder.
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
            StripeHeat { position, form, chunks, heats: vec![*heat], stays: false }
        };
        (0..).zip(of).map(stripe).collect()
    }

    fn plan(of: &[(char, f64)], percent_max: Option<u32>) -> Vec<(u64, char)> {
        let letter = |to| if to == Form::Mirrored { 'm' } else { 'c' };
        let switches = plan_switches(&stripes(of), 0, &bound(percent_max), usize::MAX);
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
        let coded = |log, percent_max| plan_switches(&all, 0, &Bound { log, ..bound(percent_max) }, usize::MAX).len();
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
        let switches = plan_switches(&all, 0, &bound(Some(200)), usize::MAX);
        assert_eq!(switches, [Switch { position: 1, to: Form::Coded }], "24 chunks are all that may be");
    }

    /// Stripes of four data chunks, each with the heats of these, and those that are mirrored.
    fn by_chunk(of: &[([f64; 4], &[u16])]) -> Vec<StripeHeat> {
        let stripe = |(position, (heats, mirrored)): (u64, &([f64; 4], &[u16]))| {
            let mirrored: ChunkSet = mirrored.iter().copied().map(ChunkIndex).collect();
            let chunks = bound(None).chunks(mirrored, 4);
            StripeHeat { position, form: Some(Form::of(mirrored, 4)), chunks, heats: heats.to_vec(), stays: false }
        };
        (0..).zip(of).map(stripe).collect()
    }

    fn mixed(chunks: &[u16]) -> Form {
        Form::Mixed(chunks.iter().copied().map(ChunkIndex).collect())
    }

    fn plan_by_chunk(of: &[([f64; 4], &[u16])], percent_max: Option<u32>) -> Vec<(u64, Form)> {
        let switches = plan_switches(&by_chunk(of), 0, &bound(percent_max), usize::MAX);
        switches.into_iter().map(|switch| (switch.position, switch.to)).collect()
    }

    /// Test of: [drc-dpu §dynamic redundancy control]: each chunk by itself.
    #[test]
    fn a_hot_chunk_is_mirrored_and_its_cold_neighbours_are_coded() {
        let all: &[u16] = &[0, 1, 2, 3];
        assert_eq!(plan_by_chunk(&[([0.0, 64.0, 63.0, 0.0], &[])], None), [(0, mixed(&[1]))]);
        assert_eq!(plan_by_chunk(&[([0.0, 64.0, 63.0, 0.0], all)], None), [(0, mixed(&[1, 2]))]);
        assert_eq!(plan_by_chunk(&[([0.0, 1.0, 63.0, 70.0], &[1, 2])], None), [(0, mixed(&[2, 3]))]);
        assert_eq!(plan_by_chunk(&[([1.0, 1.0, 1.0, 1.9], &[1, 2])], None), [(0, Form::Coded)]);
        assert_eq!(plan_by_chunk(&[([2.0, 63.0, 63.0, 9.0], &[1, 2])], None), [], "what is between stays");
    }

    /// Three chunks with three copies and one with two parities take as much as four with three copies.
    #[test]
    fn parity_for_a_single_chunk_is_not_kept() {
        let all: &[u16] = &[0, 1, 2, 3];
        assert_eq!(plan_by_chunk(&[([9.0, 9.0, 0.0, 9.0], all)], None), []);
        assert_eq!(plan_by_chunk(&[([9.0, 64.0, 0.0, 9.0], &[0, 3])], None), [(0, Form::Mirrored)]);
        // Beyond the bound two go together, the colder of all stripes first.
        let two = [([5.0, 300.0, 300.0, 6.0], all), ([9.0, 7.0, 300.0, 300.0], all)];
        assert_eq!(plan_by_chunk(&two, Some(275)), [(0, mixed(&[1, 2]))]);
        assert_eq!(plan_by_chunk(&two, Some(250)), [(0, mixed(&[1, 2])), (1, mixed(&[2, 3]))]);
    }

    #[test]
    fn a_hot_chunk_takes_the_room_of_much_colder_ones_of_any_stripe() {
        let all: &[u16] = &[0, 1, 2, 3];
        let of = |colder: f64| [([300.0, colder, 300.0, 20.0], all), ([0.0, 100.0, 0.0, 0.0], &[][..])];
        // 18 chunks of eight.
        assert_eq!(plan_by_chunk(&of(25.0), Some(225)), [(0, mixed(&[0, 2])), (1, mixed(&[1]))]);
        assert_eq!(plan_by_chunk(&of(26.0), Some(225)), []);
        assert_eq!(plan_by_chunk(&of(26.0), Some(250)), [(1, mixed(&[1]))]);
        // In its own stripe.
        assert_eq!(plan_by_chunk(&[([0.0, 100.0, 0.0, 25.0], &[3])], Some(200)), [(0, mixed(&[1]))]);
    }

    fn form() -> impl Strategy<Value = char> {
        prop::sample::select(vec!['m', 'c', 'o'])
    }

    /// Whole stripes, and others whose chunks turn by themselves.
    fn any_stripes(heat_max: f64) -> impl Strategy<Value = Vec<StripeHeat>> {
        let whole = prop::collection::vec((form(), 0.0..heat_max), 0..20).prop_map(|of| stripes(&of));
        let chunks = (prop::collection::vec(0.0..heat_max, 4), prop::collection::vec(any::<bool>(), 4), 0..8);
        let parted = prop::collection::vec(chunks, 0..12).prop_map(|of| {
            let stripe = |(position, (heats, mirrored, kind)): (u64, (Vec<f64>, Vec<bool>, i32))| {
                let mirrored: ChunkSet =
                    (0..).map(ChunkIndex).zip(mirrored).filter(|(_, is)| *is).map(|(chunk, _)| chunk).collect();
                let form = (kind > 0).then(|| Form::of(mirrored, 4));
                let chunks = if kind > 0 { bound(None).chunks(mirrored, 4) } else { 8 };
                StripeHeat { position, form, chunks, heats, stays: false }
            };
            (0..).zip(of).map(stripe).collect()
        });
        prop_oneof![whole, parted]
    }

    /// Chunks of a stripe in a form.
    fn chunks_in(form: Form) -> u64 {
        let mirrored = u64::from(form.mirrored(4));
        if mirrored == 4 { 12 } else { 6 + 2 * mirrored }
    }

    proptest! {
        #[test]
        fn no_step_goes_beyond_the_bound_and_what_is_planned_is_enough(
            stripes in any_stripes(200.0), percent in prop::option::of(150u32..320), log in 0u64..20,
        ) {
            let bound = Bound { log, ..bound(percent) };
            let switches = plan_switches(&stripes, 0, &bound, usize::MAX);
            let count = stripes.len() as u64;
            let mut chunks: BTreeMap<u64, u64> = stripes.iter().map(|stripe| (stripe.position, stripe.chunks)).collect();
            for switch in &switches {
                let becomes = chunks_in(switch.to);
                let was = chunks.insert(switch.position, becomes).expect("a stripe there is");
                let adds = becomes > was && switch.to != Form::Coded;
                prop_assert!(!adds || bound.allows(count, chunks.values().sum()), "{:?}", switches);
                let form = stripes[switch.position as usize].form;
                prop_assert!(form != Some(switch.to), "it is that already: {:?}", switches);
            }
            let can_be_kept = bound.allows(count, count * bound.coded);
            prop_assert!(!can_be_kept || bound.allows(count, chunks.values().sum()), "{:?}", switches);
            let distinct: std::collections::BTreeSet<u64> = switches.iter().map(|switch| switch.position).collect();
            prop_assert_eq!(distinct.len(), switches.len(), "each once");
        }

        #[test]
        fn what_is_coded_and_not_hot_need_only_be_counted(
            mut stripes in any_stripes(200.0), stay in prop::collection::vec(any::<bool>(), 20),
            percent in prop::option::of(150u32..320), log in 0u64..20,
        ) {
            stripes.iter_mut().zip(stay).for_each(|(stripe, stays)| stripe.stays = stays);
            let bound = Bound { log, ..bound(percent) };
            let switches = plan_switches(&stripes, 0, &bound, usize::MAX);
            let is_settled =
                |stripe: &StripeHeat| stripe.form == Some(Form::Coded) && stripe.heats.iter().all(|heat| *heat < HOT_FROM);
            let (settled, others): (Vec<StripeHeat>, Vec<StripeHeat>) = stripes.into_iter().partition(is_settled);
            prop_assert_eq!(plan_switches(&others, settled.len() as u64, &bound, usize::MAX), switches);
        }

        /// Nobody writes, and heat halves again and again: nothing goes back and forth.
        #[test]
        fn nothing_oscillates(
            mut stripes in any_stripes(2000.0), percent in prop::option::of(150u32..320), limit in 1usize..5, fall in 0.5..0.98f64,
        ) {
            let bound = bound(percent);
            let mut turned: BTreeMap<(u64, u16), u32> = BTreeMap::new();
            let mut idle = 0;
            for _ in 0..2000 {
                let switches = plan_switches(&stripes, 0, &bound, limit);
                idle = if switches.is_empty() { idle + 1 } else { 0 };
                for switch in switches {
                    let stripe = &mut stripes[switch.position as usize];
                    let before = mirrored_of(stripe);
                    stripe.form = Some(switch.to);
                    stripe.chunks = chunks_in(switch.to);
                    let after = mirrored_of(stripe);
                    for part in before.minus(after).iter().chain(after.minus(before).iter()) {
                        *turned.entry((switch.position, part.0)).or_default() += 1;
                    }
                }
                stripes.iter_mut().flat_map(|stripe| &mut stripe.heats).for_each(|heat| *heat *= fall);
            }
            prop_assert!(idle > 100);
            prop_assert!(turned.values().all(|times| *times <= 3), "{:?}", turned);
            prop_assert!(stripes.iter().all(|stripe| stripe.form == Some(Form::Coded)));
        }
    }
}

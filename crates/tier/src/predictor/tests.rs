//! A predictor beside drives whose stages the test knows: what it says of the next write, and what it learns from the last one.

use proptest::prelude::*;

use super::*;
use crate::profile::tests::profile;

const US: Duration = Duration::from_micros(1);
const QUICK: Duration = Duration::from_micros(60);
const SPIKE: Duration = Duration::from_millis(12);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn predictor() -> Predictor {
    let mut predictor = Predictor::new(profile(), Tuning::default());
    predictor.synced();
    predictor
}

fn pad(predictor: &mut Predictor, bytes: u64, took: Duration) {
    predictor.wrote(Sender::Padding, bytes, took);
}

fn user(predictor: &mut Predictor, bytes: u64, took: Duration) {
    predictor.queue(bytes);
    predictor.wrote(Sender::User, bytes, took);
}

/// Uses up a fast or middle stage.
fn fill(predictor: &mut Predictor) {
    while matches!(predictor.stage(), Stage::Fast | Stage::Mid) {
        pad(predictor, 64 * KIB, QUICK);
    }
}

/// Takes a predictor from a stage that is due into the middle one.
fn pass_slow(predictor: &mut Predictor) {
    assert_eq!(predictor.stage(), Stage::Due);
    pad(predictor, 64 * KIB, SPIKE);
    assert_eq!(predictor.stage(), Stage::Slow);
    pad(predictor, 64 * KIB, 5 * QUICK);
    assert_eq!(predictor.stage(), Stage::Mid);
}

/// A drive as the notes have it: it takes so many bytes in each stage, and is slow for one write between two.
struct Drive {
    lengths: Vec<u64>,
    stage: usize,
    taken: u64,
}

impl Drive {
    fn write(&mut self, bytes: u64) -> Duration {
        if self.taken + bytes > self.lengths[self.stage % self.lengths.len()] {
            (self.stage, self.taken) = (self.stage + 1, 0);
            return SPIKE;
        }
        self.taken += bytes;
        QUICK
    }
}

// Test of: [bcw §Predict Write State]
#[test]
fn a_drive_goes_from_fast_through_slow_to_middle_and_slow_again() {
    let mut predictor = predictor();
    let (fast, mid) = predictor.limits();
    assert_eq!(predictor.predict(16 * KIB), WriteState::Fast);
    let mut written = 0;
    while predictor.predict(16 * KIB) == WriteState::Fast {
        user(&mut predictor, 16 * KIB, QUICK);
        written += 16 * KIB;
    }
    // What is left takes less than is worth a flag.
    assert!(written <= fast && written + 96 * KIB > fast, "{written} of {fast}");
    assert_eq!(predictor.upkeep(Duration::ZERO, Duration::ZERO, true), Upkeep::Pad(64 * KIB));
    pass_slow(&mut predictor);
    // The quick write that ended the slow stage is in the middle one already.
    assert_eq!(predictor.left_bytes(), mid - 64 * KIB);
    assert_eq!(predictor.predict(16 * KIB), WriteState::Mid);
    while predictor.predict(4 * KIB) == WriteState::Mid {
        user(&mut predictor, 4 * KIB, QUICK);
    }
    pass_slow(&mut predictor);
    let counts = predictor.counts();
    assert_eq!((counts.slow_stages, counts.user_surprises, counts.padding_surprises), (2, 0, 0));
    assert_eq!((counts.paddings, counts.padding_bytes), (4, 256 * KIB));
    assert_eq!(counts.user_bytes, counts.user_writes * 4 * KIB + written / 4 * 3);
}

#[test]
fn a_limit_reached_early_is_padded_until_the_slow_write_comes() {
    let mut predictor = predictor();
    fill(&mut predictor);
    // Quick paddings do not make it a middle stage: the buffer is not full yet.
    for _ in 0..5 {
        assert_eq!(predictor.stage(), Stage::Due);
        assert_eq!(predictor.predict(4 * KIB), WriteState::Slow);
        pad(&mut predictor, 64 * KIB, QUICK);
    }
    pass_slow(&mut predictor);
}

#[test]
fn writes_on_their_way_count() {
    let mut predictor = predictor();
    let (fast, _) = predictor.limits();
    let mut queued = 0;
    while predictor.predict(64 * KIB) == WriteState::Fast {
        predictor.queue(64 * KIB);
        queued += 64 * KIB;
    }
    assert!(queued <= fast && queued + 64 * KIB > fast);
    assert!(predictor.may_begin());
    // The first one meets a slow stage, unforeseen: none of the others may begin, and they go elsewhere in their order.
    predictor.wrote(Sender::User, 64 * KIB, SPIKE);
    assert_eq!((predictor.stage(), predictor.counts().user_surprises), (Stage::Slow, 1));
    assert!(!predictor.may_begin());
    assert_eq!(predictor.unqueue(), 64 * KIB);
    assert_eq!(predictor.queued() as u64, queued / (64 * KIB) - 2);
}

#[test]
fn what_is_longer_than_any_that_was_measured_is_slow() {
    let predictor = predictor();
    assert_eq!(predictor.predict(64 * KIB), WriteState::Fast);
    assert_eq!(predictor.predict(64 * KIB + 4096), WriteState::Slow);
}

// Test of: [bcw §Buffer-Controlled Writes]
#[test]
fn only_a_slow_write_tells_where_a_drive_is_that_was_read() {
    let mut predictor = predictor();
    predictor.suspend();
    predictor.suspend();
    predictor.resume();
    assert_eq!((predictor.stage(), predictor.predict(4 * KIB)), (Stage::Suspended, WriteState::Slow));
    assert_eq!(predictor.upkeep(SPIKE, SPIKE, true), Upkeep::Nothing);
    predictor.resume();
    assert_eq!((predictor.stage(), predictor.predict(4 * KIB)), (Stage::Lost, WriteState::Slow));
    assert_eq!(predictor.upkeep(Duration::ZERO, Duration::ZERO, true), Upkeep::Pad(64 * KIB));
    pad(&mut predictor, 64 * KIB, QUICK);
    assert_eq!(predictor.stage(), Stage::Lost);
    pad(&mut predictor, 64 * KIB, SPIKE);
    pad(&mut predictor, 64 * KIB, QUICK);
    assert_eq!((predictor.stage(), predictor.counts().losses), (Stage::Mid, 1));
    // What was found in between says nothing of how long stages are.
    assert_eq!(predictor.counts().recalibrations, 0);
    // A sync says it without a slow write, unless somebody reads.
    predictor.suspend();
    predictor.suspend();
    predictor.resume_synced();
    assert_eq!(predictor.stage(), Stage::Suspended);
    predictor.resume_synced();
    assert_eq!(predictor.stage(), Stage::Fast);
}

// Test of: [bcw §Buffer-Controlled Writes]
#[test]
fn idle_drives_are_padded_as_the_setting_says() {
    let mut predictor = predictor();
    let upkeep =
        |predictor: &Predictor, idle: u64, unused: u64| predictor.upkeep(US * idle as u32, US * unused as u32, true);
    assert_eq!(upkeep(&predictor, 9000, 9000), Upkeep::Nothing, "a drive that was synced has nothing to flush");
    fill(&mut predictor);
    pass_slow(&mut predictor);
    assert_eq!(upkeep(&predictor, 400, 400), Upkeep::After(US * 600));
    assert_eq!(upkeep(&predictor, 1000, 1000), Upkeep::Pad(4 * KIB));
    predictor.queue(4 * KIB);
    assert_eq!(upkeep(&predictor, 1000, 1000), Upkeep::Nothing, "a user's write is on its way");
    predictor.unqueue();

    let padding = Padding { keeps_fast: true, sync_after: Some(US * 5000), ..Padding::default() };
    let mut eager = Predictor::new(profile(), Tuning { padding, ..Tuning::default() });
    assert_eq!(upkeep(&eager, 0, 5000), Upkeep::Sync, "a sync finds a lost drive too");
    eager.synced();
    assert_eq!(upkeep(&eager, 1000, 5000), Upkeep::Pad(4 * KIB));
    for _ in 0..3 * MIB / (64 * KIB) {
        assert_eq!(upkeep(&eager, 0, 5000), Upkeep::After(US * 1000), "little is in it");
        user(&mut eager, 64 * KIB, QUICK);
    }
    for _ in 0..MIB / (64 * KIB) {
        user(&mut eager, 64 * KIB, QUICK);
    }
    assert_eq!(upkeep(&eager, 0, 5000), Upkeep::Sync);
    fill(&mut eager);
    pass_slow(&mut eager);
    assert_eq!(upkeep(&eager, 1000, 4999), Upkeep::Pad(4 * KIB));
    assert_eq!(upkeep(&eager, 0, 5000), Upkeep::Sync);
}

#[test]
fn a_stage_with_less_than_the_reserve_is_used_up_while_the_drive_is_not_needed() {
    let padding = Padding { reserve_bytes: 6 * MIB, ..Padding::default() };
    let mut predictor = Predictor::new(profile(), Tuning { padding, ..Tuning::default() });
    predictor.synced();
    let (fast, mid) = predictor.limits();
    while predictor.left_bytes() >= 6 * MIB {
        assert_eq!(predictor.upkeep(SPIKE, SPIKE, true), Upkeep::Nothing, "{} of {fast}", predictor.left_bytes());
        user(&mut predictor, 64 * KIB, QUICK);
    }
    assert_eq!(predictor.upkeep(SPIKE, US * 400, true), Upkeep::After(US * 600));
    assert_eq!(predictor.upkeep(SPIKE, SPIKE, false), Upkeep::Nothing, "the reserve is for this");
    while predictor.stage() == Stage::Fast {
        assert_eq!(predictor.upkeep(SPIKE, SPIKE, true), Upkeep::Pad(64 * KIB));
        assert_eq!(predictor.predict(16 * KIB), WriteState::Fast, "who comes meanwhile may still write");
        pad(&mut predictor, 64 * KIB, QUICK);
    }
    pass_slow(&mut predictor);
    // Of a middle stage no more than three quarters are kept free, or it would be passed through without an end.
    while predictor.left_bytes() >= mid / 4 * 3 {
        assert_eq!(predictor.upkeep(US * 1000, SPIKE, true), Upkeep::Pad(4 * KIB));
        pad(&mut predictor, 4 * KIB, QUICK);
    }
    assert!(predictor.left_bytes() > 5 * MIB, "{}", predictor.left_bytes());
    assert_eq!(predictor.upkeep(US * 1000, SPIKE, true), Upkeep::Pad(64 * KIB));
}

#[test]
fn a_drive_whose_buffer_became_smaller_is_calibrated_anew() {
    let mut predictor = predictor();
    let later = (0..40).map(|stage| 5 * MIB + 64 * KIB * (stage % 3) - 64 * KIB);
    let mut drive = Drive { lengths: std::iter::once(16 * MIB).chain(later).collect(), stage: 0, taken: 0 };
    let mut surprises = Vec::new();
    for _ in 0..40 * MIB / (4 * KIB) * 4 {
        let before = predictor.counts().user_surprises;
        if predictor.predict(4 * KIB) != WriteState::Slow {
            user(&mut predictor, 4 * KIB, drive.write(4 * KIB));
        } else {
            pad(&mut predictor, 64 * KIB, drive.write(64 * KIB));
        }
        surprises.push(predictor.counts().user_surprises - before);
    }
    let counts = predictor.counts();
    let stages = Tuning::default().wrong_max as u64 + 1;
    assert!(counts.recalibrations >= 1, "{counts:?}");
    assert!(predictor.limits().1 <= 5 * MIB, "{:?}", predictor.limits());
    let half = surprises.len() / 2;
    assert_eq!(surprises[half..].iter().sum::<u64>(), 0, "none any more");
    assert!((1..=stages).contains(&counts.user_surprises), "{counts:?}");
    assert!(predictor.trust() == Trust::Believed);
}

#[test]
fn a_drive_that_is_never_slow_is_given_up() {
    let mut predictor = predictor();
    predictor.suspend();
    predictor.resume();
    let mut padded = 0;
    while let Upkeep::Pad(bytes) = predictor.upkeep(Duration::ZERO, Duration::ZERO, true) {
        pad(&mut predictor, bytes, QUICK);
        padded += bytes;
        assert!(padded < 100 * MIB, "for ever");
    }
    assert_eq!(predictor.trust(), Trust::GivenUp);
    assert_eq!(predictor.predict(4 * KIB), WriteState::Slow);
    predictor.synced();
    assert_eq!(predictor.predict(4 * KIB), WriteState::Slow, "until it is tried again");
}

/// Lines "who bytes microseconds", as an emulated drive of 1 MiB after a sync and 512 KiB between slow writes made them, with a
/// write of 64 KiB each 192 KiB. What is expected of each: the stage behind it.
const RECORDED: &str = "\
    user 65536 181 Fast\n user 65536 179 Fast\n user 131072 331 Fast\n user 262144 640 Fast\n user 262144 655 Fast\n\
    user 196608 487 Due\n padding 65536 180 Due\n padding 65536 11873 Slow\n padding 65536 12210 Slow\n padding 65536 281 Mid\n\
    user 4096 55 Mid\n user 4096 57 Mid\n user 262144 973 Mid\n user 131072 11950 Slow\n padding 65536 279 Mid\n";

/// Of the emulated drive, as it was before its buffer changed.
fn small_predictor() -> Predictor {
    let stage = |mean: u64| crate::StageBytes { mean, deviation: 8 << 10, least: mean - (32 << 10), seen: 9 };
    let mut profile = profile();
    (profile.fast, profile.mid) = (stage(1 << 20), stage(512 << 10));
    profile.sizes.push(crate::SizeLatency { bytes: 262144, fast_ns: 640_000, mid_ns: 980_000, ..profile.sizes[2] });
    let mut predictor = Predictor::new(profile, Tuning::default());
    predictor.synced();
    predictor
}

#[test]
fn a_drive_that_is_always_slow_is_given_up() {
    let mut predictor = predictor();
    fill(&mut predictor);
    pad(&mut predictor, 64 * KIB, SPIKE);
    let most = profile().slow.most().max(64 * KIB) * Tuning::default().give_up_after;
    let mut written = 0;
    while written + 64 * KIB <= most {
        assert_eq!(predictor.upkeep(Duration::ZERO, Duration::ZERO, true), Upkeep::Pad(64 * KIB));
        pad(&mut predictor, 64 * KIB, SPIKE);
        written += 64 * KIB;
        assert!(predictor.trust() == Trust::Believed, "after {written} bytes of {most}");
    }
    // A quick one in between: what was slow before does not count in the next slow stage.
    let mut recovered = predictor.clone();
    pad(&mut recovered, 64 * KIB, QUICK);
    assert_eq!(recovered.stage(), Stage::Mid);
    fill(&mut recovered);
    pad(&mut recovered, 64 * KIB, SPIKE);
    pad(&mut recovered, 64 * KIB, SPIKE);
    assert!(recovered.trust() == Trust::Believed);
    pad(&mut predictor, 64 * KIB, SPIKE);
    assert_eq!(predictor.trust(), Trust::GivenUp);
    assert_eq!(predictor.upkeep(SPIKE, SPIKE, true), Upkeep::Nothing);
}

#[test]
fn a_recorded_sequence_is_followed_step_by_step() {
    let mut predictor = small_predictor();
    let mut lines = 0;
    for line in RECORDED.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [sender, bytes, took, stage] = words[..] else { panic!("{line}") };
        let (bytes, took) = (bytes.parse().expect("bytes"), US * took.parse::<u32>().expect("microseconds"));
        match sender {
            "user" => {
                assert_ne!(predictor.predict(bytes), WriteState::Slow, "{line}");
                user(&mut predictor, bytes, took);
            }
            _ => pad(&mut predictor, bytes, took),
        }
        assert_eq!(format!("{:?}", predictor.stage()), stage, "{line}");
        lines += 1;
    }
    assert_eq!((lines, predictor.counts().user_surprises, predictor.counts().slow_stages), (15, 1, 2));
}

/// Lines "who bytes stage trust: microseconds ..." of writes that follow each other, and what is expected behind each. An emulated drive that takes
/// 768 KiB between slow writes, where its profile says 512.
const TRIED: &str = "\
    padding 65536 Lost OnTrial: 167 197 190 191 196 197 179 167 194 192 183 175 197 164 190\n padding 65536 Slow OnTrial: 11511 12538\n\
    padding 65536 Mid OnTrial: 307 309 302 272 292 283\n padding 65536 Due OnTrial: 289 289 305 280 262\n padding 65536 Slow OnTrial: 12940\n\
    padding 65536 Mid OnTrial: 285 268 293 307 256 300\n padding 65536 Due OnTrial: 297 268 294 256 261\n padding 65536 Slow OnTrial: 13140\n\
    padding 65536 Mid OnTrial: 292 269 277 310 268 282\n padding 65536 Due OnTrial: 274 273 282 290 267\n padding 65536 Slow OnTrial: 11291\n\
    padding 65536 Mid OnTrial: 292 303 262 278 260 270\n padding 65536 Due OnTrial: 269 275 300 309 277 295\n\
    padding 65536 Slow Believed: 13162 11149\n padding 65536 Mid Believed: 289\n\
    user 16384 Mid Believed: 106 95 98 106 95 94 94 100 106 109 98 111 114 102 110 103 113 100 105 111 106 107 112 97 94 113 99\n\
    user 16384 Due Believed: 101\n padding 65536 Due Believed: 265 259 307\n padding 65536 Slow Believed: 12650 13178\n\
    padding 65536 Mid Believed: 271\n user 16384 Mid Believed: 107 95 107 107 109 109\n";

#[test]
fn a_drive_on_trial_is_believed_again_with_limits_of_what_padding_met() {
    let mut predictor = small_predictor();
    let before = predictor.limits();
    predictor.try_again();
    assert_eq!((predictor.trust(), predictor.stage()), (Trust::Believed, Stage::Fast), "it was not given up");
    predictor.lose();
    while predictor.trust() == Trust::Believed {
        pad(&mut predictor, 64 * KIB, QUICK);
    }
    assert_eq!(predictor.upkeep(SPIKE, SPIKE, true), Upkeep::Nothing);
    predictor.try_again();
    assert_eq!(predictor.upkeep(SPIKE, SPIKE, false), Upkeep::After(US * 1000), "the solid-state drive is not calm");
    let mut writes = 0;
    for line in TRIED.lines() {
        let (what, took) = line.split_once(':').expect("a colon");
        let [sender, bytes, stage, trust] = what.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let bytes: u64 = bytes.parse().expect("bytes");
        for took in took.split_whitespace().map(|took| US * took.parse::<u32>().expect("microseconds")) {
            if sender == "user" {
                assert_ne!(predictor.predict(bytes), WriteState::Slow, "{line}");
                user(&mut predictor, bytes, took);
            } else {
                let is_believed = predictor.trust() == Trust::Believed;
                assert!(is_believed || predictor.predict(4 * KIB) == WriteState::Slow, "{line}");
                assert_eq!(predictor.upkeep(SPIKE, SPIKE, true), Upkeep::Pad(bytes), "{line}");
                pad(&mut predictor, bytes, took);
            }
            assert_eq!(
                format!("{:?} {:?}", predictor.stage(), predictor.trust()),
                format!("{stage} {trust}"),
                "{line}"
            );
            writes += 1;
        }
    }
    let counts = predictor.counts();
    assert_eq!((writes, counts.user_writes, counts.user_surprises, counts.recalibrations), (108, 34, 0, 1));
    // Four stages of 704, 704, 704 and 768 KiB; of fast ones nothing was seen.
    assert_eq!(predictor.limits(), (before.0, 588_296));
}

#[test]
fn a_trial_that_finds_no_stages_that_are_alike_gives_the_drive_up_again() {
    let given_up = || {
        let mut predictor = predictor();
        predictor.lose();
        while predictor.trust() == Trust::Believed {
            pad(&mut predictor, 64 * KIB, QUICK);
        }
        predictor
    };
    // As long as it is padded: bytes between two slow writes, or none at all.
    for (lengths, padded_max) in
        [(vec![u64::MAX], 36 * MIB), (vec![MIB, 9 * MIB, MIB, MIB, MIB, MIB], 16 * MIB), (vec![0], 2 * MIB)]
    {
        let mut predictor = given_up();
        predictor.try_again();
        let (mut drive, mut padded) = (Drive { lengths, stage: 0, taken: 0 }, 0);
        while let Upkeep::Pad(bytes) = predictor.upkeep(SPIKE, SPIKE, true) {
            assert_eq!(predictor.predict(4 * KIB), WriteState::Slow);
            pad(&mut predictor, bytes, drive.write(bytes));
            padded += bytes;
            assert!(padded <= padded_max, "for ever");
        }
        assert_eq!((predictor.trust(), predictor.counts().recalibrations), (Trust::GivenUp, 0));
    }
    // What somebody disturbs is not counted, and is no failure.
    let mut predictor = given_up();
    predictor.try_again();
    let mut drive = Drive { lengths: vec![8 * MIB], stage: 0, taken: 0 };
    let mut reads = 0;
    while let Upkeep::Pad(bytes) = predictor.upkeep(SPIKE, SPIKE, true) {
        pad(&mut predictor, bytes, drive.write(bytes));
        if predictor.stage() == Stage::Mid && reads < 5 && drive.taken == 4 * MIB {
            predictor.suspend();
            predictor.resume();
            reads += 1;
        }
        if predictor.trust() == Trust::Believed {
            break;
        }
    }
    assert_eq!((reads, predictor.trust(), predictor.limits().1), (5, Trust::Believed, 8 * MIB));
}

proptest! {
    // Test of: [bcw §Predict Write State]: it prefers Slow when in doubt.
    #[test]
    fn no_user_meets_a_slow_stage_of_a_drive_that_is_as_profiled(
        lengths in prop::collection::vec(0..100u64, 4..12),
        sizes in prop::collection::vec(1..16u64, 50),
        reads in prop::collection::vec(0..400usize, 0..5),
    ) {
        let mut predictor = predictor();
        let (fast, mid) = (profile().fast, profile().mid);
        let between = |stage: &crate::StageBytes, percent: u64| {
            stage.limit() + (stage.most() - stage.limit()) * percent / 100
        };
        let lengths = lengths.iter().enumerate();
        let lengths = lengths.map(|(at, percent)| between(if at == 0 { &fast } else { &mid }, *percent)).collect();
        let mut drive = Drive { lengths, stage: 0, taken: 0 };
        for at in 0..4000 {
            let bytes = sizes[at % sizes.len()] * 4 * KIB;
            if reads.contains(&(at / 10)) && at % 10 == 0 {
                predictor.suspend();
                predictor.resume();
            } else if predictor.predict(bytes) != WriteState::Slow {
                user(&mut predictor, bytes, drive.write(bytes));
            } else if let Upkeep::Pad(bytes) = predictor.upkeep(SPIKE, SPIKE, true) {
                pad(&mut predictor, bytes, drive.write(bytes));
            }
            // The first stage of a drive is the only fast one here.
            prop_assert!(drive.stage < drive.lengths.len(), "the test's drive has more stages");
            if drive.stage + 1 == drive.lengths.len() {
                break;
            }
        }
        let counts = predictor.counts();
        prop_assert_eq!((counts.user_surprises, counts.padding_surprises, counts.recalibrations), (0, 0, 0));
        prop_assert!(predictor.trust() == Trust::Believed);
    }

    #[test]
    fn on_any_drive_at_most_one_write_of_a_stage_is_a_surprise(
        lengths in prop::collection::vec(1..400u64, 3..20),
        steps in prop::collection::vec((0..6u8, 1..17u64), 600),
    ) {
        let mut predictor = predictor();
        let lengths = lengths.iter().map(|length| length * 64 * KIB).collect();
        let mut drive = Drive { lengths, stage: 0, taken: 0 };
        let mut readers = 0;
        for (what, sectors) in steps {
            let bytes = sectors * 4 * KIB;
            match what {
                0 if readers < 3 => {
                    predictor.suspend();
                    readers += 1;
                }
                1 | 2 if readers > 0 => {
                    predictor.resume();
                    readers -= 1;
                }
                3 if predictor.predict(64 * KIB) != WriteState::Slow => {
                    pad(&mut predictor, 64 * KIB, drive.write(64 * KIB));
                }
                _ if predictor.predict(bytes) != WriteState::Slow => user(&mut predictor, bytes, drive.write(bytes)),
                _ => {
                    if let Upkeep::Pad(bytes) = predictor.upkeep(SPIKE, Duration::ZERO, true) {
                        pad(&mut predictor, bytes, drive.write(bytes));
                    }
                }
            }
            prop_assert_eq!(predictor.stage() == Stage::Suspended, readers > 0);
            let counts = predictor.counts();
            prop_assert!(counts.user_surprises + counts.padding_surprises <= counts.slow_stages);
            prop_assert!(counts.slow_stages <= drive.stage as u64);
        }
    }
}

//! Answers of smartctl 7.3: the one for what it cannot ask was recorded, the others are what its source (`ataprint.cpp`)
//! prints for drives that we do not have.

use std::fs;

use super::super::drive::DurationLimits;
use super::*;

const HEAD: &str =
    r#""json_format_version": [1, 0], "local_time": {"time_t": 1795349247, "asctime": "Sun Nov 22 12:07:27 2026 UTC"}"#;
const CALL: &str = r#""version": [7, 3], "svn_revision": "5338", "platform_info": "x86_64-linux", "build_info": "(local build)",
    "argv": ["smartctl", "-l", "scterc", "--json", "/dev/sda"]"#;
const SATA: &str = r#""device": {"name": "/dev/sda", "info_name": "/dev/sda [SAT]", "type": "sat", "protocol": "ATA"}"#;
const SAS: &str = r#""device": {"name": "/dev/sda", "info_name": "/dev/sda", "type": "scsi", "protocol": "SCSI"}"#;

/// An answer with this status and these parts.
fn answer(status: u32, parts: &[&str]) -> String {
    let parts: String = parts.iter().map(|part| format!(", {part}")).collect();
    format!(r#"{{ {HEAD}, "smartctl": {{ {CALL}, "exit_status": {status} }}{parts} }}"#)
}

fn timers(read: Option<u32>, write: Option<u32>) -> String {
    let timer = |limit: Option<u32>| match limit {
        Some(limit) => format!(r#"{{ "enabled": true, "deciseconds": {limit} }}"#),
        None => r#"{ "enabled": false }"#.to_owned(),
    };
    format!(r#""ata_sct_erc": {{ "read": {}, "write": {} }}"#, timer(read), timer(write))
}

/// Recorded: a virtual machine's drive.
const NOT_ASKED: &str = r#"{
  "json_format_version": [ 1, 0 ],
  "smartctl": {
    "version": [ 7, 3 ],
    "svn_revision": "5338",
    "platform_info": "x86_64-linux-6.18.44",
    "build_info": "(local build)",
    "argv": [ "smartctl", "-l", "scterc", "--json", "/dev/vda" ],
    "messages": [
      { "string": "/dev/vda: Unable to detect device type", "severity": "error" }
    ],
    "exit_status": 1
  },
  "local_time": { "time_t": 1795349247, "asctime": "Sun Nov 22 12:07:27 2026 UTC" }
}"#;

fn recovery(answer: &str) -> ErrorRecovery {
    serde_json::from_str::<Answer>(answer).expect("JSON as smartctl prints it").recovery()
}

#[test]
fn the_limits_of_a_drive_are_told() {
    let found = recovery(&answer(0, &[SATA, &timers(Some(70), Some(70))]));
    assert_eq!(found, ErrorRecovery::Limited { read_ms: Some(7000), write_ms: Some(7000) });
    assert!(found.limits_reads());
    assert_eq!(found.to_string(), "the drive tries to read a sector at most 7.0 s, to write one at most 7.0 s");
    // Bits of its health are no matter.
    let found = recovery(&answer(64 + 8, &[SATA, &timers(Some(1), None)]));
    assert_eq!(found, ErrorRecovery::Limited { read_ms: Some(100), write_ms: None });
    assert_eq!(found.to_string(), "the drive tries to read a sector at most 0.1 s, to write one without a limit");
    assert!(!recovery(&answer(0, &[SATA, &timers(None, Some(70))])).limits_reads());
}

#[test]
fn a_drive_without_limits_can_be_told_some() {
    let found = recovery(&answer(0, &[SATA, &timers(None, None)]));
    assert_eq!(found, ErrorRecovery::Unlimited);
    assert!(!found.limits_reads());
    assert_eq!(found.to_string(), "the drive tries without a limit; it can be told one");
}

#[test]
fn drives_that_know_no_limits_are_unsupported() {
    for (device, why) in [
        (SATA, "the drive has no SCT error recovery control"),
        (SAS, "only SATA drives have SCT error recovery control"),
    ] {
        assert_eq!(recovery(&answer(0, &[device])), ErrorRecovery::Unsupported { why });
    }
}

#[test]
fn what_failed_says_nothing_of_the_drive() {
    let unknown = |why: &str| ErrorRecovery::Unknown { why: why.to_owned() };
    assert_eq!(recovery(NOT_ASKED), unknown("smartctl says: /dev/vda: Unable to detect device type"));
    assert_eq!(recovery(&answer(4, &[SATA])), unknown("a command to the drive failed"));
    assert_eq!(recovery(&answer(4, &[SATA, &timers(Some(70), Some(70))])), unknown("a command to the drive failed"));
    assert_eq!(recovery(&answer(2, &[])), unknown("smartctl failed with status 2"));
    assert_eq!(recovery(&answer(0, &[])), unknown("smartctl tells nothing of the drive"));
    let odd = r#""ata_sct_erc": { "read": { "enabled": true }, "write": { "enabled": false } }"#;
    assert_eq!(recovery(&answer(0, &[SATA, odd])), unknown("smartctl tells of a limit without its length"));
    assert_eq!(recovery(&answer(0, &[SATA, &timers(Some(0), None)])), recovery(&answer(0, &[SATA, odd])));
}

#[test]
fn limits_are_whole_tenths_that_a_drive_takes() {
    let limits = |read_deciseconds, write_deciseconds| Some(RecoveryLimits { read_deciseconds, write_deciseconds });
    assert_eq!(RecoveryLimits::new(Some(7000), Some(7001)), limits(70, 71));
    assert_eq!(RecoveryLimits::new(Some(1), None), limits(1, 0));
    assert_eq!(RecoveryLimits::new(None, Some(99_900)), limits(0, 999));
    for bad in [Some(0), Some(99_901), Some(u32::MAX)] {
        assert_eq!(RecoveryLimits::new(bad, None), None);
        assert_eq!(RecoveryLimits::new(None, bad), None);
    }
}

fn drive(attachment: Attachment) -> Drive {
    Drive {
        name: "sda".to_owned(),
        attachment,
        rotational: Some(true),
        vendor: None,
        model: None,
        timeout_s: Some(30),
        duration_limits: DurationLimits::Unknown,
    }
}

/// A tool that writes down how it was called and runs `script`.
struct Fake {
    dir: tempfile::TempDir,
    smartctl: Smartctl,
}

fn fake(script: &str) -> Fake {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("smartctl");
    fs::write(&path, format!("cd {}\necho \"$@\" >> calls\n{script}\n", dir.path().display())).expect("a script");
    // Not a program of its own: while another test starts one, it may be held open for writing and not start.
    let smartctl = Smartctl { program: "/bin/sh".into(), arguments: vec![path], ..Smartctl::default() };
    Fake { dir, smartctl }
}

impl Fake {
    fn calls(&self) -> String {
        fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default()
    }

    fn has(self, file: &str, text: &str) -> Fake {
        fs::write(self.dir.path().join(file), text).expect("a file");
        self
    }
}

#[test]
fn asking_changes_nothing_and_telling_is_checked_by_asking() {
    let script = r#"case "$2" in scterc) cat "now";; scterc,70,70) cp told now; cat now;; *) cat refused;; esac"#;
    let fake = fake(script)
        .has("now", &answer(0, &[SATA, &timers(None, None)]))
        .has("told", &answer(0, &[SATA, &timers(Some(70), Some(70))]))
        .has("refused", &answer(4, &[SATA]));
    let scsi = drive(Attachment::Scsi);
    assert_eq!(fake.smartctl.recovery(&scsi, None), ErrorRecovery::Unlimited);
    assert_eq!(fake.calls(), "-l scterc --json /dev/sda\n");
    // A limit that the drive does not take: what it does instead is told.
    let short = RecoveryLimits::new(Some(1000), Some(1000));
    assert_eq!(fake.smartctl.recovery(&scsi, short), ErrorRecovery::Unlimited);
    let found = fake.smartctl.recovery(&scsi, RecoveryLimits::new(Some(7000), Some(7000)));
    assert_eq!(found, ErrorRecovery::Limited { read_ms: Some(7000), write_ms: Some(7000) });
    // What somebody chose stays.
    let found = fake.smartctl.recovery(&scsi, short);
    assert_eq!(found, ErrorRecovery::Limited { read_ms: Some(7000), write_ms: Some(7000) });
    let calls = ["scterc", "scterc", "scterc,10,10", "scterc", "scterc", "scterc,70,70", "scterc", "scterc"];
    assert_eq!(fake.calls(), calls.map(|log| format!("-l {log} --json /dev/sda\n")).concat());
}

#[test]
fn other_drives_are_never_asked_nor_told() {
    let fake = fake("cat answer").has("answer", &answer(0, &[SATA, &timers(Some(70), Some(70))]));
    for attachment in [Attachment::Nvme, Attachment::Other, Attachment::Made] {
        let found = fake.smartctl.recovery(&drive(attachment), RecoveryLimits::new(Some(7000), None));
        assert!(matches!(found, ErrorRecovery::Unsupported { .. }), "{found}");
    }
    assert_eq!(fake.calls(), "");
}

#[test]
fn a_tool_that_fails_is_told_of() {
    let scsi = drive(Attachment::Scsi);
    let missing = Smartctl { program: "/nowhere/smartctl".into(), ..Smartctl::default() };
    let found = missing.recovery(&scsi, None);
    assert_eq!(found.to_string(), "not known: smartctl is not installed (smartmontools)");
    let found = fake("echo smartctl: unknown option; exit 1").smartctl.recovery(&scsi, None);
    assert_eq!(found.to_string(), "not known: smartctl answers no JSON; it takes version 7.0 or later");
    // As much as it likes to print.
    let found = fake("exec head -c 3000000 /dev/zero").smartctl.recovery(&scsi, None);
    assert!(matches!(found, ErrorRecovery::Unknown { .. }), "{found}");
    let mut hangs = fake("exec sleep 1000");
    hangs.smartctl.answer_max = Duration::from_millis(50);
    assert_eq!(hangs.smartctl.recovery(&scsi, None).to_string(), "not known: smartctl did not answer within 0 s");
}

//! `claystone policy`: how the redundancy of buckets follows what is read.

use anyhow::anyhow;
use claystone_code::CodeSpec;
use claystone_console::api;
use claystone_meta::{Fresh, HeatPolicy, Reads};
use hyper::Method;

use super::{At, print_json};
use crate::admin::AdminClient;
use crate::output::output;
use crate::settings::policy_named;
use crate::table::{Table, bytes, counted, seconds};

/// How the redundancy of buckets follows what is read.
#[derive(Debug, clap::Args)]
pub struct Policy {
    #[command(flatten)]
    at: At,
    /// JSON instead of sentences
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// The policies with names, and the disks that they need
    List,
    /// What a bucket has, and what its objects take
    Show {
        /// The bucket
        bucket: String,
    },
    /// Choose what a bucket has; its objects become so one by one, and those to come get the fast code or copies as far as the bound
    /// leaves room, else the compact code at once
    Set {
        /// The bucket
        bucket: String,
        /// A name of `claystone policy list`; `auto`: by the number of disks; a policy as `show` prints it; or `none`
        policy: String,
        /// Bytes on disks for each byte of objects, such as 1.5x, over the whole bucket
        #[arg(long, value_name = "RATIO")]
        space_at_most: Option<super::volume::Ratio>,
        /// Copies of each data chunk of what is new and finds room, such as 3; 2+parity: with the parity of the fast code beside them; 0: what is new
        /// gets the fast code
        #[arg(long, value_name = "COPIES", value_parser = new_copies)]
        new_copies: Option<NewCopies>,
        /// What is read less often lately is made compact, such as 0.25
        #[arg(long, value_name = "READS", value_parser = reads)]
        cold_below: Option<Reads>,
        /// What is read more often lately is made fast, such as 1.00
        #[arg(long, value_name = "READS", value_parser = reads)]
        hot_above: Option<Reads>,
    },
    /// Why the objects of a bucket, or one of them, have the codes that they have
    Explain {
        /// The bucket
        bucket: String,
        /// The object
        key: Option<String>,
    },
}

impl Policy {
    /// Acts.
    ///
    /// # Errors
    /// No store answers, or it says no.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = AdminClient::of(&self.at.dir)?;
        match self.action {
            Action::List => {
                let policies: api::Policies = client.get("/policies").await?;
                if self.json {
                    print_json(&policies)?;
                } else {
                    write!(output(), "{}", listed(&policies))?;
                }
            }
            Action::Show { bucket } => {
                let report: api::PolicyReport = client.get(&route(&bucket)).await?;
                if self.json { print_json(&report)? } else { write!(output(), "{}", shown(&report))? }
            }
            Action::Set { bucket, policy: text, space_at_most, new_copies, cold_below, hot_above } => {
                let mut policy = match text.as_str() {
                    "none" => None,
                    "auto" => Some(chosen(&client).await?),
                    text => Some(policy_named(text)?),
                };
                if let Some(policy) = &mut policy {
                    policy.percent_max = space_at_most.map_or(policy.percent_max, |ratio| ratio.0);
                    policy.fresh = new_copies.map_or(policy.fresh, |new| new.0);
                    policy.cold_below = cold_below.unwrap_or(policy.cold_below);
                    policy.hot_above = hot_above.unwrap_or(policy.hot_above);
                    policy.validate()?;
                }
                let body = api::SetPolicy { policy: policy.map(|policy| policy.to_string()) };
                let _: api::Done = client.send(Method::PUT, &route(&bucket), &body).await?;
                if self.json {
                    print_json(&body)?;
                } else {
                    match body.policy {
                        Some(policy) => {
                            writeln!(output(), "{bucket} is kept as {policy}; its objects become so one by one")?
                        }
                        None => writeln!(output(), "{bucket} has no policy; its objects stay as they are")?,
                    }
                }
            }
            Action::Explain { bucket, key } => {
                let path = match &key {
                    Some(key) => format!("{}?key={}", route(&bucket), escaped(key)),
                    None => route(&bucket),
                };
                let report: api::PolicyReport = client.get(&path).await?;
                if self.json {
                    print_json(&report)?
                } else {
                    write!(output(), "{}", explained(&report, key.as_deref()))?
                }
            }
        }
        Ok(())
    }
}

async fn chosen(client: &AdminClient) -> anyhow::Result<HeatPolicy> {
    let policies: api::Policies = client.get("/policies").await?;
    let name = policies
        .chosen
        .as_ref()
        .ok_or_else(|| anyhow!("{}, too few for any of `claystone policy list` and a repair", there_are(&policies)))?;
    Ok(HeatPolicy::named(name)?)
}

fn there_are(policies: &api::Policies) -> String {
    match policies.nodes {
        0 | 1 => counted(policies.disks, "disk takes writes", "disks take writes"),
        nodes => format!("{} disks on {nodes} nodes take writes", policies.disks),
    }
}

fn listed(policies: &api::Policies) -> String {
    let mut table = Table::new(&["name", "disks", "policy", "what"]);
    for policy in &policies.policies {
        let api::PolicyPreset { name, policy: text, disks_min, summary } = policy.clone();
        table.row([name, disks_min.to_string(), text, summary]);
    }
    let there_are = there_are(policies);
    let chosen = match &policies.chosen {
        Some(name) => format!("{there_are}: `auto` is {name}"),
        None => format!("{there_are}: too few for `auto`"),
    };
    format!("{table}\n{chosen}\n")
}

fn shown(report: &api::PolicyReport) -> String {
    let Some(policy) = &report.policy else { return format!("{} has no policy\n", report.bucket) };
    let name = report.preset.as_ref().map_or(String::new(), |name| format!("{name}: "));
    let mut table = Table::new(&["of chunks", "bytes"]);
    for (what, number) in [
        ("fresh", report.fresh_bytes),
        ("fast", report.fast_bytes),
        ("compact", report.compact_bytes),
        ("other", report.other_bytes),
        ("new, of these", report.young_bytes),
        ("waiting, of these", report.waiting_bytes),
        ("for objects of", report.data_bytes),
    ] {
        table.row([what.to_owned(), bytes(number)]);
    }
    let of = if report.whole { "its objects" } else { "the objects in a part of it: not all parts were looked at yet" };
    format!("{name}{policy}\n\n{table}\n{:.1} % of the bytes of {of}\n", report.percent)
}

/// The policy in sentences, and what it comes to now.
fn explained(report: &api::PolicyReport, key: Option<&str>) -> String {
    let bucket = &report.bucket;
    let Some(policy) = report.policy.as_ref().and_then(|text| text.parse::<HeatPolicy>().ok()) else {
        return format!("{bucket} has no policy: its objects keep the codes that they were written with.\n");
    };
    let HeatPolicy { fresh, fast, compact, percent_max, cold_below, hot_above } = policy;
    let new = match fresh {
        Some(Fresh { copies, parity }) => format!(
            "New objects in {bucket} get {copies} copies of each of the data chunks that they will have{}; long ones, and parts of \
             uploads, get {fast} at once.\n\
             When they are no longer new, they get {fast} where they are, or {compact} at once if they are read little.\n",
            if parity { format!(", and the parity of {fast}") } else { String::new() },
        ),
        None => format!("New objects in {bucket} get {fast}: a lost chunk is rebuilt from few others.\n"),
    };
    let survived = match policy.fresh_code() {
        Some(new) => {
            format!("and survive the loss of any {}; what is new that of {}", fast.tolerance(), new.tolerance())
        }
        None => format!("and survive the loss of any {}", fast.tolerance()),
    };
    let becomes = match policy.sources() {
        1 => format!("a stripe becomes {compact}"),
        sources => format!("{sources} stripes become one of {compact}"),
    };
    let mut text = format!(
        "{new}\
         That is as far as the bound leaves room for it; what finds none is {compact} at once. Objects of up to 64 KiB share packs, \
         which are written as before.\n\
         Where stripes are read less than {cold_below} times lately, {becomes}, which takes less space; data stays where it is.\n\
         What is read more than {hot_above} times becomes {fast} again, while the bucket takes at most {percent_max} % of its data.\n\
         If it takes more, what is read least is made compact, however much that is.\n\
         A read of all bytes of a stripe counts 1, and half as much {} later.\n\
         Both codes need {} disks, {survived}.\n",
        seconds(report.half_life_seconds),
        policy.disks_min(),
    );
    text.push_str(&format!(
        "\n{} {:.1} % of {}.{}\n{}{}\
         Counted are all chunks of its objects and of their older versions; not parts of uploads that are not complete, nor what is \
         deleted and not reclaimed yet.\n",
        if report.whole { "Now it takes" } else { "It is looked at in parts, and not all were yet. This one takes" },
        report.percent,
        bytes(report.data_bytes),
        unchanged(report),
        of_part(report, key),
        of_room(report, compact),
    ));
    if let Some(key) = key {
        if report.stripes.is_empty() {
            text.push_str(&format!("{key} has no bytes.\n"));
        }
        for stripe in &report.stripes {
            text.push_str(&format!("{key}, stripe {}, {}: {}.\n", stripe.stripe, stripe.code, stripe.why));
        }
        return text;
    }
    for reason in &report.reasons {
        let (stripes, of) = (reason.stripes, bytes(reason.data_bytes));
        let stripes = counted(stripes, "stripe", "stripes, one of them");
        text.push_str(&format!("{of} in {stripes}: {}.\n", reason.example));
    }
    text
}

/// That a large bucket keeps its bound part by part, and which part is told of.
fn of_part(report: &api::PolicyReport, key: Option<&str>) -> String {
    let (Some(data), Some(percent)) = (report.part_data_bytes, report.part_percent) else { return String::new() };
    let which = if key.is_some() { "where the object begins" } else { "told of here, the first," };
    format!(
        "It is looked at in parts, each of which keeps the bound by itself: the one {which} takes {percent:.1} % of {}.\n",
        bytes(data)
    )
}

/// What the bound leaves to what is written next.
fn of_room(report: &api::PolicyReport, compact: CodeSpec) -> String {
    match report.room_bytes {
        None => format!(
            "Upkeep has not looked at all of it since the start: until then what is written is {compact} at once.\n"
        ),
        Some(0) => format!("There is no room below the bound: what is written next is {compact} at once.\n"),
        Some(room) => format!("What is written next may take {} more than under {compact}.\n", bytes(room)),
    }
}

/// What of a bucket's chunks the bound changes last, or not now.
fn unchanged(report: &api::PolicyReport) -> String {
    let parts = [
        (report.young_bytes, "of what is new, which is merged last"),
        (report.waiting_bytes, "of what waits for repair, another attempt, or the policy of another bucket"),
        (report.other_bytes, "of other codes, which stay"),
    ];
    let parts = parts.iter().filter(|(of, _)| *of > 0).map(|(of, what)| format!("{} are {what}", bytes(*of)));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::new() } else { format!(" Of its chunks {}.", parts.join(", ")) }
}

fn route(bucket: &str) -> String {
    format!("/buckets/{}/policy", escaped(bucket))
}

/// As a part of a path or a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// What new stripes are to have; nothing: they are fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NewCopies(Option<Fresh>);

fn new_copies(text: &str) -> Result<NewCopies, String> {
    let (copies, parity) = text.strip_suffix("+parity").map_or((text, false), |copies| (copies, true));
    let expected = || "expected a number such as 3, 0 for none, or 2+parity".to_owned();
    match (copies.parse().map_err(|_| expected())?, parity) {
        (0, false) => Ok(NewCopies(None)),
        (copies @ 2.., parity) => Ok(NewCopies(Some(Fresh { copies, parity }))),
        _ => Err(expected()),
    }
}

fn reads(text: &str) -> Result<Reads, String> {
    text.parse().map_err(|_| "expected a number with two decimals, such as 0.25".to_owned())
}

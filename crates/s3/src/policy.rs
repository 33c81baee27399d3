//! Bucket policies: JSON documents that allow or deny actions.
//!
//! Invariants:
//! 1. A policy that names something this server cannot decide (an operator, an element) is refused when it is put,
//!    so that what is stored is what is enforced.
//! 2. A denial wins over every permission.
//! 3. A condition on a key that the request does not have fails, except with `IfExists`, a negated operator or `Null`.
//!
//! Evaluated: Effect, Principal, NotPrincipal (with Deny), Action, NotAction, Resource, NotResource, Condition with the
//! String, Numeric, Bool, IpAddress, Arn and Null operators.

use std::net::IpAddr;

use s3s::{S3Error, s3_error};
use serde_json::{Map, Value};

use crate::keys::Account;

/// A policy, understood.
#[derive(Debug, Clone)]
pub struct Policy {
    statements: Vec<Statement>,
}

#[derive(Debug, Clone)]
struct Statement {
    allow: bool,
    principals: Principals,
    actions: Patterns,
    resources: Patterns,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
enum Principals {
    Any,
    These(Vec<String>),
    AllBut(Vec<String>),
}

#[derive(Debug, Clone)]
struct Patterns {
    patterns: Vec<String>,
    negated: bool,
}

#[derive(Debug, Clone)]
struct Condition {
    operator: Operator,
    negated: bool,
    if_exists: bool,
    key: String,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    StringEquals,
    StringEqualsIgnoreCase,
    StringLike,
    NumericEquals,
    NumericLessThan,
    NumericLessThanEquals,
    NumericGreaterThan,
    NumericGreaterThanEquals,
    Bool,
    IpAddress,
    Null,
}

/// What a policy says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// A statement denies it.
    Deny,
    /// A statement allows it and none denies it.
    Allow,
    /// Nothing is said of it.
    Silent,
}

/// What a policy looks at.
pub struct Asking<'a> {
    /// Who; `None`: nobody known.
    pub who: Option<&'a Account>,
    /// `s3:GetObject` and the like.
    pub action: &'a str,
    /// `arn:aws:s3:::bucket/key`.
    pub resource: &'a str,
    /// The value of a condition key, which comes in lower case.
    pub value: &'a dyn Fn(&str) -> Option<String>,
}

impl Policy {
    /// Reads a policy; a fuzz target by itself.
    ///
    /// # Errors
    /// `MalformedPolicy` with what is wrong.
    pub fn parse(text: &[u8]) -> Result<Policy, S3Error> {
        if text.len() > POLICY_BYTES_MAX {
            return Err(malformed(format!("policies are limited to {POLICY_BYTES_MAX} bytes")));
        }
        let value: Value =
            serde_json::from_slice(text).map_err(|error| malformed(format!("it is not JSON: {error}")))?;
        let Value::Object(policy) = value else { return Err(malformed("it is no JSON object")) };
        only(&policy, &["Version", "Id", "Statement"])?;
        if let Some(version) = policy.get("Version")
            && !["2012-10-17", "2008-10-17"].contains(&version.as_str().unwrap_or_default())
        {
            return Err(malformed("Version must be 2012-10-17 or 2008-10-17"));
        }
        let statements = match policy.get("Statement") {
            Some(Value::Array(statements)) => statements.iter().map(Statement::parse).collect::<Result<_, _>>()?,
            Some(statement @ Value::Object(_)) => vec![Statement::parse(statement)?],
            _ => return Err(malformed("Statement is missing")),
        };
        Ok(Policy { statements })
    }

    /// What it says.
    pub fn decide(&self, asking: &Asking<'_>) -> Decision {
        let mut decision = Decision::Silent;
        for statement in &self.statements {
            if statement.fits(asking) {
                if !statement.allow {
                    return Decision::Deny;
                }
                decision = Decision::Allow;
            }
        }
        decision
    }

    /// Whether it allows something to everybody, without a condition on where the request comes from.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            statement.allow
                && matches!(statement.principals, Principals::Any)
                && !statement
                    .conditions
                    .iter()
                    .any(|condition| !condition.negated && NARROWING.contains(&condition.key.as_str()))
        })
    }

    /// Whether each resource lies in `bucket`.
    pub fn is_about(&self, bucket: &str) -> bool {
        let arn = format!("{ARN}{bucket}");
        self.statements.iter().flat_map(|statement| &statement.resources.patterns).all(|pattern| {
            let own = pattern.split_once('/').map_or(pattern.as_str(), |(bucket, _)| bucket);
            glob(own, &arn)
        })
    }
}

impl Statement {
    fn parse(value: &Value) -> Result<Statement, S3Error> {
        let Value::Object(statement) = value else { return Err(malformed("a statement is no JSON object")) };
        only(
            statement,
            &[
                "Sid",
                "Effect",
                "Principal",
                "NotPrincipal",
                "Action",
                "NotAction",
                "Resource",
                "NotResource",
                "Condition",
            ],
        )?;
        let allow = match statement.get("Effect").and_then(Value::as_str) {
            Some("Allow") => true,
            Some("Deny") => false,
            _ => return Err(malformed("Effect must be Allow or Deny")),
        };
        let principals = match (statement.get("Principal"), statement.get("NotPrincipal")) {
            (Some(principal), None) => Principals::parse(principal)?,
            (None, Some(_)) if allow => return Err(malformed("NotPrincipal cannot be used with Allow")),
            (None, Some(principal)) => match Principals::parse(principal)? {
                Principals::These(these) => Principals::AllBut(these),
                _ => return Err(malformed("NotPrincipal must name accounts")),
            },
            _ => return Err(malformed("a statement needs either Principal or NotPrincipal")),
        };
        let actions = Patterns::parse(statement, "Action", "NotAction")?;
        let resources = Patterns::parse(statement, "Resource", "NotResource")?;
        if actions.patterns.iter().any(|action| action != "*" && !action.to_ascii_lowercase().starts_with("s3:")) {
            return Err(malformed("an Action must begin with s3:"));
        }
        if resources.patterns.iter().any(|resource| resource != "*" && !resource.starts_with(ARN)) {
            return Err(malformed(format!("a Resource must begin with {ARN}")));
        }
        let conditions = match statement.get("Condition") {
            None => vec![],
            Some(Value::Object(operators)) => conditions(operators)?,
            Some(_) => return Err(malformed("Condition is no JSON object")),
        };
        Ok(Statement { allow, principals, actions, resources, conditions })
    }

    fn fits(&self, asking: &Asking<'_>) -> bool {
        let who = match &self.principals {
            Principals::Any => true,
            Principals::These(these) => these.iter().any(|principal| is(principal, asking.who)),
            Principals::AllBut(these) => !these.iter().any(|principal| is(principal, asking.who)),
        };
        who && self.actions.fit(&asking.action.to_ascii_lowercase(), true)
            && self.resources.fit(asking.resource, false)
            && self.conditions.iter().all(|condition| condition.holds((asking.value)(&condition.key)))
    }
}

impl Principals {
    fn parse(value: &Value) -> Result<Principals, S3Error> {
        let ids = match value {
            Value::String(text) if text == "*" => return Ok(Principals::Any),
            Value::Object(kinds) => {
                only(kinds, &["AWS", "CanonicalUser"])?;
                let mut ids = Vec::new();
                for value in kinds.values() {
                    ids.extend(strings(value, "Principal")?);
                }
                ids
            }
            _ => return Err(malformed("Principal must be \"*\" or name accounts")),
        };
        if ids.iter().any(|id| id == "*") {
            return Ok(Principals::Any);
        }
        if ids.is_empty() {
            return Err(malformed("Principal names nobody"));
        }
        Ok(Principals::These(ids))
    }
}

/// Whether a principal (an id, or `arn:aws:iam::ACCOUNT:root` or `:user/NAME`) is this account.
fn is(principal: &str, who: Option<&Account>) -> bool {
    let Some(who) = who else { return false };
    if principal == who.id {
        return true;
    }
    let Some(rest) = principal.strip_prefix("arn:aws:iam::") else { return false };
    match rest.split_once(':') {
        Some((account, "root")) => account == who.id,
        Some((_, user)) => user.strip_prefix("user/").is_some_and(|name| name == who.id),
        None => false,
    }
}

impl Patterns {
    fn parse(statement: &Map<String, Value>, name: &str, not_name: &str) -> Result<Patterns, S3Error> {
        let (value, negated) = match (statement.get(name), statement.get(not_name)) {
            (Some(value), None) => (value, false),
            (None, Some(value)) => (value, true),
            _ => return Err(malformed(format!("a statement needs either {name} or {not_name}"))),
        };
        let patterns = strings(value, name)?;
        if patterns.is_empty() {
            return Err(malformed(format!("{name} is empty")));
        }
        Ok(Patterns { patterns, negated })
    }

    fn fit(&self, text: &str, ignore_case: bool) -> bool {
        let any = self
            .patterns
            .iter()
            .any(|pattern| if ignore_case { glob(&pattern.to_ascii_lowercase(), text) } else { glob(pattern, text) });
        any != self.negated
    }
}

fn conditions(operators: &Map<String, Value>) -> Result<Vec<Condition>, S3Error> {
    let mut conditions = Vec::new();
    for (name, keys) in operators {
        let (base, if_exists) = match name.strip_suffix("IfExists") {
            Some(base) => (base, true),
            None => (name.as_str(), false),
        };
        let (operator, negated) = match base {
            "StringEquals" | "ArnEquals" => (Operator::StringEquals, false),
            "StringNotEquals" | "ArnNotEquals" => (Operator::StringEquals, true),
            "StringEqualsIgnoreCase" => (Operator::StringEqualsIgnoreCase, false),
            "StringNotEqualsIgnoreCase" => (Operator::StringEqualsIgnoreCase, true),
            "StringLike" | "ArnLike" => (Operator::StringLike, false),
            "StringNotLike" | "ArnNotLike" => (Operator::StringLike, true),
            "NumericEquals" => (Operator::NumericEquals, false),
            "NumericNotEquals" => (Operator::NumericEquals, true),
            "NumericLessThan" => (Operator::NumericLessThan, false),
            "NumericLessThanEquals" => (Operator::NumericLessThanEquals, false),
            "NumericGreaterThan" => (Operator::NumericGreaterThan, false),
            "NumericGreaterThanEquals" => (Operator::NumericGreaterThanEquals, false),
            "Bool" => (Operator::Bool, false),
            "IpAddress" => (Operator::IpAddress, false),
            "NotIpAddress" => (Operator::IpAddress, true),
            "Null" if !if_exists => (Operator::Null, false),
            _ => return Err(malformed(format!("the condition operator {name} is not supported"))),
        };
        let Value::Object(keys) = keys else { return Err(malformed("a condition is no JSON object")) };
        for (key, values) in keys {
            let values = strings(values, name)?;
            if operator == Operator::IpAddress && values.iter().any(|value| Network::parse(value).is_none()) {
                return Err(malformed(format!("{name} needs addresses like 192.0.2.0/24")));
            }
            conditions.push(Condition { operator, negated, if_exists, key: canonical(key), values });
        }
    }
    Ok(conditions)
}

impl Condition {
    fn holds(&self, value: Option<String>) -> bool {
        if self.operator == Operator::Null {
            return self.values.iter().any(|wanted| (wanted == "true") == value.is_none());
        }
        let Some(value) = value else { return self.if_exists || self.negated };
        self.values.iter().any(|wanted| self.operator.compare(&value, wanted)) != self.negated
    }
}

impl Operator {
    fn compare(self, value: &str, wanted: &str) -> bool {
        let numbers = || Some((value.parse::<f64>().ok()?, wanted.parse::<f64>().ok()?));
        let number = |test: fn(f64, f64) -> bool| numbers().is_some_and(|(value, wanted)| test(value, wanted));
        match self {
            Operator::StringEquals => value == wanted,
            Operator::StringEqualsIgnoreCase | Operator::Bool => value.eq_ignore_ascii_case(wanted),
            Operator::StringLike => glob(wanted, value),
            Operator::NumericEquals => number(|value, wanted| value == wanted),
            Operator::NumericLessThan => number(|value, wanted| value < wanted),
            Operator::NumericLessThanEquals => number(|value, wanted| value <= wanted),
            Operator::NumericGreaterThan => number(|value, wanted| value > wanted),
            Operator::NumericGreaterThanEquals => number(|value, wanted| value >= wanted),
            Operator::IpAddress => {
                let address = value.parse::<IpAddr>().ok();
                address.zip(Network::parse(wanted)).is_some_and(|(address, network)| network.holds(address))
            }
            Operator::Null => false,
        }
    }
}

/// `ADDRESS/BITS`.
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Network> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        (bits <= width).then_some(Network { address, bits })
    }

    fn holds(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| self.bits == 0 || (a ^ b) >> (width - self.bits) == 0;
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => same(u32::from(own).into(), u32::from(other).into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => same(own.into(), other.into(), 128),
            _ => false,
        }
    }
}

/// Whether `text` fits `pattern`, in which `*` stands for anything and `?` for one byte. Linear in time but for a
/// product of both lengths in the worst case.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

fn strings(value: &Value, name: &str) -> Result<Vec<String>, S3Error> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(malformed(format!("{name} holds something else than text"))),
    };
    match value {
        Value::Array(values) => values.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

/// A condition key in lower case, but for the tag that it may name.
fn canonical(key: &str) -> String {
    match key.split_once('/') {
        Some((kind, tag)) => format!("{}/{tag}", kind.to_ascii_lowercase()),
        None => key.to_ascii_lowercase(),
    }
}

fn only(map: &Map<String, Value>, known: &[&str]) -> Result<(), S3Error> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(malformed(format!("{key} is not known here"))),
        None => Ok(()),
    }
}

fn malformed(reason: impl std::fmt::Display) -> S3Error {
    s3_error!(MalformedPolicy, "The policy cannot be used: {reason}")
}

/// Name of the document that holds the policy.
pub(crate) const DOCUMENT: &str = "policy";
const ARN: &str = "arn:aws:s3:::";
const POLICY_BYTES_MAX: usize = 20 << 10;
const NARROWING: &[&str] = &[
    "aws:sourceip",
    "aws:sourcearn",
    "aws:sourceaccount",
    "aws:sourcevpc",
    "aws:sourcevpce",
    "aws:userid",
    "aws:principalarn",
];

#[cfg(test)]
mod tests;

//! Figures: one row for each, all of one shape, held against the goals of bench/goals.toml.
//!
//! Invariants:
//! 1. Goals are in the table only; `met` is evaluated here, by the same rule for every row.
//! 2. With `--json` a row is one line with exactly the ten fields of [`Row`], `null` where there is nothing to say.

use std::fmt::Write as _;
use std::io;

use anyhow::{Context, anyhow};
use serde::Serialize;

use crate::output::output;
use crate::table::{Table, bytes};

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    bench: &'static str,
    case: String,
    metric: String,
    value: f64,
    unit: &'static str,
    against: Option<String>,
    against_value: Option<f64>,
    ratio: Option<f64>,
    goal: Option<String>,
    met: Option<bool>,
}

/// Another system's figure for the same metric.
#[derive(Debug, Clone)]
pub struct Against {
    /// Whose.
    pub name: String,
    /// How much.
    pub value: f64,
}

/// A figure before it is held against its goal.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Which bench: a table of bench/goals.toml.
    pub bench: &'static str,
    /// Which case of it.
    pub case: String,
    /// What was measured.
    pub metric: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// Compared with whom.
    pub against: Option<Against>,
}

/// Goals by bench, case and metric.
#[derive(Debug)]
pub struct Goals(toml::Table);

impl Goals {
    /// The goals this program was built with.
    ///
    /// # Panics
    /// If the table in the repository is no TOML, which a test excludes.
    pub fn built_in() -> Goals {
        Goals(GOALS.parse().expect("a test reads the same table"))
    }

    /// The row of a figure: its ratio, its goal, and whether the goal is met.
    pub fn row(&self, figure: Figure) -> Row {
        let Figure { bench, case, metric, value, unit, against } = figure;
        let ratio = against.as_ref().and_then(|against| (against.value != 0.0).then(|| value / against.value));
        let goal = self.goal(bench, &case, &metric);
        // A goal on a ratio means nothing while the other system is not there.
        let measured = if against.is_some() { ratio } else { Some(value) };
        let met = match (&goal, measured) {
            (Some(goal), Some(measured)) => Some(goal.is_met_by(measured)),
            _ => None,
        };
        Row {
            bench,
            case,
            metric,
            value,
            unit,
            against_value: against.as_ref().map(|against| against.value),
            against: against.map(|against| against.name),
            ratio,
            goal: goal.map(|goal| goal.text),
            met,
        }
    }

    /// As [`Goals::row`], for a figure whose goal is on a ratio that could not be measured: the row has no goal.
    pub fn row_without_goal(&self, figure: Figure) -> Row {
        let mut row = self.row(figure);
        (row.goal, row.met) = (None, None);
        row
    }

    /// As [`Goals::row`], for a figure that is too noisy to judge by: the row has its goal, and nobody says if it is met.
    pub fn row_unjudged(&self, figure: Figure) -> Row {
        Row { met: None, ..self.row(figure) }
    }

    fn goal(&self, bench: &str, case: &str, metric: &str) -> Option<Goal> {
        let text = self.0.get(bench)?.get(case)?.get(metric)?.as_str()?;
        Some(Goal::parse(text).expect("a test parses every goal"))
    }
}

/// A bound such as `>=1.0`.
#[derive(Debug)]
struct Goal {
    text: String,
    at_least: bool,
    bound: f64,
}

impl Goal {
    fn parse(text: &str) -> anyhow::Result<Goal> {
        let (at_least, bound) = match (text.strip_prefix(">="), text.strip_prefix("<=")) {
            (Some(bound), _) => (true, bound),
            (_, Some(bound)) => (false, bound),
            _ => return Err(anyhow!("the goal {text:?} begins with neither >= nor <=")),
        };
        let bound = bound.trim().parse().with_context(|| format!("the goal {text:?} has no number"))?;
        Ok(Goal { text: text.to_owned(), at_least, bound })
    }

    fn is_met_by(&self, measured: f64) -> bool {
        if self.at_least { measured >= self.bound } else { measured <= self.bound }
    }
}

impl Row {
    /// Whether there is a goal that was not judged.
    pub fn is_unjudged(&self) -> bool {
        self.goal.is_some() && self.met.is_none()
    }

    /// Case and metric.
    pub fn name(&self) -> String {
        format!("{} {}", self.case, self.metric)
    }

    /// Whether a goal was missed.
    pub fn is_missed(&self) -> bool {
        self.met == Some(false)
    }
}

/// Prints rows for machines (one JSON object a line) or for people (a table).
///
/// # Errors
/// Standard output takes no more.
pub fn print(rows: &[Row], json: bool) -> io::Result<()> {
    if json {
        for row in rows {
            writeln!(output(), "{}", serde_json::to_string(row).expect("plain fields always serialise"))?;
        }
    } else {
        write!(output(), "{}", for_people(rows))?;
    }
    Ok(())
}

fn for_people(rows: &[Row]) -> String {
    let mut table = Table::new(&["case", "measured", "value", "against", "ratio", "goal", ""]);
    for row in rows {
        let against = row.against.as_ref().zip(row.against_value);
        let against = against.map_or(String::new(), |(name, value)| format!("{name}: {}", number(value)));
        let met = row.met.map_or("", |met| if met { "met" } else { "MISSED" });
        table.row([
            row.case.clone(),
            row.metric.replace('_', " "),
            if row.unit == "bytes" { bytes(row.value as u64) } else { format!("{} {}", number(row.value), row.unit) },
            against,
            row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            row.goal.clone().unwrap_or_default(),
            met.to_owned(),
        ]);
    }
    let mut text = table.to_string();
    let missed = rows.iter().filter(|row| row.is_missed()).count();
    if missed > 0 {
        let _ = writeln!(text, "{missed} goal(s) missed");
    }
    text
}

fn number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e12 { format!("{value:.0}") } else { format!("{value:.2}") }
}

const GOALS: &str = include_str!("../../../bench/goals.toml");

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(metric: &str, value: f64, against: Option<f64>) -> Figure {
        let against = against.map(|value| Against { name: "other".to_owned(), value });
        Figure { bench: "b", case: "c".to_owned(), metric: metric.to_owned(), value, unit: "x", against }
    }

    #[test]
    fn every_goal_of_the_table_parses() {
        let Goals(table) = Goals::built_in();
        let mut goals = 0;
        for (bench, cases) in &table {
            for (case, metrics) in cases.as_table().expect(bench) {
                for (metric, goal) in metrics.as_table().expect(case) {
                    Goal::parse(goal.as_str().expect(metric)).expect("a goal");
                    goals += 1;
                }
            }
        }
        assert!(goals > 0);
    }

    #[test]
    fn a_goal_holds_against_the_ratio_or_else_the_value() {
        let goals = Goals("[b.c]\nfast = \">=1.5\"\nsmall = \"<=3\"\n".parse().expect("toml"));
        let met = |metric, value, against| goals.row(figure(metric, value, against)).met;
        assert_eq!(met("fast", 3.0, Some(2.0)), Some(true));
        assert_eq!(met("fast", 2.9, Some(2.0)), Some(false));
        assert_eq!(met("small", 3.0, None), Some(true));
        assert_eq!(met("small", 3.1, None), Some(false));
        assert_eq!(met("fast", 3.0, Some(0.0)), None);
        assert_eq!(met("other", 3.0, None), None);
    }

    #[test]
    fn a_noisy_figure_keeps_its_goal_and_is_not_judged() {
        let goals = Goals("[b.c]\nfast = \">=1.5\"\n".parse().expect("toml"));
        let row = goals.row_unjudged(figure("fast", 1.0, Some(2.0)));
        assert_eq!((row.goal.as_deref(), row.met, row.is_missed()), (Some(">=1.5"), None, false));
    }

    #[test]
    fn a_row_has_exactly_the_agreed_fields() {
        let goals = Goals("[b.c]\nfast = \">=1.5\"\n".parse().expect("toml"));
        let row = serde_json::to_string(&goals.row(figure("fast", 3.0, Some(2.0)))).expect("json");
        assert_eq!(
            row,
            r#"{"bench":"b","case":"c","metric":"fast","value":3.0,"unit":"x","against":"other","against_value":2.0,"ratio":1.5,"goal":">=1.5","met":true}"#
        );
        let row = serde_json::to_string(&goals.row(figure("slow", 3.0, None))).expect("json");
        assert!(row.ends_with(r#""against":null,"against_value":null,"ratio":null,"goal":null,"met":null}"#), "{row}");
    }
}

//! The routes of policies: which there are, what a bucket has, and why.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Path, Query, State};
use axum::routing::{get, put};
use axum::{Json, Router};
use claystone_keeper::{Explanation, KeeperError};
use claystone_meta::{HeatPolicy, MetaError, PRESETS, PolicyError};

use crate::AdminError;
use crate::api::{Done, Policies, PolicyPreset, PolicyReason, PolicyReport, SetPolicy, StripeReport};
use crate::router::{Console, Input, Reply, Shared};

/// The routes, below the admin API's prefix.
pub(crate) fn routes() -> Router<std::sync::Arc<Console>> {
    Router::new().route("/policies", get(list)).route("/buckets/{name}/policy", put(set).get(explain))
}

async fn list(State(console): Shared) -> Reply<Policies> {
    let status = console.status().await?;
    let nodes = || status.disks.iter().filter(|disk| disk.writable).map(|disk| &disk.node);
    let shown = |preset: &claystone_meta::Preset| {
        let policy: HeatPolicy = preset.text.parse().expect("presets are valid");
        PolicyPreset {
            name: preset.name.to_owned(),
            policy: preset.text.to_owned(),
            disks_min: policy.disks_min(),
            summary: preset.summary.to_owned(),
        }
    };
    let chosen = HeatPolicy::for_disks(nodes()).map(|preset| preset.name.to_owned());
    let (disks, apart) = (nodes().count() as u64, nodes().collect::<BTreeSet<_>>().len() as u64);
    Ok(Json(Policies { policies: PRESETS.iter().map(shown).collect(), disks, nodes: apart, chosen }))
}

async fn set(State(console): Shared, Path(name): Path<String>, Input(set): Input<SetPolicy>) -> Reply<Done> {
    let invalid = |error: PolicyError| AdminError::Invalid { field: "policy", reason: error.to_string() };
    let policy = set.policy.map(|text| HeatPolicy::named(&text).map_err(invalid)).transpose()?;
    console.parts.admin.set_policy(&name, policy).await?;
    Ok(Json(Done {}))
}

async fn explain(
    State(console): Shared,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Reply<PolicyReport> {
    let key = query.get("key").map(String::as_str);
    let refused = |KeeperError::Meta(error): KeeperError| match error {
        MetaError::NoSuchBucket { name } => AdminError::NotFound { what: "bucket", name },
        MetaError::NoSuchObject { key } => AdminError::NotFound { what: "object", name: key },
        other => AdminError::Unavailable { reason: other.to_string() },
    };
    let explanation = console.parts.keeper.explain_policy(&name, key).await.map_err(refused)?;
    Ok(Json(report(name, explanation, key.is_some())))
}

fn report(bucket: String, explanation: Explanation, of_object: bool) -> PolicyReport {
    let Explanation { policy, space, part, room_bytes, half_life, stripes } = explanation;
    let whole = space.is_some();
    let space = space.or(part).unwrap_or_default();
    let mut reasons: BTreeMap<&str, PolicyReason> = BTreeMap::new();
    for stripe in &stripes {
        let reason = reasons.entry(stripe.why.word()).or_insert_with(|| PolicyReason {
            reason: stripe.why.word().to_owned(),
            stripes: 0,
            data_bytes: 0,
            example: stripe.why.to_string(),
        });
        reason.stripes += 1;
        reason.data_bytes += stripe.data_bytes;
    }
    let told = stripes.iter().filter(|_| of_object).map(|stripe| StripeReport {
        stripe: stripe.stripe.to_string(),
        code: stripe.code.to_string(),
        heat: stripe.heat,
        reason: stripe.why.word().to_owned(),
        why: stripe.why.to_string(),
    });
    let stripes = told.collect();
    PolicyReport {
        bucket,
        policy: policy.map(|policy| policy.to_string()),
        preset: policy.and_then(|policy| policy.preset()).map(|preset| preset.name.to_owned()),
        half_life_seconds: half_life.as_secs(),
        data_bytes: space.data_bytes,
        fresh_bytes: space.fresh_bytes,
        fast_bytes: space.fast_bytes,
        compact_bytes: space.compact_bytes,
        other_bytes: space.other_bytes,
        young_bytes: space.young_bytes,
        waiting_bytes: space.waiting_bytes,
        percent: space.percent(),
        whole,
        part_data_bytes: part.map(|part| part.data_bytes),
        part_percent: part.map(|part| part.percent()),
        room_bytes,
        reasons: reasons.into_values().collect(),
        stripes,
    }
}

//! The other ways to update parity: what they write is what is read, and the naive one keeps parity right.

use std::sync::Arc;

use claystone_stripe::Stripes;
use claystone_volume::comparators::{InPlace, UpdateMethod};
use claystone_volume::{Blocks, Geometry};

use crate::world::{World, check, scribble};

async fn device(world: &World, code: &str, method: UpdateMethod) -> Arc<InPlace> {
    let code: claystone_code::CodeSpec = code.parse().expect("a valid code");
    let columns = if method == UpdateMethod::Replicas { 1 } else { code.shape().data };
    let geometry = Geometry { page_bytes: 4096, chunk_bytes: 64 << 10, columns };
    let (stripes, _) = Stripes::new(world.env.clone(), world.stores.clone(), claystone_stripe::Settings::default());
    Arc::new(InPlace::new(&world.env, stripes, code, method, geometry, 4).await.expect("a device"))
}

#[tokio::test]
async fn what_is_written_in_place_is_read() {
    for method in [
        UpdateMethod::Replicas,
        UpdateMethod::Naive,
        UpdateMethod::ParityLog,
        UpdateMethod::SpeculativeNext,
        UpdateMethod::SpeculativeFirst,
    ] {
        let world = World::new(6).await;
        let code = if method == UpdateMethod::Replicas { "replica:3" } else { "rs:4+2" };
        let device = device(&world, code, method).await;
        let mut model = vec![0; device.bytes() as usize];
        scribble(&*device, &mut model, 1, 60).await;
        device.flush().await.expect("flushed");
        check(&*device, &model, &format!("{method:?}")).await;
        // These two have their redundancy up to date at any time.
        if matches!(method, UpdateMethod::Replicas | UpdateMethod::Naive) {
            world.lose(1);
            world.lose(4);
            check(&*device, &model, &format!("{method:?} with two disks lost")).await;
        }
    }
}

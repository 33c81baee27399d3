//! Work that comes to its end whoever waits for it.

use claystone_env::Env;
use tokio::sync::oneshot;

/// Works in a task of its own: whoever waits may go away. `None`: the task was cut off, as the store is stopping.
pub(crate) async fn to_its_end<T: Send + 'static>(
    env: &Env,
    name: &'static str,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    let task = async move {
        // Nobody may wait any more.
        let _ = sender.send(work.await);
    };
    env.tasks.spawn(name, Box::pin(task));
    receiver.await.ok()
}

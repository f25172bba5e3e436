//! The same proxy on a store, without hints. Requests wait each by itself, as Apache's processes do, and the daemons
//! have a thread of their own.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use picaflor::{Error as StoreError, Place, PutOptions, Store};
use picaflor_device::Clock;

use super::{
    super::store::{LARGE, disks, failed, options},
    times::{Answered, Times},
    traffic::{Asked, Polymix},
};
use crate::{
    Error, Result,
    exec::{Executor, Time},
    run::{bodies::Bodies, wg::Load},
};

struct Shared {
    store: Store,
    time: Time,
    begin: u64,
    requests: RefCell<Box<dyn Iterator<Item = Asked>>>,
    bodies: RefCell<Bodies>,
    times: RefCell<Times>,
    /// Whether every request has been taken: then the daemons have no more to do.
    over: Cell<bool>,
}

pub(super) fn serve(test: &Polymix, load: &Load, (preset, cluster): (&str, u32), times: Times) -> Result<Answered> {
    let clock = Clock::virtual_at(1_700_000_000_000);
    let disks = disks(load, &clock)?;
    let places = disks.iter().map(|disk| Place::Device(Arc::new(disk.clone()))).collect();
    let store = Store::open(options(load, preset, cluster, &clock, places).map_err(failed)?).map_err(failed)?;
    let mut executor = Executor::new(&clock, &disks);
    let shared = Rc::new(Shared {
        store,
        time: executor.time(),
        begin: clock.now_nanos(),
        requests: RefCell::new(Box::new(test.asked(load.seed))),
        bodies: RefCell::default(),
        times: RefCell::new(times),
        over: Cell::new(false),
    });
    let clients: Vec<_> = (0..test.processes.max(1)).map(|_| executor.spawn(client(Rc::clone(&shared)))).collect();
    executor.spawn_daemon(daemons(Rc::clone(&shared)));
    executor.run()?;
    clients.into_iter().try_for_each(|client| client.take().unwrap_or(Ok(())))?;
    let took = shared.now();
    drop(executor);
    let shared = Rc::into_inner(shared).ok_or_else(|| load.wrong("a client is still there"))?;
    let disk = disks.first().ok_or_else(|| load.wrong("no disk"))?;
    Ok(shared.times.into_inner().finish(disk, took))
}

/// Takes request after request until there are no more.
async fn client(shared: Rc<Shared>) -> Result<()> {
    loop {
        let Some(asked) = shared.requests.borrow_mut().next() else {
            shared.over.set(true);
            return Ok(());
        };
        shared.time.sleep_until(shared.begin + asked.at).await;
        let hit = shared.look_up(&asked).await?;
        if !hit {
            shared.time.sleep(Duration::from_nanos(asked.think)).await;
            if asked.cacheable {
                shared.put(&asked)?;
            }
        }
        let took = shared.now() - asked.at;
        shared.times.borrow_mut().answered(&asked, hit, took);
    }
}

async fn daemons(shared: Rc<Shared>) {
    while !shared.over.get() {
        shared.time.sleep(Duration::from_millis(10)).await;
        // Whatever stops the store is told to the clients too.
        while shared.store.step().unwrap_or(false) {}
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.time.now() - self.begin
    }

    async fn look_up(&self, asked: &Asked) -> Result<bool> {
        let key = asked.request.key.to_le_bytes();
        let Some(object) = self.store.get_async(&key).await.map_err(failed)? else { return Ok(false) };
        let mut chunks = object.chunks(0..object.len());
        let mut body = Vec::new();
        while let Some(chunk) = chunks.next_async().await {
            body.extend_from_slice(&chunk.map_err(failed)?);
        }
        if !Bodies::is_of(&asked.request, &body) {
            let why = format!("the store returned wrong bytes for key {:x}", asked.request.key);
            return Err(Error::experiment("the proxy", why));
        }
        Ok(true)
    }

    fn put(&self, asked: &Asked) -> Result<()> {
        let key = asked.request.key.to_le_bytes();
        let with = PutOptions::new().bypass_memory(asked.request.size > LARGE);
        match self.store.put_with(&key, self.bodies.borrow_mut().of(&asked.request), &with) {
            // A cache need not take it.
            Ok(()) | Err(StoreError::Refused(_) | StoreError::Full { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}

//! Page views: what clients ask for, page by page, with what an application can say of which belong together.
//!
//! A view is a request for a page and what the same client asks for until its next one. The first requests fill the
//! store; reads, bytes and time are counted over the rest. What is counted is all that the device was asked to read,
//! the client that asked, and the time that gets took.

use std::collections::HashMap;

use picaflor::Store;

use super::{
    running::{Running, WORD},
    setup::failed,
};
use crate::{
    Result,
    trace::{Kind, Request},
};

/// What a client is looking at.
#[derive(Clone, Copy)]
struct View {
    page: u64,
    site: u64,
    /// What it asked for so far.
    bytes: u64,
}

impl View {
    /// The group that its site is.
    fn group(self) -> u32 {
        (self.site >> 32) as u32
    }
}

/// How many views of a site there were, how many asked for no more than each of the pages there may be holds, and the
/// page that its group has for that.
#[derive(Default)]
struct Site {
    views: u64,
    fit: Vec<u64>,
    page: u32,
}

impl Site {
    /// The least page in which half of the views fit; the largest, if there is none.
    fn page(&self, pages: &[u32]) -> Option<u32> {
        let fits = |at: usize| 2 * self.fit.get(at).copied().unwrap_or(0) >= self.views;
        let fit = (0..pages.len()).filter(|at| fits(*at)).map(|at| pages[at]);
        fit.min().or(pages.iter().copied().max())
    }

    /// A view is over.
    fn note(&mut self, bytes: u64, pages: &[u32]) {
        self.views += 1;
        self.fit.resize(pages.len(), 0);
        self.fit.iter_mut().zip(pages).for_each(|(fit, page)| *fit += u64::from(bytes <= u64::from(*page)));
    }
}

/// What the device and the clock had counted when counting began.
struct Since {
    reads: u64,
    bytes: u64,
    gets: u64,
    hits: u64,
}

impl Running<'_> {
    pub(super) fn pages(&mut self, warm: f64, progress: &dyn Fn(u64)) -> Result<()> {
        let mut views: HashMap<u64, View> = HashMap::new();
        let mut sites: HashMap<u32, Site> = HashMap::new();
        let first = (self.setup.gets as f64 * warm) as u64;
        let (mut since, mut nanos) = (None, 0);
        for request in self.requests()? {
            if self.outcome.gets == first {
                since = Some(self.since());
            }
            self.outcome.gets += 1;
            let key = request.key ^ u64::from(request.version) << 40;
            let view = match request.kind {
                Kind::Page => Some(View { page: key, site: request.server, bytes: 0 }),
                _ => views.get(&request.client).copied(),
            };
            if let Some(view) = view.filter(|_| !self.setup.pages.is_empty()) {
                let over = views.get(&request.client).filter(|_| request.kind == Kind::Page);
                if let Some(over) = over {
                    sites.entry(over.group()).or_default().note(over.bytes, &self.setup.pages);
                }
                self.choose_page(sites.entry(view.group()).or_default(), view.group())?;
            }
            if request.kind == Kind::Page {
                views.extend(view.map(|view| (request.client, view)));
                self.outcome.views += u64::from(since.is_some());
            }
            if let Some(view) = views.get_mut(&request.client) {
                view.bytes += request.size;
            }
            nanos += self.page_request(&request, key, view)? * u64::from(since.is_some());
            self.step()?;
            if self.outcome.gets.is_multiple_of(WORD) {
                progress(WORD);
            }
        }
        self.outcome.reads = self.outcome.hits;
        if let Some(since) = since {
            self.account_views(&since, nanos);
        }
        Ok(())
    }

    /// One get, and a put if that misses. Returns how long the get took, in nanoseconds.
    fn page_request(&mut self, request: &Request, key: u64, view: Option<View>) -> Result<u64> {
        let page = view.map(|view| view.page).filter(|page| *page != key);
        let bytes = key.to_le_bytes();
        let begin = self.medium.clock.now_nanos();
        let found = self.store.get(&bytes).map_err(failed(self.setup))?;
        let found = self.whole(request, found)?;
        let took = self.medium.clock.now_nanos() - begin;
        match found {
            Some(_) => {
                self.outcome.hits += 1;
                if let Some(page) = page.filter(|_| self.setup.hints.says_page()) {
                    self.store.collocate(&page.to_le_bytes(), &bytes);
                }
            }
            None => {
                let group = view.map_or(0, View::group);
                self.put(&bytes, &Request { referer: page.unwrap_or(0), ..*request }, group)?;
            }
        }
        Ok(took)
    }

    /// Divides what a group fills from now on as its site is asked for.
    fn choose_page(&self, site: &mut Site, group: u32) -> Result<()> {
        let page = site.page(&self.setup.pages).filter(|page| *page != site.page && group != 0);
        if let Some(page) = page {
            self.store.group(group).set_page(page).map_err(failed(self.setup))?;
            site.page = page;
        }
        Ok(())
    }

    fn since(&self) -> Since {
        let (reads, bytes) = device_reads(self.store, self.medium.below());
        Since { reads, bytes, gets: self.outcome.gets, hits: self.outcome.hits }
    }

    fn account_views(&mut self, since: &Since, nanos: u64) {
        let (reads, bytes) = device_reads(self.store, self.medium.below());
        let views = self.outcome.views.max(1) as f64;
        self.outcome.requests_per_view = (self.outcome.gets - since.gets) as f64 / views;
        self.outcome.device_reads_per_view = (reads - since.reads) as f64 / views;
        self.outcome.kib_read_per_view = (bytes - since.bytes) as f64 / 1024.0 / views;
        self.outcome.ms_per_view = nanos as f64 / 1e6 / views;
        self.outcome.view_hit_ratio =
            (self.outcome.hits - since.hits) as f64 / (self.outcome.gets - since.gets).max(1) as f64;
    }
}

/// Reads, and bytes read: those of the file system under a store, or else its own.
fn device_reads(store: &Store, below: Option<(u64, u64, u64)>) -> (u64, u64) {
    let counts = store.stats().counts;
    below.map_or((counts.device_reads, counts.device_read), |(reads, bytes, _)| (reads, bytes))
}

//! This manager beside those that come with http-cache, for the table of the README.

use std::error::Error;

use doors_kit::beside::{Arguments, Door, run};
use http_cache::{CACacheManager, CacheManager, HttpResponse, HttpVersion, MokaManager};
use http_cache_semantics::CachePolicy;
use moka::future::Cache;
use picaflor_http_cache::{PicaflorManager, picaflor::Options};

struct Manager<M>(M);

fn url(number: usize) -> String {
    format!("http://example.org/object/{number}")
}

impl<M: CacheManager> Door for Manager<M> {
    async fn put(&self, number: usize, body: Vec<u8>) -> Result<(), Box<dyn Error>> {
        let fields = [("content-type", "image/png"), ("etag", "\"65f0c1-1000\""), ("cache-control", "max-age=600")];
        let headers = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let url = url(number);
        let request = http::Request::get(&url).body(())?.into_parts().0;
        let response = HttpResponse { body, headers, status: 200, url: url.parse()?, version: HttpVersion::Http11 };
        let policy = CachePolicy::new(&request, &response.parts().map_err(|error| error.to_string())?);
        self.0.put(format!("GET:{url}"), response, policy).await.map_err(|error| error.to_string())?;
        Ok(())
    }

    async fn get(&self, number: usize) -> Result<Option<usize>, Box<dyn Error>> {
        let found = self.0.get(&format!("GET:{}", url(number))).await.map_err(|error| error.to_string())?;
        Ok(found.map(|(response, _)| response.body.len()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read("picaflor|picaflor-in-memory|moka|cacache")?;
    let open =
        |memory| PicaflorManager::open(Options::new(arguments.folder.join("store")).capacity(4 << 30).memory(memory));
    match arguments.name.as_str() {
        "picaflor" => run(&Manager(open(64 << 20).await?), &arguments).await,
        "picaflor-in-memory" => run(&Manager(open(1 << 30).await?), &arguments).await,
        "moka" => run(&Manager(MokaManager::new(Cache::new(1 << 20))), &arguments).await,
        _ => run(&Manager(CACacheManager::new(arguments.folder.clone(), false)), &arguments).await,
    }
}

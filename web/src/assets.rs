//! Styles and scripts, embedded in the binary. Their URLs hold their digest, so that browsers keep them for ever.

use std::{collections::HashMap, sync::LazyLock};

use actix_web::{HttpResponse, http::header, web};
use rust_embed::RustEmbed;
use sha2::{Digest as _, Sha256};

#[derive(RustEmbed)]
#[folder = "assets/"]
struct Files;

struct Asset {
    /// `chart.1a2b3c4d5e6f.js`
    name: String,
    mime: &'static str,
    body: web::Bytes,
}

struct Assets {
    /// File name → asset.
    by_file: HashMap<String, Asset>,
    /// Name in the URL → file name.
    by_name: HashMap<String, String>,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    let mut assets = Assets { by_file: HashMap::new(), by_name: HashMap::new() };
    for path in Files::iter() {
        let Some(file) = Files::get(&path) else { continue };
        let file_name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        let (stem, extension) = file_name.rsplit_once('.').unwrap_or((&file_name, ""));
        let digest: String = Sha256::digest(&file.data).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{stem}.{digest}.{extension}");
        let mime = match extension {
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            // licences and vendor.toml
            _ => continue,
        };
        assets.by_name.insert(name.clone(), file_name.clone());
        assets.by_file.insert(file_name, Asset { name, mime, body: web::Bytes::from(file.data.into_owned()) });
    }
    assets
});

/// The URL of an asset by its file name, for templates.
pub fn url(file: &str) -> String {
    let name = ASSETS.by_file.get(file).map_or(file, |asset| &asset.name);
    format!("/assets/{name}")
}

/// `GET /assets/{name}`
pub async fn serve(name: web::Path<String>) -> HttpResponse {
    let asset = ASSETS.by_name.get(&*name).and_then(|file| ASSETS.by_file.get(file));
    let Some(asset) = asset else { return HttpResponse::NotFound().body("no such asset") };
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "public, max-age=31536000, immutable"))
        .insert_header((header::CONTENT_TYPE, asset.mime))
        .insert_header((header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"))
        .body(asset.body.clone())
}

/// `GET /favicon.ico`, which browsers ask for by themselves.
pub async fn favicon() -> HttpResponse {
    HttpResponse::PermanentRedirect().insert_header((header::LOCATION, url("sluice.svg"))).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_hold_a_digest_and_lead_to_the_file() {
        for file in
            ["sluice.css", "chart.js", "live.js", "log.js", "hash.js", "theme.js", "sluice.svg", "uPlot.iife.min.js", "uPlot.min.css"]
        {
            let url = url(file);
            let name = url.strip_prefix("/assets/").unwrap();
            assert_ne!(name, file);
            assert_eq!(ASSETS.by_name[name], file);
        }
    }
}

//! The server: database, HTTP, background loops, in the order that a clean start and stop need.

use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use actix_web::{HttpServer, web};
use anyhow::{Context as _, ensure};
use futures_util::StreamExt as _;
use sluice_app::{App, Settings, deployment::Deployments};
use sluice_domain::time::SystemClock;
use tokio_util::sync::CancellationToken;

/// What a server needs to know.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArgs {
    /// Address to listen on. Port 0 takes a free one.
    #[arg(long, env = "SLUICE_LISTEN", default_value = "127.0.0.1:5000")]
    pub listen: SocketAddr,
    /// Folder for everything that is not in the database: artifacts, repositories, deployments.
    #[arg(long, env = "SLUICE_DATA", default_value = "sluice-data")]
    pub data: PathBuf,
    /// URL under which users reach the server; default: `http://` and the listen address.
    #[arg(long, env = "SLUICE_PUBLIC_URL")]
    pub public_url: Option<String>,
    /// Connections to the database at most.
    #[arg(long, env = "SLUICE_DB_CONNECTIONS", default_value_t = 20)]
    pub db_connections: u32,
    /// Seconds after which a runner that does not renew its lease has lost its job.
    #[arg(long, env = "SLUICE_LEASE_SECS", default_value_t = 30)]
    pub lease_secs: u32,
    /// ONNX Runtime's shared library for local deployments; default: the newest in the runner's environments.
    #[arg(long, env = "SLUICE_ONNXRUNTIME")]
    pub onnxruntime: Option<PathBuf>,
    /// Folders with Python environments in which ONNX Runtime is looked for.
    #[arg(skip)]
    pub runtime_roots: Vec<PathBuf>,
    /// File to write the server's URL to once it answers.
    #[arg(long, hide = true)]
    pub url_file: Option<PathBuf>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Its URL, without a trailing slash.
    pub url: String,
    handle: actix_web::dev::ServerHandle,
    http: tokio::task::JoinHandle<std::io::Result<()>>,
    stop: CancellationToken,
    loops: tokio::task::JoinSet<()>,
}

impl Server {
    /// Migrates, binds, starts the background loops and begins to answer.
    ///
    /// # Errors
    /// When the database cannot be reached or migrated, or the address cannot be bound.
    pub async fn start(args: &ServerArgs, database_url: &str) -> anyhow::Result<Self> {
        ensure!(
            args.listen.ip().is_loopback(),
            "--listen {}: there is no login yet, so only loopback addresses are allowed; put a proxy that authenticates in front",
            args.listen
        );
        let data_dir = prepare_data(&args.data)?;
        let pool = sluice_store::pool::connect_lazy(database_url, args.db_connections).context("DATABASE_URL")?;
        migrate(&pool).await?;

        let listener = TcpListener::bind(args.listen).with_context(|| format!("--listen {}", args.listen))?;
        let url = args.public_url.as_deref().map_or_else(
            || listener.local_addr().map(|address| format!("http://{address}")),
            |url| Ok(url.trim_end_matches('/').to_owned()),
        )?;
        let app = App {
            pool,
            blob: sluice_blob::BlobStore::local(&data_dir.join("artifacts"))?,
            clock: Arc::new(SystemClock),
            settings: Arc::new(Settings {
                data_dir,
                public_url: url.clone(),
                lease: Duration::from_secs(args.lease_secs.into()),
                executable: std::env::current_exe()?,
                onnxruntime: args.onnxruntime.clone(),
            }),
            notices: tokio::sync::broadcast::channel(1024).0,
        };

        sluice_app::attempt::extend_leases(&app).await?;
        let stop = CancellationToken::new();
        let mut loops = tokio::task::JoinSet::new();
        let roots = if args.runtime_roots.is_empty() { vec![crate::up::default_cache()] } else { args.runtime_roots.clone() };
        let deployments = Deployments::new(app.clone(), roots)?;
        spawn_loops(&mut loops, &app, &deployments, &stop);

        let guarded_url = app.settings.public_url.clone();
        let (data, deployments) = (web::Data::new(app), web::Data::new(deployments));
        let server = HttpServer::new(move || {
            actix_web::App::new()
                .wrap(sluice_api::guard::Guard::new(&guarded_url, &[]))
                .app_data(data.clone())
                .app_data(deployments.clone())
                .configure(sluice_api::configure)
                .configure(sluice_web::configure)
        })
        .workers(2)
        .shutdown_timeout(3)
        .disable_signals()
        .listen(listener)?
        .run();
        let handle = server.handle();
        let http = tokio::spawn(server);
        if let Some(file) = &args.url_file {
            let fresh = file.with_extension("new");
            std::fs::write(&fresh, &url)?;
            std::fs::rename(&fresh, file)?;
        }
        Ok(Self { url, handle, http, stop, loops })
    }

    /// Completes when the HTTP server ended by itself.
    pub async fn ended(&mut self) {
        let _ = (&mut self.http).await;
    }

    /// Stops answering, then ends the background loops.
    pub async fn stop(mut self) {
        self.stop.cancel();
        self.handle.stop(true).await;
        while self.loops.join_next().await.is_some() {}
    }
}

fn prepare_data(data: &std::path::Path) -> anyhow::Result<PathBuf> {
    for part in ["artifacts", "repositories", "deployments"] {
        let folder = data.join(part);
        std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    Ok(data.canonicalize()?)
}

async fn migrate(pool: &sluice_store::PgPool) -> anyhow::Result<()> {
    // a database that is still starting is worth a short wait; anything else is said at once
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match sluice_store::pool::migrate(pool).await {
            Err(sluice_store::Error::Unavailable(error)) if tokio::time::Instant::now() < deadline => {
                tracing::warn!(%error, "waiting for the database");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            done => return done.context("bringing the database schema up to date"),
        }
    }
}

fn spawn_loops(loops: &mut tokio::task::JoinSet<()>, app: &App, deployments: &Deployments, stop: &CancellationToken) {
    let (listener, token) = (app.clone(), stop.clone());
    loops.spawn(async move {
        tokio::select! { () = relay_notices(listener) => {}, () = token.cancelled() => {} }
    });
    loops.spawn(sluice_app::promotion::run(app.clone(), stop.clone()));
    loops.spawn(deployments.clone().run(stop.clone()));
    loops.spawn(sluice_app::attempt::run(app.clone(), stop.clone()));
    loops.spawn(sluice_app::trigger::run(app.clone(), stop.clone()));
    loops.spawn(sluice_app::artifact::sweep(app.clone()));
}

/// Fans the database's notices out inside this process, for long-polls and event streams.
async fn relay_notices(app: App) {
    loop {
        match sluice_store::notify::listen(&app.pool).await {
            Ok(mut notices) => {
                while let Some(notice) = notices.next().await {
                    // an error only says that nobody listens right now
                    let _ = app.notices.send(notice);
                }
            }
            Err(error) => tracing::warn!(%error, "cannot listen for notices yet"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

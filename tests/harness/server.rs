//! A server that is a process of its own: started, asked, killed without warning, started again.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use overdue_runtime::fault;
use overdue_workflows::sandbox::{Service, Urls};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::RwLock;
use tokio::time::{sleep, timeout};

/// No server takes longer to say its URL, and none longer to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(30);
/// The signal number of SIGKILL.
const SIGKILL: i32 = 9;

/// The program under test.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overdue"));
    command.env_remove("OVERDUE_URL").env_remove("OVERDUE_TOKEN").kill_on_drop(true);
    command
}

/// What a server is started with.
pub(crate) struct Site {
    folder: TempDir,
    pub(crate) config: String,
    zone: String,
    /// A store of its own in its folder, unless it is one that several share.
    store: Mutex<Option<String>>,
    /// What else is in the environment of its processes.
    environment: Mutex<Vec<(String, String)>>,
}

impl Site {
    /// A store that does not exist yet and a configuration of the services at `urls`, with times short enough to wait for.
    pub(crate) fn calling(urls: &Urls) -> Self {
        let mut config = String::from("[engine]\nscan = \"200ms\"\n\n[workflows.order-timeout]\nlate_payment_window = \"1s\"\n");
        for service in Service::ALL {
            let (name, url) = (service.name(), urls.of(service));
            config.push_str(&format!(
                "\n[downstreams.{name}]\nurl = \"{url}\"\ntimeout = \"500ms\"\nbreaker = {{ failures = 1000 }}\n\
                 retry = {{ initial = \"100ms\", cap = \"400ms\", jitter = false }}\nretry_after_max = \"1s\"\n"
            ));
        }
        Self {
            folder: tempfile::tempdir().unwrap(),
            config,
            zone: "UTC".into(),
            store: Mutex::default(),
            environment: Mutex::default(),
        }
    }

    /// One whose services are nowhere.
    pub(crate) fn alone() -> Self {
        let url = || "http://127.0.0.1:9".to_owned();
        Self::calling(&Urls { orders: url(), stock: url(), coupons: url(), payments: url() })
    }

    /// On a store that is there already.
    pub(crate) fn on(self, store: &str) -> Self {
        *self.store.lock().unwrap() = Some(store.to_owned());
        self
    }

    /// What is in the environment of the processes that are started from now on.
    pub(crate) fn in_environment(&self, variables: &[(&str, &str)]) {
        let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        *self.environment.lock().unwrap() = owned.collect();
    }

    /// What its processes noted of the commit points that they passed.
    pub(crate) fn faults(&self) -> String {
        std::fs::read_to_string(self.path("faults")).unwrap_or_default()
    }

    pub(crate) fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.config.contains(from), "{from} is not in the configuration");
        self.config = self.config.replace(from, to);
        self
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn store(&self) -> String {
        self.store.lock().unwrap().clone().unwrap_or_else(|| format!("sqlite:{}", self.path("orders.db").display()))
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        let file = self.path("overdue.toml");
        std::fs::write(&file, &self.config).unwrap();
        file
    }

    /// The command that serves this site.
    pub(crate) fn serve(&self, listen: &str) -> Command {
        let mut command = program();
        let log = OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        command.args(["serve", "--store", &self.store(), "--listen", listen, "--config"]).arg(self.config_file());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).env("TZ", &self.zone);
        command.env(fault::LOG, self.path("faults")).envs(self.environment.lock().unwrap().iter().cloned());
        command
    }

    /// The command that looks at everything in this site's store.
    pub(crate) fn verify(&self) -> Command {
        let mut command = program();
        command.args(["verify", "--store", &self.store(), "--json", "--config"]).arg(self.config_file());
        command
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// An answer of a server: neither silence nor, from [`Server::ask`], a 5xx.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {:?}", self.text))
    }
}

/// A running server. Its process may be another one after [`Server::kill`].
pub(crate) struct Server {
    pub(crate) site: Site,
    pub(crate) http: reqwest::Client,
    child: RwLock<Option<Child>>,
    url: RwLock<String>,
    /// Servers on the same store. Each request goes to the next of all of them, as a balancer would have it.
    pub(crate) peers: Vec<Server>,
    turn: AtomicUsize,
}

impl Server {
    pub(crate) async fn start(site: Site) -> Self {
        Self::start_in(site, "UTC").await
    }

    /// Starts it as in this time zone.
    pub(crate) async fn start_in(site: Site, zone: &str) -> Self {
        let site = Site { zone: zone.to_owned(), ..site };
        overdue_activities::init_crypto();
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().unwrap();
        let (child, url) = spawn(&site, "127.0.0.1:0").await;
        let (child, url) = (RwLock::new(Some(child)), RwLock::new(url));
        Self { site, http, child, url, peers: Vec::new(), turn: AtomicUsize::new(0) }
    }

    /// Several on one store. What does not answer soon is asked elsewhere.
    pub(crate) async fn start_all(sites: Vec<Site>) -> Self {
        let mut servers = Vec::new();
        for site in sites {
            servers.push(Self::start(site).await);
        }
        let mut first = servers.remove(0);
        first.http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build().unwrap();
        Self { peers: servers, ..first }
    }

    /// This one and its peers.
    pub(crate) fn all(&self) -> Vec<&Self> {
        std::iter::once(self).chain(&self.peers).collect()
    }

    async fn next_url(&self) -> String {
        let all = self.all();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % all.len();
        all[turn].url().await
    }

    /// Sends the process a signal, such as `STOP`.
    pub(crate) async fn signal_process(&self, name: &str) {
        let pid = self.child.read().await.as_ref().and_then(Child::id).unwrap();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().await.unwrap();
        assert!(sent.success());
    }

    pub(crate) async fn url(&self) -> String {
        self.url.read().await.clone()
    }

    /// Ends the process with SIGKILL.
    pub(crate) async fn kill(&self) {
        let mut child = self.child.write().await.take().unwrap();
        child.start_kill().unwrap();
        let status = timeout(PATIENCE, child.wait()).await.expect("a killed process ends").unwrap();
        assert_eq!(status.signal(), Some(SIGKILL), "it was killed and did not end by itself");
    }

    /// Starts its successor on the same store.
    pub(crate) async fn restart(&self) {
        let (child, url) = spawn(&self.site, "127.0.0.1:0").await;
        *self.child.write().await = Some(child);
        *self.url.write().await = url;
    }

    /// Starts its successor on another store.
    pub(crate) async fn restart_on(&self, store: &str) {
        *self.site.store.lock().unwrap() = Some(store.to_owned());
        self.restart().await;
    }

    /// Starts a successor and kills it after `life`, ready or not.
    pub(crate) async fn flicker(&self, life: Duration) {
        let mut child = self.site.serve("127.0.0.1:0").spawn().unwrap();
        sleep(life).await;
        child.start_kill().unwrap();
        timeout(PATIENCE, child.wait()).await.expect("a killed process ends").unwrap();
    }

    /// Whether the process has ended by itself, and how.
    pub(crate) async fn has_ended(&self) -> Option<ExitStatus> {
        self.child.write().await.as_mut().and_then(|child| child.try_wait().unwrap())
    }

    /// Begins with a process that does not live to be ready.
    pub(crate) async fn start_in_vain(site: Site) -> Self {
        overdue_activities::init_crypto();
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().unwrap();
        let child = RwLock::new(Some(site.serve("127.0.0.1:0").spawn().unwrap()));
        Self { site, http, child, url: RwLock::default(), peers: Vec::new(), turn: AtomicUsize::new(0) }
    }

    /// Starts a successor that may not live to be ready.
    pub(crate) async fn restart_in_vain(&self) {
        *self.child.write().await = Some(self.site.serve("127.0.0.1:0").spawn().unwrap());
    }

    /// Asks the process to end in good order; it goes on until it has drained.
    pub(crate) async fn terminate(&self) {
        self.signal_process("TERM").await;
    }

    /// Waits until the process has ended by itself: how, and after how long.
    pub(crate) async fn ended(&self) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        let mut child = self.child.write().await.take().unwrap();
        let status = timeout(PATIENCE, child.wait()).await.expect("a draining process ends").unwrap();
        (status, begun.elapsed())
    }

    /// Asks once; `None` without an answer.
    pub(crate) async fn try_to_ask(&self, method: Method, path: &str, body: Option<&str>) -> Option<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.next_url().await));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        let response = request.send().await.ok()?;
        let (status, headers) = (response.status(), response.headers().clone());
        Some(Answer { status, headers, text: response.text().await.ok()? })
    }

    /// Asks as a careful caller would: again and again, until there is an answer and it is no 5xx.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string);
        let until = Instant::now() + PATIENCE;
        loop {
            match self.try_to_ask(method.clone(), path, body.as_deref()).await {
                Some(answer) if !answer.status.is_server_error() => return answer,
                answer => assert!(Instant::now() < until, "{method} {path}: no answer: {answer:?}\n{}", self.site.log()),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.ask(Method::GET, path, None).await;
        assert!(answer.status.is_success(), "GET {path}: {answer:?}");
        answer.json()
    }

    pub(crate) async fn start_order(&self, id: &str, input: &Value) -> Answer {
        self.ask(Method::POST, &format!("/v1/workflows/order-timeout/{id}"), Some(&json!({ "input": input }))).await
    }

    /// Starts an order without repeating it; the status.
    pub(crate) async fn start_order_once(&self, id: &str, deadline: Timestamp) -> Option<u16> {
        let body = json!({ "input": super::city::City::input(id, deadline) }).to_string();
        let path = format!("/v1/workflows/order-timeout/{id}");
        self.try_to_ask(Method::POST, &path, Some(&body)).await.map(|answer| answer.status.as_u16())
    }

    /// Cancels an order for its user without repeating it; the status.
    pub(crate) async fn cancel_once(&self, id: &str) -> Option<u16> {
        let (path, body) = (format!("/v1/workflows/order-timeout/{id}/cancel"), r#"{"reason":"changed my mind"}"#);
        self.try_to_ask(Method::POST, &path, Some(body)).await.map(|answer| answer.status.as_u16())
    }

    /// Waits for a time of day.
    pub(crate) async fn wait_until(&self, instant: Timestamp) {
        let left = Timestamp::now().duration_until(instant);
        sleep(Duration::try_from(left).unwrap_or_default()).await;
    }

    pub(crate) async fn signal(&self, id: &str, name: &str, payload: &Value) -> Answer {
        let path = format!("/v1/workflows/order-timeout/{id}/signals/{name}");
        self.ask(Method::POST, &path, Some(&json!({ "payload": payload }))).await
    }

    pub(crate) async fn history(&self, workflow_type: &str, id: &str) -> Vec<Value> {
        let page = self.get(&format!("/v1/workflows/{workflow_type}/{id}/history?limit=1000")).await;
        page["events"].as_array().unwrap().clone()
    }

    /// Waits until the order is there and as `condition` wants it; gives its description.
    pub(crate) async fn until(&self, id: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(Method::GET, &format!("/v1/workflows/order-timeout/{id}"), None).await;
            if answer.status.is_success() && condition(&answer.json()) {
                return answer.json();
            }
            assert!(Instant::now() < until, "{id}: {what}: {answer:?}\n{}", self.site.log());
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn spawn(site: &Site, listen: &str) -> (Child, String) {
    let mut child = site.serve(listen).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, url)) = line.split_once("is ready at ") {
                return url.trim().to_owned();
            }
        }
        panic!("the server ended before it was ready:\n{}", site.log())
    };
    let url = timeout(PATIENCE, url).await.unwrap_or_else(|_| panic!("the server is not ready:\n{}", site.log()));
    (child, url)
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command of the program to its end.
pub(crate) async fn run(command: &mut Command) -> Ran {
    let output = timeout(PATIENCE, command.stdin(Stdio::null()).output()).await.expect("the command ends").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

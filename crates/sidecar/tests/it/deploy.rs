//! What is in `deploy/`: each file is read by what reads it in operation, and the files agree with each other.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use yaml_rust2::{Yaml, YamlLoader};

use super::client::{Client, scrape};
use super::hello;
use super::support::{PATIENCE, Sidecar, output};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn documents(name: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn document(name: &str, kind: &str) -> Yaml {
    let documents = documents(name);
    let mut found = documents
        .into_iter()
        .filter(|it| it["kind"].as_str() == Some(kind));
    let (Some(document), None) = (found.next(), found.next()) else {
        panic!("{name}: not exactly one {kind}");
    };
    document
}

fn items(yaml: &Yaml) -> &[Yaml] {
    yaml.as_vec().map_or(&[], Vec::as_slice)
}

fn string(yaml: &Yaml) -> &str {
    yaml.as_str()
        .unwrap_or_else(|| panic!("not a string: {yaml:?}"))
}

/// The item of a list with this name.
fn named<'a>(list: &'a Yaml, name: &str) -> &'a Yaml {
    let found = items(list)
        .iter()
        .find(|it| it["name"].as_str() == Some(name));
    found.unwrap_or_else(|| panic!("no {name} in {list:?}"))
}

/// A deployment with the sidecar in it.
struct Pod {
    file: &'static str,
    service: Yaml,
    deployment: Yaml,
}

impl Pod {
    fn native() -> Self {
        Self::read("kubernetes/deployment.yaml")
    }

    fn plain() -> Self {
        Self::read("kubernetes/plain/deployment.yaml")
    }

    fn both() -> [Self; 2] {
        [Self::native(), Self::plain()]
    }

    fn read(file: &'static str) -> Self {
        Self {
            file,
            service: document(file, "Service"),
            deployment: document(file, "Deployment"),
        }
    }

    fn template(&self) -> &Yaml {
        &self.deployment["spec"]["template"]
    }

    fn spec(&self) -> &Yaml {
        &self.template()["spec"]
    }

    fn sidecar(&self) -> &Yaml {
        let list = if self.file.contains("plain") {
            "containers"
        } else {
            "initContainers"
        };
        named(&self.spec()[list], "sidecar")
    }

    fn shop(&self) -> &Yaml {
        named(&self.spec()["containers"], "shop")
    }

    fn port(&self, name: &str) -> i64 {
        let port = named(&self.sidecar()["ports"], name);
        port["containerPort"].as_i64().unwrap()
    }
}

fn sidecar_toml() -> String {
    let map = document("kubernetes/config.yaml", "ConfigMap");
    string(&map["data"]["sidecar.toml"]).to_owned()
}

fn toml_value(key: &str) -> String {
    let table = sidecar_toml().parse::<toml::Table>().unwrap();
    table[key].as_str().unwrap().to_owned()
}

fn port_of(address: &str) -> i64 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// A folder of its own for a test.
fn folder(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn each_manifest_is_yaml_with_a_version_a_kind_and_a_name() {
    let mut seen = 0;
    let mut folders = vec![path("kubernetes")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let shown = path.display();
            let documents = YamlLoader::load_from_str(&fs::read_to_string(&path).unwrap());
            for document in documents.unwrap_or_else(|error| panic!("{shown}: {error}")) {
                for key in [
                    &document["apiVersion"],
                    &document["kind"],
                    &document["metadata"]["name"],
                ] {
                    assert!(key.as_str().is_some(), "{shown}: {document:?}");
                }
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 6);
}

#[test]
fn the_binary_takes_the_configuration_of_the_config_map() {
    let folder = folder("config-map");
    let token = folder.join("token");
    fs::write(&token, "a-token-of-the-test").unwrap();
    // The one path that exists in a pod only.
    let in_pod = toml_value("admin-token-file");
    let config = sidecar_toml().replace(&in_pod, token.to_str().unwrap());
    let file = folder.join("sidecar.toml");
    fs::write(&file, config).unwrap();

    let (code, out, err) = output(&["--config", file.to_str().unwrap(), "--check"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for expected in [
        "listen = \"0.0.0.0:9000\"",
        "admin = \"0.0.0.0:9102\"",
        "upstream = \"http://127.0.0.1:8080\"",
        "capacity = 40",
        "cycle = \"10s\"",
        "mode = \"passthrough\"",
    ] {
        let line = out.lines().find(|line| line.starts_with(expected));
        let line = line.unwrap_or_else(|| panic!("no {expected} in {out}"));
        assert!(line.contains("sidecar.toml"), "{line}");
    }
}

#[test]
fn ports_agree_in_all_files() {
    let service_port = toml_value("upstream");
    assert!(service_port.starts_with("http://127.0.0.1:"));
    for pod in Pod::both() {
        let file = pod.file;
        assert_eq!(pod.port("http"), port_of(&toml_value("listen")), "{file}");
        assert_eq!(pod.port("admin"), port_of(&toml_value("admin")), "{file}");
        // No request goes past the sidecar.
        let ports = items(&pod.service["spec"]["ports"]);
        assert_eq!(ports.len(), 1, "{file}");
        assert_eq!(
            ports[0]["targetPort"].as_i64(),
            Some(pod.port("http")),
            "{file}"
        );
        let listen = string(&named(&pod.shop()["env"], "LISTEN")["value"]);
        assert_eq!(format!("http://{listen}"), service_port, "{file}");
        assert!(pod.shop()["ports"].is_badvalue(), "{file}");
    }
    let exposed = text("Dockerfile");
    let exposed = exposed
        .lines()
        .find_map(|line| line.strip_prefix("EXPOSE "));
    let ports = ["listen", "admin"].map(|key| port_of(&toml_value(key)).to_string());
    assert_eq!(exposed.unwrap(), ports.join(" "));
}

#[test]
fn selectors_and_names_refer_to_what_exists() {
    let map = document("kubernetes/config.yaml", "ConfigMap");
    let monitor = document("kubernetes/monitoring/podmonitor.yaml", "PodMonitor");
    for pod in Pod::both() {
        let file = pod.file;
        let labels = &pod.template()["metadata"]["labels"];
        assert_eq!(&pod.service["spec"]["selector"], labels, "{file}");
        assert_eq!(
            &pod.deployment["spec"]["selector"]["matchLabels"], labels,
            "{file}"
        );
        assert_eq!(&monitor["spec"]["selector"]["matchLabels"], labels);
        let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
        assert!(pod.port(string(&endpoint["port"])) > 0);
        let prometheus = documents("prometheus/prometheus.yml");
        let keep = &prometheus[0]["scrape_configs"][0]["relabel_configs"][0]["regex"];
        let (container, port) = string(keep).split_once(';').unwrap();
        assert_eq!(pod.sidecar()["name"].as_str(), Some(container), "{file}");
        assert!(pod.port(port) > 0);

        let volumes = &pod.spec()["volumes"];
        assert_eq!(
            named(volumes, "config")["configMap"]["name"],
            map["metadata"]["name"],
            "{file}"
        );
        let secret = string(&named(volumes, "token")["secret"]["secretName"]).to_owned();
        let how = text("kubernetes/deployment.yaml");
        assert!(how.contains(&format!(
            "create secret generic {secret} --from-literal=token="
        )));

        let mounts = &pod.sidecar()["volumeMounts"];
        let mounted = |name: &str| string(&named(mounts, name)["mountPath"]).to_owned();
        let args = items(&pod.sidecar()["args"]).iter().map(string);
        assert_eq!(
            args.collect::<Vec<_>>(),
            ["--config", &format!("{}/sidecar.toml", mounted("config"))]
        );
        assert_eq!(
            toml_value("admin-token-file"),
            format!("{}/token", mounted("token"))
        );
        for mount in items(mounts) {
            assert!(
                mount["subPath"].is_badvalue(),
                "{file}: a subPath is never updated"
            );
        }
    }
}

#[test]
fn probes_ask_the_admin_port_and_the_start_does_not_wait_for_the_service() {
    for pod in Pod::both() {
        let file = pod.file;
        for (probe, expected) in [
            ("startupProbe", "/healthz"),
            ("readinessProbe", "/readyz"),
            ("livenessProbe", "/healthz"),
        ] {
            let get = &pod.sidecar()[probe]["httpGet"];
            assert_eq!(string(&get["path"]), expected, "{file}: {probe}");
            assert_eq!(string(&get["port"]), "admin", "{file}: {probe}");
        }
        // The kubelet asks from outside the pod, and no probe of the service could: it listens on loopback.
        assert!(toml_value("admin").starts_with("0.0.0.0:"));
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            assert!(pod.shop()[probe]["httpGet"].is_badvalue(), "{file}");
        }
    }
    assert_eq!(string(&Pod::native().sidecar()["restartPolicy"]), "Always");
}

#[test]
fn a_pod_has_time_to_drain() {
    let defaults = output(&[
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:8080",
        "--capacity",
        "1",
        "--cycle",
        "1s",
        "--check",
    ]);
    let seconds = |key: &str| {
        let line = defaults
            .1
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap();
        let value = line.split('"').nth(1).unwrap();
        value.strip_suffix('s').unwrap().parse::<i64>().unwrap()
    };
    let drain = seconds("drain-announce") + seconds("drain-finish");
    let grace = |pod: &Pod| {
        pod.spec()["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap()
    };
    let stop = |pod: &Pod| pod.shop()["lifecycle"]["preStop"].clone();

    // First the service ends, then the sidecar.
    let native = Pod::native();
    let pause = stop(&native)["sleep"]["seconds"].as_i64().unwrap();
    assert!(grace(&native) >= pause + 30 + drain);
    // Both end at once, so the service stays for as long as the sidecar drains.
    let plain = Pod::plain();
    let command = stop(&plain);
    let command = items(&command["exec"]["command"]);
    let pause = string(&command[1]).parse::<i64>().unwrap();
    assert_eq!((string(&command[0]), pause), ("sleep", drain));
    assert!(grace(&plain) >= pause + 30);
}

#[test]
fn three_replicas_without_rights() {
    for pod in Pod::both() {
        let file = pod.file;
        assert_eq!(
            pod.deployment["spec"]["replicas"].as_i64(),
            Some(3),
            "{file}"
        );
        let requests = &pod.sidecar()["resources"]["requests"];
        assert_eq!(
            (string(&requests["cpu"]), string(&requests["memory"])),
            ("250m", "512Mi"),
            "{file}"
        );
        let security = &pod.sidecar()["securityContext"];
        assert_eq!(security["runAsNonRoot"].as_bool(), Some(true), "{file}");
        assert_eq!(security["runAsUser"].as_i64(), Some(65532), "{file}");
        assert_eq!(
            security["allowPrivilegeEscalation"].as_bool(),
            Some(false),
            "{file}"
        );
        assert_eq!(
            security["readOnlyRootFilesystem"].as_bool(),
            Some(true),
            "{file}"
        );
        assert_eq!(
            string(&security["capabilities"]["drop"][0]),
            "ALL",
            "{file}"
        );
    }
}

#[test]
fn the_image_has_the_static_binary_and_no_user() {
    let dockerfile = text("Dockerfile");
    let last = dockerfile.rsplit_once("FROM scratch\n").unwrap().1;
    assert!(last.contains("\nUSER 65532:65532\n"));
    assert!(last.contains("\nENTRYPOINT [\"/paceline-sidecar\"]\n"));
    assert!(dockerfile.contains("-C target-feature=+crt-static"));
    assert!(dockerfile.contains(&format!("--package {}", env!("CARGO_PKG_NAME"))));
}

fn promtool(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("promtool, of package prometheus of Debian, is installed");
    let both = [output.stdout, output.stderr].concat();
    let both = String::from_utf8(both).unwrap();
    assert!(output.status.success(), "promtool {arguments:?}: {both}");
    both
}

#[test]
fn promtool_takes_the_rules_and_their_tests() {
    let folder = path("prometheus");
    let checked = promtool(&folder, &["check", "rules", "rules.yml"]);
    assert!(checked.contains("SUCCESS: 5 rules found"), "{checked}");
    let tested = promtool(&folder, &["test", "rules", "rules_test.yml"]);
    assert!(tested.contains("SUCCESS"), "{tested}");
}

#[test]
fn promtool_takes_the_configuration_for_prometheus() {
    // Debian's Prometheus is built without discovery in Kubernetes.
    let config = text("prometheus/prometheus.yml").replace(
        "kubernetes_sd_configs:\n      - role: pod\n",
        "static_configs:\n      - targets: []\n",
    );
    let folder = folder("prometheus-config");
    fs::write(folder.join("prometheus.yml"), config).unwrap();
    fs::write(folder.join("rules.yml"), text("prometheus/rules.yml")).unwrap();
    let config = promtool(&folder, &["check", "config", "prometheus.yml"]);
    assert!(config.contains("1 rule files found"), "{config}");
}

#[test]
fn each_alert_has_a_test() {
    let tests = documents("prometheus/rules_test.yml");
    let mut fires = BTreeSet::new();
    for test in items(&tests[0]["tests"]) {
        for case in items(&test["alert_rule_test"]) {
            if !items(&case["exp_alerts"]).is_empty() {
                fires.insert(string(&case["alertname"]).to_owned());
            }
        }
    }
    let alerts = rules().into_iter().map(|(alert, _)| alert);
    assert_eq!(alerts.collect::<BTreeSet<_>>(), fires);
}

/// The alerts with their expressions.
fn rules() -> Vec<(String, String)> {
    let rules = documents("prometheus/rules.yml");
    let rules = items(&rules[0]["groups"])
        .iter()
        .flat_map(|group| items(&group["rules"]));
    let rules = rules.map(|rule| {
        (
            string(&rule["alert"]).to_owned(),
            string(&rule["expr"]).to_owned(),
        )
    });
    rules.collect()
}

/// The panels with their expressions, as Grafana sends them: its variables replaced.
fn panels() -> Vec<(String, String)> {
    let dashboard =
        serde_json::from_str::<serde_json::Value>(&text("grafana/dashboard.json")).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression
                .replace("$instance", ".*")
                .replace("$__rate_interval", "10s");
            assert!(!expression.contains('$'), "{title}: {expression}");
            found.push((title.to_owned(), expression));
        }
    }
    found
}

#[test]
fn promtool_parses_each_expression_of_the_dashboard() {
    let panels = panels();
    assert!(panels.len() >= 15, "{panels:?}");
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (at, (_, expression)) in panels.iter().enumerate() {
        // A string of JSON is one of YAML.
        let expression = serde_json::to_string(expression).unwrap();
        writeln!(rules, "  - record: panel_{at}\n    expr: {expression}").unwrap();
    }
    let folder = folder("dashboard");
    fs::write(folder.join("panels.yml"), rules).unwrap();
    let checked = promtool(&folder, &["check", "rules", "panels.yml"]);
    assert!(
        checked.contains(&format!("SUCCESS: {} rules found", panels.len())),
        "{checked}"
    );
}

/// A sidecar that has let requests pass and has refused some.
fn used_sidecar() -> Sidecar {
    let sidecar = Sidecar::start(hello::start(), &["--capacity", "4", "--cycle", "1s"]);
    use_it(&sidecar);
    sidecar
}

fn use_it(sidecar: &Sidecar) {
    let mut client = Client::connect(sidecar.listen);
    for _ in 0..6 {
        for id in ["orders", "search"] {
            let status = client.get("/", id).status;
            assert!(matches!(status, 200 | 429), "{status}");
        }
    }
}

/// What an expression selects: the name of the metric, and the labels that it has to have.
fn selectors(expression: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find("paceline_") {
        rest = &rest[start..];
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            let inside = &inside[..inside.find('}').unwrap()];
            for matcher in inside.split(',') {
                let (label, values) = matcher.trim().split_once('=').unwrap();
                let values = values.trim_start_matches('~').trim_matches('"');
                // Prometheus adds this one.
                if label != "instance" {
                    labels.extend(values.split('|').map(|value| (label, value)));
                }
            }
        }
        found.push((name, labels));
    }
    found
}

#[test]
fn a_scrape_has_each_metric_and_label_of_the_alerts_and_the_dashboard() {
    let sidecar = used_sidecar();
    let scrape = scrape(sidecar.admin);
    let has = |name: &str, label: Option<(&str, &str)>| {
        let mut samples = scrape.lines().filter_map(|line| line.strip_prefix(name));
        samples.any(|rest| match label {
            None => rest.starts_with([' ', '{']),
            Some((label, value)) => {
                rest.starts_with('{') && rest.contains(&format!("{label}=\"{value}\""))
            }
        })
    };
    let expressions = rules().into_iter().chain(panels());
    let mut seen = 0;
    for (subject, expression) in expressions {
        for (name, labels) in selectors(&expression) {
            assert!(has(name, None), "{subject}: no {name} in {scrape}");
            for label in labels {
                assert!(
                    has(name, Some(label)),
                    "{subject}: no {label:?} of {name} in {scrape}"
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen}");
}

#[test]
fn promtool_finds_no_fault_in_a_scrape() {
    let sidecar = used_sidecar();
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let scrape = scrape(sidecar.admin);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(scrape.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(
        output.status.success() && words.is_empty(),
        "{words}{scrape}"
    );
}

/// Prometheus itself. It is killed when it is dropped.
struct Prometheus {
    child: Child,
    at: String,
}

impl Prometheus {
    /// It reads this sidecar each second.
    fn start(sidecar: &Sidecar) -> Self {
        let folder = folder("prometheus");
        let rules = path("prometheus/rules.yml").canonicalize().unwrap();
        let config = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: ['{}']\n\
             scrape_configs:\n- job_name: sidecar\n  static_configs:\n  - targets: ['{}']\n",
            rules.display(),
            sidecar.admin
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let start = Instant::now();
        while start.elapsed() < 2 * PATIENCE {
            let mut prometheus = Self::spawn(&folder);
            // Another program can take the port first. Then it ends, and another port is tried.
            while start.elapsed() < 2 * PATIENCE && prometheus.child.try_wait().unwrap().is_none() {
                if !prometheus.result("vector(1)").is_empty() {
                    return prometheus;
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        let log = fs::read_to_string(folder.join("log")).unwrap();
        panic!("prometheus does not start: {log}");
    }

    fn spawn(folder: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = free.local_addr().unwrap().to_string();
        drop(free);
        let log = File::create(folder.join("log")).unwrap();
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={at}"))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus, of Debian, is installed");
        Self {
            child,
            at: format!("http://{at}"),
        }
    }

    /// What an expression gives now. It is empty if that is nothing, or Prometheus does not answer yet.
    fn result(&self, expression: &str) -> String {
        let output = Command::new("promtool")
            .args(["query", "instant", &self.at, expression])
            .output()
            .unwrap();
        if !output.status.success() {
            return String::new();
        }
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_panel_shows_numbers_in_prometheus() {
    let sidecar = used_sidecar();
    let prometheus = Prometheus::start(&sidecar);
    let start = Instant::now();
    for (title, expression) in panels() {
        loop {
            let result = prometheus.result(&expression);
            if !result.is_empty() && !result.contains("NaN") {
                break;
            }
            assert!(
                start.elapsed() < 2 * PATIENCE,
                "{title} is empty: {expression}: {result}"
            );
            // Rates need requests between two scrapes.
            use_it(&sidecar);
            thread::sleep(Duration::from_millis(100));
        }
    }
    // The alert on refusals is pending by now. Prometheus has read the rules.
    loop {
        let alerts = prometheus.result("ALERTS{alertname=\"PacelineRefusing\"}");
        if alerts.contains("pending") || alerts.contains("firing") {
            break;
        }
        assert!(start.elapsed() < 3 * PATIENCE, "{alerts}");
        use_it(&sidecar);
        thread::sleep(Duration::from_millis(100));
    }
}

/// The names in the first column of the tables of the guide that are `paceline_…`.
fn metrics_of_the_guide() -> BTreeSet<String> {
    let guide = fs::read_to_string(path("../../../docs/sidecar.md")).unwrap();
    let rows = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `paceline_"));
    let names = rows.map(|row| format!("paceline_{}", row.split(['`', '{']).next().unwrap()));
    names.collect()
}

#[test]
fn the_guide_has_each_metric_and_no_other() {
    let scrape = scrape(used_sidecar().admin);
    let types = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.map(|rest| rest.split(' ').next().unwrap().to_owned());
    assert_eq!(metrics_of_the_guide(), names.collect());
}

#[test]
fn the_guide_has_each_alert_and_no_other() {
    let guide = fs::read_to_string(path("../../../docs/sidecar.md")).unwrap();
    let rows = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `Paceline"));
    let names = rows.map(|row| format!("Paceline{}", row.split('`').next().unwrap()));
    let alerts = rules().into_iter().map(|(alert, _)| alert);
    assert_eq!(names.collect::<BTreeSet<_>>(), alerts.collect());
}

#[test]
fn each_link_of_the_guide_leads_to_a_file() {
    let guide = fs::read_to_string(path("../../../docs/sidecar.md")).unwrap();
    let links = guide
        .split("](")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap());
    let mut seen = 0;
    for link in links.filter(|link| !link.starts_with(['#', 'h'])) {
        let file = link.split('#').next().unwrap();
        assert!(path("../../../docs").join(file).exists(), "{link}");
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
}

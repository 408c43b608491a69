//! What is in `deploy/`: each file is read by what reads it in operation, and the files agree with each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use super::config::{checked, line, required_with};
use super::support::{File, PATIENCE, Process, Sidecar, promtool, run};
use super::upstream::hello;

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
    let documents = documents(name).into_iter();
    let found = documents.filter(|it| it["kind"].as_str() == Some(kind));
    let [document] = &found.collect::<Vec<_>>()[..] else {
        panic!("{name}: not exactly one {kind}");
    };
    document.clone()
}

fn items(yaml: &Yaml) -> &[Yaml] {
    yaml.as_vec().map_or(&[], Vec::as_slice)
}

/// What is there, by keys of maps, by names of items of lists, and by their places.
fn at<'a>(yaml: &'a Yaml, path: &str) -> &'a Yaml {
    path.split('.').fold(yaml, |yaml, step| {
        let by_name = items(yaml)
            .iter()
            .find(|it| it["name"].as_str() == Some(step));
        match step.parse::<usize>() {
            Ok(place) => &yaml[place],
            Err(_) => by_name.unwrap_or_else(|| &yaml[step]),
        }
    })
}

/// A number, a boolean or a string, as text.
fn scalar(yaml: &Yaml, path: &str) -> String {
    match at(yaml, path) {
        Yaml::String(text) => text.clone(),
        Yaml::Integer(number) => number.to_string(),
        Yaml::Boolean(is_true) => is_true.to_string(),
        other => panic!("{path}: {other:?}"),
    }
}

fn number(yaml: &Yaml, path: &str) -> u64 {
    scalar(yaml, path).parse().unwrap()
}

/// A deployment with the sidecar in it.
struct Pod {
    file: &'static str,
    service: Yaml,
    deployment: Yaml,
    spec: Yaml,
    sidecar: Yaml,
    shop: Yaml,
}

impl Pod {
    /// The sidecar is a sidecar of Kubernetes.
    fn native() -> Self {
        Self::read("kubernetes/deployment.yaml", "initContainers")
    }

    /// The sidecar is a container as the service is one.
    fn plain() -> Self {
        Self::read("kubernetes/plain/deployment.yaml", "containers")
    }

    fn both() -> [Self; 2] {
        [Self::native(), Self::plain()]
    }

    fn read(file: &'static str, containers: &str) -> Self {
        let deployment = document(file, "Deployment");
        let spec = at(&deployment, "spec.template.spec");
        Self {
            file,
            service: document(file, "Service"),
            sidecar: at(spec, &format!("{containers}.sidecar")).clone(),
            shop: at(spec, "containers.shop").clone(),
            spec: spec.clone(),
            deployment,
        }
    }

    fn port(&self, name: &str) -> String {
        scalar(&self.sidecar, &format!("ports.{name}.containerPort"))
    }
}

fn sidecar_toml() -> String {
    let map = document("kubernetes/config.yaml", "ConfigMap");
    map["data"]["sidecar.toml"].as_str().unwrap().to_owned()
}

fn toml_value(key: &str) -> String {
    let table = sidecar_toml().parse::<toml::Table>().unwrap();
    table[key].as_str().unwrap().to_owned()
}

/// The port of an address in the configuration.
fn toml_port(key: &str) -> String {
    let address = toml_value(key);
    address.rsplit_once(':').unwrap().1.to_owned()
}

#[test]
fn each_manifest_is_yaml_with_a_version_a_kind_and_a_name() {
    let mut seen = 0;
    let mut paths = vec![path("kubernetes")];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            paths.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        for document in documents(path.to_str().unwrap()) {
            for key in ["apiVersion", "kind", "metadata.name"] {
                let value = at(&document, key).as_str();
                assert!(value.is_some(), "{}: {key}", path.display());
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 7);
}

#[test]
fn the_binary_takes_the_configuration_of_the_config_map() {
    let token = File::new("token", "a-token-of-the-test");
    // The one path that exists in a pod only.
    let in_pod = toml_value("admin-token-file");
    let config = sidecar_toml().replace(&in_pod, token.path());
    let file = File::new("sidecar.toml", &config);
    let out = checked(&["--config", file.path()]);
    for (key, expected) in [
        ("listen", "\"0.0.0.0:9000\""),
        ("admin", "\"0.0.0.0:9102\""),
        ("upstream", "\"http://127.0.0.1:8080\""),
        ("capacity", "40"),
        ("cycle", "\"10s\""),
        ("mode", "\"passthrough\""),
    ] {
        let (value, origin) = line(&out, key);
        assert_eq!(value, expected, "{key}");
        assert!(origin.contains("sidecar.toml"), "{key}: {origin}");
    }
}

#[test]
fn ports_agree_in_all_files() {
    let [listen, admin] = ["listen", "admin"].map(toml_port);
    for pod in Pod::both() {
        let file = pod.file;
        assert_eq!(pod.port("http"), listen, "{file}");
        assert_eq!(pod.port("admin"), admin, "{file}");
        // No request goes past the sidecar.
        let ports = at(&pod.service, "spec.ports");
        assert_eq!(items(ports).len(), 1, "{file}");
        assert_eq!(scalar(&pod.service, "spec.type"), "ClusterIP", "{file}");
        assert_eq!(scalar(ports, "0.targetPort"), listen, "{file}");
        let shop = scalar(&pod.shop, "env.LISTEN.value");
        assert!(shop.starts_with("127.0.0.1:"), "{file}: {shop}");
        assert_eq!(format!("http://{shop}"), toml_value("upstream"), "{file}");
        assert!(pod.shop["ports"].is_badvalue(), "{file}");
    }
    let exposed = format!("\nEXPOSE {listen} {admin}\n");
    assert!(text("Dockerfile").contains(&exposed), "{exposed}");
}

#[test]
fn selectors_and_names_refer_to_what_exists() {
    let map = document("kubernetes/config.yaml", "ConfigMap");
    let monitor = document("kubernetes/monitoring/podmonitor.yaml", "PodMonitor");
    let policy = document("kubernetes/networkpolicy.yaml", "NetworkPolicy");
    let prometheus = documents("prometheus/prometheus.yml").remove(0);
    for pod in Pod::both() {
        let file = pod.file;
        let labels = at(&pod.deployment, "spec.template.metadata.labels");
        for (yaml, selector) in [
            (&pod.service, "spec.selector"),
            (&pod.deployment, "spec.selector.matchLabels"),
            (&monitor, "spec.selector.matchLabels"),
            (&policy, "spec.podSelector.matchLabels"),
        ] {
            assert_eq!(at(yaml, selector), labels, "{file}");
        }
        // A port that is not there panics.
        pod.port(&scalar(&monitor, "spec.podMetricsEndpoints.0.port"));
        let keep = scalar(&prometheus, "scrape_configs.0.relabel_configs.0.regex");
        let (container, port) = keep.split_once(';').unwrap();
        assert_eq!(scalar(&pod.sidecar, "name"), container, "{file}");
        pod.port(port);

        let name = scalar(&pod.spec, "volumes.config.configMap.name");
        assert_eq!(name, scalar(&map, "metadata.name"), "{file}");
        let secret = scalar(&pod.spec, "volumes.token.secret.secretName");
        let how = format!("create secret generic {secret} --from-literal=token=");
        assert!(text("kubernetes/deployment.yaml").contains(&how), "{how}");

        let mounts = at(&pod.sidecar, "volumeMounts");
        let args = items(at(&pod.sidecar, "args")).iter().map(Yaml::as_str);
        let config = format!("{}/sidecar.toml", scalar(mounts, "config.mountPath"));
        let expected = [Some("--config"), Some(config.as_str())];
        assert_eq!(args.collect::<Vec<_>>(), expected, "{file}");
        let token = format!("{}/token", scalar(mounts, "token.mountPath"));
        assert_eq!(toml_value("admin-token-file"), token, "{file}");
        for mount in items(mounts) {
            let sub_path = &mount["subPath"];
            assert!(sub_path.is_badvalue(), "{file}: it is never updated");
        }
    }
}

#[test]
fn probes_ask_the_admin_port_and_the_start_does_not_wait_for_the_service() {
    for pod in Pod::both() {
        for (probe, expected) in [
            ("startupProbe", "/healthz"),
            ("readinessProbe", "/readyz"),
            ("livenessProbe", "/healthz"),
        ] {
            let get = &pod.sidecar[probe]["httpGet"];
            let asked = [scalar(get, "path"), scalar(get, "port")];
            assert_eq!(asked, [expected, "admin"], "{}: {probe}", pod.file);
            // No probe of the service could ask: it listens on loopback.
            let of_shop = &pod.shop[probe]["httpGet"];
            assert!(of_shop.is_badvalue(), "{}: {probe}", pod.file);
        }
    }
    // The kubelet asks from outside the pod.
    assert!(toml_value("admin").starts_with("0.0.0.0:"));
    let policy = scalar(&Pod::native().sidecar, "restartPolicy");
    assert_eq!(policy, "Always");
}

/// The paths of all values, without the places in lists and the names of labels.
fn fields(yaml: &Yaml, path: &str) -> BTreeSet<String> {
    match yaml {
        Yaml::Hash(map) => {
            let is_labels = path.ends_with("abels");
            let fields = map.iter().flat_map(|(key, value)| match key.as_str() {
                _ if is_labels => fields(value, path),
                key => fields(value, &format!("{path}.{}", key.unwrap())),
            });
            fields.collect()
        }
        Yaml::Array(items) => items.iter().flat_map(|it| fields(it, path)).collect(),
        Yaml::String(_) | Yaml::Integer(_) => BTreeSet::from([path.to_owned()]),
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn the_network_policy_leaves_the_admin_port_to_prometheus_and_the_public_one_to_all() {
    let policy = document("kubernetes/networkpolicy.yaml", "NetworkPolicy");
    // An unknown field would be dropped, and a rule without its peers is one for everybody.
    let known = [
        ".apiVersion",
        ".kind",
        ".metadata.labels",
        ".metadata.name",
        ".spec.ingress.from.namespaceSelector.matchLabels",
        ".spec.ingress.from.podSelector.matchLabels",
        ".spec.ingress.ports.port",
        ".spec.ingress.ports.protocol",
        ".spec.podSelector.matchLabels",
        ".spec.policyTypes",
    ];
    assert_eq!(fields(&policy, ""), known.map(str::to_owned).into());
    assert_eq!(scalar(&policy, "apiVersion"), "networking.k8s.io/v1");
    assert_eq!(scalar(&policy, "spec.policyTypes.0"), "Ingress");

    let [public, admin] = items(at(&policy, "spec.ingress")) else {
        panic!("{policy:?}");
    };
    for (rule, port) in [(public, "listen"), (admin, "admin")] {
        assert_eq!(items(&rule["ports"]).len(), 1, "{port}");
        assert_eq!(scalar(rule, "ports.0.port"), toml_port(port));
        assert_eq!(scalar(rule, "ports.0.protocol"), "TCP");
    }
    assert!(public["from"].is_badvalue());
    // Both selectors are of one peer: each alone would let more in.
    let [prometheus] = items(&admin["from"]) else {
        panic!("{admin:?}");
    };
    let namespace = &prometheus["namespaceSelector"]["matchLabels"];
    let pod = &prometheus["podSelector"]["matchLabels"];
    let namespace = namespace["kubernetes.io/metadata.name"].as_str();
    let pod = pod["app.kubernetes.io/name"].as_str();
    assert_eq!((namespace, pod), (Some("monitoring"), Some("prometheus")));
}

#[test]
fn a_pod_has_time_to_drain() {
    let defaults = checked(&required_with(&[]));
    let seconds = |key| {
        let (value, _) = line(&defaults, key);
        let value = value.trim_matches('"').strip_suffix('s');
        value.unwrap().parse::<u64>().unwrap()
    };
    let drain = seconds("drain-announce") + seconds("drain-finish");
    let grace = |pod: &Pod| number(&pod.spec, "terminationGracePeriodSeconds");

    // First the service ends, then the sidecar.
    let native = Pod::native();
    let pause = number(&native.shop, "lifecycle.preStop.sleep.seconds");
    assert!(grace(&native) >= pause + 30 + drain);
    // Both end at once, so the service stays for as long as the sidecar drains.
    let plain = Pod::plain();
    let command = at(&plain.shop, "lifecycle.preStop.exec.command");
    assert_eq!(scalar(command, "0"), "sleep");
    assert_eq!(number(command, "1"), drain);
    assert!(grace(&plain) >= drain + 30);
}

#[test]
fn three_replicas_without_rights() {
    for pod in Pod::both() {
        let replicas = scalar(&pod.deployment, "spec.replicas");
        assert_eq!(replicas, "3", "{}", pod.file);
        for (path, expected) in [
            ("resources.requests.cpu", "250m"),
            ("resources.requests.memory", "512Mi"),
            ("securityContext.runAsNonRoot", "true"),
            ("securityContext.runAsUser", "65532"),
            ("securityContext.allowPrivilegeEscalation", "false"),
            ("securityContext.readOnlyRootFilesystem", "true"),
            ("securityContext.capabilities.drop.0", "ALL"),
        ] {
            let value = scalar(&pod.sidecar, path);
            assert_eq!(value, expected, "{}: {path}", pod.file);
        }
    }
}

#[test]
fn the_memory_of_a_pod_is_enough_for_all_connections_at_their_most() {
    let guide = text("../../../docs/sidecar.md");
    let most = |row: &str| {
        let rest = guide.lines().find_map(|line| line.strip_prefix(row));
        let kb = rest.and_then(|rest| rest.split('|').nth(1)?.trim().parse::<u64>().ok());
        kb.unwrap_or_else(|| panic!("no {row}"))
    };
    let table = sidecar_toml().parse::<toml::Table>().unwrap();
    let connections = table["max-connections"].as_integer().unwrap();
    let connections = u64::try_from(connections).unwrap();
    let each = most("| the most of a connection and its request ")
        + most("| the kernel's buffers for them, which count for the pod ");
    let kb = connections * each + most("| the process itself with all large buffers ");
    for pod in Pod::both() {
        for path in ["resources.requests.memory", "resources.limits.memory"] {
            let memory = scalar(&pod.sidecar, path);
            let mib = memory.strip_suffix("Mi").unwrap().parse::<u64>().unwrap();
            assert!(
                mib * 1024 > kb,
                "{}: {path}: {memory} for {kb} kB",
                pod.file
            );
        }
    }
}

#[test]
fn the_image_has_the_static_binary_and_no_user() {
    let dockerfile = text("Dockerfile");
    let last = dockerfile.rsplit_once("FROM scratch\n").unwrap().1;
    assert!(last.contains("\nUSER 65532:65532\n"));
    assert!(last.contains("\nENTRYPOINT [\"/paceline-sidecar\"]\n"));
    let guide = text("../../../docs/sidecar.md");
    let build = "RUSTFLAGS='-C target-feature=+crt-static' ";
    let build = guide.lines().find_map(|line| line.strip_prefix(build));
    let build = build.unwrap();
    assert!(build.contains(&format!("--package {}", env!("CARGO_PKG_NAME"))));
    assert!(dockerfile.contains("RUSTFLAGS='-C target-feature=+crt-static' \\\n"));
    assert!(dockerfile.contains(build), "{build}");
}

/// Has promtool look at a file, and say these words.
fn promtool_says(arguments: &[&str], file: &Path, words: &str) {
    let said = promtool(&[arguments, &[file.to_str().unwrap()]].concat(), "");
    assert!(said.contains(words), "{said}");
}

#[test]
fn promtool_takes_the_rules_their_tests_and_the_configuration_for_prometheus() {
    let rules = path("prometheus/rules.yml");
    promtool_says(&["check", "rules"], &rules, "SUCCESS: 6 rules found");
    let tests = path("prometheus/rules_test.yml");
    promtool_says(&["test", "rules"], &tests, "SUCCESS");
    // Debian's Prometheus is built without discovery in Kubernetes.
    let config = text("prometheus/prometheus.yml").replace(
        "kubernetes_sd_configs:\n      - role: pod\n",
        "static_configs:\n      - targets: []\n",
    );
    let config = File::new("prometheus.yml", &config);
    fs::copy(rules, config.folder().join("rules.yml")).unwrap();
    let config = Path::new(config.path());
    promtool_says(&["check", "config"], config, "1 rule files found");
}

#[test]
fn each_alert_has_a_test() {
    let tests = documents("prometheus/rules_test.yml");
    let tests = items(&tests[0]["tests"]).iter();
    let cases = tests.flat_map(|test| items(&test["alert_rule_test"]));
    let fires = cases.filter(|case| !items(&case["exp_alerts"]).is_empty());
    let fires = fires.map(|case| scalar(case, "alertname"));
    assert_eq!(alerts(), fires.collect());
}

/// The alerts with their expressions.
fn rules() -> Vec<(String, String)> {
    let rules = documents("prometheus/rules.yml");
    let groups = items(&rules[0]["groups"]).iter();
    let rules = groups.flat_map(|group| items(&group["rules"]));
    let rules = rules.map(|rule| (scalar(rule, "alert"), scalar(rule, "expr")));
    rules.collect()
}

fn alerts() -> BTreeSet<String> {
    rules().into_iter().map(|(alert, _)| alert).collect()
}

/// The panels with their expressions, as Grafana sends them: its variables replaced.
fn panels() -> Vec<(String, String)> {
    let dashboard = serde_json::from_str::<Value>(&text("grafana/dashboard.json")).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$instance", ".*");
            let expression = expression.replace("$__rate_interval", "10s");
            assert!(!expression.contains('$'), "{title}: {expression}");
            found.push((title.to_owned(), expression));
        }
    }
    found
}

/// A sidecar that has let requests pass and has refused some.
fn used_sidecar() -> Sidecar {
    let sidecar = Sidecar::start(hello(), &["--capacity", "4", "--cycle", "1s"]);
    use_it(&sidecar);
    sidecar
}

fn use_it(sidecar: &Sidecar) {
    let mut client = sidecar.client();
    for id in ["orders", "search"].repeat(6) {
        let status = client.get("/", id).status;
        assert!(matches!(status, 200 | 429), "{status}");
    }
}

/// What an expression selects: the name of the metric, and the labels that it has to have.
fn selectors(expression: &str) -> Vec<(String, Vec<String>)> {
    let selectors = expression.split("paceline_").skip(1).map(|rest| {
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let inside = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        let matchers = inside.unwrap_or_default().split(',');
        let mut labels = Vec::new();
        for (label, values) in matchers.filter_map(|matcher| matcher.trim().split_once('=')) {
            let values = values.trim_start_matches('~').trim_matches('"').split('|');
            // Prometheus adds this one.
            if label != "instance" {
                labels.extend(values.map(|value| format!("{label}=\"{value}\"")));
            }
        }
        (format!("paceline_{name}"), labels)
    });
    selectors.collect()
}

#[test]
fn a_scrape_has_each_metric_and_label_of_the_alerts_and_the_dashboard() {
    let scrape = used_sidecar().scrape();
    let has = |name: &str, label: &str| {
        let mut samples = scrape.lines().filter_map(|line| line.strip_prefix(name));
        samples.any(|rest| rest.starts_with([' ', '{']) && rest.contains(label))
    };
    let mut seen = 0;
    for (subject, expression) in rules().into_iter().chain(panels()) {
        for (name, labels) in selectors(&expression) {
            for label in [String::new()].into_iter().chain(labels) {
                let is_there = has(&name, &label);
                assert!(is_there, "{subject}: no {name} with {label:?} in {scrape}");
            }
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen}");
}

/// Prometheus itself, which reads a sidecar each second.
struct Prometheus {
    /// It is killed when it is dropped.
    _process: Process,
    at: String,
    _config: File,
}

impl Prometheus {
    fn start(sidecar: &Sidecar) -> Self {
        let rules = path("prometheus/rules.yml").canonicalize().unwrap();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: ['{}']\n\
             scrape_configs: [{{ job_name: sidecar, static_configs: [targets: ['{}']] }}]\n",
            rules.display(),
            sidecar.admin
        );
        let config = File::new("prometheus.yml", &config);
        let mut prometheus = Command::new("prometheus");
        prometheus
            .args(["--config.file", config.path()])
            .args(["--storage.tsdb.path", "data"])
            .args(["--web.listen-address", "127.0.0.1:0"])
            .current_dir(config.folder());
        let process = Process::start(prometheus);
        let listens = "msg=\"Listening on\"";
        process.wait_for_log(listens);
        let log = process.log();
        let line = log.lines().find(|line| line.contains(listens)).unwrap();
        let (_, at) = line.split_once("address=").unwrap();
        Self {
            at: format!("http://{}", at.split_whitespace().next().unwrap()),
            _process: process,
            _config: config,
        }
    }

    /// What an expression gives now. It is empty if that is nothing, or Prometheus does not answer yet.
    fn result(&self, expression: &str) -> String {
        let mut query = Command::new("promtool");
        query.args(["query", "instant", &self.at, expression]);
        let (code, out, _) = run(&mut query, b"");
        if code != 0 {
            return String::new();
        }
        out.trim().to_owned()
    }

    /// Waits for a result while the sidecar is used: rates need requests between two scrapes.
    fn wait_for(&self, expression: &str, sidecar: &Sidecar, holds: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let result = self.result(expression);
            if holds(&result) {
                break;
            }
            let is_early = start.elapsed() < 2 * PATIENCE;
            assert!(is_early, "{expression} is still {result}");
            use_it(sidecar);
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn each_panel_shows_numbers_in_prometheus() {
    let sidecar = used_sidecar();
    let prometheus = Prometheus::start(&sidecar);
    let panels = panels();
    assert!(panels.len() >= 15, "{panels:?}");
    for (_, expression) in panels {
        let is_number = |result: &str| !result.is_empty() && !result.contains("NaN");
        prometheus.wait_for(&expression, &sidecar, is_number);
    }
    // The alert on refusals is pending by now. Prometheus has read the rules.
    let alert = "ALERTS{alertname=\"PacelineRefusing\"}";
    let is_due = |result: &str| result.contains("pending") || result.contains("firing");
    prometheus.wait_for(alert, &sidecar, is_due);
}

/// The names in the first column of the tables of the guide that begin so.
fn names_in_the_guide(start: &str) -> BTreeSet<String> {
    let guide = text("../../../docs/sidecar.md");
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter(|row| row.starts_with(start));
    let names = rows.map(|row| row.split(['`', '{']).next().unwrap().to_owned());
    names.collect()
}

#[test]
fn the_guide_has_each_metric_and_alert_and_no_other() {
    let scrape = used_sidecar().scrape();
    let types = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.map(|rest| rest.split(' ').next().unwrap().to_owned());
    let of_guide = ["paceline_", "process_"].map(names_in_the_guide);
    assert_eq!(
        of_guide.into_iter().flatten().collect::<BTreeSet<_>>(),
        names.collect()
    );
    assert_eq!(names_in_the_guide("Paceline"), alerts());
}

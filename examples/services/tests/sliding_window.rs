//! Runs the example `sliding_window` as three processes with a real Redis, and reads what it is deployed with.
#![cfg(unix)]

#[path = "serving/redis.rs"]
mod redis;
mod serving;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service as KubernetesService};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use redis::{Redis, until};
use serving::{Process, run};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_sliding_window");

/// A file of this package.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// With this file, and with variables over it that every test needs: a free port, a window that does not end, patience.
fn command(config: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(EXAMPLE);
    command
        .env_clear()
        .env("LIMITER_HOST", "127.0.0.1")
        .env("LIMITER_PORT", "0")
        .env("LIMITER_WINDOW", "1h")
        .envs(variables.iter().copied())
        .args(["--deadline", "10000", "--config"])
        .arg(config);
    command
}

/// A replica, which serves.
struct Replica {
    _process: Process,
    url: String,
}

impl Replica {
    fn start(variables: &[(&str, &str)]) -> Self {
        let mut command = command(&path("sliding_window.toml"), variables);
        let (process, url, _) = Process::serving(&mut command);
        Self {
            _process: process,
            url,
        }
    }

    fn status(&self) -> u16 {
        let options = ["-sS", "-o", "/dev/null", "-w", "%{http_code}"];
        run("curl", &options, &self.url).parse().unwrap()
    }

    fn metrics(&self) -> String {
        run("curl", &["-sS"], &format!("{}/metrics", self.url))
    }
}

/// How many of these requests, one after another at each replica in turn, pass. The others are 429.
fn passed(replicas: &[Replica], requests: usize) -> usize {
    let statuses = replicas.iter().cycle().take(requests).map(Replica::status);
    let passed = statuses.filter(|status| match status {
        200 => true,
        429 => false,
        other => panic!("{other}"),
    });
    passed.count()
}

#[test]
fn three_replicas_share_the_limit_of_a_client() {
    let redis = Redis::start("three");
    let uri = redis.url();
    let variables = [("REDIS_URI", &*uri), ("LIMITER_LIMIT", "7")];
    let replicas = [(); 3].map(|()| Replica::start(&variables));
    assert_eq!(passed(&replicas, 12), 7);
}

#[test]
fn three_replicas_pass_everything_while_redis_is_gone() {
    let mut redis = Redis::start("gone");
    let uri = redis.url();
    let variables = [("REDIS_URI", &*uri), ("LIMITER_LIMIT", "7")];
    redis.kill();
    let replicas = [(); 3].map(|()| Replica::start(&variables));
    assert_eq!(passed(&replicas, 12), 12);
    redis.start_again();
    // What passed meanwhile is not known to Redis, so all counts as spent.
    until(|| passed(&replicas, 3) == 0);
}

#[test]
fn a_service_that_is_not_enabled_limits_nothing() {
    let redis = Redis::start("disabled");
    let uri = redis.url();
    let variables = [
        ("REDIS_URI", &*uri),
        ("LIMITER_LIMIT", "1"),
        ("LIMITER_ENABLED", "false"),
    ];
    assert_eq!(passed(&[Replica::start(&variables)], 5), 5);
}

/// Redis asks for no password, and refuses one.
#[test]
fn where_redis_refuses_calls_requests_pass_and_the_metrics_say_so() {
    let redis = Redis::start("refused");
    let uri = format!("{}?pass=wrong", redis.url());
    let replica = Replica::start(&[("REDIS_URI", &uri), ("LIMITER_LIMIT", "1")]);
    assert_eq!(passed(std::slice::from_ref(&replica), 5), 5);
    let metrics = replica.metrics();
    let name = "paceline_remote_faults_total ";
    let faults = metrics.lines().find_map(|line| line.strip_prefix(name));
    let faults = faults.map(|count| count.parse::<u64>().unwrap());
    // One each second.
    assert!(faults.is_some_and(|count| count > 0), "{metrics}");
    let passed = "\npaceline_requests_total{limit=\"window\",outcome=\"passed\"} 5\n";
    assert!(metrics.contains(passed), "{metrics}");
}

#[test]
fn settings_that_cannot_be_end_the_program_with_the_reason() {
    let file = path("sliding_window.toml");
    let uri = ("REDIS_URI", "redis://localhost");
    for (variables, named) in [
        (&[][..], "sliding_window.toml: line "),
        (
            &[("REDIS_URI", "localhost:6379")],
            "did you mean redis://localhost:6379?",
        ),
        (&[uri, ("LIMITER_LIMIT", "0")], "at least 1"),
        (&[uri, ("LIMITER_PORT", "http")], "port"),
    ] {
        let output = command(&file, variables).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{error}");
        assert!(error.starts_with("sliding_window: "), "{error}");
        assert!(error.contains(named), "{error}");
    }
}

/// As JSON, which is what the API server gets.
fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Hash(map) => {
            let entries = map
                .iter()
                .map(|(key, value)| (key.as_str().unwrap().to_owned(), json(value)));
            Value::Object(entries.collect())
        }
        Yaml::Array(items) => items.iter().map(json).collect(),
        Yaml::String(text) => text.as_str().into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(is_true) => (*is_true).into(),
        other => panic!("{other:?}"),
    }
}

fn documents(name: &Path) -> Vec<Value> {
    let text = fs::read_to_string(name).unwrap();
    let documents = YamlLoader::load_from_str(&text);
    let documents = documents.unwrap_or_else(|error| panic!("{}: {error}", name.display()));
    documents.iter().map(json).collect()
}

/// What the schema of the kind does not know is not in what is written back.
fn fits<T: Serialize + DeserializeOwned>(document: &Value) -> Result<(), String> {
    let typed: T = serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    let known = serde_json::to_value(typed).unwrap();
    if &known == document {
        return Ok(());
    }
    Err(format!("known is only {known}"))
}

fn fits_its_kind(document: &Value) -> Result<(), String> {
    match document["kind"].as_str().unwrap() {
        "ConfigMap" => fits::<ConfigMap>(document),
        "Deployment" => fits::<Deployment>(document),
        "NetworkPolicy" => fits::<NetworkPolicy>(document),
        "Service" => fits::<KubernetesService>(document),
        // A kind of the Prometheus operator.
        "PodMonitor" => Ok(()),
        other => panic!("no schema of {other}"),
    }
}

/// Those of the sidecar too.
#[test]
fn each_manifest_fits_the_schema_of_kubernetes() {
    let mut seen = 0;
    let mut paths = [
        "deploy/kubernetes",
        "../../crates/sidecar/deploy/kubernetes",
    ]
    .map(path)
    .to_vec();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            paths.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        for document in documents(&path) {
            fits_its_kind(&document).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            seen += 1;
        }
    }
    assert_eq!(seen, 3 + 7);
}

fn manifest(kind: &str) -> Value {
    let documents = documents(&path("deploy/kubernetes/sliding-window.yaml")).into_iter();
    documents.into_iter().find(|it| it["kind"] == kind).unwrap()
}

#[test]
fn a_word_that_the_schema_does_not_know_is_found() {
    let deployment = manifest("Deployment");
    for (pointer, key) in [
        ("/spec", "replica"),
        ("/spec/template/spec/containers/0", "volumeMount"),
        ("/spec/template/spec/containers/0/readinessProbe", "httpget"),
    ] {
        let mut wrong = deployment.clone();
        wrong.pointer_mut(pointer).unwrap()[key] = 1.into();
        assert!(fits_its_kind(&wrong).is_err(), "{key}");
    }
    let mut wrong = deployment;
    wrong["spec"]["replicas"] = "three".into();
    assert!(fits_its_kind(&wrong).is_err());
}

#[test]
fn three_replicas_have_the_uri_from_a_secret_and_what_they_refer_to_exists() {
    let [map, service, deployment] = ["ConfigMap", "Service", "Deployment"].map(manifest);
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 3);
    let labels = &spec["template"]["metadata"]["labels"];
    assert_eq!(&spec["selector"]["matchLabels"], labels);
    assert_eq!(&service["spec"]["selector"], labels);
    // A service of this name would set variables.
    assert_eq!(spec["template"]["spec"]["enableServiceLinks"], false);

    let pod = &spec["template"]["spec"];
    let container = &pod["containers"][0];
    let env = &container["env"][0];
    assert_eq!(env["name"], "REDIS_URI");
    let secret = &env["valueFrom"]["secretKeyRef"];
    let how = format!(
        "create secret generic {} --from-literal={}=",
        secret["name"].as_str().unwrap(),
        secret["key"].as_str().unwrap()
    );
    assert!(
        text("deploy/kubernetes/sliding-window.yaml").contains(&how),
        "{how}"
    );
    for document in [&map, &service, &deployment] {
        assert!(!document.to_string().contains("redis://"), "{document}");
    }

    assert_eq!(
        pod["volumes"][0]["configMap"]["name"],
        map["metadata"]["name"]
    );
    let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let file = map["data"].as_object().unwrap().keys().next().unwrap();
    assert_eq!(container["args"][1], format!("{mounted}/{file}"));
    assert_eq!(
        service["spec"]["ports"][0]["targetPort"],
        container["ports"][0]["name"]
    );
    for probe in ["readinessProbe", "livenessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!(
            (&get["path"], &get["port"]),
            (&"/healthz".into(), &"http".into())
        );
    }
}

#[test]
fn the_binary_takes_the_file_of_the_config_map() {
    let map = manifest("ConfigMap");
    let config = map["data"]["sliding_window.toml"].as_str().unwrap();
    let port = format!(
        "port = {}\n",
        manifest("Deployment")["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
    );
    assert!(config.contains(&port), "{config}");
    // The same settings as in the file of the example.
    let of_example = text("sliding_window.toml");
    let settings = of_example
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    assert!(settings.eq(config.lines()), "{config}");
}

/// Has promtool look at a file, and say these words.
fn promtool_says(arguments: &[&str], file: &str, words: &str) {
    let said = run("promtool", arguments, path(file).to_str().unwrap());
    assert!(said.contains(words), "{said}");
}

#[test]
fn promtool_takes_the_rules_and_their_tests() {
    promtool_says(
        &["check", "rules"],
        "deploy/prometheus/rules.yml",
        "SUCCESS: 7 rules found",
    );
    promtool_says(
        &["test", "rules"],
        "deploy/prometheus/rules_test.yml",
        "SUCCESS",
    );
}

/// The names of all alerts with a key such as `alert`, or with one that fires.
fn named(document: &Value, key: &str, fires: impl Fn(&Value) -> bool + Copy) -> BTreeSet<String> {
    match document {
        Value::Object(map) => {
            let own = map.get(key).filter(|_| fires(document));
            let own = own.map(|name| name.as_str().unwrap().to_owned());
            let inner = map.values().flat_map(|value| named(value, key, fires));
            own.into_iter().chain(inner).collect()
        }
        Value::Array(items) => items
            .iter()
            .flat_map(|item| named(item, key, fires))
            .collect(),
        _ => BTreeSet::new(),
    }
}

#[test]
fn each_alert_has_a_test_and_asks_for_metrics_that_there_are() {
    let [rules, tests] = ["rules.yml", "rules_test.yml"]
        .map(|name| documents(&path("deploy/prometheus").join(name)).remove(0));
    let alerts = named(&rules, "alert", |_| true);
    let fires = |case: &Value| case["exp_alerts"] != Value::Array(Vec::new());
    assert_eq!(alerts, named(&tests, "alertname", fires));

    let docs = include_str!("../../../src/limiter/metrics.rs");
    for expression in named(&rules, "expr", |_| true) {
        for rest in expression.split("paceline_").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            assert!(
                docs.contains(&format!("/// | `paceline_{name}` |")),
                "{name}"
            );
        }
    }
}

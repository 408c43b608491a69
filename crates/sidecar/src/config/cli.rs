//! The command line, and what it is answered with.

use std::env;
use std::path::PathBuf;
use std::process::{ExitCode, exit};

use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::demo::Demo;

use super::Config;
use super::reading::{CLIENTS, Reading};
use super::settings::{PREFIX, SETTINGS, Setting};
use super::source::{CONFIG, Errors, Source, without_passwords};
use super::value::{Form, quoted};

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Task {
    /// To serve, with these warnings in the log.
    Serve {
        config: Box<Config>,
        source: Source,
        warnings: Vec<String>,
    },
    /// To show what the sidecar does.
    Demo(Demo),
    /// Nothing more: it is answered.
    Done(ExitCode),
}

/// Reads the command line, the environment and the file. Answers `--help`, `--version` and `--check`, and prints what is wrong.
pub(crate) fn task() -> Task {
    let matches = with_settings(Cli::command()).try_get_matches();
    let parsed = matches.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = parsed.unwrap_or_else(|error| {
        let text = error.to_string();
        let shown = without_passwords(&text);
        if shown == text {
            error.exit();
        }
        eprint!("{shown}");
        exit(2)
    });
    if let Some(Subcommands::Demo(demo)) = cli.command {
        return Task::Demo(demo);
    }
    load(&cli, &matches).unwrap_or_else(|Errors(errors)| {
        for error in errors {
            eprintln!("error: {error}");
        }
        Task::Done(ExitCode::from(2))
    })
}

fn load(cli: &Cli, matches: &ArgMatches) -> Result<Task, Errors> {
    let flags = SETTINGS.iter().filter_map(|setting| {
        let value = matches.get_one::<String>(setting.key)?;
        Some((setting.key, value.clone()))
    });
    let mut errors = Vec::new();
    let mut variables = Vec::new();
    for (name, value) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        match value.into_string() {
            Ok(value) => variables.push((name, value)),
            Err(_) if name.starts_with(PREFIX) => errors.push(format!("{name}: not UTF-8")),
            Err(_) => {}
        }
    }
    Errors::or(errors, ())?;
    let (source, mut warnings) = Source::new(flags.collect(), variables, cli.config.clone())?;
    let text = source.text();
    let (config, reading) = source.load(&text)?;
    warnings.extend_from_slice(&reading.warnings);
    if cli.check {
        for warning in warnings {
            eprintln!("warning: {warning}");
        }
        print!("{}", report(&source, &config, &reading));
        return Ok(Task::Done(ExitCode::SUCCESS));
    }
    *source.seen() = text.ok();
    Ok(Task::Serve {
        config: Box::new(config),
        source,
        warnings,
    })
}

/// The configuration as a file, with the origin of each value as a comment.
pub(super) fn report(source: &Source, config: &Config, reading: &Reading<'_>) -> String {
    let mut lines = Vec::new();
    for Setting { key, .. } in &*SETTINGS {
        let line = format!("{key} = {}", config.shown[key].in_file());
        lines.push((line, (*key).to_owned()));
    }
    for (id, terms) in &config.terms {
        let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let name = if id.bytes().all(is_bare) {
            id.clone()
        } else {
            quoted(id)
        };
        let most = super::bounds(terms);
        let most = most.map(|(key, most)| format!(", {key} = {most}"));
        let most: String = most.collect::<Vec<_>>().concat();
        let line = format!("{CLIENTS}.{name} = {{ weight = {}{most} }}", terms.weight());
        lines.push((line, format!("{CLIENTS}.{id}")));
    }
    let longest = lines.iter().map(|(line, _)| line.chars().count()).max();
    let width = longest.unwrap_or(0);
    let lines = lines.into_iter().map(|(line, key)| {
        let origin = source.origin(&key, reading.origin(&key));
        format!("{line:width$}  # {origin}\n")
    });
    lines.collect()
}

#[derive(Debug, Parser)]
#[command(
    name = "paceline-sidecar",
    version,
    about,
    args_conflicts_with_subcommands = true
)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Subcommands>,

    /// The TOML file with settings, read again on SIGHUP and when it changes
    #[arg(long, value_name = "FILE", env = CONFIG, hide_env = true)]
    config: Option<PathBuf>,

    /// Check the configuration, print it with the origin of each value, and exit with 0, or with 2 if it is wrong
    #[arg(long)]
    check: bool,
}

const AFTER_HELP: &str = "\
Each setting can be a flag, an environment variable or a key of the file; the first of them holds:
  --head-timeout 10s    PACELINE_HEAD_TIMEOUT=10s    head-timeout = \"10s\"
Durations have a unit: 500ms, 10s, 2m, 1h. The terms of single clients, each optional, are only in the file:
  [clients.shop]
  weight = 3
  most-lent = 5
  most-borrowed = 20

Example:
  paceline-sidecar --listen 127.0.0.1:9000 --upstream http://127.0.0.1:8080 --capacity 40 --cycle 10s";

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Show four clients that share a capacity: a small upstream, the sidecar, the live page; ends after a minute
    Demo(Demo),
}

/// A flag for each setting, in groups.
fn with_settings(command: Command) -> Command {
    let defaults = Config::defaults();
    let flags = SETTINGS.iter().map(|setting| {
        let shown = &defaults.shown[setting.key];
        let default = match shown.text.as_str() {
            _ if setting.is_required() => " [required]".to_owned(),
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        let flag = Arg::new(setting.key)
            .long(setting.key)
            .value_name(shown.placeholder)
            .allow_hyphen_values(true)
            .help(format!("{}{default}", setting.help))
            .help_heading(setting.heading);
        match shown.form {
            // `--carry` alone is `--carry=true`.
            Form::Switch => flag
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true"),
            _ => flag,
        }
    });
    command.args(flags)
}

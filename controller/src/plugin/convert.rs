//! `kubectl proxyplan convert-config`: converts a kube-proxy configuration to a ProxyConfig.

use std::io::{self, Write as _};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use super::output::Output;
use super::{NOT_YET, OK};
use crate::convert::convert;
use crate::manifests::Source;

#[derive(Debug, Args)]
pub(super) struct ConvertArguments {
    /// The --config file of kube-proxy, or its ConfigMap as kubectl prints it; - for standard input.
    #[arg(value_name = "FILE|-")]
    file: String,
    /// Output format of the ProxyConfig.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Form,
    /// Format of the report about each field, on standard error.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    report: Output,
}

/// Output formats, for kubectl or helm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The ProxyConfig as YAML.
    #[default]
    Yaml,
    /// The ProxyConfig as JSON.
    Json,
    /// Helm values of the chart.
    Values,
}

pub(super) fn run(arguments: &ConvertArguments) -> anyhow::Result<u8> {
    let source = Source::from(arguments.file.as_str());
    let (name, text) = match source.text() {
        Ok(read) => read,
        Err(problem) => bail!(problem),
    };
    let mut conversion = convert(&name, &text)?;
    if arguments.output == Form::Values {
        conversion = conversion.for_chart();
    }
    let config = match arguments.output {
        Form::Yaml => serde_saphyr::to_string(&conversion.config).context("write it as YAML")?,
        Form::Json => serde_json::to_string_pretty(&conversion.config)? + "\n",
        Form::Values => {
            serde_saphyr::to_string(&conversion.values()).context("write it as YAML")?
        }
    };
    let report = match arguments.report {
        Output::Table => conversion.report(),
        Output::Json => conversion.report_json()?,
    };
    io::stdout().lock().write_all(config.as_bytes())?;
    io::stderr().lock().write_all(report.as_bytes())?;
    Ok(if conversion.is_exact() { OK } else { NOT_YET })
}

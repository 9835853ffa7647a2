"""`nodeagent config view|validate`: the daemon's effective configuration, without starting it.

Both take the daemon's flags, so that the command line of a unit can be checked unchanged. Exit
codes: 0 valid, 1 invalid configuration, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from nodeagent.config import options, show
from nodeagent.config.layers import ConfigError, Layers, read_layers
from nodeagent.config.load import effective, load_config
from nodeagent.config.origin import leaves, origin_of
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.node.rules.ending_order import groups_of
from orch.component.diagnostics import findings
from orch.component.diagnostics.findings import Finding
from orch.component.flags.features import FeatureError, Features
from orch.component.process import clock
from orch.component.process.daemon import SetupError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    view = actions.add_parser("view", help="show the effective configuration, secrets hidden")
    view.add_argument("--origin", action="store_true", help="and the origin of each field")
    validate = actions.add_parser("validate", help="check the files and the flags")
    validate.add_argument(
        "--host",
        action="store_true",
        help="and paths, socket, certificates and ports on this host",
    )
    for action in (view, validate):
        action.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
        options.add_flags(action)


def run(args: argparse.Namespace) -> int:
    return _view(args) if args.action == "view" else _validate(args)


def load(args: argparse.Namespace) -> NodeAgentConfiguration:
    """The effective configuration for the daemon's flags; ConfigError lists all problems."""
    return _checked(args, _layers(args))


def load_or_default(args: argparse.Namespace) -> tuple[NodeAgentConfiguration, str]:
    """The configuration and ""; or the defaults, and the problems of the given one by line."""
    try:
        return load(args), ""
    except ConfigError as error:
        return load_config(None, None), str(error)


def _view(args: argparse.Namespace) -> int:
    layers = _layers(args)
    record = _checked(args, layers).model_dump(mode="json")
    found = leaves(record, layers)
    if args.output == "json":
        sys.stdout.write(show.origins_as_json(found) if args.origin else show.as_json(record))
    else:
        sys.stdout.write(show.as_yaml(found, origins=args.origin))
    return 0


def _validate(args: argparse.Namespace) -> int:
    try:
        layers = _layers(args)
        config = _checked(args, layers)
        found = _on_this_host(args, config) if args.host else []
    except ConfigError as error:
        lines = str(error).splitlines()
        found = [findings.fail("configuration", line, "correct it") for line in lines]
    problems = [_line(finding) for finding in found if finding.verdict == "fail"]
    warnings = [_line(finding) for finding in found if finding.verdict == "warn"]
    if args.output == "json":
        report = {"valid": not problems, "problems": problems, "warnings": warnings}
        sys.stdout.write(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
        return 1 if problems else 0
    for warning in warnings:
        sys.stderr.write(f"nodeagent config: warning: {warning}\n")
    if problems:
        raise ConfigError("\n".join(problems))
    sys.stdout.write(f"valid: {_described(layers)}\n")
    return 0


def _on_this_host(args: argparse.Namespace, config: NodeAgentConfiguration) -> list[Finding]:
    from nodeagent.doctor.examination import examine_configuration  # TLS and network code

    return examine_configuration(options.options_of(args), config, clock.utc_now())


def _line(finding: Finding) -> str:
    if finding.check == "configuration":
        return finding.message
    return f"{finding.check}: {finding.message}; {finding.advice}"


def _layers(args: argparse.Namespace) -> Layers:
    given = options.options_of(args)
    return read_layers(given.config, given.config_dir, given.overrides)


def _checked(args: argparse.Namespace, layers: Layers) -> NodeAgentConfiguration:
    """The effective configuration, gates checked; ConfigError lists all problems."""
    config, release = effective(layers), options.options_of(args).emulated_version
    problems = []
    for name, value in config.featureGates.items():
        try:
            Features({name: value}, release)
        except FeatureError as error:
            problems.append(f"{origin_of(('featureGates', name), layers)}: featureGates: {error}")
    problems += _refused_at_start(config, layers)
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def _refused_at_start(config: NodeAgentConfiguration, layers: Layers) -> Iterator[str]:
    """Errors that the agent would meet only when it starts."""
    try:
        groups_of(config)
    except ValueError as error:
        field = str(error).split(" ", 1)[0]
        yield f"{origin_of((field,), layers)}: {error}"
    if config.tlsCipherSuites:
        from orch.component.tls import openssl_suites  # TLS code

        try:
            openssl_suites(config.tlsCipherSuites)
        except SetupError as error:
            yield f"{origin_of(('tlsCipherSuites',), layers)}: tlsCipherSuites: {error}"


def _described(layers: Layers) -> str:
    counts = [
        "the main file" if layers.main else "defaults",
        f"{len(layers.drop_ins)} drop-in{'' if len(layers.drop_ins) == 1 else 's'}",
        f"{len(layers.flags)} flag{'' if len(layers.flags) == 1 else 's'}",
    ]
    return ", ".join(counts)

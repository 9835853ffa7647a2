"""`nodeagent doctor`: checks whether this host can run the agent, and advises where it cannot.

Takes the daemon's flags and changes nothing. Exit codes: 0 all is well, 1 something keeps the agent
from working, 2 a feature is unavailable (or wrong usage of the command).
"""

from __future__ import annotations

import argparse
import sys

from nodeagent.commands import config as config_command
from nodeagent.config import options
from nodeagent.config.layers import ConfigError
from nodeagent.config.load import load_config
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.doctor import findings
from nodeagent.doctor.examination import examine
from nodeagent.doctor.findings import Finding
from orch.component.process import clock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    given = options.options_of(args)
    config, found = _configuration(args)
    found += examine(given, config, clock.utc_now())
    show = findings.as_json if args.output == "json" else findings.as_text
    sys.stdout.write(show(found))
    return findings.exit_code(found)


def _configuration(args: argparse.Namespace) -> tuple[NodeAgentConfiguration, list[Finding]]:
    """The configuration to examine the host for: the defaults if the given one is invalid."""
    try:
        config = config_command.load(args)
    except ConfigError as error:
        advice = "correct it; the other checks use the defaults"
        lines = str(error).splitlines()
        problems = [findings.fail("configuration", line, advice) for line in lines]
        return load_config(None, None), problems
    return config, [findings.ok("configuration", "valid")]

"""`nodeagent doctor`: checks whether this host can run the agent, and advises where it cannot.

Takes the daemon's flags and changes nothing. Exit codes: 0 all is well, 1 something keeps the agent
from working, 2 a feature is unavailable (or wrong usage of the command).
"""

from __future__ import annotations

import argparse
import sys

from nodeagent.commands import config as config_command
from nodeagent.config import options
from nodeagent.doctor.examination import examine
from orch.component.diagnostics import findings
from orch.component.process import clock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    config, problems = config_command.load_or_default(args)
    advice = "correct it; the other checks use the defaults"
    found = [findings.fail("configuration", line, advice) for line in problems.splitlines()]
    found = found or [findings.ok("configuration", "valid")]
    found += examine(options.options_of(args), config, clock.utc_now())
    show = findings.as_json if args.output == "json" else findings.as_text
    sys.stdout.write(show(found))
    return findings.exit_code(found)

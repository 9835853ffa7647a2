"""`nodeagent debug bundle`: everything needed for a support case, in one archive without secrets.

Takes the daemon's flags and changes nothing. Files that cannot be obtained (no running agent, no
permission, no journal) contain the reason instead. Exit codes: 0 written, 1 not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Iterator

from nodeagent.commands import config as config_command
from nodeagent.config import options, show
from nodeagent.config.current import digest_of
from nodeagent.config.layers import read_layers
from nodeagent.config.options import Options
from nodeagent.config.origin import leaves
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.debug.bundle import (
    Entry,
    host_entries,
    log_entry,
    scrubber,
    secrets_of,
    write_bundle,
)
from nodeagent.debug.pages import AgentEndpoint, page_entries
from nodeagent.doctor.examination import examine
from orch.component.diagnostics import findings
from orch.component.process import clock
from orch.wire import names, times

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 — addresses to connect to


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    bundle = actions.add_parser("bundle", help="write an archive for a support case")
    bundle.add_argument("--output", default="", help="file to write (nodeagent-debug-TIME.tar.gz)")
    bundle.add_argument("--client-certificate", default="", help="to authenticate to the agent")
    bundle.add_argument("--client-key", default="", help="its key")
    bundle.add_argument("--token-file", default="", help="or a file with a bearer token")
    bundle.add_argument("--log-file", default="", help="the agent's log; default: the journal")
    bundle.add_argument("--unit", default="nodeagent", help="unit whose journal to read")
    options.add_flags(bundle)


def run(args: argparse.Namespace) -> int:
    now = clock.utc_now()
    given = options.options_of(args)
    config, problem = config_command.load_or_default(args)
    path = args.output or f"nodeagent-debug-{now:%Y%m%dT%H%M%SZ}.tar.gz"
    clean = scrubber(secrets_of(config))
    count = write_bundle(path, _entries(args, given, config, problem), clean, now=now)
    sys.stdout.write(f"{path}: {count} files, without secrets; review it before you pass it on\n")
    return 0


def _entries(
    args: argparse.Namespace, given: Options, config: NodeAgentConfiguration, problem: str
) -> Iterator[Entry]:
    now = clock.utc_now()
    about = {
        "time": times.format_time(now),
        "version": names.VERSION,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "configurationDigest": digest_of(config),
        "configurationProblem": problem,
    }
    yield "about.json", (json.dumps(about, indent=2) + "\n").encode()
    yield "configuration.yaml", _shown(given, config, problem)
    yield "doctor.json", findings.as_json(examine(given, config, now)).encode()
    target = AgentEndpoint(
        _ANY_ADDRESS.get(config.address, config.address),
        config.port,
        given.certificate_files(config)[0],
        args.client_certificate,
        args.client_key,
        args.token_file,
    )
    yield from asyncio.run(page_entries(target))
    yield log_entry(args.log_file, args.unit)
    yield from host_entries()


def _shown(given: Options, config: NodeAgentConfiguration, problem: str) -> bytes:
    """The effective configuration with the origin of each field; secrets are masked."""
    if problem:
        return f"{problem}\n".encode()
    layers = read_layers(given.config, given.config_dir, given.overrides)
    found = leaves(config.model_dump(mode="json"), layers)
    return show.as_yaml(found, origins=True).encode()

"""`nodeagent seccomp lint|resolve`: check profiles and pods before they reach a node.

Works on files only. Exit codes: 0 valid, 1 a profile is invalid or can never be applied, 2 wrong
usage.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nodeagent import seccomp
from nodeagent.commands import config as config_command
from nodeagent.config import options
from nodeagent.pods.sources import files
from nodeagent.pods.sources.manifests import PodFileError
from nodeagent.profiles import file as profiles_file
from nodeagent.profiles import lint as profiles_lint
from nodeagent.profiles import syscalls
from nodeagent.profiles.rules import ERROR, LintFinding, error
from nodeagent.seccomp import SeccompError
from orch.component import yaml_file
from orch.component.process.daemon import SetupError
from orch.wire.podrules.podspec import places
from orch.wire.records.pods import Pod


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    lint = actions.add_parser("lint", help="check profiles")
    lint.add_argument("file", nargs="+", metavar="FILE", help="a profile; - for standard input")
    lint.add_argument(
        "--arch", default="", metavar="ARCH", choices=("", *syscalls.ARCHITECTURES),
        help="architecture of the system calls: this machine's, or one of "
        + ", ".join(syscalls.ARCHITECTURES),
    )  # fmt: skip
    lint.add_argument("-o", "--output", choices=("text", "json"), default="text")
    resolve = actions.add_parser("resolve", help="show which profile each container gets, and why")
    resolve.add_argument("pod", metavar="POD.yaml", help="the pod's manifest")
    resolve.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options.add_flags(resolve)


def run(args: argparse.Namespace) -> int:
    return _lint(args) if args.action == "lint" else _resolve(args)


def _lint(args: argparse.Namespace) -> int:
    architecture = args.arch or syscalls.architecture_of(platform.machine())
    found = {file: _lint_file(file, architecture) for file in args.file}
    bad = [file for file, findings in found.items() if any(f.level == ERROR for f in findings)]
    if args.output == "json":
        report = [
            {"file": file, "valid": file not in bad, "problems": [asdict(f) for f in findings]}
            for file, findings in found.items()
        ]
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        for file, findings in found.items():
            sys.stdout.write(_as_text(file, findings))
    return 1 if bad else 0


def _lint_file(file: str, architecture: str) -> list[LintFinding]:
    try:
        text = _read(file)
    except OSError as problem:
        return [error("", f"it cannot be read: {problem.strerror or problem}")]
    if len(text) > profiles_file.MAX_PROFILE_BYTES:
        limit = profiles_file.MAX_PROFILE_BYTES
        return [error("", f"it is larger than {limit} bytes, which the agent refuses")]
    return profiles_lint.lint(text, syscalls.architectures_by_name(), architecture)


def _read(file: str) -> bytes:
    """At most a byte more than a profile may have."""
    limit = profiles_file.MAX_PROFILE_BYTES + 1
    if file == "-":
        return sys.stdin.buffer.read(limit)
    with Path(file).open("rb") as profile:
        return profile.read(limit)


def _as_text(file: str, findings: list[LintFinding]) -> str:
    if not findings:
        return f"{file}: fine\n"
    return "".join(
        f"{file}: {finding.level}: {finding.where + ': ' if finding.where else ''}"
        f"{finding.message}\n"
        for finding in findings
    )


def _resolve(args: argparse.Namespace) -> int:
    given, config = options.options_of(args), config_command.load(args)
    pod = _read_pod(args.pod)
    root = f"{Path(given.root_dir).absolute()}/seccomp"
    rows, failed = [], False
    for place, container in places(pod):
        try:
            found = seccomp.resolve(
                pod, container, seccomp_default=config.seccompDefault, seccomp_root=root
            )
        except SeccompError as problem:
            failed = True
            _report("error", f"{place} ({container.name}): {problem.message}")
            continue
        _warn_about_file(found, place, root)
        own = container.securityContext and container.securityContext.seccompProfile
        if own and found.source.endswith(".privileged"):
            _report("warning", f"{place}: it is privileged, so its seccompProfile has no effect")
        rows.append(_row(container.name, found, root))
    if args.output == "json":
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        sys.stdout.write(_table(rows))
    return 1 if failed else 0


def _warn_about_file(found: seccomp.Resolution, place: str, root: str) -> None:
    """Only a warning: the container waits until the file exists."""
    try:
        profiles_file.require_profile_file(found.setting, root=root)
    except SeccompError as problem:
        _report("warning", f"{place}: {problem.message}")


def _row(name: str, found: seccomp.Resolution, root: str) -> dict[str, Any]:
    path = found.setting.localhost_path
    return {
        "container": name,
        "type": found.setting.kind.value,
        "localhostProfile": path.removeprefix(f"{root}/") if path else None,
        "source": found.source,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [("CONTAINER", "TYPE", "PROFILE", "SET BY")]
    lines += [
        (row["container"], row["type"], row["localhostProfile"] or "-", row["source"])
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, [*widths, 0], strict=True)) + "\n"
        for line in lines
    )


def _read_pod(file: str) -> Pod:
    """A pod as it is written; what is wrong with its profiles is asked. SetupError: no pod."""
    try:
        return files.parse_pod(yaml_file.read_content(Path(file)), file)
    except (PodFileError, OSError) as problem:
        raise SetupError(str(getattr(problem, "strerror", None) or problem)) from None


def _report(level: str, text: str) -> None:
    sys.stderr.write(f"nodeagent seccomp: {level}: {text}\n")

"""The flags that bound requests and say which of them are written down."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from orch.component.flags import program_flags
from orch.component.process.daemon import SetupError
from orch.server.audit import policy as audit_policy
from orch.server.audit.log import AuditLog, Rotation
from orch.server.audit.trail import Auditor, Counts
from orch.server.limits import MAX_READS, MAX_WRITES

DEFAULT_TIMEOUT_S = 60.0
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LimitFlags:
    """0 for a bound on requests: none."""

    max_reads: int = MAX_READS
    max_writes: int = MAX_WRITES
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class AuditFlags:
    """`log_path` None: nothing is written down."""

    log_path: str | None = None
    policy_file: Path | None = None
    rotation: Rotation = field(default_factory=Rotation)


def add_limits(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-requests-inflight", type=_number, default=MAX_READS, metavar="N",
        help="reading requests under way at most; 0: no bound",
    )  # fmt: skip
    group.add_argument(
        "--max-mutating-requests-inflight", type=_number, default=MAX_WRITES, metavar="N",
        help="writing requests under way at most; 0: no bound",
    )  # fmt: skip
    group.add_argument(
        "--request-timeout", type=program_flags.duration, default=DEFAULT_TIMEOUT_S,
        metavar="DURATION",
        help="for a request that is no watch and not proxied; its `timeout` may shorten it",
    )  # fmt: skip


def add_audit(group: argparse._ArgumentGroup) -> None:
    rotation = Rotation()
    group.add_argument("--audit-policy-file", type=Path, help="what is written down, YAML")
    group.add_argument("--audit-log-path", metavar="FILE", help="where to; - is standard output")
    group.add_argument(
        "--audit-log-maxsize", type=_number, default=rotation.max_bytes // _MIB, metavar="MIB",
        help="size at which the file is put aside; 0: never",
    )  # fmt: skip
    group.add_argument(
        "--audit-log-maxbackup", type=_number, default=rotation.max_files, metavar="N",
        help="files put aside that are kept; 0: all",
    )  # fmt: skip
    group.add_argument(
        "--audit-log-maxage", type=_number, default=rotation.max_days, metavar="DAYS",
        help="how long they are kept; 0: for ever",
    )  # fmt: skip


def limits_of(values: argparse.Namespace) -> LimitFlags:
    """SetupError for values that cannot work."""
    if values.request_timeout <= 0:
        raise SetupError("--request-timeout must be more than nothing: no request could be served")
    return LimitFlags(
        values.max_requests_inflight, values.max_mutating_requests_inflight, values.request_timeout
    )


def audit_of(values: argparse.Namespace) -> AuditFlags:
    """SetupError for one half without the other."""
    if bool(values.audit_log_path) != bool(values.audit_policy_file):
        raise SetupError("--audit-log-path and --audit-policy-file belong together: give both")
    rotation = Rotation(
        values.audit_log_maxsize * _MIB, values.audit_log_maxbackup, values.audit_log_maxage
    )
    return AuditFlags(values.audit_log_path, values.audit_policy_file, rotation)


def make_auditor(flags: AuditFlags, counts: Counts) -> tuple[Auditor | None, AuditLog | None]:
    """The auditor and the log to open and close; SetupError for a policy that cannot be used."""
    if flags.log_path is None or flags.policy_file is None:
        return None, None
    written = AuditLog(flags.log_path, flags.rotation, counts.count_audit_error)
    policy = audit_policy.read_policy(flags.policy_file)
    return Auditor(policy, written.write, counts), written


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)

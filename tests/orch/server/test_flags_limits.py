from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orch.component.process.daemon import SetupError
from orch.server import flags
from orch.server.audit.log import Rotation

REQUIRED = ["--tls-cert-file=c", "--tls-private-key-file=k"]
AUDIT = ["--audit-policy-file=p", "--audit-log-path=l"]


@pytest.mark.parametrize(
    ("argument", "field", "value"),
    [
        ("--secure-port=0", "max_reads", 400),
        ("--secure-port=0", "max_writes", 200),
        ("--secure-port=0", "timeout_s", 60.0),
        ("--max-requests-inflight=3", "max_reads", 3),
        ("--max-mutating-requests-inflight=0", "max_writes", 0),
        ("--secure-port=0", "tenant_changes", 500),
        ("--tenant-changes-per-second=0", "tenant_changes", 0),
        ("--etcd-servers=http://a:1", "tenant_changes", 250),
        ("--request-timeout=5m", "timeout_s", 300.0),
    ],
)
def test_each_limit_has_its_flag(argument: str, field: str, value: Any) -> None:
    assert getattr(flags.parse([*REQUIRED, argument]).limits, field) == value


def test_the_audit_log_is_bounded_unless_told_otherwise() -> None:
    audit = flags.parse([*REQUIRED, *AUDIT]).audit
    assert (audit.log_path, audit.policy_file) == ("l", Path("p"))
    assert audit.rotation == Rotation(100 * 1024 * 1024, 10, 30)
    sizes = [f"--audit-log-max{what}=0" for what in ("size", "backup", "age")]
    assert flags.parse([*REQUIRED, *AUDIT, *sizes]).audit.rotation == Rotation(0, 0, 0)


@pytest.mark.parametrize(
    "arguments", [[AUDIT[0]], [AUDIT[1]], ["--request-timeout=0"], ["--request-timeout=-1s"]]
)
def test_what_cannot_work_is_a_setup_error(arguments: list[str]) -> None:
    with pytest.raises(SetupError, match="--"):
        flags.parse([*REQUIRED, *arguments])


@pytest.mark.parametrize("number", ["-1", "many", "1e3", "9" * 5000])
def test_a_bound_that_is_no_number_is_refused(number: str) -> None:
    with pytest.raises(SystemExit):
        flags.parse([*REQUIRED, f"--max-requests-inflight={number}"])

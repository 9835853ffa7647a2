from __future__ import annotations

import pytest

from orch.server.strategy.nodes import LEASE_STRATEGY


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({}, []),
        ({"leaseDurationSeconds": 40, "leaseTransitions": 0}, []),
        ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds"]),
        ({"leaseTransitions": -1}, ["spec.leaseTransitions"]),
        ({"renewTime": "2026-01-01T00:00:00.000000Z"}, []),
        ({"renewTime": "2026-01-01T00:00:00+01:00"}, []),
        ({"renewTime": "yesterday"}, ["spec.renewTime"]),
        ({"acquireTime": "2026-01-01T00:00:00"}, ["spec.acquireTime"]),
        ({"more": "x" * 2**16}, ["spec"]),
    ],
)
def test_what_a_lease_may_not_have(spec, fields) -> None:
    assert [cause.field for cause in LEASE_STRATEGY.validate({"spec": spec}, None)] == fields

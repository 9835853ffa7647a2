"""Whose request belongs to which level and flow."""

from __future__ import annotations

import gc
import weakref

import pytest

from orch.server.authn.credentials import ANONYMOUS
from orch.server.flow.levels import Levels, Limits
from orch.wire.records.authentication import Identity

PATH = "/api/v1/pods"
ACCOUNTS = ("system:serviceaccounts",)


@pytest.fixture
def levels() -> Levels:
    return Levels(Limits(600, 60.0, 8192))


@pytest.mark.parametrize(
    ("identity", "path", "level", "schema", "name"),
    [
        (Identity("root", ("system:masters",)), PATH, "exempt", "exempt", "root"),
        (ANONYMOUS, "/readyz", "exempt", "probes", "192.0.2.1"),
        (None, "/livez", "exempt", "probes", "192.0.2.1"),
        (ANONYMOUS, PATH, "workload", "catch-all", "192.0.2.1"),
        (None, PATH, "workload", "catch-all", "192.0.2.1"),
        (
            Identity("system:node:n1", ("system:nodes",)),
            PATH, "system", "system-nodes", "system:node:n1",
        ),
        (
            Identity("system:controller-manager"),
            PATH, "system", "system-controllers", "system:controller-manager",
        ),
        (
            Identity("system:kube-scheduler"),
            PATH, "system", "system-controllers", "system:kube-scheduler",
        ),
        (
            Identity("system:serviceaccount:orch-system:dns", ACCOUNTS),
            PATH, "system", "system-service-accounts", "orch-system",
        ),
        (
            Identity("system:serviceaccount:team:one", ACCOUNTS),
            PATH, "workload", "service-accounts", "team",
        ),
        (Identity("ann"), PATH, "workload", "global-default", "ann"),
        (Identity("ann"), "/readyz", "workload", "global-default", "ann"),
        (Identity("ann", ("system:nodes",)), PATH, "workload", "global-default", "ann"),
        (Identity("system:node:n1"), PATH, "workload", "global-default", "system:node:n1"),
        (Identity("system:bootstrap:abcdef"), PATH, "workload", "global-default",
         "system:bootstrap:abcdef"),
    ],
)  # fmt: skip
def test_who_calls_decides(
    levels: Levels, identity: Identity | None, path: str, level: str, schema: str, name: str
) -> None:
    caller = levels.caller(identity, "192.0.2.1", path)
    assert (caller.schema.level.name, caller.schema.name, caller.name) == (level, schema, name)


def test_the_accounts_of_a_namespace_are_one_flow(levels: Levels) -> None:
    one, other, elsewhere = (
        levels.caller(Identity(f"system:serviceaccount:{name}", ACCOUNTS), "192.0.2.1", PATH)
        for name in ("team:one", "team:other", "else:one")
    )
    assert one is other
    assert one is not elsewhere


def test_a_user_cannot_share_the_flow_of_a_namespace_or_an_address(levels: Levels) -> None:
    user = levels.caller(Identity("192.0.2.1"), "192.0.2.9", PATH)
    assert user is not levels.caller(None, "192.0.2.1", PATH)


def test_a_caller_who_has_gone_is_forgotten(levels: Levels) -> None:
    gone = weakref.ref(levels.caller(Identity("ann"), "192.0.2.1", PATH))
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("seats", "system", "workload"), [(600, 360, 240), (2, 1, 1), (1, 1, 1)])
def test_the_system_has_the_larger_share_and_everybody_a_seat(
    seats: int, system: int, workload: int
) -> None:
    levels = Levels(Limits(seats, 60.0, 8192))
    queues = [schema.level.queue for schema in (levels.nodes, levels.users)]
    assert [queue.bounds.seats for queue in queues if queue] == [system, workload]


def test_tenants_leave_connections_to_the_system_in_each_network_and_in_all() -> None:
    levels = Levels(Limits(600, 60.0, 16))
    tenants = levels.users.level.busy
    assert tenants is not None
    assert [tenants.begin("a") for _ in range(7)] == [True] * 6 + [False], "of 8 at one address"
    assert [tenants.begin(name) for name in "bbbbbbc"] == [True] * 6 + [False], "of 16 in all"
    tenants.end("b")
    assert [tenants.begin("a"), tenants.begin("c")] == [False, True]
    assert levels.nodes.level.busy is None

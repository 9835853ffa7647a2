"""A tenant with `edit` in one namespace tries to fill the store: counts, bytes, events, races.

The bounds are small here, so that they are reached soon; what holds them is the same at any size.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.attacks import harness
from tests.attacks.harness import NEIGHBOUR, NODE, OPERATOR, TENANT, Attacked

pytestmark = pytest.mark.seconds(25)

MIB = 1024 * 1024
OBJECTS, NAMESPACE_MIB, STORE_MIB = 200, 16, 24
FLAGS = (
    harness.AT_ANY_RATE,
    f"--max-namespace-objects={OBJECTS}",
    f"--max-namespace-mib={NAMESPACE_MIB}",
    f"--max-store-mib={STORE_MIB}",
)
OF_TENANT = "/api/v1/namespaces/tenant"
MAPS = f"{OF_TENANT}/configmaps"
EVENTS = f"{OF_TENANT}/events"
MERGE = "application/merge-patch+json"
MAKER = "maker"  # may make namespaces, and `edit` all of them


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("growth")
    with harness.attacked(directory, *FLAGS, users=(MAKER,)) as running:
        yield running


@pytest.fixture(autouse=True)
def emptied(target: Attacked) -> Iterator[None]:
    yield
    for kind in ("configmaps", "events", "secrets", "resourcequotas"):
        target.ask(OPERATOR, "DELETE", f"{OF_TENANT}/{kind}")


def config_map(name: str, size: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"a": "x" * size}}


def large(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {"a": "x" * 250_000}},
        "data": {"a": "x" * (MIB - 1)},
    }


def all_at_once(ask: Callable[[int], int], count: int, threads: int = 8) -> Counter[int]:
    """How often each status was answered."""
    with ThreadPoolExecutor(threads) as pool:
        return Counter(pool.map(ask, range(count)))


def stored(target: Attacked, path: str) -> list[Any]:
    return list(target.ask(OPERATOR, "GET", path).json()["items"])


def test_small_objects_end_at_the_bound_of_the_namespace(target: Attacked) -> None:
    def attack(number: int) -> int:
        name = f"{number}-" + "n" * 240  # the longest names
        return target.ask(TENANT, "POST", MAPS, config_map(name)).status

    with target.witnessed() as seen:
        answers = all_at_once(attack, OBJECTS + 60)
    held = len(stored(target, MAPS))
    told = f"{held} of {OBJECTS} objects, {dict(answers)}, {seen}"
    assert answers.keys() == {201, 403}, told
    assert OBJECTS * 0.9 - 10 <= held <= OBJECTS * 0.9, told
    harness.others_served(seen)
    refused = target.ask(TENANT, "POST", MAPS, config_map("more"))
    assert "exceeded quota: --max-namespace-objects" in refused.json()["message"]
    assert target.ask(TENANT, "DELETE", f"{MAPS}/0-{'n' * 240}").status == 200
    assert target.ask(TENANT, "POST", MAPS, config_map("more")).status == 201


def test_large_objects_and_those_that_grow_end_at_the_bytes_of_the_namespace(
    target: Attacked,
) -> None:
    def attack(number: int) -> int:
        name = f"m{number}"
        if number % 2:
            return target.ask(TENANT, "POST", MAPS, large(name)).status
        target.ask(TENANT, "POST", MAPS, config_map(name))
        path = f"{MAPS}/{name}"
        return target.ask(TENANT, "PATCH", path, large(name), Content_Type=MERGE).status

    memory = [target.resident_bytes()]
    with target.witnessed() as seen:
        answers = all_at_once(attack, 50)
        memory.append(target.resident_bytes())
        all_at_once(lambda number: attack(100 + number), 50)
        memory.append(target.resident_bytes())
    held = sum(len(json.dumps(each)) for each in stored(target, MAPS))
    grown = [(after - memory[0]) // MIB for after in memory[1:]]
    told = f"{held / MIB:.1f} MiB stored, memory +{grown} MiB, {dict(answers)}, {seen}"
    assert answers.keys() == {200, 201, 403}, told
    assert NAMESPACE_MIB * 0.9 - 2 <= held / MIB <= NAMESPACE_MIB * 0.9, told
    # What is stored, and bodies and answers under way: a second attack finds nothing more to fill.
    assert grown[1] - grown[0] <= 4 * NAMESPACE_MIB, told
    harness.others_served(seen)


def test_events_take_a_part_of_the_namespace_only(target: Attacked) -> None:
    def attack(number: int) -> int:
        event = {
            "metadata": {"name": f"e{number}"},
            "involvedObject": {"kind": "Pod", "namespace": "tenant", "name": "p"},
            "lastTimestamp": "2999-01-01T00:00:00Z",
        }
        return target.ask(TENANT, "POST", EVENTS, event).status

    answers = all_at_once(attack, OBJECTS // 2)
    held = len(stored(target, EVENTS))
    told = f"{held} events, {dict(answers)}"
    assert answers.keys() == {201, 403}, told
    assert held <= OBJECTS // 4, told
    assert target.ask(TENANT, "POST", MAPS, config_map("room")).status == 201, told


@pytest.mark.parametrize("hurry", ["", "?timeout=4ms"])
def test_racing_creations_never_exceed_a_quota(target: Attacked, hurry: str) -> None:
    """Also when the callers give up before the answer, so that nobody waits for the write."""
    hard = {"count/secrets": "20", "pods": 3, "orch.io/bytes": "1Mi"}
    target.make(f"{OF_TENANT}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}

    def attack(number: int) -> int:
        kind, body = ("pods", pod) if number % 4 == 0 else ("secrets", {})
        named = {"metadata": {"name": f"o{number}"}, **body}
        return target.ask(TENANT, "POST", f"{OF_TENANT}/{kind}{hurry}", named).status

    answers = all_at_once(attack, 150, threads=32)
    held = {kind: len(stored(target, f"{OF_TENANT}/{kind}")) for kind in ("secrets", "pods")}
    for name in (each["metadata"]["name"] for each in stored(target, f"{OF_TENANT}/pods")):
        target.ask(OPERATOR, "DELETE", f"{OF_TENANT}/pods/{name}")
    told = f"{held}, {dict(answers)}"
    assert held["secrets"] <= 20 and held["pods"] <= 3, told
    if not hurry:
        assert held == {"secrets": 20, "pods": 3}, told
        assert answers == {201: 23, 403: 127}, told


def test_a_full_store_still_takes_renewals_and_deletions(target: Attacked) -> None:
    """By a user who may make namespaces; what he leaves is for nodes and administrators."""
    group = "rbac.authorization.orch.io"
    rule = {"verbs": ["create"], "apiGroups": [""], "resources": ["namespaces"]}
    target.make(f"{harness.RBAC}/clusterroles", {"metadata": {"name": MAKER}, "rules": [rule]})
    for role in (MAKER, "edit"):
        binding = {
            "metadata": {"name": f"{MAKER}-{role}"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": MAKER}],
        }
        target.make(f"{harness.RBAC}/clusterrolebindings", binding)
    spaces = [f"m{number}" for number in range(4)]
    for space in spaces:
        target.ask(MAKER, "POST", "/api/v1/namespaces", {"metadata": {"name": space}})

    def attack(number: int) -> int:
        path = f"/api/v1/namespaces/{spaces[number % 4]}/configmaps"
        return target.ask(MAKER, "POST", path, large(f"m{number}")).status

    answers = all_at_once(attack, 40, threads=4)
    full = target.ask(MAKER, "POST", f"{MAPS}", config_map("x", MIB // 2))
    told = f"{dict(answers)}, {full.status} {full.body[:200]!r}"
    assert answers.keys() == {201, 507}, told
    assert full.status == 507 and "database space exceeded" in full.json()["message"], told
    report = {"status": {"conditions": [{"type": "Ready", "status": "True", "message": "m" * 99}]}}
    node = target.ask(OPERATOR, "PATCH", f"/api/v1/nodes/{NODE}/status", report, Content_Type=MERGE)
    assert node.status == 200, node.body
    with target.witnessed() as seen:  # the neighbour's updates do not grow
        time.sleep(1)
    harness.others_served(seen)
    for space in spaces:
        assert target.ask(MAKER, "DELETE", f"/api/v1/namespaces/{space}/configmaps").status == 200
    again = target.ask(NEIGHBOUR, "POST", "/api/v1/namespaces/neighbour/configmaps", large("x"))
    assert again.status == 201, again.body

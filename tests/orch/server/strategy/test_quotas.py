"""K:pkg/quota/v1/evaluator/core/pods_test.go, pkg/apis/core/validation, admission."""

from __future__ import annotations

import time
from typing import Any

import pytest

from orch.server.strategy import quotas
from orch.wire.records.kinds import CONFIG_MAPS, LEASES, PODS, RESOURCE_QUOTAS


def container(name: str = "c", **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources}


def pod(*containers: Any, phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    listed = list(containers) or [container()]
    status = {"phase": phase, "qosClass": "Burstable" if containers else "BestEffort"}
    return {"metadata": {"name": "p"}, "spec": {"containers": listed, **spec}, "status": status}


def quota(hard: dict[str, Any], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "q"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


def selector(operator: str, *values: str, scope: str = "PriorityClass") -> dict[str, Any]:
    requirement = {"scopeName": scope, "operator": operator, "values": list(values)}
    return {"matchExpressions": [requirement]}


BOTH = {"requests": {"cpu": "100m", "memory": "1Ki"}, "limits": {"cpu": 1}}


OF_PODS = (
    "pods", "count/pods", "cpu", "memory", "requests.cpu", "limits.cpu", "requests.example.com/gpu",
    "hugepages-2Mi", "configmaps", "orch.io/bytes",
)  # fmt: skip
ONCE = {"pods": "1", "count/pods": "1"}


@pytest.mark.parametrize(
    ("given", "amounts"),
    [
        (pod(), ONCE),
        (pod(container(**BOTH), phase="Succeeded"), {"count/pods": "1"}),
        (pod(phase="Failed"), {"count/pods": "1"}),
        (
            pod(container(**BOTH), container("d", **BOTH)),
            ONCE | {"cpu": "200m", "requests.cpu": "200m", "memory": "2Ki", "limits.cpu": "2"},
        ),
        (
            pod(
                container(requests={"cpu": 1}),
                initContainers=[
                    container("a", requests={"cpu": 5}),
                    {**container("b", requests={"cpu": 2}), "restartPolicy": "Always"},
                    container("c", requests={"cpu": "4"}),
                ],
            ),
            ONCE | {"cpu": "6", "requests.cpu": "6"},
        ),
        (
            pod(container(**BOTH), overhead={"cpu": "250m", "memory": "1Ki"}),
            ONCE
            | {
                "cpu": "350m",
                "requests.cpu": "350m",
                "memory": "2Ki",
                "limits.cpu": "1250m",
            },
        ),
        (
            pod(container(requests={"example.com/gpu": "3", "hugepages-2Mi": "4Mi"})),
            ONCE | {"requests.example.com/gpu": "3", "hugepages-2Mi": "4194304"},
        ),
    ],
)
def test_what_a_pod_amounts_to(given: Any, amounts: Any) -> None:
    found = quotas.of_pod(OF_PODS, given)
    shown = {name: quotas.written(name, amount) for name, amount in found.items() if amount}
    assert shown == amounts


def test_a_pod_of_many_names_takes_time_in_proportion_to_its_size() -> None:
    def took_s(count: int) -> float:
        many = [container(f"c{n}", requests={f"a/{n}": "1"}) for n in range(count)]
        began_s = time.process_time()
        quotas.of_pod(("requests.a/1", "pods"), pod(*many))
        return time.process_time() - began_s

    took_s(1000)
    assert took_s(8000) < 40 * max(took_s(1000), 0.0005)


NAMES = (
    "pods", "count/pods", "cpu", "requests.cpu", "memory", "limits.cpu", "configmaps",
    "count/configmaps", "count/leases.coordination.orch.io", "count/leases.coordination.k8s.io",
    "services", "orch.io/bytes", "resourcequotas", "requests.storage", "count/widgets.example.com",
)  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "document", "amounts"),
    [
        (
            PODS,
            pod(container(requests={"cpu": "100m"})),
            {
                "pods": "1", "count/pods": "1", "cpu": "100m", "requests.cpu": "100m",
                "memory": "0", "limits.cpu": "0", "requests.storage": "0", "orch.io/bytes": "2Ki",
            },
        ),
        (CONFIG_MAPS, {}, {"configmaps": "1", "count/configmaps": "1", "orch.io/bytes": "2Ki"}),
        (
            LEASES,
            {},
            {
                "count/leases.coordination.orch.io": "1",
                "count/leases.coordination.k8s.io": "1", "orch.io/bytes": "2Ki",
            },
        ),
        (RESOURCE_QUOTAS, {}, {"resourcequotas": "1"}),
    ],
)  # fmt: skip
def test_a_new_object_adds_to_the_names_that_are_about_it(resource, document, amounts) -> None:
    found = quotas.added(NAMES, resource, document, 2048)
    assert {name: quotas.written(name, amount) for name, amount in found.items()} == amounts


@pytest.mark.parametrize(
    ("scopes", "given", "covered"),
    [
        ({}, pod(), True),
        ({"scopes": ["Terminating"]}, pod(activeDeadlineSeconds=3), True),
        ({"scopes": ["Terminating"]}, pod(), False),
        ({"scopes": ["NotTerminating"]}, pod(), True),
        ({"scopes": ["BestEffort"]}, pod(), True),
        ({"scopes": ["BestEffort"]}, pod(container(**BOTH)), False),
        ({"scopes": ["NotBestEffort", "Terminating"]}, pod(container(**BOTH)), False),
        ({"scopes": ["PriorityClass"]}, pod(priorityClassName="a"), True),
        ({"scopes": ["PriorityClass"]}, pod(), False),
        ({"scopeSelector": selector("In", "a", "b")}, pod(priorityClassName="b"), True),
        ({"scopeSelector": selector("In", "a", "b")}, pod(), False),
        ({"scopeSelector": selector("NotIn", "a")}, pod(priorityClassName="b"), True),
        ({"scopeSelector": selector("NotIn", "a")}, pod(), True),
        ({"scopeSelector": selector("Exists")}, pod(), False),
        ({"scopeSelector": selector("DoesNotExist")}, pod(), True),
    ],
)
def test_a_quota_covers_what_is_in_all_its_scopes(scopes, given, covered) -> None:
    assert quotas.covers(quota({"pods": 1}, **scopes), PODS, given) is covered


def test_a_quota_with_scopes_covers_nothing_but_pods() -> None:
    scoped = quota({"pods": 1}, scopes=["NotTerminating"])
    assert not quotas.covers(scoped, CONFIG_MAPS, {})
    assert quotas.covers(quota({"configmaps": 1}), CONFIG_MAPS, {})


@pytest.mark.parametrize(
    ("hard", "used", "asked", "text"),
    [
        (
            {"pods": 2}, {"pods": "2"}, {"pods": 1},
            "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
        ),
        (
            {"requests.cpu": "1", "requests.memory": "1Gi", "pods": "9"},
            {"requests.cpu": "500m", "requests.memory": "1Gi", "pods": "1"},
            {"requests.cpu": 0.6, "requests.memory": 1024, "pods": 1},
            "exceeded quota: q, requested: requests.cpu=600m,requests.memory=1Ki,"
            " used: requests.cpu=500m,requests.memory=1Gi,"
            " limited: requests.cpu=1,requests.memory=1Gi",
        ),
        ({"pods": 2}, {}, {"pods": 1}, "status unknown for quota: q, resources: pods"),
    ],
)  # fmt: skip
def test_a_write_that_does_not_fit_is_refused_in_the_words_of_the_reference(
    hard: Any, used: Any, asked: Any, text: str
) -> None:
    amounts = {name: int(amount * quotas.ONE) for name, amount in asked.items()}
    with pytest.raises(quotas.Exceeded) as caught:
        quotas.charged(quota(hard, used), amounts)
    assert str(caught.value) == text


def test_a_write_that_fits_is_added_to_what_is_used() -> None:
    before = quota({"pods": 2, "cpu": 1}, {"pods": "1", "cpu": "0"})
    after = quotas.charged(before, {"pods": quotas.ONE, "cpu": 250})
    assert after is not None
    assert after["status"] == {"hard": {"pods": 2, "cpu": 1}, "used": {"pods": "2", "cpu": "250m"}}
    assert before["status"]["used"]["pods"] == "1"
    assert quotas.charged(after, {"pods": 0}) is None
    freed = quotas.charged(quota({"pods": 1}, {"pods": "5"}), {"pods": 0})
    assert freed is None  # over it already, and adding nothing


@pytest.mark.parametrize(
    ("hard", "given", "text"),
    [
        ({"pods": 1}, pod(), ""),
        ({"requests.cpu": 1}, pod(container(**BOTH)), ""),
        ({"cpu": 1}, pod(container(**BOTH)), ""),
        ({"requests.cpu": 1}, pod(), "must specify requests.cpu for: c"),
        (
            {"limits.memory": 1, "memory": 1},
            pod(container("b"), initContainers=[container("a")]),
            "must specify limits.memory for: a,b; memory for: a,b",
        ),
        ({"requests.ephemeral-storage": 1}, pod(), ""),
    ],
)
def test_where_cpu_or_memory_is_limited_every_container_says_how_much(hard, given, text) -> None:
    try:
        quotas.require_amounts(quota(hard), given)
        found = ""
    except quotas.Exceeded as error:
        found = str(error)
    assert found == (f"failed quota: q: {text}" if text else "")


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({}, []),
        ({"hard": dict.fromkeys(NAMES, "1")}, []),
        ({"hard": {"hugepages-2Mi": "1", "requests.example.com/gpu": 3}}, []),
        ({"hard": {"pod": "1"}}, ["spec.hard[pod]"]),
        ({"hard": {"pods": "-1"}}, ["spec.hard[pods]"]),
        ({"hard": {"pods": "1.5", "cpu": "1.5"}}, ["spec.hard[pods]"]),
        ({"hard": {"count/a": "many"}}, ["spec.hard[count/a]"]),
        ({"hard": {"count/a": [1]}}, ["spec.hard[count/a]"]),
        ({"hard": {"a b": "1"}}, ["spec.hard[a b]", "spec.hard[a b]"]),
        ({"hard": {"pods": 1, "cpu": 1}, "scopes": ["NotBestEffort", "Terminating"]}, []),
        ({"hard": {"pods": 1}, "scopes": ["BestEffort"]}, []),
        ({"hard": {"cpu": 1}, "scopes": ["BestEffort"]}, ["spec.scopes"]),
        ({"hard": {"configmaps": 1}, "scopes": ["Terminating"]}, ["spec.scopes"]),
        ({"scopes": ["Terminating", "NotTerminating"]}, ["spec.scopes"]),
        ({"scopes": ["CrossNamespacePodAffinity"]}, ["spec.scopes"]),
        ({"scopeSelector": selector("In", "a")}, []),
        ({"scopeSelector": selector("In")}, ["spec.scopeSelector.matchExpressions.values"]),
        ({"scopeSelector": selector("Exists", "a")},
         ["spec.scopeSelector.matchExpressions.values"]),
        ({"scopeSelector": selector("Near")}, ["spec.scopeSelector.matchExpressions.operator"]),
        ({"scopeSelector": selector("In", "a", scope="Terminating")},
         ["spec.scopeSelector.matchExpressions.operator"]),
    ],
)  # fmt: skip
def test_what_a_quota_may_not_have(spec: Any, fields: list[str]) -> None:
    assert [cause.field for cause in quotas.STRATEGY.validate({"spec": spec}, None)] == fields


def test_the_scopes_of_a_quota_never_change() -> None:
    old, new = ({"spec": {"scopes": [name]}} for name in ("Terminating", "BestEffort"))
    assert [cause.field for cause in quotas.STRATEGY.validate(new, old)] == ["spec.scopes"]
    assert not list(quotas.STRATEGY.validate(old, old))


def test_only_the_server_says_what_is_used() -> None:
    new, old = quota({"pods": 9}, {"pods": "0"}), quota({"pods": 1}, {"pods": "1"})
    quotas.STRATEGY.prepare_update(new, old)
    assert (new["spec"]["hard"], new["status"]["used"]) == ({"pods": 9}, {"pods": "1"})
    created = quota({"pods": 9}, {"pods": "0"})
    quotas.STRATEGY.prepare_create(created)
    assert created["status"] == {}

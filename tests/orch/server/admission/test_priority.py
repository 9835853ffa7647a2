"""K:plugin/pkg/admission/priority/admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from orch.server.admission.priority import Priorities
from orch.server.objects.document import ObjectTarget
from orch.server.strategy import pods, priority_classes
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import CONFIG_MAPS, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS
from tests.orch.server.harness import MERGE, Api

CRITICAL = "system-cluster-critical"
TENANT, NODE = Identity("tenant"), Identity("system:node:n1", ("system:nodes",))
ADMIN = Identity("admin", ("system:masters", "system:authenticated"))
CLASSES = [
    {"metadata": {"name": "low"}, "value": -5, "preemptionPolicy": "Never"},
    {"metadata": {"name": "high"}, "value": 1000},
    {"metadata": {"name": CRITICAL}, "value": 2_000_000_000},
]
DEFAULT = {"metadata": {"name": "usual"}, "value": 50, "globalDefault": True}
PC = "/apis/scheduling.orch.io/v1/priorityclasses"


def priorities(*more: Any, quotas: Any = ()) -> Priorities:
    listed = {PRIORITY_CLASSES: [*CLASSES, *more], RESOURCE_QUOTAS: list(quotas)}
    return Priorities(lambda resource, _namespace: listed[resource])


def checked(
    judge: Priorities, identity: Identity = TENANT, namespace: str = "a", **spec: Any
) -> Any:
    """The spec of a new pod, or why it was refused."""
    pod = {"metadata": {"name": "p"}, "spec": spec}
    try:
        judge.check(ObjectTarget(pods.STRATEGY, identity, namespace), pod, None)
    except ApiError as error:
        assert error.code == 403
        return error.message.removeprefix('pods "p" is forbidden: ')
    return pod["spec"]


def completed(priority: int, policy: str = "PreemptLowerPriority", **more: Any) -> dict[str, Any]:
    return {"priority": priority, "preemptionPolicy": policy, **more}


@pytest.mark.parametrize(
    ("spec", "result"),
    [
        ({}, completed(0)),
        ({"priority": 0}, completed(0)),
        ({"priorityClassName": "low"}, completed(-5, "Never", priorityClassName="low")),
        ({"priorityClassName": "high", "priority": 1000},
         completed(1000, priorityClassName="high")),
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        ({"priority": 2147483647},
         "the integer value of priority (2147483647) must not be provided in pod spec; priority"
         " admission controller computed 0 from the given PriorityClass name"),
        ({"priorityClassName": "low", "preemptionPolicy": "PreemptLowerPriority"},
         "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod"
         " spec; priority admission controller computed Never from the given PriorityClass name"),
    ],
)  # fmt: skip
def test_the_priority_of_a_pod_is_that_of_its_class(spec: Any, result: Any) -> None:
    assert checked(priorities(), **spec) == result


def test_a_pod_without_a_class_gets_the_default_class_of_the_lowest_value() -> None:
    other = {"metadata": {"name": "dear"}, "value": 60, "globalDefault": True}
    found = checked(priorities(other, DEFAULT))
    assert found == completed(50, priorityClassName="usual")
    assert "computed 50" in checked(priorities(DEFAULT), priority=0)


def scoped(operator: str, *values: str) -> dict[str, Any]:
    requirement = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {"spec": {"scopeSelector": {"matchExpressions": [requirement]}}}


@pytest.mark.parametrize(
    ("identity", "namespace", "quotas", "allowed"),
    [
        (TENANT, "a", [], False),
        (TENANT, "orch-system", [], True),
        (NODE, "a", [], True),  # a mirror pod: it runs already
        (ADMIN, "a", [], True),  # who could make the quota
        (TENANT, "a", [scoped("In", CRITICAL)], True),
        (TENANT, "a", [{"spec": {"hard": {"pods": 9}}}], False),
        (TENANT, "a", [scoped("In", "high")], False),
    ],
)
def test_classes_of_the_system_are_for_where_an_administrator_allows_them(
    identity: Identity, namespace: str, quotas: Any, allowed: bool
) -> None:
    judge = priorities(quotas=quotas)
    found = checked(judge, identity, namespace, priorityClassName=CRITICAL)
    refusal = f"pods with {CRITICAL} priorityClass is not permitted in a namespace"
    assert found == (completed(2_000_000_000, priorityClassName=CRITICAL) if allowed else refusal)


def test_a_change_of_a_pod_is_not_judged_again() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"priority": 7}}
    priorities().check(ObjectTarget(pods.STRATEGY, TENANT, "a", "p"), pod, pod)
    assert pod["spec"] == {"priority": 7}


def test_there_is_one_default_class() -> None:
    target = ObjectTarget(priority_classes.STRATEGY, TENANT)
    second = {"metadata": {"name": "second"}, "globalDefault": True}
    with pytest.raises(ApiError, match="PriorityClass usual is already marked as default"):
        priorities(DEFAULT).check(target, second, None)
    priorities(DEFAULT).check(target, DEFAULT, DEFAULT)
    priorities().check(target, second, None)
    assert not priorities().judges(CONFIG_MAPS)
    assert all(priorities().judges(kind) for kind in (PODS, PRIORITY_CLASSES))


async def test_a_server_has_the_classes_of_the_system_and_keeps_them(api: Api) -> None:
    listed = (await api.call("GET", PC)).json["items"]
    assert {each["metadata"]["name"]: each["value"] for each in listed} == {
        "system-cluster-critical": 2_000_000_000,
        "system-node-critical": 2_000_001_000,
    }
    refused = await api.call("DELETE", f"{PC}/{CRITICAL}")
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"].endswith("this is a system priority class and cannot be deleted")


async def test_a_pod_keeps_its_priority_when_its_class_is_gone(api: Api) -> None:
    await api.call("POST", PC, {"metadata": {"name": "x"}, "value": 9})
    spec = {"priorityClassName": "x", "containers": [{"name": "c", "image": "i"}]}
    path = "/api/v1/namespaces/default/pods"
    made = await api.call("POST", path, {"metadata": {"name": "p"}, "spec": spec})
    assert (made.status, made.json["spec"]["priority"]) == (201, 9)
    await api.call("DELETE", f"{PC}/x")
    sent = made.json
    del sent["spec"]["priority"], sent["spec"]["preemptionPolicy"]
    sent["spec"]["containers"][0]["image"] = "j"
    changed = await api.call("PUT", f"{path}/p", sent)
    assert (changed.status, changed.json["spec"]["priority"]) == (200, 9)
    raised = {"spec": {"priority": 2_000_000_000}}
    refused = await api.call("PATCH", f"{path}/p", raised, content_type=MERGE)
    assert (refused.status, refused.json["reason"]) == (422, "Invalid")

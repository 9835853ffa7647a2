from __future__ import annotations

import pytest

from orch.wire.podrules.updates import ephemeral_causes, update_causes
from tests.orch.wire.podrules.podtable import assert_refused

CONTAINER = {"name": "c", "image": "i"}
DEBUG = {"name": "debug", "image": "i"}
AT = "spec.ephemeralContainers"
NOT_HERE = "Forbidden: cannot be set for an Ephemeral Container"


def with_ephemeral(*containers):
    return {
        "containers": [CONTAINER],
        "initContainers": [{"name": "init", "image": "i"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "ephemeralContainers": list(containers),
    }


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ([DEBUG], []),
        ([{"name": "more", "image": "i"}, DEBUG], []),
        ([DEBUG, {"name": "more", "image": "i", "targetContainerName": "c"}], []),
        ([DEBUG, {"name": "more", "image": "i", "targetContainerName": "init"}], []),
        ([], [f'{AT}: Forbidden: existing ephemeral containers "debug" may not be removed']),
        (
            [{**DEBUG, "image": "j"}],
            [f'{AT}: Forbidden: existing ephemeral containers "debug" may not be changed'],
        ),
        ([DEBUG, {"name": "c", "image": "i"}], [f'{AT}[1].name: Duplicate value: "c"']),
        ([DEBUG, {"name": "init", "image": "i"}], [f'{AT}[1].name: Duplicate value: "init"']),
        ([DEBUG, DEBUG], [f'{AT}[1].name: Duplicate value: "debug"']),
        ([DEBUG, {"image": "i"}], [f"{AT}[1].name: Required value"]),
        ([DEBUG, {"name": "more"}], [f"{AT}[1].image: Required value"]),
        (
            [DEBUG, {"name": "more", "image": "i", "targetContainerName": "debug"}],
            [f'{AT}[1].targetContainerName: Not found: "debug"'],
        ),
        (
            [DEBUG, {"name": "more", "image": "i", "ports": [{"containerPort": 80}]}],
            [f"{AT}[1].ports: {NOT_HERE}"],
        ),
        (
            [DEBUG, {"name": "more", "image": "i", "lifecycle": {"preStop": {}}, "resources": {}}],
            [f"{AT}[1].lifecycle: {NOT_HERE}"],
        ),
        (
            [
                DEBUG,
                {
                    "name": "more",
                    "image": "i",
                    "volumeMounts": [
                        {"name": "v", "mountPath": "/v", "subPath": "x"},
                        {"name": "w", "mountPath": "/w"},
                    ],
                },
            ],
            [
                f'{AT}[1].volumeMounts[1].name: Not found: "w"',
                f"{AT}[1].volumeMounts[0].subPath: {NOT_HERE}",
            ],
        ),
    ],
)
def test_ephemeral_containers_are_only_added(sent, found) -> None:
    """K:pkg/apis/core/validation TestValidatePodEphemeralContainersUpdate."""
    causes = ephemeral_causes(with_ephemeral(*sent), with_ephemeral(DEBUG))
    assert [f"{cause.field}: {cause.message}" for cause in causes] == found


ONLY = "spec: Forbidden: pod updates may not change fields other than"
ADDED = "Forbidden: pod updates may not add or remove containers"
KEPT = "spec.tolerations: Forbidden: existing toleration can not be modified except its toleration"
NARROWED = "Invalid value"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
DEADLINE = "spec.activeDeadlineSeconds: Invalid value"
EXISTS = {"key": "a", "operator": "Exists"}
GATES = {"schedulingGates": [{"name": "a"}, {"name": "b"}]}
A, B = ({"key": key, "operator": "Exists"} for key in "ab")


def nodes(*terms, **others):
    required = {REQUIRED: {"nodeSelectorTerms": [*terms]}} if terms else {}
    return {"affinity": {"nodeAffinity": required, **others}}


def gated(**fields):
    return GATES | fields


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, {}, []),
        ({}, {"containers": [{**CONTAINER, "image": "j"}]}, []),
        (
            {},
            {"containers": [{**CONTAINER, "image": ""}]},
            ["spec.containers[0].image: Required value"],
        ),
        (
            {},
            {"containers": [{**CONTAINER, "image": " j"}]},
            ["spec.containers[0].image: Invalid value"],
        ),
        (
            {"containers": [{**CONTAINER, "image": " "}]},
            {"containers": [{**CONTAINER, "image": " "}], "activeDeadlineSeconds": 5},
            [],
        ),
        ({}, {"containers": [CONTAINER, DEBUG]}, [f"spec.containers: {ADDED}"]),
        ({"initContainers": [DEBUG]}, {}, [f"spec.initContainers: {ADDED}"]),
        ({"initContainers": [DEBUG]}, {"initContainers": [{**DEBUG, "image": "j"}]}, []),
        ({}, {"containers": [{**CONTAINER, "command": ["x"]}]}, [ONLY]),
        ({}, {"hostNetwork": True}, [ONLY]),
        ({}, {"activeDeadlineSeconds": 5}, []),
        ({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 0}, []),
        ({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 6}, [DEADLINE]),
        ({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": "4"}, [DEADLINE]),
        ({"activeDeadlineSeconds": 5}, {}, [DEADLINE]),
        ({"activeDeadlineSeconds": "x"}, {"activeDeadlineSeconds": 4}, []),
        ({}, {"activeDeadlineSeconds": "5"}, [DEADLINE]),
        ({}, {"activeDeadlineSeconds": -1}, [DEADLINE]),
        ({}, {"activeDeadlineSeconds": 2**31}, [DEADLINE]),
        ({}, {"tolerations": [EXISTS]}, []),
        (
            {"tolerations": [EXISTS]},
            {"tolerations": [{"key": "b"}, {"operator": "Exists", "key": "a"}]},
            [],
        ),
        (
            {"tolerations": [{**EXISTS, "effect": "NoExecute", "tolerationSeconds": 5}]},
            {"tolerations": [{**EXISTS, "effect": "NoExecute", "tolerationSeconds": 9}]},
            [],
        ),
        ({"tolerations": [EXISTS]}, {"tolerations": [{"key": "a"}]}, [KEPT]),
        ({"tolerations": [EXISTS]}, {}, [KEPT]),
        (
            {},
            {"tolerations": [{"key": "a", "operator": "In"}]},
            ["spec.tolerations[0].operator: Unsupported value"],
        ),
        (GATES, {"schedulingGates": [{"name": "b"}]}, []),
        (GATES, {}, []),
        (
            GATES,
            {"schedulingGates": [{"name": "a"}, {"name": "c"}]},
            ["spec.schedulingGates[1].name: Forbidden: only deletion is allowed"],
        ),
        ({}, GATES, 2 * ["spec.schedulingGates["]),
        (
            {"terminationGracePeriodSeconds": -1},
            {"terminationGracePeriodSeconds": 1},
            [],
        ),
        (
            {"terminationGracePeriodSeconds": -1},
            {"terminationGracePeriodSeconds": 2},
            [ONLY],
        ),
        ({"terminationGracePeriodSeconds": 5}, {"terminationGracePeriodSeconds": 1}, [ONLY]),
        ({}, {"nodeSelector": {"a": "b"}}, [ONLY]),
        (gated(nodeSelector={"a": "b"}), gated(nodeSelector={"a": "b", "c": "d"}), []),
        (gated(), gated(nodeSelector={"a b": "c"}), ["spec.nodeSelector: Invalid value"]),
        (
            gated(nodeSelector={"a": "b"}),
            gated(nodeSelector={"a": "c"}),
            ["spec.nodeSelector: Invalid value"],
        ),
        (gated(), gated(**nodes({"matchExpressions": [A]})), []),
        (
            gated(**nodes({"matchExpressions": [A]})),
            gated(**nodes({"matchExpressions": [A, B]})),
            [],
        ),
        (
            gated(**nodes({"matchExpressions": [A]})),
            gated(**nodes({"matchExpressions": [B]})),
            [f"{TERMS}[0]: {NARROWED}"],
        ),
        (
            gated(**nodes({})),
            gated(**nodes({"matchExpressions": [A]})),
            [f"{TERMS}[0]: {NARROWED}"],
        ),
        (
            gated(**nodes({"matchExpressions": [A]})),
            gated(**nodes({"matchExpressions": [A]}, {"matchExpressions": [B]})),
            [f"{TERMS}: {NARROWED}"],
        ),
        (
            gated(**nodes({"matchExpressions": [A]})),
            gated(),
            [f"{TERMS}: {NARROWED}"],
        ),
        (
            gated(),
            gated(**nodes({"matchExpressions": [{"key": "a b", "operator": "Exists"}]})),
            [f"{TERMS}[0].matchExpressions[0].key: Invalid value"],
        ),
        (gated(), gated(**nodes(podAffinity={"x": 1})), [ONLY]),
        ({}, nodes({"matchExpressions": [A]}), [ONLY]),
        (gated(), gated(affinity="x"), []),
    ],
)
def test_an_update_changes_only_what_may_change(before, after, found) -> None:
    """K:pkg/apis/core/validation TestValidatePodUpdate."""
    old, new = ({"containers": [CONTAINER], **fields} for fields in (before, after))
    assert_refused([f"{c.field}: {c.message}" for c in update_causes(new, old)], *found)

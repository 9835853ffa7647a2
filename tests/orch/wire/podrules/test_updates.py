from __future__ import annotations

import pytest

from orch.wire.podrules.updates import ephemeral_causes, update_causes

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


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [(None, "5", False), (None, -1, False), (None, 2**31, False), (5, "4", False), ("x", 4, True)],
)
def test_a_deadline_is_a_number_of_seconds(before, after, allowed) -> None:
    old, new = ({"activeDeadlineSeconds": deadline} for deadline in (before, after))
    assert [c.field for c in update_causes(new, old)] == (
        [] if allowed else ["spec.activeDeadlineSeconds"]
    )


def test_tolerations_may_change_their_order_and_that_of_their_fields() -> None:
    old = {"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b"}]}
    new = {"tolerations": [{"key": "b"}, {"operator": "Exists", "key": "a"}, {"key": "c"}]}
    assert list(update_causes(new, old)) == []
    assert [c.field for c in update_causes(old, new)] == ["spec.tolerations"]

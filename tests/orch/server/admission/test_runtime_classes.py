"""K:plugin/pkg/admission/runtimeclass/admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from orch.server.admission.runtime_classes import RuntimeClasses
from orch.server.objects.document import ObjectTarget
from orch.server.strategy import pods
from orch.wire.errors import ApiError
from orch.wire.names import ANNOTATION_CONFIG_MIRROR
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import CONFIG_MAPS, PODS
from tests.orch.server.harness import Api

FIXED = {"cpu": "250m", "memory": "120Mi"}
FOREVER = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
A_WHILE = {**FOREVER, "tolerationSeconds": 300}
CLASSES = [
    {"metadata": {"name": "plain"}, "handler": "runc"},
    {"metadata": {"name": "vm"}, "handler": "kata", "overhead": {"podFixed": FIXED}},
    {
        "metadata": {"name": "placed"},
        "handler": "kata",
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [FOREVER]},
    },
]
RC = "/apis/node.orch.io/v1/runtimeclasses"
JUDGE = RuntimeClasses(lambda _resource, _namespace: CLASSES)


def checked(metadata: dict[str, Any] | None = None, **spec: Any) -> Any:
    """The spec of a new pod, or why it was refused."""
    pod = {"metadata": {"name": "p", **(metadata or {})}, "spec": spec}
    try:
        JUDGE.check(ObjectTarget(pods.STRATEGY, Identity("tenant"), "a"), pod, None)
    except ApiError as error:
        assert error.code == 403
        return error.message.removeprefix('pods "p" is forbidden: ')
    return pod["spec"]


CASES: list[tuple[dict[str, Any], Any]] = [
    ({}, {}),
    ({"runtimeClassName": "plain"}, {}),
    ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
    ({"runtimeClassName": "vm"}, {"overhead": FIXED}),
    ({"runtimeClassName": "vm", "overhead": {"cpu": "0.25", "memory": "120Mi"}},
     {"overhead": FIXED}),
    ({"runtimeClassName": "vm", "overhead": {"cpu": "1"}},
     "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
    ({"overhead": {"cpu": "1"}},
     "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ({"runtimeClassName": "plain", "overhead": {}},
     "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ({"runtimeClassName": "placed"},
     {"nodeSelector": {"vm": "yes"}, "tolerations": [FOREVER]}),
    ({"runtimeClassName": "placed", "nodeSelector": {"disk": "ssd", "vm": "yes"}},
     {"nodeSelector": {"disk": "ssd", "vm": "yes"}, "tolerations": [FOREVER]}),
    ({"runtimeClassName": "placed", "nodeSelector": {"vm": "no"}},
     "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no"),
    ({"runtimeClassName": "placed", "tolerations": [A_WHILE]},
     {"nodeSelector": {"vm": "yes"}, "tolerations": [FOREVER]}),
    ({"runtimeClassName": "placed", "tolerations": [{"operator": "Exists"}]},
     {"nodeSelector": {"vm": "yes"}, "tolerations": [{"operator": "Exists"}]}),
    ({"runtimeClassName": "placed", "tolerations": [{"key": "b", "value": "c"}]},
     {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "b", "value": "c"}, FOREVER]}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "result"), CASES)
def test_a_pod_gets_what_its_class_says(spec: dict[str, Any], result: Any) -> None:
    expected = result if isinstance(result, str) else {**spec, **result}
    assert checked(**spec) == expected


def test_mirror_pods_and_other_kinds_are_not_judged() -> None:
    mirror = {"annotations": {ANNOTATION_CONFIG_MIRROR: "hash"}}
    spec = {"runtimeClassName": "none", "overhead": {"cpu": "1"}}
    assert checked(mirror, **spec) == spec
    assert JUDGE.judges(PODS) and not JUDGE.judges(CONFIG_MAPS)


async def test_a_class_that_is_made_counts_at_once(api: Api) -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "runtimeClassName": "vm"},
    }
    path = "/api/v1/namespaces/default/pods"
    refused = await api.call("POST", path, pod)
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert (await api.call("POST", RC, CLASSES[1])).status == 201
    made = await api.call("POST", path, pod)
    assert made.status == 201 and made.json["spec"]["overhead"] == FIXED
    changed = await api.call("PUT", f"{RC}/vm", {**CLASSES[1], "handler": "other"})
    assert changed.status == 422 and "field is immutable" in changed.json["message"]

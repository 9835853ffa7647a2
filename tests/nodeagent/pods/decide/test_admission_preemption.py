"""Who ends for a critical pod: K:pkg/kubelet/preemption/preemption_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.pods.decide import admission
from orch.wire import names
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod

NODE = Node.from_wire(
    {
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "1", "memory": "1000Mi", "pods": "10"}},
    }
)
STATIC = {"annotations": {names.ANNOTATION_CONFIG_SOURCE: "file"}}


def asks(name: str, cpu: str = "", memory: str = "", *, limits: bool = False, **fields: Any) -> Pod:
    amounts = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    kind = "limits" if limits else "requests"
    container = container_data("app", resources={kind: amounts})
    metadata = {"name": name, "uid": name, **fields.pop("metadata", {})}
    return pod(container, metadata=metadata, **fields)


def critical(cpu: str = "", memory: str = "") -> Pod:
    return asks("critical", cpu, memory, metadata=STATIC)


BEST = asks("best-effort")
SMALL, LARGE = asks("small", "100m", "100Mi"), asks("large", "500m", "300Mi")
SURE = asks("guaranteed", "400m", "300Mi", limits=True)
SYSTEM = asks("system", "500m", priority=names.CRITICAL_PRIORITY)
FULL = [BEST, SMALL, LARGE, SURE]  # all of the cpu, 700Mi

CASES: list[tuple[str, Pod, list[Pod], list[str]]] = [
    ("it fits", critical("1"), [BEST], []),
    ("one burstable pod is enough", critical("100m"), FULL, ["small"]),
    ("the nearest pod, and only that", critical("450m"), FULL, ["large"]),
    ("two are needed", critical("550m"), FULL, ["large", "small"]),
    ("guaranteed ones last", critical("700m"), FULL, ["guaranteed", "large"]),
    ("all of them are not enough", critical("1100m"), FULL, []),
    ("memory and cpu", critical("100m", "600Mi"), FULL, ["large"]),
    ("critical ones stay", critical("600m"), [SYSTEM, SMALL], []),
    (
        "unless their priority is lower",
        asks("critical", "600m", priority=names.CRITICAL_PRIORITY + 1),
        [SYSTEM, SMALL],
        ["system"],
    ),
    (
        "places",
        critical(),
        [asks(f"p{number}") for number in range(10)],
        ["p0"],
    ),
]


@pytest.mark.parametrize(("why", "wanted", "others", "expected"), CASES, ids=[c[0] for c in CASES])
def test_the_fewest_pods_of_the_lowest_class_end(
    why: str, wanted: Pod, others: list[Pod], expected: list[str]
) -> None:
    found = admission.victims(wanted, NODE, others)
    assert sorted(each.metadata.name for each in found) == sorted(expected), why


def test_a_victim_ends_with_its_own_grace() -> None:
    ending = admission.preempted(asks("p", terminationGracePeriodSeconds=7))
    assert (ending.reason, ending.grace_s, ending.is_disruption) == ("Preempting", 7, True)
    assert ending.message == "Preempted in order to admit critical pod"

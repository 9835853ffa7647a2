"""Which objects a pod refers to."""

from __future__ import annotations

from nodeagent.pods.spec import references
from nodeagent.pods.spec.references import Reference
from tests.fakes.pods import container_data, pod

KEYS = {
    "env": [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}},
        {"name": "C", "value": "plain"},
    ],
    "envFrom": [{"configMapRef": {"name": "c2"}}, {"secretRef": {"name": "s2"}}],
}
VOLUMES = [
    {"name": "a", "configMap": {"name": "c3"}},
    {"name": "b", "secret": {"secretName": "s3"}},
    {
        "name": "c",
        "projected": {"sources": [{"configMap": {"name": "c4"}}, {"secret": {"name": "s4"}}]},
    },
    {"name": "d", "emptyDir": {}},
]


def test_every_place_that_names_an_object_is_found() -> None:
    wanted = pod(
        container_data("app", **KEYS),
        initContainers=[
            container_data("i", envFrom=[{"configMapRef": {"name": "c5"}}, {"secretRef": {}}])
        ],
        volumes=VOLUMES,
    )
    found = references.references(wanted)
    assert found == {
        *(Reference("ConfigMap", f"c{n}") for n in range(1, 6)),
        *(Reference("Secret", f"s{n}") for n in range(1, 5)),
    }
    assert references.shown_in_volumes(wanted) == {
        *(Reference("ConfigMap", f"c{n}") for n in (3, 4)),
        *(Reference("Secret", f"s{n}") for n in (3, 4)),
    }
    assert references.references(pod()) == set()

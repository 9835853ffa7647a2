"""A pod's references: K:plugin/pkg/auth/authorizer/node, pkg/api/v1/pod/util_test.go."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch.server.authz.node_graph import NodeGraph, references_of
from tests.examples import examples

EVERYTHING: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "red"},
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "bot",
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [
            {"envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}]},
            {"envFrom": [{"secretRef": {"name": ""}}]},
        ],
        "volumes": [{"persistentVolumeClaim": {"claimName": "p"}}],
    },
}


def pod(node: str, *secrets: str) -> dict[str, Any]:
    volumes = [{"secret": {"secretName": name}} for name in secrets]
    return {"metadata": {"namespace": "red"}, "spec": {"nodeName": node, "volumes": volumes}}


def test_what_a_node_may_use_is_named_by_its_plural() -> None:
    assert set(references_of(EVERYTHING)) == {
        ("serviceaccounts", "red", "bot"),
        ("secrets", "red", "pull"),
        ("secrets", "red", "s"),
        ("configmaps", "red", "c"),
    }


def test_a_mirror_pod_refers_to_nothing() -> None:
    metadata = {**EVERYTHING["metadata"], "annotations": {"orch.io/config.mirror": "x"}}
    assert list(references_of({**EVERYTHING, "metadata": metadata})) == []


def test_a_node_reaches_what_its_pods_need_as_long_as_they_are_bound_to_it() -> None:
    graph = NodeGraph()
    graph.put("/pods/red/a", pod("n1", "s"))
    graph.put("/pods/red/b", pod("n1", "s"))
    assert graph.reaches("n1", "secrets", "red", "s")
    assert graph.reaches("n1", "serviceaccounts", "red", "default")
    assert not graph.reaches("n1", "secrets", "blue", "s")
    assert not graph.reaches("n1", "configmaps", "red", "s")
    assert not graph.reaches("n2", "secrets", "red", "s")
    graph.drop("/pods/red/a")
    assert graph.reaches("n1", "secrets", "red", "s")
    graph.put("/pods/red/b", pod("n2", "s"))
    assert not graph.reaches("n1", "secrets", "red", "s")
    assert graph.reaches("n2", "secrets", "red", "s")
    graph.put("/pods/red/b", pod("", "s"))
    graph.drop("/pods/red/never")
    assert not graph.reaches("n2", "secrets", "red", "s")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_node_reaches_nothing_that_only_pods_need_which_have_ended(phase: str) -> None:
    graph = NodeGraph()
    graph.put("/pods/red/a", pod("n1", "s"))
    graph.put("/pods/red/a", {**pod("n1", "s"), "status": {"phase": phase}})
    assert not graph.reaches("n1", "secrets", "red", "s")
    graph.put("/pods/red/a", {**pod("n1", "s"), "status": {"phase": "Running"}})
    assert graph.reaches("n1", "secrets", "red", "s")


def test_pods_that_a_node_has_refused_make_its_questions_no_slower() -> None:
    """A tenant may bind 50,000 of them to it by name, and have one ask for thousands of objects."""
    graph = NodeGraph()
    for number in range(20_000):
        graph.put(f"/pods/red/{number}", {**pod("n1", "s"), "status": {"phase": "Failed"}})
    began_s = time.process_time()
    for number in range(1000):
        graph.reaches("n1", "secrets", "red", f"s{number}")
    assert time.process_time() - began_s < 0.5, "it was 2.6 s"


keys = st.sampled_from(("k1", "k2", "k3"))
nodes, names = st.sampled_from(("", "n1", "n2")), st.sampled_from(("a", "b"))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(keys, st.one_of(st.none(), st.tuples(nodes, st.sets(names))))))
def test_after_any_changes_it_is_what_the_pods_say(changes) -> None:
    graph, pods = NodeGraph(), {}
    for key, change in changes:
        if change is None:
            graph.drop(key)
            pods.pop(key, None)
        else:
            graph.put(key, pod(change[0], *change[1]))
            pods[key] = change
    for node in ("n1", "n2"):
        for name in ("a", "b"):
            expected = any(where == node and name in needed for where, needed in pods.values())
            assert graph.reaches(node, "secrets", "red", name) is expected


@pytest.mark.slow
def test_many_references_take_about_as_much_as_their_pods_do() -> None:
    """A tenant may write 128 MiB of them."""
    pods = [
        {
            "metadata": {"namespace": "red"},
            "spec": {
                "nodeName": f"n{number % 10}",
                "imagePullSecrets": [{"name": f"s{number}-{n}"} for n in range(1_000)],
            },
        }
        for number in range(100)
    ]
    graph = NodeGraph()
    tracemalloc.start()
    try:
        for number, each in enumerate(pods):
            graph.put(f"/pods/red/{number}", each)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < len(json.dumps(pods)), taken
    assert graph.reaches("n7", "secrets", "red", "s7-999")
    assert not graph.reaches("n7", "secrets", "red", "s8-999")

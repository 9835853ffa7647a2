from __future__ import annotations

import re

import pytest

from orch.server.objects.backend import Backend
from orch.server.objects.delete import delete
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions, WriteOptions
from orch.server.objects.pod_subresources import bind
from orch.wire.errors import ApiError
from tests.orch.server.objects.places import made, place, pod, read

TO_N1 = {"target": {"kind": "Node", "name": "n1"}}


async def test_a_pod_is_bound_and_said_to_be_scheduled(backend: Backend) -> None:
    await made(backend, "Pod", pod())
    await bind(backend, place("Pod", "p1", "binding"), TO_N1, dry_run=False)
    bound = read(backend, place("Pod", "p1"))
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    ]


async def test_a_body_of_another_kind_is_told_which_is_expected(backend: Backend) -> None:
    await made(backend, "Pod", pod())
    for said, text in (
        ({"kind": "Eviction"}, "the kind in the data (Eviction) does not match the expected kind"),
        ({"apiVersion": "v2"}, "data (v2) does not match the expected apiVersion (v1)"),
    ):
        with pytest.raises(ApiError, match=re.escape(text)) as caught:
            await bind(backend, place("Pod", "p1", "binding"), {**TO_N1, **said}, dry_run=False)
        assert caught.value.code == 400
    said = {"kind": "Binding", "apiVersion": "v1"}
    await bind(backend, place("Pod", "p1", "binding"), {**TO_N1, **said}, dry_run=False)


async def test_a_pod_is_bound_only_once_and_not_while_it_leaves(backend: Backend) -> None:
    await made(backend, "Pod", pod("bound", nodeName="n1"))
    with pytest.raises(ApiError, match='already assigned to node "n1"') as caught:
        await bind(backend, place("Pod", "bound"), TO_N1, dry_run=False)
    assert caught.value.code == 409
    leaving = pod("leaving")
    leaving["metadata"]["finalizers"] = ["a/b"]
    await made(backend, "Pod", leaving)
    await delete(backend, place("Pod", "leaving"), DeleteOptions())
    with pytest.raises(ApiError, match="is being deleted"):
        await bind(backend, place("Pod", "leaving"), TO_N1, dry_run=False)


@pytest.mark.parametrize("name", ["uid", "resourceVersion"])
async def test_a_binding_of_another_pod_of_the_name_is_refused(backend: Backend, name: str) -> None:
    await made(backend, "Pod", pod())
    own = read(backend, place("Pod", "p1"))["metadata"][name]
    with pytest.raises(ApiError, match="in precondition: 7, ") as caught:
        other = {**TO_N1, "metadata": {"name": "p1", name: "7"}}
        await bind(backend, place("Pod", "p1", "binding"), other, dry_run=False)
    assert caught.value.code == 409
    right = {**TO_N1, "metadata": {"name": "p1", name: own}}
    await bind(backend, place("Pod", "p1", "binding"), right, dry_run=False)


async def test_a_pod_waits_for_its_gates(backend: Backend) -> None:
    gated = place("Pod", "gated")
    await made(backend, "Pod", pod("gated", schedulingGates=[{"name": "a"}]))
    with pytest.raises(
        ApiError, match=r"pod gated has non-empty \.spec\.schedulingGates"
    ) as caught:
        await bind(backend, gated, TO_N1, dry_run=False)
    assert caught.value.code == 409
    current = read(backend, gated)
    opened = {**current, "spec": {**current["spec"], "schedulingGates": []}}
    await modify(backend, gated, lambda _: opened, WriteOptions())
    await bind(backend, gated, TO_N1, dry_run=False)
    assert read(backend, gated)["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("binding", "code"),
    [
        ({}, 422),
        ({"target": {"name": ""}}, 422),
        ({"target": {"kind": "Pod", "name": "x"}}, 422),
        ({"target": {"name": "Not A Node"}}, 422),
        ({"kind": "Pod", "target": {"name": "n1"}}, 400),
        ({"apiVersion": "policy/v1", "target": {"name": "n1"}}, 400),
        ({"kind": {}, "target": {"name": "n1"}}, 400),
        ({"metadata": "p1", "target": {"name": "n1"}}, 400),
        ({"target": "n1"}, 400),
        ({"metadata": {"name": "other"}, "target": {"name": "n1"}}, 400),
        ({"metadata": {"namespace": "other"}, "target": {"name": "n1"}}, 400),
    ],
)
async def test_a_binding_must_name_a_node(backend: Backend, binding, code) -> None:
    await made(backend, "Pod", pod())
    with pytest.raises(ApiError) as caught:
        await bind(backend, place("Pod", "p1"), binding, dry_run=False)
    assert caught.value.code == code


async def test_a_missing_pod_is_not_found_and_a_dry_run_binds_nothing(backend: Backend) -> None:
    with pytest.raises(ApiError) as caught:
        await bind(backend, place("Pod", "p1"), TO_N1, dry_run=False)
    assert caught.value.code == 404
    await made(backend, "Pod", pod())
    await bind(backend, place("Pod", "p1"), TO_N1, dry_run=True)
    assert "nodeName" not in read(backend, place("Pod", "p1"))["spec"]

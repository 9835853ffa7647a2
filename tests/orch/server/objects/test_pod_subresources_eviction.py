from __future__ import annotations

from typing import Any

import pytest

from orch.server.objects.backend import Backend
from orch.server.objects.pod_subresources import evict
from orch.wire.errors import ApiError
from tests.orch.server.objects.places import made, place, pod, read

AT = place("Pod", "p1", "eviction")


async def test_a_running_pod_is_marked_and_leaves_with_its_grace(backend: Backend) -> None:
    await made(backend, "Pod", pod(nodeName="n1"))
    await evict(backend, AT, {"metadata": {"name": "p1"}}, dry_run=False)
    leaving = read(backend, AT)
    assert leaving is not None
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    (condition,) = leaving["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


async def test_what_the_caller_says_about_the_deletion_counts(backend: Backend) -> None:
    made_pod = await made(backend, "Pod", pod(nodeName="n1"))
    options: dict[str, Any] = {"preconditions": {"uid": "another"}}
    with pytest.raises(ApiError, match="UID in precondition") as caught:
        await evict(backend, AT, {"deleteOptions": options}, dry_run=False)
    assert caught.value.code == 409
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": made_pod["metadata"]["uid"]}}
    await evict(backend, AT, {"deleteOptions": options}, dry_run=False)
    assert read(backend, AT) is None


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resourceVersion": "1"}])
async def test_another_pod_than_the_one_that_is_meant_is_not_marked(
    backend: Backend, precondition: dict[str, str]
) -> None:
    before = await made(backend, "Pod", pod(nodeName="n1"))
    with pytest.raises(ApiError, match="Precondition failed") as caught:
        await evict(backend, AT, {"deleteOptions": {"preconditions": precondition}}, dry_run=False)
    assert caught.value.code == 409
    assert read(backend, AT) == before


async def test_the_version_that_is_meant_is_the_one_before_the_mark(backend: Backend) -> None:
    before = await made(backend, "Pod", pod(nodeName="n1"))
    meant = {"resourceVersion": before["metadata"]["resourceVersion"]}
    await evict(backend, AT, {"deleteOptions": {"preconditions": meant}}, dry_run=False)
    leaving = read(backend, AT)
    assert leaving is not None and leaving["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("body", [{"deleteOptions": {"dryRun": ["All"]}}, {}])
async def test_a_dry_run_changes_nothing(backend: Backend, body: dict[str, Any]) -> None:
    before = await made(backend, "Pod", pod(nodeName="n1"))
    await evict(backend, AT, body, dry_run=not body)
    assert read(backend, AT) == before


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"kind": "Pod"},
            r"kind in the data \(Pod\) does not match the expected kind \(Eviction\)",
        ),
        ({"apiVersion": "v1"}, r"\(v1\) does not match the expected apiVersion \(policy/v1\)"),
        ({"apiVersion": ["policy/v1"]}, "does not match the expected apiVersion"),
        ({"metadata": {"name": "p2"}}, "does not match"),
        ({"metadata": {"name": "p1", "namespace": "other"}}, "namespace .* does not match"),
        ({"metadata": "p1"}, "metadata: must be an object"),
        ({"deleteOptions": []}, None),
        ({"deleteOptions": [1]}, "must be an object"),
    ],
)
async def test_a_body_that_is_no_eviction_of_this_pod_is_refused(
    backend: Backend, body: dict[str, Any], text: str | None
) -> None:
    await made(backend, "Pod", pod())
    if text is None:
        await evict(backend, AT, body, dry_run=False)
        assert read(backend, AT) is None
        return
    with pytest.raises(ApiError, match=text) as caught:
        await evict(backend, AT, body, dry_run=False)
    assert caught.value.code == 400
    assert read(backend, AT) is not None


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "", "apiVersion": ""},
        {"kind": "Eviction"},
        {"kind": "Eviction", "apiVersion": "policy/v1"},
        {"kind": "Eviction", "apiVersion": "policy/v1beta1"},
    ],
)
async def test_an_eviction_of_either_version_or_of_none_is_taken(
    backend: Backend, said: dict[str, Any]
) -> None:
    await made(backend, "Pod", pod())
    await evict(backend, AT, dict(said), dry_run=False)
    assert read(backend, AT) is None

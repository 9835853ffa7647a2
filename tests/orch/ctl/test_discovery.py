from __future__ import annotations

from pathlib import Path

import pytest

from orch.ctl.discovery import Resource
from tests.fakes.http_api import GROUP, Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

LEASES = Resource(GROUP, "v1", "leases", "lease", "Lease", True, ("ls",), ())
PODS = Resource("", "v1", "pods", "pod", "Pod", True, ("po",), ())
NODES = Resource("", "v1", "nodes", "node", "Node", False, (), ())


@pytest.mark.parametrize(
    ("word", "answers"),
    [
        ("leases", True), ("lease", True), ("Lease", True), ("ls", True), ("LEASES", True),
        (f"leases.{GROUP}", True), (f"leases.v1.{GROUP}", True), (f"lease.{GROUP}", True),
        ("leases.other.io", False), (f"leases.v2.{GROUP}", False), ("leas", False), ("", False),
    ],
)  # fmt: skip
def test_a_resource_answers_to_all_its_names(word: str, answers: bool) -> None:
    assert LEASES.answers_to(word) is answers


@pytest.mark.parametrize(
    ("resource", "place", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("ns",), "/api/v1/namespaces/ns/pods"),
        (PODS, ("ns", "a"), "/api/v1/namespaces/ns/pods/a"),
        (PODS, ("ns", "a", "status"), "/api/v1/namespaces/ns/pods/a/status"),
        (PODS, ("n/s", "../a"), "/api/v1/namespaces/n%2Fs/pods/..%2Fa"),
        (NODES, ("ns", "n1"), "/api/v1/nodes/n1"),
        (LEASES, ("ns", "n1"), f"/apis/{GROUP}/v1/namespaces/ns/leases/n1"),
    ],
)
def test_paths_follow_group_and_scope(
    resource: Resource, place: tuple[str, ...], path: str
) -> None:
    assert resource.path(*place) == path


def test_objects_are_shown_with_their_kind_and_group() -> None:
    assert PODS.label("web") == "pod/web"
    assert LEASES.label("n1") == f"lease.{GROUP}/n1"
    assert PODS.label() == "pod"


async def test_the_core_group_is_enough_for_core_words(orchctl: Orchctl, api: HttpApi) -> None:
    await orchctl("get", "po")
    assert [request.path for request in api.requests] == [
        "/api/v1",
        "/api/v1/namespaces/default/pods",
    ]


async def test_other_groups_are_asked_for_other_words(orchctl: Orchctl, api: HttpApi) -> None:
    await orchctl("get", "lease", "n1", "-n", "x")
    assert api.requests[-2].path == f"/apis/{GROUP}/v1/namespaces/x/leases/n1"


async def test_a_group_that_is_served_but_not_listed_is_found_by_its_name(
    orchctl: Orchctl, api: HttpApi
) -> None:
    api.answers["GET", "/apis"] = Answer({"groups": []})
    preferred = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    api.answers["GET", f"/apis/{GROUP}"] = Answer({"preferredVersion": preferred})
    await orchctl("get", f"leases.{GROUP}", "n1", "-n", "x")
    asked = [request.path for request in api.requests]
    assert f"/apis/{GROUP}/v1/namespaces/x/leases/n1" in asked
    assert (await orchctl("get", "lease")).err.startswith("error: the server has no resource type")


async def test_lists_of_odd_types_have_what_texts_there_are(orchctl: Orchctl, api: HttpApi) -> None:
    odd = {"name": "pods", "kind": "Pod", "namespaced": True, "shortNames": [5, "po"], "verbs": 5}
    api.answers["GET", "/api/v1"] = Answer({"resources": [{**odd, "categories": {"a": 1}}]})
    assert (await orchctl("get", "po", "-o", "name")).code == 0


async def test_a_word_nobody_answers_to_is_an_error(orchctl: Orchctl) -> None:
    result = await orchctl("get", "widgets")
    assert result.code == 1
    assert result.err == "error: the server has no resource type 'widgets'\n"


@pytest.mark.parametrize(("word", "meant"), [("pdos", "pods"), ("leasess", "leases")])
async def test_a_word_nearly_right_brings_up_the_right_one(
    orchctl: Orchctl, word: str, meant: str
) -> None:
    result = await orchctl("get", word)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert f"no resource type {word!r}: did you mean {meant!r}?" in result.err


async def test_a_kind_nearly_right_brings_up_the_right_one(
    orchctl: Orchctl, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("apiVersion: v1\nkind: pod\nmetadata: {name: x}\n")
    result = await orchctl("create", "-f", str(tmp_path / "f"))
    assert "f:1: the server has no kind 'pod' in 'v1': did you mean 'Pod'?" in result.err


async def test_a_server_that_refuses_discovery_is_believed(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/api/v1"] = Answer("", 401)
    result = await orchctl("get", "pods")
    assert "(Unauthorized); check the credentials" in result.err

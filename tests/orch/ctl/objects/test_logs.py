from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(autouse=True)
def _pods(api: HttpApi) -> None:
    for name, containers in (("web", ["c"]), ("two", ["a", "b"])):
        spec = {"containers": [{"name": c} for c in containers], "initContainers": []}
        metadata = {"name": name, "namespace": "default", "labels": {"app": "x"}}
        api.put(f"{PODS}/{name}", {"metadata": metadata, "spec": spec})


async def test_a_log_is_copied_as_it_is(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", f"{PODS}/web/log"] = Answer("one\ntwo\x1b[1m\nrest")
    result = await orchctl(
        "logs", "web", "--tail", "5", "--since", "2m", "--timestamps", "-p", "--limit-bytes", "1Ki"
    )
    assert (result.code, result.out) == (0, "one\ntwo\x1b[1m\nrest")
    assert api.requests[-1].query == {
        "container": "c", "tailLines": "5", "sinceSeconds": "120", "timestamps": "true",
        "previous": "true", "limitBytes": "1024",
    }  # fmt: skip


async def test_the_logs_of_many_pods_are_told_apart(orchctl: Orchctl, api: HttpApi) -> None:
    for name in ("web", "two"):
        api.answers["GET", f"{PODS}/{name}/log"] = Answer(f"from {name}\nend")
    result = await orchctl("logs", "-l", "app=x", "--all-containers", "--prefix", "-f")
    assert sorted(result.lines) == sorted(
        f"[pod/{place}] {line}"
        for place, name in (("web/c", "web"), ("two/a", "two"), ("two/b", "two"))
        for line in (f"from {name}", "end")
    )
    asked = [r.query for r in api.requests if r.path.endswith("/log")]
    assert {query["tailLines"] for query in asked} == {"10"}
    assert {query["follow"] for query in asked} == {"true"}


@pytest.mark.slow
async def test_a_log_may_be_read_or_followed_for_a_time(orchctl: Orchctl, api: HttpApi) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"one\n"
        await asyncio.Event().wait()

    api.answers["GET", f"{PODS}/web/log"] = Answer(endless)
    followed = await orchctl("logs", "-f", "web", "--request-timeout=2s")
    assert (followed.code, followed.out, followed.err) == (0, "one\n", "")
    read = await orchctl("logs", "web", "--request-timeout=2s")
    assert (read.code, read.out) == (1, "one\n")
    assert read.err.startswith("error: the log did not end within 2 s: give a longer --request-")


async def test_a_refusal_is_told_or_skipped(orchctl: Orchctl, api: HttpApi) -> None:
    refusal = {"kind": "Status", "code": 400, "reason": "BadRequest", "message": "is waiting"}
    api.answers["GET", f"{PODS}/two/log"] = [Answer(refusal, 400), Answer("here\n")]
    failed = await orchctl("logs", "two", "-c", "a")
    assert (failed.code, failed.err.startswith("error: is waiting (BadRequest)")) == (1, True)
    api.answers["GET", f"{PODS}/two/log"] = [Answer(refusal, 400), Answer("here\n")]
    skipped = await orchctl("logs", "two", "--all-containers", "--ignore-errors")
    assert (skipped.code, skipped.out) == (0, "here\n")
    assert skipped.err == "error: two/a: is waiting\n"


async def test_of_several_containers_the_first_is_shown_and_said(
    orchctl: Orchctl, api: HttpApi
) -> None:
    api.answers["GET", f"{PODS}/two/log"] = Answer("x")
    result = await orchctl("logs", "two")
    assert (result.out, api.requests[-1].query) == ("x", {"container": "a"})
    assert result.err == 'Defaulted container "a" out of: a, b\n'


async def test_an_annotation_names_the_container_to_show(orchctl: Orchctl, api: HttpApi) -> None:
    annotations = {"kubectl.kubernetes.io/default-container": "b"}
    metadata = {"name": "two", "namespace": "default", "annotations": annotations}
    containers = [{"name": "a"}, {"name": "b"}]
    api.put(f"{PODS}/two", {"metadata": metadata, "spec": {"containers": containers}})
    api.answers["GET", f"{PODS}/two/log"] = Answer("x")
    result = await orchctl("logs", "two")
    assert (result.err, api.requests[-1].query) == ("", {"container": "b"})


async def test_labels_that_no_pod_has_are_no_failure(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl("logs", "-l", "app=none")
    assert (result.code, result.err) == (0, "No resources found in default namespace.\n")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("web", "-c", "x"), 1, "the pod web has no container 'x': it has c"),
        (("web", "x"), 1, "the pod web has no container 'x'"),
        (("wbe",), 1, "pods \"wbe\" not found: did you mean 'web'?"),
        (("web", "--tail", "-2"), 2, "--tail -2 is not a number of lines: -1 is all"),
        (
            ("two", "--all-containers", "-f", "--max-log-requests", "1"),
            1,
            "cannot follow 2 logs: raise",
        ),
        (("node/n1",), 2, "node/n1 has no log: name a pod"),
        ((), 2, "say whose log: either POD or -l SELECTOR"),
        (
            ("web", "--since", "1s", "--since-time", "x"),
            2,
            "--since and --since-time exclude each other",
        ),
        (("web", "-c", "c", "--all-containers"), 2, "-c and --all-containers exclude each other"),
        (("web", "--limit-bytes", "many"), 2, "argument --limit-bytes: "),
    ],
)
async def test_what_is_not_clear_is_asked_back(
    orchctl: Orchctl, words: tuple[str, ...], code: int, text: str
) -> None:
    result = await orchctl("logs", *words)
    assert (result.code, result.err.count("\n")) == (code, 1)
    assert text in result.err


async def test_a_pod_may_be_named_with_its_type(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", f"{PODS}/two/log"] = Answer("x")
    assert (await orchctl("logs", "pod/two", "b")).out == "x"
    assert api.requests[-1].query == {"container": "b"}

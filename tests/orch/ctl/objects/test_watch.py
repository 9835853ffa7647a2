from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from orch.ctl.objects import watch
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl, Result, run_command

PODS = "/api/v1/namespaces/default/pods"
END = Answer({"kind": "Status", "reason": "Forbidden", "message": "enough", "code": 403}, 403)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAUSE_S", 0.0)


def _pod(name: str, revision: int, phase: str = "Running") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(revision)}
    spec = {"containers": [{}]}
    return {"kind": "Pod", "metadata": metadata, "status": {"phase": phase}, "spec": spec}


def _list(*pods: dict[str, Any], revision: str = "7") -> Answer:
    metadata = {"resourceVersion": revision}
    return Answer({"kind": "PodList", "items": list(pods), "metadata": metadata})


def _events(*events: tuple[str, dict[str, Any]]) -> Answer:
    lines = [json.dumps({"type": kind, "object": record}) for kind, record in events]
    return Answer("\n".join([*lines, ""]))


async def _watch(orchctl: Orchctl, api: HttpApi, answers: list[Answer], *words: str) -> Result:
    api.answers["GET", PODS] = [*answers, END]
    result = await orchctl("get", "pods", "-w", *words)
    assert result.err.startswith("error: enough (Forbidden)")
    return result


async def test_a_list_is_shown_and_then_its_changes(orchctl: Orchctl, api: HttpApi) -> None:
    changes = _events(
        ("ADDED", _pod("second", 8, "Pending")), ("MODIFIED", _pod("second", 9)),
        ("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "12"}}),
        ("DELETED", _pod("web", 13)),
    )  # fmt: skip
    result = await _watch(orchctl, api, [_list(_pod("web", 5)), changes])
    assert [line.split()[:3] for line in result.lines] == [
        ["NAME", "READY", "STATUS"],
        ["web", "0/1", "Running"],
        ["second", "0/1", "Pending"],
        ["second", "0/1", "Running"],
        ["web", "0/1", "Running"],
    ]
    watches = [r.query for r in api.requests if r.query.get("watch")]
    assert [query["resourceVersion"] for query in watches] == ["7", "13"]
    assert watches[0]["allowWatchBookmarks"] == "true"


async def test_what_happened_to_each_may_be_shown(orchctl: Orchctl, api: HttpApi) -> None:
    changes = _events(("MODIFIED", _pod("web", 8)), ("DELETED", _pod("web", 9)))
    words = ("--output-watch-events",)
    result = await _watch(orchctl, api, [_list(_pod("web", 5)), changes], *words)
    assert [line.split()[:2] for line in result.lines] == [
        ["EVENT", "NAME"], ["ADDED", "web"], ["MODIFIED", "web"], ["DELETED", "web"],
    ]  # fmt: skip


async def test_only_what_changes_may_be_shown(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", PODS] = [_list(_pod("web", 5)), _events(("ADDED", _pod("new", 8))), END]
    result = await orchctl("get", "pods", "--watch-only", "--no-headers")
    assert [line.split()[0] for line in result.lines] == ["new"]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("-o", "name"), ["pod/web", "pod/new"]),
        (("-o", "jsonpath={.metadata.name},"), ["web,new,"]),
        (("-o", "custom-columns=N:.metadata.name"), ["N", "web", "new"]),
    ],
)
async def test_changes_are_shown_in_every_form(
    orchctl: Orchctl, api: HttpApi, words: tuple[str, ...], lines: list[str]
) -> None:
    answers = [_list(_pod("web", 5)), _events(("ADDED", _pod("new", 8)))]
    assert (await _watch(orchctl, api, answers, *words)).lines == lines


async def test_a_name_that_a_terminal_would_obey_is_escaped(orchctl: Orchctl, api: HttpApi) -> None:
    answers = [_list(), _events(("ADDED", _pod("a\x1b]0;b\x07", 8)))]
    result = await _watch(orchctl, api, answers, "-o", "name")
    assert result.lines == ["pod/a\\x1b]0;b\\x07"]


async def test_json_may_tell_what_happened(orchctl: Orchctl, api: HttpApi) -> None:
    answers = [_list(), _events(("DELETED", _pod("old", 8)))]
    result = await _watch(orchctl, api, answers, "-o", "json", "--output-watch-events")
    assert json.loads(result.out)["type"] == "DELETED"
    result = await _watch(orchctl, api, answers, "-o", "yaml")
    assert result.lines[0] == "---"


async def test_a_watch_that_fell_behind_begins_anew(orchctl: Orchctl, api: HttpApi) -> None:
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    answers = [
        _list(_pod("web", 5)), _events(("ERROR", expired)),
        _list(_pod("web", 5), revision="30"), _events(("ADDED", _pod("new", 31))),
    ]  # fmt: skip
    result = await _watch(orchctl, api, answers)
    assert [line.split()[0] for line in result.lines] == ["NAME", "web", "new"]
    watches = [r.query["resourceVersion"] for r in api.requests if r.query.get("watch")]
    assert watches == ["7", "30", "31"]


async def test_one_object_is_watched_by_its_name(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(f"{PODS}/web", _pod("web", 5))
    await _watch(orchctl, api, [_list(), _events()], "web")
    assert {r.query["fieldSelector"] for r in api.requests if r.path == PODS} == {
        "metadata.name=web"
    }


async def test_one_that_is_not_there_is_said_and_not_waited_for(
    orchctl: Orchctl, api: HttpApi
) -> None:
    api.put(f"{PODS}/web", _pod("web", 5))
    result = await orchctl("get", "pod", "wed", "-w")
    assert (result.code, "did you mean 'web'?" in result.err) == (1, True)
    assert not any(r.query.get("watch") for r in api.requests)
    answers = [_list(), _events(("ADDED", _pod("wed", 8)))]
    assert "wed" in (await _watch(orchctl, api, answers, "wed", "--ignore-not-found")).out


def test_a_server_that_never_answers_is_no_watch_whose_time_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = run_command("-s", url, "get", "pods", "-w", "--request-timeout=0.2s")
    assert (result.code, "did not answer within 0.2 s" in result.err) == (1, True)


async def test_saying_what_happened_needs_a_watch(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl("get", "pods", "--output-watch-events")
    assert (result.code, "needs -w or --watch-only" in result.err, api.requests) == (2, True, [])


async def test_only_one_type_can_be_watched(orchctl: Orchctl) -> None:
    result = await orchctl("get", "pods,nodes", "-w")
    assert (result.code, result.err) == (
        2, "error: -w watches one type, or one object: name one\n",
    )  # fmt: skip


async def test_an_interrupt_ends_it_without_a_word(api: HttpApi) -> None:
    api.answers["GET", PODS] = [_list(_pod("web", 5)), *[_events() for _ in range(200)]]
    process = subprocess.Popen(
        [sys.executable, "-m", "orch.ctl.main", "-s", api.url, "get", "pods", "-w", "--no-headers"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(process.communicate, timeout=20)
    finally:
        process.kill()
    assert (process.returncode, line.split()[0], out, err) == (130, "web", "", "")

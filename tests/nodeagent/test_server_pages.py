"""The contents of the agent's pages, asked for by an administrator over TLS.

Who else may ask is in test_server. Rules: nodeagent.md §1, §6 and §7.
"""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent import server
from nodeagent.stats.sampler import Sampler
from orch.component.diagnostics.health import CheckFailed
from orch.component.http import sliced_response
from orch.component.process import loops
from orch.wire.records.pods import Pod
from tests.conftest import Pki
from tests.fakes.agent import ADMIN, Agent, Answer, served
from tests.fakes.pods import pod

TEXT = "text/plain; charset=utf-8"
# ---- pages


async def test_pods_are_listed_as_desired_and_as_running(agent: Agent) -> None:
    agent.services.registry.set_desired([])
    for path, expected in (("/pods", []), ("/runningpods/", ["web"])):
        listed = (await agent.ask("GET", path)).json()
        assert (listed["kind"], listed["apiVersion"], listed["metadata"]) == ("PodList", "v1", {})
        assert [item["metadata"]["name"] for item in listed["items"]] == expected


async def test_each_pod_is_written_in_a_turn_of_its_own(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pods of a node may be hundreds of megabytes: fourteen of 200 kB took 146 ms."""
    number, turns, real = 0, list[int](), Pod.to_wire

    async def count() -> None:
        nonlocal number
        while True:
            number += 1
            await asyncio.sleep(0)

    def written(pod: Pod) -> dict[str, Any]:
        turns.append(number)
        return real(pod)

    many = [pod(metadata={"name": f"p{n}", "uid": f"u{n}"}) for n in range(20)]
    agent.services.registry.set_desired(many)
    monkeypatch.setattr(Pod, "to_wire", written)
    counting = loops.spawn(count(), name="count")
    listed = (await agent.ask("GET", "/pods")).json()
    await loops.cancel(counting)
    assert len(listed["items"]) == len(set(turns)) == 20


async def test_the_page_of_probes_is_made_beside_the_loop(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each probe of each container is thirty lines: 800 of them stalled the agent for 294 ms."""
    threads = []

    def render(accept: str) -> tuple[bytes, str]:
        threads.append(threading.current_thread())
        return b"", "text/plain"

    monkeypatch.setattr(agent.services.probes, "render", render)
    assert (await agent.ask("GET", "/metrics/probes")).status == 200
    assert threads and threading.main_thread() not in threads


async def test_the_configuration_is_shown_without_its_secrets(agent: Agent) -> None:
    answer = await agent.ask("GET", "/configz")
    config = answer.json()["nodeagentconfig"]
    assert config["kind"] == "NodeAgentConfiguration"
    assert config["healthzPort"] == 10248
    assert "of-the-header" not in answer.text


async def test_pressure_is_told_in_two_kilobytes(agent: Agent) -> None:
    answer = await agent.ask("GET", "/pressure")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert (answer.json()["kind"], answer.json()["nodeName"]) == ("NodePressure", "n1")
    assert len(answer.body) <= 2048


async def test_statistics_come_compressed_to_who_takes_it(agent: Agent) -> None:
    for path in ("/stats/summary", "/metrics", "/metrics/resource", "/metrics/containerstats"):
        answer = await agent.ask("GET", path, headers={"Accept-Encoding": "gzip"})
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Vary"] == "Accept, Accept-Encoding"
        assert answer.body
        plain = await agent.ask("GET", path, headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers


async def test_openmetrics_leads_from_a_latency_to_a_request(agent: Agent) -> None:
    """The other format has no place for it."""
    await agent.ask("GET", "/pods", headers={"X-Request-Id": "slow-one"})
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    page = (await agent.ask("GET", "/metrics", headers=headers)).text
    assert re.search(
        r'_duration_seconds_bucket\{[^}]*path="pods"[^}]*\} 1\.0 # \{request_id="slow-one"\} ', page
    )
    assert "slow-one" not in (await agent.ask("GET", "/metrics")).text


async def test_metrics_come_in_the_requested_format(agent: Agent) -> None:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    for path in ("/metrics", "/metrics/resource", "/metrics/containerstats"):
        answer = await agent.ask("GET", path, headers=headers)
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")


async def test_large_pages_count_as_under_way_while_they_are_sent(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = agent.services.pages.sending = CountedSending()
    monkeypatch.setattr(sliced_response, "SLICE_BYTES", 100)
    for number, path in enumerate(
        ("/stats/summary", "/metrics/resource", "/metrics/containerstats"), start=1
    ):
        assert (await agent.ask("GET", path)).status == 200
        assert sending.begun == number


class CountedSending(sliced_response.Sending):
    begun = 0

    def __enter__(self) -> None:
        self.begun += 1
        super().__enter__()


async def test_statistics_that_cannot_be_read_are_an_error_without_details(
    agent: Agent,
    sampler: Sampler,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(sampler.reader, "read", fails)
    answer = await agent.ask("GET", "/stats/summary")
    assert answer.status == 500
    assert answer.text == "Internal error occurred: see the log"
    assert "GET /stats/summary failed unexpectedly" in caplog.messages


async def test_health_is_counted_until_the_counts_are_reset(agent: Agent) -> None:
    assert (await agent.ask("GET", "/healthz")).text == "ok"
    counted = 'orch_healthchecks_total{name="ping",status="success",type="healthz"} 1\n'
    assert counted in (await agent.ask("GET", "/metrics/slis")).text
    assert (await agent.ask("DELETE", "/metrics/slis")).text == "metrics reset\n"
    assert "orch_healthcheck" not in (await agent.ask("GET", "/metrics/slis")).text


async def test_a_failing_check_is_named_and_its_reason_withheld(agent: Agent) -> None:
    def fails() -> None:
        raise CheckFailed("the disk is on fire")

    agent.services.health.add("disk", fails)
    answer = await agent.ask("GET", "/healthz")
    assert answer.status == 500
    assert answer.text == ("[+]ping ok\n[-]disk failed: reason withheld\nhealthz check failed\n")
    assert (await agent.ask("GET", "/healthz/disk")).status == 500
    assert (await agent.ask("GET", "/healthz/none")).status == 404


# ---- the form of /stats/summary (nodeagent.md §1)

FORM = "application/x-www-form-urlencoded"
ONLY = "only_cpu_and_memory=true"
PARTS = b'--b\r\nContent-Disposition: form-data; name="only_cpu_and_memory"\r\n\r\ntrue\r\n--b--'
FORMS = [  # query, content type, body, only cpu and memory?
    ("", "", b"", False),
    ("", FORM, b"", False),
    ("", FORM, ONLY.encode(), True),
    ("", FORM, b"only_cpu_and_memory=false", False),
    ("", FORM, b"only_cpu_and_memory=True", False),
    ("", FORM, b"only_cpu_and_memory=1", False),
    ("", FORM, f"{ONLY}&{ONLY}".encode(), False),  # honoured only when it is the one value
    (f"?{ONLY}", "", b"", True),
    (f"?{ONLY}", FORM, b"", True),
    (f"?{ONLY}&{ONLY}", "", b"", False),
    (f"?{ONLY}", FORM, ONLY.encode(), False),  # query and body are one form
    ("", "application/json", b'{"only_cpu_and_memory": true}', False),  # that is no form
    ("", "multipart/form-data; boundary=b", PARTS, False),  # nor is that, to the reference
    (f"?{ONLY}", "", ONLY.encode(), True),
]


def is_short(answer: Answer) -> bool:
    assert answer.status == 200, answer.text
    return "fs" not in answer.json()["node"]


@pytest.mark.parametrize(("query", "content_type", "body", "short"), FORMS)
async def test_the_short_summary_needs_a_single_true(
    agent: Agent, query: str, content_type: str, body: bytes, short: bool
) -> None:
    headers = {"Content-Type": content_type} if content_type else None
    skip = () if content_type else ("Content-Type",)
    async with agent.session(ADMIN) as ask:
        path = f"/stats/summary{query}"
        answer = await ask("POST", path, data=body, headers=headers, skip_auto_headers=skip)
        assert is_short(answer) is short
        if not body:
            assert is_short(await ask("GET", path)) is short


@pytest.mark.parametrize("body", [b"", b"x=y"])
@pytest.mark.parametrize("query", ["", f"?{ONLY}"])
async def test_a_content_type_that_is_none_fails_the_form(
    agent: Agent, query: str, body: bytes
) -> None:
    # TestFailedParseParamsSummaryHandler posts it without a body
    headers = {"Content-Type": "invalid/content/type"}
    answer = await agent.ask("POST", f"/stats/summary{query}", data=body, headers=headers)
    assert answer.status == 500
    assert "parse form failed" in answer.text
    assert answer.headers["Content-Type"] == TEXT


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (f"{FORM}; charset=klingon", b"a=b"),
        (FORM, b"a=\xff"),
        (FORM + 8_000 * ";", b"a=b"),  # the parser of such a header takes a second
    ],
)
async def test_a_form_that_cannot_be_read_fails_as_one(
    agent: Agent, content_type: str, body: bytes
) -> None:
    headers = {"Content-Type": content_type}
    answer = await agent.ask("POST", "/stats/summary", data=body, headers=headers)
    assert answer.status == 500
    assert "parse form failed" in answer.text


async def test_a_body_above_the_limit_is_refused(agent: Agent) -> None:
    headers = {"Content-Type": FORM}
    body = b"a=" + b"b" * server.MAX_BODY_BYTES
    answer = await agent.ask("POST", "/stats/summary", data=body, headers=headers)
    assert answer.status == 413
    assert "larger than the server accepts" in answer.text


# ---- checkpoints (nodeagent.md §7)


async def test_a_checkpoint_names_its_archive(agent: Agent, tmp_path: Path) -> None:
    answer = await agent.ask("POST", "/checkpoint/shop/web/app?timeout=30")
    assert answer.status == 200
    (path,) = answer.json()["items"]
    assert Path(path).parent == tmp_path / "checkpoints"
    assert Path(path).name.startswith("checkpoint-web_shop-app-")
    assert Path(path).exists()


REFUSED = [
    ("shop/none/app", 404, "pod does not exist"),
    ("other/web/app", 404, "pod does not exist"),
    ("shop/web/none", 404, "container none does not exist"),
    ("shop/..%2fweb/app", 404, "pod does not exist"),
    ("..%2f..%2fetc/web/app", 404, "pod does not exist"),
    ("shop/web/..%2f..%2fapp", 404, "container does not exist: not a container name"),
    ("shop/web/app%0Aforged", 404, "container does not exist: not a container name"),
    ("shop/web/app/more", 404, "404 page not found\n"),
    ("shop/web", 404, "404 page not found\n"),
    ("shop/web/app?timeout=soon", 404, "cannot parse value of timeout parameter"),
]


@pytest.mark.parametrize(("path", "status", "text"), REFUSED)
async def test_an_impossible_checkpoint_is_refused(
    agent: Agent, path: str, status: int, text: str
) -> None:
    answer = await agent.ask("POST", f"/checkpoint/{path}")
    assert (answer.status, answer.text) == (status, text)
    assert answer.headers["Content-Type"] == TEXT
    assert agent.runtime.called("checkpoint_container") == []


async def test_a_container_that_does_not_run_cannot_be_checkpointed(agent: Agent) -> None:
    answer = await agent.ask("POST", "/checkpoint/shop/web/stopped")
    assert answer.status == 500
    expected = "checkpointing of shop/web/stopped failed (container stopped not found)"
    assert answer.text == expected


async def test_a_checkpoint_refused_by_the_runtime_returns_its_error(agent: Agent) -> None:
    agent.runtime.fail("checkpoint_container", "CRIU is not installed")
    answer = await agent.ask("POST", "/checkpoint/shop/web/app")
    assert answer.status == 500
    assert answer.text.startswith("checkpointing of shop/web/app failed (")
    assert "CRIU is not installed" in answer.text


async def test_with_the_feature_off_the_page_does_not_exist(unserved: Agent, pki: Pki) -> None:
    unserved.app = server.secure_app(replace(unserved.services, checkpoints=None))
    async with served(unserved, pki.server(), pki.ca_file) as agent:
        answer = await agent.ask("POST", "/checkpoint/shop/web/app")
    assert (answer.status, answer.text) == (404, "404 page not found\n")

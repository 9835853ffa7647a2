"""Static pods from a real server on loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from nodeagent.pods.sources.url import UrlSource
from orch.component.process import loops
from orch.component.secret import Secret
from orch.wire.podrules import podspec

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: a, image: x}]}\n"
LIST = """
kind: PodList
items:
- metadata: {name: one}
  spec: {containers: [{name: a, image: x}]}
- metadata: {name: two}
  spec: {containers: [{name: a, image: x}]}
"""


class Served:
    """A server whose answer a test sets, and the source that asks it."""

    def __init__(self) -> None:
        self.answer: tuple[int, str] = (200, "")
        self.raw: bytes | None = None  # said instead of an answer, and the connection closed
        self.location = ""
        self.redirects_to = ""
        self.seen: list[tuple[str, str]] = []  # path, Authorization
        self.headers: list[Any] = []
        self.told = 0
        self.asked = 0
        self.source: UrlSource
        self._runner: web.AppRunner
        self._task: asyncio.Task[None]

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._handle)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = port = self._runner.addresses[0][1]
        self.source = UrlSource(
            f"http://user:hidden@127.0.0.1:{port}/pods?key=hidden",
            "node1",
            headers={"X-Token": [Secret("a"), Secret("b")]},
            interval_s=0.02,
        )

    def begin(self) -> None:
        self._task = loops.spawn(self.source.run(self._tell), name="source")

    async def stop(self) -> None:
        await loops.cancel(self._task)
        await self._runner.cleanup()

    async def rounds(self, number: int = 3) -> list[str]:
        """The pods after some more answers."""
        async with asyncio.timeout(30):
            wanted = self.asked + number
            while self.asked < wanted:
                await asyncio.sleep(0.01)
        return [pod.metadata.name for pod in self.source.pods()]

    def _tell(self) -> None:
        self.told += 1

    async def _handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.host, request.headers.get("Authorization", "")))
        self.headers = request.headers.getall("X-Token", [])
        if self.redirects_to and request.path == "/pods":
            return web.Response(status=302, headers={"Location": self.redirects_to})
        self.asked += 1
        if self.raw is not None and request.transport:
            request.transport.write(self.raw)
            request.transport.close()
        return web.Response(status=self.answer[0], text=self.answer[1])


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.start()
    yield served
    await served.stop()


async def test_a_pod_is_taken_from_an_address(served: Served) -> None:
    served.answer = (200, POD % "web")
    served.begin()
    assert await served.rounds() == ["web-node1"]
    assert served.source.ready
    assert served.told == 1, "the same content is not news"
    assert served.headers == ["a", "b"]
    [pod] = served.source.pods()
    assert pod.metadata.annotation("orch.io/config.source") == "http"
    assert podspec.is_static(pod)
    assert not pod.spec.tolerations


async def test_a_list_of_pods_is_taken(served: Served) -> None:
    served.answer = (200, LIST)
    served.begin()
    assert await served.rounds() == ["one-node1", "two-node1"]
    assert len({pod.metadata.uid for pod in served.source.pods()}) == 2


BAD = [
    (500, "", "the server answers 500 Internal Server Error"),
    (200, "kind: [", ":2: did not find"),
    (200, "kind: Service\napiVersion: v1\n", "are not v1 and Pod"),
    (200, LIST + "- metadata: {name: three}\n", ":8: spec.containers: Required value"),
]


@pytest.mark.parametrize(("status", "text", "problem"), BAD)
async def test_what_cannot_be_read_keeps_the_pods_of_before(
    served: Served, caplog: pytest.LogCaptureFixture, status: int, text: str, problem: str
) -> None:
    served.answer = (200, POD % "web")
    served.begin()
    await served.rounds()
    served.answer = (status, text)
    assert await served.rounds() == ["web-node1"]
    assert caplog.text.count("are ignored: ") == 1
    assert problem in caplog.text
    served.answer = (200, POD % "new")
    assert await served.rounds() == ["new-node1"]


async def test_every_outage_and_its_end_are_said_though_the_pods_stay_the_same(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nodeagent.pods.sources.url")
    served.answer = (200, POD % "web")
    served.begin()
    await served.rounds()
    for _ in range(2):
        served.answer = (503, "")
        await served.rounds()
        served.answer = (200, POD % "web")
        await served.rounds()
    said = ["ignored" if "are ignored" in text else "again" for text in caplog.messages]
    assert said == ["ignored", "again", "ignored", "again"]
    assert served.told == 1


async def test_a_server_that_was_never_good_leaves_the_source_unread(served: Served) -> None:
    served.answer = (503, "")
    served.begin()
    assert await served.rounds() == []
    assert not served.source.ready
    assert served.told == 0


async def test_an_empty_answer_means_no_pods_and_is_said(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.answer = (200, POD % "web")
    served.begin()
    await served.rounds()
    served.answer = (200, "\n")
    assert await served.rounds() == []
    assert served.source.ready
    assert "answers with nothing" in caplog.text


@pytest.mark.parametrize("head", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n60\r\n",
])  # fmt: skip
async def test_a_body_that_is_cut_short_removes_no_pod(served: Served, head: bytes) -> None:
    served.answer = (200, LIST)
    served.begin()
    await served.rounds()
    served.raw = head + LIST.partition("- metadata: {name: two}")[0].encode()
    assert await served.rounds() == ["one-node1", "two-node1"]


async def test_a_body_that_comes_in_pieces_is_read_to_its_end(served: Served) -> None:
    items = "".join(
        f"- metadata: {{name: p{n}}}\n  spec: {{containers: [{{name: a, image: x{'y' * 500}}}]}}\n"
        for n in range(500)
    )
    served.answer = (200, f"kind: PodList\nitems:\n{items}")
    served.begin()
    assert len(await served.rounds(2)) == 500


async def test_what_is_secret_in_the_address_is_not_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.answer = (503, "")
    served.begin()
    await served.rounds()
    served.raw = b"nonsense\r\n\r\n"
    await served.rounds()
    assert served.seen[0][1] == "Basic dXNlcjpoaWRkZW4="
    assert f"http://127.0.0.1:{served.port}/pods?…" in caplog.text
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", True), ("localhost", False)])
async def test_secrets_follow_a_redirect_on_the_same_origin_only(
    served: Served, host: str, shown: bool
) -> None:
    served.answer = (200, POD % "web")
    served.redirects_to = f"http://{host}:{served.port}/elsewhere"
    served.begin()
    assert await served.rounds() == ["web-node1"]
    last = [auth for seen, auth in served.seen if seen.startswith(host)][-1]
    assert bool(last) is shown
    if not shown:
        assert "Basic" in served.seen[0][1]


@pytest.mark.parametrize("url", ["ftp://x/y", "pods.yaml", "http://", "http://h:99999/hidden"])
def test_what_is_no_web_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="not an address") as refused:
        UrlSource(url, "node1")
    assert "hidden" not in str(refused.value)


async def test_a_field_that_does_nothing_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.answer = (
        200,
        "kind: PodList\nitems:\n- metadata: {name: p}\n  spek: {}\n"
        "  spec: {containers: [{name: a, image: x}]}\n",
    )
    served.begin()
    assert len(await served.rounds()) == 1
    assert "spek: there is no such field; it is ignored (did you mean spec?)" in caplog.text

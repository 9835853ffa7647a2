"""Static pods from a real server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from nodeagent.pods import manifests
from nodeagent.pods.urlsource import UrlSource
from orch.component import loops
from orch.component.secret import Secret

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
        self.headers: list[Any] = []
        self.told = 0
        self.asked = 0
        self.source: UrlSource
        self._runner: web.AppRunner
        self._task: asyncio.Task[None]

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/pods", self._handle)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.source = UrlSource(
            f"http://127.0.0.1:{port}/pods",
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
        async with asyncio.timeout(5):
            wanted = self.asked + number
            while self.asked < wanted:
                await asyncio.sleep(0.01)
        return [pod.metadata.name for pod in self.source.pods()]

    def _tell(self) -> None:
        self.told += 1

    async def _handle(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.headers = request.headers.getall("X-Token")
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
    assert manifests.is_static(pod)
    assert not pod.spec.tolerations


async def test_a_list_of_pods_is_taken(served: Served) -> None:
    served.answer = (200, LIST)
    served.begin()
    assert await served.rounds() == ["one-node1", "two-node1"]
    assert len({pod.metadata.uid for pod in served.source.pods()}) == 2


BAD = [
    (500, "", "the server answers 500 Internal Server Error"),
    (200, "kind: [", "/pods:2: did not find"),
    (200, "kind: Service\napiVersion: v1\n", "are not v1 and Pod"),
    (200, LIST + "- metadata: {name: three}\n", "/pods:8: spec.containers: at least one"),
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

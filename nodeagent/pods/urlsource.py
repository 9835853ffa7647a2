"""Static pods from a web address: one Pod or a PodList, asked for again and again.

What the server sends last that can be read is what counts: an error, an answer other than 200 or
content that is wrong keeps the pods of before. An empty answer means no pods, as it does for the
reference agent (config/http.go). Identical content is not read twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import aiohttp

from nodeagent.pods import manifests
from nodeagent.pods.manifests import ManifestError, Origin
from nodeagent.pods.sources import Changed
from orch.component import clock, yamlfile
from orch.component.clock import Now
from orch.component.loops import Periodic
from orch.component.secret import Secret
from orch.component.yamlfile import Document, YamlError
from orch.wire.pods import Pod

log = logging.getLogger(__name__)

INTERVAL_S = 20.0
TIMEOUT_S = 10.0


class UrlSource:
    """`headers` may have several values under one name."""

    name = manifests.URL

    def __init__(
        self,
        url: str,
        node_name: str,
        *,
        headers: Mapping[str, Sequence[Secret]] | None = None,
        interval_s: float = INTERVAL_S,
        now: Now = clock.utc_now,
    ) -> None:
        self._url = url
        self._node_name = node_name
        self._headers = headers or {}
        self._interval_s = interval_s
        self._now = now
        self._pods: tuple[Pod, ...] = ()
        self._content: bytes | None = None  # as read last; None before the first good answer
        self._problem = ""

    @property
    def ready(self) -> bool:
        return self._content is not None

    @property
    def doubtful(self) -> bool:
        return False  # not ready covers it: nothing is removed before the first good answer

    def pods(self) -> Sequence[Pod]:
        return self._pods

    async def run(self, changed: Changed) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:

            async def step() -> None:
                if await self._ask(session):
                    changed()

            await Periodic("pods.url", step, interval_s=self._interval_s).run()

    async def _ask(self, session: aiohttp.ClientSession) -> bool:
        """Ask once; True when there is something new, the first answer included."""
        try:
            content = await self._fetch(session)
            if content == self._content:
                return False
            pods = self._read(content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return self._say(f"cannot ask {self._url} for pods: {error or 'no answer in time'}")
        except ManifestError as error:
            return self._say(f"pods from {self._url} are ignored: {error}")
        if self._problem:
            log.info("%s answers with pods again", self._url)
        self._problem = ""
        if not content.strip():
            self._say(f"{self._url} answers with nothing: no pods are taken from there")
        self._pods, self._content = pods, content
        return True

    async def _fetch(self, session: aiohttp.ClientSession) -> bytes:
        listed = [(k, v.reveal()) for k, values in self._headers.items() for v in values]
        async with session.get(self._url, headers=listed) as response:
            if response.status != 200:
                raise ManifestError(f"the server answers {response.status} {response.reason}")
            content = await response.content.read(yamlfile.MAX_BYTES + 1)
            if len(content) > yamlfile.MAX_BYTES:
                raise ManifestError(f"more than {yamlfile.MAX_BYTES // 2**20} MiB")
            return content

    def _read(self, content: bytes) -> tuple[Pod, ...]:
        if not content.strip():
            return ()
        try:
            document = yamlfile.parse_yaml(content, source=self._url)
        except YamlError as error:
            raise ManifestError(str(error)) from None
        origin = Origin(manifests.URL, self._url, self._node_name, self._now())
        value = document.value
        if not isinstance(value, dict) or value.get("kind") != "PodList":
            return (manifests.static_pod(document, origin),)
        return tuple(
            manifests.static_pod(_item(document, index, item), origin)
            for index, item in enumerate(value.get("items") or ())
        )

    def _say(self, problem: str) -> bool:
        if problem != self._problem:
            log.error("%s", problem)
        self._problem = problem
        return False


def _item(document: Document, index: int, item: object) -> Document:
    """One pod of a list as a document of its own; its lines are those of the list."""
    prefix = ("items", index)
    lines = {path[2:]: line for path, line in document.lines.items() if path[:2] == prefix}
    if isinstance(item, dict):
        item = {"apiVersion": "v1", "kind": "Pod", **item}
    return Document(document.source, item, lines)

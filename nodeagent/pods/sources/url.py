"""Static pods from a URL: a Pod or a PodList, fetched at an interval.

The last valid response counts: after an error, a status other than 200, or content that is invalid
or truncated, the pods stay as they are. An empty response means no pods, as for the reference agent
(config/http.go). Identical content is not parsed again. Logs show the URL without parts that may be
secret, and the configured headers never follow a redirect to another origin.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import aiohttp
from yarl import URL

from nodeagent.config.fields import web_address
from nodeagent.pods.sources import manifests
from nodeagent.pods.sources.manifests import ManifestOrigin, PodFileError
from nodeagent.pods.sources.source import Changed
from orch.component import yaml_file
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.component.secret import Secret
from orch.component.yaml_file import Document, YamlError
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

INTERVAL_S = 20.0
TIMEOUT_S = 10.0
_MAX_REDIRECTS = 10


class UrlSource:
    """`headers` may have several values under one name."""

    name = podspec.URL

    def __init__(
        self,
        url: str,
        node_name: str,
        *,
        headers: Mapping[str, Sequence[Secret]] | None = None,
        interval_s: float = INTERVAL_S,
        now: Now = clock.utc_now,
    ) -> None:
        self._url = web_address(url)
        self._shown = shown_address(self._url)
        self._node_name = node_name
        self._headers = headers or {}
        self._interval_s = interval_s
        self._now = now
        self._pods: tuple[Pod, ...] = ()
        self._content: bytes | None = None  # None before the first valid response
        self._outage = OnceLog(log, logging.ERROR)

    @property
    def ready(self) -> bool:
        return self._content is not None

    @property
    def incomplete(self) -> bool:
        return False  # it is not ready before the first valid response, and that covers it

    def pods(self) -> Sequence[Pod]:
        return self._pods

    async def run(self, changed: Changed) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:

            async def step() -> None:
                if await self._poll(session):
                    changed()

            await Periodic("pods.url", step, interval_s=self._interval_s).run()

    async def _poll(self, session: aiohttp.ClientSession) -> bool:
        """Fetch once; True when the content is new, or the first."""
        try:
            content = await self._fetch(session)
            pods = self._pods if content == self._content else self._read(content)
        except PodFileError as error:
            self._outage.failed("pods from %s are ignored: %s", self._shown, error)
            return False
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._outage.failed("cannot ask %s for pods: %s", self._shown, _cause(error))
            return False
        if content.strip():
            self._outage.recovered("%s answers with pods again", self._shown)
        else:
            text = "%s answers with nothing: no pods are taken from there"
            self._outage.failed(text, self._shown)
        is_new = content != self._content
        self._pods, self._content = pods, content
        return is_new

    async def _fetch(self, session: aiohttp.ClientSession) -> bytes:
        url = self._url
        for _ in range(_MAX_REDIRECTS):
            async with self._get(session, url) as response:
                if location := _redirection(response):
                    url = url.join(URL(location))
                    continue
                if response.status != 200:
                    raise PodFileError(f"the server answers {response.status} {response.reason}")
                return await _content(response)
        raise PodFileError(f"the server redirects more than {_MAX_REDIRECTS} times")

    def _get(
        self, session: aiohttp.ClientSession, url: URL
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Secrets are sent to the configured origin alone."""
        if url.origin() != self._url.origin():
            return session.get(url.with_user(None), allow_redirects=False)
        listed = [(k, v.reveal()) for k, values in self._headers.items() for v in values]
        if self._url.user is not None:
            auth = aiohttp.encode_basic_auth(self._url.user, self._url.password or "")
            listed.append(("Authorization", auth))
        return session.get(url.with_user(None), headers=listed, allow_redirects=False)

    def _read(self, content: bytes) -> tuple[Pod, ...]:
        if not content.strip():
            return ()
        try:
            document = yaml_file.parse_yaml(content, source=self._shown)
        except YamlError as error:
            raise PodFileError(str(error)) from None
        origin = ManifestOrigin(podspec.URL, self._shown, self._node_name, self._now())
        value = document.value
        if not isinstance(value, dict) or value.get("kind") != "PodList":
            read = [manifests.static_pod(document, origin)]
        else:
            items = enumerate(value.get("items") or ())
            read = [manifests.static_pod(_item(document, i, item), origin) for i, item in items]
        for text in (text for manifest in read for text in manifest.ignored):
            log.warning("%s", text)
        return tuple(manifest.pod for manifest in read)


def _item(document: Document, index: int, item: object) -> Document:
    """One pod of a list as a document, with the line numbers of the list."""
    prefix = ("items", index)
    lines = {path[2:]: line for path, line in document.lines.items() if path[:2] == prefix}
    if isinstance(item, dict):
        item = {"apiVersion": "v1", "kind": "Pod", **item}
    return Document(document.source, item, lines)


def shown_address(url: URL) -> str:
    """The URL without user, password and query, which may be secret."""
    plain = url.with_user(None).with_fragment(None)
    return f"{plain.with_query(None)}?…" if plain.query_string else str(plain)


def _cause(error: BaseException) -> str:
    """The error's text; only its kind where the text would repeat the whole URL."""
    if isinstance(error, ValueError):
        return "it redirects to what is no address"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is not HTTP: {error.message.splitlines()[0]}"
    return str(error) or "no answer in time"


def _redirection(response: aiohttp.ClientResponse) -> str:
    location = response.headers.get("Location", "")
    return location if response.status in (301, 302, 303, 307, 308) else ""


async def _content(response: aiohttp.ClientResponse) -> bytes:
    """The whole body; ClientPayloadError when it is truncated."""
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > yaml_file.MAX_BYTES:
            raise PodFileError(f"more than {yaml_file.MAX_BYTES // 2**20} MiB")
    return bytes(content)

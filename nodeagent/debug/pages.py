"""Fetches pages of the agent on this host for the debug bundle, with the operator's credential.

The agent's certificate file is pinned, so that no CA is needed. A page that cannot be fetched
contains the error instead.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nodeagent.debug.bundle import MAX_BYTES, Entry
from orch.client import answers

if TYPE_CHECKING:
    import aiohttp

_TIMEOUT_S = 30.0
# Not /pods: the environment of containers holds secrets that nothing marks as such.
PAGES = (
    "/healthz?verbose", "/statusz", "/flagz", "/configz", "/metrics", "/metrics/slis",
    "/metrics/resource", "/stats/summary",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgentEndpoint:
    """Where the agent serves, its certificate, and the operator's credentials."""

    address: str
    port: int
    serving_cert: str
    client_cert: str = ""
    client_key: str = ""
    token_file: str = ""


async def page_entries(target: AgentEndpoint) -> list[Entry]:
    """One entry for each page, whatever its status."""
    import aiohttp

    host = f"[{target.address}]" if ":" in target.address else target.address
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        context, headers = _context(target), dict(_headers(target))
    except ValueError as error:
        return [("pages/error.txt", f"the agent cannot be queried: {error}\n".encode())]
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=timeout
    ) as session:
        base = f"https://{host}:{target.port}"
        return [(_name(page), await _page(session, f"{base}{page}")) for page in PAGES]


async def _page(session: aiohttp.ClientSession, url: str) -> bytes:
    import aiohttp

    try:
        async with session.get(url, allow_redirects=False) as response:
            body = await answers.beginning(response, MAX_BYTES)
            if response.status != 200:
                return f"{url}: {response.status}\n".encode() + body
            return body
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"{url}: {str(error) or 'no answer in time'}\n".encode()


def _context(target: AgentEndpoint) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the certificate itself is pinned
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with _reading(f"the agent's own certificate {target.serving_cert} (--tls-cert-file)"):
        context.load_verify_locations(target.serving_cert)
    if target.client_cert:
        pair = f"{target.client_cert} and its key {target.client_key or target.client_cert}"
        with _reading(f"the client certificate {pair}"):
            context.load_cert_chain(target.client_cert, target.client_key or None)
    return context


def _headers(target: AgentEndpoint) -> Iterator[tuple[str, str]]:
    if target.token_file:
        with _reading(f"the token file {target.token_file}"):
            token = Path(target.token_file).read_text().strip()
        yield "Authorization", f"Bearer {token}"


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    """Names the file that cannot be read, which `ssl` does not."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ValueError(f"cannot read {what}: {why}") from None


def _name(page: str) -> str:
    return f"pages/{page.partition('?')[0].strip('/').replace('/', '-')}.txt"

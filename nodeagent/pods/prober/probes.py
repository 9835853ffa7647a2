"""Runs one probe of a container: a command in it, an HTTP or gRPC request, or a connection to it.

True and False are results; when the runtime refuses or does not answer there is no result (None). A
command costs the runtime a process or two, a request up to milliseconds of the event loop: beyond a
rate they wait, and namespaces and pods take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import aiohttp

from nodeagent.pods.prober import grpc, results
from nodeagent.runtime.base import (
    ContainerRuntime,
    RuntimeCallError,
    RuntimeTimeout,
    RuntimeUnavailable,
)
from orch.client.resolver import Resolver
from orch.component import tls
from orch.component.http import tcp
from orch.component.http.fair_queue import Pace
from orch.component.http.short_heads import ShortHeads
from orch.wire import validation
from orch.wire.records.handlers import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from orch.wire.records.pods import Container, Pod

COMMANDS_PER_S = 8 * (os.cpu_count() or 1)  # each takes a processor for about 50 ms
REQUESTS_PER_S, REQUESTS_AT_ONCE = 400, 4  # 110 pods may have three probes each second
USER_AGENT = "orch-probe/1.35"
_MAX_BODY_BYTES = 10 * 1024
_MAX_REDIRECTS = 10
_SHOWN = 200
_EXEC_ID = re.compile(r' "[0-9a-f]{64}"')  # differs with each try, so no two would be alike
_SAYS_HOST = {"host", "forwarded", "x-forwarded-host"}
_LACKS = (errno.EAGAIN, errno.EMFILE, errno.ENFILE)
_HANGS_AFTER_S = 5.0  # a working runtime reports at once that a command has timed out


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """A running container; `address` is its pod's, and the node's `on_host` network."""

    container_id: str
    container: Container
    address: str
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """`good` None: the probe could not run and has no result.

    `text` is why; "" then means that the runtime is unavailable or hangs: logged elsewhere.
    `warns`: it is good, and its text is worth an event all the same.
    """

    good: bool | None
    text: str = ""
    warns: bool = False


class Prober:
    """Owns an HTTP session; `close` it at the end.

    Without `any_host` requests go to the pod itself only (probeHostPolicy: pod). Names are resolved
    apart from the loop's threads: a pod may name a host whose resolver never answers.
    """

    def __init__(self, runtime: ContainerRuntime, *, any_host: bool = True) -> None:
        self._runtime = runtime
        self._any_host = any_host
        self._session: aiohttp.ClientSession | None = None
        self._names = Resolver()
        self._tls = tls.client_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._commands = Pace(COMMANDS_PER_S, COMMANDS_PER_S)
        self._requests = Pace(REQUESTS_PER_S, REQUESTS_AT_ONCE)

    async def wait_turn(self, pod: Pod, probe: Probe) -> None:
        """Wait until a probe of the pod may begin."""
        pace = self._requests if probe.exec is None else self._commands
        async with pace.turn(pod.metadata.namespace, pod.metadata.uid):
            pass

    async def check(self, target: ProbeTarget, probe: Probe) -> Outcome:
        """Probe once, within the probe's own time limit."""
        timeout_s = results.timeout_s(probe)
        if not self._any_host and (why := _leaves_pod(target, probe)):
            return Outcome(None, f"{why} (probeHostPolicy of this node: pod)")
        try:
            if probe.exec is not None:
                return await self._exec(target, probe.exec, timeout_s)
            async with asyncio.timeout(timeout_s):
                if probe.httpGet is not None:
                    return await self._http(target, probe.httpGet)
                if probe.tcpSocket is not None:
                    return await self._tcp(target, probe.tcpSocket)
                if probe.grpc is not None:
                    return await _grpc(target, probe.grpc, timeout_s)
        except TimeoutError:
            return Outcome(False, f"no answer within {timeout_s} s")
        except ValueError as error:
            return Outcome(None, str(error))
        except OSError as error:
            return _failed("look up the host", error)
        given = ", ".join(key for key in probe.to_wire() if not key.endswith("onds")) or "nothing"
        supported = "exec, httpGet, tcpSocket or grpc"
        return Outcome(None, f"the probe {given} is not supported; use {supported}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _exec(self, target: ProbeTarget, action: ExecAction, timeout_s: int) -> Outcome:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            result = await self._runtime.exec_sync(
                target.container_id, action.command, timeout_s=timeout_s
            )
        except RuntimeTimeout:
            if loop.time() - began_s > timeout_s + _HANGS_AFTER_S:
                return Outcome(None)
            return Outcome(False, f"the command did not end within {timeout_s} s")
        except RuntimeUnavailable:
            return Outcome(None)
        except RuntimeCallError as error:
            return Outcome(None, _EXEC_ID.sub("", str(error)))
        output = (result.stdout or result.stderr)[:_SHOWN].decode(errors="replace").strip()
        return Outcome(result.exit_code == 0, output or f"exit code {result.exit_code}")

    async def _http(self, target: ProbeTarget, action: HTTPGetAction) -> Outcome:
        port = results.port_number(action.port, target.container)
        host = action.host or target.address
        scheme = (action.scheme or "HTTP").lower()
        path = action.path or "/"
        shown = f"[{host}]" if ":" in host else host
        url = f"{scheme}://{shown}:{port}{path if path.startswith('/') else '/' + path}"
        headers = {"User-Agent": USER_AGENT, "Accept": "*/*"}
        headers.update((h.name, h.value) for h in action.httpHeaders or ())
        try:
            return await self._get(url, headers)
        except (aiohttp.ClientError, OSError) as error:
            return _failed(f"Get {url}", error)

    async def _get(self, url: str, headers: dict[str, str]) -> Outcome:
        """Follow redirects on the same host; one to another host is a success with a warning."""
        host = urlsplit(url).hostname
        for _ in range(_MAX_REDIRECTS):
            async with self._client().get(
                url, headers=headers, allow_redirects=False, ssl=self._tls
            ) as response:
                body = await response.content.read(_MAX_BODY_BYTES)
                if not 200 <= response.status < 400:
                    return Outcome(False, f"HTTP probe failed with statuscode: {response.status}")
                if response.status < 300:
                    return Outcome(True)
                location = response.headers.get("Location")
                url = urljoin(url, location or "")
            if not location or urlsplit(url).hostname != host:
                return Outcome(True, _ends_elsewhere(body), warns=True)
        return Outcome(False, f"stopped after {_MAX_REDIRECTS} redirects")

    async def _tcp(self, target: ProbeTarget, action: TCPSocketAction) -> Outcome:
        port = results.port_number(action.port, target.container)
        outcome, addresses = Outcome(None), [action.host or target.address]
        if validation.address_problems(addresses[0]):
            found = await self._names.resolve(addresses[0], port, socket.AF_UNSPEC)
            addresses = [each["host"] for each in found]
        for address in addresses:
            outcome = await _dial(address, port)
            if outcome.good:
                break
        return outcome

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = ShortHeads(
                force_close=True, limit=0, resolver=self._names, socket_factory=tcp.ShortSocket.of
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),  # a pod could fill it, or see another's
                auto_decompress=False,
            )
        return self._session


def _ends_elsewhere(body: bytes) -> str:
    shown = body[:_SHOWN].decode(errors="replace").strip()
    return f"Probe terminated redirects, Response body: {shown}"


def _failed(what: str, error: aiohttp.ClientError | OSError) -> Outcome:
    """Without a result where the node lacks something, as threads for names."""
    lacks = isinstance(error, OSError) and error.errno in _LACKS
    return Outcome(None if lacks else False, f"{what}: {_cause(error)}")


def _cause(error: aiohttp.ClientError | OSError) -> str:
    """In the system's words: those of asyncio and aiohttp name calls and addresses instead."""
    if isinstance(error, aiohttp.ClientSSLError):
        return str(error.os_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, OSError):
        number = error.errno or 0  # below 0: a name does not resolve
        told = error.strerror or str(error) or "the connection ended"
        return os.strerror(number).lower() if number > 0 else told
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is not HTTP: {error.message.partition(chr(10))[0]}"
    return str(error)


def _leaves_pod(target: ProbeTarget, probe: Probe) -> str:
    """Why the agent would talk to somebody else than the pod, or for somebody else; "" if not."""
    action = probe.httpGet or probe.tcpSocket
    if action is not None and action.host and action.host != target.address:
        return f"host {action.host!r} is not the pod's address {target.address}; leave it out"
    headers = (probe.httpGet and probe.httpGet.httpHeaders) or ()
    names = {header.name.strip().lower() for header in headers}
    if target.on_host and names & _SAYS_HOST:
        return "a pod in the host's network may not choose the Host header of its probes"
    return ""


async def _grpc(target: ProbeTarget, action: GRPCAction, timeout_s: int) -> Outcome:
    port = results.port_number(action.port, target.container)
    problem = await grpc.check(target.address, port, action.service or "", timeout_s)
    return Outcome(not problem, problem)


async def _dial(address: str, port: int) -> Outcome:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError as error:
        return _failed(f"dial {address}:{port}", error)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Outcome(True)

"""Asks the operator's plugins for registries' passwords, and remembers what they said.

The reference's protocol (K:pkg/credentialprovider/plugin): a program gets a request as JSON on its
standard input, and answers on its standard output, for how many images and how long it says. A
plugin that fails is named in the log, and the pull goes on without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO, Any

import orjson

from nodeagent.pods.counts import CREDENTIAL_PLUGIN, PodCounts
from nodeagent.pods.images import keyring
from nodeagent.pods.images.keyring import RegistryLogin
from nodeagent.pods.volumes.tokens import PodIdentity, TokenProblem
from nodeagent.runtime.base import Login
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.component.process.threads import run_in_thread
from orch.component.secret import Secret
from orch.wire import raw, times
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

API_VERSION = "credentialprovider.kubelet.k8s.io/v1"
TIMEOUT_S = 60.0  # the reference's
AT_ONCE = 4  # programs of a plugin that run
MAX_BYTES = 1 << 20  # of an answer
MAX_LOGINS = 100  # in one
MAX_KEPT_BYTES = 16 * MAX_BYTES  # of the answers that are kept, and of what they are kept for
_BLOCK = 1 << 16
# systemd's words to the agent alone
_OWN_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID")
_GLOBAL = ""  # the key of an answer for all images
_RECORD_BYTES = 512  # of a login or an answer, beside its texts


class PluginError(Exception):
    """The plugin gave no answer that can be used; the text says why, without its content."""


@dataclass(frozen=True, slots=True)
class TokenUse:
    """What a plugin wants of the service account of the pod: a token for `audience`, annotations.

    `per_token`: an answer is kept for the token, not for the account. Without `needs_account` it is
    asked for pods without one, too.
    """

    audience: str
    per_token: bool
    needs_account: bool
    required: Sequence[str] = ()
    optional: Sequence[str] = ()


NOBODY = PodIdentity()
# Pod, audience → whom it runs as, with all annotations; None for a pod without an account.
# TokenProblem.
Identify = Callable[[Pod, str], Awaitable[PodIdentity | None]]


@dataclass(frozen=True, slots=True)
class Plugin:
    """`program` is absolute; `patterns` say for which images it is asked."""

    name: str
    program: str
    patterns: Sequence[str]
    keep_s: float  # an answer that does not say for how long
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S
    tokens: TokenUse | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """`key` is what it counts for: an image, a registry, or "" for all; `keep_s` how long."""

    key: str
    keep_s: float
    logins: Sequence[RegistryLogin]


def _key(who: PodIdentity, use: TokenUse | None) -> str:
    """What an answer is kept for; "" for all pods."""
    if use is None or not who.account:
        return ""
    if use.per_token:
        return hashlib.sha256(who.token.reveal().encode()).hexdigest()
    return orjson.dumps((who.account, sorted(who.annotations.items()))).decode()


@dataclass(frozen=True, slots=True)
class _Kept:
    answer: Answer
    until_s: float  # loop time
    size: int


def _size(key: Iterable[str], answer: Answer) -> int:
    """What it takes in memory; a text may take four times its bytes."""
    texts = [*key]
    for place, login in answer.logins:
        texts += place, login.user, login.password.reveal()
    return sum(map(sys.getsizeof, texts)) + _RECORD_BYTES * (1 + len(answer.logins))


class CredentialPlugins:
    """The plugins of a node, in their order."""

    def __init__(
        self, plugins: Sequence[Plugin], counts: PodCounts, identify: Identify | None = None
    ) -> None:
        self._plugins = plugins
        self._counts = counts
        self._identify = identify
        # By plugin, by whom it was asked for, and for what; the oldest first
        self._kept: dict[tuple[str, str, str], _Kept] = {}
        self._kept_bytes = 0
        self._asked: dict[tuple[str, str, str], asyncio.Task[Sequence[RegistryLogin]]] = {}
        self._places = {plugin.name: asyncio.Semaphore(AT_ONCE) for plugin in plugins}
        self._failures = OnceLog(log)

    async def logins(self, image: str, pod: Pod | None = None) -> Sequence[Login]:
        """For the image, the first to try first; never raises."""
        repository = keyring.repository_of(image)
        asked = [
            self._logins_for(plugin, repository, pod)
            for plugin in self._plugins
            if any(keyring.matches(pattern, repository) for pattern in plugin.patterns)
        ]
        found = [login for logins in await asyncio.gather(*asked) for login in logins]
        return keyring.fitting(found, image)

    async def _logins_for(
        self, plugin: Plugin, repository: str, pod: Pod | None
    ) -> Sequence[RegistryLogin]:
        if plugin.tokens is None:
            return await self._logins_of(plugin, repository, NOBODY)
        try:
            who = await self._identity(plugin.tokens, pod)
        except (PluginError, TokenProblem) as error:
            self._note_failure(plugin, error)
            return ()
        return await self._logins_of(plugin, repository, who) if who else ()

    async def _identity(self, use: TokenUse, pod: Pod | None) -> PodIdentity | None:
        """None where the plugin is not asked. PluginError, TokenProblem."""
        found = await self._identify(pod, use.audience) if pod and self._identify else None
        if found is None:
            return None if use.needs_account else NOBODY
        if missing := [key for key in use.required if key not in found.annotations]:
            raise PluginError(
                f"serviceaccount {'/'.join(found.account[:2])} lacks the annotation {missing[0]!r}"
            )
        wanted = {*use.required, *use.optional} & found.annotations.keys()
        return replace(found, annotations={key: found.annotations[key] for key in wanted})

    async def _logins_of(
        self, plugin: Plugin, repository: str, who: PodIdentity
    ) -> Sequence[RegistryLogin]:
        for_whom = _key(who, plugin.tokens)
        kept = self._find(plugin.name, for_whom, repository)
        if kept is not None:
            return kept.logins
        key = plugin.name, for_whom, repository
        if key not in self._asked:  # who comes meanwhile waits for the same answer
            work = self._ask(plugin, repository, who, for_whom)
            task = loops.spawn(work, name=f"plugin {plugin.name}")
            self._asked[key] = task
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(self._asked[key])

    async def _ask(
        self, plugin: Plugin, repository: str, who: PodIdentity, for_whom: str
    ) -> Sequence[RegistryLogin]:
        loop = asyncio.get_running_loop()
        async with self._places[plugin.name]:
            began_s = loop.time()
            try:
                work = partial(ask, plugin, repository, who)
                answer = await run_in_thread(work, name=f"plugin {plugin.name}")
            except (PluginError, OSError) as error:
                self._note_failure(plugin, error)
                return ()
            finally:
                took_s = loop.time() - began_s
                self._counts.timings.observe(CREDENTIAL_PLUGIN, took_s, plugin.name)
        text = "credential provider %s answers again"
        self._failures.recovered(text, plugin.name, subject=plugin.name)
        self._keep(plugin.name, for_whom, answer)
        return answer.logins

    def _note_failure(self, plugin: Plugin, error: Exception) -> None:
        self._counts.credential_plugin_errors[plugin.name] += 1
        text = "credential provider %s: %s; images are pulled without it"
        self._failures.failed(text, plugin.name, error, subject=plugin.name)

    def _find(self, name: str, for_whom: str, repository: str) -> Answer | None:
        now_s = asyncio.get_running_loop().time()
        for key in (repository, _registry(repository), _GLOBAL):
            kept = self._kept.get((name, for_whom, key))
            if kept and now_s < kept.until_s:
                return kept.answer
        return None

    def _keep(self, name: str, for_whom: str, answer: Answer) -> None:
        key = name, for_whom, answer.key
        self._forget(key)
        if not answer.keep_s:
            return
        until_s = asyncio.get_running_loop().time() + answer.keep_s
        kept = self._kept[key] = _Kept(answer, until_s, _size(key, answer))
        self._kept_bytes += kept.size
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[str, str, str]) -> None:
        if kept := self._kept.pop(key, None):
            self._kept_bytes -= kept.size


def ask(plugin: Plugin, repository: str, who: PodIdentity = NOBODY) -> Answer:
    """The answer of one run. PluginError; blocking, up to the timeout."""
    request = {
        "kind": "CredentialProviderRequest",
        "apiVersion": API_VERSION,
        "image": repository,
        **({"serviceAccountToken": who.token.reveal()} if who.account else {}),
        **({"serviceAccountAnnotations": who.annotations} if who.annotations else {}),
    }
    return parse(_run(plugin, orjson.dumps(request)), repository, plugin.keep_s)


def _run(plugin: Plugin, request: bytes) -> bytes:
    own = {name: text for name, text in os.environ.items() if name not in _OWN_VARIABLES}
    try:
        process = subprocess.Popen(
            [plugin.program, *plugin.arguments],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # may quote what it found
            env={**own, **plugin.variables},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise PluginError(f"{plugin.program} cannot be run: {error}") from error
    until_s = time.monotonic() + plugin.timeout_s
    try:
        output = _exchange(process, request, until_s)
        code = process.wait(max(until_s - time.monotonic(), 0.0))
    except (TimeoutError, subprocess.TimeoutExpired):
        raise PluginError(f"has not ended after {plugin.timeout_s:g} s") from None
    finally:
        _end(process)
    if code:
        raise PluginError(f"ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}")
    return output


def _closed() -> IO[bytes]:
    raise AssertionError("the pipe was asked for")


def _exchange(process: subprocess.Popen[bytes], request: bytes, until_s: float) -> bytes:
    """All that it writes, while it takes the request at its own pace, or not at all.

    TimeoutError; PluginError when it is too much.
    """
    stdin, stdout = process.stdin or _closed(), process.stdout or _closed()
    os.set_blocking(stdin.fileno(), False)
    poll = select.poll()
    poll.register(stdin, select.POLLOUT)
    poll.register(stdout, select.POLLIN)
    left, output = memoryview(request), bytearray()
    while len(output) <= MAX_BYTES:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not (ready := dict(poll.poll(left_s * 1000))):
            raise TimeoutError
        if not stdin.closed and stdin.fileno() in ready:
            left = _write(stdin, left)
            if not left:
                poll.unregister(stdin)
                stdin.close()
        if stdout.fileno() in ready:
            block = os.read(stdout.fileno(), _BLOCK)
            if not block:
                return bytes(output)
            output += block
    raise PluginError(f"answered with more than {MAX_BYTES} bytes")


def _write(stdin: IO[bytes], data: memoryview) -> memoryview:
    """What is left to write; nothing if it is not read."""
    try:
        return data[os.write(stdin.fileno(), data[:_BLOCK]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and its children, unless it was waited for: until then its id is that of the group,
    though it may have ended by itself.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()


def parse(output: bytes, repository: str, default_keep_s: float) -> Answer:
    """PluginError unless it is an answer of the kind and version asked for."""
    try:
        answer = orjson.loads(output)
    except ValueError:
        raise PluginError("answered what is not JSON") from None
    said = raw.text(answer, "apiVersion"), raw.text(answer, "kind")
    if said != (API_VERSION, "CredentialProviderResponse"):
        raise PluginError(
            f"answered with apiVersion {said[0][:100]!r} and kind {said[1][:100]!r}, not a "
            f"CredentialProviderResponse of {API_VERSION}"
        )
    keys = {"Image": repository, "Registry": _registry(repository), "Global": _GLOBAL}
    kind = raw.text(answer, "cacheKeyType")
    if kind not in keys:
        raise PluginError(f"cacheKeyType {kind[:100]!r} is not one of {', '.join(keys)}")
    auth = raw.value(answer, "auth")
    keep_s = _keep_s(raw.value(answer, "cacheDuration"), default_keep_s)
    return Answer(keys[kind], keep_s, tuple(_logins(auth if auth is not None else {})))


def _keep_s(given: Any, default_s: float) -> float:
    if given is None:
        return default_s
    try:
        return max(times.parse_duration(given), 0.0) if isinstance(given, str) else _no_duration()
    except ValueError:
        raise PluginError("cacheDuration is not a duration") from None


def _no_duration() -> float:
    raise ValueError("not a text")


def _logins(auth: Any) -> Iterable[RegistryLogin]:
    if not isinstance(auth, dict) or len(auth) > MAX_LOGINS:
        raise PluginError(f"auth is not a map of at most {MAX_LOGINS} registries")
    for location, values in auth.items():
        user, password = raw.value(values, "username"), raw.value(values, "password")
        if not isinstance(user or "", str) or not isinstance(password or "", str):
            raise PluginError("an entry of auth has values that are no texts")
        if place := keyring.place_of(location):
            yield RegistryLogin(place, Login(user or "", Secret(password or "")))


def _registry(repository: str) -> str:
    return repository.partition("/")[0]

"""Counts the modules that a piece of work passes, and its returns into modules already left.

    python -m tools.walks [sample] [lease] [put] [pod]

`sample` is one step of the sampling loop; `lease` and `put` run from socket to socket through the
API server, over TLS; `pod` from a manifest in a directory to the pod's worker. A module counts when
one of its functions runs. A hop is a call into a module that ran before and was left since; each
pair of functions counts once. Work during which the program's loops may run is repeated, and the
shortest walk counts.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from nodeagent.pods.sources.files import FileSource
from nodeagent.pods.worker.worker import PodWorker
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import VolumeTarget
from orch.component.process import clock, loops, threads
from tests.fakes import hosts
from tests.fakes.podworld import PodWorld
from tests.orch.server.harness import LEASES, NAMESPACES, Api, make_pki

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = (f"{ROOT}/nodeagent/", f"{ROOT}/orch/")
ROUNDS = 5
_SETTLING_S = 0.5  # lets the previous pod finish before the next walk


class Walk:
    """Modules in the order of their first call, and the calls that returned into one of them."""

    def __init__(self, *, until: CodeType | None = None) -> None:
        self.modules: list[str] = []
        self.hops: dict[str, None] = {}
        self._until = until
        self._entered = ""

    def note(self, frame: FrameType) -> None:
        """Record a function call."""
        code = frame.f_code
        if code.co_name == "<module>" or not _is_product(code) or _is_resumption(frame):
            return
        module, before = frame.f_globals["__name__"], self._entered
        if module not in self.modules:
            self.modules.append(module)
        elif not before.startswith(f"{module}:"):
            self.hops[f"{before} -> {module}:{code.co_qualname}"] = None
        self._entered = f"{module}:{code.co_qualname}"
        if code is self._until:
            _recorder.walk = None


@functools.cache
def _is_product(code: CodeType) -> bool:
    return code.co_filename.startswith(PRODUCT)


def _is_resumption(frame: FrameType) -> bool:
    """Whether a generator or coroutine continues; the operand of RESUME is 0 at its start."""
    return frame.f_code.co_code[frame.f_lasti + 1] & 3 != 0


class _Recorder:
    """Profiles this thread and those started later, while `walk` is set."""

    walk: Walk | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self.walk is not None:
            self.walk.note(frame)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Threads that are idle already cannot be profiled, so they are occupied until the end."""
        ended = threading.Event()
        for _ in range(threading.active_count()):
            threads.start(lambda: _wait(ended), lambda: None, name="unprofiled")
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            ended.set()

    @contextmanager
    def walking(self, walk: Walk) -> Iterator[Walk]:
        self.walk = walk
        try:
            yield walk
        finally:
            self.walk = None


def _wait(event: threading.Event) -> None:
    event.wait()


_recorder = _Recorder()
recording = _recorder.installed


async def shortest(work: Callable[[], Awaitable[object]], *, until: CodeType | None = None) -> Walk:
    """The shortest walk of `work`, after a first run that does not count."""
    await work()
    walks = []
    for _ in range(ROUNDS):
        with _recorder.walking(Walk(until=until)) as walk:
            await work()
        walks.append(walk)
    return min(walks, key=lambda walk: (len(walk.modules), len(walk.hops)))


async def sample(directory: Path) -> Walk:
    """The first sample of a cgroup v2 node with one pod; nothing is cached yet."""
    root = hosts.copy("v2", directory)
    volume = VolumeTarget("data", str(directory), "emptyDir")
    target = replace(hosts.POD, volumes=(volume,))
    sources = hosts.sources(root, wall_ns=clock.wall_ns)
    sampler = Sampler(targets=lambda: [target], sources=sources)
    with _recorder.walking(Walk()) as walk:
        await sampler.step()
    await sampler.close()
    return walk


async def lease(directory: Path) -> Walk:
    """A node renews its Lease."""
    return await _through_server(directory, _renewal)


async def put(directory: Path) -> Walk:
    """A client replaces any other object, here a ConfigMap."""
    return await _through_server(directory, _replacement)


async def _renewal(api: Api) -> Callable[[], Awaitable[object]]:
    names = {"name": "n1", "namespace": "orch-node-lease"}
    body: dict[str, Any] = {
        "apiVersion": "coordination.orch.io/v1",
        "kind": "Lease",
        "metadata": names,
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40},
    }
    stored = (await api.call("POST", LEASES, body, user="n1")).json

    async def renew() -> None:
        stored["spec"]["renewTime"] = clock.utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        answer = await api.call("PUT", f"{LEASES}/n1", stored, user="n1")
        assert answer.status == 200, answer.text
        stored.update(answer.json)

    return renew


async def _replacement(api: Api) -> Callable[[], Awaitable[object]]:
    path = f"{NAMESPACES}/default/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": ""}}
    stored = (await api.call("POST", path, body)).json

    async def replace() -> None:
        stored["data"]["a"] += "x"
        answer = await api.call("PUT", f"{path}/c", stored)
        assert answer.status == 200, answer.text
        stored.update(answer.json)

    return replace


async def _through_server(
    directory: Path, prepare: Callable[[Api], Awaitable[Callable[[], Awaitable[object]]]]
) -> Walk:
    api = await Api.start(make_pki(directory / "pki", clock.utc_now()), directory / "data")
    try:
        return await shortest(await prepare(api))
    finally:
        await api.stop()


async def pod(directory: Path) -> Walk:
    """A manifest appears; the walk ends when the pod's worker is created."""
    manifests = directory / "manifests"
    manifests.mkdir()
    world = PodWorld(directory, gives_devices=True)
    world.use(FileSource(str(manifests), "node1"))  # type: ignore[arg-type]
    running = loops.spawn(world.workers.run(), name="pods")
    names = iter(range(100))

    async def appear() -> None:
        name = f"web-{next(names)}"
        container = {"name": "app", "image": "localhost/busybox:1"}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                    "spec": {"containers": [container]}}  # fmt: skip
        (manifests / f"{name}.json").write_text(json.dumps(manifest))
        count = len(world.runtime.containers)
        await world.until(lambda: len(world.runtime.containers) > count)
        await asyncio.sleep(_SETTLING_S)

    try:
        return await shortest(appear, until=PodWorker.__init__.__code__)
    finally:
        await loops.cancel(running)


WALKS = {"sample": sample, "lease": lease, "put": put, "pod": pod}


def show(name: str, walk: Walk) -> None:
    print(f"{name}: {len(walk.modules)} modules, {len(walk.hops)} hops")
    for module in walk.modules:
        print(f"    {module}")
    for hop in walk.hops:
        print(f"  back: {hop}")


def main(wanted: list[str]) -> None:
    for name in wanted or WALKS:
        with tempfile.TemporaryDirectory(prefix="walk-") as directory, recording():
            show(name, asyncio.run(WALKS[name](Path(directory))))


if __name__ == "__main__":
    main(sys.argv[1:])

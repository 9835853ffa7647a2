"""How far a request walks through the server, from socket to socket.

A module counts when one of its functions runs. A hop goes back into a module that was left: the
function called next is of another module, and that one ran before; the same two functions count
once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from orch.component.process import clock
from tests.orch.server.harness import LEASES, Api, Pki, lease

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = (f"{ROOT}/nodeagent/", f"{ROOT}/orch/")
ROUNDS = 5  # loops of the server run beside some of them: the shortest counts
MOST_MODULES = 25
MOST_HOPS = 40


@dataclass
class Walk:
    """Modules in the order of their first call, and the calls that went back into one of them."""

    modules: list[str] = field(default_factory=list)
    hops: dict[str, None] = field(default_factory=dict)
    entered: str = ""

    def note(self, frame: FrameType) -> None:
        code = frame.f_code
        resumed = code.co_code[frame.f_lasti + 1] & 3 != 0  # a coroutine that was begun before
        if resumed or not code.co_filename.startswith(PRODUCT):
            return
        module, before = frame.f_globals["__name__"], self.entered
        self.entered = f"{module}:{code.co_qualname}"
        if module not in self.modules:
            self.modules.append(module)
        elif not before.startswith(f"{module}:"):
            self.hops[f"{before} -> {self.entered}"] = None

    def __str__(self) -> str:
        title = f"{len(self.modules)} modules, {len(self.hops)} hops"
        return "\n  ".join((title, *self.modules, *(f"back: {hop}" for hop in self.hops)))


class Recorder:
    """Profiles this thread and those started later, while there is a `walk`."""

    walk: Walk | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self.walk is not None:
            self.walk.note(frame)

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = sys.getprofile()
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)  # type: ignore[arg-type]


async def renewal(recorder: Recorder, api: Api) -> Walk:
    """The shortest walk of a node that renews its Lease; the first time is not counted."""
    held = (await api.call("POST", LEASES, lease(), user="n1")).json
    walks = []
    for _ in range(1 + ROUNDS):
        held["spec"]["renewTime"] = clock.utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        recorder.walk = Walk()
        answer = await api.call("PUT", f"{LEASES}/n1", held, user="n1")
        walks.append(recorder.walk)
        recorder.walk = None
        assert answer.status == 200, answer.text
        held = answer.json
    return min(walks[1:], key=lambda walk: (len(walk.modules), len(walk.hops)))


async def test_a_renewal_of_a_lease_takes_a_short_walk(server_pki: Pki, tmp_path: Path) -> None:
    recorder = Recorder()
    with recorder.installed():
        api = await Api.start(server_pki, tmp_path / "data")
        try:
            walk = await renewal(recorder, api)
        finally:
            await api.stop()
    assert "orch.server.storage.sqlite" in walk.modules, walk
    assert len(walk.modules) <= MOST_MODULES, walk
    assert len(walk.hops) <= MOST_HOPS, walk

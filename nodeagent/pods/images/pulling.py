"""Pulls images: whether one must be pulled, when its turn has come, as whom, and why it fails.

The policies are the reference agent's. Where it refuses a pull above `registryPullQPS`, this one
lets it wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence

from nodeagent.runtime.base import (
    ContainerRuntime,
    Login,
    RuntimeCallError,
    RuntimeTimeout,
    RuntimeUnavailable,
)
from orch.component.http.fair_queue import ANY_TIME_S, Bounds, Pace, Turns
from orch.component.process import loops
from orch.wire.podrules.podspec import ALWAYS, NEVER, pull_policy

PATIENCE_S = 60.0

_REFERENCE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._:/\[\]-]*(?:@[A-Za-z0-9_+.-]+:[0-9a-fA-F]{32,})?", re.ASCII
)


class ImageProblem(Exception):
    """The image is unavailable; `reason` is the waiting reason, the text the cause.

    `event` is what the event says, if that is more.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.event = ""


@contextlib.contextmanager
def _failing_as(reason: str) -> Iterator[None]:
    """Turn a refused call into an ImageProblem; RuntimeUnavailable passes through."""
    try:
        yield
    except RuntimeUnavailable:
        raise
    except RuntimeCallError as error:
        raise ImageProblem(reason, str(error)) from error


async def must_pull(runtime: ContainerRuntime, reference: str, given: str | None) -> bool:
    """Whether the pull policy `given` requires a pull now. ImageProblem; RuntimeUnavailable."""
    if not _REFERENCE.fullmatch(reference):
        raise ImageProblem(
            "InvalidImageName", f"Failed to apply default image tag {reference!r}: not a reference"
        )
    policy = pull_policy(reference, given)
    with _failing_as("ImageInspectError"):
        if policy != ALWAYS and await runtime.image(reference) is not None:
            return False
    if policy == NEVER:
        raise ImageProblem(
            "ErrImageNeverPull",
            f'Container image "{reference}" is not present with pull policy of Never',
        )
    return True


class ImagePulls:
    """The pulls of all pods: `at_once` of them (None: all), `per_s` begin (0: any number), `burst`
    at once after a while without any.

    Namespaces take turns. A pull that takes longer than PATIENCE_S keeps those of its own namespace
    waiting, but no others: a registry may never end its answer.
    """

    def __init__(self, at_once: int | None = None, *, per_s: int = 0, burst: int = 1) -> None:
        most = at_once or sys.maxsize
        self._own = Turns(Bounds(seats_per_flow=most, wait_s=ANY_TIME_S))
        self._places = Turns(Bounds(seats=most, wait_s=ANY_TIME_S))
        self._pace = Pace(per_s, burst)

    async def pull(
        self,
        runtime: ContainerRuntime,
        reference: str,
        logins: Sequence[Login] = (),
        namespace: str = "",
    ) -> float:
        """Seconds it took once its turn had come. ImageProblem; RuntimeUnavailable.

        Every login is tried until one pulls; without any, the registry is told none.
        """
        loop = asyncio.get_running_loop()
        async with self._own.hold(namespace), contextlib.AsyncExitStack() as task:
            async with self._places.hold(namespace):
                async with self._pace.turn(namespace):
                    began_s = loop.time()
                pull = loops.spawn(_pull(runtime, reference, logins), name=f"pull {reference}")
                task.push_async_callback(loops.cancel, pull)
                await asyncio.wait((pull,), timeout=PATIENCE_S)
            try:
                await pull
            finally:
                del pull  # its error holds this frame
        return loop.time() - began_s


async def _pull(runtime: ContainerRuntime, reference: str, logins: Sequence[Login]) -> None:
    problems: dict[str, None] = {}
    for login in logins or (None,):
        try:
            with _failing_as("ErrImagePull"):
                await runtime.pull_image(reference, login)
            return
        except ImageProblem as error:
            if isinstance(error.__cause__, RuntimeTimeout):
                raise  # others wait for their turn
            problems[str(error)] = None
    text = ", ".join(problems)
    raise ImageProblem("ErrImagePull", text if len(problems) == 1 else f"[{text}]")


async def size_bytes(runtime: ContainerRuntime, reference: str) -> int:
    """The size of an image; 0 when unknown. RuntimeUnavailable."""
    try:
        found = await runtime.image(reference)
    except RuntimeUnavailable:
        raise
    except RuntimeCallError:
        return 0
    return found.size_bytes if found else 0

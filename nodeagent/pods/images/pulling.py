"""Pull policies: whether a container's image must be pulled, and why pulling fails."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from nodeagent.runtime.base import ContainerRuntime, RuntimeCallError, RuntimeUnavailable
from orch.wire.podrules.podspec import ALWAYS, NEVER, pull_policy

_REFERENCE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._:/\[\]-]*(?:@[A-Za-z0-9_+.-]+:[0-9a-fA-F]{32,})?", re.ASCII
)


class ImageProblem(Exception):
    """The image is unavailable; `reason` is the waiting reason, the text the cause."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


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


async def pull(runtime: ContainerRuntime, reference: str) -> None:
    """ImageProblem; RuntimeUnavailable."""
    with _failing_as("ErrImagePull"):
        await runtime.pull_image(reference)


async def size_bytes(runtime: ContainerRuntime, reference: str) -> int:
    """The size of an image; 0 when unknown. RuntimeUnavailable."""
    try:
        found = await runtime.image(reference)
    except RuntimeUnavailable:
        raise
    except RuntimeCallError:
        return 0
    return found.size_bytes if found else 0

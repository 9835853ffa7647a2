"""Is a container's image there, or must it be pulled: pull policies and their failures."""

from __future__ import annotations

import re

from nodeagent.runtime.base import ContainerRuntime, RuntimeCallError, RuntimeUnavailable
from orch.wire.podrules.podspec import ALWAYS, NEVER, pull_policy

_REFERENCE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._:/\[\]-]*(?:@[A-Za-z0-9_+.-]+:[0-9a-fA-F]{32,})?", re.ASCII
)


class ImageProblem(Exception):
    """The image cannot be had; `reason` is the waiting reason, the text says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def must_pull(runtime: ContainerRuntime, reference: str, given: str | None) -> bool:
    """Whether the pull policy `given` asks for a pull now. ImageProblem; RuntimeUnavailable."""
    if not _REFERENCE.fullmatch(reference):
        raise ImageProblem(
            "InvalidImageName", f"Failed to apply default image tag {reference!r}: not a reference"
        )
    policy = pull_policy(reference, given)
    if policy != ALWAYS and await _is_present(runtime, reference):
        return False
    if policy == NEVER:
        raise ImageProblem(
            "ErrImageNeverPull",
            f'Container image "{reference}" is not present with pull policy of Never',
        )
    return True


async def pull(runtime: ContainerRuntime, reference: str) -> None:
    """ImageProblem; RuntimeUnavailable."""
    try:
        await runtime.pull_image(reference)
    except RuntimeUnavailable:
        raise
    except RuntimeCallError as error:
        raise ImageProblem("ErrImagePull", str(error)) from error


async def _is_present(runtime: ContainerRuntime, reference: str) -> bool:
    try:
        return await runtime.image(reference) is not None
    except RuntimeUnavailable:
        raise
    except RuntimeCallError as error:
        raise ImageProblem("ImageInspectError", str(error)) from error


async def size_bytes(runtime: ContainerRuntime, reference: str) -> int:
    """How large an image is; 0 where that is not known. RuntimeUnavailable."""
    try:
        found = await runtime.image(reference)
    except RuntimeUnavailable:
        raise
    except RuntimeCallError:
        return 0
    return found.size_bytes if found else 0

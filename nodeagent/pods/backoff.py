"""The failed steps of one pod: what went wrong, and when to try again."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from nodeagent.pods.actions import StepBackoff
from nodeagent.pods.decide.plan import SANDBOX
from nodeagent.pods.resize.changes import RESIZE
from nodeagent.runtime.base import RuntimeCallError, RuntimeUnavailable
from orch.component.process.loops import Backoff

_PULL_REASONS = ("ErrImagePull", "RegistryUnavailable")
_SHOWN = 4096  # characters of a message: it may quote what a pod has chosen, of any length
_FRESH_S = 3.0  # how long a failed pull shows its error before it shows the back-off


class StepFailed(Exception):
    """A step for `subject` (a container's name, `SANDBOX` for the pod as a whole) failed.

    `awaits` is the path of a missing file whose appearance ends the back-off; `event` what the
    event says, "" for the message.
    """

    def __init__(
        self, subject: str, reason: str, message: str, *, awaits: str = "", event: str = ""
    ) -> None:
        super().__init__(message[:_SHOWN])
        self.event = event or message
        self.subject = subject
        self.reason = reason
        self.awaits = awaits

    @property
    def cause(self) -> str:
        """What failed, without figures that differ at each try, such as bytes in use."""
        return re.sub(r"\d+", "", f"{self.reason}: {self}")


@dataclass
class _Failure:
    reason: str
    message: str
    since_s: float
    until_s: float
    awaits: str


@contextlib.asynccontextmanager
async def failing_as(reason: str, subject: str = SANDBOX) -> AsyncIterator[None]:
    """Turn a refused runtime call into a StepFailed; RuntimeUnavailable passes through."""
    try:
        yield
    except RuntimeUnavailable:
        raise
    except RuntimeCallError as error:
        raise StepFailed(subject, reason, str(error)) from error


class StepBackoffs:
    """Failures by subject; times are the event loop's."""

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}
        self._backoffs: dict[str, Backoff] = {}

    def note(self, failed: StepFailed, now_s: float) -> None:
        backoff = self._backoffs.setdefault(failed.subject, _backoff(failed.subject))
        self._failures[failed.subject] = _Failure(
            failed.reason, str(failed), now_s, now_s + backoff.next(), failed.awaits
        )

    def clear(self, subject: str) -> None:
        """The step succeeded."""
        self._failures.pop(subject, None)
        self._backoffs.pop(subject, None)

    def awaited_files(self) -> list[str]:
        """Files whose appearance justifies a retry."""
        return [failure.awaits for failure in self._failures.values() if failure.awaits]

    def retry(self, path: str) -> None:
        """The file appeared: end the back-off of the steps that await it."""
        for failure in self._failures.values():
            if failure.awaits == path:
                failure.until_s = failure.since_s
                failure.awaits = ""

    def active(self, now_s: float) -> dict[str, StepBackoff]:
        """Steps that failed and have not succeeded since."""
        return {
            subject: _step_backoff(failure, now_s) for subject, failure in self._failures.items()
        }


def _backoff(subject: str) -> Backoff:
    return Backoff(1.0, 2.0, 60.0) if subject in (SANDBOX, RESIZE) else Backoff(10.0, 2.0, 300.0)


def _step_backoff(failure: _Failure, now_s: float) -> StepBackoff:
    """A failed pull shows its error at first, then the back-off."""
    remaining_s = max(0.0, failure.until_s - now_s)
    fresh_s = failure.since_s + _FRESH_S - now_s
    if failure.reason not in _PULL_REASONS:
        return StepBackoff(failure.reason, failure.message, remaining_s)
    if fresh_s > 0:
        return StepBackoff(failure.reason, failure.message, min(remaining_s, fresh_s))
    return StepBackoff(
        "ImagePullBackOff", f"Back-off pulling image: {failure.message}", remaining_s
    )

"""A file that keeps what an agent has to know after a restart, with a checksum of its own.

It is replaced in one step, so it is old or new, never half. One that does not fit its checksum was
damaged by somebody else: the agent does not guess what it had granted, and does not start.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nodeagent import descriptors
from orch.component.process import loops
from orch.component.process.atomic_file import replace_file
from orch.component.process.daemon import SetupError
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_MAX_BYTES = 64 * 1024 * 1024


class StateFile:
    """`what` names the contents in errors."""

    def __init__(self, path: str | Path, what: str) -> None:
        self.path = str(path)
        self._what = what
        self._saved: dict[str, Any] | None = {}  # entries that are on disk; None: not known
        self._lock = asyncio.Lock()
        self._unwritten = OnceLog(log, logging.ERROR)

    async def save(self, entries: Callable[[], dict[str, Any]]) -> bool:
        """Wait until the entries as they are now are on disk; False when they cannot be written.
        What is in the file beyond them stays until it is next written. Whoever comes while others
        wait writes for all of them. An entry is replaced, never changed in place.
        """
        async with self._lock:
            snapshot = entries()
            if self._saved is not None and snapshot.items() <= self._saved.items():
                self._saved = snapshot
                return True
            self._saved = None
            try:
                await loops.finish_in_thread(partial(self.write, snapshot), name=self._what)
            except OSError as error:
                text = "cannot keep %s in %s: %s"
                self._unwritten.failed(text, self._what, self.path, error.strerror or error)
                return False
            self._saved = snapshot
            self._unwritten.recovered()
            return True

    def read(self) -> dict[str, Any]:
        """The entries; {} without a file. SetupError for one that cannot be trusted. Blocking."""
        try:
            with os.fdopen(descriptors.open_file(self.path), "rb") as file:
                blob = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._refusal(error.strerror or str(error)) from None
        try:
            found = json.loads(blob)
            data = found["data"]
            if len(blob) > _MAX_BYTES or found["checksum"] != checksum(data):
                raise self._refusal("its checksum does not fit")
            entries = json.loads(data)["entries"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._refusal("it is not a file of this agent, or damaged") from None
        if not isinstance(entries, dict):
            raise self._refusal("it has no entries")
        self._saved = entries
        return entries

    def write(self, entries: dict[str, Any]) -> None:
        """Replace the file. OSError. Blocking."""
        data = json.dumps({"entries": entries}, separators=(",", ":"), sort_keys=True)
        blob = json.dumps({"checksum": checksum(data), "data": data}).encode()
        if len(blob) > _MAX_BYTES:  # the next agent would refuse it
            raise OSError(errno.EFBIG, f"it would have {len(blob)} bytes")
        replace_file(self.path, blob, durable=True)

    def refuse_entry(self, uid: str) -> SetupError:
        return self._refusal(f"the entry of pod {uid[:100]} cannot be read")

    def _refusal(self, why: str) -> SetupError:
        return SetupError(
            f"cannot restore {self._what} from {self.path}: {why}; drain this node, delete the"
            " file and start the agent again"
        )


def checksum(data: str) -> str:
    return hashlib.sha256(data.encode()).hexdigest()

"""The file that keeps allocations, so that no restart gives a device twice.

The first line names the format and holds the SHA-256 of all that follows. A file that cannot be
understood is renamed, never read again: containers that run carry the ids of their devices in an
annotation. It lies outside the plugins' folder, which plugins write to.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from nodeagent.pods.devices.allocation import Allocation
from orch.component.process import loops
from orch.component.process.atomic_file import replace_file

log = logging.getLogger(__name__)

_FORMAT = "device-allocations/1"
_MAX_BYTES = 64 * 1024 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Entry:
    """A container's devices of one resource."""

    pod: str  # its uid
    container: str
    resource: str
    allocation: Allocation


@dataclass(frozen=True)
class Record:
    """All that is kept: allocations, and the resources that had a plugin."""

    entries: tuple[Entry, ...] = ()
    resources: tuple[str, ...] = ()


_RECORD = TypeAdapter(Record)


class LedgerError(Exception):
    """The file is not what was written; the text says why."""


def encode(record: Record) -> bytes:
    body = _RECORD.dump_json(record)
    return f"{_FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def decode(content: bytes) -> Record:
    """LedgerError for what `encode` has not written."""
    head, _, body = content.partition(b"\n")
    expected = f"{_FORMAT} {hashlib.sha256(body).hexdigest()}".encode()
    if head != expected:
        raise LedgerError("the checksum in its first line is not that of the rest")
    try:
        return _RECORD.validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise LedgerError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


class Ledger:
    """`snapshot` returns what is to be kept now."""

    def __init__(self, path: Path, snapshot: Callable[[], Record]) -> None:
        self._path = path
        self._snapshot = snapshot
        self._writing = asyncio.Lock()
        self._wanted = self._written = 0

    async def load(self) -> Record | None:
        """None when there was no file, or none that can be understood, which is then set aside.

        OSError when it cannot be read.
        """
        return await asyncio.to_thread(self._load)

    def changed(self) -> None:
        """What is on disk is not the present state any more."""
        self._wanted += 1

    async def save(self) -> None:
        """Write the present state, whether or not it has changed. OSError."""
        self.changed()
        await self.catch_up()

    async def catch_up(self) -> None:
        """Return when every change until now is on disk; callers share writes. OSError."""
        if self._written >= (mine := self._wanted):
            return
        async with self._writing:
            if self._written >= mine:
                return
            covered, record = self._wanted, self._snapshot()
            await loops.finish_in_thread(lambda: self._save(record), name="device allocations")
            self._written = covered

    def _save(self, record: Record) -> None:
        content = encode(record)
        if len(content) > _MAX_BYTES:
            raise OSError(errno.EFBIG, f"{len(content)} bytes of device allocations")
        replace_file(self._path, content, durable=True)

    def _load(self) -> Record | None:
        try:
            return decode(self._read())
        except FileNotFoundError:
            return None
        except LedgerError as error:
            aside = self._path.with_name(f"{self._path.name}.corrupt")
            os.replace(self._path, aside)
            log.error(
                "the device allocations in %s cannot be used: %s; the file is now %s, and devices"
                " of running containers are taken from the runtime",
                self._path,
                error,
                aside,
            )
            return None

    def _read(self) -> bytes:
        try:
            descriptor = os.open(self._path, _READ)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise LedgerError("it is not a regular file") from error
            raise
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LedgerError("it is not a regular file")
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise LedgerError(f"it has more than {_MAX_BYTES} bytes")
        return content

"""Readers of cgroup files: kept descriptors under a budget, opened by name beyond it.

A reader belongs to one cgroup and returns one sample per call, or None once the cgroup is gone.
A kept descriptor costs a third of opening by name, but also 5 KiB of kernel memory each, hence
the budget. Text that has not changed since the last pass is not parsed again. Everything here
runs in the sampler's worker thread, one pass at a time. Figures: tools/bench/sampling.py.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from nodeagent.stats import assembly, cgrouplimits, layout
from nodeagent.stats.layout import CgroupFile, Layout
from nodeagent.stats.samples import CgroupSample, Settings

READ_BYTES = 4096
_MAYBE_MORE_BYTES = 4000  # the kernel hands out lists a page at a time, cut between two lines
_SETTINGS_INTERVAL_NS = 60_000_000_000
_GONE = (errno.ENODEV, errno.ENOENT)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC

Pread = Callable[[int, int, int], bytes]


class _CgroupGone(Exception):
    """The cgroup of this reader no longer exists, or exists anew."""


class CgroupSource:
    """What all readers share: the layout, how to read, and what went wrong so far.

    `errors` counts failed and unreadable files by file name; `psi` holds, per resource, whether
    cgroups of this host report pressure: supported, disabled (psi=0) or absent.
    """

    def __init__(self, host: Layout, *, pread: Pread, fd_budget: int) -> None:
        self.layout = host
        self.pread = pread
        self.fds_left = fd_budget
        self.errors: Counter[str] = Counter()
        self.psi: dict[str, str] = {}
        self.width = len(host.files)

    def note_failure(self, file: CgroupFile, error: OSError) -> None:
        """Count an error; pressure that the kernel does not offer is no error but a fact."""
        resource = layout.PSI_POSITIONS.get(file.position)
        if resource and error.errno in (errno.EOPNOTSUPP, errno.ENOENT):
            state = "disabled" if error.errno == errno.EOPNOTSUPP else "absent"
            if self.psi.get(resource) != "supported":
                self.psi[resource] = state
        elif error.errno != errno.ENOENT:
            self.errors[file.name] += 1

    def note_value(self, file: CgroupFile, value: Any) -> None:
        """Told of the first value of a file, and of every text that made no sense."""
        if value is None:
            self.errors[file.name] += 1
        elif file.position in layout.PSI_POSITIONS:
            self.psi[layout.PSI_POSITIONS[file.position]] = "supported"


class CgroupReader:
    """Reads one cgroup. Subclasses differ in what they hold open between two passes."""

    __slots__ = ("_due_ns", "_last", "_raw", "_settings", "_values", "path", "shared")
    kept = False

    def __init__(self, shared: CgroupSource, path: str) -> None:
        self.path = path
        self.shared = shared
        self._raw: list[bytes | None] = [None] * layout.POSITIONS
        self._values: list[Any] = [None] * layout.POSITIONS
        self._settings = Settings()
        self._due_ns = 0
        self._last: CgroupSample | None = None

    def read(self, time_ns: int) -> CgroupSample | None:
        """Every number of the cgroup now; None when it does not exist."""
        try:
            if time_ns >= self._due_ns:
                self._refresh(time_ns)
            try:
                return self._sample(time_ns)
            except _CgroupGone:
                self.close()
                self._refresh(time_ns)  # removed, made anew, or only some of its files went
                return self._sample(time_ns)
        except _CgroupGone:
            self.close()
            return None

    def close(self) -> None:
        """Let go of every file."""
        raise NotImplementedError

    def _open_missing(self) -> bool:
        """Open what exists and is not open yet; False when nothing is open then."""
        raise NotImplementedError

    def _read_files(self) -> bool:
        """Read every open file; True when a value changed."""
        raise NotImplementedError

    def _refresh(self, time_ns: int) -> None:
        spread_ns = zlib.crc32(self.path.encode()) % (_SETTINGS_INTERVAL_NS // 2)
        self._due_ns = time_ns + _SETTINGS_INTERVAL_NS - spread_ns
        self._settings = cgrouplimits.read_settings(self.shared.layout, self.path)
        self._last = None
        if not self._open_missing():
            raise _CgroupGone(self.path)

    def _sample(self, time_ns: int) -> CgroupSample:
        changed = self._read_files()
        if changed or self._last is None:
            self._last = assembly.assemble(time_ns, self._values, self._settings)
        else:
            self._last = tuple.__new__(CgroupSample, (time_ns, *self._last[1:]))
        return self._last

    def _wanted(self, file: CgroupFile) -> bool:
        """Bandwidth control counts nothing without a quota."""
        has_quota = self._settings.limits.cpu_quota_usec is not None
        return has_quota or file.position != layout.CPU_THROTTLE

    def _take(self, file: CgroupFile, data: bytes) -> bool:
        position = file.position
        value = file.parse(data)
        if value is None or self._raw[position] is None:
            self.shared.note_value(file, value)
        self._raw[position] = data
        self._values[position] = value
        return True

    def _failed(self, file: CgroupFile, error: OSError) -> bool:
        """True when a value was there before; _CgroupGone when the file was removed."""
        if error.errno in _GONE:
            raise _CgroupGone(self.path) from error
        self.shared.note_failure(file, error)
        known = self._values[file.position] is not None
        self._raw[file.position] = self._values[file.position] = None
        return known


class KeptReader(CgroupReader):
    """Keeps one descriptor per file."""

    __slots__ = ("_open",)
    kept = True

    def __init__(self, shared: CgroupSource, path: str) -> None:
        super().__init__(shared, path)
        self._open: list[tuple[CgroupFile, int, int]] = []

    def close(self) -> None:
        for _, _, fd in self._open:
            os.close(fd)
        self.shared.fds_left += len(self._open)
        self._open = []

    def _open_missing(self) -> bool:
        already = {file.position for file, _, _ in self._open}
        for file in self.shared.layout.files:
            if file.position in already or not self._wanted(file):
                continue
            self._raw[file.position] = self._values[file.position] = None
            try:
                fd = os.open(f"{file.hierarchy}{self.path}/{file.name}", _FLAGS)
            except OSError as error:
                if self._open or error.errno not in _GONE:  # else the cgroup itself is not there
                    self.shared.note_failure(file, error)
            else:
                self._open.append((file, file.position, fd))
                self.shared.fds_left -= 1
        return bool(self._open)

    def _read_files(self) -> bool:
        pread, raw, changed = self.shared.pread, self._raw, False
        for file, position, fd in self._open:
            try:
                data = pread(fd, READ_BYTES, 0)
                if len(data) >= _MAYBE_MORE_BYTES:
                    data = _read_on(pread, fd, data)
            except OSError as error:
                changed |= self._failed(file, error)
                continue
            if data != raw[position]:
                changed = self._take(file, data)
        return changed


class NameReader(CgroupReader):
    """Opens every file by name in every pass."""

    __slots__ = ("_names",)

    def __init__(self, shared: CgroupSource, path: str) -> None:
        super().__init__(shared, path)
        self._names: list[tuple[CgroupFile, str]] = []

    def close(self) -> None:
        self._names = []

    def _open_missing(self) -> bool:
        self._names = []
        for file in self.shared.layout.files:
            name = f"{file.hierarchy}{self.path}/{file.name}"
            if not self._wanted(file):
                continue
            try:
                os.close(os.open(name, _FLAGS))
            except OSError as error:
                self._raw[file.position] = self._values[file.position] = None
                if self._names or error.errno not in _GONE:
                    self.shared.note_failure(file, error)
            else:
                self._names.append((file, name))
        return bool(self._names)

    def _read_files(self) -> bool:
        changed = False
        for file, name in self._names:
            try:
                data = self._content(name)
            except OSError as error:
                changed |= self._failed(file, error)
                continue
            if data != self._raw[file.position]:
                changed = self._take(file, data)
        return changed

    def _content(self, name: str) -> bytes:
        fd = os.open(name, _FLAGS)
        try:
            data = self.shared.pread(fd, READ_BYTES, 0)
            if len(data) >= _MAYBE_MORE_BYTES:
                data = _read_on(self.shared.pread, fd, data)
            return data
        finally:
            os.close(fd)


def _read_on(pread: Pread, fd: int, data: bytes) -> bytes:
    parts = [data]
    size = len(data)
    while part := pread(fd, 16 * READ_BYTES, size):
        parts.append(part)
        size += len(part)
    return b"".join(parts)

"""Reads one cgroup in every pass, through open descriptors or by path.

A reader returns a sample, or None once the cgroup is gone. An open descriptor costs a third of
opening the path, but 5 KiB of kernel memory. Which files exist is `layout`'s business, which
cgroups are read `readers`'. Runs in the sampler's worker thread, one pass at a time.
"""

# Three ways to do less: a text that has not changed is not parsed again; of an idle cgroup (cpu
# time, memory and tasks unchanged) only files that may still change are read; a container is not
# read at all while its pod's cgroup, whose numbers include the container's, shows no change.
# A slow file (memory.stat with a large dentry cache) is skipped until the settings are read again.
# `BENCH_PARTS=steady python -m tools.bench statistics` measures 330 idle containers: 3.7 times the
# CPU when every pass reads everything, 2.3 without skipping files, 2.2 with settings read each
# minute, 1.4 with all containers read (medians, alternating in one run).

from __future__ import annotations

import errno
import logging
import operator
import os
import time
import zlib
from typing import Any, NamedTuple

from nodeagent import psi
from nodeagent.stats.cgroup import layout, sample
from nodeagent.stats.cgroup.layout import CgroupFile, Pread, ReadContext
from nodeagent.stats.samples import CgroupSample, Settings

log = logging.getLogger(__name__)

READ_BYTES = 4096
SLOW_NS = 10_000_000
_TIMED_READS = 3
_MAYBE_MORE_BYTES = 4000  # the kernel returns lists a page at a time, cut between two lines
_SETTINGS_INTERVAL_NS = 60_000_000_000
_MAX_POSTPONED = 4  # while no task of the cgroup runs: then every five minutes
_SETTLED_NS = 5_000_000_000  # the kernel flushes the counters of memory.stat every two seconds
_GONE = (errno.ENODEV, errno.ENOENT)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC


class NoDescriptors(Exception):
    """The process or the machine has run out of descriptors."""


class _CgroupGone(Exception):
    """The cgroup of this reader was removed, and perhaps created again."""


class OpenFile(NamedTuple):
    """`fd` is -1 for a file that is opened by path every time."""

    file: CgroupFile
    position: int
    fd: int
    path: str


class CgroupReader:
    """Reads one cgroup; opens every file by path in every pass."""

    holds_descriptors = False

    def __init__(self, context: ReadContext, path: str) -> None:
        self.path = path
        self.context = context
        self.files: list[OpenFile] = []
        self._reading: list[OpenFile] = []  # in the next pass: all, or those that idling can change
        self._raw: list[bytes | None] = [None] * layout.POSITIONS
        self._values: list[Any] = [None] * layout.POSITIONS
        self._settings = Settings()
        self._settings_due_ns = 0
        self._active_ns = 0  # when it was last active
        self._is_settled = False  # idle for long enough that memory.stat is final
        self._has_run = True  # since the settings were read
        self._postponed = 0  # how often the settings were
        self._is_unchanged = False  # the last pass found the same texts, and all averages at zero
        self._last: CgroupSample | None = None

    def read(self, time_ns: int) -> CgroupSample | None:
        """Every number of the cgroup now; None when it does not exist. May raise NoDescriptors."""
        try:
            if self._settings_are_due(time_ns) and not self._postpone_settings(time_ns):
                self._refresh(time_ns)
            try:
                return self._sample(time_ns)
            except _CgroupGone:
                self.close()
                self._refresh(time_ns)  # removed, created again, or only some files removed
                return self._sample(time_ns)
        except _CgroupGone:
            self.close()
            return None

    def if_unchanged(self, parent: CgroupReader) -> CgroupSample | None:
        """The last sample with a new stamp if `parent` shows no change; None: read this cgroup.

        The parent's numbers include those of this cgroup, so these are unchanged when those are.
        Two changes that cancel out stay unseen until the settings are due. Pressure averages decay
        at different moments in the two cgroups, so both must be zero.
        """
        above, last = parent._last, self._last
        if above is None or last is None or not (parent._is_unchanged and self._is_unchanged):
            return None
        if self._settings_are_due(above.time_ns) or not self._is_included_in(parent):
            return None
        self._last = tuple.__new__(CgroupSample, (above.time_ns, *last[1:]))
        return self._last

    def _is_included_in(self, parent: CgroupReader) -> bool:
        """Whether `parent` reads every number read here; cpu pressure covers a quota's periods."""
        values = parent._values
        read = {file.position for file in parent._reading if values[file.position] is not None}
        for opened in self._reading:
            position = layout.PSI_CPU if opened.position == layout.CPU_THROTTLE else opened.position
            if opened.file.is_stable is not None or position not in read:
                return False
        return self.context.layout.sums

    def forget_texts(self) -> None:
        self._raw = [b""] * layout.POSITIONS

    def close(self) -> None:
        """Close every file."""
        for opened in self.files:
            self._release(opened)
        self.files = []

    def skip_slow_files(self) -> None:
        """Find the files that make the reading slow, and skip them until the next refresh.

        Each is read three more times and the fastest counts, which excludes scheduling delays.
        """
        for opened in tuple(self.files):
            elapsed_ns = self._fastest_read_ns(opened)
            if elapsed_ns >= SLOW_NS:
                self.context.slow[opened.file.name] += 1
                log.warning(
                    "reading %s took %d ms; it keeps its last value for up to a minute",
                    opened.path,
                    elapsed_ns // 1_000_000,
                )
                self._skip(opened)

    def _fastest_read_ns(self, opened: OpenFile) -> int:
        """The fastest of three reads; 0 for an unreadable file, which the next pass reports."""
        times_ns = []
        for _ in range(_TIMED_READS):
            begun_ns = time.perf_counter_ns()
            try:
                self._content(opened)
            except OSError:
                return 0
            times_ns.append(time.perf_counter_ns() - begun_ns)
            if times_ns[-1] < SLOW_NS:
                break
        return min(times_ns)

    def _open(self, path: str) -> int:
        """The descriptor to hold, -1 for none; OSError when there is no such file."""
        os.close(os.open(path, _FLAGS))
        return -1

    def _release(self, opened: OpenFile) -> None:
        """Close what `_open` returned."""

    def _content(self, opened: OpenFile) -> bytes:
        fd = os.open(opened.path, _FLAGS)
        try:
            return _read_all(self.context.pread, fd)
        finally:
            os.close(fd)

    def _read_files(self, files: list[OpenFile]) -> bool:
        """Read these files; True when a value changed."""
        changed = False
        for opened in files:
            try:
                data = self._content(opened)
            except OSError as error:
                changed |= self._failed(opened, error)
                continue
            if data != self._raw[opened.position]:
                changed = self._store(opened.file, data)
        return changed

    def _settings_are_due(self, time_ns: int) -> bool:
        """Whether their time has come, or the clock was set back."""
        return not 0 < self._settings_due_ns - time_ns <= _SETTINGS_INTERVAL_NS

    def _postpone_settings(self, time_ns: int) -> bool:
        """Put the settings off for another interval; False when a task ran, or too often."""
        if self._has_run or self._postponed >= _MAX_POSTPONED:
            return False
        self._postponed += 1
        self._settings_due_ns = time_ns + _SETTINGS_INTERVAL_NS
        self._active_ns, self._is_settled = min(self._active_ns, time_ns), False
        self._reading = self._reading + [
            opened
            for opened in self.files
            if opened.position in layout.CHANGED_FROM_OUTSIDE and opened not in self._reading
        ]
        return True

    def _refresh(self, time_ns: int) -> None:
        """Read the settings again, and open the files that are not open yet."""
        spread_ns = zlib.crc32(self.path.encode()) % (_SETTINGS_INTERVAL_NS // 2)
        self._settings_due_ns = time_ns + _SETTINGS_INTERVAL_NS - spread_ns
        self._has_run, self._postponed = False, 0
        self._settings = sample.read_settings(self.context.layout, self.path)
        self._last = None
        already = {opened.position for opened in self.files}
        for file in self.context.layout.files:
            if file.position not in already and self._is_useful(file):
                self._open_file(file)
        if not self.files:
            raise _CgroupGone(self.path)
        self.files.sort(key=lambda opened: opened.position)
        self._read_all_next(time_ns)

    def _open_file(self, file: CgroupFile) -> None:
        path = f"{file.hierarchy}{self.path}/{file.name}"
        self._raw[file.position] = self._values[file.position] = None
        try:
            fd = self._open(path)
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                raise NoDescriptors(path) from error
            if self.files or error.errno not in _GONE:  # else there is no cgroup at all
                self.context.note_failure(file, error)
        else:
            self.files.append(OpenFile(file, file.position, fd, path))

    def _is_useful(self, file: CgroupFile) -> bool:
        """Bandwidth control counts nothing without a quota."""
        has_quota = self._settings.limits.cpu_quota_usec is not None
        return has_quota or file.position != layout.CPU_THROTTLE

    def _read_due_files(self, time_ns: int) -> bool:
        """Read all files that may have changed; True when a value did."""
        before = self._activity()
        changed = self._read_files(self._reading)
        activity = self._activity()
        if None in activity or any(map(operator.is_not, activity, before)):
            has_run = activity[0] is None or activity[0] is not before[0]
            self._has_run |= has_run and self._last is not None  # the first pass compares nothing
            if self._reading is not self.files:
                others = [opened for opened in self.files if opened not in self._reading]
                changed |= self._read_files(others)
            self._read_all_next(time_ns)
        elif changed or not self._is_settled:
            self._skip_stable_files(time_ns)
        waited = self._raw[layout.PSI_CPU]
        self._is_unchanged = not changed and (waited is None or psi.has_no_averages(waited))
        return changed

    def _activity(self) -> list[bytes | None]:
        raw = self._raw
        return [raw[at] for at in layout.ACTIVITY]

    def _read_all_next(self, time_ns: int) -> None:
        """Make the next pass read every file."""
        self._active_ns, self._is_settled, self._reading = time_ns, False, self.files

    def _skip_stable_files(self, time_ns: int) -> None:
        self._is_settled = time_ns - self._active_ns >= _SETTLED_NS
        self._reading = [opened for opened in self.files if not self._is_stable(opened)]

    def _is_stable(self, opened: OpenFile) -> bool:
        is_stable, text = opened.file.is_stable, self._raw[opened.position]
        if is_stable is None or text is None or not is_stable(text):
            return False
        return self._is_settled or opened.position != layout.MEMORY_STAT

    def _sample(self, time_ns: int) -> CgroupSample:
        changed = self._read_due_files(time_ns)
        if changed or self._last is None:
            self._last = sample.assemble(time_ns, self._values, self._settings)
        else:
            self._last = tuple.__new__(CgroupSample, (time_ns, *self._last[1:]))
        return self._last

    def _store(self, file: CgroupFile, data: bytes) -> bool:
        position = file.position
        value = file.parse(data)
        if value is None or self._raw[position] is None:
            self.context.note_value(file, value)
        self._raw[position] = data
        self._values[position] = value
        return True

    def _failed(self, opened: OpenFile, error: OSError) -> bool:
        """True when a value was there before; _CgroupGone when the file was removed."""
        if error.errno in _GONE:
            raise _CgroupGone(self.path) from error
        if error.errno in _NO_DESCRIPTORS:
            raise NoDescriptors(opened.path) from error
        self.context.note_failure(opened.file, error)
        if error.errno == errno.EOPNOTSUPP:
            self._skip(opened)  # the next pass would fail too
        had_value = self._values[opened.position] is not None
        self._raw[opened.position] = self._values[opened.position] = None
        return had_value

    def _skip(self, opened: OpenFile) -> None:
        self._has_run = True  # the next settings are not postponed, and retry it
        self.files = [other for other in self.files if other is not opened]
        self._read_all_next(self._active_ns)
        self._release(opened)


class DescriptorReader(CgroupReader):
    """Holds one descriptor per file between two passes."""

    holds_descriptors = True

    def _open(self, path: str) -> int:
        fd = os.open(path, _FLAGS)
        self.context.fds_left -= 1
        return fd

    def _release(self, opened: OpenFile) -> None:
        os.close(opened.fd)
        self.context.fds_left += 1

    def _content(self, opened: OpenFile) -> bytes:
        return _read_all(self.context.pread, opened.fd)

    def _read_files(self, files: list[OpenFile]) -> bool:
        # The agent's innermost loop: twelve iterations for every active cgroup in every pass.
        pread, raw, changed = self.context.pread, self._raw, False
        for opened in files:
            file, position, fd, _ = opened
            try:
                data = pread(fd, READ_BYTES, 0)
                if len(data) >= _MAYBE_MORE_BYTES:
                    data = _read_all(pread, fd)
            except OSError as error:
                changed |= self._failed(opened, error)
                continue
            if data != raw[position]:
                changed = self._store(file, data)
        return changed


def _read_all(pread: Pread, fd: int) -> bytes:
    data = pread(fd, READ_BYTES, 0)
    if len(data) < _MAYBE_MORE_BYTES:
        return data
    parts = [data]
    size = len(data)
    while part := pread(fd, 16 * READ_BYTES, size):
        parts.append(part)
        size += len(part)
    return b"".join(parts)

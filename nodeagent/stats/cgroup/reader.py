"""Reading one cgroup, again and again: through kept descriptors, or by name.

A reader returns one sample per call, or None once the cgroup is gone. A kept descriptor costs a
third of opening by name, but also 5 KiB of kernel memory. Text that has not changed since the last
pass is not parsed again. A file that is slow (memory.stat can be, with a large dentry cache) is
left out until the settings are read again, and keeps its last numbers meanwhile. Everything here
runs in the sampler's worker thread, one pass at a time. Figures: tools/bench/sampling.py.
"""

# A cgroup is idle when cpu time, memory and number of tasks are what they were. Of an idle one only
# what changes all the same is read, and the settings less often; of a container nothing at all
# while the pod's own cgroup, which counts what is in it, shows no change.
# `BENCH_PARTS=steady python -m tools.bench statistics` has the figure of 330 idle containers: 3.7
# times as much CPU when everything is read in every pass, 2.3 without leaving out files, 2.2 with
# settings read each minute, 1.4 with all containers read (medians by turns in one run).

from __future__ import annotations

import errno
import logging
import operator
import os
import time
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from nodeagent import psi
from nodeagent.stats.cgroup import layout, sample
from nodeagent.stats.cgroup.layout import CgroupFile, CgroupSource, Pread
from nodeagent.stats.samples import CgroupSample, Settings

log = logging.getLogger(__name__)

READ_BYTES = 4096
SLOW_NS = 10_000_000
_TIMED_READS = 3
_MAYBE_MORE_BYTES = 4000  # the kernel hands out lists a page at a time, cut between two lines
_SETTINGS_INTERVAL_NS = 60_000_000_000
_IDLE_TURNS = 4  # left out while nothing of the cgroup runs: then every five minutes
_SETTLED_NS = 5_000_000_000  # the kernel gathers what memory.stat shows every two seconds
_GONE = (errno.ENODEV, errno.ENOENT)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC


class NoDescriptors(Exception):
    """The process or the machine has no descriptor left to keep."""


class _CgroupGone(Exception):
    """The cgroup of this reader no longer exists, or exists anew."""


class OpenFile(NamedTuple):
    """`fd` is -1 for a file that is opened by name every time."""

    file: CgroupFile
    position: int
    fd: int
    path: str


class CgroupReader:
    """Reads one cgroup. Subclasses differ in what they hold open between two passes."""

    __slots__ = (
        "_active_ns", "_due_ns", "_idle_turns", "_is_settled", "_is_still", "_last", "_ran",
        "_raw", "_reading", "_settings", "_values", "files", "path", "shared",
    )  # fmt: skip
    kept = False

    def __init__(self, shared: CgroupSource, path: str) -> None:
        self.path = path
        self.shared = shared
        self.files: list[OpenFile] = []
        self._reading: list[OpenFile] = []  # in the next pass: all, or what changes while idle, too
        self._raw: list[bytes | None] = [None] * layout.POSITIONS
        self._values: list[Any] = [None] * layout.POSITIONS
        self._settings = Settings()
        self._due_ns = 0
        self._active_ns = 0  # when it was not idle, last
        self._is_settled = False  # that was long enough ago for memory.stat
        self._ran = True  # since the settings were read
        self._idle_turns = 0  # of the settings
        self._is_still = False  # the last pass found every text as it was, and no average to fall
        self._last: CgroupSample | None = None

    def read(self, time_ns: int) -> CgroupSample | None:
        """Every number of the cgroup now; None when it does not exist. May raise NoDescriptors."""
        try:
            if self._is_due(time_ns) and not self._may_stay(time_ns):
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

    def shown_by(self, above: CgroupReader) -> CgroupSample | None:
        """What the reading of the cgroup above shows to be the same still; None: it must be read.

        Its numbers count those of this one, so that none of these changed where none of those did.
        Only two changes that cancel each other out are not seen, until the settings are due. Its
        own averages fall at other moments than those above, and have to be zero as well.
        """
        shown, known = above._last, self._last
        if shown is None or known is None or not (above._is_still and self._is_still):
            return None
        if self._is_due(shown.time_ns) or not self._is_counted_by(above):
            return None
        self._last = tuple.__new__(CgroupSample, (shown.time_ns, *known[1:]))
        return self._last

    def _is_counted_by(self, above: CgroupReader) -> bool:
        """Whether all that is read here is read there; for periods of a quota, pressure."""
        read = {one.position for one in above._reading if above._values[one.position] is not None}
        for one in self._reading:
            position = layout.PSI_CPU if one.position == layout.CPU_THROTTLE else one.position
            if one.file.stays is not None or position not in read:
                return False
        return self.shared.layout.sums

    def close(self) -> None:
        """Let go of every file."""
        for one in self.files:
            self._release(one)
        self.files = []

    def leave_out_slow_files(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """Look which files make the reading slow; they are not read again until the next refresh.

        Each is read three times more for that, and the fastest counts: being held up by others is
        not the file's fault.
        """
        for one in tuple(self.files):
            elapsed_ns = self._time_of(one, now_ns)
            if elapsed_ns >= SLOW_NS:
                self.shared.slow[one.file.name] += 1
                log.warning(
                    "reading %s took %d ms; it keeps its last value for up to a minute",
                    one.path,
                    elapsed_ns // 1_000_000,
                )
                self._leave_out(one)

    def _time_of(self, one: OpenFile, now_ns: Callable[[], int]) -> int:
        """The fastest of three reads; 0 for a file that cannot be read: the next pass meets it."""
        times_ns = []
        for _ in range(_TIMED_READS):
            begun_ns = now_ns()
            try:
                self._content(one)
            except OSError:
                return 0
            times_ns.append(now_ns() - begun_ns)
            if times_ns[-1] < SLOW_NS:
                break
        return min(times_ns)

    def _open(self, file: CgroupFile, path: str) -> int:
        """The descriptor to keep, -1 for none; OSError when there is no such file."""
        raise NotImplementedError

    def _release(self, one: OpenFile) -> None:
        raise NotImplementedError

    def _content(self, one: OpenFile) -> bytes:
        raise NotImplementedError

    def _read_files(self, files: list[OpenFile]) -> bool:
        """Read these files; True when a value changed."""
        raise NotImplementedError

    def _is_due(self, time_ns: int) -> bool:
        """Whether the settings are: it is time, or the clock was set back since."""
        return not 0 < self._due_ns - time_ns <= _SETTINGS_INTERVAL_NS

    def _may_stay(self, time_ns: int) -> bool:
        """Whether the settings are left for another turn: nothing in the cgroup ran since."""
        if self._ran or self._idle_turns >= _IDLE_TURNS:
            return False
        self._idle_turns += 1
        self._due_ns = time_ns + _SETTINGS_INTERVAL_NS
        self._active_ns, self._is_settled = min(self._active_ns, time_ns), False
        self._reading = self._reading + [
            one
            for one in self.files
            if one.position in layout.BY_OTHERS and one not in self._reading
        ]
        return True

    def _refresh(self, time_ns: int) -> None:
        """Read the settings again, and find what there is that is not read yet."""
        spread_ns = zlib.crc32(self.path.encode()) % (_SETTINGS_INTERVAL_NS // 2)
        self._due_ns = time_ns + _SETTINGS_INTERVAL_NS - spread_ns
        self._ran, self._idle_turns = False, 0
        self._settings = sample.read_settings(self.shared.layout, self.path)
        self._last = None
        already = {one.position for one in self.files}
        for file in self.shared.layout.files:
            if file.position not in already and self._wanted(file):
                self._open_one(file)
        if not self.files:
            raise _CgroupGone(self.path)
        self.files.sort(key=lambda one: one.position)
        self._expect_activity(time_ns)

    def _open_one(self, file: CgroupFile) -> None:
        path = f"{file.hierarchy}{self.path}/{file.name}"
        self._raw[file.position] = self._values[file.position] = None
        try:
            fd = self._open(file, path)
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                raise NoDescriptors(path) from error
            if self.files or error.errno not in _GONE:  # else the cgroup itself is not there
                self.shared.note_failure(file, error)
        else:
            self.files.append(OpenFile(file, file.position, fd, path))

    def _wanted(self, file: CgroupFile) -> bool:
        """Bandwidth control counts nothing without a quota."""
        has_quota = self._settings.limits.cpu_quota_usec is not None
        return has_quota or file.position != layout.CPU_THROTTLE

    def _read_due_files(self, time_ns: int) -> bool:
        """Read whatever may have changed; True when a value did."""
        before = self._activity()
        changed = self._read_files(self._reading)
        activity = self._activity()
        if None in activity or any(map(operator.is_not, activity, before)):
            has_run = activity[0] is None or activity[0] is not before[0]
            self._ran |= has_run and self._last is not None  # the first texts of all tell nothing
            changed |= self._read_files([one for one in self.files if one not in self._reading])
            self._expect_activity(time_ns)
        elif changed or not self._is_settled:
            self._leave_out_what_stays(time_ns)
        waited = self._raw[layout.PSI_CPU]
        self._is_still = not changed and (waited is None or psi.has_no_averages(waited))
        return changed

    def _activity(self) -> list[bytes | None]:
        raw = self._raw
        return [raw[at] for at in layout.ACTIVITY]

    def _expect_activity(self, time_ns: int) -> None:
        """Have the next pass read everything."""
        self._active_ns, self._is_settled, self._reading = time_ns, False, self.files

    def _leave_out_what_stays(self, time_ns: int) -> None:
        self._is_settled = time_ns - self._active_ns >= _SETTLED_NS
        self._reading = [one for one in self.files if not self._stays(one)]

    def _stays(self, one: OpenFile) -> bool:
        stays, text = one.file.stays, self._raw[one.position]
        if stays is None or text is None or not stays(text):
            return False
        return self._is_settled or one.position != layout.MEMORY_STAT

    def _sample(self, time_ns: int) -> CgroupSample:
        changed = self._read_due_files(time_ns)
        if changed or self._last is None:
            self._last = sample.assemble(time_ns, self._values, self._settings)
        else:
            self._last = tuple.__new__(CgroupSample, (time_ns, *self._last[1:]))
        return self._last

    def _take(self, file: CgroupFile, data: bytes) -> bool:
        position = file.position
        value = file.parse(data)
        if value is None or self._raw[position] is None:
            self.shared.note_value(file, value)
        self._raw[position] = data
        self._values[position] = value
        return True

    def _failed(self, one: OpenFile, error: OSError) -> bool:
        """True when a value was there before; _CgroupGone when the file was removed."""
        if error.errno in _GONE:
            raise _CgroupGone(self.path) from error
        if error.errno in _NO_DESCRIPTORS:
            raise NoDescriptors(one.path) from error
        self.shared.note_failure(one.file, error)
        if error.errno == errno.EOPNOTSUPP:
            self._leave_out(one)  # it will not be supported in ten seconds either
        known = self._values[one.position] is not None
        self._raw[one.position] = self._values[one.position] = None
        return known

    def _leave_out(self, one: OpenFile) -> None:
        self._ran = True  # so that it is tried again with the next settings
        self.files = [other for other in self.files if other is not one]
        self._expect_activity(self._active_ns)
        self._release(one)


class KeptReader(CgroupReader):
    """Keeps one descriptor per file."""

    __slots__ = ()
    kept = True

    def _open(self, file: CgroupFile, path: str) -> int:
        fd = os.open(path, _FLAGS)
        self.shared.fds_left -= 1
        return fd

    def _release(self, one: OpenFile) -> None:
        os.close(one.fd)
        self.shared.fds_left += 1

    def _content(self, one: OpenFile) -> bytes:
        return _read_all(self.shared.pread, one.fd)

    def _read_files(self, files: list[OpenFile]) -> bool:
        # The innermost loop of the agent: twelve turns for every active cgroup in every pass.
        pread, raw, changed = self.shared.pread, self._raw, False
        for one in files:
            file, position, fd, _ = one
            try:
                data = pread(fd, READ_BYTES, 0)
                if len(data) >= _MAYBE_MORE_BYTES:
                    data = _read_all(pread, fd)
            except OSError as error:
                changed |= self._failed(one, error)
                continue
            if data != raw[position]:
                changed = self._take(file, data)
        return changed


class NameReader(CgroupReader):
    """Opens every file by name in every pass."""

    __slots__ = ()

    def _open(self, file: CgroupFile, path: str) -> int:
        os.close(os.open(path, _FLAGS))
        return -1

    def _release(self, one: OpenFile) -> None:
        pass

    def _content(self, one: OpenFile) -> bytes:
        fd = os.open(one.path, _FLAGS)
        try:
            return _read_all(self.shared.pread, fd)
        finally:
            os.close(fd)

    def _read_files(self, files: list[OpenFile]) -> bool:
        changed = False
        for one in files:
            try:
                data = self._content(one)
            except OSError as error:
                changed |= self._failed(one, error)
                continue
            if data != self._raw[one.position]:
                changed = self._take(one.file, data)
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

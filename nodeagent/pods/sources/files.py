"""Static pods from a directory of manifests, or from one file.

The kernel tells (inotify) when it is worth looking at the directory: at names, sizes and times of
change. A file that changed is read once two looks agree about it, so that one being written is not
taken half; nobody can write to a file without a new time of change. A look at a regular time finds
what the kernel does not tell: changes on network filesystems and behind symbolic links. Where it
tells nothing, and while the path does not exist, there is a look every half second. A file that
turns bad keeps the pod it had; it is logged once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodeagent.pods.sources import manifests
from nodeagent.pods.sources.manifests import ManifestError, Origin
from nodeagent.pods.sources.source import Changed
from orch.component import yaml_file
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.inotify import PathWatch
from orch.component.process.once_log import OnceLog
from orch.component.yaml_file import YamlError
from orch.wire import names
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.5
FULL_INTERVAL_S = 20.0

_Signature = tuple[int, int, int, int]  # inode, size, times of modification and change in ns


@dataclass(frozen=True, slots=True)
class _File:
    """One manifest; `pod` is the last good one, None when there never was one."""

    signature: _Signature | None = None
    digest: bytes = b""  # of the content that was read last; empty when it could not be
    pod: Pod | None = None
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one look found; made in a worker thread, and never changed after."""

    files: Mapping[str, _File] = field(default_factory=dict)
    unread: Mapping[str, _Signature] = field(default_factory=dict)  # changed, not read yet
    is_unlisted: bool = False
    watching: bool = False


class FileSource:
    """`path` need not exist yet; `full_interval_s` is the configuration's fileCheckFrequency."""

    name = podspec.FILE

    def __init__(
        self,
        path: str,
        node_name: str,
        *,
        full_interval_s: float = FULL_INTERVAL_S,
        now: Now = clock.utc_now,
    ) -> None:
        self._path = Path(path)
        self._node_name = node_name
        self._full_interval_s = full_interval_s
        self._now = now
        self._seen = _Seen()
        self._ready = False
        self._changed: Changed | None = None
        self._stirred = asyncio.Event()
        self._watch: PathWatch | None = None
        self._problems = OnceLog(log, logging.ERROR)  # by path; of the listing without one

    @property
    def ready(self) -> bool:
        return self._ready

    @property
    def doubtful(self) -> bool:
        """Some manifest was never good since this source began."""
        return self._seen.is_unlisted or any(
            file.is_bad and file.pod is None for file in self._seen.files.values()
        )

    def pods(self) -> Sequence[Pod]:
        """One pod per good file, in the order of the file names."""
        files = self._seen.files
        held = (files[name].pod for name in sorted(files))
        return [pod for pod in held if pod is not None]

    async def run(self, changed: Changed) -> None:
        self._changed = changed
        try:
            self._watch = PathWatch(self._stirred.set)
        except OSError as error:
            log.info("looking at %s twice a second: %s", self._path, error)
        try:
            while True:
                self._stirred.clear()
                await self.look()
                await self._until_next_look()
        finally:
            if self._watch:
                self._watch.close()

    async def _until_next_look(self) -> None:
        """Never sooner than half a second, however much is written."""
        await asyncio.sleep(LOOK_INTERVAL_S)
        if self._seen.unread or not self._seen.watching:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._full_interval_s):
                await self._stirred.wait()

    async def look(self) -> None:
        """Look once; tell when the set of pods changed, and after the first look."""
        before = [id(pod) for pod in self.pods()]
        self._seen = await asyncio.to_thread(self._look, self._seen)
        first, self._ready = not self._ready, True
        if self._changed and (first or before != [id(pod) for pod in self.pods()]):
            self._changed()

    def _look(self, known: _Seen) -> _Seen:
        watching = self._rewatch()
        try:
            found = self._list()
        except OSError as error:
            text = "cannot list the manifests in %s: %s; pods that came from there stay"
            self._problems.failed(text, self._path, error.strerror)
            return replace(known, is_unlisted=True, watching=watching)
        if known.is_unlisted:
            self._problems.recovered()
        for path in set(known.files) - set(found):
            log.info("manifest %s is gone", path)
            self._problems.recovered(subject=path)
        files: dict[str, _File] = {}
        unread: dict[str, _Signature] = {}
        for path, signature in found.items():
            file = known.files.get(path)
            if self._must_read(file, signature, known.unread.get(path)):
                file = self._read(path, signature, file or _File())
            elif file is None or file.signature != signature:
                unread[path] = signature
            if file is not None:
                files[path] = file
        return _Seen(files, unread, watching=watching)

    def _rewatch(self) -> bool:
        """Watch what the path names now, before it is listed; False where that cannot be."""
        try:
            if self._watch:
                self._watch.watch(str(self._path))
        except OSError:
            return False
        return self._watch is not None

    def _must_read(self, file: _File | None, now: _Signature, unread: _Signature | None) -> bool:
        """At once at the start; a change when it has settled; what could not be read again."""
        if not self._ready:
            return True
        if file is not None and file.signature == now:
            return not file.digest
        return unread == now

    def _list(self) -> dict[str, _Signature]:
        """Path → signature of every manifest; nothing for a path that does not exist."""
        try:
            if not stat.S_ISDIR(self._path.stat().st_mode):
                return {str(self._path): _signature(self._path.stat())}
            entries = sorted(os.scandir(self._path), key=lambda entry: entry.name)
        except FileNotFoundError:
            return {}
        found: dict[str, _Signature] = {}
        for entry in entries:
            try:
                status = entry.stat()
            except OSError:
                continue  # a dangling link, or gone since the listing
            if not entry.name.startswith(".") and stat.S_ISREG(status.st_mode):
                found[entry.path] = _signature(status)
        return found

    def _read(self, path: str, signature: _Signature, file: _File) -> _File | None:
        """The file as it is now, None when it is gone; logs what is new about it."""
        digest = b""
        try:
            digest = _digest(path)
            if digest != file.digest:
                file = self._parsed(path, file)
        except FileNotFoundError:
            self._problems.recovered(subject=path)
            return None
        except (ManifestError, OSError) as error:
            text = str(error) if isinstance(error, ManifestError) else f"{path}: {error.strerror}"
            kept = f"; its pod {file.pod.key} stays as it was" if file.pod else ""
            self._problems.failed("manifest ignored: %s%s", text, kept, subject=path, cause=text)
            file = replace(file, is_bad=True)
        return replace(file, digest=digest, signature=signature)

    def _parsed(self, path: str, file: _File) -> _File:
        """With the pod of a content that is new; ManifestError, OSError."""
        origin = Origin(podspec.FILE, path, self._node_name, self._now())
        pod = read_manifest(Path(path), origin)
        if file.is_bad:
            self._problems.recovered(subject=path)
        if file.pod is None or file.pod.metadata.uid != pod.metadata.uid:
            log.info("manifest %s: pod %s", path, pod.key)
        elif _same(file.pod, pod):
            return replace(file, is_bad=False)
        else:
            log.info("manifest %s: pod %s changed", path, pod.key)
        return replace(file, pod=pod, is_bad=False)


def read_manifest(path: Path, origin: Origin) -> Pod:
    """Read one file. ManifestError for its content; OSError is the caller's."""
    try:
        document = yaml_file.read_yaml_file(path)
    except YamlError as error:
        raise ManifestError(str(error)) from None
    made = manifests.static_pod(document, origin)
    for text in made.ignored:
        log.warning("%s", text)
    return made.pod


def _signature(status: os.stat_result) -> _Signature:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _digest(path: str) -> bytes:
    """Of as much of a file as is ever parsed."""
    with Path(path).open("rb", buffering=0) as stream:
        return hashlib.sha256(stream.read(yaml_file.MAX_BYTES + 1)).digest()


def _same(one: Pod, other: Pod) -> bool:
    """Whether two pods of one uid ask for the same; the time they were seen does not count."""
    return _asked(one) == _asked(other)


def _asked(pod: Pod) -> tuple[object, ...]:
    annotations = dict(pod.metadata.annotations or {})
    annotations.pop(names.ANNOTATION_CONFIG_SEEN, None)
    return pod.spec, pod.metadata.labels, annotations

"""Static pods from a directory of manifests, or from one file.

The directory is scanned (names, sizes, times of change) after inotify events, and at an interval
for changes that cause none: on network filesystems and behind symbolic links. Without inotify, and
while the path does not exist, it is scanned every half second. A changed file is read once two
scans find the same signature, so that a file still being written is not read. A file that becomes
invalid keeps its last pod and is logged once; one that was taken away is gone for a moment at
least, so that its pod ends, even if it is back by the time of the scan.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import operator
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodeagent.pods.sources import manifests
from nodeagent.pods.sources.manifests import ManifestOrigin, PodFileError, PodManifest
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

SCAN_INTERVAL_S = 0.5
FULL_INTERVAL_S = 20.0

_Signature = tuple[int, int, int, int]  # inode, size, times of modification and change in ns


@dataclass(frozen=True, slots=True)
class _File:
    """One manifest; `pod` is from its last valid content, None when there was none."""

    signature: _Signature | None = None
    digest: bytes = b""  # of the content read last; empty when it could not be read
    pod: Pod | None = None
    is_invalid: bool = False


@dataclass(frozen=True, slots=True)
class _Scan:
    """The result of one scan, made in a worker thread."""

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
        self.ready = False
        self._path = Path(path)
        self._node_name = node_name
        self._full_interval_s = full_interval_s
        self._now = now
        self._scanned = _Scan()
        self._pods: list[Pod] = []  # of the last scan
        self._notified = asyncio.Event()  # by inotify
        self._watch: PathWatch | None = None
        self._problems = OnceLog(log, logging.ERROR)  # by path; of the listing without one

    @property
    def incomplete(self) -> bool:
        """Whether some manifest has never been valid since this source began."""
        return self._scanned.is_unlisted or any(
            file.is_invalid and file.pod is None for file in self._scanned.files.values()
        )

    def pods(self) -> Sequence[Pod]:
        """One pod per valid file, in the order of the file names."""
        return self._pods

    async def run(self, changed: Changed) -> None:
        try:
            self._watch = PathWatch(self._notified.set)
        except OSError as error:
            log.info("looking at %s twice a second: %s", self._path, error)
        try:
            while True:
                self._notified.clear()
                if await self.scan():
                    changed()
                await self._until_next_scan()
        finally:
            if self._watch:
                self._watch.close()

    async def _until_next_scan(self) -> None:
        """At least half a second, however often files change."""
        await asyncio.sleep(SCAN_INTERVAL_S)
        if self._scanned.unread or not self._scanned.watching:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._full_interval_s):
                await self._notified.wait()

    async def scan(self) -> bool:
        """Scan once; True when the set of pods changed, and after the first scan."""
        removed = self._watch.take_removed() if self._watch else frozenset[str]()
        self._scanned = await asyncio.to_thread(self._scan, self._scanned, removed)
        is_first, self.ready = not self.ready, True
        files = sorted(self._scanned.files.items())
        before, self._pods = self._pods, [file.pod for _, file in files if file.pod]
        same = len(before) == len(self._pods) and all(map(operator.is_, before, self._pods))
        return is_first or not same

    def _scan(self, known: _Scan, removed: Collection[str] = ()) -> _Scan:
        watching = self._rewatch()
        try:
            found = self._list()
        except OSError as error:
            text = "cannot list the manifests in %s: %s; pods that came from there stay"
            self._problems.failed(text, self._path, error.strerror)
            return replace(known, is_unlisted=True, watching=watching)
        if known.is_unlisted:
            self._problems.recovered()
        left = {path: file for path, file in known.files.items() if Path(path).name not in removed}
        for path in set(known.files) - (left.keys() & found.keys()):
            log.info("manifest %s %s", path, "was taken away" if path in found else "is gone")
            self._problems.recovered(subject=path)
        files: dict[str, _File] = {}
        unread: dict[str, _Signature] = {}
        for path, signature in found.items():
            file = left.get(path)
            if self._must_read(file, signature, known.unread.get(path)):
                file = self._read(path, signature, file or _File())
            elif file is None or file.signature != signature:
                unread[path] = signature
            if file is not None:
                files[path] = file
        return _Scan(files, unread, watching=watching)

    def _rewatch(self) -> bool:
        """Watch the path's current target, before it is listed; False where inotify fails."""
        try:
            if self._watch:
                self._watch.watch(str(self._path))
        except OSError:
            return False
        return self._watch is not None

    def _must_read(self, file: _File | None, now: _Signature, unread: _Signature | None) -> bool:
        """At the start, after a change has settled, or when the last read failed."""
        if not self.ready:
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
                continue  # a dangling link, or deleted since the listing
            if not entry.name.startswith(".") and stat.S_ISREG(status.st_mode):
                found[entry.path] = _signature(status)
        return found

    def _read(self, path: str, signature: _Signature, file: _File) -> _File | None:
        """The file as it is now, None when it is gone; logs its changes."""
        digest = b""
        try:
            content = yaml_file.read_content(Path(path))
            digest = hashlib.sha256(content).digest()
            if digest != file.digest:
                file = self._parsed(path, content, file)
        except FileNotFoundError:
            self._problems.recovered(subject=path)
            return None
        except (PodFileError, OSError) as error:
            text = str(error) if isinstance(error, PodFileError) else f"{path}: {error.strerror}"
            kept = f"; its pod {file.pod.key} stays as it was" if file.pod else ""
            self._problems.failed("manifest ignored: %s%s", text, kept, subject=path, cause=text)
            file = replace(file, is_invalid=True)
        return replace(file, digest=digest, signature=signature)

    def _parsed(self, path: str, content: bytes, file: _File) -> _File:
        """The file with the pod of its new content; PodFileError."""
        pod = parse_manifest(
            content, ManifestOrigin(podspec.FILE, path, self._node_name, self._now())
        )
        if file.is_invalid:
            self._problems.recovered(subject=path)
        if file.pod is None or file.pod.metadata.uid != pod.metadata.uid:
            log.info("manifest %s: pod %s", path, pod.key)
        elif _definition(file.pod) == _definition(pod):
            return replace(file, is_invalid=False)
        else:
            log.info("manifest %s: pod %s changed", path, pod.key)
        return replace(file, pod=pod, is_invalid=False)


def parse_manifest(content: bytes, origin: ManifestOrigin) -> Pod:
    """The static pod of a file's content; PodFileError. Logs the fields that are ignored."""
    return _told(manifests.static_pod(_document(content, origin.place), origin))


def parse_pod(content: bytes, source: str) -> Pod:
    """The pod that a file has, whether or not it may run; PodFileError. Logs as above."""
    return _told(manifests.written_pod(_document(content, source)))


def _document(content: bytes, source: str) -> yaml_file.Document:
    try:
        return yaml_file.parse_yaml(content, source=source)
    except YamlError as error:
        raise PodFileError(str(error)) from None


def _told(manifest: PodManifest) -> Pod:
    for text in manifest.ignored:
        log.warning("%s", text)
    return manifest.pod


def _signature(status: os.stat_result) -> _Signature:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _definition(pod: Pod) -> tuple[object, ...]:
    """The parts that make two pods of the same uid differ; without the time a pod was seen."""
    annotations = dict(pod.metadata.annotations or {})
    annotations.pop(names.ANNOTATION_CONFIG_SEEN, None)
    return pod.spec, pod.metadata.labels, annotations

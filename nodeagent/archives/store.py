"""Brings archives into the store: written under a hidden name, published when complete.

Archives hold the memory of processes. The runtime writes to a hidden name derived from the
container's id; only a complete, private, flushed archive gets its final name, never an existing
one, and its manifest is published first. A marker shows the next start which containers may still
be frozen. Runtimes are careless with the target (containerd 2.1 follows a link, keeps the mode of
an existing file, leaves half a file on a full disk): everything is checked. Blocking I/O.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from nodeagent.archives import folder
from nodeagent.archives.encryption import Encryption, EncryptionError
from nodeagent.archives.folder import StoreError as StoreError
from nodeagent.archives.manifest import (
    DIRECTORY,
    ENCRYPTED_SUFFIX,
    MANIFEST_SUFFIX,
    Manifest,
    ManifestError,
    excess_name_bytes,
    is_archive,
    parse_manifest,
)
from nodeagent.archives.streaming import ArchiveReader, ArchiveTail, FileDigest
from orch.component.process.atomic_file import is_unfinished, replace_file

_PREFIX = ".checkpoint-"
_PARTIAL = ".tar.partial"
_ENCRYPTED = ".tar.age.partial"
_MANIFEST = ".json.partial"
_FILES = (_PARTIAL, _ENCRYPTED, _MANIFEST)
_MARKER = ".pending"
_UNKNOWN = Manifest("")
_OF_RUNTIME = 2  # copies, mostly on the same disk: containerd 2.1 has CRIU's files twice meanwhile


class NameTaken(Exception):
    """The final name of an archive exists already."""


class CheckpointStore:
    """Stores archives encrypted, or with `encryption` None as the runtime wrote them."""

    def __init__(self, root_dir: str, encryption: Encryption | None = None) -> None:
        self._encryption = encryption
        self.path = Path(root_dir, DIRECTORY)
        self._in_progress: dict[str, ArchiveTail | None] = {}
        self._publishing = threading.Lock()

    def prepare(self) -> dict[str, Manifest]:
        """Create the directory and remove unfinished archives of an earlier agent.

        Returns what the markers tell about its interrupted checkpoints, by container id.
        """
        with folder.opened(self.path) as directory:
            for name in filter(is_unfinished, os.listdir(directory)):
                folder.remove(directory, name)
            return self._sweep(directory)

    def begin(self, container_id: str, manifest: Manifest = _UNKNOWN) -> str:
        """Mark a checkpoint as in progress; returns the absolute path for the runtime to write.

        The marker holds `manifest`, for the agent's next start. Also removes archives that a
        runtime went on writing after its checkpoint was cancelled.
        """
        self._cancel_tail(container_id)
        self._in_progress[container_id] = None
        path = self.path / _hidden(container_id, _PARTIAL)
        with folder.opened(self.path) as directory:
            self._sweep(directory)
            folder.remove(directory, path.name)
            _write(directory, _hidden(container_id, _MARKER), manifest)
        self._in_progress[container_id] = self._start_tail(container_id, path)
        return str(path)

    def seal(self, container_id: str) -> FileDigest:
        """Check the archive that the runtime wrote, make it private, encrypt and flush it.

        StoreError: it is not a usable archive, or cannot be encrypted.
        """
        with folder.opened(self.path) as directory:
            archive = _open_written(directory, _hidden(container_id, _PARTIAL))
            try:
                os.fchmod(archive, folder.MODE_FILE)
                tail = self._in_progress[container_id]
                assert tail  # noqa: S101 — begin set it
                digest = tail.finish(archive)
                if self._encryption:  # which removes the plain text
                    names = _hidden(container_id, _ENCRYPTED), _hidden(container_id, _PARTIAL)
                    os.replace(*names, src_dir_fd=directory, dst_dir_fd=directory)
                else:
                    os.fsync(archive)
                return digest
            except EncryptionError as error:
                raise StoreError(str(error)) from error
            finally:
                os.close(archive)

    def publish(self, container_id: str, manifest: Manifest) -> None:
        """Give the sealed archive the manifest's name, and publish the manifest beside it.

        NameTaken: the archive stays hidden; call again with another name.
        """
        with folder.opened(self.path) as directory:
            _write(directory, _hidden(container_id, _MANIFEST), manifest)
            with self._publishing:
                self._link_final_names(directory, container_id, manifest.name)

    def discard(self, container_id: str, *, keep_marker: bool = False) -> None:
        """Remove all hidden files of a checkpoint.

        `keep_marker`: its container may still be frozen, and the next start has to check it.
        """
        self._cancel_tail(container_id)
        self._in_progress.pop(container_id, None)  # files that cannot be removed are swept later
        with folder.opened(self.path) as directory:
            for suffix in _FILES:
                folder.remove(directory, _hidden(container_id, suffix))
            if not keep_marker:
                folder.remove(directory, _hidden(container_id, _MARKER))

    @property
    def suffix(self) -> str:
        """Of the names of archives created here, after `.tar`."""
        return ENCRYPTED_SUFFIX if self._encryption else ""

    @property
    def copies(self) -> int:
        """How many copies of an archive exist during its creation: with encryption, two."""
        return _OF_RUNTIME + (2 if self._encryption else 1)

    def check_name(self, name: str) -> None:
        """StoreError when the name is too long for a file."""
        if over := excess_name_bytes(name):
            raise StoreError(
                f"the archive's name would be {over} bytes longer than the file system can hold; "
                "use shorter pod or container names"
            )

    def _cancel_tail(self, container_id: str) -> None:
        if tail := self._in_progress.get(container_id):
            tail.cancel()

    def _link_final_names(self, directory: int, container_id: str, name: str) -> None:
        """Publish the manifest first: every visible archive has one."""
        beside = name + MANIFEST_SUFFIX
        try:
            folder.link(directory, _hidden(container_id, _MANIFEST), beside)
        except FileExistsError:
            raise NameTaken(name) from None
        try:
            folder.link(directory, _hidden(container_id, _PARTIAL), name)
        except FileExistsError:
            folder.remove(directory, beside)
            raise NameTaken(name) from None
        folder.remove(directory, _hidden(container_id, _PARTIAL))
        folder.remove(directory, _hidden(container_id, _MANIFEST))
        os.fsync(directory)

    def _sweep(self, directory: int) -> dict[str, Manifest]:
        """Remove unfinished files and manifests without archive; returns the markers found."""
        interrupted = {}
        listed = set(os.listdir(directory))
        for name in sorted(listed):
            container_id = _container_of(name)
            if container_id and container_id not in self._in_progress:
                if name == _hidden(container_id, _MARKER):
                    interrupted[container_id] = _marked(directory, name)
                else:
                    folder.remove(directory, name)
            elif name.endswith(MANIFEST_SUFFIX) and not container_id:
                self._remove_stray(directory, name, listed)
        return interrupted

    def _remove_stray(self, directory: int, name: str, listed: set[str]) -> None:
        archive = name.removesuffix(MANIFEST_SUFFIX)
        if archive in listed or not is_archive(archive):
            return
        if folder.read_small(directory, name) is None:
            return  # not a regular file, so not ours
        with self._publishing:  # its archive may be about to appear
            if not os.access(archive, os.F_OK, dir_fd=directory, follow_symlinks=False):
                folder.remove(directory, name)

    def _start_tail(self, container_id: str, path: Path) -> ArchiveTail:
        """Start to digest or encrypt the archive while it is written."""
        encryption = self._encryption
        if encryption is None:
            return ArchiveTail(path)

        def encrypt(reader: ArchiveReader) -> FileDigest:
            name = _hidden(container_id, _ENCRYPTED)
            with folder.opened(self.path) as directory:
                folder.remove(directory, name)
                target = folder.create_file(directory, name, exclusive=True)
                try:
                    digest = encryption.encrypt(reader, target)
                    os.fsync(target)
                finally:
                    os.close(target)
            return digest

        return ArchiveTail(path, encrypt, flush_bytes=0)


def _open_written(directory: int, name: str) -> int:
    """A descriptor of the runtime's archive; StoreError unless it is a regular, filled file."""
    try:
        archive = folder.open_file(directory, name)
    except FileNotFoundError:
        raise StoreError("the runtime reported success but wrote no archive") from None
    except OSError as error:
        raise StoreError(f"the archive cannot be opened: {error.strerror}") from None
    status, problem = os.fstat(archive), ""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        problem = "the runtime wrote something that is not a regular file"
    elif status.st_size == 0:
        problem = "the runtime reported success but wrote an empty archive"
    if problem:
        os.close(archive)
        raise StoreError(problem)
    return archive


def _marked(directory: int, name: str) -> Manifest:
    """The manifest in a marker; an empty one when its agent was killed while writing it."""
    try:
        return parse_manifest(folder.read_small(directory, name) or b"")
    except ManifestError:
        return _UNKNOWN


def _write(directory: int, name: str, manifest: Manifest) -> None:
    replace_file(name, manifest.to_json(), durable=True, directory=directory)


def _hidden(container_id: str, suffix: str) -> str:
    return f"{_PREFIX}{container_id}{suffix}"


def _container_of(name: str) -> str:
    """The container's id in a hidden name; "" for other names."""
    for suffix in (*_FILES, _MARKER):
        if name.startswith(_PREFIX) and name.endswith(suffix):
            return name.removeprefix(_PREFIX).removesuffix(suffix)
    return ""

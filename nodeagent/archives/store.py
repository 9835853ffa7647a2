"""How an archive comes into the store: written under a hidden name, published when it is whole.

Archives hold the memory of processes. The runtime writes to a hidden name derived from the
container's id; only a complete, private, flushed archive gets its final name, and never one that is
taken; its manifest is there before it. A marker beside it says that a checkpoint is under way, so
that the next start knows which containers may have been left frozen. Blocking I/O: call it in a
worker thread.

Runtimes are careless with the target (containerd 2.1 follows a link, keeps the mode of an existing
file and leaves half a file when the disk is full), so nothing is taken on trust here.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from nodeagent.archives import folder
from nodeagent.archives import manifest as archives_manifest
from nodeagent.archives.encryption import Encryption, EncryptionError
from nodeagent.archives.folder import StoreError as StoreError
from nodeagent.archives.manifest import Manifest, ManifestError, parse_manifest
from nodeagent.archives.streaming import Follower, Reader, Sealed
from orch.component.process.atomic_file import is_unfinished, replace_file

_PREFIX = ".checkpoint-"
_PARTIAL = ".tar.partial"
_ENCRYPTED = ".tar.age.partial"
_MANIFEST = ".json.partial"
_MARKER = ".pending"
_UNKNOWN = Manifest("")


class NameTaken(Exception):
    """There is something of that name already."""


class CheckpointStore:
    """`encryption` None leaves archives as the runtime wrote them."""

    def __init__(self, root_dir: str, encryption: Encryption | None = None) -> None:
        self._encryption = encryption
        self.path = Path(root_dir, archives_manifest.DIRECTORY)
        self._under_way: dict[str, Follower | None] = {}
        self._publishing = threading.Lock()

    def prepare(self) -> dict[str, Manifest]:
        """Make the directory and remove archives left half done by an earlier agent.

        Returns what is known of the checkpoints that were then under way, by container id.
        """
        with folder.opened(self.path) as directory:
            for name in filter(is_unfinished, os.listdir(directory)):
                folder.remove(directory, name)
            return self._sweep(directory)

    def begin(self, container_id: str, manifest: Manifest = _UNKNOWN) -> str:
        """Mark a checkpoint as under way; the absolute path that the runtime is to write.

        The mark says what `manifest` does, for an agent that finds it at its start.
        Archives that a runtime wrote after it was told to stop are removed on this occasion.
        """
        self._stop_following(container_id)
        self._under_way[container_id] = None
        path = self.path / _partial(container_id)
        with folder.opened(self.path) as directory:
            self._sweep(directory)
            folder.remove(directory, path.name)
            _write(directory, _marker(container_id), manifest)
        self._under_way[container_id] = self._follow(container_id, path)
        return str(path)

    def seal(self, container_id: str) -> Sealed:
        """Check what the runtime wrote, take it from other users, encrypt and flush it.

        StoreError: it is no usable archive, or it cannot be encrypted.
        """
        with folder.opened(self.path) as directory:
            archive = _open_written(directory, _partial(container_id))
            try:
                os.fchmod(archive, folder.MODE_FILE)
                sealed = self._follower(container_id).result(archive)
                if self._encryption:  # what could be read is gone at once
                    _rename(directory, _encrypted(container_id), _partial(container_id))
                else:
                    os.fsync(archive)
                return sealed
            except EncryptionError as error:
                raise StoreError(str(error)) from error
            finally:
                os.close(archive)

    def publish(self, container_id: str, manifest: Manifest) -> None:
        """Give the sealed archive its final name, which the manifest says, and that beside it.

        NameTaken: another name is needed, the archive waits.
        """
        with folder.opened(self.path) as directory:
            _write(directory, _manifest(container_id), manifest)
            with self._publishing:
                self._give_names(directory, container_id, manifest.name)

    def discard(self, container_id: str, *, keep_marker: bool = False) -> None:
        """Forget a checkpoint: remove what is left of it under its hidden names.

        `keep_marker`: its container may still be frozen, and the next start is to look after it.
        """
        self._stop_following(container_id)
        self._under_way.pop(container_id, None)  # what cannot be removed now is swept later
        with folder.opened(self.path) as directory:
            for hidden in (_partial, _encrypted, _manifest):
                folder.remove(directory, hidden(container_id))
            if not keep_marker:
                folder.remove(directory, _marker(container_id))

    @property
    def suffix(self) -> str:
        """What follows the documented name of every archive made here."""
        return archives_manifest.ENCRYPTED if self._encryption else ""

    @property
    def copies(self) -> int:
        """How often an archive lies on the disk while it is made: open and encrypted, or once."""
        return 2 if self._encryption else 1

    def check_name(self, name: str) -> None:
        """StoreError when the file system cannot hold an archive of that name."""
        if over := archives_manifest.excess_bytes(name):
            raise StoreError(
                f"the archive's name would be {over} bytes longer than the file system can hold; "
                "use shorter pod or container names"
            )

    def _stop_following(self, container_id: str) -> None:
        if follower := self._under_way.get(container_id):
            follower.stop()

    def _give_names(self, directory: int, container_id: str, name: str) -> None:
        """The manifest's first: an archive that can be seen has one."""
        beside = name + archives_manifest.MANIFEST
        try:
            folder.link(directory, _manifest(container_id), beside)
        except FileExistsError:
            raise NameTaken(name) from None
        try:
            folder.link(directory, _partial(container_id), name)
        except FileExistsError:
            folder.remove(directory, beside)
            raise NameTaken(name) from None
        folder.remove(directory, _partial(container_id))
        folder.remove(directory, _manifest(container_id))
        os.fsync(directory)

    def _sweep(self, directory: int) -> dict[str, Manifest]:
        """Remove what is half done, and manifests of no archive; what the markers say."""
        interrupted = {}
        listed = set(os.listdir(directory))
        for name in sorted(listed):
            container_id = _container_of(name)
            if container_id and container_id not in self._under_way:
                if name == _marker(container_id):
                    interrupted[container_id] = _marked(directory, name)
                else:
                    folder.remove(directory, name)
            elif name.endswith(archives_manifest.MANIFEST) and not container_id:
                self._remove_stray(directory, name, listed)
        return interrupted

    def _remove_stray(self, directory: int, name: str, listed: set[str]) -> None:
        archive = name.removesuffix(archives_manifest.MANIFEST)
        if archive in listed or not archives_manifest.is_archive(archive):
            return
        if folder.read_small(directory, name) is None:
            return  # not a plain file, so not ours
        with self._publishing:  # else it might be one whose archive is about to appear
            if not os.access(archive, os.F_OK, dir_fd=directory, follow_symlinks=False):
                folder.remove(directory, name)

    def _follow(self, container_id: str, path: Path) -> Follower:
        """Digest the archive while it is written, or encrypt it."""
        encryption = self._encryption
        if encryption is None:
            return Follower(path)

        def encrypt(reader: Reader) -> Sealed:
            hidden = _encrypted(container_id)
            with folder.opened(self.path) as directory:
                folder.remove(directory, hidden)
                target = folder.create_file(directory, hidden, exclusive=True)
                try:
                    sealed = encryption.encrypt(reader, target)
                    os.fsync(target)
                finally:
                    os.close(target)
            return sealed

        return Follower(path, encrypt, flush=False)

    def _follower(self, container_id: str) -> Follower:
        follower = self._under_way.get(container_id)
        assert follower  # noqa: S101 — begin made it
        return follower


def _open_written(directory: int, name: str) -> int:
    """What the runtime wrote, if it is a plain file with one name and something in it."""
    try:
        archive = folder.open_file(directory, name)
    except FileNotFoundError:
        raise StoreError("the runtime reported success but wrote no archive") from None
    except OSError as error:
        raise StoreError(f"the archive cannot be opened: {error.strerror}") from None
    status, problem = os.fstat(archive), ""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        problem = "the runtime wrote something that is not a plain file"
    elif status.st_size == 0:
        problem = "the runtime reported success but wrote an empty archive"
    if problem:
        os.close(archive)
        raise StoreError(problem)
    return archive


def _marked(directory: int, name: str) -> Manifest:
    """What a marker says; nothing, when its agent was killed while it wrote it."""
    try:
        return parse_manifest(folder.read_small(directory, name) or b"")
    except ManifestError:
        return _UNKNOWN


def _write(directory: int, name: str, manifest: Manifest) -> None:
    replace_file(name, manifest.to_json(), durable=True, directory=directory)


def _rename(directory: int, source: str, target: str) -> None:
    os.replace(source, target, src_dir_fd=directory, dst_dir_fd=directory)


def _partial(container_id: str) -> str:
    return f"{_PREFIX}{container_id}{_PARTIAL}"


def _encrypted(container_id: str) -> str:
    return f"{_PREFIX}{container_id}{_ENCRYPTED}"


def _manifest(container_id: str) -> str:
    return f"{_PREFIX}{container_id}{_MANIFEST}"


def _marker(container_id: str) -> str:
    return f"{_PREFIX}{container_id}{_MARKER}"


def _container_of(name: str) -> str:
    """The container's id in a hidden name; "" of any other name."""
    for suffix in (_PARTIAL, _ENCRYPTED, _MANIFEST, _MARKER):
        if name.startswith(_PREFIX) and name.endswith(suffix):
            return name.removeprefix(_PREFIX).removesuffix(suffix)
    return ""

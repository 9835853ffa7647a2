"""The directory of checkpoint archives: `<root>/checkpoints`, private to root.

Archives hold the memory of processes. The runtime writes to a hidden name derived from the
container's id; only a complete, private, flushed archive gets its final name, and never one that is
taken. A marker beside it says that a checkpoint is under way, so that the next start knows which
containers may have been left frozen. Blocking I/O: call it in a worker thread.

Runtimes are careless with the target (containerd 2.1 follows a link, keeps the mode of an existing
file and leaves half a file when the disk is full), so nothing is taken on trust here.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

NAME = "checkpoints"
_MODE_DIRECTORY = 0o700
_MODE_ARCHIVE = 0o600
_NAME_MAX_BYTES = 255  # of every Linux file system
_PREFIX = ".checkpoint-"
_PARTIAL = ".tar.partial"
_MARKER = ".pending"
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_ARCHIVE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class StoreError(Exception):
    """The store or an archive in it cannot be used; the text names it and says why."""


class NameTaken(Exception):
    """There is something of that name already."""


class CheckpointStore:
    def __init__(self, root_dir: str) -> None:
        self._path = Path(root_dir, NAME)
        self._under_way: set[str] = set()

    def prepare(self) -> tuple[str, ...]:
        """Make the directory and remove archives left half done by an earlier agent.

        Returns the ids of the containers whose checkpoints were then under way.
        """
        with self._directory() as directory:
            return self._sweep(directory)

    def begin(self, container_id: str) -> str:
        """Mark a checkpoint as under way; the absolute path that the runtime is to write.

        Archives that a runtime wrote after it was told to stop are removed on this occasion.
        """
        self._under_way.add(container_id)
        with self._directory() as directory:
            self._sweep(directory)
            _remove(directory, _partial(container_id))
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(_marker(container_id), flags, _MODE_ARCHIVE, dir_fd=directory))
        return str(self._path / _partial(container_id))

    def publish(self, container_id: str, name: str) -> str:
        """Give the written archive its final `name`; its absolute path.

        NameTaken: another name is needed, the archive waits. StoreError: it is no usable archive.
        """
        partial = _partial(container_id)
        with self._directory() as directory:
            self._make_safe(directory, partial)
            try:
                os.link(
                    partial,
                    name,
                    src_dir_fd=directory,
                    dst_dir_fd=directory,
                    follow_symlinks=False,
                )
            except FileExistsError:
                raise NameTaken(name) from None
            os.unlink(partial, dir_fd=directory)
            os.fsync(directory)
        return str(self._path / name)

    def discard(self, container_id: str, *, keep_marker: bool = False) -> None:
        """Forget a checkpoint: remove what is left of it under its hidden names.

        `keep_marker`: its container may still be frozen, and the next start is to look after it.
        """
        with self._directory() as directory:
            _remove(directory, _partial(container_id))
            if not keep_marker:
                _remove(directory, _marker(container_id))
        self._under_way.discard(container_id)

    def check_name(self, name: str) -> None:
        """StoreError when the file system cannot hold an archive of that name."""
        length = len(name.encode())
        if length > _NAME_MAX_BYTES:
            raise StoreError(
                f"the archive's name would have {length} bytes, more than the {_NAME_MAX_BYTES} "
                "of a file name; use shorter pod or container names"
            )

    def _sweep(self, directory: int) -> tuple[str, ...]:
        """Remove partial archives; the container ids that markers name."""
        interrupted = []
        for name in sorted(os.listdir(directory)):
            container_id = name.removeprefix(_PREFIX).removesuffix(_PARTIAL).removesuffix(_MARKER)
            if container_id in self._under_way:
                continue
            if name == _partial(container_id):
                _remove(directory, name)
            elif name == _marker(container_id):
                interrupted.append(container_id)
        return tuple(interrupted)

    @contextlib.contextmanager
    def _directory(self) -> Iterator[int]:
        """The open directory, which is made when missing and must be ours alone."""
        self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self._path.mkdir(mode=_MODE_DIRECTORY)
        try:
            directory = os.open(self._path, _OPEN_DIRECTORY)
        except NotADirectoryError:  # of a symbolic link too
            raise StoreError(f"{self._path} is not a directory; move it away") from None
        try:
            self._require_private(directory)
            yield directory
        finally:
            os.close(directory)

    def _require_private(self, directory: int) -> None:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid():
            raise StoreError(
                f"{self._path} belongs to user {status.st_uid}; give it to user {os.geteuid()}"
            )
        if stat.S_IMODE(status.st_mode) != _MODE_DIRECTORY:
            os.fchmod(directory, _MODE_DIRECTORY)

    def _make_safe(self, directory: int, partial: str) -> None:
        """Check what the runtime wrote, take it from other users, and flush it to the disk."""
        try:
            archive = os.open(partial, _OPEN_ARCHIVE, dir_fd=directory)
        except FileNotFoundError:
            raise StoreError("the runtime reported success but wrote no archive") from None
        except OSError as error:
            raise StoreError(f"the archive cannot be opened: {error.strerror}") from None
        try:
            status = os.fstat(archive)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise StoreError("the runtime wrote something that is not a plain file")
            if status.st_size == 0:
                raise StoreError("the runtime reported success but wrote an empty archive")
            os.fchmod(archive, _MODE_ARCHIVE)
            os.fsync(archive)
        finally:
            os.close(archive)


def _remove(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _partial(container_id: str) -> str:
    return f"{_PREFIX}{container_id}{_PARTIAL}"


def _marker(container_id: str) -> str:
    return f"{_PREFIX}{container_id}{_MARKER}"

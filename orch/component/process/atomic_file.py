"""Files that change in one step: readers see the old content or the new one, never half of it.

Only regular files are ever replaced: a link, a directory, a pipe or a device of that name was put
there by something else. Blocking I/O.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

_UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.unfinished")
_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(
    path: str | Path,
    content: bytes,
    *,
    mode: int = 0o600,
    durable: bool = False,
    directory: int | None = None,
) -> None:
    """Create or replace the file, with `mode` whatever the umask.

    `durable`: it survives a power cut once this returns. With `directory`, a descriptor, `path` is
    relative to it. OSError names `path`; FileExistsError where something else is.
    """
    folder, name = os.path.split(path)
    try:
        # A directory that may not be listed can be written to all the same, but not synchronized.
        access = os.O_RDONLY if durable else os.O_PATH
        opened = os.open(folder or ".", _DIRECTORY | access, dir_fd=directory)
        try:
            _replace(opened, name, content, mode, durable=durable)
        finally:
            os.close(opened)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def is_unfinished(name: str) -> bool:
    """Whether a file of that name was left by a process that was killed in `replace_file`."""
    return _UNFINISHED.fullmatch(name) is not None


def _replace(directory: int, name: str, content: bytes, mode: int, *, durable: bool) -> None:
    _require_regular(directory, name)
    temporary = f".{os.urandom(8).hex()}.unfinished"
    descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(descriptor, mode)
            if durable:
                os.fsync(descriptor)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    if durable:
        os.fsync(directory)  # otherwise the new name may be lost


def _require_regular(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise FileExistsError(errno.EEXIST, "it is not a regular file and is left alone")

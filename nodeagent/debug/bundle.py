"""The archive for a support case: entries, scrubbed, in one private file that replaces no other."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable
from datetime import datetime

from nodeagent.debug.hostfiles import Entry
from orch.component.daemon import SetupError

FOLDER = "nodeagent-debug"


def write_bundle(
    path: str, entries: Iterable[Entry], clean: Callable[[bytes], bytes], *, now: datetime
) -> int:
    """Write the archive (tar, gzip, 0600) and return how many entries it has.

    SetupError when the file exists or cannot be written; then nothing is left of it.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror or error}") from None
    count = 0
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name, body in entries:
                tar.addfile(*_member(name, clean(body), now))
                count += 1
    except OSError as error:
        os.unlink(path)
        raise SetupError(f"cannot write {path}: {error.strerror or error}") from None
    except BaseException:
        os.unlink(path)
        raise
    return count


def _member(name: str, body: bytes, now: datetime) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(f"{FOLDER}/{name}")
    info.size, info.mode, info.mtime = len(body), 0o600, int(now.timestamp())
    return info, io.BytesIO(body)

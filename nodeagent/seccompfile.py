"""The file behind a Localhost seccomp profile: is it one that a container can be given.

Blocking I/O: call it in a worker thread. The runtime reads the file itself; looking first gives the
error its right reason and a text that names the path, and keeps a FIFO or a huge file from the
runtime.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nodeagent.runtime.base import SeccompKind, SeccompSetting
from nodeagent.seccomp import CREATE_ERROR, SeccompError

MAX_PROFILE_BYTES = 4 * 1024 * 1024  # the largest published profiles have some 50 KiB


def require_profile_file(setting: SeccompSetting) -> None:
    """Return when `setting` needs no file or its file is usable.

    SeccompError with CREATE_ERROR, whose text says what is wrong with which path: missing, not a
    regular file, too large, not readable. Links are followed, also out of the seccomp directory:
    only root can make them there, and operators of profiles do.
    """
    if setting.kind is not SeccompKind.LOCALHOST:
        return
    path = Path(setting.localhost_path)
    try:
        problem = _problem(path)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise SeccompError(CREATE_ERROR, f"cannot use the seccomp profile {path}: {problem}")


def _problem(path: Path) -> str:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_size > MAX_PROFILE_BYTES:
        return f"its {status.st_size} bytes are more than {MAX_PROFILE_BYTES}"
    if not os.access(path, os.R_OK):
        return "it cannot be read"
    return ""

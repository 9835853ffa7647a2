"""The file behind a Localhost seccomp profile: is it one that a container can be given.

Blocking I/O: call it in a worker thread. The runtime reads the file itself; looking first gives the
error its right reason and a text that names the path, and keeps a FIFO, a huge file or one from
outside the directory from the runtime.
"""

from __future__ import annotations

import difflib
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from nodeagent.runtime.base import SeccompKind, SeccompSetting
from nodeagent.seccomp import CREATE_ERROR, SeccompError

MAX_PROFILE_BYTES = 4 * 1024 * 1024  # the largest published profiles have some 50 KiB
_LISTED_LIMIT = 1000  # profiles looked through for a similar name
_NEAREST = 3


def require_profile_file(setting: SeccompSetting, *, root: str, source: str = "") -> None:
    """Return when `setting` needs no file or its file is usable.

    SeccompError with CREATE_ERROR, whose text says what is wrong with which path, and which field
    of the pod (`source`) asked for it: missing, not a regular file, too large, not readable, or
    reached by a link that leads out of `root`, the directory of profiles. Links within it are fine.
    """
    if setting.kind is not SeccompKind.LOCALHOST:
        return
    path = Path(setting.localhost_path)
    try:
        problem = _problem(path, root)
    except FileNotFoundError as error:
        problem = f"{error.strerror}{_near(path, Path(root))}"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        asked = f", which {source} asks for" if source else ""
        raise SeccompError(CREATE_ERROR, f"cannot use the seccomp profile {path}{asked}: {problem}")


def _problem(path: Path, root: str) -> str:
    real = Path(os.path.realpath(path, strict=True))
    if not real.is_relative_to(os.path.realpath(root)):
        return f"a link leads to {real}, out of {root}"
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_size > MAX_PROFILE_BYTES:
        return f"its {status.st_size} bytes are more than {MAX_PROFILE_BYTES}"
    if not os.access(path, os.R_OK):
        return "it cannot be read"
    return ""


def _near(path: Path, root: Path) -> str:
    """The most similar profiles that exist, for whoever mistyped one."""
    there = list(itertools.islice(_profiles(root), _LISTED_LIMIT))
    wanted = str(path.relative_to(root)) if path.is_relative_to(root) else path.name
    near = difflib.get_close_matches(wanted, there, n=_NEAREST, cutoff=0.5)
    return f"; there are {', '.join(near)}" if near else f"; there is nothing like it in {root}"


def _profiles(root: Path) -> Iterator[str]:
    for directory, _, files in os.walk(root):
        for name in files:
            yield str(Path(directory, name).relative_to(root))

"""Checks the file of a Localhost seccomp profile before the runtime reads it.

The check gives the error its right reason and a text with the path, and protects the runtime from
FIFOs, huge files and files outside the directory. Must not judge the contents (`lint`). Blocking.
"""

from __future__ import annotations

import difflib
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from nodeagent.runtime.isolation import SeccompKind, SeccompSetting
from nodeagent.seccomp import CREATE_ERROR, SeccompError

MAX_PROFILE_BYTES = 4 * 1024 * 1024  # published profiles have at most some 50 KiB
_LISTED_LIMIT = 1000  # profiles searched for a similar name
_NEAREST = 3


def require_profile_file(setting: SeccompSetting, *, root: str, source: str = "") -> None:
    """Return when `setting` needs no file or its file is usable.

    SeccompError with CREATE_ERROR, naming the path and the pod's field (`source`): the file is
    missing, not regular, too large, unreadable, or a link leads out of `root`, the directory of
    profiles. Links within it are allowed.
    """
    if setting.kind is not SeccompKind.LOCALHOST:
        return
    path = Path(setting.localhost_path)
    try:
        problem = _problem(path, root)
    except FileNotFoundError as error:
        problem = f"{error.strerror}{_similar(path, Path(root))}"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        asked = f", which {source} specifies" if source else ""
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


def _similar(path: Path, root: Path) -> str:
    """The most similar existing profiles, in case of a typo."""
    existing = list(itertools.islice(_profiles(root), _LISTED_LIMIT))
    wanted = str(path.relative_to(root)) if path.is_relative_to(root) else path.name
    near = difflib.get_close_matches(wanted, existing, n=_NEAREST, cutoff=0.5)
    return f"; similar: {', '.join(near)}" if near else f"; there is no similar file in {root}"


def _profiles(root: Path) -> Iterator[str]:
    for directory, _, files in os.walk(root):
        for name in files:
            yield str(Path(directory, name).relative_to(root))

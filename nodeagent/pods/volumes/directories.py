"""Directories whose files change all at once, and directories that other users read; blocking.

As in the reference agent (pkg/volume/util/atomic_writer), `..data` links to the directory with the
files and is replaced in one step: an agent killed at any point leaves the old set or the new one.
Modes are set explicitly, since the shipped unit runs the agent with umask 0077.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from nodeagent import descriptors
from nodeagent.pods.spec.volume_files import VolumeFile
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_shared = OnceLog(log)
_FOR_ALL = 0o044  # added to the mode of a file that cannot be given to the one who is to read it


def make(path: Path, mode: int = 0o755, *, unlinked: int = 0) -> None:
    """Create a directory and its missing parents with `mode`; existing ones are left alone.

    The last `unlinked` parts of the path must be no links. OSError.
    """
    existing, missing = path, list[str]()
    while len(missing) < unlinked or not existing.exists():
        missing.insert(0, existing.name)
        existing = existing.parent
    root = os.open(existing, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(descriptors.reach(root, missing, new_mode=mode))
    finally:
        os.close(root)


def chgrp(path: Path, group: int | None, mode: int | None = None) -> int | None:
    """Change a directory's group, and its mode with it; OSError.

    None without a group or the permission to change it.
    """
    if group is None:
        return None
    with descriptors.directory(path) as opened:
        if os.fstat(opened).st_gid == group:
            return group
        try:
            os.fchown(opened, -1, group)
        except PermissionError:
            text = "%s cannot be given to group %d: the agent lacks CAP_CHOWN"
            log.warning(text, path, group)
            group = None
        if mode is not None:
            _set_mode(opened, mode, path)
    return group


def _set_mode(opened: int, mode: int, path: Path) -> None:
    try:
        os.fchmod(opened, mode)
    except PermissionError:  # RestrictSUIDSGID= of the shipped unit
        text = "new files in %s do not inherit its group: the agent may not set the setgid bit"
        log.warning(text, path)


DATA = "..data"
_NEW_DATA = "..data_new"
_NEW_LINK = "..link_new"


def write(directory: Path, files: Sequence[VolumeFile], *, group: int | None = None) -> bool:
    """Replace the files of a directory with these; True when something changed. OSError.

    With `group` the files belong to that group, which may read them.
    """
    make(directory)
    group = chgrp(directory, group)
    if _is_current(directory, files, group):
        _clear(directory, files)
        return False
    made = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    try:
        made.chmod(0o755)
        for file in files:
            _write_file(made, file, group)
        (directory / _NEW_DATA).unlink(missing_ok=True)
        (directory / _NEW_DATA).symlink_to(made.name)
        (directory / _NEW_DATA).replace(directory / DATA)
    except (OSError, ValueError):
        with contextlib.suppress(OSError):  # left behind, each retry would fill the disk further
            descriptors.remove_tree(made)
        raise
    try:
        for name in _top_names(files):
            _link(directory, name)
    finally:  # likewise
        _clear(directory, files)
    return True


def _write_file(root: Path, file: VolumeFile, group: int | None) -> None:
    path = root / file.path
    make(path.parent)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as stream:
        stream.write(file.content)
        if group is not None:
            os.fchown(stream.fileno(), -1, group)
        given = _give(stream.fileno(), file.owner)
        os.fchmod(stream.fileno(), _mode(file, group) if given else _mode(file, group) | _FOR_ALL)


def _give(opened: int, owner: int | None) -> bool:
    """Whether the file belongs to its owner now."""
    try:
        if owner is not None:
            os.fchown(opened, owner, -1)
    except PermissionError:
        text = "files of pods cannot be given to their user %d, and are for all to read: the agent "
        _shared.failed(text + "lacks CAP_CHOWN", owner, cause="")
        return False
    return True


def _mode(file: VolumeFile, group: int | None) -> int:
    return file.mode if group is None else file.mode | 0o440


def _top_names(files: Sequence[VolumeFile]) -> set[str]:
    return {PurePosixPath(file.path).parts[0] for file in files}


def _link(directory: Path, name: str) -> None:
    """Replace `name`, whatever it is, with a link through `..data`."""
    path, target = directory / name, f"{DATA}/{name}"
    with contextlib.suppress(OSError):
        if os.readlink(path) == target:
            return
    unfinished = directory / _NEW_LINK
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(target)
    if path.is_dir() and not path.is_symlink():
        descriptors.remove_tree(path)
    unfinished.replace(path)


def _clear(directory: Path, files: Sequence[VolumeFile]) -> None:
    """Remove former sets, and links to files that are gone."""
    kept = {DATA, os.readlink(directory / DATA), *_top_names(files)}
    for name in sorted(set(os.listdir(directory)) - kept):
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            descriptors.remove_tree(path)
        else:
            path.unlink()


def _is_current(directory: Path, files: Sequence[VolumeFile], group: int | None) -> bool:
    """Whether the current set is this one, and every link to it exists."""
    if not (directory / DATA).is_dir():
        return False
    root = Path(os.path.realpath(directory / DATA))
    found = {
        str(Path(parent, name).relative_to(root))
        for parent, _, names in os.walk(root)
        for name in names
    }
    if found != {file.path for file in files}:
        return False
    links = all((directory / name).is_symlink() for name in _top_names(files))
    return links and all(_is_same(root / file.path, file, group) for file in files)


def _is_same(path: Path, file: VolumeFile, group: int | None) -> bool:
    found, mode = path.lstat(), _mode(file, group)
    if file.owner not in (None, found.st_uid):
        mode |= _FOR_ALL
    return (
        stat.S_ISREG(found.st_mode)
        and stat.S_IMODE(found.st_mode) == mode
        and (group is None or found.st_gid == group)
        and path.read_bytes() == file.content
    )

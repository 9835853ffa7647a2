"""Directories whose later mounts are visible to the runtime.

The runtime has a mount namespace of its own. What the agent mounts afterwards (the tmpfs of an
emptyDir volume in memory) reaches it only below a mount point that both share, so the directory is
bound onto itself and marked shared before the namespace is created.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from .instance import Instance
from .progress import run, say

_OPTIONAL = 6  # mountinfo: the optional fields follow the sixth


def share_all(directories: Iterable[Path], instance: Instance) -> None:
    """Share directories, and add the mounts made for that to the record."""
    for directory in directories:
        if share(directory):
            made = dict.fromkeys([*made_for(instance), str(directory)])
            instance.write_record(shared=os.pathsep.join(made))


def made_for(instance: Instance) -> list[str]:
    """The recorded mounts, which are to be undone; never one that existed before."""
    return [path for path in instance.record().get("shared", "").split(os.pathsep) if path]


def share(directory: Path) -> bool:
    """Make `directory` a shared mount point; False for what is one already and stays as it is."""
    directory.mkdir(parents=True, exist_ok=True)
    if is_shared(directory):
        return False
    say(f"sharing the mounts below {directory}")
    run(["mount", "-n", "--bind", str(directory), str(directory)])
    # with nobody but who comes later: the file system it lies on may be shared itself
    run(["mount", "-n", "--make-private", str(directory)])
    run(["mount", "-n", "--make-shared", str(directory)])
    return True


def unshare(directories: Iterable[str]) -> None:
    """Unmount what was shared, and first what was mounted below it since."""
    for directory in directories:
        for path in _since_shared(Path(directory)):
            run(["umount", "-n", "-l", path])


def is_shared(directory: Path) -> bool:
    """Tell whether the topmost mount on exactly this directory passes mounts on."""
    marks = [fields[_OPTIONAL] for fields in mounts() if fields[4] == str(directory)]
    return bool(marks) and marks[-1].startswith("shared:")


def _since_shared(directory: Path) -> list[str]:
    """Mount points on and below `directory`, latest first, back to where it was shared.

    What lies under the shared mount was there before and is not ours.
    """
    if not is_shared(directory):
        return []
    found = []
    for fields in reversed(mounts()):
        if Path(fields[4]).is_relative_to(directory):
            found.append(fields[4])
        if fields[4] == str(directory):
            break
    return found


def mounts() -> list[list[str]]:
    """The fields of this process's mount table, in the order they were mounted."""
    table = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())  # paths may have any bytes
    return [line.split(" ") for line in table.split("\n") if line]

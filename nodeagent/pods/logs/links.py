"""Links by which log collectors find container logs: `<pod>_<namespace>_<container>-<id>.log`.

They lie in `containers` beside the directory of the logs where that is named `pods`, as
/var/log/containers beside /var/log/pods (reference agent, `legacyLogSymlink`). A link is made when
its container has started, and goes with its log. Without them everything else works: what fails
is logged once.
"""

from __future__ import annotations

import contextlib
import logging
import os
from functools import partial
from pathlib import Path

from nodeagent import descriptors
from nodeagent.pods.volumes import directories
from orch.component.process import loops
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_SUFFIX = ".log"
_NAME_BYTES = 255


class LogLinks:
    """`pod_logs_dir` is the absolute directory of the logs of all pods."""

    def __init__(self, pod_logs_dir: str) -> None:
        logs = Path(pod_logs_dir)
        self.directory = logs.with_name("containers") if logs.name == "pods" else None
        self._outage = OnceLog(log)

    async def add(self, name: str, target: str) -> None:
        """Link `name`, which gets the suffix, to a log that exists."""
        if self.directory:
            work = partial(self._add, self.directory, name, target)
            await loops.finish_in_thread(work, name="link to a log")

    def remove(self, beginning: str) -> None:
        """Remove the links to the logs whose paths begin like this. Blocking."""
        if self.directory is None:
            return
        with contextlib.suppress(OSError), descriptors.directory(self.directory) as opened:
            for name in os.listdir(opened):
                with contextlib.suppress(OSError):  # no link
                    if os.readlink(name, dir_fd=opened).startswith(beginning):
                        os.unlink(name, dir_fd=opened)

    def _add(self, directory: Path, name: str, target: str) -> None:
        if not os.path.lexists(target):
            return
        shown = _fitting(name) + _SUFFIX
        try:
            directories.make(directory, unlinked=1)
            with descriptors.directory(directory) as opened, contextlib.suppress(FileExistsError):
                os.symlink(target, shown, dir_fd=opened)
        except OSError as error:
            cause = error.strerror or str(error)
            text = "log collectors may not find container logs: cannot make links in %s: %s"
            self._outage.failed(text, directory, cause, cause=cause)
        else:
            self._outage.recovered()


def _fitting(name: str) -> str:
    """Of a name that is too long the pod's is cut: the rest tells whose log it is, and which."""
    pod, mark, rest = name.partition("_")
    return pod[: _NAME_BYTES - len(_SUFFIX) - len(mark + rest)] + mark + rest

"""User namespaces of pods: each pod with `hostUsers: false` has 65,536 ids of the host to itself.

The range lies in the pod's directory, in the reference agent's form (`userns`), so that it stays
the same in a new sandbox and under the next agent, and is free again once the directory is gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from functools import partial
from pathlib import Path

from nodeagent import descriptors
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.volumes import directories
from nodeagent.runtime.isolation import UserNamespace
from orch.component.process import loops
from orch.component.process.atomic_file import replace_file
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

IDS_PER_POD = 65_536
FILE = "userns"  # in the directory of the pod
_END = 2**32 - IDS_PER_POD  # the last id of all means "none"
_FILE_MAX_BYTES = 4096
_MAP_LINES = 340  # as many as the kernel takes
_MAPPINGS = ("uidMappings", "gidMappings")


class UserNamespaces:
    """`root_dir` is the agent's. The host's own ids, those below 65,536, are given to no pod."""

    def __init__(self, root_dir: str, proc: str = "/proc") -> None:
        self._pods = Path(root_dir) / "pods"
        self._proc = Path(proc)
        self._lock = threading.Lock()
        self._damaged = OnceLog(log)

    async def of(self, uid: str) -> UserNamespace:
        """The range of a pod, chosen when first asked for. SpecError, OSError."""
        return await loops.finish_in_thread(partial(self._of, uid), name="user namespace")

    def _of(self, uid: str) -> UserNamespace:
        with self._lock:
            if found := _read(self._pods / uid / FILE):
                return found
            taken = self._taken()
            free = (n for n in range(IDS_PER_POD, _END, IDS_PER_POD) if n not in taken)
            first_id = next(free, None)
            if first_id is None:
                raise SpecError("spec.hostUsers: all ranges of ids are given to other pods")
            namespace = UserNamespace(first_id, IDS_PER_POD)
            directories.make(self._pods / uid)
            replace_file(self._pods / uid / FILE, _content(namespace), durable=True)
            return namespace

    def _taken(self) -> set[int]:
        """The first ids of ranges that pods have; where a pod's file does not tell its range, those
        that processes have.
        """
        taken, unknown = set[int](), list[str]()
        for entry in os.scandir(self._pods) if self._pods.exists() else ():
            try:
                if namespace := _read(Path(entry.path, FILE)):
                    taken.add(namespace.first_id)
            except (SpecError, OSError) as error:
                unknown.append(str(error))
        for text in unknown[:1]:
            text = f"{text}; until then other pods get ranges of ids that no process has"
            self._damaged.failed("%s", text, cause=text)
        if not unknown:
            self._damaged.recovered()
            return taken
        return taken | _in_use(self._proc)


def _in_use(proc: Path) -> set[int]:
    """The first ids of ranges, of those given to pods, that processes run with."""
    found: set[int] = set()
    for entry in os.scandir(proc):
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError):  # it has ended
            for line in Path(entry.path, "uid_map").read_text().splitlines()[:_MAP_LINES]:
                first_id, length = (int(word) for word in line.split()[1:])
                if first_id >= IDS_PER_POD:
                    last_id = min(first_id + length, _END) - 1
                    begin = first_id - first_id % IDS_PER_POD
                    found.update(range(begin, last_id + 1, IDS_PER_POD))
    return found


def _content(namespace: UserNamespace) -> bytes:
    mapping = {"hostId": namespace.first_id, "containerId": 0, "length": namespace.length}
    return json.dumps({name: [mapping] for name in _MAPPINGS}).encode()


def _read(path: Path) -> UserNamespace | None:
    """None without a file. SpecError for one that the agent has not written: it must not guess,
    since containers may run with the range that was meant.
    """
    try:
        with os.fdopen(descriptors.open_file(path), "rb") as file:
            text = file.read(_FILE_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        data = json.loads(text)
        uids, gids = (data[name] for name in _MAPPINGS)
        first_id = uids[0]["hostId"]
        expected = {"hostId": first_id, "containerId": 0, "length": IDS_PER_POD}
    except (ValueError, RecursionError, LookupError, TypeError):
        expected = None
    fits = expected is not None and uids == gids == [expected] and type(first_id) is int
    if not fits or first_id % IDS_PER_POD or not IDS_PER_POD <= first_id < _END:
        raise SpecError(f"spec.hostUsers: {path} holds no range of ids; delete the pod")
    return UserNamespace(first_id, IDS_PER_POD)

"""What the readers of all cgroups share: layout, descriptors left, and what went wrong so far."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from typing import Any

from nodeagent.stats import layout
from nodeagent.stats.layout import CgroupFile, Layout

Pread = Callable[[int, int, int], bytes]


class CgroupSource:
    """What all readers share: the layout, how to read, and what went wrong so far.

    `errors` counts failed and unreadable files by file name, `slow` those that took long; `psi`
    holds, per resource, whether cgroups of this host report pressure: supported, disabled (psi=0)
    or absent.
    """

    def __init__(self, host: Layout, *, pread: Pread, fd_budget: int) -> None:
        self.layout = host
        self.pread = pread
        self.fds_left = fd_budget
        self.errors: Counter[str] = Counter()
        self.slow: Counter[str] = Counter()
        self.psi: dict[str, str] = {}
        self.width = len(host.files)

    def note_failure(self, file: CgroupFile, error: OSError) -> None:
        """Count an error; pressure that the kernel does not offer is no error but a fact."""
        resource = layout.PSI_POSITIONS.get(file.position)
        if resource and error.errno in (errno.EOPNOTSUPP, errno.ENOENT):
            if error.errno == errno.ENOENT:
                self.psi.setdefault(resource, "absent")  # maybe only switched off for this cgroup
            elif self.psi.get(resource) != "supported":
                self.psi[resource] = "disabled"
        elif error.errno != errno.ENOENT:
            self.errors[file.name] += 1

    def note_value(self, file: CgroupFile, value: Any) -> None:
        """Told of the first value of a file, and of every text that made no sense."""
        if value is None:
            self.errors[file.name] += 1
        elif file.position in layout.PSI_POSITIONS:
            self.psi[layout.PSI_POSITIONS[file.position]] = "supported"

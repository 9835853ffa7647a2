"""TCP ports that stay free until a program that is about to start listens on them."""

from __future__ import annotations

import itertools
import os
import random
import socket

_BELOW_THE_KERNELS = range(10_000, 20_000)  # others get theirs from the kernel meanwhile
_WORKERS = 16  # of pytest-xdist, each of which has ports of its own
_worker = os.environ.get("PYTEST_XDIST_WORKER", "")
_OWN = _BELOW_THE_KERNELS[int(_worker[2:]) :: _WORKERS] if _worker else _BELOW_THE_KERNELS
_ports = itertools.cycle(random.sample(_OWN, len(_OWN)))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on; it is named again only after all others."""
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port

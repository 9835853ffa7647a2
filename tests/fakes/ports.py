"""TCP ports that stay free until a program that is about to start listens on them."""

from __future__ import annotations

import random
import socket

_BELOW_THE_KERNELS = range(10_000, 20_000)  # others get theirs from the kernel meanwhile


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    choice = random.SystemRandom()
    while True:
        port = choice.choice(_BELOW_THE_KERNELS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port

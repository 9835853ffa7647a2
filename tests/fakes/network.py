"""A network namespace of a test's own, and a link to it on which packets can be lost."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

_NET = f"10.213.{os.getpid() >> 6 & 255}"  # of this process: others may run the same tests
_FIRST = (os.getpid() & 63) * 4
HOST, INSIDE = f"{_NET}.{_FIRST + 1}", f"{_NET}.{_FIRST + 2}"


class Network:
    """A namespace, a veth pair into it, and its own idea of names."""

    def __init__(self) -> None:
        self.name = f"agent{os.getpid()}"
        self._outside, self._inside = f"va{os.getpid()}", f"vb{os.getpid()}"
        self._hosts = Path("/etc/netns") / self.name / "hosts"

    def make(self) -> None:
        self._hosts.parent.mkdir(parents=True)
        self.resolve()
        (self._hosts.parent / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        inside = self._inside
        _ip("netns", "add", self.name)
        _ip("link", "add", self._outside, "type", "veth", "peer", inside, "netns", self.name)
        _ip("address", "add", f"{HOST}/30", "dev", self._outside)
        _ip("link", "set", self._outside, "up")
        for words in (f"address add {INSIDE}/30 dev {inside}", f"link set {inside} up",
                      "link set lo up"):  # fmt: skip
            _ip("-n", self.name, *words.split())

    def remove(self) -> None:
        _ip("link", "del", self._outside, check=False)
        _ip("netns", "del", self.name, check=False)
        shutil.rmtree(self._hosts.parent, ignore_errors=True)

    def socket(self) -> socket.socket:
        """One that is within the namespace, whoever uses it."""

        def make() -> socket.socket:  # in a thread of its own, which is there from then on
            with Path("/run/netns", self.name).open() as namespace:
                assert ctypes.CDLL(None).setns(namespace.fileno(), 0) == 0
            return socket.socket()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(make).result()

    def resolve(self, *, works: bool = True) -> None:
        """Written in place: the namespace has this very file mounted."""
        self._hosts.write_text(f"127.0.0.1 localhost\n{HOST} n1\n" if works else "")

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """What the agent sends goes to a station that is not there; nobody is told."""
        entry = (HOST, "dev", self._inside)
        nowhere = ("lladdr", "02:00:00:00:00:99", "nud", "permanent")
        _ip("-n", self.name, "neighbour", "replace", *entry, *nowhere)
        try:
            yield
        finally:
            _ip("-n", self.name, "neighbour", "del", *entry)


def _ip(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30)
    assert not check or done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"

"""The system calls of each architecture, from the table `syscalls.txt`, which names its source."""

from __future__ import annotations

from functools import cache
from importlib import resources

ARCHITECTURES = (
    "x86", "x86_64", "arm", "aarch64", "loongarch64", "mips64", "ppc64", "riscv64", "s390x",
)  # fmt: skip
_MACHINES = {"i386": "x86", "i686": "x86", "armv7l": "arm", "armv6l": "arm", "ppc64le": "ppc64"}


def architecture_of(machine: str) -> str:
    """The table's name for the output of `uname -m`; "" when it is not in the table."""
    name = _MACHINES.get(machine, machine)
    return name if name in ARCHITECTURES else ""


@cache
def architectures_by_name() -> dict[str, frozenset[str]]:
    """System call → the architectures that have it. Cached."""
    text = resources.files("nodeagent.profiles").joinpath("syscalls.txt").read_text("ascii")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, listed = line.partition(" ")
            found[name] = _ALL if listed == "*" else frozenset(listed.split(",")) - {"-"}
    return found


_ALL = frozenset(ARCHITECTURES)

"""The base filesystem: containerd, runc, CRIU and their dependencies, shared by all instances.

`BASE/root` holds the unpacked packages, of which an instance uses `usr`; `BASE/versions.json` is
written last and marks the base as complete. A base is built in a temporary place and renamed, so
that a killed build leaves nothing that looks finished; a lock excludes concurrent builds.
"""

import datetime
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from . import locks, namespace, packages, processes
from .progress import RuntimeToolError, run, say

PACKAGES = (
    "bash",
    "busybox-static",
    "ca-certificates",
    "containerd",
    "containernetworking-plugins",
    "coreutils",
    "criu",
    "crun",
    "dash",
    "findutils",
    "grep",
    "gzip",
    "iproute2",
    "iptables",
    "kmod",
    "mount",
    "nftables",
    "runc",
    "sed",
    "tar",
    "util-linux",
)
_RECORD = "versions.json"
_PROGRAMS = ("containerd", "runc", "criu", "crun")


def ensure(base: Path) -> None:
    """Build the base unless it is complete already."""
    if is_complete(base):
        return
    _check_machine()
    base.parent.mkdir(parents=True, exist_ok=True)
    with locks.held(base.parent):
        if is_complete(base):  # another builder was faster
            return
        building = _building_place(base)
        _remove(building)
        try:
            _build(building)
            _remove(base)
            building.rename(base)
        finally:
            _remove(building)
    say(f"the base is complete: {base}")


def is_complete(base: Path) -> bool:
    """Tell whether `base` was built to its end."""
    return (base / _RECORD).is_file()


def recorded_versions(base: Path) -> Mapping[str, str]:
    """Return what was written down of the programs' versions; empty without a base."""
    try:
        record = json.loads((base / _RECORD).read_text())
    except FileNotFoundError:
        return {}
    return dict(record["programs"])


def remove(base: Path) -> None:
    """Remove the base, and what a killed build left."""
    _remove(base)
    _remove(_building_place(base))


def is_used(base: Path) -> bool:
    """Tell whether an instance runs from the base now."""
    return processes.see(base / "root/usr", "usr")


def _building_place(base: Path) -> Path:
    return base.with_name(f".{base.name}.building")


def _check_machine() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise RuntimeToolError("building a runtime needs Linux and root; run it as root")
    if not Path("/lib").is_symlink():
        raise RuntimeToolError(
            "this machine keeps /lib apart from /usr/lib; a private runtime needs a merged /usr "
            "(Debian: install the package usrmerge)"
        )
    packages.require_apt()


def _build(building: Path) -> None:
    building.mkdir()
    root = building / "root"
    filled = packages.fill(root, PACKAGES)
    _complete(root)
    record = {
        **filled,
        "built": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "programs": _ask_versions(building),
    }
    (building / _RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def _complete(root: Path) -> None:
    """Do what maintainer scripts would have done, as far as an instance needs it."""
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            (root / "usr/sbin" / f"{family}{suffix}").symlink_to("xtables-nft-multi")
    for name in namespace.SHOWN_FROM_HOST:
        (root / "usr" / name).mkdir(exist_ok=True)
    for name in (namespace.STAGE, namespace.EMPTY):
        path = root.parent / name
        path.mkdir() if name == namespace.STAGE else path.touch()


def _ask_versions(building: Path) -> Mapping[str, str]:
    """Run every program once in a namespace of its own: the base works, or is not complete."""
    say("trying the programs")
    versions = {}
    for program in _PROGRAMS:
        told = run(namespace.one_off(building, [program, "--version"]))
        words = told.split("\n", 1)[0].replace("Version:", "").split()
        number = [word for word in words if word.lstrip("v")[:1].isdigit()]
        versions[program] = number[0].lstrip("v") if number else told.strip()
    return versions


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)

"""The root filesystem of a test machine: systemd, a container runtime and CRIU, from packages.

`BASE/root` is never run in place: a machine uses an overlay of it or an image copied from it.
`BASE/versions.json` is written last and marks the root as complete.
`python -m tools.testbed.root BASE` makes it beforehand.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from tools.runtime_lib import locks, packages
from tools.runtime_lib.progress import RuntimeToolError, run

PACKAGES = (
    "base-files",
    "base-passwd",
    "bash",
    "busybox-static",
    "ca-certificates",
    "containerd",
    "containernetworking-plugins",
    "coreutils",
    "criu",
    "dash",
    "dbus",
    "dbus-system-bus-common",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "iptables",
    "kmod",
    "libbz2-1.0",
    "libc-bin",
    "libffi8",
    "liblzma5",
    "libsqlite3-0",
    "libssl3t64",
    "libstdc++6",
    "mount",
    "nftables",
    "passwd",
    "procps",
    "runc",
    "sed",
    "systemd",
    "systemd-sysv",
    "tar",
    "udev",
    "util-linux",
    "zlib1g",
)
_RECORD = "versions.json"


def ensure(base: Path) -> Path:
    """Build `BASE/root` unless it is complete; return it. RuntimeToolError says what is missing."""
    root = base / "root"
    if (base / _RECORD).is_file():
        return root
    if os.geteuid() != 0:
        raise RuntimeToolError("a test machine needs root: run as root")
    packages.require_apt()
    base.parent.mkdir(parents=True, exist_ok=True)
    with locks.held(base.parent):
        if not (base / _RECORD).is_file():
            shutil.rmtree(base, ignore_errors=True)
            _build(base)
    return root


def _build(base: Path) -> None:
    base.mkdir()
    root = base / "root"
    versions = packages.fill(root, PACKAGES)
    _complete(root)
    (base / _RECORD).write_text(json.dumps(versions, indent=1, sort_keys=True) + "\n")


def _complete(root: Path) -> None:
    """Do what maintainer scripts would have done, as far as a machine needs it to boot."""
    for name in ("passwd", "group"):
        shutil.copy(root / f"usr/share/base-passwd/{name}.master", root / "etc" / name)
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            (root / "usr/sbin" / f"{family}{suffix}").symlink_to("xtables-nft-multi")
    for name, target in (("run", "/run"), ("lock", "/run/lock")):
        (root / "var" / name).rmdir()
        (root / "var" / name).symlink_to(target)
    run(["chroot", str(root), "ldconfig"])
    run(["chroot", str(root), "systemd-sysusers"])
    (root / "etc/machine-id").write_text("")  # every boot is a machine of its own
    (root / "etc/fstab").write_text("")
    (root / "etc/hostname").write_text("testbed\n")


if __name__ == "__main__":
    try:
        ensure(Path(sys.argv[1]).resolve())
    except RuntimeToolError as error:
        sys.exit(str(error))

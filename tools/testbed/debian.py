"""The root filesystem of a bare Debian with apt and systemd, as an installer leaves it.

Packages that tests install lie downloaded in apt's cache, and nothing else: a booted machine has no
network. It takes minutes, and is kept; `BASE/SUITE.done` marks a complete one, and says what is in
its cache.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from tools.runtime_lib import locks, packages
from tools.runtime_lib.progress import RuntimeToolError, run, say

SUITES = ("bookworm", "trixie", "sid")
_INSTALLED = ("systemd-sysv", "dbus", "iproute2", "ca-certificates", "procps", "kmod", "udev")
_CACHED = (
    "python3", "containerd", "containernetworking-plugins", "curl", "prometheus",
    "etcd-server", "etcd-client", "haproxy", "needrestart",
)  # fmt: skip
# With what they recommend: mmdebstrap would leave that out.
_FETCH = "-y --install-recommends --download-only"


def ensure(base: Path, suite: str) -> Path:
    """Make `BASE/SUITE` unless it is complete. RuntimeToolError says what is missing."""
    root = base / suite
    if _is_complete(base, suite):
        return root
    if os.geteuid() != 0:
        raise RuntimeToolError("a Debian system needs root: run as root")
    if shutil.which("mmdebstrap") is None:
        raise RuntimeToolError("mmdebstrap is missing")
    base.mkdir(parents=True, exist_ok=True)
    with locks.held(base):
        if not _is_complete(base, suite):
            shutil.rmtree(root, ignore_errors=True)
            _build(base, root, suite)
            _done(base, suite).write_text(" ".join(_CACHED))
    return root


def _is_complete(base: Path, suite: str) -> bool:
    done = _done(base, suite)
    return done.is_file() and done.read_text() == " ".join(_CACHED)


def _done(base: Path, suite: str) -> Path:
    return base / f"{suite}.done"


def _build(base: Path, root: Path, suite: str) -> None:
    mirror = packages.Apt(base / "apt").mirror(
        platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    )
    say(f"making a root of {suite}")
    fetch = f'chroot "$1" apt-get install {_FETCH} {" ".join(_CACHED)} >&2'
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--quiet"]
    command += ["--skip=cleanup/apt/lists,cleanup/apt/cache"]
    command += ['--aptopt=Acquire::Check-Valid-Until "false"']
    command += [f"--include={','.join(_INSTALLED)}", f"--customize-hook={fetch}"]
    run([*command, suite, str(root), mirror], timeout_s=1200)

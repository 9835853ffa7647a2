"""The private mount namespace of an instance.

The host's root stays the root, so that every path means the same to the runtime and to the host;
only /usr is that of the base (the host's /usr/local and /usr/src stay visible in it), and the two
directories outside its own that containerd and CNI require are private. A sleeping process keeps
the namespace alive while containerd is stopped.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .progress import RuntimeToolError

STAGE = "stage"
EMPTY = "empty"
SHOWN_FROM_HOST = ("local", "src")
PRIVATE_RUN = Path("/run/containerd")
PRIVATE_CNI = Path("/var/lib/cni")
MADE_HERE = 0o1755  # the mode of places that this tool made, which nobody else gives them
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
_PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_DIR", "SSL_CERT_FILE")

# $1 is the base, $2 the name of the tmpfs, $3 the directory for /var/lib/cni ("" for neither);
# what follows is run in the namespace. The loader's cache is hidden: it is of the host's /usr.
_SCRIPT = """
set -eu
base=$1 name=$2 cni=$3
shift 3
mount -n --bind "$base/root/usr" "$base/stage"
mount -n -o remount,bind,ro "$base/stage"
for shown in local src; do
  if [ -d "/usr/$shown" ]; then mount -n --rbind "/usr/$shown" "$base/stage/$shown"; fi
done
if [ -e /etc/ld.so.cache ]; then mount -n --bind "$base/empty" /etc/ld.so.cache; fi
if [ -n "$name" ]; then
  mount -n -t tmpfs -o mode=711,size=64m "$name" /run/containerd
  mount -n --bind "$cni" /var/lib/cni
fi
mount -n --move "$base/stage" /usr
mount -n --make-rshared /
exec "$@"
"""


HOLDER = ("sleep", "infinity")


def environment() -> dict[str, str]:
    """Return what programs in the namespace get to know: enough to pull images, nothing more."""
    names = [name for upper in _PASSED_ON for name in (upper, upper.lower())]
    passed_on = {name: os.environ[name] for name in names if name in os.environ}
    return _ENVIRONMENT | passed_on


def one_off(base: Path, command: Sequence[str], *, name: str = "", cni: str = "") -> list[str]:
    """Return the command line that runs `command` in a new namespace made from `base`."""
    unshare = ["unshare", "-m", "--propagation", "slave", "--"]
    return [*unshare, "/bin/sh", "-c", _SCRIPT, "sh", str(base), name, cni, *command]


def inside(pid: int, command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` in the namespace of the process `pid`."""
    return ["nsenter", "-t", str(pid), "-m", "--", *command]


def hold(base: Path, name: str, cni: Path) -> int:
    """Make the namespace and return the id of the process that keeps it.

    `name` is the name of its tmpfs on /run/containerd, `cni` the directory shown as /var/lib/cni.
    """
    cni.mkdir(parents=True, exist_ok=True)
    for path in (PRIVATE_RUN, PRIVATE_CNI):
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(MADE_HERE)
    script = f"echo made; exec {' '.join(HOLDER)} >/dev/null 2>&1"
    holder = subprocess.Popen(
        one_off(base, ["/bin/sh", "-c", script], name=name, cni=str(cni)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd="/",
        env=environment(),
    )
    assert holder.stdout is not None
    told = holder.stdout.readline().decode(errors="replace").strip()
    if told != "made":
        holder.wait()
        raise RuntimeToolError(f"cannot make a private mount namespace: {told or 'no message'}")
    return holder.pid

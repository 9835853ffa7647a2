"""Starts an instance, and stops and starts its containerd alone.

Each step checks what exists (processes, mounts, interfaces, images) and adds what is missing, so
that `up` also repairs an incomplete instance.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import base as basis
from . import cgroups, config, cri, images, locks, namespace, network, processes, sharing
from .instance import Instance
from .progress import RuntimeToolError, run, say

_BOOT_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0
_IMPORT_TIMEOUT_S = 10.0
_LONGEST_LOG_BYTES = 16 << 20
# Mounts an overlay at $1 in a namespace that ends at once: not every filesystem can carry one.
_TRY_OVERLAY = """
mkdir -p "$1/lower" "$1/upper" "$1/work"
mount -n -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" overlay "$1/lower"
"""


def up(instance: Instance, shared: Sequence[Path] = ()) -> None:
    """Bring the instance up, or do what is missing for that.

    Mounts made later below the `shared` directories are seen by the runtime, if its namespace is
    made now.
    """
    layout = instance.layout
    if instance.is_up():
        say("already up")
        return
    check_places(instance)
    basis.ensure(instance.base)
    layout.directory.mkdir(parents=True, exist_ok=True)
    with locks.held(layout.directory):
        instance.write_record(base=str(instance.base), endpoint=layout.endpoint, state="up")
        sharing.share_all(shared, instance)
        holder = hold(instance)
        subnet = network.ensure(layout, instance.record().get("subnet"), instance.run)
        instance.write_record(subnet=subnet)
        boot(instance, holder)
        wait_ready(instance)
        import_images(instance, holder)
    say("up")


def check_places(instance: Instance) -> None:
    """Fail when the instance could not be made, or could not see its own directories."""
    if os.geteuid() != 0:
        raise RuntimeToolError(
            "a private runtime needs root: run as root, or set CONTAINER_RUNTIME_ENDPOINT to a "
            "runtime that is there already"
        )
    for path in (instance.layout.directory, instance.base):
        hidden = path.is_relative_to("/usr") and path.parts[2] not in namespace.SHOWN_FROM_HOST
        if hidden or path.is_relative_to(namespace.PRIVATE_RUN):
            raise RuntimeToolError(f"{path} is covered inside the runtime: choose another place")


def hold(instance: Instance) -> int:
    """Return the id of a process that keeps the namespace; make both when they are missing."""
    layout = instance.layout
    holder = instance.holder()
    if holder is not None:
        return holder.pid
    for process in instance.living():
        if process.private:  # the holder was killed, but containerd or a shim keeps the namespace
            say("holding the namespace again")
            return _spawn(namespace.inside(process.pid, namespace.HOLDER), Path(os.devnull), {})
    if layout.state.exists():  # of a time before a reboot or a crash: nothing of it runs any more
        cgroups.remove(cgroups.of_containers(cgroups.container_ids(layout.state, [])))
        shutil.rmtree(layout.state)
    say("making the mount namespace")
    with locks.held(locks.MACHINE):
        return namespace.hold(instance.base, layout.marker, layout.cni / "results")


def boot(instance: Instance, holder: int) -> None:
    """Start containerd unless it runs; it finds running containers again."""
    layout = instance.layout
    if instance.daemon() is not None:
        return
    say("starting containerd")
    for path in (layout.run, layout.temporary, layout.log.parent):
        path.mkdir(parents=True, exist_ok=True)
    if layout.log.exists() and layout.log.stat().st_size > _LONGEST_LOG_BYTES:
        layout.log.replace(layout.log.with_suffix(".log.1"))
    layout.containerd_config.write_text(config.containerd_toml(layout, _snapshotter(instance)))
    command = ["containerd", "--config", str(layout.containerd_config)]
    _spawn(namespace.inside(holder, command), layout.log, {"TMPDIR": str(layout.temporary)})


def start(instance: Instance) -> None:
    """Start containerd again in an instance whose namespace still exists."""
    if not any(process.private for process in instance.living()):
        raise RuntimeToolError(f"{instance.layout.directory} is down: use `up`")
    with locks.held(instance.layout.directory):
        boot(instance, hold(instance))
        wait_ready(instance)


def stop(instance: Instance, name: str) -> None:
    """Send the signal `name` to containerd alone; wait for its end after KILL and TERM, and after
    STOP until it has stopped.
    """
    daemon = instance.daemon()
    if daemon is None:
        raise RuntimeToolError(f"no containerd runs in {instance.layout.directory}")
    processes.send(daemon, signal.Signals[f"SIG{name}"], instance.layout.marker)
    if name == "CONT":
        return
    done = processes.is_stopped if name == "STOP" else lambda _: instance.daemon() is None
    if not cri.wait(lambda: done(daemon), timeout_s=_STOP_TIMEOUT_S):
        raise RuntimeToolError(f"containerd (process {daemon.pid}) did not obey SIG{name}")


def wait_ready(instance: Instance) -> None:
    """Wait until CRI answers and reports runtime and network ready."""
    path = instance.layout.socket
    if cri.wait(lambda: not cri.not_ready(path), timeout_s=_BOOT_TIMEOUT_S):
        return
    try:
        told = "; ".join(cri.not_ready(path))
    except cri.CallFailed:
        lines = instance.layout.log.read_text(errors="replace").splitlines()
        told = " | ".join(lines[-2:])
    raise RuntimeToolError(f"containerd is not ready, see {instance.layout.log}: {told}")


def import_images(instance: Instance, holder: int) -> None:
    """Give the runtime the images it lacks, and wait until CRI knows them."""
    path = instance.layout.socket
    made = images.build(instance.base / "root/usr/bin/busybox")
    if _has(path, made):
        return
    say("importing images")
    archive = instance.layout.directory / "images.tar"
    archive.write_bytes(made.archive)
    ctr = ["ctr", "--address", str(path), "--namespace", "k8s.io", "images", "import"]
    run(namespace.inside(holder, [*ctr, str(archive)]), env=namespace.environment())
    archive.unlink()
    if not cri.wait(lambda: _has(path, made), timeout_s=_IMPORT_TIMEOUT_S):
        raise RuntimeToolError("the images were imported, but CRI does not show them")


def _has(path: Path, made: images.ImageSet) -> bool:
    return all(cri.image_id(path, name) == wanted for name, wanted in made.ids.items())


def _snapshotter(instance: Instance) -> str:
    """Choose how images become filesystems: overlays, or copies where overlays do not work."""
    known = instance.record().get("snapshotter")
    if known is not None and instance.layout.root.exists():
        return known
    trial = instance.layout.directory / "overlay-trial"
    try:
        instance.run(["/bin/sh", "-euc", _TRY_OVERLAY, "sh", str(trial)])
        chosen = "overlayfs"
    except RuntimeToolError as error:
        say(f"copying images instead of stacking them: {error}")
        chosen = "native"
    shutil.rmtree(trial, ignore_errors=True)
    instance.write_record(snapshotter=chosen)
    return chosen


def _spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    """Start a process that outlives this one; its output goes to the end of `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            env={**namespace.environment(), **environment},
        ).pid

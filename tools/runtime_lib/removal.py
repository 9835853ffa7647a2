"""Removes an instance, whatever state it is in.

First in order: pods are removed over CRI, by a containerd started for that if need be, so that the
network plugins and the database forget them too. Then the rest by force, found through the kernel
and by names derived from the directory, never from records.
"""

import concurrent.futures
import contextlib
import os
import shutil
import signal
import stat
import time
from pathlib import Path

from . import base as basis
from . import cgroups, cri, locks, namespace, network, processes, sharing, startup
from .instance import Instance
from .progress import RuntimeToolError, run, say

_END_TIMEOUT_S = 20.0
_REMOVERS = 4
_CRUN_STATE = Path("/run/crun")  # crun makes it whenever it is asked for its version
_CRIU_TRACE = Path("/run/criu.kdat.tmp")  # CRIU leaves it, empty, where /run is not a tmpfs


def down(instance: Instance, *, purge: bool) -> None:
    """End and remove all of the instance but what the next `up` can use again.

    With `purge`, its directory and the base go too.
    """
    directory = instance.layout.directory
    with locks.held(directory) if directory.exists() else contextlib.nullcontext():
        _down(instance)
        if purge:
            _purge(instance)
    say("down")


def _purge(instance: Instance) -> None:
    """Remove the files of the instance and the base, unless another instance runs from it."""
    say("removing its files and the base")
    directory = instance.layout.directory
    used = basis.is_used(instance.base)
    if directory.exists() and not (used and instance.base.is_relative_to(directory)):
        shutil.rmtree(directory)
    if used:
        raise RuntimeToolError(f"{instance.base} stays: another instance runs from this base")
    basis.remove(instance.base)


def _down(instance: Instance) -> None:
    layout = instance.layout
    ids = cgroups.container_ids(layout.state, instance.living())
    groups = cgroups.of_containers(ids)
    cgroups.thaw(groups)
    if instance.record().get("state") == "up":
        try:
            _remove_pods(instance)
        except (RuntimeToolError, cri.CallFailed, OSError) as error:
            say(f"pods cannot be removed in order ({error}): dropping the images with them")
            shutil.rmtree(layout.root, ignore_errors=True)
    _end_processes(instance)
    cgroups.remove(groups)
    with locks.held(locks.MACHINE):
        _remove_network(instance)
        _remove_traces()
    sharing.unshare(sharing.made_for(instance))
    for path in (layout.state, layout.run, layout.cni, layout.temporary):
        shutil.rmtree(path, ignore_errors=True)
    if layout.directory.exists():
        instance.write_record(state="down", shared="")


def _remove_pods(instance: Instance) -> None:
    """Remove all pods over CRI, with the containerd that runs or one started for it."""
    if not basis.is_complete(instance.base):
        raise RuntimeToolError(f"the base {instance.base} is gone")
    if daemon := instance.daemon():
        processes.send(daemon, signal.SIGCONT, instance.layout.marker)  # it may be frozen
    startup.boot(instance, startup.hold(instance))
    path = instance.layout.socket
    if not cri.wait(lambda: bool(cri.version(path)), timeout_s=_END_TIMEOUT_S):
        raise RuntimeToolError("containerd does not answer")
    pods = cri.pods(path)
    if not pods:
        return
    say(f"removing {len(pods)} pods")
    with concurrent.futures.ThreadPoolExecutor(max_workers=_REMOVERS) as pool:
        for _ in pool.map(lambda pod: cri.remove_pod(path, pod), pods):
            pass


def _end_processes(instance: Instance) -> None:
    """Kill what is left of the instance until nothing is; its mounts go with the last process."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    while living := instance.living():
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in living)
            raise RuntimeToolError(f"these processes of the instance do not end: {pids}")
        daemon = instance.daemon()  # first, so that it does not start to clean up after the others
        for process in [daemon, *living] if daemon else living:
            processes.send(process, signal.SIGKILL, instance.layout.marker)
        time.sleep(0.02)


def _remove_network(instance: Instance) -> None:
    """Remove bridge and rules, with the base's programs or, without a base, with the host's."""
    if basis.is_complete(instance.base):
        network.remove(instance.layout, instance.run)
    elif network.exists(instance.layout):
        network.remove(instance.layout, run)


def _remove_traces() -> None:
    """Remove the empty directories and files that this tool made outside the instance.

    Removing a mount point would unmount what another instance has there, so those in use stay,
    and so does what is not empty, or what the host's own runtime made. Only root makes any.
    """
    if os.geteuid() != 0:
        return
    for path in (namespace.PRIVATE_RUN, namespace.PRIVATE_CNI):
        if path.is_dir() and stat.S_IMODE(path.stat().st_mode) == namespace.MADE_HERE:
            _remove_unused(path)
    _remove_unused(_CRUN_STATE)
    if _CRIU_TRACE.exists() and _CRIU_TRACE.stat().st_size == 0:
        _CRIU_TRACE.unlink()


def _remove_unused(path: Path) -> None:
    if path.is_dir() and not any(path.iterdir()) and not processes.mount_on(path):
        path.rmdir()

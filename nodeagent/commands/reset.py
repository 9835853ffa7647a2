"""`nodeagent reset`: removes from this host what the agent made, and nothing else.

Without `--yes` it only says what it would remove. Takes the daemon's flags. It works through the
pods at the runtime (their containers, networks and logs), mounts, cgroups and files, in this order,
so that a reset that failed halfway is repeated. Exit codes: 0 done, 1 something could not be
removed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import glob
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nodeagent import descriptors
from nodeagent.archives.manifest import DIRECTORY as CHECKPOINTS
from nodeagent.commands import config as config_command
from nodeagent.config import options
from nodeagent.config.options import OWN_CERTIFICATE, Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.node import logind, shutdown
from nodeagent.pods.cgroups import tree
from nodeagent.pods.cgroups.tree import CgroupError
from nodeagent.pods.devices import assignment, pod_resources
from nodeagent.pods.logs.links import LogLinks
from nodeagent.pods.volumes import kernel_mounts
from nodeagent.pods.worker import services
from nodeagent.runtime.base import RuntimeCallError, RuntimeNotFound, Sandbox
from nodeagent.runtime.cri import CriRuntime
from orch.component.process import files
from orch.component.process.daemon import SetupError
from orch.wire import names

_CALL_S = 60.0  # for one call of the runtime
_REMOVING_S, _PAUSE_S = 60.0, 1.0  # what a killed agent was starting or removing is let finish
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_EMPTYING_S = 10.0  # until the processes of a cgroup have ended
# Of the agent's directory; another name in it, such as `seccomp`, is an administrator's.
_OWN = (
    "pods", CHECKPOINTS, assignment.FOLDER, assignment.FILE, pod_resources.FOLDER,
    services.GRANTED_FILE, services.SIZES_FILE, shutdown.STATE_FILE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Removal:
    """A thing that is there, and how it goes."""

    what: str
    remove: Callable[[], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="remove it; otherwise it is only listed")
    options.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    given, config = options.options_of(args), config_command.load(args)
    if not args.yes:
        listed = [f"pod {_name(sandbox)}" for sandbox in asyncio.run(_sandboxes(config))]
        listed += [removal.what for removal in _on_this_host(given, config)]
        for what in listed:
            sys.stdout.write(f"would remove {what}\n")
        again = "run it again with --yes to remove them" if listed else "there is nothing to remove"
        sys.stdout.write(f"{again}\n")
        return 0
    with _lock(given):
        asyncio.run(_remove_pods(given, config))
        for removal in _on_this_host(given, config):
            try:
                removal.remove()
            except (OSError, CgroupError) as error:
                raise SetupError(f"cannot remove {removal.what}: {error}; repeat it") from None
            sys.stdout.write(f"removed {removal.what}\n")
    return 0


@contextlib.contextmanager
def _lock(given: Options) -> Iterator[None]:
    """Keeps an agent from starting meanwhile; SetupError if one runs."""
    if not given.lock_file:
        yield
        return
    try:
        held = files.acquire(given.lock_file, holder="node agent")
    except files.LockHeldError as error:
        raise SetupError(f"{error}; stop it first: systemctl stop nodeagent") from None
    except OSError as error:
        raise SetupError(f"cannot use the lock file {given.lock_file}: {error}") from None
    try:
        yield
        Path(given.lock_file).unlink(missing_ok=True)
    finally:
        os.close(held)


async def _sandboxes(config: NodeAgentConfiguration) -> Sequence[Sandbox]:
    if not config.containerRuntimeEndpoint:
        return ()
    async with AsyncExitStack() as stack:
        return await _own_sandboxes(_runtime(config, stack), config)


async def _remove_pods(given: Options, config: NodeAgentConfiguration) -> None:
    """End every pod of the agent at once; the runtime removes containers and network."""
    if not config.containerRuntimeEndpoint:
        return
    links = LogLinks(config.podLogsDir)
    async with AsyncExitStack() as stack:
        runtime = _runtime(config, stack)
        for sandbox in await _own_sandboxes(runtime, config):
            end_s = time.monotonic() + _REMOVING_S
            while True:
                try:
                    await _remove_pod(runtime, config, links, sandbox)
                    break
                except (RuntimeCallError, OSError) as error:
                    if time.monotonic() > end_s:
                        raise SetupError(
                            f"cannot remove pod {_name(sandbox)}: {error}; repeat it"
                        ) from None
                    await asyncio.sleep(_PAUSE_S)
            sys.stdout.write(f"removed pod {_name(sandbox)}\n")


async def _remove_pod(
    runtime: CriRuntime, config: NodeAgentConfiguration, links: LogLinks, sandbox: Sandbox
) -> None:
    with contextlib.suppress(RuntimeNotFound):
        await runtime.stop_sandbox(sandbox.id)
    await asyncio.to_thread(_remove_logs, config, links, sandbox.uid)
    with contextlib.suppress(RuntimeNotFound):
        await runtime.remove_sandbox(sandbox.id)


def _runtime(config: NodeAgentConfiguration, stack: AsyncExitStack) -> CriRuntime:
    runtime = CriRuntime(config.containerRuntimeEndpoint, timeout_s=_CALL_S)
    stack.push_async_callback(runtime.close)
    return runtime


async def _own_sandboxes(runtime: CriRuntime, config: NodeAgentConfiguration) -> Sequence[Sandbox]:
    try:
        listed = await runtime.list_sandboxes()
    except RuntimeCallError as error:
        raise SetupError(
            f"the pods at {config.containerRuntimeEndpoint} cannot be listed: {error}; start the "
            "runtime, or if it is gone with its pods, give --container-runtime-endpoint="
        ) from None
    return [sandbox for sandbox in listed if names.RUNTIME_LABEL_NODE_NAME in sandbox.labels]


def _name(sandbox: Sandbox) -> str:
    return f"{sandbox.namespace}/{sandbox.name} ({sandbox.uid})"


def _logs(config: NodeAgentConfiguration, uid: str) -> Sequence[Path]:
    return sorted(Path(config.podLogsDir).glob(f"*_*_{glob.escape(uid)}")) if uid else ()


def _remove_logs(config: NodeAgentConfiguration, links: LogLinks, uid: str) -> None:
    for directory in _logs(config, uid):
        links.remove(f"{directory}/")
        descriptors.remove_tree(directory)


def _on_this_host(given: Options, config: NodeAgentConfiguration) -> Iterator[_Removal]:
    """What is there now; each is looked for when those before have been removed."""
    root = os.path.realpath(given.root_dir)
    for mount in kernel_mounts.mounts_below(f"{root}/pods"):
        yield _Removal(f"mount {mount.path}", partial(kernel_mounts.unmount, mount.path))
    parent = (config.cgroupRoot.rstrip("/") + tree.PARENT).strip("/")
    for hierarchy in tree.hierarchies(_CGROUP_ROOT).values():
        if (cgroup := hierarchy / parent).is_dir():
            yield _Removal(f"cgroup {cgroup}", partial(_remove_cgroup, cgroup))
    links = LogLinks(config.podLogsDir)
    for pod in sorted(Path(root, "pods").glob("*")):
        for logs in _logs(config, pod.name):
            yield _Removal(f"logs {logs}", partial(_remove_logs, config, links, pod.name))
    yield from _own_files(Path(root), given)


def _own_files(root: Path, given: Options) -> Iterator[_Removal]:
    """Files and directories below the agent's own, and then these where nothing else is in them."""
    own = (*(root / name for name in _OWN), *_own_certificate(given), logind.DROP_IN)
    for path in filter(os.path.lexists, own):
        yield _Removal(str(path), partial(_remove_path, path))
    for directory in (Path(given.cert_dir), root):
        if directory.is_dir() and not any(directory.iterdir()):
            yield _Removal(str(directory), directory.rmdir)


def _own_certificate(given: Options) -> tuple[Path, Path]:
    own = f"{given.cert_dir}/{OWN_CERTIFICATE}"
    return Path(f"{own}.crt"), Path(f"{own}.key")


def _remove_cgroup(path: Path) -> None:
    """CgroupError where processes do not end."""
    end_s = time.monotonic() + _EMPTYING_S
    while not tree.remove_cgroups(path):
        if time.monotonic() > end_s:
            raise CgroupError("its processes do not end")
        time.sleep(0.1)


def _remove_path(path: Path) -> None:
    """A file, or a directory nothing is mounted in: OSError where something is."""
    if mounts := kernel_mounts.mounts_below(os.path.realpath(path)):
        raise OSError(f"{mounts[0].path} is mounted")
    if path.is_dir() and not path.is_symlink():
        descriptors.remove_tree(path)
    else:
        path.unlink()

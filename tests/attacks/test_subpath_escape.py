"""A pod swaps a directory of its volume for a link while sub-paths of it are mounted.

Most of the 1,000 tries call the room of volumes while a process swaps as fast as the kernel lets
it, half of them through the mount helper; the rest are containers on a real containerd, with a
neighbour in their pod that swaps. A control that checks a path and then uses it shows that the swap
is quick enough to win. At last the agent with the rights of its shipped unit, without a helper.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.volumes.mounts import HelpedMounts, Mounts, OwnMounts
from nodeagent.pods.volumes.volumes import VolumeError, VolumeStore
from nodeagent.runtime.base import Mount
from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import eventually, local_cluster
from tests.fakes.mounts import CONFINED, running_helper, shared_directory
from tests.fakes.pods import UID
from tests.fakes.realpods import Agent, manifest, waiting

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
    pytest.mark.seconds(15),
]

DIRECT, CONTAINERS = 990, 10
SWAP = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
one, other = (os.fsencode(path) for path in sys.argv[1:])
print("swapping", flush=True)
while True:
    for _ in range(21):  # an odd number: in turns the one and the other stays for a moment
        libc.renameat2(-100, one, -100, other, 2)
    time.sleep(0.0003)
"""
# The shell of a container has no exchange in one step: four renames, again and again.
SWAP_IN_POD = (
    "mkdir -p /vol/d/part && ln -s {host} /vol/l && while :; do "
    "mv /vol/d /vol/x; mv -T /vol/l /vol/d; mv -T /vol/d /vol/l; mv /vol/x /vol/d; done"
)
LOOK = "if [ -e /part/secret ]; then echo escaped; else echo kept; fi > /dev/termination-log"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A directory of the host that is nobody's business, with a secret below."""
    directory = tmp_path / "host"
    (directory / "part").mkdir(parents=True)
    (directory / "part" / "secret").write_text("of the host")
    directory.chmod(0o700)
    return directory


@contextmanager
def swapped(volume: Path, host: Path) -> Iterator[None]:
    """`volume/d` is in turns a directory and a link to the host's."""
    (volume / "d" / "part").mkdir(parents=True, exist_ok=True)
    (volume / "l").symlink_to(host)
    command = [sys.executable, "-c", SWAP, volume / "d", volume / "l"]
    swapper = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert swapper.stdout
    swapper.stdout.readline()
    try:
        yield
    finally:
        swapper.kill()
        swapper.communicate()


def tries_until_escape(volume: Path) -> int | None:
    """After how many tries a path that was checked led out of the volume when it was used."""
    path = str(volume / "d" / "part")
    for number in range(500_000):
        with contextlib.suppress(OSError):  # swapped within the check
            inside = os.path.realpath(path).startswith(f"{volume}/")
            if inside and os.path.exists(f"{path}/secret"):
                return number
    return None


async def tried(store: VolumeStore, volume: Path) -> str:
    """What became of one start: `escaped`, `kept` in the volume, or `refused`."""
    mounts = [Mount(f"{volume}/d/part", "/part")]
    try:
        [bound] = await store.bind_sub_paths(UID, "app", mounts, {"v": str(volume)})
    except VolumeError:
        return "refused"
    assert bound.host_path.startswith(str(store.pod_dir(UID)))
    return "escaped" if Path(bound.host_path, "secret").exists() else "kept"


@pytest.fixture(params=["own", "helped"])
def mounting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Mounts]]:
    """A root directory and who mounts there."""
    with shared_directory(tmp_path / "root") as root:
        if request.param == "own":
            yield root, OwnMounts()
            return
        with running_helper(root, tmp_path / "socket"):
            yield root, HelpedMounts(str(tmp_path / "socket"))


@pytest.mark.may_block
async def test_a_swapped_directory_never_leads_out(
    mounting: tuple[Path, Mounts], host: Path
) -> None:
    root, mounts = mounting
    store = VolumeStore(str(root), mounts)
    volume = store.pod_dir(UID) / "volumes" / "empty-dir" / "v"
    volume.mkdir(parents=True)
    with swapped(volume, host):
        control = tries_until_escape(volume)
        seen = Counter([await tried(store, volume) for _ in range(DIRECT // 2)])
    await store.remove(UID)
    figures = f"{dict(seen)} of {DIRECT // 2}; by check and use after {control}"
    assert seen["escaped"] == 0, figures
    assert seen["kept"] and seen["refused"], f"the swap was too slow to matter: {figures}"
    assert control is not None, f"the swap was too slow to matter: {figures}"
    assert (host / "part" / "secret").read_text() == "of the host"


async def test_no_container_escapes_while_its_neighbour_swaps(
    tmp_path: Path, host: Path, real_runtime: RealRuntime
) -> None:
    volume = {"name": "v", "emptyDir": {}}
    part = {"name": "v", "mountPath": "/part", "subPath": "d/part"}
    swap = ["sh", "-c", SWAP_IN_POD.format(host=host)]
    whole = {"name": "v", "mountPath": "/vol"}
    swapper = {"name": "swapper", "command": swap, "volumeMounts": [whole]}
    names = [f"app{number}" for number in range(CONTAINERS)]
    looking = [
        {"name": name, "command": ["sh", "-c", LOOK], "volumeMounts": [part]} for name in names
    ]
    agent = Agent(tmp_path, real_runtime.endpoint)
    agent.start()
    try:
        agent.put(manifest("web", swapper, *looking, restartPolicy="Never", volumes=[volume]))
        await agent.until(lambda: all(outcome(agent, name) for name in names), within_s=120)
        seen = Counter(outcome(agent, name) for name in names)
    finally:
        await agent.close()
    assert set(seen) <= {"kept", "refused"}, f"{dict(seen)} of {CONTAINERS}"


def outcome(agent: Agent, name: str) -> str:
    """`refused`, what the container said, or "" before either."""
    status = agent.status("web")
    if waiting(status, name) in ("CreateContainerConfigError", "CreateContainerError"):
        return "refused"
    for found in status.containerStatuses or ():
        if found.name == name and found.state and found.state.terminated:
            return (found.state.terminated.message or "without a word").strip()
    return ""


def test_an_agent_that_may_not_mount_refuses_the_container_and_says_why(
    tmp_path: Path, real_runtime: RealRuntime
) -> None:
    part = {"name": "v", "mountPath": "/part", "subPath": "d"}
    pod: dict[str, Any] = manifest(
        "web", {"name": "app", "volumeMounts": [part]}, volumes=[{"name": "v", "emptyDir": {}}]
    )
    with local_cluster(
        tmp_path / "run", runtime=real_runtime.endpoint, confined=CONFINED
    ) as cluster:
        pod["spec"]["nodeName"] = cluster.node
        (tmp_path / "pod.json").write_text(json.dumps(pod))
        cluster.kubectl("apply", "-f", str(tmp_path / "pod.json"))

        def waits() -> Any:
            statuses = cluster.pod("web")["status"].get("containerStatuses", [])
            return [status["state"].get("waiting", {}).get("message") for status in statuses]

        [message] = eventually(
            lambda: [text for text in waits() if text],
            within_s=60,
            what="the container waits, and says why",
        )
        assert "cannot mount subPath" in message and "nodeagent-mounts.socket" in message

        def told() -> bool:
            events = cluster.get("/api/v1/namespaces/default/events")["items"]
            found = [event["message"] for event in events if event["reason"] == "Failed"]
            return any("start nodeagent-mounts.socket" in text for text in found)

        eventually(told, within_s=30, what="an event that names the helper")

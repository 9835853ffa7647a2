"""A pod swaps a directory of its volume for a link while sub-paths of it are mounted.

Containers on a real containerd are started by the agent's own code, while a neighbour in their pod
swaps as fast as the kernel lets it; for some of them, the control, the agent checks a path and the
runtime then uses it. The room of volumes alone is tried more often, half of the time through the
mount helper. At last the agent with the rights of its shipped unit, without a helper.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.volumes import kernel_mounts
from nodeagent.pods.volumes.mounts import HelpedMounts, Mounts, OwnMounts
from nodeagent.pods.volumes.volumes import VolumeError, VolumeStore
from nodeagent.runtime.base import Mount
from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import eventually, local_cluster
from tests.fakes.mounts import CONFINED, running_helper, shared_directory
from tests.fakes.pods import UID
from tests.fakes.realpods import Agent, manifest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
    pytest.mark.seconds(15),
]

DIRECT = 990
PODS, CONTAINERS, NAIVE = 4, 200, 40
SWAP = """
import ctypes, os, sys, time
volume, host = sys.argv[1:]
os.makedirs(f"{volume}/d/part", exist_ok=True)
os.close(os.open(f"{volume}/d/part/own", os.O_CREAT))
os.symlink(host, f"{volume}/l")
count = os.open(f"{volume}/count", os.O_CREAT | os.O_WRONLY)
one, other = (os.fsencode(f"{volume}/{name}") for name in "dl")
libc = ctypes.CDLL(None)
while True:
    for _ in range(21):  # an odd number: in turns the one and the other stays for a moment
        if libc.renameat2(-100, one, -100, other, 2) == 0:
            os.write(count, b".")
    time.sleep(0.0003)
"""
# The shell of the image has no exchange in one step: the swapper is this machine's Python.
PYTHON = sorted(filter(os.path.exists, {"/usr", "/lib", "/lib64", sys.base_prefix}))
WAIT = "until [ -s /vol/count ]; do sleep 0.1; done"
LOOK = (
    "if [ -e /part/secret ]; then seen=escaped; elif [ -e /part/own ]; then seen=kept; fi; "
    "echo ${seen:-lost} $(wc -c < /vol/count) > /dev/termination-log"
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A directory of the host that is nobody's business, with a secret below."""
    directory = tmp_path / "host"
    (directory / "part").mkdir(parents=True)
    (directory / "part" / "secret").write_text("of the host")
    directory.chmod(0o700)
    return directory


@pytest.fixture
def python(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where the runtime, which has programs of its own, finds this machine's Python."""
    places = {path: tmp_path / f"python{number}" for number, path in enumerate(PYTHON)}
    try:
        for path, place in places.items():
            place.mkdir()
            # Read-only: whoever clears up after a test that was killed must not clear this away.
            subprocess.run(["mount", "-o", "bind,ro", path, place], check=True)
        yield {path: str(place) for path, place in places.items()}
    finally:
        for mount in kernel_mounts.mounts_below(str(tmp_path)):
            kernel_mounts.unmount(mount.path)


@contextmanager
def swapped(volume: Path, host: Path) -> Iterator[None]:
    """`volume/d` is in turns a directory and a link to the host's."""
    swapper = subprocess.Popen([sys.executable, "-c", SWAP, volume, host])
    try:
        while not swaps(volume):
            assert swapper.poll() is None, "the swapper has ended"
            time.sleep(0.01)
        yield
    finally:
        swapper.kill()
        swapper.wait()


def swaps(volume: str | Path) -> int:
    """How many there were until now."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.getsize(f"{volume}/count")
    return 0


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


class WatchedStore(VolumeStore):
    """Counts swaps and refusals. A container `naive…` gets its path checked, as all once did."""

    def __init__(self, root_dir: str) -> None:
        super().__init__(root_dir)
        self.before: dict[str, int] = {}  # swaps until the latest start of a container began
        self.hit: set[str] = set()  # containers with swaps while a sub-path of theirs was mounted
        self.refused: Counter[str] = Counter()

    async def bind_sub_paths(
        self, uid: str, container: str, mounts: Sequence[Mount], volumes: Mapping[str, str]
    ) -> tuple[Mount, ...]:
        volume = volumes["v"]
        before = self.before[container] = swaps(volume)
        try:
            if container.startswith("naive"):
                return checked(mounts, volume)
            return await super().bind_sub_paths(uid, container, mounts, volumes)
        except (OSError, VolumeError):
            self.refused[container] += 1
            raise
        finally:
            if swaps(volume) > before and container.startswith("app"):
                self.hit.add(container)


def checked(mounts: Sequence[Mount], volume: str) -> tuple[Mount, ...]:
    """For the runtime to find by their names once more."""
    for mount in mounts:
        if not f"{os.path.realpath(mount.host_path)}/".startswith(f"{volume}/"):
            raise VolumeError(f"{mount.host_path} leads out of the volume")
    return tuple(mounts)


def attacked_pod(number: int, host: Path, python: dict[str, str]) -> dict[str, Any]:
    """A swapper, and its share of the containers that look."""
    whole = {"name": "v", "mountPath": "/vol"}
    part = {"name": "v", "mountPath": "/part", "subPath": "d/part"}
    named = {f"p{n}": place for n, place in enumerate(python.values())}
    swapper = {
        "name": "swapper",
        "command": [os.path.realpath(sys.executable), "-ISc", SWAP, "/vol", str(host)],
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", WAIT]}}},
        "resources": {"requests": {"cpu": "500m"}},  # else it would wait for all others
        "volumeMounts": [
            whole,
            *(
                {"name": n, "mountPath": path, "readOnly": True}
                for n, path in zip(named, python, strict=True)
            ),
        ],
    }
    looking = [
        {"name": f"{kind}{n}", "command": ["sh", "-c", LOOK], "volumeMounts": [whole, part]}
        for kind, all_of_them in (("app", CONTAINERS), ("naive", NAIVE))
        for n in range(number, all_of_them, PODS)
    ]
    volumes: list[dict[str, Any]] = [
        {"name": n, "hostPath": {"path": place}} for n, place in named.items()
    ]
    volumes.append({"name": "v", "emptyDir": {}})
    return manifest(f"web{number}", swapper, *looking, restartPolicy="Never", volumes=volumes)


def looks(agent: Agent) -> dict[str, tuple[str, int]]:
    """What containers saw, and how many swaps there had been by then."""
    statuses = [agent.status(f"web{number}").containerStatuses or () for number in range(PODS)]
    ended = {
        found.name: (found.state.terminated.message or "lost 0").split()
        for found in itertools.chain(*statuses)
        if found.state and found.state.terminated and found.name != "swapper"
    }
    return {name: (seen, int(count)) for name, (seen, count) in ended.items()}


@pytest.mark.may_block
@pytest.mark.alone  # it swaps as fast as it can
async def test_no_container_escapes_while_its_neighbour_swaps(
    tmp_path: Path, host: Path, python: dict[str, str], real_runtime: RealRuntime
) -> None:
    agent = Agent(tmp_path, real_runtime.endpoint)
    store = agent.services.volumes = WatchedStore(agent.services.settings.root_dir)
    agent.start()
    try:
        for number in range(PODS):
            agent.put(attacked_pod(number, host, python))
        wanted = CONTAINERS + NAIVE
        await agent.until(lambda: len({*looks(agent), *store.refused}) == wanted, within_s=200)
        looked, refused = looks(agent), Counter(store.refused)
    finally:
        await agent.close()
    ran = {name: look for name, look in looked.items() if name.startswith("app")}
    seen = Counter(word for word, _ in ran.values())
    control = Counter(look[0] for name, look in looked.items() if name not in ran)
    meanwhile = sorted(count - store.before[name] for name, (_, count) in ran.items())
    tries = sum(refused[name] for name in refused if name.startswith("app"))
    figures = (
        f"{dict(seen)} and {tries} refused of {len(ran) + tries} starts, {len(store.hit)} "
        f"containers were hit while mounting, swaps in a start that ran: {meanwhile[:1]}… "
        f"{meanwhile[-1:]}; by check and use {dict(control)}"
    )
    print(figures)
    assert set(seen) == {"kept"} and tries, figures
    assert meanwhile[0] > 0 and store.hit, f"the swap was too slow to matter: {figures}"
    assert control["escaped"], f"the swap was too slow to matter: {figures}"


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

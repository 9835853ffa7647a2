"""The runtime tool on real runtimes.

The tests share one base filesystem, in TEST_RUNTIME_BASE or below `.test`; the first one that needs
it builds it. Without root, a merged /usr or a Debian mirror they are skipped.
"""

import concurrent.futures
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.runtime_lib import (
    base,
    cgroups,
    cri,
    images,
    instance,
    processes,
)

pytestmark = pytest.mark.seconds(90)

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "runtime"


class Runtime:
    """An instance under test, driven by the command as a user would."""

    def __init__(self, directory: Path, base_path: Path) -> None:
        self.directory = directory
        self.this = instance.find(directory, base_path)
        self.layout = self.this.layout
        self._base = ["--base", str(base_path)]

    def tool(self, command: str, *options: str) -> str:
        done = subprocess.run(self.command(command, *options), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def command(self, command: str, *options: str) -> list[str]:
        return [str(TOOL), command, "--dir", str(self.directory), *self._base, *options]

    def run_pod(self, name: str = "pod") -> str:
        """Run a pod with a host port and a cgroup below one named after the instance."""
        metadata = b"".join(cri.field(n, name.encode()) for n in (1, 2, 3))
        port = b"\x10\x50\x18\x7f"  # host port 127 to container port 80
        linux = cri.field(1, f"/{self.layout.marker}/{name}".encode())
        wanted = cri.field(1, metadata) + cri.field(5, port) + cri.field(8, linux)
        request = cri.field(1, wanted)
        answer = cri.call(self.layout.socket, f"{cri.RUNTIME}RunPodSandbox", request, 20)
        return answer[1][0].decode()

    def run_container(self, pod: str, shared: Path) -> str:
        """Run a container in a pod that writes to `shared` of the host, shown as /shared."""
        script = "while :; do date > /shared/now; sleep 0.1; done"
        command = b"".join(cri.field(3, word.encode()) for word in ("sh", "-c", script))
        image = cri.field(2, cri.field(1, images.BUSYBOX.encode()))
        mount = cri.field(7, cri.field(1, b"/shared") + cri.field(2, bytes(shared)))
        wanted = cri.field(1, cri.field(1, b"writer")) + image + command + mount
        sandbox = cri.field(3, cri.field(1, b"".join(cri.field(n, b"pod") for n in (1, 2, 3))))
        request = cri.field(1, pod.encode()) + cri.field(2, wanted) + sandbox
        answer = cri.call(self.layout.socket, f"{cri.RUNTIME}CreateContainer", request, 20)
        container = answer[1][0]
        started = cri.field(1, container)
        cri.call(self.layout.socket, f"{cri.RUNTIME}StartContainer", started, 20)
        return container.decode()

    def contained(self) -> set[int]:
        return {process.pid for process in self.this.living() if not process.private}

    def kill(self, victims: list[processes.Process]) -> None:
        for victim in victims:
            processes.send(victim, signal.SIGKILL, self.layout.marker)
        gone = {victim.pid for victim in victims}
        assert cri.wait(lambda: not gone & {p.pid for p in self.this.living()}, timeout_s=5)

    def kill_private(self) -> None:
        """Kill all but the containers; containerd first, as it cleans up after killed shims."""
        daemon = self.this.daemon()
        assert daemon is not None
        self.kill([daemon])
        self.kill([process for process in self.this.living() if process.private])

    def freezer(self, pod: str) -> Path | None:
        groups = cgroups.of_containers([pod])
        return next((g for g in groups if (g / "freezer.state").exists()), None)

    def traces(self) -> list[str]:
        """Name everything of the instance that is left outside its directory."""
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        rules = self.this.run(["nft", "list", "ruleset"]).splitlines()
        address = self.this.record().get("subnet", "none").removesuffix("0/24")
        found = [f"process {process}" for process in self.this.living()]
        found += [f"mount {line}" for line in mounts if str(self.directory) in line]
        found += [f"rule {line}" for line in rules if self.layout.bridge in line or address in line]
        found += [f"cgroup {path}" for path in cgroups.of_containers([self.layout.marker])]
        found += [str(path) for path in Path("/sys/class/net").glob(self.layout.bridge)]
        return found + [str(path) for path in Path("/run").glob(f"{self.layout.marker}*")]


@pytest.fixture(scope="module")
def base_path() -> Path:
    """The base filesystem, built now unless it was built before."""
    if os.geteuid() != 0:
        pytest.skip("a real runtime needs root")
    named = os.environ.get("TEST_RUNTIME_BASE")
    path = Path(named) if named else ROOT / ".test" / "runtime" / "base"
    done = subprocess.run([TOOL, "build", "--base", path], capture_output=True, text=True)
    told = done.stderr.strip().rpartition("\n")[2]
    if any(cause in told for cause in ("cannot download", "names no", "/lib apart", "is missing")):
        pytest.skip(told)
    assert done.returncode == 0, told
    return path


@pytest.fixture
def runtime(tmp_path: Path, base_path: Path) -> Iterator[Runtime]:
    runtime = Runtime(tmp_path / "rt", base_path)
    yield runtime
    runtime.tool("down")
    assert runtime.traces() == []


@pytest.mark.real
def test_up_serves_cri_with_images_and_doing_it_again_changes_nothing(runtime: Runtime) -> None:
    told = runtime.tool("up")
    status = json.loads(runtime.tool("status"))

    endpoint, address = told.splitlines()
    assert endpoint == runtime.layout.endpoint
    assert address == status["subnet"].removesuffix("0/24") + "1"
    assert cri.version(runtime.layout.socket).name == "containerd"
    assert status["up"] is True
    assert {images.BUSYBOX, images.PAUSE} <= status["images"].keys()
    assert status["versions"].keys() >= {"containerd", "runc", "criu"}
    assert runtime.tool("up") == told
    assert json.loads(runtime.tool("status"))["pids"] == status["pids"]


@pytest.mark.real
def test_a_container_sees_host_paths_and_can_be_checkpointed(
    runtime: Runtime, tmp_path: Path
) -> None:
    runtime.tool("up")
    shared = tmp_path / "shared"  # not above the instance: CRIU cannot dump the mounts in there
    shared.mkdir()
    container = runtime.run_container(runtime.run_pod(), shared)
    archive = tmp_path / "checkpoint.tar"
    assert cri.wait((shared / "now").exists, timeout_s=5)

    request = cri.field(1, container.encode()) + cri.field(2, bytes(archive))
    cri.call(runtime.layout.socket, f"{cri.RUNTIME}CheckpointContainer", request, 30)

    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as opened:
        assert "checkpoint/inventory.img" in opened.getnames()
    (shared / "now").unlink()
    assert cri.wait((shared / "now").exists, timeout_s=5)


@pytest.mark.real
def test_down_removes_running_pods_and_can_be_repeated(runtime: Runtime) -> None:
    runtime.tool("up")
    runtime.run_pod()
    assert runtime.traces() != []

    runtime.tool("down")

    assert runtime.traces() == []
    runtime.tool("down")
    status = subprocess.run(runtime.command("status"), capture_output=True, text=True)
    assert (status.returncode, json.loads(status.stdout)["up"]) == (3, False)
    runtime.tool("up")
    assert cri.pods(runtime.layout.socket) == []


@pytest.mark.real
def test_a_pod_runs_on_while_containerd_is_stopped_and_started(runtime: Runtime) -> None:
    runtime.tool("up")
    pod = runtime.run_pod()
    before = runtime.contained()

    for name in ("KILL", "TERM"):
        runtime.tool("stop", "--signal", name)
        with pytest.raises(cri.CallFailed):
            cri.version(runtime.layout.socket)
        assert runtime.contained() == before
        runtime.tool("start")
        assert cri.pods(runtime.layout.socket) == [pod]


@pytest.mark.real
def test_a_frozen_containerd_does_not_answer_until_it_continues(runtime: Runtime) -> None:
    runtime.tool("up")

    runtime.tool("stop", "--signal", "STOP")
    with pytest.raises(cri.CallFailed):
        cri.version(runtime.layout.socket, timeout_s=0.2)
    runtime.tool("stop", "--signal", "CONT")

    assert cri.version(runtime.layout.socket).name == "containerd"


@pytest.mark.real
def test_down_ends_a_frozen_containerd_and_a_frozen_pod(runtime: Runtime) -> None:
    runtime.tool("up")
    freezer = runtime.freezer(runtime.run_pod())
    if freezer is not None:
        (freezer / "freezer.state").write_text("FROZEN")
    runtime.tool("stop", "--signal", "STOP")

    runtime.tool("down")

    assert runtime.traces() == []


@pytest.mark.real
def test_up_repairs_an_instance_whose_daemon_and_holder_were_killed(runtime: Runtime) -> None:
    runtime.tool("up")
    pod = runtime.run_pod()
    before = runtime.contained()
    holder, daemon = runtime.this.holder(), runtime.this.daemon()
    assert holder is not None and daemon is not None
    runtime.kill([holder, daemon])

    runtime.tool("up")

    assert runtime.contained() == before
    assert cri.pods(runtime.layout.socket) == [pod]


@pytest.mark.real
def test_up_starts_anew_over_what_a_reboot_left(runtime: Runtime) -> None:
    runtime.tool("up")
    runtime.run_pod()
    runtime.kill_private()
    runtime.kill(runtime.this.living())
    runtime.layout.record.write_text('{"state": "up", "su')

    assert runtime.tool("up").splitlines()[0] == runtime.layout.endpoint

    assert runtime.contained() == set()
    runtime.run_pod("another")
    assert len(runtime.contained()) == 1


@pytest.mark.real
def test_down_ends_containers_that_nobody_watches_any_more(runtime: Runtime) -> None:
    runtime.tool("up")
    runtime.run_pod()
    runtime.kill_private()
    assert len(runtime.contained()) == 1
    runtime.layout.record.unlink()

    runtime.tool("down")

    assert runtime.traces() == []


@pytest.mark.real
@pytest.mark.parametrize("delay_s", [0.1, 0.2, 0.3])
def test_up_and_down_recover_from_an_up_that_was_killed(runtime: Runtime, delay_s: float) -> None:
    with subprocess.Popen(
        runtime.command("up"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as interrupted:
        time.sleep(delay_s)  # not a wait for something: where the kill lands is what varies
        interrupted.kill()

    assert runtime.tool("up").splitlines()[0] == runtime.layout.endpoint
    runtime.tool("down")

    assert runtime.traces() == []


@pytest.mark.real
def test_two_runs_of_up_at_once_make_one_instance(runtime: Runtime) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        told = list(pool.map(runtime.tool, ["up", "up"]))

    assert told[0] == told[1]
    assert told[0].splitlines()[0] == runtime.layout.endpoint
    commands = [process.command[0] for process in runtime.this.living()]
    assert sorted(Path(command).name for command in commands) == ["containerd", "sleep"]


@pytest.mark.real
def test_an_instance_does_not_notice_that_another_goes_down(
    runtime: Runtime, tmp_path: Path, base_path: Path
) -> None:
    other = Runtime(tmp_path / "other", base_path)
    runtime.tool("up")
    other.tool("up")
    pod = runtime.run_pod()
    other.run_pod()
    before = runtime.contained()

    other.tool("down")

    assert other.traces() == []
    assert runtime.contained() == before
    runtime.tool("stop", "--signal", "KILL")
    runtime.tool("start")
    assert cri.pods(runtime.layout.socket) == [pod]


@pytest.mark.real
def test_purging_an_instance_spares_a_base_that_another_runs_from(
    runtime: Runtime, tmp_path: Path, base_path: Path
) -> None:
    other = Runtime(tmp_path / "other", base_path)
    runtime.tool("up")
    other.tool("up")

    done = subprocess.run(other.command("down", "--purge"), capture_output=True, text=True)

    assert (done.returncode, "another instance runs from this base" in done.stderr) == (1, True)
    assert base.is_complete(base_path)
    assert not other.directory.exists()
    assert other.traces() == []


@pytest.mark.real
def test_mounts_made_later_below_a_shared_directory_are_seen_inside_and_gone_after_down(
    runtime: Runtime, tmp_path: Path
) -> None:
    shared = tmp_path / "agent"
    runtime.tool("up", "--share", str(shared))
    volume = shared / "volume"
    volume.mkdir()
    subprocess.run(["mount", "-n", "-t", "tmpfs", "tmpfs", str(volume)], check=True)
    (volume / "seen").touch()
    holder = json.loads(runtime.tool("status"))["pids"]["holder"]
    assert Path(f"/proc/{holder}/root{volume}/seen").exists()
    runtime.tool("down")
    assert str(shared) not in Path("/proc/self/mountinfo").read_text()

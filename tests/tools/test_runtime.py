"""The runtime tool: its decisions by tables, its files by reading them, the rest on real ones.

The real tests share one base filesystem, in TEST_RUNTIME_BASE or below `.test`; the first test
that needs it builds it. Without root, a merged /usr or a Debian mirror they are skipped.
"""

import concurrent.futures
import hashlib
import io
import ipaddress
import json
import os
import signal
import socket
import struct
import subprocess
import tarfile
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.runtime_lib import (
    base,
    cgroups,
    choice,
    config,
    cri,
    images,
    instance,
    packages,
    processes,
)

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "runtime"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
    return head + payload


class FakeCri:
    """Serves one answer to every call on a socket; None as the answer stands for an error."""

    def __init__(self, path: Path, answer: bytes | None) -> None:
        self.path = path
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> "FakeCri":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(self._frames())
                while connection.recv(65536):
                    pass

    def _frames(self) -> bytes:
        if self._answer is None:
            return frame(4, 0, 0, b"") + frame(1, 5, 1, b"\x88")
        body = b"\0" + struct.pack(">I", len(self._answer)) + self._answer
        half = len(body) // 2
        parts = frame(0, 0, 1, body[:half]) + frame(0, 0, 1, body[half:])
        ping = frame(6, 0, 0, b"12345678")
        return frame(4, 0, 0, b"") + frame(1, 4, 1, b"\x88") + ping + parts + frame(1, 5, 1, b"")


def version_answer(name: str, version: str) -> bytes:
    return b"".join(
        cri.field(number, text.encode())
        for number, text in ((1, "0.1.0"), (2, name), (3, version), (4, "v1"))
    )


# Which runtime to use


@pytest.mark.parametrize(
    ("named", "endpoint"),
    [
        ("unix:///run/other.sock", "unix:///run/other.sock"),
        ("/run/other.sock", "unix:///run/other.sock"),
    ],
)
def test_the_named_endpoint_wins(tmp_path: Path, named: str, endpoint: str) -> None:
    with FakeCri(tmp_path / "s", version_answer("containerd", "v2.1.9")) as fake:
        assert choice.find({choice.VARIABLE: named}, [fake.path]) == endpoint


@pytest.mark.parametrize(
    ("name", "version", "fits"),
    [
        ("containerd", "v2.1.9", True),
        ("containerd", "2.1.9+unknown", True),
        ("containerd", "v10.0.0", True),
        ("containerd", "v1.7.24", False),
        ("containerd", "1.6.20~ds1", False),
        ("containerd", "unknown", False),
        ("cri-o", "1.30.0", True),
    ],
)
def test_a_runtime_is_used_when_it_is_new_enough(
    tmp_path: Path, name: str, version: str, fits: bool
) -> None:
    with FakeCri(tmp_path / "s", version_answer(name, version)) as fake:
        found = choice.find({}, [fake.path])

    assert found == (f"unix://{fake.path}" if fits else None)


def test_the_first_socket_that_serves_cri_is_used(tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as unheard:
        unheard.bind(str(dead))
    with (
        FakeCri(tmp_path / "silent", None) as silent,
        FakeCri(tmp_path / "serving", version_answer("cri-o", "1.30.0")) as serving,
    ):
        sockets = [tmp_path / "absent", dead, silent.path, serving.path]

        assert choice.find({}, sockets) == f"unix://{serving.path}"
        assert choice.find({}, sockets[:-1]) is None


def test_the_command_prints_the_named_endpoint() -> None:
    environment = os.environ | {choice.VARIABLE: "unix:///run/named.sock"}

    done = subprocess.run([TOOL, "find"], env=environment, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "unix:///run/named.sock\n")


def test_the_command_says_by_its_exit_code_that_there_is_none() -> None:
    environment = {name: value for name, value in os.environ.items() if name != choice.VARIABLE}

    done = subprocess.run([TOOL, "find"], env=environment, capture_output=True, text=True)

    assert done.returncode == (0 if done.stdout else 3)


def test_not_ready_conditions_are_named_with_their_reason(tmp_path: Path) -> None:
    ready = cri.field(1, b"RuntimeReady") + b"\x10\x01"
    waiting = cri.field(1, b"NetworkReady") + b"\x10\x00" + cri.field(4, b"no network config")
    status = cri.field(1, ready) + cri.field(1, waiting)
    with FakeCri(tmp_path / "s", cri.field(1, status)) as fake:
        assert cri.not_ready(fake.path) == ["NetworkReady (no network config)"]


def test_a_long_message_is_read_whole(tmp_path: Path) -> None:
    ids = [f"{number:064x}" for number in range(500)]
    answer = b"".join(cri.field(1, cri.field(1, pod.encode())) for pod in ids)
    with FakeCri(tmp_path / "s", answer) as fake:
        assert cri.pods(fake.path) == ids


# Names and files of an instance


def test_containerd_keeps_everything_below_its_directory(tmp_path: Path) -> None:
    layout = config.Layout(tmp_path / "rt")

    rendered = tomllib.loads(config.containerd_toml(layout, "overlayfs"))

    assert rendered["version"] == 3
    assert rendered["root"].startswith(f"{tmp_path}/rt/")
    assert rendered["state"].startswith(f"{tmp_path}/rt/")
    assert rendered["grpc"]["address"] == str(layout.socket)
    runtime = rendered["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["cni"]["conf_dir"].startswith(f"{tmp_path}/rt/")
    runc = runtime["containerd"]["runtimes"]["runc"]["options"]
    assert runc["SystemdCgroup"] is False
    pinned = rendered["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]
    assert pinned == {"sandbox": images.PAUSE}


@pytest.mark.parametrize("length", [1, 69, 70, 71, 90, 200])
def test_the_socket_path_is_never_too_long_for_the_kernel(length: int) -> None:
    layout = config.Layout(Path("/") / ("d" * length))

    assert len(f"{layout.socket}.ttrpc") <= config.SOCKET_PATH_LIMIT
    assert layout.run.is_relative_to("/run") == (length + len("//run/containerd.sock.ttrpc") > 107)


def test_instances_share_no_name(tmp_path: Path) -> None:
    one, other = config.Layout(tmp_path / "one"), config.Layout(tmp_path / "other")

    assert one.marker != other.marker
    assert one.bridge != other.bridge
    assert len(one.bridge) <= 15


@pytest.mark.parametrize("host_ports", [True, False])
def test_the_pod_network_names_its_bridge_and_subnet(tmp_path: Path, host_ports: bool) -> None:
    layout = config.Layout(tmp_path)
    subnet = ipaddress.IPv4Network("10.1.2.0/24")

    rendered = json.loads(config.cni_conflist(layout, subnet, mtu=1400, host_ports=host_ports))

    bridge, *others = rendered["plugins"]
    assert (bridge["bridge"], bridge["mtu"]) == (layout.bridge, 1400)
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.1.2.0/24"}]]
    assert [plugin["type"] for plugin in others] == (["portmap"] if host_ports else [])


def test_a_subnet_is_chosen_that_is_not_routed(tmp_path: Path) -> None:
    layout = config.Layout(tmp_path)
    first = config.choose_subnet(layout, [])
    assert first is not None
    routes = [{"dst": "default"}, {"dst": str(first)}, {"dst": "10.0.0.7"}]

    taken = config.routed_subnets(routes)
    second = config.choose_subnet(layout, taken)

    assert second is not None
    assert not any(second.overlaps(other) for other in taken)
    assert config.choose_subnet(layout, [ipaddress.IPv4Network("10.0.0.0/8")]) is None


@pytest.mark.parametrize("content", [None, "", '{"state": "up", "ba'])
def test_a_record_that_is_absent_or_broken_says_nothing(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "instance.json").write_text(content)

    this = instance.find(tmp_path, None)

    assert this.record() == {}
    assert this.base == tmp_path / "base"


def test_the_base_of_an_instance_is_remembered(tmp_path: Path) -> None:
    instance.find(tmp_path, None).write_record(base="/somewhere/base")

    assert instance.find(tmp_path, None).base == Path("/somewhere/base")
    assert instance.find(tmp_path, Path("/other")).base == Path("/other")


# Whose process it is

_HOST = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
_ELSEWHERE = "40 27 0:50 / /run/containerd rw - tmpfs nodeagent-rt-bbbbbbbb rw\n"
_PRIVATE = "40 27 0:50 / /run/containerd rw - tmpfs nodeagent-rt-aaaaaaaa rw,mode=711\n"
_STACKED = (
    "90 80 0:60 / / rw - overlay overlay rw,lowerdir=/d/nodeagent-rt-aaaaaaaa/o/snapshots/1/fs,"
    "upperdir=/d/nodeagent-rt-aaaaaaaa/o/snapshots/2/fs\n"
)
_COPIED = "90 80 254:0 /d/nodeagent-rt-aaaaaaaa/native/snapshots/3 / rw - ext4 /dev/vda rw\n"
_VOLUME = "91 90 254:0 /d/nodeagent-rt-aaaaaaaa/x /data rw - ext4 /dev/vda rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "expected"),
    [
        ("", None),
        (_HOST, None),
        (_HOST + _ELSEWHERE, None),
        (_HOST + _VOLUME, None),
        (_HOST + _PRIVATE, True),
        (_HOST + _STACKED + _PRIVATE, True),
        (_STACKED, False),
        (_COPIED, False),
    ],
    ids=["none", "host", "other instance", "volume", "private", "shim", "overlay", "copy"],
)
def test_a_process_is_known_by_its_mounts(mountinfo: str, expected: bool | None) -> None:
    assert processes.classify(mountinfo, "nodeagent-rt-aaaaaaaa") is expected


def test_containers_are_named_by_their_tasks(tmp_path: Path) -> None:
    (tmp_path / "io.containerd.runtime.v2.task/k8s.io/abc").mkdir(parents=True)

    assert cgroups.container_ids(tmp_path, []) == {"abc"}
    assert cgroups.container_ids(tmp_path / "absent", []) == set()


# Packages and images


def test_the_mirror_is_debians_own_of_the_main_suite() -> None:
    listed = "\n".join(
        [
            "Vendor|main|bookworm|bookworm|mirror:vendor",
            "Debian-Security|main|bookworm-security|bookworm-security|mirror:security",
            "Debian|main|bookworm-updates|bookworm-updates|mirror:updates",
            "Debian|contrib|bookworm|bookworm|mirror:contrib",
            "Debian|main|stable|bookworm|mirror:main",
        ]
    )

    assert packages.choose_mirror(listed, "bookworm") == "mirror:main"
    assert packages.choose_mirror(listed, "trixie") is None


def test_versions_are_read_from_the_names_of_packages() -> None:
    archives = [Path("libnl-3_1%3a3.7-1+b1_amd64.deb"), Path("runc_1.3.6+ds1-1_amd64.deb")]

    assert packages.versions(archives) == {"libnl-3": "1:3.7-1+b1", "runc": "1.3.6+ds1-1"}


def read_archive(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        members = {member.name: opened.extractfile(member) for member in opened}
        return {name: content.read() for name, content in members.items() if content}


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_images_are_the_same_whenever_they_are_made() -> None:
    one = images.assemble(b"program", ["sh", "ls", "busybox"], "amd64")
    other = images.assemble(b"program", ["ls", "sh", "sh"], "amd64")

    assert one == other
    assert one.ids != images.assemble(b"another", ["sh", "ls"], "amd64").ids


def test_every_image_is_named_with_the_digest_of_its_configuration() -> None:
    made = images.assemble(b"program", ["sh"], "arm64")
    files = read_archive(made.archive)

    manifest = json.loads(files["manifest.json"])

    assert {entry["RepoTags"][0] for entry in manifest} == {images.BUSYBOX, images.PAUSE}
    for entry in manifest:
        content = files[entry["Config"]]
        assert made.ids[entry["RepoTags"][0]] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert json.loads(content)["architecture"] == "arm64"
        layers = [hashlib.sha256(files[layer]).hexdigest() for layer in entry["Layers"]]
        assert json.loads(content)["rootfs"]["diff_ids"] == [
            f"sha256:{digest}" for digest in layers
        ]


def test_the_layer_holds_busybox_its_links_and_what_a_shell_expects() -> None:
    files = read_archive(images.assemble(b"program", ["sh", "ls"], "amd64").archive)
    [layer] = [content for name, content in files.items() if name.endswith("layer.tar")]

    with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
        members = {member.name: member for member in opened}

    assert members["bin/busybox"].mode == 0o755
    assert members["bin/sh"].linkname == members["bin/ls"].linkname == "busybox"
    assert members["tmp"].mode == 0o1777
    assert {"dev", "etc/passwd", "proc", "sys", "usr/bin"} <= members.keys()
    assert {(member.mtime, member.uid, member.gid) for member in members.values()} == {(0, 0, 0)}


# On the real thing


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
    endpoint = runtime.tool("up")
    status = json.loads(runtime.tool("status"))

    assert endpoint == runtime.layout.endpoint
    assert cri.version(runtime.layout.socket).name == "containerd"
    assert status["up"] is True
    assert {images.BUSYBOX, images.PAUSE} <= status["images"].keys()
    assert status["versions"].keys() >= {"containerd", "runc", "criu"}
    assert runtime.tool("up") == endpoint
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

    assert runtime.tool("up") == runtime.layout.endpoint

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

    assert runtime.tool("up") == runtime.layout.endpoint
    runtime.tool("down")

    assert runtime.traces() == []


@pytest.mark.real
def test_two_runs_of_up_at_once_make_one_instance(runtime: Runtime) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        endpoints = list(pool.map(runtime.tool, ["up", "up"]))

    assert endpoints == [runtime.layout.endpoint] * 2
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

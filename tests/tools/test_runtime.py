"""The runtime tool: its decisions by tables, its files by reading them."""

import hashlib
import io
import ipaddress
import json
import os
import socket
import struct
import subprocess
import tarfile
import threading
import tomllib
from pathlib import Path

import pytest

from tools.runtime_lib import (
    cgroups,
    choice,
    config,
    cri,
    images,
    instance,
    namespace,
    packages,
    processes,
    removal,
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


def test_the_exit_code_of_find_shows_that_there_is_none() -> None:
    environment = {name: value for name, value in os.environ.items() if name != choice.VARIABLE}

    done = subprocess.run([TOOL, "find"], env=environment, capture_output=True, text=True)

    assert done.returncode == (0 if done.stdout else 3)


def test_not_ready_conditions_are_named_with_their_reason(tmp_path: Path) -> None:
    ready = cri.field(1, b"RuntimeReady") + b"\x10\x01"
    waiting = cri.field(1, b"NetworkReady") + b"\x10\x00" + cri.field(4, b"no network config")
    status = cri.field(1, ready) + cri.field(1, waiting)
    with FakeCri(tmp_path / "s", cri.field(1, status)) as fake:
        assert cri.not_ready(fake.path) == ["NetworkReady (no network config)"]


def test_only_places_that_the_tool_made_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: tmp_path / name for name in ("run", "cni")}
    monkeypatch.setattr(namespace, "PRIVATE_RUN", places["run"])
    monkeypatch.setattr(namespace, "PRIVATE_CNI", places["cni"])
    places["run"].mkdir()  # the host's own
    places["cni"].mkdir()
    places["cni"].chmod(namespace.MADE_HERE)
    (tmp_path / "instance").mkdir()
    this = instance.find(tmp_path / "instance", None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    removal.down(this, purge=False)
    assert [path.exists() for path in places.values()] == [True, True]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    removal.down(this, purge=False)
    assert [path.exists() for path in places.values()] == [True, False]


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
    of_images = rendered["plugins"]["io.containerd.cri.v1.images"]
    assert of_images["pinned_images"] == {"sandbox": images.PAUSE}
    assert of_images["registry"]["config_path"] == str(layout.registries)  # of two, it sees neither


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
def test_an_absent_or_broken_record_is_empty(tmp_path: Path, content: str | None) -> None:
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


def test_apt_judges_the_age_and_the_signature_of_every_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old index that was signed once would bring back what it had then."""
    said = tmp_path / "said"
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {said}\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    packages.Apt(tmp_path / "apt").download("sid", "http://192.0.2.1/packages", ["runc"])
    options = said.read_text()
    assert "runc\n" in options
    for weaker in ("Check-Valid-Until", "Check-Date", "Insecure", "Unauthenticated", "trusted"):
        assert weaker.lower() not in options.lower()
    assert "trusted" not in (tmp_path / "apt/sources.list").read_text()

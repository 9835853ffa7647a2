"""Files of hosts: their content by a table, and that all containers of a pod share one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.spec.dns import DnsSettings
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.volumes import hosts
from nodeagent.pods.volumes.hosts import HostsFiles
from nodeagent.runtime.base import Mount
from tests.fakes.held_threads import cancel_in_thread
from tests.fakes.pods import UID, container_data, instance, pod, sandbox, seen
from tests.fakes.podworld import PodWorld

LOCAL = """# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""
ALIASES = {
    "hostAliases": [
        {"ip": "123.45.67.89", "hostnames": ["foo", "bar"]},
        {"ip": "fd00::1", "hostnames": ["a.example"]},
        {"ip": "1.2.3.4"},
        {"ip": "010.0.0.7", "hostnames": ["b.example"]},  # valid at the API server, too
    ]
}
ADDED = "\n# Entries added by HostAliases.\n123.45.67.89\tfoo\tbar\nfd00::1\ta.example\n"
ADDED += "010.0.0.7\tb.example\n"
DOMAIN = DnsSettings(domain="cluster.local")
NODE = "127.0.0.1 localhost\n192.0.2.1 node1\n"

# the pod's fields, its addresses, its file; upstream: TestManagedHostsFileContent
CONTENTS: list[tuple[dict[str, Any], list[str], str]] = [
    ({}, ["10.0.0.2"], f"{LOCAL}10.0.0.2\tweb\n"),
    ({"hostname": "db"}, ["10.0.0.2", "fd00::2"], f"{LOCAL}10.0.0.2\tdb\nfd00::2\tdb\n"),
    (
        {"hostname": "db", "subdomain": "data"},
        ["10.0.0.2"],
        f"{LOCAL}10.0.0.2\tdb.data.default.svc.cluster.local\tdb\n",
    ),
    (ALIASES, ["10.0.0.2"], f"{LOCAL}10.0.0.2\tweb\n{ADDED}"),
    ({"hostNetwork": True}, [], f"# Kubernetes-managed hosts file (host network).\n{NODE}"),
    (
        {"hostNetwork": True, **ALIASES},
        ["192.0.2.1"],
        f"# Kubernetes-managed hosts file (host network).\n{NODE}{ADDED}",
    ),
]


@pytest.mark.parametrize(("fields", "addresses", "text"), CONTENTS)
def test_a_pod_knows_its_own_name_and_its_aliases(
    fields: dict[str, Any], addresses: list[str], text: str
) -> None:
    assert hosts.content(pod(**fields), addresses, NODE, DOMAIN) == text


@pytest.mark.parametrize(
    ("alias", "problem"),
    [
        ({"ip": "1.2.3.4\n6.6.6.6 x"}, r"spec\.hostAliases\[0\]\.ip: .* is not an IP address"),
        ({"ip": "fe80::1%\n6.6.6.6 x", "hostnames": ["a"]}, "is not an IP address"),
        ({"ip": "1.2.3.4", "hostnames": ["a\n6.6.6.6 x"]}, "is not a DNS name"),
    ],
)
def test_an_alias_adds_no_line_of_its_own(alias: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        hosts.content(pod(hostAliases=[alias]), ["10.0.0.2"])


async def test_the_containers_of_a_pod_share_one_file(tmp_path: Path) -> None:
    files = HostsFiles(str(tmp_path))
    assert await files.mounts(pod(), ()) == ()
    path = tmp_path / "pods" / UID / "etc-hosts"
    assert await files.mounts(pod(), ["10.0.0.2"]) == (Mount(str(path), "/etc/hosts"),)
    before = path.stat()
    path.write_text("changed by a container, at length\n" * 1000)
    await files.mounts(pod(), ["10.0.0.3"])
    assert path.read_text() == f"{LOCAL}10.0.0.3\tweb\n"
    after = path.stat()
    assert (after.st_ino, after.st_mode & 0o777) == (before.st_ino, 0o644)


async def test_the_nodes_own_file_may_be_a_link(tmp_path: Path) -> None:
    """As on systems that make /etc from a store of packages."""
    (tmp_path / "stored").write_text(NODE)
    (tmp_path / "hosts").symlink_to("stored")
    files = HostsFiles(str(tmp_path), str(tmp_path / "hosts"))
    (mount,) = await files.mounts(pod(hostNetwork=True), [])
    assert Path(mount.host_path).read_text().endswith(NODE)


async def test_a_file_that_is_being_made_is_finished_before_its_pod_goes(tmp_path: Path) -> None:
    """A pod deleted at that moment left a directory, which nobody removed."""
    making = asyncio.create_task(HostsFiles(str(tmp_path)).mounts(pod(), ["10.0.0.2"]))
    await cancel_in_thread(making)
    assert (tmp_path / "pods" / UID / "etc-hosts").exists()


async def test_a_container_cannot_fill_the_disk_through_it(tmp_path: Path) -> None:
    path = tmp_path / "pods" / UID / "etc-hosts"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * (3 << 20))
    await TerminationMessages(str(tmp_path)).cut([seen(sandbox(), instance())])
    assert path.stat().st_size == 2 << 20


@pytest.mark.looptime
async def test_a_container_may_bring_a_file_of_its_own(world: PodWorld) -> None:
    own = container_data("own", volumeMounts=[{"name": "v", "mountPath": "/etc/hosts"}])
    await world.start(pod(own, container_data("app"), volumes=[{"name": "v", "emptyDir": {}}]))
    await world.until(lambda: world.running().keys() == {"own", "app"})
    shared = f"{world.settings.root_dir}/pods/{UID}/etc-hosts"
    mounted = {
        name: [m.host_path for m in world.made(name).spec.mounts if m.container_path == hosts.PATH]
        for name in ("own", "app")
    }
    assert mounted["app"] == [shared] and shared not in mounted["own"]
    assert "\tweb\n" in Path(shared).read_text()

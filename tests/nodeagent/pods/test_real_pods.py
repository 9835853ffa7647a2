"""Static pods on a real containerd: run, restart, found again, gone without a trace."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nodeagent.pods.logs.rotation import LogBounds, LogRotation
from tests.conftest_runtime import CGROUPS, RealRuntime
from tests.fakes.realpods import Agent, manifest, waiting

pytestmark = [pytest.mark.real, pytest.mark.seconds(40)]


@pytest_asyncio.fixture
async def agent(tmp_path: Path, real_runtime: RealRuntime) -> AsyncIterator[Agent]:
    agent = Agent(tmp_path, real_runtime.endpoint)
    agent.start()
    yield agent
    await agent.close()


async def test_a_pod_with_volumes_runs_restarts_and_leaves_nothing(agent: Agent) -> None:
    (agent.directory / "host").mkdir()
    writer = {
        "name": "writer",
        "command": ["sh", "-c", "echo from $POD > /host/note; echo x > /scratch/note; sleep 1000"],
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [
            {"name": "host", "mountPath": "/host"},
            {"name": "scratch", "mountPath": "/scratch"},
        ],
    }
    reader = {
        "name": "reader",
        "volumeMounts": [{"name": "scratch", "mountPath": "/seen", "readOnly": True}],
        "resources": {"limits": {"cpu": "100m", "memory": "32Mi"}},
    }
    volumes = [
        {"name": "host", "hostPath": {"path": str(agent.directory / "host")}},
        {"name": "scratch", "emptyDir": {}},
    ]
    path = agent.put(manifest("vols", writer, reader, volumes=volumes))
    await agent.runs("vols")
    note = agent.directory / "host/note"
    await agent.until(lambda: note.exists() and note.read_text() == f"from vols-{agent.node}\n")
    [scratch] = agent.directory.glob("root/pods/*/volumes/empty-dir/scratch")
    await agent.until(lambda: (scratch / "note").exists() and bool((scratch / "note").read_text()))
    first = agent.ids("vols")
    seen = await agent.runtime.exec_sync(
        first["reader"].removeprefix("containerd://"),
        ["sh", "-c", "cat /seen/note; echo y > /seen/note"],
        timeout_s=10,
    )
    assert seen.stdout == b"x\n"
    assert b"Read-only file system" in seen.stderr

    os.kill(agent.pid("reader"), signal.SIGKILL)
    await agent.until(lambda: agent.ids("vols").get("reader", "") not in ("", first["reader"]))
    assert agent.ids("vols")["writer"] == first["writer"]
    [status] = [c for c in agent.status("vols").containerStatuses or () if c.name == "reader"]
    assert status.restartCount == 1
    assert status.lastState and status.lastState.terminated
    assert status.lastState.terminated.exitCode == 137
    os.kill(agent.pid("reader"), signal.SIGKILL)
    await agent.until(lambda: waiting(agent.status("vols"), "reader") == "CrashLoopBackOff")
    assert len(list(agent.directory.glob("logs/*/reader/*.log"))) == 2

    path.unlink()
    await agent.gone()
    assert note.exists(), "what is the host's stays"


async def test_another_agent_finds_the_same_containers(
    agent: Agent, real_runtime: RealRuntime
) -> None:
    agent.put(manifest("kept", {"name": "a"}, {"name": "b"}))
    await agent.runs("kept")
    before = agent.ids("kept")
    await agent.stop()
    heir = Agent(agent.directory, real_runtime.endpoint)
    heir.start()
    await heir.runs("kept")
    await asyncio.sleep(2.5)
    assert heir.ids("kept") == before
    assert [c.restartCount for c in heir.status("kept").containerStatuses or ()] == [0, 0]
    await heir.stop()
    await heir.workers.remove_all(20)
    assert await heir.traces() == []
    await heir.runtime.close()
    assert heir.cgroups() == []


async def test_a_changed_manifest_replaces_its_pod(agent: Agent) -> None:
    agent.put(manifest("web", {"name": "old"}))
    await agent.runs("web")
    agent.put(manifest("web", {"name": "new"}))
    await agent.until(lambda: list(agent.ids("web")) == ["new"])
    rows = await agent.runtime.list_sandboxes()
    assert len([r for r in rows if r.labels.get("orch.io/node.name") == agent.node]) == 1


async def test_a_limited_container_has_its_limits_in_the_kernel(agent: Agent) -> None:
    limits = {"cpu": "250m", "memory": "48Mi"}
    agent.put(manifest("limited", {"name": "app", "resources": {"limits": limits}}))
    await agent.runs("limited")
    container_id = agent.ids("limited")["app"].removeprefix("containerd://")
    [pod_cgroup] = CGROUPS.glob(f"memory{agent.cgroup}/pod*")
    own = pod_cgroup / container_id / "memory.limit_in_bytes"
    assert int(own.read_text()) == 48 * 2**20
    assert int((pod_cgroup / "memory.limit_in_bytes").read_text()) == 48 * 2**20
    [quota] = CGROUPS.glob(f"cpu{agent.cgroup}/pod*/{container_id}/cpu.cfs_quota_us")
    assert quota.read_text().strip() == "25000"


async def test_a_memory_volume_is_memory_in_the_container_too(agent: Agent) -> None:
    volumes = [{"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}]
    mounts = [{"name": "fast", "mountPath": "/fast"}]
    agent.put(manifest("memory", {"name": "app", "volumeMounts": mounts}, volumes=volumes))
    await agent.runs("memory")
    table = Path(f"/proc/{agent.pid('app')}/mountinfo").read_text().splitlines()
    [line] = [line for line in table if line.split()[4] == "/fast"]
    assert line.partition(" - ")[2].split()[0] == "tmpfs"
    inside = Path(f"/proc/{agent.pid('app')}/root/fast").stat()
    [outside] = agent.directory.glob("root/pods/*/volumes/empty-dir/fast")
    assert inside.st_dev == outside.stat().st_dev
    usage = os.statvfs(outside)
    assert usage.f_blocks * usage.f_frsize == 8 * 2**20
    assert inside.st_mode & 0o7777 == 0o1777


async def test_a_pod_resolves_its_own_name_and_its_aliases(agent: Agent) -> None:
    aliases = [{"ip": "192.0.2.7", "hostnames": ["db", "db.example"]}]
    names = {"hostname": "first", "subdomain": "sub", "setHostnameAsFQDN": True}
    options = [{"name": "ndots", "value": "2"}]
    config = {"nameservers": ["192.0.2.53"], "searches": ["own.example"], "options": options}
    asked_for = {**names, "dnsPolicy": "None", "dnsConfig": config}
    agent.put(manifest("named", {"name": "app"}, hostAliases=aliases, **asked_for))
    await agent.runs("named")
    container_id = agent.ids("named")["app"].removeprefix("containerd://")
    asked = "ping -c1 -W1 $(hostname); ping -c1 -W1 db.example; cat /etc/resolv.conf /etc/hosts"
    seen = await agent.runtime.exec_sync(container_id, ["sh", "-c", asked], timeout_s=10)
    told, name = seen.stdout.decode(), "first.sub.default.svc."
    assert f"PING {name} ({agent.status('named').podIP})" in told
    assert "PING db.example (192.0.2.7)" in told
    for line in ("search own.example", "nameserver 192.0.2.53", "options ndots:2"):
        assert f"{line}\n" in told
    assert told.endswith("\n# Entries added by HostAliases.\n192.0.2.7\tdb\tdb.example\n")


async def test_an_image_that_is_not_there_is_shown_as_such(agent: Agent) -> None:
    absent = {"name": "app", "image": "localhost/absent:1", "imagePullPolicy": "Never"}
    agent.put(manifest("absent", absent, {"name": "fine"}))
    await agent.until(lambda: waiting(agent.status("absent"), "app") == "ErrImageNeverPull")
    await agent.until(lambda: "fine" in agent.ids("absent"))


async def test_a_command_that_is_not_there_is_shown_as_such(agent: Agent) -> None:
    agent.put(manifest("bad", {"name": "app", "command": ["/no/such"]}))
    await agent.until(lambda: waiting(agent.status("bad"), "app") == "RunContainerError")


async def test_probes_reach_a_real_container(agent: Agent) -> None:
    serve = "mkdir /www; echo ok > /www/up; httpd -f -p 8080 -h /www"
    web = {
        "name": "web",
        "command": ["sh", "-c", serve],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/up", "port": "http"}, "periodSeconds": 1},
        "livenessProbe": {
            "exec": {"command": ["test", "-e", "/www/up"]},
            "periodSeconds": 1,
            "failureThreshold": 2,
        },
        "startupProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    agent.put(manifest("probed", web))
    await agent.runs("probed")
    container_id = agent.ids("probed")["web"].removeprefix("containerd://")
    await agent.runtime.exec_sync(container_id, ["rm", "/www/up"], timeout_s=10)
    await agent.until(lambda: agent.ids("probed").get("web", container_id)[-64:] != container_id)
    await agent.runs("probed")


async def test_a_log_is_rotated_under_a_writing_container(agent: Agent) -> None:
    """Its pod has the longest name that a pod may have."""
    talk = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.01; done"
    longest = "talker-".ljust(253 - len(f"-{agent.node}"), "x")
    agent.put(manifest(longest, {"name": "app", "command": ["sh", "-c", talk]}))
    await agent.runs(longest)
    rotation = LogRotation(
        agent.runtime, agent.registry, LogBounds(max_bytes=4096, max_files=3, interval_s=0)
    )
    [log] = agent.directory.glob("logs/*/app/0.log")
    for _ in range(3):
        await agent.until(lambda: log.stat().st_size > 4096)
        await rotation.step()
    await agent.until(lambda: log.exists() and log.stat().st_size > 100)
    files = sorted(log.parent.iterdir())
    assert [file.suffix for file in files][1:2] == [".gz"]
    assert len(files) == 3
    text = gzip.decompress(files[1].read_bytes()) + files[2].read_bytes() + files[0].read_bytes()
    numbers = [int(line.rsplit(b" ", 1)[1]) for line in text.splitlines()]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "no line is lost"


async def test_a_missing_profile_is_waited_for_and_then_applied(agent: Agent) -> None:
    profile = {"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}
    agent.put(manifest("confined", {"name": "app", "securityContext": profile}))
    await agent.until(lambda: waiting(agent.status("confined"), "app") == "CreateContainerError")
    root = agent.directory / "root/seccomp"
    root.mkdir(parents=True)
    rule = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}
    (root / "p.json").write_text(
        json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]})
    )
    await agent.runs("confined")
    container_id = agent.ids("confined")["app"].removeprefix("containerd://")
    tried = await agent.runtime.exec_sync(container_id, ["mkdir", "/x"], timeout_s=10)
    assert b"Operation not permitted" in tried.stderr


async def test_an_image_is_a_volume_that_cannot_be_written_to(agent: Agent) -> None:
    tried = "cat /files/etc/passwd && ! touch /files/new && echo as asked"
    container = {
        "name": "app",
        "command": ["sh", "-c", f"({tried}) > /dev/termination-log 2>&1"],
        "volumeMounts": [{"name": "files", "mountPath": "/files"}],
    }
    volume = {"name": "files", "image": {"reference": "localhost/pause:1"}}
    agent.put(manifest("web", container, volumes=[volume], restartPolicy="Never"))
    await agent.until(lambda: agent.status("web").phase in ("Succeeded", "Failed"))

    [shown] = agent.status("web").containerStatuses or []
    assert shown.state and shown.state.terminated
    said = shown.state.terminated.message or ""
    assert "root:x:0:0" in said and said.rstrip().endswith("as asked")
    assert "Read-only file system" in said

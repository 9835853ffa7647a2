"""The agent's mounts under its unit: by the helper behind its socket, or not at all.

The agent's unit runs a script on the room of volumes instead of the agent, since the machine has no
runtime: rights and mount namespace are those of the unit. `test_virtual_machine.py` has pods.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools.testbed import installed
from tools.testbed.booted import BootedMachine

pytestmark = pytest.mark.real

AGENT, HELPER = "nodeagent.service", "nodeagent-mounts"
SOCKET = "/run/nodeagent-mounts.sock"
SCRIPT, RESULT = "/opt/volumes.py", "/run/volumes.json"
POD = "/var/lib/nodeagent/pods/u-1"
MEMORY, SECRET = f"{POD}/volumes/empty-dir/memory", f"{POD}/volumes/secret/keys"
DROP_IN = f"""[Service]
Type=oneshot
Restart=no
WatchdogSec=0
ExecStart=
ExecStart={installed.PYTHON} {SCRIPT} $ARGUMENTS
EnvironmentFile=-/run/arguments
"""
USE = f"""
import asyncio, json, sys
from nodeagent.pods.spec.references import ObjectData, Reference
from nodeagent.pods.volumes.mounts import HelpedMounts, OwnMounts
from nodeagent.pods.volumes.volumes import ProjectedData, VolumeError, VolumeStore
from nodeagent.runtime.base import Mount
from orch.wire.records.pods import Pod

POD = Pod.model_validate({{
    "metadata": {{"name": "p", "uid": "u-1"}},
    "spec": {{"securityContext": {{"fsGroup": 1234}}, "containers": [], "volumes": [
        {{"name": "keys", "secret": {{"secretName": "keys"}}}},
        {{"name": "disk", "emptyDir": {{}}}},
        {{"name": "memory", "emptyDir": {{"medium": "Memory", "sizeLimit": "1Mi"}}}},
    ]}},
}})
DATA = ProjectedData(objects={{Reference("Secret", "keys"): ObjectData({{"key": b"s3cret"}})}})

async def main(mode, helper):
    store = VolumeStore("/var/lib/nodeagent", HelpedMounts(helper) if helper else OwnMounts())
    if mode == "remove":
        await store.remove("u-1")
        return {{"left": await store.uids()}}
    said = {{}}
    try:
        if mode == "sub-path":
            volumes = {{"host": "/srv"}}
        else:
            volumes = await store.prepare(POD, DATA)
        source = next(iter(volumes.values())) if mode == "sub-path" else volumes["disk"]
        bound = await store.bind_sub_paths(
            "u-1", "app", [Mount(f"{{source}}/a/b", "/part")], volumes
        )
        said["part"] = bound[0].host_path
    except VolumeError as error:
        said["error"] = str(error)
    return said

mode, helper = [*sys.argv[1:], ""][:2]
with open("{RESULT}", "w") as file:
    json.dump(asyncio.run(main(mode, helper)), file)
"""


@pytest.fixture(scope="module")
def helped(machine: BootedMachine) -> BootedMachine:
    machine.write(SCRIPT, USE)
    machine.write(f"/run/systemd/system/{AGENT}.d/test.conf", DROP_IN)
    machine.check("mkdir", "-p", "/srv/a/b")
    machine.check("systemctl", "daemon-reload")
    return machine


def run(machine: BootedMachine, *arguments: str) -> Any:
    """What the script says, run as the agent."""
    machine.write("/run/arguments", f'ARGUMENTS="{" ".join(arguments)}"\n')
    machine.run("rm", "-f", RESULT)
    done = machine.run("systemctl", "start", AGENT)
    assert done.returncode == 0, machine.journal(AGENT)
    return json.loads(machine.path(RESULT).read_text())


def mounted(machine: BootedMachine) -> list[str]:
    """Below the pod's directory, as a runtime sees it."""
    table = machine.path("/proc/self/mountinfo").parents[1] / "1/mountinfo"
    return sorted({line.split()[4] for line in table.read_text().splitlines() if POD in line})


def test_memory_secrets_and_sub_paths_are_mounted_for_the_runtime_until_they_are_removed(
    helped: BootedMachine,
) -> None:
    part = f"{POD}/volume-subpaths/app/0"
    assert run(helped, "make", SOCKET) == {"part": part}, helped.journal(HELPER)
    helper = helped.show(f"{HELPER}.service", "MainPID")
    spaces = helped.check("readlink", "/proc/1/ns/mnt", f"/proc/{helper}/ns/mnt").split()
    assert spaces[0] == spaces[1], "the helper runs in the namespace of the host"
    assert mounted(helped) == sorted([MEMORY, SECRET, part])
    assert helped.path(f"{SECRET}/key").read_text() == "s3cret"
    assert helped.path(part).samefile(helped.path(f"{POD}/volumes/empty-dir/disk/a/b"))
    assert helped.path(MEMORY).stat().st_gid == helped.path(f"{SECRET}/key").stat().st_gid == 1234
    size = helped.check("stat", "-f", "-c", "%b %S", MEMORY).split()
    assert int(size[0]) * int(size[1]) == 1 << 20

    helped.write(f"{MEMORY}/kept", "still here")
    before = mounted(helped)
    assert "error" not in run(helped, "make", SOCKET), "the next agent finds them"
    assert (mounted(helped), helped.path(f"{MEMORY}/kept").read_text()) == (before, "still here")
    assert run(helped, "remove", SOCKET) == {"left": []}
    assert mounted(helped) == []


def test_a_sub_path_of_a_host_path_is_mounted_too(helped: BootedMachine) -> None:
    assert "error" not in run(helped, "sub-path", SOCKET)
    assert helped.path(f"{POD}/volume-subpaths/app/0").samefile(helped.path("/srv/a/b"))
    run(helped, "remove", SOCKET)
    assert helped.path("/srv/a/b").is_dir()


def test_a_process_of_another_unit_is_refused(helped: BootedMachine) -> None:
    ask = f"""
import pathlib; from nodeagent.pods.volumes.mounts import HelpedMounts
HelpedMounts("{SOCKET}").tmpfs(pathlib.Path("{MEMORY}"), 4096)
"""
    helped.check("mkdir", "-p", MEMORY)
    done = helped.run("systemd-run", "--pipe", "--wait", "--quiet", installed.PYTHON, "-c", ask)
    assert "is not in the cgroup /system.slice/nodeagent.service" in done.stderr
    assert MEMORY not in mounted(helped)
    helped.check("rm", "-r", POD)


def test_without_its_helper_the_agent_says_what_to_start(helped: BootedMachine) -> None:
    helped.check("systemctl", "mask", "--runtime", "--now", f"{HELPER}.socket")
    helped.run("systemctl", "stop", f"{HELPER}.service")
    try:
        said = run(helped, "sub-path", SOCKET)["error"]
        assert "does not answer" in said and "systemctl status nodeagent-mounts.socket" in said
        said = run(helped, "make", SOCKET)["error"]
        assert said.startswith('MountVolume.SetUp failed for volume "keys" : '), (
            "a secret is not put on the disk instead"
        )
    finally:
        helped.check("systemctl", "unmask", "--runtime", f"{HELPER}.socket")
        helped.check("systemctl", "start", f"{HELPER}.socket")


def test_an_agent_without_a_helper_is_refused_the_sub_path(helped: BootedMachine) -> None:
    said = run(helped, "sub-path")["error"]
    assert "cannot mount subPath /srv/a/b: the agent may not mount" in said
    assert "start nodeagent-mounts.socket" in said and "the drop-in in docs/systemd.md" in said
    assert f"{POD}/volume-subpaths/app/0" not in mounted(helped)

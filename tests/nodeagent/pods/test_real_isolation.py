"""Users, labels and lives of pods on a real containerd, as its processes show them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conftest_runtime import RealRuntime
from tests.fakes.realpods import IMAGE, Agent, manifest

pytestmark = [pytest.mark.real, pytest.mark.seconds(15)]


def let_pass(directory: Path) -> None:
    """Let other users walk through what pytest keeps to itself, as a runtime's own folders do."""
    for folder in (directory, *directory.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
        if folder.name.startswith("pytest-of-"):
            return


@pytest_asyncio.fixture
async def agent(tmp_path: Path, real_runtime: RealRuntime) -> AsyncIterator[Agent]:
    let_pass(tmp_path)
    let_pass(real_runtime.directory)
    agent = Agent(tmp_path, real_runtime.endpoint)
    agent.start()
    yield agent
    await agent.close()


async def test_a_pod_with_users_of_its_own_is_root_inside_and_nobody_outside(agent: Agent) -> None:
    features = await agent.runtime.features()
    if "" not in features.user_namespaces:
        pytest.skip("this runtime cannot make user namespaces")
    app = {
        "name": "app",
        "command": ["sh", "-c", "echo x > /scratch/note; while :; do sleep 0.1; done"],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "securityContext": {"procMount": "Unmasked"},
    }
    volumes = [{"name": "scratch", "emptyDir": {}}]
    agent.put(manifest("mapped", app, hostUsers=False, volumes=volumes))
    await agent.runs("mapped")
    process = Path(f"/proc/{agent.pid('app')}")
    inside, outside, length = map(int, (process / "uid_map").read_text().split())
    assert (inside, length) == (0, 65_536) and outside >= 65_536
    assert process.stat().st_uid == outside
    notes = "root/pods/*/volumes/empty-dir/scratch/note"
    await agent.until(lambda: any(agent.directory.glob(notes)))
    [note] = agent.directory.glob(notes)
    assert note.stat().st_uid == 0, "volumes are mapped, so that their files fit any pod"


async def test_labels_are_passed_on_users_shown_and_rules_heeded(agent: Agent) -> None:
    again = {
        "name": "again",
        "command": ["sh", "-c", "exit 42"],
        "restartPolicy": "Never",
        "restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
        ],
    }
    once = {"name": "once", "command": ["true"], "restartPolicy": "OnFailure"}
    context = {
        "runAsUser": 1000,
        "runAsGroup": 7,
        "supplementalGroups": [9],
        "seLinuxOptions": {"level": "s0:c1,c2"},
    }
    agent.put(manifest("lives", {"name": "app"}, again, once, securityContext=context))
    await agent.until(lambda: agent.restarts("lives").get("again", 0) >= 1)
    await agent.until(lambda: agent.status("lives").phase == "Running")
    shown = {c.name: c for c in agent.status("lives").containerStatuses or ()}
    assert shown["app"].restartCount == shown["once"].restartCount == 0
    user = shown["app"].user
    assert user and user.linux
    assert (user.linux.uid, user.linux.gid) == (1000, 7)
    assert set(user.linux.supplementalGroups or ()) == {7, 9}


async def test_what_an_init_container_writes_is_read_and_a_rule_restarts_all(
    agent: Agent,
) -> None:
    """Each round counts in a file, and the next one reads it from there."""
    count = (
        "n=$(cat /made/count || echo 0); n=$((n+1)); echo $n > /made/count; "
        "echo \"ROUND='$n'\" > /made/env"
    )
    mounts = [{"name": "made", "mountPath": "/made"}]
    first = {"name": "first", "command": ["sh", "-c", count], "volumeMounts": mounts}
    source = {"fileKeyRef": {"volumeName": "made", "path": "env", "key": "ROUND"}}
    app = {
        "name": "app",
        "command": [
            "sh",
            "-c",
            "until [ -e /made/beside ]; do sleep 0.1; done; "  # else it might start in the second
            '[ "$ROUND" = 2 ] || exit 42; while :; do sleep 0.1; done',
        ],
        "volumeMounts": mounts,
        "env": [{"name": "ROUND", "valueFrom": source}],
        "restartPolicy": "Never",
        "restartPolicyRules": [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
        ],
    }
    beside = {
        "name": "beside",
        "command": ["sh", "-c", "echo > /made/beside; while :; do sleep 0.1; done"],
        "volumeMounts": mounts,
    }
    image = {"image": IMAGE}
    volumes = [{"name": "made", "emptyDir": {}}]
    agent.put(manifest("rounds", app, beside, initContainers=[{**image, **first}], volumes=volumes))
    await agent.until(lambda: agent.restarts("rounds") == {"app": 1, "beside": 1}, within_s=60)
    await agent.until(lambda: b"ROUND=2" in Path(f"/proc/{agent.pid('app')}/environ").read_bytes())

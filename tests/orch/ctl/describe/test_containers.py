from __future__ import annotations

from typing import Any

import pytest

from orch.ctl.describe import containers
from orch.ctl.describe.tab_writer import TabWriter

STATES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["    State:          Waiting"]),
    ({"waiting": {"reason": "Back"}}, ["    State:          Waiting", "      Reason:       Back"]),
    ({"running": {}}, ["    State:          Running",
                       "      Started:      Mon, 01 Jan 0001 00:00:00 +0000"]),
    ({"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled", "message": "m"}},
     ["    State:          Terminated",
      "      Reason:       OOMKilled",
      "      Message:      m",
      "      Exit Code:    137",
      "      Signal:       9",
      "      Started:      Mon, 01 Jan 0001 00:00:00 +0000",
      "      Finished:     Mon, 01 Jan 0001 00:00:00 +0000"]),
]  # fmt: skip


def _lines(container: dict[str, Any], **status: Any) -> list[str]:
    statuses = [{"name": "c", **status}] if status else []
    pod = {
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", **container}]},
        "status": {"seen": statuses},
    }
    writer = TabWriter()
    containers.write(writer, "Containers", pod, "containers", "seen")
    lines = writer.text().splitlines()
    assert lines[:2] == ["Containers:", "  c:"]
    return lines[2:]


def test_a_container_that_was_not_seen_has_no_state() -> None:
    assert _lines({"image": "i"}) == [
        "    Image:        i",
        "    Port:         <none>",
        "    Host Port:    <none>",
        "    Environment:  <none>",
        "    Mounts:       <none>",
    ]


@pytest.mark.parametrize(("state", "shown"), STATES)
def test_a_container_is_shown_with_its_state(state: dict[str, Any], shown: list[str]) -> None:
    assert _lines({"image": "i"}, state=state, restartCount=2, ready=True, imageID="sha256:1") == [
        "    Container ID:",
        "    Image:          i",
        "    Image ID:       sha256:1",
        "    Port:           <none>",
        "    Host Port:      <none>",
        *shown,
        "    Ready:          True",
        "    Restart Count:  2",
        "    Environment:    <none>",
        "    Mounts:         <none>",
    ]


def test_only_an_end_is_shown_as_the_last_state() -> None:
    ended = _lines({}, lastState={"terminated": {"exitCode": 1}})
    assert "    Last State:     Terminated" in ended
    assert "    Last State:     Waiting" not in _lines({}, lastState={"waiting": {}})


def test_everything_a_container_declares() -> None:
    container = {
        "ports": [{"containerPort": 80, "protocol": "TCP"},
                  {"containerPort": 53, "protocol": "UDP", "hostPort": 5353}],
        "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}},
        "command": ["serve", "a\nb"], "args": ["-v"],
        "resources": {"requests": {"memory": "1024Mi", "cpu": "0.5"}, "limits": {"cpu": 1}},
        "livenessProbe": {"exec": {"command": ["true"]}},
        "volumeMounts": [{"name": "v", "mountPath": "/z", "readOnly": True},
                         {"name": "w", "mountPath": "/a", "subPath": "s"}],
    }  # fmt: skip
    assert _lines(container) == [
        "    Image:",
        "    Ports:               80/TCP, 53/UDP",
        "    Host Ports:          0/TCP, 5353/UDP",
        "    SeccompProfile:      Localhost",
        "      LocalhostProfile:  p.json",
        "    Command:",
        "      serve",
        "      a",
        "      b",
        "    Args:",
        "      -v",
        "    Limits:",
        "      cpu:  1",
        "    Requests:",
        "      cpu:     500m",
        "      memory:  1Gi",
        "    Liveness Probe:",
        "      Exec:",
        "        Command:",
        "          true",
        "    Environment:  <none>",
        "    Mounts:",
        '      /a from w (rw,path="s")',
        "      /z from v (ro)",
    ]


def test_environment_values_and_where_they_come_from() -> None:
    name, address = (
        {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
        for path in ("metadata.name", "status.podIP")
    )
    mode = {"name": "c", "key": "m", "optional": True}
    env = [
        {"name": "A", "value": "1"},
        {"name": "LINES", "value": "one\ntwo"},
        {"name": "POD", "valueFrom": name},
        {"name": "IP", "valueFrom": address},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": mode}},
        {"name": "ODD", "valueFrom": {"fileKeyRef": {}}},
    ]
    sources = [{"configMapRef": {"name": "c"}},
               {"prefix": "P_", "secretRef": {"name": "s", "optional": True}}]  # fmt: skip
    assert _lines({"env": env, "envFrom": sources})[3:-1] == [
        "    Environment Variables from:",
        "      c  ConfigMap                Optional: false",
        "      s  Secret with prefix 'P_'  Optional: true",
        "    Environment:",
        "      A:      1",
        "      LINES:  one",
        "              two",
        "      POD:    web (v1:metadata.name)",
        "      IP:      (v1:status.podIP)",
        "      CPU:    (limits.cpu)",
        "      KEY:    <set to the key 'k' in secret 's'>      Optional: false",
        "      MODE:   <set to the key 'm' of config map 'c'>  Optional: true",
    ]

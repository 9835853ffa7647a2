"""Settings that open the agent, and gates that cannot be served."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.doctor.hardening import check_gates, check_hardening
from orch.component.flags.features import Features

CLOSED: dict[str, Any] = {
    "authentication": {"x509": {"clientCAFile": "/ca.crt"}},
    "seccompDefault": True,
    "podPidsLimit": 1000,
}
TRIGGER = {"resource": "io", "threshold": "150ms"}


def config(**fields: Any) -> NodeAgentConfiguration:
    return NodeAgentConfiguration.model_validate({**CLOSED, **fields})


# fields, hostname override, credential can be renewed → verdict, part of the text
OPENED = [
    ({}, "", True, "ok", "no setting exposes"),
    ({"authentication": {"x509": {"clientCAFile": "/ca"}, "anonymous": {"enabled": True}}},
     "", True, "warn", "anonymous"),
    ({"authorization": {"mode": "AlwaysAllow"}}, "", True, "warn", "may do everything"),
    ({"readOnlyPort": 10255}, "", True, "warn", "port 10255"),
    ({"authentication": {}}, "", True, "note", "no client CA"),
    ({"seccompDefault": False}, "", True, "note", "unconfined"),
    ({"podPidsLimit": -1}, "", True, "note", "all process ids"),
    ({}, "node-1", True, "note", "node-1"),
    ({}, "", False, "note", "kubeconfig"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "override", "rotates", "verdict", "text"), OPENED)
def test_each_exposing_setting_is_a_finding(
    fields: dict[str, Any], override: str, rotates: bool, verdict: str, text: str
) -> None:
    (found,) = check_hardening(config(**fields), hostname_override=override, rotates=rotates)
    assert (found.verdict, text in found.message) == (verdict, True)
    assert bool(found.advice) == (verdict != "ok")


# gates, fields, cgroup v2, pressure → verdict, part of the text
GATES = [
    ({}, {}, True, True, "ok", "supports all"),
    ({}, {}, False, False, "ok", "supports all"),
    ({}, {"psiTriggers": [TRIGGER]}, True, True, "warn", "gate is disabled"),
    ({"NodeAgentPSITriggers": True}, {"psiTriggers": [TRIGGER]}, True, True, "ok", "supports all"),
    ({"NodeAgentPSITriggers": True}, {"psiTriggers": [TRIGGER]}, False, True, "ok", "supports all"),
    ({"NodeAgentPSITriggers": True}, {"psiTriggers": [TRIGGER | {"scope": "pod"}]}, False, True,
     "warn", "need cgroup v2"),
    ({"NodeAgentPSITriggers": True}, {"psiTriggers": [TRIGGER]}, True, False, "warn", "need"),
    ({"PodAndContainerStatsFromCRI": True}, {"containerRuntimeEndpoint": ""}, True, True,
     "warn", "no runtime"),
]  # fmt: skip


@pytest.mark.parametrize(("gates", "fields", "unified", "pressure", "verdict", "text"), GATES)
def test_gates_are_held_against_the_host(
    gates: dict[str, bool],
    fields: dict[str, Any],
    unified: bool,
    pressure: bool,
    verdict: str,
    text: str,
) -> None:
    (found,) = check_gates(config(**fields), Features(gates), unified=unified, pressure=pressure)
    assert (found.verdict, text in found.message) == (verdict, True)

"""Every case against every version of every level."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from orch.server.admission.pod_security.evaluation import NEWEST, evaluate
from orch.server.admission.pod_security.judged import JudgedPod
from orch.server.admission.pod_security.levels import LATEST, LevelVersion
from tests import scaling
from tests.orch.server.admission.pod_security.cases import CASES, MINIMAL, Case

VERSIONS = range(NEWEST + 1)


def refused(document: dict[str, Any], level: str, minor: int) -> str:
    return evaluate(LevelVersion(level, minor), JudgedPod.of(document)).detail


@pytest.mark.parametrize("name", CASES)
def test_each_version_of_each_level_refuses_what_it_should(name: str) -> None:
    case = CASES[name]
    document = case.made()
    for minor in VERSIONS:
        for level in ("baseline", "restricted"):
            found = refused(document, level, minor)
            assert bool(found) == case.is_refused(level, minor), f"{level} v1.{minor}: {found}"
        assert not refused(document, "privileged", minor)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.text])
def test_the_client_is_told_what_is_wrong_in_the_words_of_the_reference(name: str) -> None:
    case = CASES[name]
    document = case.made()
    *_, last = filter(None, (refused(document, "restricted", minor) for minor in VERSIONS))
    assert case.text in last


def test_baseline_names_a_capability_and_a_volume_by_its_own_checks() -> None:
    assert refused(CASES["a capability"].made(), "baseline", LATEST) == (
        'non-default capabilities (container "c" must not include "NET_RAW" in'
        " securityContext.capabilities.add)"
    )
    assert refused(CASES["a volume hostPath"].made(), "baseline", LATEST) == (
        'hostPath volumes (volume "v")'
    )


def test_several_violations_come_in_a_fixed_order() -> None:
    case = Case(
        spec={"hostPID": True, "volumes": [{"name": "v", "hostPath": {}}]},
        pod={"runAsUser": 0},
        container={"privileged": True, "allowPrivilegeEscalation": True},
    )
    verdict = evaluate(LevelVersion("restricted"), JudgedPod.of(case.made()))
    assert verdict.reason == (
        "host namespaces, privileged, allowPrivilegeEscalation != false, restricted volume types,"
        " runAsUser=0"
    )


def test_every_container_is_judged_init_containers_first() -> None:
    document = Case().made()
    bad = {"image": "a", "securityContext": {"privileged": True}}
    spec = document["spec"]
    spec["ephemeralContainers"] = [{**bad, "name": "e"}]
    spec["containers"].append({**bad, "name": "d"})
    spec["initContainers"].append({**bad, "name": "j"})
    assert refused(document, "baseline", 0) == (
        'privileged (containers "j", "d", "e" must not set securityContext.privileged=true)'
    )


def test_a_container_does_not_hide_another_of_its_name() -> None:
    for changes in (
        {"container": {"capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]}}},
        {"container": {"procMount": "Unmasked"}},
        {"fields": {"ports": [{"containerPort": 1, "hostPort": 1}]}},
        {"fields": {"livenessProbe": {"httpGet": {"port": 1, "host": "a"}}}},
    ):
        document = Case(**changes).made()
        harmless = {**Case().made()["spec"]["containers"][0], "ports": [{"containerPort": 1}]}
        harmless["securityContext"]["procMount"] = "Default"
        document["spec"]["containers"].append(harmless)
        assert refused(document, "baseline", LATEST)


def test_the_latest_version_and_later_ones_are_those_of_the_server() -> None:
    pod = JudgedPod.of(CASES["user 0 among own users"].made())
    for minor in (LATEST, 36, 35):
        assert not evaluate(LevelVersion("restricted", minor), pod, 34).is_allowed
        assert evaluate(LevelVersion("restricted", minor), pod, 35).is_allowed


def _wide(containers: int) -> dict[str, Any]:
    document = Case().made()
    document["spec"]["containers"] = [
        {"name": f"c{number}", "image": "a", "securityContext": {"procMount": f"x{number}"}}
        for number in range(containers)
    ]
    return document


@pytest.mark.slow
def test_the_work_grows_as_the_pod_does_and_the_text_is_bounded() -> None:
    def judging(containers: int) -> Callable[[], object]:
        return partial(refused, _wide(containers), "restricted", LATEST)

    assert scaling.growth(judging, 500) < scaling.LINEAR
    assert len(refused(_wide(10_000), "restricted", LATEST)) < 20_000


@pytest.mark.parametrize("odd", [5, "x", ["x"], {"x": {}}, True])
def test_a_field_of_a_wrong_type_is_judged_and_breaks_nothing(odd: Any) -> None:
    for name in ("appArmorProfile", "seLinuxOptions", "windowsOptions", "procMount"):
        for place in ("pod", "container"):
            document = Case(**{place: {name: odd}}).made()
            refused(document, "restricted", LATEST)
    for name in ("os", "hostUsers"):
        document = Case(spec={name: odd}, pod={"runAsUser": 0, "seccompProfile": None}).made()
        assert "runAsUser=0" in refused(document, "restricted", LATEST)
    assert refused(MINIMAL, "restricted", LATEST) == ""

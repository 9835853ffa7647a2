from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from orch.server.admission.pod_security.levels import LevelVersion
from orch.server.admission.pod_security.survey import Survey
from orch.server.controllers import namespaces
from orch.server.objects.backend import Backend
from orch.server.objects.document import encode
from tests.orch.server.admission.pod_security.cases import CASES


def pod(name: str, case: str = "host network", **owner: Any) -> dict[str, Any]:
    document = CASES[case].made()
    document["metadata"] = {"name": name, "uid": name, "namespace": "default"}
    if owner:
        document["metadata"]["ownerReferences"] = [{"controller": True, **owner}]
    return document


def survey() -> Survey:
    return Survey("default", LevelVersion("baseline"), 35, ("vm",))


def test_one_pod_of_each_controller_comes_before_its_replicas() -> None:
    asked = survey()
    added = [asked.add(pod(name, uid="rs")) for name in ("a", "b")] + [asked.add(pod("c"))]
    assert added == [True, False, True]
    assert asked.warnings(3)[0] == (
        "new PodSecurity enforce level only checked against the first 2 of 3 existing pods"
    )
    assert asked.add(pod("b", uid="rs"))
    assert asked.warnings(3)[1:] == ["a (and 2 other pods): host namespaces"]


def test_pods_of_an_exempt_class_do_not_count() -> None:
    asked = survey()
    exempt = pod("a")
    exempt["spec"]["runtimeClassName"] = "vm"
    assert asked.add(exempt)
    assert asked.add(pod("b", "nothing"))
    assert asked.warnings(2) == []


async def store(backend: Backend, count: int, **owner: Any) -> None:
    made = (
        backend.storage.create(
            f"/pods/default/p{number}",
            encode({"kind": "Pod", "apiVersion": "v1", **pod(f"p{number}", **owner)}),
        )
        for number in range(count)
    )
    await asyncio.gather(*made)


@pytest.mark.slow
async def test_at_most_3000_pods_are_looked_at_and_replicas_last(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "SURVEY_S", 60.0)  # a busy machine takes more than a second
    await store(backend, 3003, uid="rs")
    texts = await namespaces.survey_pods(backend.storage, survey())
    assert texts[0].endswith("the first 3000 of 3003 existing pods")
    assert texts[-1] == "p0 (and 2999 other pods): host namespaces"


async def test_no_more_pods_are_looked_at_than_there_is_time_for(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "SURVEY_S", 0.0)
    await store(backend, 2)
    (text,) = await namespaces.survey_pods(backend.storage, survey())
    assert text.endswith("the first 0 of 2 existing pods")


async def test_others_run_while_pods_are_looked_at(backend: Backend) -> None:
    await store(backend, 1000)
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        began_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - began_s)
            began_s = time.thread_time()

    watching = asyncio.create_task(watch())
    began_s = time.thread_time()
    await namespaces.survey_pods(backend.storage, survey())
    whole_s = time.thread_time() - began_s
    watching.cancel()
    assert longest_s < max(0.02, whole_s / 4), f"{longest_s * 1000:.1f} ms at once"

"""Answers of an agent that cannot checkpoint: names that lead nowhere, a bad store."""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.harness import LocalCluster, eventually


def ask(cluster: LocalCluster, method: str, path: str) -> tuple[int, str]:
    """Status and text of the agent's own answer, as the administrator."""
    context = ssl.create_default_context(cafile=cluster.info["caFile"])
    context.load_cert_chain(cluster.info["clientCert"], cluster.info["clientKey"])
    target = urlsplit(cluster.info["nodeagent"])
    connection = http.client.HTTPSConnection(
        target.hostname or "", target.port, context=context, timeout=60
    )
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


LONG = "x" * 300
NOWHERE = [
    "/checkpoint/default/absent/cpu",
    "/checkpoint/absent/{pod}/cpu",
    "/checkpoint/default/{pod}/absent",
    "/checkpoint/default/{pod}/..%2f..%2f..%2fetc%2fpasswd",
    "/checkpoint/default/..%2f{pod}/cpu",
    "/checkpoint/..%2f..%2fdefault/{pod}/cpu",
    "/checkpoint/default/{pod}/%2fcpu",
    "/checkpoint/default/{pod}/cpu%00",
    "/checkpoint/default/{pod}%00/cpu",
    "/checkpoint/default/{pod}/cpu%0d%0aX:y",
    "/checkpoint/default/{pod}/%2e%2e",
    f"/checkpoint/default/{{pod}}/{LONG}",
    f"/checkpoint/default/{LONG}/cpu",
    f"/checkpoint/{LONG}/{{pod}}/cpu",
    "/checkpoint/default/{pod}/CPU",
    "/checkpoint/default/{pod}/",
    "/checkpoint/default/{pod}",
    "/checkpoint/default/{pod}/cpu?timeout=soon",
    "/checkpoint/default/{pod}/cpu?timeout=1e3",
    "/checkpoint/default/{pod}/cpu?timeout=99999999999999999999",
]


@pytest.mark.parametrize("path", NOWHERE)
def test_a_path_that_leads_nowhere_is_404_and_makes_nothing(
    cluster: LocalCluster, demo: str, path: str
) -> None:
    store = cluster.run_dir / "nodeagent" / "checkpoints"
    before = os.listdir(store)

    status, text = ask(cluster, "POST", path.format(pod=demo))

    assert status == 404, text
    assert LONG not in text
    assert os.listdir(store) == before


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_another_method_is_refused(cluster: LocalCluster, demo: str, method: str) -> None:
    assert ask(cluster, method, f"/checkpoint/default/{demo}/cpu")[0] == 405


def test_a_negative_timeout_is_500_with_a_reason(cluster: LocalCluster, demo: str) -> None:
    status, text = ask(cluster, "POST", f"/checkpoint/default/{demo}/cpu?timeout=-1")

    assert status == 500
    assert "requires the timeout value to be > 0" in text


@pytest.fixture
def link_for_store(cluster: LocalCluster, tmp_path: Path) -> Iterator[Path]:
    """The store's directory replaced by a link; what it leads to."""
    store = cluster.run_dir / "nodeagent" / "checkpoints"
    kept = store.rename(store.with_name("checkpoints.kept"))
    store.symlink_to(tmp_path)
    yield tmp_path
    store.unlink()
    kept.rename(store)


def test_a_link_in_place_of_the_store_fails_closed(
    cluster: LocalCluster, demo: str, link_for_store: Path
) -> None:
    status, text = ask(cluster, "POST", f"/checkpoint/default/{demo}/cpu")

    assert status == 500
    assert "checkpoints is not a directory; move it away" in text
    assert os.listdir(link_for_store) == []
    assert ask(cluster, "GET", "/checkpoint")[0] == 500


def test_a_failure_is_an_event_of_the_pod_and_counted(cluster: LocalCluster, demo: str) -> None:
    status, _ = ask(cluster, "POST", f"/checkpoint/default/{demo}/cpu?timeout=-1")
    assert status == 500

    def told() -> bool:
        events = cluster.get("/api/v1/namespaces/default/events")["items"]
        return "CheckpointFailed" in {event["reason"] for event in events}

    eventually(told, within_s=20, what="the event CheckpointFailed")
    metrics = ask(cluster, "GET", "/metrics")[1]
    failed = [line for line in metrics.splitlines() if 'checkpoints_total{result="error"}' in line]
    assert failed and float(failed[0].split()[-1]) >= 1

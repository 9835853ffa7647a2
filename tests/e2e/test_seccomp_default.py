"""`seccompDefault` on the real runtime: what says nothing is confined by default."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.harness import LocalCluster, local_cluster
from tests.e2e.test_seccomp import OFF, ON, PRIVILEGED, UNCONFINED, create, found_in, pod, prepare

WITH_DEFAULT = {
    "app-plain": (None, ON),
    "init-plain": (None, ON),
    "late-plain": (None, ON),
    "app-unconfined": (UNCONFINED, OFF),
    "app-privileged": (PRIVILEGED, OFF),
}


@pytest.fixture(scope="module")
def by_default(
    tmp_path_factory: pytest.TempPathFactory, runtime_endpoint: str
) -> Iterator[LocalCluster]:
    """A cluster whose agent runs with `seccompDefault`."""
    run_dir = tmp_path_factory.mktemp("seccomp-default") / "run"
    prepare(run_dir)
    config = {"kind": "NodeAgentConfiguration", "seccompDefault": True}
    config["apiVersion"] = "nodeagent.config.orch.io/v1beta1"
    (run_dir / "nodeagent.conf.d").mkdir()
    (run_dir / "nodeagent.conf.d" / "90-seccomp.conf").write_text(json.dumps(config))
    with local_cluster(run_dir, runtime=runtime_endpoint) as cluster:
        own = {name: profile for name, (profile, _) in WITH_DEFAULT.items()}
        create(cluster, [pod("of-none", None, own)])
        yield cluster


@pytest.mark.parametrize(
    ("container_name", "found"), [(key, found) for key, (_, found) in WITH_DEFAULT.items()]
)
def test_the_agents_default_confines_what_says_nothing(
    by_default: LocalCluster, container_name: str, found: str
) -> None:
    assert found_in(by_default, "of-none", container_name) == found

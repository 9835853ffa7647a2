"""What clients of the reference rely on beyond the verbs themselves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orch.server.harness import PODS, Api, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str = "c1", **metadata: Any) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, **metadata}}


@pytest.mark.parametrize(
    ("path", "made", "query", "options", "status", "kind"),
    [
        (CONFIG_MAPS, config_map(), "", {}, 200, "Status"),
        (CONFIG_MAPS, config_map(), "", {"orphanDependents": False}, 200, "Status"),
        (CONFIG_MAPS, config_map(finalizers=["a/b"]), "", {}, 200, "ConfigMap"),
        (
            CONFIG_MAPS,
            config_map(finalizers=["a/b"]),
            "",
            {"propagationPolicy": "Background"},
            200,
            "ConfigMap",
        ),
        (
            CONFIG_MAPS,
            config_map(finalizers=["a/b"]),
            "",
            {"orphanDependents": False},
            202,
            "ConfigMap",
        ),
        (
            CONFIG_MAPS,
            config_map(finalizers=["a/b"]),
            "?orphanDependents=false",
            {},
            202,
            "ConfigMap",
        ),
        (CONFIG_MAPS, config_map(), "", {"orphanDependents": True}, 200, "ConfigMap"),
        (PODS, pod("c1", node="n1"), "", {}, 200, "Pod"),
        (PODS, pod("c1", node="n1"), "", {"orphanDependents": False}, 202, "Pod"),
        (PODS, pod("c1"), "", {"orphanDependents": False}, 200, "Pod"),
    ],
)
async def test_a_deletion_that_waits_is_accepted_where_the_older_option_asks_for_it(
    api: Api, path: str, made: Any, query: str, options: Any, status: int, kind: str
) -> None:
    assert (await api.call("POST", path, made)).status == 201
    answer = await api.call("DELETE", f"{path}/c1{query}", options)
    assert (answer.status, answer.json["kind"]) == (status, kind)

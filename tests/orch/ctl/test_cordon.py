from __future__ import annotations

from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl

NODE = "/api/v1/nodes/n1"


async def test_a_node_is_cordoned_once(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert (await orchctl("cordon", "n1")).out == "node/n1 cordoned\n"
    (sent,) = api.sent("PATCH")
    assert sent.body == {"spec": {"unschedulable": True}}
    assert sent.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert api.objects[NODE]["spec"] == {"unschedulable": True}
    assert (await orchctl("cordon", "node/n1")).out == "node/n1 already cordoned\n"
    assert len(api.sent("PATCH")) == 1


async def test_the_other_nodes_are_cordoned_when_one_is_missing(
    orchctl: Orchctl, api: HttpApi
) -> None:
    api.put(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    result = await orchctl("cordon", "n0", "n1")
    assert (result.code, result.out) == (1, "node/n1 cordoned\n")
    assert 'nodes "n0" not found' in result.err


async def test_nodes_are_chosen_by_their_labels(orchctl: Orchctl, api: HttpApi) -> None:
    for name, rack in (("n1", "7"), ("n2", "8"), ("n3", "7")):
        metadata = {"name": name, "labels": {"rack": rack}}
        api.put(f"/api/v1/nodes/{name}", {"metadata": metadata})
    result = await orchctl("cordon", "-l", "rack=7")
    assert result.out == "node/n1 cordoned\nnode/n3 cordoned\n"
    assert (await orchctl("cordon", "-l", "rack=9")).out == ""


async def test_a_dry_run_changes_nothing(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert (await orchctl("cordon", "n1", "--dry-run=client")).out == "node/n1 cordoned (dry run)\n"
    assert api.sent("PATCH") == []

from __future__ import annotations

from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl

NODE = "/api/v1/nodes/n1"


async def test_a_node_is_uncordoned_once(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                   "spec": {"unschedulable": True}})  # fmt: skip
    assert (await orchctl("uncordon", "n1")).out == "node/n1 uncordoned\n"
    assert api.sent("PATCH")[0].body == {"spec": {"unschedulable": None}}
    assert api.objects[NODE]["spec"] == {}
    assert (await orchctl("uncordon", "n1")).out == "node/n1 already uncordoned\n"

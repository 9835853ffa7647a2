from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

NODE = "/api/v1/nodes/n1"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "node.yaml"
    path.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {new: true}\n")
    return str(path)


@pytest.fixture(autouse=True)
def _node(api: HttpApi) -> None:
    api.put(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}})


async def test_an_object_becomes_what_the_file_says(
    orchctl: Orchctl, api: HttpApi, file: str
) -> None:
    api.answers["PUT", NODE] = Answer({"kind": "Node", "metadata": {"name": "n1"}})
    assert (await orchctl("replace", "-f", file)).out == "node/n1 replaced\n"
    (sent,) = api.sent("PUT")
    assert sent.body["metadata"] == {"name": "n1", "resourceVersion": "1"}
    assert sent.body["spec"] == {"new": True}
    assert sent.query == {"fieldManager": "cli-replace", "fieldValidation": "Strict"}


async def test_with_force_it_is_made_anew(orchctl: Orchctl, api: HttpApi, file: str) -> None:
    uid = api.objects[NODE]["metadata"]["uid"]
    result = await orchctl("replace", "--force", "-f", file)
    assert result.lines == ['node "n1" deleted', "node/n1 replaced"]
    assert [r.method for r in api.requests if r.method in ("DELETE", "POST")] == ["DELETE", "POST"]
    assert api.objects[NODE]["metadata"]["uid"] != uid
    del api.objects[NODE]
    assert (await orchctl("replace", "--force", "-f", file)).code == 0


async def test_a_missing_object_is_not_made_without_force(
    orchctl: Orchctl, api: HttpApi, file: str
) -> None:
    api.objects.clear()
    result = await orchctl("replace", "-f", file)
    assert (result.code, 'nodes "n1" not found' in result.err) == (1, True)


async def test_dry_runs_and_force_exclude_each_other(
    orchctl: Orchctl, api: HttpApi, file: str
) -> None:
    assert (await orchctl("replace", "-f", file, "--force", "--dry-run=server")).code == 2
    result = await orchctl("replace", "-f", file, "--dry-run=client", "-o", "jsonpath={.spec.new}")
    assert (result.out, api.sent("PUT")) == ("true", [])

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(autouse=True)
def _objects(api: HttpApi) -> None:
    for name, namespace in (("web", "default"), ("db", "default"), ("dns", "system")):
        api.put(
            f"/api/v1/namespaces/{namespace}/pods/{name}",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": {"app": name},
                             "managedFields": [{}]},
                "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
                "status": {"phase": "Running"},
            },
        )  # fmt: skip
    api.put("/api/v1/nodes/n1", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})


async def test_objects_are_shown_as_a_table(orchctl: Orchctl) -> None:
    result = await orchctl("get", "pods")
    assert result.code == 0
    assert [line.split() for line in result.lines] == [
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
        ["db", "0/1", "Running", "0", "<unknown>"],
        ["web", "0/1", "Running", "0", "<unknown>"],
    ]


async def test_the_server_s_own_table_is_asked_for(orchctl: Orchctl, api: HttpApi) -> None:
    await orchctl("get", "pods")
    assert api.requests[-1].headers["Accept"] == (
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    )


async def test_a_server_without_tables_gets_them_made_here(orchctl: Orchctl, api: HttpApi) -> None:
    tabled = await orchctl("get", "pods", "-o", "wide")
    api.makes_tables = False
    assert await orchctl("get", "pods", "-o", "wide") == tabled
    assert (await orchctl("get", "pod", "web")).lines[1].split()[0] == "web"


async def test_selectors_are_the_server_s_to_apply(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl("get", "pods", "-l", "app=web", "--field-selector", "spec.nodeName=n1")
    assert api.requests[-1].query == {
        "labelSelector": "app=web",
        "fieldSelector": "spec.nodeName=n1",
        "limit": "500",
    }
    assert len(result.lines) == 2


@pytest.mark.parametrize("output", ["", "name", "json"])
async def test_pages_are_read_to_the_end(orchctl: Orchctl, api: HttpApi, output: str) -> None:
    def page(name: str, token: str) -> Answer:
        cells: dict[str, Any] = {"cells": [name], "object": {"metadata": {"name": name}}}
        return Answer(
            {
                "kind": "Table" if not output else "PodList",
                "metadata": {"continue": token},
                "columnDefinitions": [{"name": "Name", "format": "name"}],
                "rows": [cells],
                "items": [{"metadata": {"name": name}}],
            }
        )

    api.answers["GET", PODS] = [page("a", "more"), page("b", "")]
    result = await orchctl("get", "pods", *(("-o", output) if output else ()))
    assert api.requests[-1].query["continue"] == "more"
    if output == "json":
        assert [i["metadata"]["name"] for i in json.loads(result.out)["items"]] == ["a", "b"]
    else:
        assert result.lines[-2:] == (["a", "b"] if not output else ["pod/a", "pod/b"])


async def test_a_first_page_without_items_is_followed(orchctl: Orchctl, api: HttpApi) -> None:
    first = {"kind": "PodList", "metadata": {"continue": "more"}, "items": None}
    second = {"kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": "b"}}]}
    api.answers["GET", PODS] = [Answer(first), Answer(second)]
    result = await orchctl("get", "pods", "-o", "name")
    assert result.lines == ["pod/b"]


async def test_a_name_that_a_terminal_would_obey_is_escaped(orchctl: Orchctl, api: HttpApi) -> None:
    """Whoever may write roles may name one so."""
    items = [{"metadata": {"name": "a\x1b]0;b\x07"}}]
    api.answers["GET", PODS] = Answer({"kind": "PodList", "metadata": {}, "items": items})
    assert (await orchctl("get", "pods", "-o", "name")).lines == ["pod/a\\x1b]0;b\\x07"]


@pytest.mark.parametrize("cells", [5, {"a": 1}, True, None])
async def test_cells_that_are_no_list_are_none(
    orchctl: Orchctl, api: HttpApi, cells: object
) -> None:
    table = {
        "kind": "Table",
        "columnDefinitions": [{"name": "Name", "type": "string"}],
        "rows": [{"cells": cells, "object": {"metadata": {"name": "a"}}}],
    }
    api.answers["GET", PODS] = Answer(table)
    assert (await orchctl("get", "pods")).lines == ["NAME", "<none>"]


@pytest.mark.parametrize("output", ["yaml", "json", "jsonpath={..a}", "custom-columns=A:.spec"])
async def test_an_answer_nested_too_deeply_is_an_error_without_a_trace(
    orchctl: Orchctl, api: HttpApi, output: str
) -> None:
    spec = '{"a":' * 1_020 + "1" + "}" * 1_020  # the reader takes no more
    api.answers["GET", f"{PODS}/deep"] = Answer(f'{{"kind": "Pod", "spec": {spec}}}')
    result = await orchctl("get", "pod", "deep", "-o", output)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "nested too deeply" in result.err


async def test_a_page_that_leads_to_itself_is_an_error(orchctl: Orchctl, api: HttpApi) -> None:
    pages = [
        Answer({"kind": "PodList", "metadata": {"continue": to}, "items": []}) for to in "2121"
    ]
    api.answers["GET", PODS] = pages
    result = await orchctl("get", "pods", "-o", "json")
    assert result.code == 1
    assert "leads to itself" in result.err


async def test_yaml_and_json_give_the_object(orchctl: Orchctl) -> None:
    shown = yaml.safe_load((await orchctl("get", "pod", "web", "-o", "yaml")).out)
    assert (shown["kind"], shown["metadata"]["name"]) == ("Pod", "web")
    assert json.loads((await orchctl("get", "pod", "web", "-o", "json")).out) == shown
    assert "managedFields" not in shown["metadata"]
    managed = await orchctl("get", "pod", "web", "-o", "json", "--show-managed-fields")
    assert json.loads(managed.out)["metadata"]["managedFields"] == [{}]


async def test_several_objects_are_one_list(orchctl: Orchctl) -> None:
    for words in (("pods",), ("pods", "db", "web")):
        shown = json.loads((await orchctl("get", *words, "-o", "json")).out)
        assert (shown["kind"], shown["apiVersion"]) == ("List", "v1")
        assert [item["metadata"]["name"] for item in shown["items"]] == ["db", "web"]
        assert {item["kind"] for item in shown["items"]} == {"Pod"}


async def test_nothing_found_is_said_and_no_failure(orchctl: Orchctl) -> None:
    result = await orchctl("get", "pods", "-n", "empty")
    assert (result.code, result.out) == (0, "")
    assert result.err == "No resources found in empty namespace.\n"
    assert (await orchctl("get", "ns")).err == "No resources found\n"
    assert (await orchctl("get", "pods", "-n", "empty", "--ignore-not-found")).err == ""
    empty = await orchctl("get", "pods", "-n", "empty", "-o", "json")
    assert json.loads(empty.out)["items"] == []


async def test_a_missing_object_is_a_failure_and_the_others_are_shown(orchctl: Orchctl) -> None:
    for output in ("", "name", "json"):
        words = ("-o", output) if output else ()
        result = await orchctl("get", "pods", "web", "gone", *words)
        assert result.code == 1
        assert "web" in result.out
        assert result.err.startswith('error: pods "gone" not found (NotFound); ')
        assert result.err.count("\n") == 1
        ignored = await orchctl("get", "pods", "gone", "--ignore-not-found", *words)
        assert (ignored.code, ignored.err) == (0, "")


@pytest.mark.parametrize("words", [("-l", "a=b"), ("-A",), ("--field-selector", "a=b")])
async def test_names_do_not_go_with_selectors(orchctl: Orchctl, words: tuple[str, ...]) -> None:
    result = await orchctl("get", "pod", "web", *words)
    assert result.code == 2
    assert "leave one of them out" in result.err


async def test_rows_and_objects_are_ordered_by_a_field(orchctl: Orchctl, api: HttpApi) -> None:
    words = ("get", "pods", "-A", "--sort-by", ".metadata.namespace")
    assert [line.split()[1] for line in (await orchctl(*words)).lines[1:]] == ["db", "web", "dns"]
    assert api.requests[-1].query == {"includeObject": "Object"}
    named = await orchctl(*words[:-1], "{.metadata.name}", "-o", "name")
    assert named.lines == ["pod/db", "pod/dns", "pod/web"]


async def test_a_path_of_the_server_is_shown_as_it_is(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/readyz"] = Answer("[+]ping ok\n\x1b[1m")
    result = await orchctl("get", "--raw", "/readyz?verbose")
    assert result.out == "[+]ping ok\n\x1b[1m"
    assert api.requests[-1].query == {"verbose": ""}
    assert (await orchctl("get", "--raw", "readyz")).code == 2


async def test_objects_of_a_file_are_looked_up(orchctl: Orchctl, tmp_path: Path) -> None:
    record = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dns", "namespace": "system"}}
    (tmp_path / "f.json").write_text(json.dumps(record))
    result = await orchctl("get", "-f", str(tmp_path / "f.json"), "-o", "name")
    assert (result.code, result.out) == (0, "pod/dns\n")
    assert (await orchctl("get")).code == 2

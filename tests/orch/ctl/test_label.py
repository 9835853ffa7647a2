from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orch.ctl import label
from orch.ctl.failures import WrongUsage
from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl

NODE = "/api/v1/nodes/n1"


@pytest.fixture(autouse=True)
def _nodes(api: HttpApi) -> None:
    for name in ("n1", "n2"):
        labels = {"a": "1", "name": name}
        metadata = {"name": name, "labels": labels, "annotations": {"note": "x"}}
        api.put(f"/api/v1/nodes/{name}", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})


@pytest.mark.parametrize(
    ("words", "named", "wanted"),
    [
        (["node", "n", "a=b", "c-"], ["node", "n"], {"a": "b", "c": None}),
        (["node/n", "a="], ["node/n"], {"a": ""}),
        (["node", "n", "a=b=c", "x.io/d-e-"], ["node", "n"], {"a": "b=c", "x.io/d-e": None}),
        (["node", "n"], ["node", "n"], {}),
    ],
)
def test_words_are_objects_and_then_values(
    words: list[str], named: list[str], wanted: dict[str, str | None]
) -> None:
    assert label.split(words) == (named, wanted)


@pytest.mark.parametrize("words", [["n", "a=b", "c"], ["n", "=b"], ["n", "a=b", "a-"]])
def test_what_is_neither_is_refused(words: list[str]) -> None:
    with pytest.raises(WrongUsage):
        label.split(words)


async def test_a_label_to_remove_that_is_not_there_is_said(orchctl: Orchctl) -> None:
    result = await orchctl("label", "node", "n1", "gone-")
    assert (result.code, result.out) == (0, 'label "gone" not found.\nnode/n1 not labeled\n')
    assert (await orchctl("label", "node", "n1", "gone-", "-o", "name")).out == "node/n1\n"


@pytest.mark.parametrize(
    ("words", "word", "labels"),
    [
        (("b=2",), "labeled", {"a": "1", "b": "2", "name": "n1"}),
        (("a-",), "unlabeled", {"name": "n1"}),
        (("a=2", "--overwrite"), "labeled", {"a": "2", "name": "n1"}),
        (("a=1",), "not labeled", {"a": "1", "name": "n1"}),
        (("a-", "b=2"), "labeled", {"b": "2", "name": "n1"}),
    ],
)
async def test_labels_are_set_and_removed(
    orchctl: Orchctl, api: HttpApi, words: tuple[str, ...], word: str, labels: dict[str, str]
) -> None:
    result = await orchctl("label", "node", "n1", *words)
    assert (result.code, result.out) == (0, f"node/n1 {word}\n")
    assert api.objects[NODE]["metadata"]["labels"] == labels
    (sent,) = api.sent("PATCH")
    assert sent.headers["Content-Type"].startswith("application/merge-patch")
    assert sent.query == {"fieldManager": "cli-label"}


async def test_a_value_that_is_set_is_not_changed_by_accident(
    orchctl: Orchctl, api: HttpApi
) -> None:
    result = await orchctl("label", "node", "n1", "a=2")
    assert (result.code, api.sent("PATCH")) == (1, [])
    assert result.err == (
        "error: node/n1 has the label a=1 already: confirm the change by --overwrite\n"
    )


async def test_annotations_work_alike(orchctl: Orchctl, api: HttpApi) -> None:
    assert (await orchctl("annotate", "no/n1", "b=c d")).out == "node/n1 annotated\n"
    assert api.objects[NODE]["metadata"]["annotations"] == {"note": "x", "b": "c d"}
    assert (await orchctl("annotate", "no/n1", "note-")).out == "node/n1 annotated\n"
    assert (await orchctl("annotate", "no/n1", "b=e")).code == 1


@pytest.mark.parametrize(
    ("words", "labelled"),
    [(("--all",), ["n1", "n2"]), (("-l", "name=n2"), ["n2"]), (("n2", "n1"), ["n1", "n2"])],
)
async def test_many_are_labelled_at_once(
    orchctl: Orchctl, api: HttpApi, words: tuple[str, ...], labelled: list[str]
) -> None:
    assert (await orchctl("label", "nodes", *words, "x=y")).code == 0
    found = [path[-2:] for path, r in api.objects.items() if "x" in r["metadata"]["labels"]]
    assert sorted(found) == labelled


async def test_objects_may_come_from_a_file(orchctl: Orchctl, api: HttpApi, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n2}\n")
    assert (await orchctl("label", "-f", str(tmp_path / "f"), "x=y")).out == "node/n2 labeled\n"


async def test_dry_runs_change_nothing(orchctl: Orchctl, api: HttpApi) -> None:
    words = ("label", "node", "n1", "b=2", "-o", "jsonpath={.metadata.labels.b}")
    assert (await orchctl(*words, "--dry-run=client")).out == "2"
    assert api.sent("PATCH") == []
    await orchctl(*words, "--dry-run=server")
    assert api.sent("PATCH")[0].query["dryRun"] == "All"


async def test_labels_are_listed(orchctl: Orchctl) -> None:
    assert (await orchctl("label", "node", "n1", "--list")).lines == ["a=1", "name=n1"]


async def test_a_revision_may_be_insisted_on(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl("label", "node", "n1", "b=2", "--resource-version", "999")
    assert (result.code, "(Conflict); someone changed it" in result.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("node", "n1"), "say what to set: key=value, or key- to remove the label"),
        (("nodes", "a=b"), "name the objects, or choose them with --all, -l or"),
        (("a=b",), "say which objects: either TYPE NAME or -f FILE"),
    ],
)
async def test_what_is_missing_is_named(orchctl: Orchctl, words: Any, text: str) -> None:
    result = await orchctl("label", *words)
    assert (result.code, text in result.err) == (2, True)

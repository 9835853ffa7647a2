from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orch.wire import errors
from orch.wire.names import ANNOTATION_LAST_APPLIED
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PATH = "/api/v1/namespaces/default/pods/a"


def _file(tmp_path: Path, image: str = "x", **metadata: Any) -> str:
    record = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", **metadata},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    (tmp_path / "f.json").write_text(json.dumps(record))
    return str(tmp_path / "f.json")


async def test_what_is_missing_is_created_with_a_memory_of_the_file(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    result = await orchctl("apply", "-f", _file(tmp_path))
    assert (result.code, result.out) == (0, "pod/a created\n")
    remembered = json.loads(api.objects[PATH]["metadata"]["annotations"][ANNOTATION_LAST_APPLIED])
    assert remembered["spec"]["containers"] == [{"name": "c", "image": "x"}]
    assert remembered["metadata"]["annotations"] == {}


async def test_the_same_file_again_sends_nothing(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    await orchctl("apply", "-f", _file(tmp_path))
    api.objects[PATH]["status"] = {"phase": "Running"}
    api.objects[PATH]["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    result = await orchctl("apply", "-f", _file(tmp_path))
    assert result.out == "pod/a unchanged\n"
    assert api.sent("PATCH") == []


async def test_only_differences_are_sent_for_the_revision_read(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    await orchctl("apply", "-f", _file(tmp_path, labels={"gone": "1", "kept": "1"}))
    api.objects[PATH]["metadata"]["labels"]["own"] = "1"
    revision = api.objects[PATH]["metadata"]["resourceVersion"]
    result = await orchctl("apply", "-f", _file(tmp_path, "y", labels={"kept": "1"}))
    assert result.out == "pod/a configured\n"
    (sent,) = api.sent("PATCH")
    assert sent.headers["Content-Type"] == "application/merge-patch+json"
    assert sent.query == {"fieldManager": "cli-apply", "fieldValidation": "Strict"}
    assert sent.body["metadata"]["resourceVersion"] == revision
    assert sent.body["metadata"]["labels"] == {"gone": None}
    stored = api.objects[PATH]
    assert stored["metadata"]["labels"] == {"kept": "1", "own": "1"}
    assert stored["spec"]["containers"] == [{"name": "c", "image": "y"}]


async def test_a_concurrent_change_is_read_again(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:

    await orchctl("apply", "-f", _file(tmp_path))
    conflict = errors.conflict("pods", "a", "it was modified")
    answers = [Answer(conflict.to_status(), status=409) for _ in range(2)]
    api.answers["PATCH", PATH] = list(answers)
    result = await orchctl("apply", "-f", _file(tmp_path, "y"))
    assert result.out == "pod/a configured\n"
    assert len(api.sent("PATCH")) == 3


async def test_endless_conflicts_end_in_a_failure(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:

    await orchctl("apply", "-f", _file(tmp_path))
    conflict = errors.conflict("pods", "a", "it was modified").to_status()
    api.answers["PATCH", PATH] = [Answer(conflict, status=409) for _ in range(9)]
    result = await orchctl("apply", "-f", _file(tmp_path, "y"))
    assert result.code == 1
    assert "someone changed it meanwhile" in result.err
    assert len(api.sent("PATCH")) == 5


async def test_dry_runs_say_what_would_happen(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    path = _file(tmp_path)
    assert (
        await orchctl("apply", "-f", path, "--dry-run=client")
    ).out == "pod/a created (dry run)\n"
    assert api.objects == {}
    await orchctl("apply", "-f", path)
    changed = _file(tmp_path, "y")
    result = await orchctl("apply", "-f", changed, "--dry-run=client", "-o", "json")
    assert json.loads(result.out)["spec"]["containers"] == [{"name": "c", "image": "y"}]
    assert api.sent("PATCH") == []


async def test_an_object_without_a_name_cannot_be_applied(orchctl: Orchctl, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("apiVersion: v1\nkind: Pod\n")
    result = await orchctl("apply", "-f", str(tmp_path / "f.yaml"))
    assert result.code == 1
    assert "f.yaml:1: metadata.name is missing" in result.err


async def test_a_damaged_memory_counts_as_none(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    await orchctl("apply", "-f", _file(tmp_path))
    api.objects[PATH]["metadata"]["annotations"][ANNOTATION_LAST_APPLIED] = "{"
    assert (await orchctl("apply", "-f", _file(tmp_path, "y"))).out == "pod/a configured\n"

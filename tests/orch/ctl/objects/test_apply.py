from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.ctl.objects import apply
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
    assert "someone else changed it" in result.err
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


@pytest.mark.parametrize("memory", ["{", "[" * 100_000])
async def test_a_damaged_memory_counts_as_none(
    memory: str, orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    await orchctl("apply", "-f", _file(tmp_path))
    api.objects[PATH]["metadata"]["annotations"][ANNOTATION_LAST_APPLIED] = memory
    assert (await orchctl("apply", "-f", _file(tmp_path, "y"))).out == "pod/a configured\n"


POD = {"apiVersion": "v1", "kind": "Pod"}


def _spec(**spec: Any) -> dict[str, Any]:
    return {**POD, "spec": spec}


def _applied(live: dict[str, Any], last: dict[str, Any], wanted: dict[str, Any]) -> Any:
    return apply.applied(live, last, wanted)["spec"]


@pytest.mark.parametrize(
    ("live", "last", "wanted", "result"),
    [
        # what the file says is set, what others set stays
        ({"a": 1, "own": 2}, {}, {"a": 3}, {"a": 3, "own": 2}),
        # what the file no longer says is removed, unless it never said it
        ({"a": 1, "own": 2}, {"a": 1}, {}, {"own": 2}),
        ({"m": {"a": 1, "own": 2}}, {"m": {"a": 1}}, {"m": {}}, {"m": {"own": 2}}),
        ({"m": {"a": 1, "own": 2}}, {"m": {"a": 1}}, {}, {}),
        ({"a": 1}, {"a": 1}, {"a": None}, {}),
        # lists without merge keys are the file's
        ({"tolerations": [1, 2]}, {}, {"tolerations": [3]}, {"tolerations": [3]}),
        # elements of lists with merge keys are merged, removed ones removed, the file's order kept
        (
            {"containers": [{"name": "own"}, {"name": "a", "image": "x", "own": 1}, {"name": "b"}]},
            {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]},
            {"containers": [{"name": "c"}, {"name": "a", "image": "y"}]},
            {"containers": [{"name": "c"}, {"name": "own"}, {"name": "a", "image": "y", "own": 1}]},
        ),
        (
            {"containers": [{"name": "a", "env": [{"name": "E"}, {"name": "own"}]}]},
            {"containers": [{"name": "a", "env": [{"name": "E"}]}]},
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "a"}]},
        ),
        (
            {"containers": [{"name": "a", "env": [{"name": "E"}, {"name": "own"}], "tty": True}]},
            {"containers": [{"name": "a", "env": [{"name": "E"}], "tty": True}]},
            {"containers": [{"name": "a", "env": []}]},
            {"containers": [{"name": "a", "env": [{"name": "own"}]}]},
        ),
    ],
)
def test_three_states_decide(
    live: dict[str, Any], last: dict[str, Any], wanted: dict[str, Any], result: dict[str, Any]
) -> None:
    before = copy.deepcopy((live, last, wanted))
    assert _applied(_spec(**live), _spec(**last), _spec(**wanted)) == result
    assert (live, last, wanted) == before


def test_sets_lose_only_what_the_file_had_put_there() -> None:
    def pod(*finalizers: str) -> dict[str, Any]:
        return {**POD, "metadata": {"finalizers": list(finalizers)}}

    result = apply.applied(pod("own", "a", "b"), pod("a", "b"), pod("b", "c"))
    assert result["metadata"]["finalizers"] == ["own", "b", "c"]


def test_the_status_is_never_applied() -> None:
    live = {**POD, "status": {"phase": "Running"}}
    wanted = {**POD, "status": {"phase": "Failed"}}
    assert apply.applied(live, {}, wanted) == live
    assert apply.applied(live, wanted, POD) == live


FIELDS = st.sampled_from(["a", "b", "containers"])
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(0, 2),
        "m": st.dictionaries(st.sampled_from("xy"), st.integers(0, 2)),
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from("pqr")}, optional={"image": st.sampled_from("ij")}
            ),
            unique_by=lambda container: container["name"],
        ),
    },
)


@given(SPECS, SPECS, SPECS)
def test_applying_a_file_twice_changes_nothing_more(live: Any, last: Any, wanted: Any) -> None:
    once = apply.applied(_spec(**live), _spec(**last), _spec(**wanted))
    assert apply.applied(once, _spec(**wanted), _spec(**wanted)) == once


@given(SPECS, SPECS)
def test_an_object_only_this_file_made_becomes_the_file(last: Any, wanted: Any) -> None:
    assert _applied(_spec(**last), _spec(**last), _spec(**wanted)) == wanted


async def test_the_server_merges_what_is_sent_as_it_is(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    file = _file(tmp_path)
    api.answers["PATCH", PATH] = Answer(json.loads(Path(file).read_text()), status=201)
    words = ("apply", "--server-side", "-f", file)
    result = await orchctl(*words, "--field-manager=me", "--force-conflicts")
    assert (result.code, result.out) == (0, "pod/a serverside-applied\n")
    (sent,) = api.sent("PATCH")
    assert sent.headers["Content-Type"] == "application/apply-patch+yaml"
    assert sent.query == {"fieldManager": "me", "fieldValidation": "Strict", "force": "true"}
    assert "annotations" not in sent.body["metadata"]
    cause = errors.Cause("FieldManagerConflict", 'conflict with "x"', ".spec")
    refusal = errors.ApiError(409, "Conflict", "Apply failed with 1 conflict", causes=(cause,))
    api.answers["PATCH", PATH] = Answer(refusal.to_status(), status=409)
    refused = await orchctl(*words)
    assert (refused.code, "take them over with --force-conflicts" in refused.err) == (1, True)

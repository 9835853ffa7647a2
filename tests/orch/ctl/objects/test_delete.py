from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(autouse=True)
def _pods(api: HttpApi) -> None:
    for name, app in (("a", "x"), ("b", "y")):
        api.put(f"{PODS}/{name}", {"metadata": {"name": name, "labels": {"app": app}}})


async def test_a_named_object_is_deleted(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl("delete", "pod", "a")
    assert (result.code, result.out) == (0, 'pod "a" deleted from default namespace\n')
    assert api.sent("DELETE")[0].body == {"propagationPolicy": "Background"}
    assert list(api.objects) == [f"{PODS}/b"]


@pytest.mark.parametrize(
    ("words", "left"), [(("--all",), []), (("-l", "app=x"), ["b"]), (("-l", "app=z"), ["a", "b"])]
)
async def test_objects_are_chosen_by_label(
    orchctl: Orchctl, api: HttpApi, words: tuple[str, ...], left: list[str]
) -> None:
    assert (await orchctl("delete", "pods", *words)).code == 0
    assert sorted(path[-1] for path in api.objects) == left


async def test_objects_of_a_file_are_deleted(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    (tmp_path / "f.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: b}\n")
    assert (
        await orchctl("delete", "-f", str(tmp_path / "f.yaml"))
    ).out == 'pod "b" deleted from default namespace\n'
    assert list(api.objects) == [f"{PODS}/a"]


@pytest.mark.parametrize(
    ("words", "grace_s"),
    [
        (("--grace-period", "5"), 5),
        (("--now",), 1),
        (("--force",), 0),
        (("--force", "--grace-period=7"), 7),
        (("--force", "--grace-period=-1"), 0),
        (("--grace-period=-1",), None),
        ((), None),
    ],
)
async def test_the_time_to_stop_can_be_set(
    orchctl: Orchctl, api: HttpApi, words: tuple[str, ...], grace_s: int | None
) -> None:
    await orchctl("delete", "pod/a", *words)
    assert api.sent("DELETE")[0].body.get("gracePeriodSeconds") == grace_s


async def test_it_waits_until_that_very_object_is_gone(orchctl: Orchctl, api: HttpApi) -> None:
    def seen(uid: str) -> Answer:
        return Answer({"kind": "Pod", "metadata": {"name": "a", "uid": uid}})

    api.answers["DELETE", f"{PODS}/a"] = seen("old")
    api.answers["GET", f"{PODS}/a"] = [seen("old"), seen("old"), seen("new")]
    assert (await orchctl("delete", "pod", "a")).code == 0
    assert len([r for r in api.sent("GET") if r.path == f"{PODS}/a"]) == 3


async def test_a_wait_can_be_bounded_and_left_out(orchctl: Orchctl, api: HttpApi) -> None:
    stays = Answer({"kind": "Pod", "metadata": {"name": "a", "uid": "u"}})
    api.answers["DELETE", f"{PODS}/a"] = api.answers["GET", f"{PODS}/a"] = stays
    result = await orchctl("delete", "pod", "a", "--wait=false")
    assert (result.code, len(api.sent("GET"))) == (0, 1)
    result = await orchctl("delete", "pod", "a", "--timeout=50ms")
    assert result.code == 1
    assert "pod/a is still there after 0.05 s, waiting for" in result.err


async def test_dry_runs_delete_nothing(orchctl: Orchctl, api: HttpApi) -> None:
    assert (
        await orchctl("delete", "pod", "a", "--dry-run=client")
    ).out == 'pod "a" deleted from default namespace (dry run)\n'
    assert api.sent("DELETE") == []
    await orchctl("delete", "pod", "a", "--dry-run=server")
    assert api.sent("DELETE")[0].query == {"dryRun": "All"}


async def test_no_time_at_all_takes_force(orchctl: Orchctl, api: HttpApi) -> None:
    await orchctl("delete", "pod", "b", "--grace-period=0")
    assert api.sent("DELETE")[0].body["gracePeriodSeconds"] == 1


async def test_a_missing_object_fails_unless_ignored(orchctl: Orchctl) -> None:
    result = await orchctl("delete", "pod", "gone", "b")
    assert (result.code, result.out) == (1, 'pod "b" deleted from default namespace\n')
    assert 'pods "gone" not found' in result.err
    assert (await orchctl("delete", "pod", "gone", "--ignore-not-found")).code == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "either TYPE NAME or -f FILE"),
        (("pods",), "select them with --all, -l or"),
        (("pod", "a", "--now", "--grace-period=9"), "--now and --grace-period exclude each"),
        (("pod", "a", "-f", "x"), "either TYPE NAME or -f FILE"),
    ],
)
async def test_what_could_delete_too_much_is_a_usage_error(
    orchctl: Orchctl, api: HttpApi, words: tuple[str, ...], text: str
) -> None:
    result = await orchctl("delete", *words)
    assert result.code == 2
    assert text in result.err
    assert api.sent("DELETE") == []

"""`nodeagent checkpoint` on a store: what it prints, what it changes, its exit codes."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nodeagent.commands.dispatch import dispatch
from orch.component.process import clock
from tests.fakes.checkpoints import Node, checkpointable_node


class Store:
    """Two archives of one container, an hour apart, and the commands on them."""

    def __init__(self, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
        self.node = node
        self._capsys = capsys
        self.older, self.newer = node.files()

    def command(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = dispatch(["checkpoint", *words, "--root-dir", str(self.node.root)])
        assert code is not None
        seen = self._capsys.readouterr()
        return code, seen.out, seen.err

    def json(self, *words: str) -> Any:
        return json.loads(self.command(*words, "-o", "json")[1])

    def configured(self, **policy: Any) -> tuple[str, str]:
        """The flag for a configuration with that checkpoint section."""
        path = self.node.root / "config.yaml"
        kind = {"apiVersion": "nodeagent.config.orch.io/v1beta1", "kind": "NodeAgentConfiguration"}
        path.write_text(json.dumps({**kind, "checkpoint": policy}))
        return ("--config", str(path))


@pytest.fixture
async def store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Store:
    node = await checkpointable_node(tmp_path)
    for hours in (3, 2):
        node.moments[:] = [clock.utc_now() - timedelta(hours=hours)]
        await node.service().checkpoint("shop", "web", "app")
    return Store(node, capsys)


def test_list_shows_every_archive_oldest_first(store: Store) -> None:
    code, shown, _ = store.command("list")

    lines = [line.split() for line in shown.splitlines()]
    assert code == 0
    assert lines[0] == ["NAME", "NAMESPACE", "CONTAINER", "SIZE", "AGE", "PINNED"]
    assert lines[1] == [store.older, "shop", "app", "10KiB", "3h", "no"]
    assert [line[0] for line in lines[1:]] == [store.older, store.newer]
    assert [record["name"] for record in store.json("list")] == [store.older, store.newer]


def test_list_of_a_node_without_checkpoints_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch(["checkpoint", "list", "-o", "json", "--root-dir", str(tmp_path / "x")]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_show_prints_everything_that_is_known(store: Store) -> None:
    record = store.json("show", store.older)

    assert record["path"] == str(store.node.store / store.older)
    assert (record["namespace"], record["pod"], record["uid"]) == ("shop", "web", "u1")
    assert record["containerID"] == store.node.pods.running["app"]
    assert record["runtime"]
    assert len(record["sha256"]) == 64
    assert record["pinned"] is False
    code, shown, _ = store.command("show", str(store.node.store / store.older))
    assert code == 0
    assert record["sha256"] in shown


def test_verify_reports_a_changed_archive(store: Store) -> None:
    assert store.command("verify") == (0, f"{store.older}: intact\n{store.newer}: intact\n", "")
    path = store.node.store / store.older
    path.write_bytes(path.read_bytes().replace(b"spec.dump", b"spec.bump"))

    code, shown, _ = store.command("verify", store.older)
    assert code == 1
    assert f"{store.older}: its SHA-256 is" in shown
    assert store.command("verify", store.newer)[0] == 0
    assert [row["valid"] for row in store.json("verify")] == [False, True]


def test_pins_are_set_and_removed(store: Store) -> None:
    assert store.command("pin", store.older) == (0, f"{store.older}: pinned\n", "")
    assert [record["pinned"] for record in store.json("list")] == [True, False]
    assert [record["pinned"] for record in store.json("unpin", store.older)] == [False]


def test_nothing_is_pinned_when_one_of_the_names_is_wrong(store: Store) -> None:
    code, shown, told = store.command("pin", store.older, "absent.tar")

    assert (code, shown) == (1, "")
    assert "nodeagent checkpoint: error: there is no archive 'absent.tar' in" in told
    assert [record["pinned"] for record in store.json("list")] == [False, False]


def test_prune_explains_before_it_removes(store: Store) -> None:
    flag = store.configured(maxPerContainer=1, minFree="0")
    why = "the container has 2 archives and may have 1"

    assert store.command("prune", "--explain", *flag) == (
        0, f"would remove {store.older}: {why}\n", ""
    )  # fmt: skip
    assert store.node.files() == [store.older, store.newer]
    assert store.command("prune", *flag) == (0, f"removed {store.older}: {why}\n", "")
    assert store.node.files() == [store.newer]
    assert store.command("prune", *flag)[1] == "nothing exceeds the limits\n"


def test_prune_prints_the_same_as_json(store: Store) -> None:
    flag = store.configured(maxAge="150m", minFree="0")

    (row,) = store.json("prune", "--explain", *flag)
    assert (row["name"], row["bound"], row["removed"]) == (store.older, "age", False)
    (row,) = store.json("prune", *flag)
    assert (row["name"], row["removed"]) == (store.older, True)


def test_a_configuration_that_is_wrong_removes_nothing(store: Store) -> None:
    code, _, told = store.command("prune", *store.configured(maxPerContainer=-1))

    assert code == 1
    assert "checkpoint.maxPerContainer" in told
    assert len(store.node.files()) == 2


@pytest.mark.parametrize("words", [(), ("pin",), ("show",), ("list", "extra"), ("gc",)])
def test_wrong_usage_ends_with_2(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        dispatch(["checkpoint", *words])
    assert caught.value.code == 2


def test_a_store_that_is_not_a_directory_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints").symlink_to("/etc")

    assert dispatch(["checkpoint", "list", "--root-dir", str(tmp_path)]) == 1
    assert "is not a directory; move it away" in capsys.readouterr().err

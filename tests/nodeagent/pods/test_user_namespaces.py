"""Ranges of ids for pods with users of their own, in files of the pods' directories."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.user_namespaces import FILE, IDS_PER_POD, UserNamespaces


def stored(directory: Path, uid: str) -> Path:
    return directory / "pods" / uid / FILE


async def test_each_pod_has_a_range_of_its_own_above_the_host_s_ids(tmp_path: Path) -> None:
    users = UserNamespaces(str(tmp_path))
    given = await asyncio.gather(*(users.of(f"u{number}") for number in range(20)))
    assert {each.first_id for each in given} == {IDS_PER_POD * n for n in range(1, 21)}
    assert {each.length for each in given} == {IDS_PER_POD}


async def test_a_range_outlives_the_agent_and_is_free_again_with_the_pod_s_directory(
    tmp_path: Path,
) -> None:
    first, second = [await UserNamespaces(str(tmp_path)).of(uid) for uid in ("a", "b")]
    successor = UserNamespaces(str(tmp_path))
    assert await successor.of("b") == second
    shutil.rmtree(tmp_path / "pods" / "a")
    assert await successor.of("c") == first


async def test_the_file_has_the_reference_s_form(tmp_path: Path) -> None:
    await UserNamespaces(str(tmp_path)).of("a")
    mapping = {"hostId": 65_536, "containerId": 0, "length": 65_536}
    expected = {"uidMappings": [mapping], "gidMappings": [mapping]}
    assert json.loads(stored(tmp_path, "a").read_text()) == expected


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[" * 5000,
        json.dumps({"uidMappings": [], "gidMappings": []}),
        *(
            json.dumps({"uidMappings": [mapping], "gidMappings": [mapping]})
            for mapping in (
                {"hostId": 0, "containerId": 0, "length": 65_536},
                {"hostId": 65_537, "containerId": 0, "length": 65_536},
                {"hostId": 65_536, "containerId": 0, "length": 1},
                {"hostId": 2**32, "containerId": 0, "length": 65_536},
                {"hostId": True, "containerId": 0, "length": 65_536},
            )
        ),
    ],
)
async def test_a_file_that_holds_something_else_is_refused_and_not_replaced(
    tmp_path: Path, content: str
) -> None:
    stored(tmp_path, "a").parent.mkdir(parents=True)
    stored(tmp_path, "a").write_text(content)
    with pytest.raises(SpecError, match="userns holds no range of ids; delete the pod"):
        await UserNamespaces(str(tmp_path)).of("a")
    assert stored(tmp_path, "a").read_text() == content


async def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    stored(tmp_path, "a").parent.mkdir(parents=True)
    stored(tmp_path, "a").symlink_to("/etc/hosts")
    with pytest.raises(OSError):
        await UserNamespaces(str(tmp_path)).of("a")


async def test_a_damaged_file_keeps_other_pods_off_what_runs_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored(tmp_path, "a").parent.mkdir(parents=True)
    stored(tmp_path, "a").write_text("{}")
    maps = {"1": "0 0 4294967295", "7": "0 65536 65536", "8": "0 131072 65536\n", "x": "0 196608 1"}
    for name, text in maps.items():
        (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc" / name / "uid_map").write_text(f"         {text}\n")
    users = UserNamespaces(str(tmp_path), str(tmp_path / "proc"))
    given = [await users.of(uid) for uid in ("b", "c")]
    assert [each.first_id for each in given] == [IDS_PER_POD * 3, IDS_PER_POD * 4]
    with pytest.raises(SpecError, match="delete the pod"):
        await users.of("a")
    [said] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "pods/a/userns holds no range of ids; delete the pod" in said.getMessage()
    shutil.rmtree(tmp_path / "pods" / "a")
    assert (await users.of("d")).first_id == IDS_PER_POD

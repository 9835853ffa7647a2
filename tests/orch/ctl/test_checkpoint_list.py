from __future__ import annotations

import json
import os
from pathlib import Path

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl, run_command

NAME = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"
TOLD = {"name": NAME, "size": 2**21, "created": "2026-01-31T12:00:00Z", "namespace": "shop",
        "pod": "web", "container": "app", "pinned": True}  # fmt: skip


def _page(node: str) -> tuple[str, str]:
    return "GET", f"/api/v1/nodes/{node}/proxy/checkpoint"


async def test_every_node_is_asked(orchctl: Orchctl, api: HttpApi) -> None:
    for node in ("n1", "n2"):
        api.put(f"/api/v1/nodes/{node}", {"metadata": {"name": node}})
        api.answers[_page(node)] = Answer({"items": [TOLD]})
    result = await orchctl("checkpoint", "list")
    assert result.code == 0
    assert [(line.split()[:4], line.split()[5:]) for line in result.lines] == [
        (["NODE", "POD", "CONTAINER", "SIZE"], ["PINNED", "ARCHIVE"]),
        (["n1", "shop/web", "app", "2.0Mi"], ["yes", NAME]),
        (["n2", "shop/web", "app", "2.0Mi"], ["yes", NAME]),
    ]
    assert (await orchctl("checkpoint", "list", "n1", "-o", "name")).out == f"n1:{NAME}\n"
    shown = json.loads((await orchctl("checkpoint", "list", "node/n1", "-o", "json")).out)
    assert shown == [{"node": "n1", **TOLD}]


async def test_an_agent_that_does_not_tell_is_named(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers[_page("n1")] = Answer("404: Not Found", 404)
    api.answers[_page("n2")] = Answer({"items": [TOLD]})
    result = await orchctl("checkpoint", "list", "n1", "n2", "--no-headers")
    assert (result.code, len(result.lines)) == (1, 1)
    assert result.err.startswith("error: the agent of n1 does not tell its archives: run 'orchctl")


async def test_none_are_said(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers[_page("n1")] = Answer({"items": []})
    result = await orchctl("checkpoint", "list", "n1")
    assert (result.code, result.out, result.err) == (0, "", "No checkpoints found\n")


def test_a_directory_is_listed_with_what_lies_beside_the_archives(tmp_path: Path) -> None:
    for number, name in enumerate((NAME, NAME.replace("web", "db") + ".age")):
        (tmp_path / name).write_bytes(b"x" * 2**20)
        os.utime(tmp_path / name, (number, number))
    (tmp_path / f"{NAME}.json").write_text(json.dumps({"namespace": "shop", "pod": "web"}))
    (tmp_path / f"{NAME}.keep").touch()
    (tmp_path / "other.tar").touch()
    lines = run_command("checkpoint", "list", "--dir", str(tmp_path), "--no-headers").lines
    assert [line.split()[:4] for line in lines] == [
        ["<none>", "shop/web", "<none>", "1.0Mi"], ["<none>", "<none>", "<none>", "1.0Mi"],
    ]  # fmt: skip
    assert [line.split()[-2] for line in lines] == ["yes", "no"]
    missing = run_command("checkpoint", "list", "--dir", str(tmp_path / "gone"))
    assert missing.err == f"error: cannot read {tmp_path}/gone: No such file or directory\n"

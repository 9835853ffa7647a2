from __future__ import annotations

import json
import platform

import yaml

from orch.wire.names import MINOR, VERSION
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl, run_command


def test_the_client_s_version_needs_no_server() -> None:
    for words in (("version", "--client"), ("--version",)):
        assert run_command(*words).out == f"Client Version: {VERSION}\n"
    shown = json.loads(run_command("version", "--client", "-o", "json").out)["clientVersion"]
    assert (shown["gitVersion"], shown["minor"]) == (VERSION, MINOR)
    assert shown["goVersion"] == f"python{platform.python_version()}"
    assert shown["platform"] == f"linux/{platform.machine()}"


async def test_both_versions_are_shown(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/version"] = Answer({"gitVersion": "v9"})
    assert (await orchctl("version")).lines == [f"Client Version: {VERSION}", "Server Version: v9"]
    shown = yaml.safe_load((await orchctl("version", "-o", "yaml")).out)
    assert shown["serverVersion"] == {"gitVersion": "v9"}


def test_the_client_s_version_is_shown_when_the_server_is_away() -> None:
    result = run_command("version", "-s", "http://127.0.0.1:1")
    assert result.code == 1
    assert result.out == f"Client Version: {VERSION}\n"
    assert "cannot reach" in result.err

from __future__ import annotations

import pytest

from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl


def _paths(api: HttpApi) -> list[str]:
    return [r.path for r in api.requests if r.path.startswith("/api/v1/")]


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        (("pods",), ["namespaces/default/pods"]),
        (("pods", "a", "b"), ["namespaces/default/pods/a", "namespaces/default/pods/b"]),
        (("pod/a", "node/n"), ["namespaces/default/pods/a", "nodes/n"]),
        (("no,po",), ["nodes", "namespaces/default/pods"]),
        (("no,po", "x"), ["nodes/x", "namespaces/default/pods/x"]),
    ],
)
async def test_words_name_objects(
    orchctl: Orchctl, api: HttpApi, words: tuple[str, ...], paths: list[str]
) -> None:
    for path in paths:
        api.put(f"/api/v1/{path}", {"metadata": {"name": path[-1]}})
    await orchctl("get", *words)
    assert _paths(api) == [f"/api/v1/{path}" for path in paths]


@pytest.mark.parametrize("words", [("pod/a", "b"), ("pod/",), ("/a",), ("pod/a/b",)])
async def test_words_that_do_not_fit_together_are_usage_errors(
    orchctl: Orchctl, words: tuple[str, ...]
) -> None:
    result = await orchctl("get", *words)
    assert result.code == 2
    assert "is not TYPE/NAME" in result.err


async def test_commands_that_need_a_name_say_so(orchctl: Orchctl) -> None:
    result = await orchctl("patch", "node", "-p", "{}")
    assert result.code == 2
    assert result.err == "error: name the object as well: nodes/NAME or nodes NAME\n"


async def test_a_category_stands_for_its_types(orchctl: Orchctl, api: HttpApi) -> None:
    api.put("/api/v1/namespaces/default/pods/web", {"metadata": {"name": "web"}})
    result = await orchctl("get", "all", "-o", "name")
    assert (result.code, result.out) == (0, "pod/web\n")

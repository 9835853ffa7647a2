from __future__ import annotations

import pytest

from tests.fakes.http_api import GROUP
from tests.orch.ctl.conftest import Orchctl


async def test_every_resource_is_listed_once_by_group_and_name(orchctl: Orchctl) -> None:
    result = await orchctl("api-resources")
    assert [line.split() for line in result.lines] == [
        ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"],
        ["events", "v1", "true", "Event"],
        ["namespaces", "ns", "v1", "false", "Namespace"],
        ["nodes", "no", "v1", "false", "Node"],
        ["pods", "po", "v1", "true", "Pod"],
        ["leases", f"{GROUP}/v1", "true", "Lease"],
    ]


async def test_names_carry_their_group(orchctl: Orchctl) -> None:
    lines = (await orchctl("api-resources", "-o", "name")).lines
    assert lines[-2:] == ["pods", f"leases.{GROUP}"]


async def test_the_wide_form_shows_verbs_and_categories(orchctl: Orchctl) -> None:
    result = await orchctl("api-resources", "-o", "wide")
    assert result.lines[0].split()[-2:] == ["VERBS", "CATEGORIES"]
    pods, leases = result.lines[4:6]
    assert pods.split()[-2:] == ["get,list", "all"]
    assert leases.split()[-1] != "all"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--api-group", GROUP), [f"leases.{GROUP}"]),
        (("--namespaced=false",), ["namespaces", "nodes"]),
        (("--verbs", "get,list"), ["pods"]),
        (("--verbs", "get,eat"), []),
    ],
)
async def test_only_some_types_on_demand(
    orchctl: Orchctl, words: tuple[str, ...], names: list[str]
) -> None:
    result = await orchctl("api-resources", "-o", "name", *words)
    assert result.out.split() == names

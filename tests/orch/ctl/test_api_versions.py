from __future__ import annotations

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl


async def test_every_version_of_every_group_is_listed(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/api"] = Answer({"kind": "APIVersions", "versions": ["v1"]})
    versions = [{"groupVersion": "b.io/v2"}, {"groupVersion": "b.io/v1"}]
    api.answers["GET", "/apis"] = Answer({"groups": [{"name": "b.io", "versions": versions}]})
    assert (await orchctl("api-versions")).lines == ["b.io/v1", "b.io/v2", "v1"]

from __future__ import annotations

import json

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PATH = "/apis/authentication.orch.io/v1/selfsubjectreviews"
USER = {
    "username": "jane", "uid": "7", "groups": ["ops", "system:authenticated"],
    "extra": {"scope": ["a", "b"]},
}  # fmt: skip


async def test_the_caller_is_shown_as_the_server_knows_them(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["POST", PATH] = Answer({"status": {"userInfo": USER}}, 201)
    result = await orchctl("auth", "whoami", "--as", "jane", "--as-group", "ops")
    assert [line.split(maxsplit=1) for line in result.lines] == [
        ["ATTRIBUTE", "VALUE"],
        ["Username", "jane"],
        ["UID", "7"],
        ["Groups", "[ops system:authenticated]"],
        ["Extra:", "scope   [a b]"],
    ]
    (sent,) = api.sent("POST")
    assert sent.body["kind"] == "SelfSubjectReview"
    assert sent.headers["Impersonate-User"] == "jane"


async def test_the_review_itself_is_shown_on_demand(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["POST", PATH] = Answer({"status": {"userInfo": {"username": "x"}}}, 201)
    result = await orchctl("auth", "whoami", "-o", "json")
    assert json.loads(result.out)["status"]["userInfo"] == {"username": "x"}
    name = await orchctl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert name.out == "x"

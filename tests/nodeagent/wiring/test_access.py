"""Which rules an agent has, by its configuration and whether it has an API server."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from nodeagent.auth import authorization
from nodeagent.config.current import CurrentConfig
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.wiring.access import build_access, missing_access
from orch.component.flags.features import Features
from orch.wire.records.authentication import TokenReview, TokenReviewStatus, UserInfo


class Client:
    """An API server to which every token is alice's."""

    async def create(self, review: TokenReview) -> TokenReview:
        status = TokenReviewStatus(authenticated=True, user=UserInfo(username="alice"))
        return review.model_copy(update={"status": status})


CLIENT: Any = Client()


def config(**fields: Any) -> NodeAgentConfiguration:
    return NodeAgentConfiguration.model_validate(fields)


RULES = [
    ("Webhook", CLIENT, authorization.Reviewed),
    ("Webhook", None, authorization.BuiltInGroups),
    ("AlwaysAllow", CLIENT, authorization.AlwaysAllow),
    ("AlwaysAllow", None, authorization.AlwaysAllow),
]


@pytest.mark.parametrize(("mode", "client", "kind"), RULES)
def test_mode_and_api_server_choose_the_rule(mode: str, client: Any, kind: type) -> None:
    access = build_access(
        CurrentConfig(config(authorization={"mode": mode})), Features({}), client, node_name="n1"
    )
    assert isinstance(access.authorizer, kind)
    assert access.fine_grained


def test_the_gate_turns_the_fine_grained_parts_off() -> None:
    features = Features({"NodeAgentFineGrainedAuthz": False})
    assert not build_access(CurrentConfig(config()), features, None, node_name="n1").fine_grained


TOKENS = [(True, CLIENT, True), (False, CLIENT, False), (True, None, False)]


@pytest.mark.parametrize(("enabled", "client", "reviewed"), TOKENS)
async def test_tokens_need_a_server_that_reviews_them(
    enabled: bool, client: Any, reviewed: bool
) -> None:
    given = config(authentication={"webhook": {"enabled": enabled}})
    access = build_access(CurrentConfig(given), Features({}), client, node_name="n1")
    request = make_mocked_request("GET", "/", headers={"Authorization": "Bearer good"})
    identity = await access.authentication.identify(request)
    assert (identity.name if identity else None) == ("alice" if reviewed else None)


CA = {"x509": {"clientCAFile": "/ca.crt"}}
SAID = [
    ({"authentication": CA}, True, []),
    ({"authentication": CA}, False, []),
    ({}, False, []),  # tokens alone are enough
    ({}, True, ["no client can use the secure port"]),
    ({"authentication": {"webhook": {"enabled": False}}}, False, ["no client can use"]),
    ({"authentication": {"anonymous": {"enabled": True}}}, True, ["anonymous callers"]),
    ({"authentication": CA, "authorization": {"mode": "AlwaysAllow"}}, True, ["whoever"]),
    ({"authentication": CA, "readOnlyPort": 10255}, True, ["statistics and pods are open"]),
]


@pytest.mark.parametrize(("fields", "standalone", "beginnings"), SAID)
def test_what_is_open_or_closed_to_all_is_said(
    fields: dict[str, Any], standalone: bool, beginnings: list[str]
) -> None:
    said = list(missing_access(config(**fields), standalone=standalone))
    assert len(said) == len(beginnings)
    for text, beginning in zip(said, beginnings, strict=True):
        assert text.startswith(beginning)

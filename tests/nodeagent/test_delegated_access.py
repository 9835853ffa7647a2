"""An agent and a real API server: what RBAC grants is what the agent's port allows.

Users come with certificates, service accounts with tokens of the API; both are reviewed over TLS
with the node's own credential.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from nodeagent.auth import reviews
from nodeagent.config.current import CurrentConfig
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.wiring.access import build_access
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.flags.features import Features
from orch.component.process import clock
from tests.fakes.agent import Agent, served
from tests.orch.server.harness import Api, make_pki

pytestmark = pytest.mark.may_block

RBAC = "/apis/rbac.authorization.orch.io/v1"
REVIEWS = "/apis/authorization.orch.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


class World:
    """The API server, the agent of node n1, and requests to it."""

    def __init__(self, api: Api, agent: Agent) -> None:
        self.api, self.agent = api, agent
        self.stopped = False

    async def grant(self, name: str, subject: dict[str, str], *resources: str) -> None:
        role = {
            "metadata": {"name": name},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": list(resources)}],
        }
        made = await self.api.call("POST", f"{RBAC}/clusterroles", role)
        assert made.status == 201, made.text
        binding = {
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": name,
            },
            "subjects": [subject],
        }  # fmt: skip
        made = await self.api.call("POST", f"{RBAC}/clusterrolebindings", binding)
        assert made.status == 201, made.text
        async with asyncio.timeout(30):  # the server's index follows its storage
            while not await self._allowed(subject, resources[0].partition("/")[2]):
                await asyncio.sleep(0.01)

    async def _allowed(self, subject: dict[str, str], subresource: str) -> bool:
        """The API server's answer now; the agent caches a refusal."""
        named = {"User": subject["name"], "Group": "member"}
        account = f"system:serviceaccount:default:{subject['name']}"
        spec = {
            "user": named.get(subject["kind"], account),
            "groups": [subject["name"]] if subject["kind"] == "Group" else [],
            "resourceAuthorizationAttributes": {
                "verb": "get", "version": "v1", "resource": "nodes", "subresource": subresource,
                "name": "n1",
            },
        }  # fmt: skip
        review = {"kind": "SubjectAccessReview", "apiVersion": REVIEWS[6:], "spec": spec}
        answer = await self.api.call("POST", f"{REVIEWS}/subjectaccessreviews", review)
        assert answer.status == 201, answer.text
        return bool(answer.json["status"]["allowed"])

    async def get(self, path: str, *, user: str = "", token: str = "") -> tuple[int, str]:
        context = ssl.create_default_context(cafile=self.api.pki.ca_file)
        if user:
            pair = self.api.pki.users[user]
            context.load_cert_chain(pair.cert_file, pair.key_file)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://localhost:{self.agent.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=context) as response,
        ):
            return response.status, await response.text()


@pytest_asyncio.fixture
async def world(unserved: Agent, tmp_path: Path) -> AsyncIterator[World]:
    pki = make_pki(tmp_path / "api-pki", clock.utc_now())
    signing = f"--service-account-signing-key-file={pki.server.key_file}"
    api = await Api.start(pki, tmp_path / "data", signing)
    node = pki.users["n1"]
    config = ClientConfig(
        server=f"https://127.0.0.1:{api.port}",
        ca_file=pki.ca_file,
        cert_file=node.cert_file,
        key_file=node.key_file,
    )
    client = ApiClient(Transport(config))
    current = CurrentConfig(NodeAgentConfiguration())
    access = build_access(current, Features({}), client, node_name="n1")
    agent = Agent(replace(unserved.services, access=access), unserved.runtime, unserved.pki)
    async with served(agent, pki.server, pki.ca_file) as agent:  # type: ignore[arg-type]
        made = World(api, agent)
        yield made
    await client.transport.close()
    if not made.stopped:
        await api.stop()


async def test_a_role_on_a_part_of_the_node_opens_that_part(world: World) -> None:
    await world.grant("reads-metrics", {"kind": "User", "name": "stranger"}, "nodes/metrics")
    assert (await world.get("/metrics", user="stranger"))[0] == 200
    status, text = await world.get("/stats/summary", user="stranger")
    assert status == 403
    assert text == ("Forbidden (user=stranger, verb=get, resource=nodes, subresource(s)=[stats])\n")


async def test_proxy_opens_what_has_no_part_of_its_own(world: World) -> None:
    await world.grant("proxies", {"kind": "Group", "name": "some:group"}, "nodes/proxy")
    for path, status in (("/flagz", 200), ("/pods", 200), ("/healthz", 200), ("/metrics", 403)):
        assert (await world.get(path, user="stranger"))[0] == status, path


async def test_the_built_in_users_have_their_rights(world: World) -> None:
    assert (await world.get("/flagz", user="admin"))[0] == 200
    assert (await world.get("/metrics/resource", user="monitor"))[0] == 200
    assert (await world.get("/configz", user="monitor"))[0] == 403
    assert (await world.get("/metrics", user="n2"))[0] == 403


async def test_a_service_accounts_token_is_known_and_its_rights_count(world: World) -> None:
    made = await world.api.call("POST", ACCOUNTS, {"metadata": {"name": "scraper"}})
    assert made.status == 201, made.text
    asked = {"apiVersion": "authentication.orch.io/v1", "kind": "TokenRequest", "spec": {}}
    issued = await world.api.call("POST", f"{ACCOUNTS}/scraper/token", asked)
    assert issued.status == 201, issued.text
    token = issued.json["status"]["token"]
    account = {"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}
    await world.grant("scrapes", account, "nodes/metrics")
    assert (await world.get("/metrics", token=token))[0] == 200
    assert (await world.get("/pods", token=token))[0] == 403
    assert await world.get("/metrics", token=f"{token}x") == (401, "Unauthorized")


async def test_when_the_api_server_is_gone_only_what_was_answered_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await world.get("/metrics", user="monitor"))[0] == 200
    assert (await world.get("/configz", user="monitor"))[0] == 403
    await world.api.stop()
    world.stopped = True
    monkeypatch.setattr(reviews, "DEADLINE_S", 0.5)
    assert (await world.get("/metrics", user="monitor"))[0] == 200
    assert (await world.get("/configz", user="monitor"))[0] == 403
    status, text = await world.get("/stats/summary", user="monitor")
    assert status == 500
    assert text == (
        "Authorization error (user=prometheus, verb=get, resource=nodes, subresource=stats)\n"
        "The API server gave no answer; /readyz on healthzPort of this node needs none.\n"
    )

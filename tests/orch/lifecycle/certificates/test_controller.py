"""Who gets a certificate, and who does not: attacks included, against a real server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from orch.component import signing_requests
from orch.component.process import clock
from orch.component.signing_requests import SigningRequest
from orch.lifecycle.certificates import policy
from tests.fakes.joining import LIFETIME, World, cluster

CSR = "/apis/certificates.orch.io/v1/certificatesigningrequests"
NODE_CLIENT, NODE_SERVING = "orch.io/apiserver-client-nodeagent", "orch.io/nodeagent-serving"
KEY = signing_requests.make_key()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with cluster(tmp_path) as made:
        yield made


def request(
    name: str,
    node: str = "n1",
    signer: str = NODE_CLIENT,
    hosts: Sequence[str] = (),
    usages: Sequence[str] = (),
    **spec: Any,
) -> dict[str, Any]:
    pem = signing_requests.make_request(KEY, f"system:node:{node}", "system:nodes", hosts)
    purpose = "server auth" if signer == NODE_SERVING else "client auth"
    return {
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": signer,
            "usages": list(usages) or ["digital signature", purpose],
            **spec,
        },
    }


async def ask(world: World, body: dict[str, Any], *, user: str | None = None) -> Any:
    """As a user, or with the token of a machine that joins."""
    return await world.api.call("POST", CSR, body, user=user, headers=bearer(world, user))


def bearer(world: World, user: str | None) -> dict[str, str]:
    return {} if user else {"Authorization": f"Bearer {world.token}"}


async def until(world: World, name: str, done: Callable[[dict[str, Any]], object]) -> Any:
    async with asyncio.timeout(20):
        while True:
            found = (await world.api.call("GET", f"{CSR}/{name}")).json
            if done(found.get("status") or {}):
                return found
            await asyncio.sleep(0.05)


def kinds(status: dict[str, Any]) -> list[str]:
    return [one["type"] for one in status.get("conditions") or ()]


async def test_a_machine_with_a_token_becomes_a_node(world: World) -> None:
    created = await ask(world, request("a", username="admin", groups=["system:masters"]))
    assert created.status == 201, created.text
    spec = created.json["spec"]
    assert spec["username"] == f"system:bootstrap:{world.token[:6]}"  # not what it says of itself
    assert "system:masters" not in spec["groups"]
    found = await until(world, "a", lambda status: status.get("certificate"))
    assert kinds(found["status"]) == ["Approved"]
    pem = base64.b64decode(found["status"]["certificate"])
    issued = x509.load_pem_x509_certificate(pem)
    assert signing_requests.belongs(pem, KEY)
    assert issued.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    assert issued.not_valid_after_utc - clock.utc_now() <= LIFETIME
    purposes = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [one.dotted_string for one in purposes] == ["1.3.6.1.5.5.7.3.2"]
    own = await world.api.call("GET", f"{CSR}/a", user=None, headers=bearer(world, None))
    assert own.json["status"]["certificate"]


FORBIDDEN = (
    ("GET", CSR), ("GET", f"{CSR}/of-another"), ("GET", f"{CSR}?watch=true"),
    ("DELETE", f"{CSR}/own"), ("DELETE", CSR), ("PUT", f"{CSR}/own"), ("PATCH", f"{CSR}/own"),
    ("PUT", f"{CSR}/own/approval"), ("PUT", f"{CSR}/own/status"), ("PATCH", f"{CSR}/own/status"),
    ("GET", f"{CSR}?fieldSelector=metadata.name%3Dof-another"),
    ("GET", "/api/v1/nodes"), ("POST", "/api/v1/nodes"), ("GET", "/api/v1/nodes/n1"),
    ("GET", "/api/v1/namespaces/orch-system/secrets"), ("GET", "/api/v1/pods"),
    ("POST", "/api/v1/namespaces/default/pods"), ("GET", "/metrics"), ("GET", "/configz"),
    ("POST", "/apis/authentication.orch.io/v1/tokenreviews"),
    ("GET", "/apis/rbac.authorization.orch.io/v1/clusterroles"),
    ("GET", "/apis/coordination.orch.io/v1/leases"),
)  # fmt: skip


async def test_a_token_is_good_for_nothing_else(world: World) -> None:
    assert (await ask(world, request("of-another"), user="n2")).status == 201
    assert (await ask(world, request("own", signer="example.com/other"))).status == 201
    for method, path in FORBIDDEN:
        body = request("own") if method in ("POST", "PUT", "PATCH") else None
        answer = await world.api.call(method, path, body, user=None, headers=bearer(world, None))
        assert answer.status == 403, (method, path, answer.text)


@pytest.mark.parametrize(
    ("user", "body"),
    [
        ("n1", request("a", node="n2")),
        ("n1", request("a", node="n2", signer=NODE_SERVING, hosts=("n2",))),
        ("n1", request("a", signer=NODE_CLIENT, hosts=("n2",))),
        ("n1", request("a", usages=("client auth", "cert sign"))),
        ("n1", request("a", usages=("client auth", "server auth"))),
        ("n1", request("a", signer=NODE_SERVING, hosts=("n1",), usages=("client auth",))),
        ("n1", request("a", signer="orch.io/apiserver-client")),
        ("n1", request("a", signer="kubernetes.io/kube-apiserver-client-kubelet", node="n2")),
        ("stranger", request("a")),
        (None, request("a", signer=NODE_SERVING, hosts=("n1",))),
        (None, request("a", signer="orch.io/apiserver-client")),
    ],
)  # fmt: skip
async def test_what_people_decide_is_left_to_them(
    world: World, user: str | None, body: dict[str, Any]
) -> None:
    answer = await ask(world, body, user=user)
    if user == "stranger":
        assert answer.status == 403
        return
    assert answer.status == 201, answer.text
    assert (await ask(world, request("later"))).status == 201
    await until(world, "later", kinds)  # the controller has looked at the earlier one
    assert kinds((await world.api.call("GET", f"{CSR}/a")).json.get("status") or {}) == []


async def test_a_node_serves_with_a_certificate_of_its_own_addresses(world: World) -> None:
    for name, address in (("n1", "10.0.0.1"), ("n2", "10.0.0.2")):
        node = {
            "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": address},
                                     {"type": "Hostname", "address": name}]},
        }  # fmt: skip
        assert (await world.api.call("POST", "/api/v1/nodes", node)).status == 201
    await ask(world, request("evil", signer=NODE_SERVING, hosts=("n1", "10.0.0.2")), user="n1")
    await ask(world, request("good", signer=NODE_SERVING, hosts=("n1", "10.0.0.1")), user="n1")
    found = await until(world, "good", lambda status: status.get("certificate"))
    issued = x509.load_pem_x509_certificate(base64.b64decode(found["status"]["certificate"]))
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == ["n1", "10.0.0.1"]
    agents = x509.load_pem_x509_certificate((world.directory / "nodeagent-ca.crt").read_bytes())
    issued.verify_directly_issued_by(agents)  # which nobody trusts for the API server
    assert kinds((await world.api.call("GET", f"{CSR}/evil")).json.get("status") or {}) == []


@pytest.mark.slow
async def test_a_node_whose_requests_wait_delays_no_other_machine(world: World) -> None:
    """300 requests, and nodes that report thousands of addresses: it took over 20 s."""
    reported = [{"type": "Hostname", "address": f"h{number}.x"} for number in range(6000)]
    for name in ("n1", "n2"):
        node = {"metadata": {"name": name}, "status": {"addresses": reported}}
        assert (await world.api.call("POST", "/api/v1/nodes", node)).status == 201
    for number in range(300):
        evil = request(f"evil-{number}", node="n2", signer=NODE_SERVING, hosts=("api.example.com",))
        assert (await ask(world, evil, user="n2")).status == 201
    await ask(world, request("good", node="n3"))
    await until(world, "good", lambda status: status.get("certificate"))


async def test_a_token_does_not_take_over_a_node_that_is_ready(world: World) -> None:
    ready = {"type": "Ready", "status": "True"}
    node = {"metadata": {"name": "n1"}, "status": {"conditions": [ready]}}
    assert (await world.api.call("POST", "/api/v1/nodes", node)).status == 201
    await ask(world, request("a"))
    found = await until(world, "a", kinds)
    assert kinds(found["status"]) == ["Denied"]
    assert "another machine has this name" in found["status"]["conditions"][0]["message"]
    gone = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    merge = "application/merge-patch+json"
    await world.api.call("PATCH", "/api/v1/nodes/n1/status", gone, content_type=merge)
    await ask(world, request("b"))
    assert (await until(world, "b", lambda status: status.get("certificate")))["status"]


async def test_a_request_that_was_approved_but_does_not_fit_fails(world: World) -> None:
    await ask(world, request("a", node="n2", signer=NODE_SERVING, hosts=("n2",)), user="n1")
    asked = (await world.api.call("GET", f"{CSR}/a")).json
    asked["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Mistake"}]}
    approved = await world.api.call("PUT", f"{CSR}/a/approval", asked)
    assert approved.status == 200, approved.text
    found = await until(world, "a", lambda status: "Failed" in kinds(status))
    assert "asked for by system:node:n1" in found["status"]["conditions"][-1]["message"]
    assert "certificate" not in found["status"]


async def test_a_request_for_ever_gets_what_others_get(world: World) -> None:
    assert (await ask(world, request("a", expirationSeconds=2**31))).status == 400
    await ask(world, request("b", expirationSeconds=2**31 - 1))
    found = await until(world, "b", lambda status: status.get("certificate"))
    issued = x509.load_pem_x509_certificate(base64.b64decode(found["status"]["certificate"]))
    assert issued.not_valid_after_utc - clock.utc_now() <= LIFETIME


async def test_a_defect_about_one_request_keeps_no_other_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    actual = policy.misfit

    def misfit(signer: str, asked: SigningRequest, usages: Sequence[str], username: str) -> str:
        if asked.common_name.endswith(":odd"):
            raise OverflowError("Python int too large to convert to C int")
        return actual(signer, asked, usages, username)

    monkeypatch.setattr(policy, "misfit", misfit)
    await ask(world, request("odd", "odd"))
    await ask(world, request("next", "n2"))
    await until(world, "next", lambda status: status.get("certificate"))
    assert "the request for a certificate odd cannot be worked on" in caplog.text


async def test_old_requests_go(tmp_path: Path) -> None:
    ahead = timedelta()

    def now() -> datetime:
        return clock.utc_now() + ahead

    async with cluster(tmp_path, now=now) as world:
        await ask(world, request("a"))
        await until(world, "a", lambda status: status.get("certificate"))
        ahead = timedelta(minutes=59)
        await ask(world, request("b"))
        await until(world, "b", lambda status: status.get("certificate"))
        assert (await world.api.call("GET", f"{CSR}/a")).status == 200
        ahead = timedelta(minutes=61)
        await ask(world, request("c"))
        await until(world, "a", lambda _status: True)
        async with asyncio.timeout(20):
            while (await world.api.call("GET", f"{CSR}/a")).status != 404:
                await asyncio.sleep(0.05)
        assert (await world.api.call("GET", f"{CSR}/b")).status == 200

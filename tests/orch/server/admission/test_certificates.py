"""Who asks is written down; who decides and signs needs the right on the signer."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orch.component import signing_requests
from orch.server.admission import certificates
from tests.orch.server.harness import Api

CSR = "/apis/certificates.orch.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.orch.io/v1"
KEY = signing_requests.make_key()
APPROVED = {"type": "Approved", "status": "True", "reason": "Yes"}
PEM = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"


def request(name: str = "a", group: str = "devs", **spec: Any) -> dict[str, Any]:
    pem = signing_requests.make_request(KEY, "ann", group)
    asked = {"signerName": "example.com/s", "usages": ["client auth"], **spec}
    return {
        "metadata": {"name": name},
        "spec": {"request": base64.b64encode(pem).decode(), **asked},
    }


async def may(api: Api, user: str, *rules: tuple[list[str], str, list[str]]) -> None:
    """Give a user rights on resources of the group, by names where there are any."""
    role = {
        "metadata": {"name": f"of-{user}"},
        "rules": [
            {"apiGroups": ["certificates.orch.io"], "verbs": verbs, "resources": [what],
             **({"resourceNames": named} if named else {})}
            for verbs, what, named in rules
        ],
    }  # fmt: skip
    await api.call("PUT", f"{RBAC}/clusterroles/of-{user}", role)
    binding = {
        "metadata": {"name": f"of-{user}"},
        "roleRef": {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole",
                    "name": f"of-{user}"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.orch.io"}],
    }  # fmt: skip
    await api.call("PUT", f"{RBAC}/clusterrolebindings/of-{user}", binding)


async def approve(api: Api, user: str, *conditions: dict[str, Any]) -> Any:
    found = (await api.call("GET", f"{CSR}/a")).json
    found["status"] = {**found.get("status", {}), "conditions": list(conditions or (APPROVED,))}
    return await api.call("PUT", f"{CSR}/a/approval", found, user=user)


async def sign(api: Api, user: str, pem: bytes = PEM) -> Any:
    change = {"status": {"certificate": base64.b64encode(pem).decode()}}
    return await api.call(
        "PATCH", f"{CSR}/a/status", change, user=user, content_type="application/merge-patch+json"
    )


async def test_the_server_says_who_asks(api: Api) -> None:
    body = request(username="admin", uid="1", groups=["system:masters"], extra={"a": ["b"]})
    await may(api, "stranger", (["create"], "certificatesigningrequests", []))
    await until(lambda: api.call("POST", CSR, body, user="stranger"), 201)
    made = (await api.call("GET", f"{CSR}/a")).json
    spec = made["spec"]
    assert (spec["username"], "uid" in spec, "extra" in spec) == ("stranger", False, False)
    assert spec["groups"] == ["some:group", "system:authenticated"]
    assert made["status"] == {}
    changed = {**made, "spec": {**spec, "username": "admin"}, "status": {"conditions": [APPROVED]}}
    after = (await api.call("PUT", f"{CSR}/a", changed)).json
    assert (after["spec"], after["status"]) == (spec, {})
    own = await api.call("GET", f"{CSR}/a", user="stranger")  # without a right to read any
    assert own.status == 200
    assert (await api.call("GET", CSR, user="stranger")).status == 403


async def until(attempt: Callable[[], Awaitable[Any]], status: int, text: str = "") -> None:
    """Rights come into force a moment after they are given."""
    async with asyncio.timeout(10):
        while True:
            answer = await attempt()
            if answer.status == status and text in answer.text:
                return
            await asyncio.sleep(0.02)


async def test_approving_and_signing_need_the_right_on_the_signer(api: Api) -> None:
    assert (await api.call("POST", CSR, request())).status == 201
    parts = ["certificatesigningrequests/approval", "certificatesigningrequests/status"]
    change = [(["get", "update", "patch"], part, []) for part in parts]
    await may(api, "stranger", *change)
    await until(lambda: approve(api, "stranger"), 403, "not permitted to approve requests with")
    await may(api, "stranger", *change, (["approve"], "signers", ["example.com/*"]))
    await until(lambda: approve(api, "stranger"), 200)
    await until(lambda: sign(api, "stranger"), 403, "not permitted to sign requests with")
    await may(api, "stranger", *change, (["sign"], "signers", ["example.com/s"]))
    await until(lambda: sign(api, "stranger"), 200)
    await until(lambda: sign(api, "stranger", PEM + PEM), 422)  # issued once


async def test_a_decision_is_never_taken_back(api: Api) -> None:
    assert (await api.call("POST", CSR, request())).status == 201
    status = f"{CSR}/a/status"
    merge = "application/merge-patch+json"
    added = await api.call(
        "PATCH", status, {"status": {"conditions": [APPROVED]}}, content_type=merge
    )
    assert (added.status, "may not add a condition" in added.text) == (422, True)
    assert (await approve(api, "admin")).status == 200
    denied = {"type": "Denied", "status": "True"}
    for conditions in ([APPROVED, denied], [denied], [{**APPROVED, "status": "False"}]):
        assert (await approve(api, "admin", *conditions)).status == 422, conditions
    assert (await approve(api, "admin", APPROVED, APPROVED)).status == 422
    assert (await approve(api, "admin", {"status": "True"})).status == 422
    assert (await sign(api, "admin", b"no certificate")).status == 422


CASES: list[tuple[dict[str, Any], str]] = [
    ({"request": ""}, "spec.request"),
    ({"request": "eA=="}, "PEM block type must be CERTIFICATE REQUEST"),
    ({"request": "A" * 100_000}, "has more than"),
    ({"usages": []}, "spec.usages"),
    ({"usages": ["client auth", "client auth"]}, "Duplicate value"),
    ({"usages": ["flying"]}, "Unsupported value"),
    ({"usages": ["client auth"] * 1000}, "Too many"),
    ({"signerName": ""}, "spec.signerName"),
    ({"signerName": "a"}, "fully qualified domain and path"),
    ({"signerName": "a/b"}, "at least two segments"),
    ({"signerName": "a.b/c/d"}, "fully qualified domain and path"),
    ({"signerName": "A.b/c"}, "validating label"),
    ({"signerName": "a.b/-"}, "validating label"),
    ({"signerName": f"a.b/{'c' * 600}"}, "Too long"),
    ({"expirationSeconds": 599}, "less than 600 seconds"),
    ({"signerName": "kubernetes.io/kube-apiserver-client", "group": "system:masters"},
     "system:masters group is not allowed"),
    ({"signerName": "orch.io/apiserver-client", "group": "system:masters"}, "is not allowed"),
]  # fmt: skip


async def test_what_cannot_be_granted_is_refused_at_once(api: Api) -> None:
    for spec, why in CASES:
        answer = await api.call("POST", CSR, request(**spec))
        assert answer.status in (403, 422), spec
        assert why in answer.text, (spec, answer.text)
        assert len(answer.body) < 8000, spec
    big = request()
    big["metadata"]["annotations"] = {"a": "x" * 20_000}
    assert (await api.call("POST", CSR, big)).status == 422


BOT = "system:serviceaccount:team:bot"


@pytest.mark.parametrize(
    ("users", "refused", "another"),
    [
        ("system:node:n1 system:node:n1", "system:node:n1", "system:node:n2"),
        ("ann ann", "ann", "system:node:n1"),
        (f"{BOT}-1 {BOT}-2", f"{BOT}-3", "system:serviceaccount:teams:bot"),
    ],
)
async def test_nobody_asks_without_end(
    api: Api, monkeypatch: pytest.MonkeyPatch, users: str, refused: str, another: str
) -> None:
    """All requests are of one kind, which has a bound, and each machine needs one."""

    async def ask(name: str, user: str) -> Any:
        headers = {"Impersonate-User": user}
        return await api.call("POST", CSR, request(name), headers=headers)

    monkeypatch.setattr(certificates, "MAX_KEPT", 2)
    for number, user in enumerate((*users.split(), refused, another)):
        await may(api, user, (["create"], "certificatesigningrequests", []))
        wanted = 429 if number == 2 else 201
        await until(lambda user=user, name=f"{number}": ask(name, user), wanted)  # type: ignore[misc]
    assert (await api.call("POST", CSR, request("d"))).status == 201


async def test_a_request_stays_small_whatever_is_in_it(api: Api) -> None:
    """A machine that joins could fill the store by fields that no request has."""
    large = "x" * 65_536
    for body in (request(more=large), {**request(), "more": large}):
        answer = await api.call("POST", CSR, body)
        assert (answer.status, "may not be more than" in answer.json["message"]) == (422, True)
    assert (await api.call("POST", CSR, request(more=large[:60_000]))).status == 201
    answer = await approve(api, "admin", {**APPROVED, "message": 2 * large})
    assert (answer.status, "may not be more than" in answer.json["message"]) == (422, True)
    assert (await approve(api, "admin")).status == 200

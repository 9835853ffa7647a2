"""`orchctl token` and `orchctl certificate` against a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orch.component import signing_requests
from tests.fakes.joining import World, cluster
from tests.orch.ctl.conftest import Result, run_command

CSR = "/apis/certificates.orch.io/v1/certificatesigningrequests"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with cluster(tmp_path, signs=False) as made:
        yield made


async def ctl(world: World, *words: str) -> Result:
    config = f"--kubeconfig={world.directory}/admin.kubeconfig"
    return await asyncio.to_thread(run_command, *words, config)


async def works(world: World, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    return (await world.api.call("GET", "/version", user=None, headers=headers)).status == 200


async def test_a_token_is_made_listed_and_ended(world: World) -> None:
    made = await ctl(world, "token", "create", "--ttl", "1h", "--description", "rack 7")
    token = made.out.strip()
    assert re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", token)
    assert await works(world, token)
    listed = await ctl(world, "token", "list")
    assert re.search(rf"{token[:6]} +usable +20\S+Z +\S+ +rack 7", listed.out)
    assert token[7:] not in listed.out
    records = json.loads((await ctl(world, "token", "list", "-o", "json")).out)
    assert {one["id"] for one in records} == {token[:6], world.token[:6]}
    assert "secret" not in str(records)
    assert (await ctl(world, "token", "delete", token)).out == f"token {token[:6]} deleted\n"
    assert not await works(world, token)
    assert (await ctl(world, "token", "delete", token[:6])).code == 1
    await ctl(world, "token", "delete", world.token[:6])
    assert "'orchctl token create' makes one" in (await ctl(world, "token", "list")).out


async def test_the_command_for_a_machine_is_printed_whole(world: World) -> None:
    given = "abcdef.0123456789abcdef"
    group = "system:bootstrappers:rack-7"
    made = await ctl(
        world, "token", "create", given, "--print-join-command", "--ttl=0", "--groups", group
    )
    assert made.out == (f"nodeagent join {world.server} --token {given} --ca-hash {world.pin}\n")
    who = {"Authorization": f"Bearer {given}"}
    path = "/apis/authentication.orch.io/v1/selfsubjectreviews"
    review = await world.api.call("POST", path, {}, user=None, headers=who)
    assert group in review.json["status"]["userInfo"]["groups"]
    again = await ctl(world, "token", "create", given)
    assert (again.code, "already exists" in again.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("token", "create", "short"), "six characters of a-z"),
        (("token", "create", "--groups", "system:masters"), "is not below system:bootstrappers:"),
        (("token", "delete", "ABC"), "the id of a token is"),
        (
            ("token", "create", "--print-join-command", "--certificate-authority=/absent"),
            "names no",
        ),
    ],
)
async def test_mistakes_are_named(world: World, words: tuple[str, ...], why: str) -> None:
    result = await ctl(world, *words)
    assert result.code in (1, 2)
    assert why in result.err


async def test_requests_are_approved_and_denied(world: World) -> None:
    pem = signing_requests.make_request(signing_requests.make_key(), "ann", "devs")
    for name in ("a", "b"):
        body = {
            "metadata": {"name": name},
            "spec": {"request": base64.b64encode(pem).decode(), "usages": ["client auth"],
                     "signerName": "example.com/s"},
        }  # fmt: skip
        assert (await world.api.call("POST", CSR, body)).status == 201
    approved = await ctl(world, "certificate", "approve", "a", "absent")
    assert approved.out == "certificatesigningrequest/a approved\n"
    assert (approved.code, "absent" in approved.err) == (1, True)
    assert (await ctl(world, "certificate", "approve", "a")).code == 0  # again
    denied = await ctl(world, "certificate", "deny", "b", "--message", "not ours")
    assert denied.out == "certificatesigningrequest/b denied\n"
    refused = await ctl(world, "certificate", "deny", "a")
    assert "a is approved already: it has to be asked for anew" in refused.err
    shown = (await ctl(world, "get", "csr")).lines
    assert shown[1].split() == [
        "a",
        shown[1].split()[1],
        "example.com/s",
        "admin",
        "<none>",
        "Approved",
    ]
    conditions = (await world.api.call("GET", f"{CSR}/b")).json["status"]["conditions"]
    assert [(one["type"], one["message"]) for one in conditions] == [("Denied", "not ours")]

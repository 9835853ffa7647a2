"""Tokens of service accounts in the volumes of pods, from an API in memory."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.spec.references import TOKEN, ObjectData, TokenReference
from nodeagent.pods.volumes import tokens, volumes
from nodeagent.pods.volumes.objects import PodObjects
from nodeagent.pods.volumes.tokens import PodTokens, TokenProblem
from orch.client.transport import TransportError
from orch.wire.errors import ApiError
from orch.wire.records.authentication import TokenRequest, TokenRequestStatus
from orch.wire.records.configuration import ServiceAccount
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod
from tests.fakes.api import Call, FakeApi
from tests.fakes.apistore import FakeStore
from tests.fakes.mounts import FakeMounts
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import PodWorld, named, now

pytestmark = pytest.mark.looptime

MOUNT = {"name": "v", "mountPath": "/v"}
DAY_S = 24 * 3600


@pytest.fixture(autouse=True)
def no_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "OwnMounts", FakeMounts)


def holding(seconds: int = 1000, **spec: Any) -> Pod:
    source = {"path": "token", "audience": "vault", "expirationSeconds": seconds}
    volume = {"name": "v", "projected": {"sources": [{"serviceAccountToken": source}]}}
    container = container_data("app", volumeMounts=[MOUNT])
    return pod(container, volumes=[volume], serviceAccountName="bot", **spec)


def file_of(world: PodWorld) -> Path:
    [path] = world.directory.glob("root/pods/*/volumes/projected/v")
    return path / "token"


def asked(world: PodWorld) -> list[Call]:
    return world.api.made("create", "serviceaccounts")


async def started(world: PodWorld, wanted: Pod) -> str:
    """The token that the pod starts with."""
    await world.start(wanted)
    await world.until(lambda: "app" in world.running())
    return file_of(world).read_text()


async def test_a_pod_gets_a_token_bound_to_it_and_the_next_one_in_time(world: PodWorld) -> None:
    first = await started(world, holding())
    assert first.startswith("bot.vault.")
    [call] = asked(world)
    assert (call.key, call.subresource) == ("default/bot", "token")
    assert call.body["spec"] == {
        "audiences": ["vault"],
        "expirationSeconds": 1000,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": UID},
    }
    await asyncio.sleep(790)
    assert file_of(world).read_text() == first
    await asyncio.sleep(80)  # within a minute of four fifths of its life
    second = file_of(world).read_text()
    assert (second != first, len(asked(world))) == (True, 2)
    assert list(world.running()) == ["app"]  # nothing was started anew
    assert len(world.runtime.containers) == 1


async def test_a_long_token_is_renewed_after_a_day(world: PodWorld) -> None:
    known = PodTokens(world.api, now=now, jitter=lambda: 0.0)  # type: ignore[arg-type]
    wanted = TokenReference("bot", "", 7 * DAY_S)
    first = await known.of(holding(), wanted)
    await asyncio.sleep(DAY_S - 1)
    assert await known.of(holding(), wanted) == first
    await asyncio.sleep(2)
    assert await known.of(holding(), wanted) != first


async def test_the_old_token_stays_while_none_can_be_had_which_is_said_once(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, tokens.__name__)
    first = await started(world, holding())
    world.api.fail(TransportError("refused"), verb="create", times=float("inf"))
    await asyncio.sleep(990)
    assert file_of(world).read_text() == first
    assert len(asked(world)) > 3
    [said] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert 'the token of serviceaccount "bot" is not renewed and serves until' in said
    world.api.heal()
    await asyncio.sleep(70)
    assert file_of(world).read_text() != first
    assert "is renewed" in caplog.records[-1].getMessage()


async def test_an_expired_token_starts_nothing(world: PodWorld) -> None:
    known = PodTokens(world.api, now=now)  # type: ignore[arg-type]
    wanted = TokenReference("bot", "", 600)
    await known.of(holding(), wanted)
    world.api.fail(TransportError("refused"), verb="create", times=float("inf"))
    await asyncio.sleep(601)
    assert await known.of(holding(), wanted) == ObjectData(
        problem='token of serviceaccount "bot" expired and refresh failed: refused'
    )


async def test_a_pod_without_its_token_waits_and_says_why(world: PodWorld) -> None:
    refusal = ApiError(403, "Forbidden", "no tokens for you")
    world.api.fail(refusal, verb="create", times=float("inf"))
    await world.start(holding())
    await world.until(lambda: "FailedMount" in world.reasons())
    text = 'MountVolume.SetUp failed for volume "v" : failed to fetch token: no tokens for you'
    assert ("web", "FailedMount", text) in world.events
    assert not world.runtime.sandboxes
    world.api.heal()
    await world.until(lambda: "app" in world.running(), within_s=60)


async def test_the_next_agent_asks_again_and_keeps_the_token_until_it_has_another(
    world: PodWorld,
) -> None:
    first = await started(world, holding())
    await world.stop()
    heir = world.successor()
    heir.api.store.new_uid()  # its tokens are others
    heir.api.fail(TransportError("refused"), verb="create", times=float("inf"))
    await heir.start(*world.source.given)
    await heir.until(lambda: heir.api.made("create", "serviceaccounts"))
    assert file_of(heir).read_text() == first
    heir.api.heal()
    await heir.until(lambda: file_of(heir).read_text() != first, within_s=120)
    assert len(heir.runtime.containers) == 1


@pytest.mark.parametrize(
    ("security", "mode", "owner", "group"),
    [
        ({}, 0o644, os.geteuid(), os.getegid()),
        ({"runAsUser": 1234}, 0o600, 1234, os.getegid()),
        ({"fsGroup": 4321}, 0o640, os.geteuid(), 4321),
        ({"runAsUser": 1234, "fsGroup": 4321}, 0o640, 1234, 4321),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
async def test_those_who_are_to_read_it_can(
    world: PodWorld, security: dict[str, int], mode: int, owner: int, group: int
) -> None:
    await started(world, holding(securityContext=security))
    found = file_of(world).stat()
    assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (mode, owner, group)


async def test_an_agent_that_may_not_give_files_away_lets_all_read_them(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_opened: int, owner: int, _group: int) -> None:
        if owner != -1:
            raise PermissionError("no CAP_CHOWN")

    monkeypatch.setattr(os, "fchown", refuse)
    first = await started(world, holding(securityContext={"runAsUser": 1234}))
    data = os.readlink(file_of(world).parent / "..data")
    assert file_of(world).stat().st_mode & 0o777 == 0o644
    await asyncio.sleep(200)
    assert os.readlink(file_of(world).parent / "..data") == data  # it is not written again
    assert file_of(world).read_text() == first


async def test_the_tokens_of_many_pods_are_asked_for_a_few_at_a_time() -> None:
    api = FakeApi(FakeStore(now))
    gate = api.hang(verb="create")
    known = PodTokens(api, now=now)  # type: ignore[arg-type]
    pods = [named(holding(), f"p{number}", f"u{number}") for number in range(200)]
    wanted = TokenReference("bot", "", 600)
    requests = [asyncio.ensure_future(known.of(one, wanted)) for one in pods]
    await asyncio.sleep(10)
    assert len(api.made("create")) == tokens.AT_ONCE
    gate.set()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    found = await asyncio.gather(*requests)
    assert len({data.data[TOKEN] for data in found}) == 200
    least_s = (200 - tokens.BURST - tokens.AT_ONCE) / tokens.PER_S
    assert loop.time() - began_s == pytest.approx(least_s, rel=0.1)
    known.forget("u7")
    assert await known.of(pods[7], wanted) != found[7]
    assert await known.of(pods[8], wanted) == found[8]


@pytest.mark.slow
async def test_pods_with_thousands_of_tokens_hold_up_no_pod_of_another_namespace() -> None:
    known = PodTokens(FakeApi(FakeStore(now)), now=now)  # type: ignore[arg-type]
    greedy = [
        asyncio.ensure_future(known.of(holding(), TokenReference("bot", "", 600 + number)))
        for number in range(2000)
    ]
    await asyncio.sleep(5)
    other = named(holding(), "p", "u")
    other.metadata.namespace = "blue"
    began_s = asyncio.get_running_loop().time()
    found = await known.of(other, TokenReference("bot", "", 600))
    assert found.data and asyncio.get_running_loop().time() - began_s < 1, "it was half a minute"
    late = [data.problem for data in await asyncio.gather(*greedy) if data.problem]
    assert len(late) < 2000 and all("too many tokens are asked for" in text for text in late)


class SilentApi(FakeApi):
    """Nobody answers, as while the network drops everything."""

    silent = True

    async def create_token(self, *asked: Any) -> Any:
        if self.silent:
            await asyncio.sleep(10)
            raise TransportError("no answer within 10 s")
        return await super().create_token(*asked)


async def test_a_silent_server_is_waited_for_once_by_all_pods_and_asked_again() -> None:
    api, loop = SilentApi(FakeStore(now)), asyncio.get_running_loop()
    known, wanted = PodTokens(api, now=now), TokenReference("bot", "", 600)  # type: ignore[arg-type]
    pods = [named(holding(), f"p{number}", f"u{number}") for number in range(50)]
    began_s = loop.time()
    for data in await asyncio.gather(*(known.of(one, wanted) for one in pods)):
        assert data.problem == "failed to fetch token: no answer within 10 s"
    assert loop.time() - began_s < 11, "it was a minute"
    api.silent = False
    await asyncio.sleep(5)
    assert (await known.of(pods[0], wanted)).data


async def test_the_token_of_a_pod_that_has_gone_meanwhile_is_not_kept(world: PodWorld) -> None:
    asked_for, answered, actual = asyncio.Event(), asyncio.Event(), world.api.create_token

    async def create_token(*arguments: Any) -> Any:
        asked_for.set()
        await answered.wait()
        return await actual(*arguments)

    world.api.create_token = create_token  # type: ignore[method-assign]
    known = PodTokens(world.api, now=now)  # type: ignore[arg-type]
    wanted = TokenReference("bot", "vault", 1000)
    late = asyncio.ensure_future(known.of(holding(), wanted))
    await asked_for.wait()
    known.forget(UID)
    answered.set()
    first = await late
    assert await known.of(holding(), wanted) != first, "it is asked for anew"


GRANTED = {"token": "t", "expirationTimestamp": "2026-01-31T13:00:00Z"}


@pytest.mark.parametrize(
    ("status", "life_s"),
    [
        (None, 600),
        ({}, 600),
        ({**GRANTED, "token": "x" * (tokens.MAX_BYTES + 1)}, 600),
        ({**GRANTED, "expirationTimestamp": "soon"}, 600),
        (GRANTED, None),
        (GRANTED, -1),
    ],
)
async def test_an_answer_without_a_token_is_none(
    status: dict[str, str] | None, life_s: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = FakeApi()
    answer = TokenRequest(status=TokenRequestStatus(**status) if status is not None else None)
    answer.spec.expirationSeconds = life_s

    async def answered(*_request: object) -> TokenRequest:
        return answer

    monkeypatch.setattr(api, "create_token", answered)
    found = await PodTokens(api).of(holding(), TokenReference("bot", "", 600))  # type: ignore[arg-type]
    assert "failed to fetch token: the API server answered with" in found.problem


def test_a_token_prints_nothing_of_itself() -> None:
    secret = tokens.Secret("s3cret")
    assert "s3cret" not in repr(tokens.Token(secret, timedelta(1), FakeStore().now()))


async def test_a_plugin_is_told_whom_a_pod_runs_as_and_nothing_of_a_static_one(
    world: PodWorld,
) -> None:
    known = PodObjects(world.api, tokens=PodTokens(world.api, now=now))  # type: ignore[arg-type]
    with pytest.raises(TokenProblem, match="there is no serviceaccount bot"):
        await known.identity(holding(), "vault")
    meta = ObjectMeta(name="bot", namespace="default", uid="u1", annotations={"a/b": "1"})
    world.api.store.put(ServiceAccount(metadata=meta))
    found = await known.identity(holding(), "vault")
    assert found and found.account == ("default", "bot", "u1")
    assert found.annotations == {"a/b": "1"}
    assert found.token.reveal().startswith("bot.vault.")
    [call] = asked(world)
    assert call.body["spec"]["boundObjectRef"]["uid"] == UID
    static = holding(metadata={"annotations": {"orch.io/config.source": "file"}})
    assert await known.identity(static, "vault") is None
    world.api.fail(TransportError("refused"), verb="get", times=float("inf"))
    with pytest.raises(TokenProblem, match="serviceaccount bot cannot be read: refused"):
        await known.identity(holding(), "vault")

"""Plugins for registries' passwords, with real programs (K:pkg/credentialprovider/plugin)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.counts import CREDENTIAL_PLUGIN, PodCounts
from nodeagent.pods.images import plugins
from nodeagent.pods.images.plugins import (
    API_VERSION,
    CredentialPlugins,
    Plugin,
    PluginError,
    TokenUse,
)
from nodeagent.pods.volumes.tokens import PodIdentity, TokenProblem
from nodeagent.runtime.base import Login
from orch.component.process import loops
from orch.component.secret import Secret
from orch.wire.records.pods import Pod
from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import RUNTIME_BASE
from tests.fakes.plugins import answering, asked, program
from tests.fakes.pods import pod
from tests.fakes.realpods import Agent, manifest
from tests.fakes.registry import Registry

IMAGE = "images.example.com/team/app:1"
AUTH = {"images.example.com": {"username": "u", "password": "p"}}
LOGIN = Login("u", Secret("p"))


def of(*given: Plugin) -> CredentialPlugins:
    return CredentialPlugins(given, PodCounts())


async def test_a_plugin_is_asked_as_the_reference_asks_it(tmp_path: Path) -> None:
    body = "print(json.dumps([sys.argv[1:], os.environ['OWN'], os.environ['PATH'] != '']))"
    told = program(tmp_path / "a", body, arguments=("-v", "x y"), variables={"OWN": "1"})
    with pytest.raises(PluginError, match="not a CredentialProviderResponse"):
        plugins.ask(told, "images.example.com/team/app")
    assert asked(told) == [
        {
            "kind": "CredentialProviderRequest",
            "apiVersion": API_VERSION,
            "image": "images.example.com/team/app",
        }
    ]
    command = [told.program, *told.arguments]
    own = {**os.environ, **told.variables}
    shown = subprocess.run(command, input=b"{}", capture_output=True, env=own, check=True)
    assert json.loads(shown.stdout) == [["-v", "x y"], "1", True]


async def test_the_most_specific_login_of_all_plugins_comes_first(tmp_path: Path) -> None:
    wide = program(tmp_path / "wide", answering({"*.example.com": AUTH["images.example.com"]}))
    near = {"https://images.example.com/team": {"username": "near", "password": "n"}}
    narrow = program(tmp_path / "narrow", answering(near), "images.example.com/team")
    other = program(tmp_path / "other", answering(AUTH), "*.example.com:5000", "example.com")
    found = await of(wide, other, narrow).logins(IMAGE)
    assert [login.user for login in found] == ["near", "u"]
    assert asked(other) == []


@pytest.mark.parametrize(
    ("kind", "more", "again"),
    [
        ("Image", {}, {"team/app": 0, "team/other": 1, "2": 2}),
        ("Registry", {}, {"team/app": 0, "team/other": 0, "2": 1}),
        ("Global", {}, {"team/app": 0, "team/other": 0, "2": 0}),
        ("Global", {"cacheDuration": "0s"}, {"team/app": 1}),
        ("Global", {"cacheDuration": None}, {"team/app": 0}),
        ("Image", {"cacheDuration": "1h30m"}, {"team/app": 0}),
    ],
)
async def test_an_answer_is_kept_for_what_it_says(
    tmp_path: Path, kind: str, more: dict[str, Any], again: dict[str, int]
) -> None:
    plugin = program(tmp_path / "a", answering(AUTH, kind=kind, **more))
    known = of(plugin)
    await known.logins(IMAGE)
    for name, count in again.items():
        image = "two.example.com/x" if name == "2" else f"images.example.com/{name}:9"
        await known.logins(image)
        assert len(asked(plugin)) == 1 + count, name


async def test_the_configured_time_counts_where_an_answer_names_none(tmp_path: Path) -> None:
    plugin = program(tmp_path / "a", answering(AUTH), keep_s=0.0)
    known = of(plugin)
    for _ in range(2):
        assert list(await known.logins(IMAGE)) == [LOGIN]
    assert len(asked(plugin)) == 2


async def test_those_who_want_the_same_wait_for_one_answer_and_others_take_turns(
    tmp_path: Path,
) -> None:
    body = "import time; time.sleep(0.3); " + answering(AUTH)
    plugin = program(tmp_path / "a", body, keep_s=0.0)
    known = of(plugin)
    images = [IMAGE] * 5 + [f"{number}.example.com/x" for number in range(plugins.AT_ONCE)]
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.gather(*map(known.logins, images))
    assert len(asked(plugin)) == 1 + plugins.AT_ONCE
    assert loop.time() - began_s >= 0.6  # one more than may run at once


async def test_a_plugin_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    body = f"import time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.05)"
    hung = program(tmp_path / "hung", body, timeout_s=1000.0)
    other = program(tmp_path / "other", answering(AUTH), "*.example.org")
    known = of(hung, other)
    images = [f"{number}.example.com/x" for number in range(2 * plugins.AT_ONCE)]
    waiting = [loops.spawn(known.logins(image), name=image) for image in images]
    async with asyncio.timeout(20):
        while len(asked(hung)) < plugins.AT_ONCE:
            await asyncio.sleep(0.01)
        await known.logins("images.example.org/app")
    assert len(asked(other)) == 1 and len(asked(hung)) == plugins.AT_ONCE
    go_on.touch()
    await asyncio.gather(*waiting)


async def test_answers_that_are_kept_are_bounded_in_bytes_and_the_newest_stay(
    tmp_path: Path,
) -> None:
    """A password of a megabyte that takes four in memory."""
    body = (
        "password = 'p' * 10**6 + chr(0x1f600)\n"
        "auth = {'*.example.com': {'username': 'u', 'password': password}}\n"
        "print(json.dumps({**GOOD, 'auth': auth}, ensure_ascii=False))"
    )
    plugin = program(tmp_path / "a", f"GOOD = {GOOD!r}\n{body}")
    known = of(plugin)
    images = [f"{number}.example.com/x" for number in range(8)]
    tracemalloc.start()
    try:
        for image in images:
            assert await known.logins(image)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < plugins.MAX_KEPT_BYTES + 2**20
    await known.logins(images[-1])
    assert len(asked(plugin)) == len(images), "the newest is known"
    await known.logins(images[0])
    assert len(asked(plugin)) == len(images) + 1, "the oldest is not"


GOOD = json.loads(answering(AUTH).removeprefix("print('").removesuffix("')"))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("sys.exit(3)", "ended with exit code 3"),
        ("os.kill(os.getpid(), 9)", "ended with signal 9"),
        ("print('no')", "answered what is not JSON"),
        ("print('[]')", "answered with apiVersion '' and kind ''"),
        (answering(AUTH, apiVersion="credentialprovider.kubelet.k8s.io/v2"), "apiVersion 'cred"),
        ("print(json.dumps({**GOOD, 'kind': 'Pod'}))", "and kind 'Pod', not a Cred"),
        (answering(AUTH, kind="Pod"), "cacheKeyType 'Pod' is not one of Image, Registry, Global"),
        (answering(AUTH, cacheDuration="soon"), "cacheDuration is not a duration"),
        (answering(AUTH, cacheDuration=5), "cacheDuration is not a duration"),
        (answering([]), "auth is not a map"),
        (answering({f"{n}.com": {} for n in range(101)}), "auth is not a map of at most 100"),
        (answering({"a.com": {"username": 5}}), "values that are no texts"),
        ("sys.stdout.write('x' * 2**21)", "answered with more than 1048576 bytes"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_said_without_its_content(
    body: str, text: str, tmp_path: Path
) -> None:
    plugin = program(tmp_path / "a", f"GOOD = {GOOD!r}\n{body}")
    with pytest.raises(PluginError, match=text) as caught:
        plugins.ask(plugin, IMAGE)
    assert "username" not in str(caught.value)


@pytest.mark.parametrize("stays_too", ["time.sleep(1000)", "pass"])
def test_a_plugin_that_never_ends_is_ended_with_its_children(
    stays_too: str, tmp_path: Path
) -> None:
    mark = tmp_path / "child"
    body = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        f"{stays_too}"
    )
    plugin = program(tmp_path / "a", body, timeout_s=1.0)
    with pytest.raises(PluginError, match="has not ended after 1 s"):
        plugins.ask(plugin, IMAGE)
    until_s = time.monotonic() + 5
    while _runs(int(mark.read_text())):
        assert time.monotonic() < until_s
        time.sleep(0.01)


WHO = PodIdentity(("default", "bot", "u1"), {"a/b": "1", "c": "2", "d": "3"}, Secret("t1"))
USE = TokenUse("vault", per_token=False, needs_account=True, required=["a/b"], optional=["c", "x"])


class Accounts:
    """Says in turn whom images are pulled for; notes the audiences."""

    def __init__(self, *identities: PodIdentity | TokenProblem | None) -> None:
        self._identities = iter(identities)
        self.audiences: list[str] = []

    async def identify(self, _: Pod, audience: str) -> PodIdentity | None:
        self.audiences.append(audience)
        found = next(self._identities)
        if isinstance(found, TokenProblem):
            raise found
        return found

    def plugins(self, plugin: Plugin, **use: Any) -> CredentialPlugins:
        given = replace(plugin, tokens=replace(USE, **use))
        return CredentialPlugins([given], PodCounts(), self.identify)


async def test_a_plugin_is_told_of_the_pod_s_account_what_it_wants(tmp_path: Path) -> None:
    plugin, accounts = program(tmp_path / "a", answering(AUTH)), Accounts(WHO)
    assert list(await accounts.plugins(plugin).logins(IMAGE, pod())) == [LOGIN]
    [told] = asked(plugin)
    assert told["serviceAccountToken"] == "t1" and accounts.audiences == ["vault"]
    assert told["serviceAccountAnnotations"] == {"a/b": "1", "c": "2"}


OTHER = PodIdentity(("default", "other", "u2"), {"a/b": "1"}, Secret("t2"))
RENEWED = replace(WHO, token=Secret("t3"))
CHANGED = replace(WHO, annotations={"a/b": "2"})
LACKING = replace(WHO, annotations={})
ANYBODY = {"needs_account": False, "required": []}
IDENTITIES: list[tuple[dict[str, Any], list[Any], int]] = [
    ({}, [WHO, WHO, RENEWED], 1),
    ({}, [WHO, OTHER, CHANGED], 3),
    ({"per_token": True}, [WHO, WHO, RENEWED], 2),
    ({}, [None, LACKING, TokenProblem("no")], 0),
    (ANYBODY, [None, None], 1),
    (ANYBODY, [None, WHO], 2),
]


@pytest.mark.parametrize(("use", "identities", "runs"), IDENTITIES)
async def test_answers_are_kept_for_the_account_or_for_its_token(
    tmp_path: Path, use: dict[str, Any], identities: list[Any], runs: int
) -> None:
    plugin = program(tmp_path / "a", answering(AUTH))
    known = Accounts(*identities).plugins(plugin, **use)
    for _ in identities:
        await known.logins(IMAGE, pod())
    told = asked(plugin)
    assert len(told) == runs
    assert [("serviceAccountToken" in each) for each in told[:1]] == [bool(identities[0])][:runs]


LONG = "images.example.com/" + "a" * 2**18  # more than a pipe holds


def of_own(path: Path, body: str, timeout_s: float) -> Plugin:
    """A program that reads its request in its own way."""
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    path.chmod(0o755)
    return Plugin(path.name, str(path), ("*.example.com",), 60.0, timeout_s=timeout_s)


def test_a_plugin_that_does_not_read_its_request_ends_with_its_time(tmp_path: Path) -> None:
    plugin = of_own(tmp_path / "a", "time.sleep(1000)", 1.0)
    with pytest.raises(PluginError, match="has not ended after 1 s"):
        plugins.ask(plugin, LONG)


@pytest.mark.parametrize("body", ["sys.stdin.read();", "os.close(0);", "pass;"])
def test_a_long_request_is_taken_at_the_pace_of_the_plugin_or_not_at_all(
    body: str, tmp_path: Path
) -> None:
    plugin = of_own(tmp_path / "a", f"{body} {answering(AUTH)}", 30.0)
    [login] = plugins.ask(plugin, LONG).logins
    assert login.login == LOGIN


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_plugin_that_fails_is_told_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, plugins.__name__)
    plugin = program(tmp_path / "a", "sys.exit(1)", keep_s=0.0)
    counts = PodCounts()
    known = CredentialPlugins([plugin], counts)
    for _ in range(3):
        assert list(await known.logins(IMAGE)) == []
    program(tmp_path / "a", answering(AUTH), keep_s=0.0)
    assert list(await known.logins(IMAGE)) == [LOGIN]
    assert caplog.messages[0] == (
        "credential provider a: ended with exit code 1; images are pulled without it"
    )
    assert [text.partition(" (")[0] for text in caplog.messages[1:]] == [
        "credential provider a answers again"
    ]
    assert counts.credential_plugin_errors == {"a": 3}
    samples = counts.timings.collect(CREDENTIAL_PLUGIN).samples
    [total] = [sample.value for sample in samples if sample.name.endswith("_count")]
    assert total == 4


async def test_a_program_that_is_gone_is_named(tmp_path: Path) -> None:
    plugin = program(tmp_path / "a", "")
    Path(plugin.program).unlink()
    with pytest.raises(PluginError, match=f"{plugin.program} cannot be run: "):
        plugins.ask(plugin, IMAGE)


@pytest.mark.real
@pytest.mark.seconds(10)
async def test_a_registry_that_asks_for_a_password_is_told_the_plugin_s(
    real_runtime: RealRuntime, tmp_path: Path
) -> None:
    busybox = RUNTIME_BASE / "root" / "usr" / "bin" / "busybox"
    with Registry("team/plugged", busybox, "s3cret").serving() as registry:
        registry.tell(real_runtime)
        auth = {registry.address: {"username": "plugin", "password": "s3cret"}}
        host = registry.address.replace("127.0.0.1", "*.0.0.1")
        plugin = program(tmp_path / "plugin", answering(auth), f"{host}/team")
        agent = Agent(tmp_path, real_runtime.endpoint)
        agent.services.plugins = CredentialPlugins([plugin], agent.counts)
        agent.start()
        try:
            command = ["/busybox", "sleep", "1000"]
            one = {"name": "c", "image": registry.image, "command": command}
            agent.put(manifest("plugged", one))
            await agent.runs("plugged")
        finally:
            await agent.close()
    assert set(registry.served) == {"plugin"}
    assert asked(plugin)[0]["image"] == f"{registry.address}/team/plugged"

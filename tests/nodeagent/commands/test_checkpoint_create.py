"""`nodeagent checkpoint create` against an agent that serves TLS."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nodeagent.commands.dispatch import dispatch
from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from tests.conftest import Pki
from tests.fakes.agent import ADMIN, MONITORING, Agent


def kubeconfig(pki: Pki, path: Path, subject: tuple[str, str]) -> str:
    pair = pki.client(*subject)
    config = ClientConfig(
        "https://api.example:6443",
        ca_file=pki.ca_file,
        cert_file=pair.cert_file,
        key_file=pair.key_file,
    )
    write_kubeconfig(str(path), config, name="test")
    return str(path)


async def create(
    agent: Agent, pki: Pki, tmp_path: Path, *words: str, subject: tuple[str, str] = ADMIN
) -> int | None:
    flags = ("--port", str(agent.port), "--tls-cert-file=x", "--tls-private-key-file=x")
    credentials = kubeconfig(pki, tmp_path / "kubeconfig", subject)
    command = ["checkpoint", "create", *words, "--kubeconfig", credentials, *flags]
    return await asyncio.to_thread(dispatch, command)


async def test_create_prints_the_path_of_the_archive(
    agent: Agent, pki: Pki, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await create(agent, pki, tmp_path, "shop/web", "-c", "app", "--timeout", "200") == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.name.startswith("checkpoint-web_shop-app-")
    assert path.exists()
    assert await create(agent, pki, tmp_path, "shop/web", "-c", "side", "-o", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("shop/absent", "-c", "app"), "the agent answered 404: pod does not exist"),
        (("shop/web", "-c", "../x"), "the agent answered 404"),
        (
            ("shop/web", "-c", "stopped"),
            "the agent answered 500: checkpointing of shop/web/stopped",
        ),
        (("shop/absent",), "there is no pod shop/absent on this node"),
        (("web",), "'web' is not NAMESPACE/POD"),
        (("shop/web", "--timeout=-1"), "--timeout is a number of seconds"),
    ],
)
async def test_a_failure_is_an_error_of_one_line(
    agent: Agent,
    pki: Pki,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    told: str,
) -> None:
    assert await create(agent, pki, tmp_path, *words) == 1
    assert told in capsys.readouterr().err


async def test_without_the_right_the_agent_refuses(
    agent: Agent, pki: Pki, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("shop/web", "-c", "app")
    assert await create(agent, pki, tmp_path, *words, subject=MONITORING) == 1
    assert "the agent answered 403: Forbidden" in capsys.readouterr().err


def test_without_credentials_the_error_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["checkpoint", "create", "shop/web"]) == 1
    assert "give --kubeconfig with a client certificate or a token" in capsys.readouterr().err


async def test_a_stopped_agent_is_reported(
    pki: Pki, tmp_path: Path, capsys: pytest.CaptureFixture[str], unserved: Agent, free_port: object
) -> None:
    assert callable(free_port)
    unserved.port = free_port()
    assert await create(unserved, pki, tmp_path, "shop/web", "-c", "app") == 1
    assert "the agent did not answer" in capsys.readouterr().err

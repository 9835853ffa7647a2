"""The agent's ports: which there are, what each serves, and the certificate of the secure one."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nodeagent import listeners as nodeagent_listeners
from nodeagent.config import options
from nodeagent.config.load import load_config
from nodeagent.config.options import Options
from nodeagent.server import read_only_app
from orch.component.process.daemon import SetupError
from tests.conftest import Pki
from tests.fakes.agent import Agent

pytestmark = pytest.mark.may_block


def given(*flags: str) -> tuple[Options, Any]:
    parsed = options.parse(flags)
    return parsed, load_config(None, None, parsed.overrides)


def test_a_self_signed_certificate_is_created_unless_one_is_configured(tmp_path: Path) -> None:
    own = given(f"--cert-dir={tmp_path}", "--tls-cert-file=/a.crt", "--tls-private-key-file=/a.key")
    assert own[0].certificate_files(own[1]) == ("/a.crt", "/a.key")
    with pytest.raises(SetupError, match=r"/a\.crt"):
        nodeagent_listeners.tls_context(*own)

    made = given(f"--cert-dir={tmp_path}", "--node-ip=192.0.2.1")
    nodeagent_listeners.tls_context(*made)
    files = [Path(name) for name in made[0].certificate_files(made[1])]
    assert {path.parent for path in files} == {tmp_path}
    first = [path.read_bytes() for path in files]
    nodeagent_listeners.tls_context(*made)
    assert [path.read_bytes() for path in files] == first
    assert oct(files[1].stat().st_mode & 0o777) == "0o600"


def test_versions_and_suites_are_the_configured_ones(tmp_path: Path) -> None:
    context = nodeagent_listeners.tls_context(
        *given(f"--cert-dir={tmp_path}", "--tls-min-version=VersionTLS13")
    )
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    context = nodeagent_listeners.tls_context(
        *given(f"--cert-dir={tmp_path}", f"--tls-cipher-suites={suite}")
    )
    names = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert names == {"ECDHE-ECDSA-AES256-GCM-SHA384"}
    with pytest.raises(SetupError, match="RC4"):
        nodeagent_listeners.tls_context(*given(f"--cert-dir={tmp_path}", "--tls-cipher-suites=RC4"))


PORTS = [
    ((), ["healthz"]),
    (("--healthz-port=0",), []),
    (("--read-only-port=10255",), ["healthz", "read-only"]),
]


@pytest.mark.parametrize(("flags", "names"), PORTS)
async def test_the_read_only_port_is_off_and_health_on_by_default(
    unserved: Agent, tmp_path: Path, flags: tuple[str, ...], names: list[str]
) -> None:
    parsed, config = given(f"--cert-dir={tmp_path}", *flags)
    tls = nodeagent_listeners.read_tls(parsed, config)
    listeners = nodeagent_listeners.build_listeners(parsed, config, unserved.services, tls)
    assert [one.name for one in listeners.plain] == names


async def test_tls_files_are_watched_from_the_moment_they_are_read(
    unserved: Agent, tmp_path: Path, pki: Pki
) -> None:
    ca = tmp_path / "ca"
    ca.write_text(Path(pki.ca_file).read_text())
    parsed, config = given(f"--cert-dir={tmp_path}", f"--client-ca-file={ca}")
    tls = nodeagent_listeners.read_tls(parsed, config)
    listeners = nodeagent_listeners.build_listeners(parsed, config, unserved.services, tls)
    await listeners.renewal.step()
    assert listeners.renewal.renewals == 0, "the agent's own certificate is the one it made"
    ca.write_text(f"{ca.read_text()}\n")
    listeners = nodeagent_listeners.build_listeners(parsed, config, unserved.services, tls)
    await listeners.renewal.step()
    assert listeners.renewal.renewals == 1


def routes(app: Any) -> set[tuple[str, str]]:
    return {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD"
    }


async def test_the_read_only_port_only_reads_and_shows_no_settings(unserved: Agent) -> None:
    assert routes(read_only_app(unserved.services)) == {
        ("GET", "/pressure"),
        ("GET", "/stats/summary"),
        ("GET", "/metrics"),
        ("GET", "/metrics/resource"),
        ("GET", "/metrics/containerstats"),
        ("GET", "/metrics/cadvisor"),
        ("GET", "/metrics/probes"),
        ("GET", "/metrics/slis"),
        ("GET", "/pods"),
        ("GET", "/healthz"),
        ("GET", "/healthz/{check}"),
    }


async def test_no_port_without_authentication_has_a_checkpoint_route(
    unserved: Agent, tmp_path: Path, free_port: Any
) -> None:
    parsed, config = given(
        f"--cert-dir={tmp_path}",
        "--address=127.0.0.1",
        f"--port={free_port()}",
        f"--healthz-port={free_port()}",
        f"--read-only-port={free_port()}",
    )
    tls = nodeagent_listeners.read_tls(parsed, config)
    listeners = nodeagent_listeners.build_listeners(parsed, config, unserved.services, tls)
    assert await listeners.start() == config.port
    try:
        async with aiohttp.ClientSession() as session:
            for port in (config.healthzPort, config.readOnlyPort):
                url = f"http://127.0.0.1:{port}/checkpoint/shop/web/app"
                async with session.post(url) as response:
                    assert response.status == 404
            async with session.get(f"http://127.0.0.1:{config.readOnlyPort}/pods") as response:
                assert response.status == 200
    finally:
        await listeners.stop()
    assert unserved.runtime.called("checkpoint_container") == []


def test_two_ports_cannot_share_a_number() -> None:
    with pytest.raises(Exception, match="readOnlyPort 10250 is used by another port"):
        given("--read-only-port=10250")

"""The CIS rows of docs/hardening.md: a test each, and a row for each test."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent import listeners as nodeagent_listeners
from nodeagent.certificates import joining
from nodeagent.config import options
from nodeagent.config.load import load_config
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.doctor.examination import examine_configuration
from orch.component.diagnostics.findings import Finding
from orch.component.process import clock
from orch.component.process.daemon import SetupError
from tests.conftest import Pki
from tests.fakes.agent import ADMIN, Agent

PAGE = Path(__file__).parents[2] / "docs" / "hardening.md"
DEFAULTS = NodeAgentConfiguration()


def findings(tmp_path: Path, *flags: str) -> list[Finding]:
    """What `config validate --host` says of these flags."""
    given = options.parse(
        [
            f"--root-dir={tmp_path}/root",
            f"--lock-file={tmp_path}/lock",
            f"--pod-logs-dir={tmp_path}/logs",
            "--container-runtime-endpoint=",
            *flags,
        ]
    )
    config = load_config(given.config, None, given.overrides)
    return examine_configuration(given, config, clock.utc_now())


def said(found: list[Finding], check: str) -> list[str]:
    return [one.message for one in found if one.check == check and one.verdict in ("warn", "note")]


def file_of(path: Path, mode: int, text: str = "") -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_every_row_has_a_test_and_every_test_a_row() -> None:
    rows = set(re.findall(r"^\| (4\.\d+\.\d+) \|", PAGE.read_text(), re.M))
    tested = {".".join(name.split("_")[2:5]) for name in globals() if name.startswith("test_cis_")}
    assert rows == tested


@pytest.mark.parametrize(("mode", "complains"), [(0o600, False), (0o640, True), (0o644, True)])
def test_cis_4_1_5_a_client_configuration_others_can_read_is_reported(
    tmp_path: Path, mode: int, complains: bool
) -> None:
    path = file_of(tmp_path / "kubeconfig", mode, "clusters: 1")
    assert bool(said(findings(tmp_path, f"--kubeconfig={path}"), "kubeconfig file")) is complains


@pytest.mark.parametrize(("mode", "complains"), [(0o644, False), (0o664, True), (0o646, True)])
def test_cis_4_1_7_a_client_ca_others_can_write_is_reported(
    tmp_path: Path, mode: int, complains: bool
) -> None:
    path = file_of(tmp_path / "ca.crt", mode)
    assert bool(said(findings(tmp_path, f"--client-ca-file={path}"), "client CA file")) is complains


@pytest.mark.parametrize(("mode", "complains"), [(0o600, False), (0o644, True)])
def test_cis_4_1_9_a_configuration_others_can_read_is_reported(
    tmp_path: Path, mode: int, complains: bool
) -> None:
    head = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
    path = file_of(tmp_path / "agent.yaml", mode, head)
    assert bool(said(findings(tmp_path, f"--config={path}"), "configuration file")) is complains


def without_a_file() -> NodeAgentConfiguration:
    """Started by flags alone: no looser than with a file."""
    return load_config(None, None, options.parse([]).overrides)


@pytest.mark.parametrize("config", [DEFAULTS, without_a_file()])
def test_cis_4_2_1_anonymous_callers_are_off(config: NodeAgentConfiguration) -> None:
    assert config.authentication.anonymous.enabled is False


@pytest.mark.parametrize("config", [DEFAULTS, without_a_file()])
def test_cis_4_2_2_authorization_asks(config: NodeAgentConfiguration) -> None:
    assert config.authorization.mode == "Webhook"


def test_cis_4_2_3_a_missing_client_ca_is_reported(tmp_path: Path) -> None:
    told = said(findings(tmp_path), "hardening")
    assert any("there is no client CA" in text for text in told)
    ca_file = file_of(tmp_path / "ca.crt", 0o644)
    told = said(findings(tmp_path, f"--client-ca-file={ca_file}"), "hardening")
    assert not any("client CA" in text for text in told)


@pytest.mark.parametrize("config", [DEFAULTS, without_a_file()])
def test_cis_4_2_4_there_is_no_read_only_port(config: NodeAgentConfiguration) -> None:
    assert config.readOnlyPort == 0


@pytest.mark.parametrize("config", [DEFAULTS, without_a_file()])
def test_cis_4_2_5_a_stream_that_carries_nothing_ends(config: NodeAgentConfiguration) -> None:
    assert 0 < config.streamingConnectionIdleTimeout <= 4 * 3600


def test_cis_4_2_7_a_hostname_override_is_reported(tmp_path: Path) -> None:
    told = said(findings(tmp_path, "--hostname-override=n1"), "hardening")
    assert any("--hostname-override" in text for text in told)


def context_of(tmp_path: Path, *flags: str) -> ssl.SSLContext:
    given = options.parse([f"--cert-dir={tmp_path}/pki", *flags])
    return nodeagent_listeners.tls_context(given, load_config(None, None, given.overrides))


def test_cis_4_2_9_a_serving_certificate_is_created_with_a_private_key(tmp_path: Path) -> None:
    context_of(tmp_path)
    made = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "pki").iterdir()}
    assert made == {"nodeagent.crt": "0o644", "nodeagent.key": "0o600"}


def test_cis_4_2_10_a_machine_that_joins_renews_its_certificate(tmp_path: Path) -> None:
    place = joining.Place(tmp_path, tmp_path / "pki")
    joining.write_settings(joining.Cluster("https://server:6443", b"", "n1"), place)
    config = load_config(None, place.drop_in.parent, options.parse([]).overrides)
    assert config.rotateCertificates and config.serverTLSBootstrap


async def test_cis_4_2_11_a_new_certificate_is_shown_and_no_request_fails(
    unserved: Agent, pki: Pki, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def install() -> bytes:
        pair = pki.server()
        shutil.copyfile(pair.cert_file, cert)
        shutil.copyfile(pair.key_file, key)
        return ssl.PEM_cert_to_DER_cert(first_certificate(cert))

    first = install()
    given = options.parse(
        [
            f"--tls-cert-file={cert}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={pki.ca_file}",
            "--address=127.0.0.1",
            f"--port={free_port()}",
            "--healthz-port=0",
        ]
    )
    config = load_config(None, None, given.overrides)
    tls = nodeagent_listeners.read_tls(given, config)
    listeners = nodeagent_listeners.build_listeners(given, config, unserved.services, tls)
    unserved.port = await listeners.start()
    try:
        await listeners.renewal.step()
        async with unserved.session(ADMIN) as ask:
            assert (await ask("GET", "/metrics")).status == 200
            assert await shown(unserved.port) == first
            second = install()
            await listeners.renewal.step()
            assert (await ask("GET", "/metrics")).status == 200
            assert await shown(unserved.port) == second != first
    finally:
        await listeners.stop()


def first_certificate(path: Path) -> str:
    text, end, _ = path.read_text().partition("-----END CERTIFICATE-----\n")
    return text + end


async def shown(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
        return found
    finally:
        writer.close()
        await writer.wait_closed()


STRONG = re.compile(r"(ECDHE-(ECDSA|RSA)-(AES(128|256)-GCM-SHA\d+|CHACHA20-POLY1305))|TLS_.*")


def test_cis_4_2_12_only_strong_suites_are_spoken(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    names = [cipher["name"] for cipher in context.get_ciphers()]
    assert names and all(STRONG.fullmatch(name) for name in names), names
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    for weak in ("TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"):
        with pytest.raises(SetupError, match=weak):
            context_of(tmp_path, f"--tls-cipher-suites={weak}")


def test_cis_4_2_13_pods_without_a_limit_on_process_ids_are_reported(tmp_path: Path) -> None:
    assert any("process ids" in text for text in said(findings(tmp_path), "hardening"))


def test_cis_4_2_14_pods_without_a_profile_are_reported(tmp_path: Path) -> None:
    told = said(findings(tmp_path), "hardening")
    assert any("seccomp" in text for text in told)
    told = said(findings(tmp_path, "--seccomp-default=true"), "hardening")
    assert not any("seccomp" in text for text in told)

"""The CIS rows of docs/hardening.md for API server and controller manager: a test each."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from orch.component.http import httpd
from orch.component.http.httpd import HttpServer, server_context
from orch.lifecycle import options as controller
from orch.server import flags
from orch.server.flags import Flags
from orch.server.nodes.proxy import AgentTls
from tests import conftest
from tests.orch.server.harness import LEASES, MERGE, NODES, PODS, Api, Pki, lease, node

PAGE = Path(__file__).parents[3] / "docs" / "hardening.md"


@pytest.fixture
def default() -> Flags:
    """What the server runs with when nothing is said that need not be."""
    return flags.parse(["--tls-cert-file=c", "--tls-private-key-file=k"])


def test_every_row_has_a_test_and_every_test_a_row() -> None:
    rows = set(re.findall(r"^\| (1\.\d+\.\d+) \|", PAGE.read_text(), re.M))
    tested = {".".join(name.split("_")[2:5]) for name in globals() if name.startswith("test_cis_")}
    assert rows == tested


async def test_cis_1_2_1_without_credentials_there_is_health_and_nothing_else(api: Api) -> None:
    for path in (PODS, NODES, "/metrics", "/apis", "/configz", "/no/such"):
        assert (await api.call("GET", path, user=None)).status == 401, path
    assert (await api.call("GET", "/healthz", user=None)).status == 200


def test_cis_1_2_2_there_is_no_file_of_tokens(default: Flags) -> None:
    assert (default.auth.token_file, default.auth.password_file) == (None, None)


async def test_cis_1_2_4_agents_are_shown_a_certificate(pki: conftest.Pki) -> None:
    async def who(request: web.Request) -> web.Response:
        identity = httpd.current_peer(request)
        return web.Response(text=identity.name if identity else "nobody")

    app = web.Application()
    app.router.add_get("/", who)
    pair, own = pki.server(), pki.client("system:apiserver")
    context = server_context(pair.cert_file, pair.key_file, client_ca_file=pki.ca_file)
    agent = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="agent")
    port = await agent.start()
    shown = AgentTls(pki.ca_file, own.cert_file, own.key_file).context()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://localhost:{port}/", ssl=shown or True) as answer,
        ):
            assert await answer.text() == "system:apiserver"
    finally:
        await agent.stop(1.0)


def test_cis_1_2_5_agents_have_to_prove_who_they_are(pki: conftest.Pki) -> None:
    context = AgentTls(pki.ca_file, None, None).context()
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert AgentTls(None, None, None).context() is None  # then nothing is proxied


def test_cis_1_2_6_not_everything_is_allowed(default: Flags) -> None:
    assert "AlwaysAllow" not in default.auth.modes


def test_cis_1_2_7_nodes_are_authorized_as_such(default: Flags) -> None:
    assert "Node" in default.auth.modes


def test_cis_1_2_8_roles_decide(default: Flags) -> None:
    assert "RBAC" in default.auth.modes


async def test_cis_1_2_14_a_node_changes_its_own_objects_only(api: Api) -> None:
    for name in ("n1", "n2"):
        assert (await api.call("POST", NODES, node(name), user=name)).status == 201
        assert (await api.call("POST", LEASES, lease(name), user=name)).status == 201
    label = {"metadata": {"labels": {"a": "b"}}}
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    wanted = [
        (f"{NODES}/n1", label, 200), (f"{NODES}/n1", taint, 403), (f"{NODES}/n2", label, 403),
        (f"{LEASES}/n1", label, 200), (f"{LEASES}/n2", label, 403),
    ]  # fmt: skip
    for path, patch, status in wanted:
        answer = await api.call("PATCH", path, patch, user="n1", content_type=MERGE)
        assert answer.status == status, (path, patch)


async def test_cis_1_2_15_there_is_nothing_to_profile_with(api: Api) -> None:
    for path in ("/debug/pprof", "/debug/pprof/profile", "/debug/flags/v"):
        assert (await api.call("GET", path)).status == 404


def test_cis_1_2_17_the_audit_log_is_kept_for_30_days() -> None:
    assert audited().audit.rotation.max_days >= 30


def test_cis_1_2_18_ten_of_its_files_are_kept() -> None:
    assert audited().audit.rotation.max_files >= 10


def test_cis_1_2_19_of_100_mebibytes() -> None:
    assert audited().audit.rotation.max_bytes >= 100 * 1024 * 1024


def audited() -> Flags:
    """The same with an audit log."""
    required = ["--tls-cert-file=c", "--tls-private-key-file=k"]
    return flags.parse([*required, "--audit-policy-file=p", "--audit-log-path=l"])


def test_cis_1_2_20_a_request_ends(default: Flags) -> None:
    assert 0 < default.limits.timeout_s <= 300


def test_cis_1_2_24_there_is_no_serving_without_tls(capsys: pytest.CaptureFixture[str]) -> None:
    for missing in (["--tls-cert-file=c"], ["--tls-private-key-file=k"], []):
        with pytest.raises(SystemExit):
            flags.parse(missing)
    assert "--tls-cert-file" in capsys.readouterr().err


async def test_cis_1_2_25_a_client_is_who_the_client_ca_says(api: Api) -> None:
    assert (await api.call("GET", NODES, user="admin")).status == 200
    assert (await api.call("GET", NODES, user="stranger")).status == 403


def test_cis_1_2_29_only_strong_suites_are_spoken(server_pki: Pki) -> None:
    pair = server_pki.server
    context = server_context(pair.cert_file, pair.key_file, client_ca_file=None)
    strong = re.compile(r"ECDHE-(ECDSA|RSA)-(AES(128|256)-GCM-SHA\d+|CHACHA20-POLY1305)|TLS_.*")
    names = [cipher["name"] for cipher in context.get_ciphers()]
    assert names and [name for name in names if not strong.fullmatch(name)] == []
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_cis_1_3_2_the_controller_has_nothing_to_profile_with() -> None:
    """That its port has not either: test_zpages_of_programs.py."""
    assert "profil" not in controller.parser().format_help()


def test_cis_1_3_7_the_controller_binds_loopback() -> None:
    assert controller.parse(["--kubeconfig=x"]).bind_address == "127.0.0.1"

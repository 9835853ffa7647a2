"""The certificates that the agent's doctor looks at."""

from pathlib import Path

from nodeagent.config import options
from nodeagent.config.load import load_config
from nodeagent.doctor.gather import read_certificates
from orch.client.kubeconfig import ClientConfig
from orch.component.diagnostics.certificate_findings import CertificateFacts
from tests.conftest import Pki


def read(*argv: str, api: ClientConfig | None = None) -> dict[str, CertificateFacts]:
    given = options.parse(argv)
    found = read_certificates(given, load_config(None, None, given.overrides), api)
    return {facts.role: facts for facts in found}


def test_a_valid_pair_has_an_expiry(pki: Pki) -> None:
    pair = pki.server()
    Path(pair.key_file).chmod(0o600)
    found = read(
        f"--tls-cert-file={pair.cert_file}",
        f"--tls-private-key-file={pair.key_file}",
        f"--client-ca-file={pki.ca_file}",
    )
    assert list(found) == ["serving", "client CA"]
    for facts in found.values():
        assert facts.not_after is not None
        assert (facts.problem, facts.exposed_key) == ("", "")


def test_a_certificate_the_agent_will_create_is_not_a_problem(tmp_path: Path) -> None:
    facts = read(f"--cert-dir={tmp_path}")["serving"]
    assert (facts.path, facts.not_after, facts.problem) == (f"{tmp_path}/nodeagent.crt", None, "")


def test_the_credential_for_the_api_server_is_checked(pki: Pki) -> None:
    pair = pki.client("system:node:a", "system:nodes")
    files = ClientConfig(
        "https://x", ca_file=pki.ca_file, cert_file=pair.cert_file, key_file=pair.key_file
    )
    assert list(read(api=files)) == ["serving", "API server CA", "API client"]
    data = ClientConfig("https://x", cert_data=Path(pair.cert_file).read_bytes())
    assert read(api=data)["API client"].not_after is not None

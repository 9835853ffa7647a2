import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch.client.kubeconfig import ClientConfig, load_kubeconfig, write_kubeconfig
from orch.component.process.daemon import SetupError
from tests.examples import examples

# As `kubectl config` writes one.
USUAL = """\
apiVersion: v1
kind: Config
preferences: {}
clusters:
- cluster:
    certificate-authority-data: Q0E=
    server: https://10.0.0.1:6443/
  name: prod
- cluster:
    certificate-authority: pki/ca.pem
    server: https://127.0.0.1:6443
    tls-server-name: api.example
  name: local
contexts:
- context: {cluster: prod, user: admin, namespace: web}
  name: admin@prod
- context: {cluster: local, user: node}
  name: local
- context: {cluster: local, user: ""}
  name: nobody
current-context: admin@prod
users:
- name: admin
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
- name: node
  user:
    client-certificate: pki/node.pem
    client-key: /etc/pki/node.key
    tokenFile: token
"""


@pytest.fixture
def usual(tmp_path: Path) -> str:
    return written(tmp_path, USUAL)


def written(folder: Path, text: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(text)
    return str(path)


def test_the_current_context_is_read(usual: str) -> None:
    assert load_kubeconfig(usual) == ClientConfig(
        server="https://10.0.0.1:6443",
        ca_data=b"CA",
        cert_data=b"CERT",
        key_data=b"KEY",
        namespace="web",
    )


def test_a_named_context_is_read_and_paths_are_relative_to_the_file(
    usual: str, tmp_path: Path
) -> None:
    assert load_kubeconfig(usual, "local") == ClientConfig(
        server="https://127.0.0.1:6443",
        ca_file=str(tmp_path / "pki/ca.pem"),
        cert_file=str(tmp_path / "pki/node.pem"),
        key_file="/etc/pki/node.key",
        token_file=str(tmp_path / "token"),
        tls_server_name="api.example",
    )


def test_a_context_without_a_user_has_no_credentials(usual: str) -> None:
    config = load_kubeconfig(usual, "nobody")
    assert (config.cert_file, config.token, config.username) == ("", "", "")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("current-context: admin@prod", "", "current-context is empty and no context was named"),
        ("current-context: admin@prod", "current-context: x", "contexts has no entry named 'x'"),
        (
            "cluster: prod, user",
            "cluster: gone, user",
            "clusters has no entry named 'gone': it has ",
        ),
        ("cluster: prod, user", "cluster: prd, user", "named 'prd': did you mean 'prod'?"),
        ("user: admin, n", "user: gone, n", "users has no entry named 'gone'"),
        ("cluster: prod, user", "user", r"contexts\[admin@prod\].cluster is missing"),
        (
            "server: https://10.0.0.1:6443/",
            "server: 10.0.0.1",
            r"clusters\[prod\].server '10.0.0.1' is not an http\(s\) URL",
        ),
        ("server: https://10.0.0.1:6443/", "server: 5", r"clusters\[prod\].server is not text"),
        ("Q0E=", "'%%'", r"clusters\[prod\].certificate-authority-data is not base64"),
        ("S0VZ", "S0V", r"users\[admin\].client-key-data is not base64"),
        ("client-key-data: S0VZ", "exec: {command: x}", "exec credential plugins are not"),
        (
            "certificate-authority-data: Q0E=",
            "insecure-skip-tls-verify: 'yes'",
            "insecure-skip-tls-verify is not true or false",
        ),
        ("- name: admin\n", "- name: admin\n  name: b\n", "name: the key is given twice"),
        ("users:\n- name: admin", "users:\n  name: admin", "kubeconfig"),
    ],
)
def test_what_does_not_fit_is_one_error_with_file_and_field(
    old: str, new: str, text: str, tmp_path: Path
) -> None:
    path = written(tmp_path, USUAL.replace(old, new, 1))
    with pytest.raises(SetupError, match=text) as caught:
        load_kubeconfig(path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "plain"])
def test_a_file_that_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is not a mapping"):
        load_kubeconfig(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SetupError, match="cannot read the kubeconfig /no/such: No such file"):
        load_kubeconfig("/no/such")


def test_secrets_are_not_shown(usual: str) -> None:
    config = replace(load_kubeconfig(usual), token="t0ken", password="passw0rd")
    for secret in ("KEY", "t0ken", "passw0rd"):
        assert secret not in repr(config)


MISTAKEN = (
    "token: [{}]", "token: {{a: {}}}", "token: !{}", "token: *{}", "token: @{}", 'token: "{}',
    "token: {}: x", "password: [{}]", "password: !!binary {}", "username: [{}]",
    "client-key-data: {}!", "client-key-data: [{}]", "client-certificate-data: {}!",
    "exec: {{env: [{{name: TOKEN, value: {}}}]}}",
    "auth-provider: {{config: {{access-token: {}}}}}",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
SECRETS = st.text(LETTERS, min_size=9).map("zQ7{}".format)  # never the name of a field


@settings(max_examples=examples(20), deadline=None)
@given(SECRETS)
def test_no_error_about_a_file_shows_a_credential(secret: str) -> None:
    head = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
    files = [
        f"clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\n"
        for server in (
            f"https://u:{secret}@h",
            f"u:{secret}@h:1",
            f"ftp://u:{secret}@h",
            f"https://u:a/{secret}@h",
        )
    ]
    server = "clusters: [{name: k, cluster: {server: 'https://h'}}]\n"
    users = (one.format(secret) for one in MISTAKEN)
    files += [f"{server}users:\n- name: u\n  user:\n    {user}\n" for user in users]
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        for text in files:
            path = written(Path(folder), head + text)
            with pytest.raises(SetupError) as caught:
                load_kubeconfig(path)
            shown.append(str(caught.value))
            assert path in shown[-1], text
    assert [text for text in shown if secret in text] == []


@pytest.mark.parametrize(
    "config",
    [
        ClientConfig(
            server="https://127.0.0.1:6443",
            ca_file="/pki/ca.pem",
            cert_file="/pki/a.pem",
            key_file="/pki/a.key",
        ),
        ClientConfig(
            server="https://h:1",
            ca_data=b"\x00CA",
            cert_data=b"CERT",
            key_data=b"KEY",
            token="on",
            namespace="x",
        ),
        ClientConfig(
            server="http://h:1",
            insecure=True,
            tls_server_name="n",
            token_file="/t",
            username="1:30",
            password="12e3",
        ),
    ],
    ids=["files", "data", "others"],
)
def test_what_is_written_is_read_back(config: ClientConfig, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(str(path), config, name="local")
    assert load_kubeconfig(str(path)) == config
    assert load_kubeconfig(str(path), "local") == config


def test_the_file_is_for_its_owner_alone_and_replaces_an_open_one(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.touch(mode=0o644)
    write_kubeconfig(str(path), ClientConfig(server="https://h:1", token="x"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["kubeconfig"]


def test_of_several_files_the_first_to_name_an_entry_wins(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "config").write_text(
        "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: ca.crt}}]\n"
        "current-context: x\n"
    )
    (tmp_path / "b" / "config").write_text(
        "clusters: [{name: c, cluster: {server: 'https://b'}}]\n"
        "users: [{name: u, user: {client-certificate: u.crt, client-key: /abs/u.key}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: y\n"
    )
    config = load_kubeconfig([str(tmp_path / "a" / "config"), str(tmp_path / "b" / "config")])
    assert config.server == "https://a"
    assert config.ca_file == str(tmp_path / "a" / "ca.crt")
    assert config.cert_file == str(tmp_path / "b" / "u.crt")
    assert config.key_file == "/abs/u.key"

"""No credential stands in what a command prints, however it fails and however much it shows."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl, Result, run_command

# Long enough that none stands in a message by chance; any printable text, and what HTTP forbids.
SECRETS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=12, max_size=40
).filter(lambda text: not text.startswith("-") and len(set(text)) > 5)
QUICK = settings(
    max_examples=examples(20), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
NOWHERE = ("-s", "http://127.0.0.1:1")
WORDS = [
    ("get", "pods"), ("get", "pods", "--bogus"), ("get", "pods", "-o", "xml"), ("frobnicate",),
    ("config", "view", "--minify"), ("config", "get-contexts"), ("auth", "can-i", "get", "pods"),
    ("version", "--client"), ("config", "use-context", "x"), ("delete", "pods"),
]  # fmt: skip


def hidden(result: Result, *secrets: str) -> None:
    """No secret is shown: as it is, encoded, or escaped."""
    shown = result.out + result.err
    assert "Traceback" not in shown
    for secret in secrets:
        forms = (secret, base64.b64encode(secret.encode()).decode(), json.dumps(secret)[1:-1])
        assert not any(form in shown for form in forms), shown


def written(folder: Path, user: dict[str, Any], server: str = "http://127.0.0.1:1") -> str:
    """A kubeconfig of one user of one server."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "config").write_text(json.dumps(config))
    return str(folder / "config")


@QUICK
@given(SECRETS, SECRETS, st.sampled_from(WORDS))
@example("line\nbreak-in-a-token", "carriage\rreturn in a password", ("get", "pods"))
def test_options_keep_their_secrets(token: str, password: str, words: tuple[str, ...]) -> None:
    hidden(run_command(*words, *NOWHERE, f"--token={token}", "-v"), token)
    hidden(
        run_command(*words, *NOWHERE, "--username", "jane", f"--password={password}", "-vv"),
        password,
    )


@QUICK
@given(SECRETS, SECRETS, SECRETS, st.sampled_from(WORDS))
def test_a_kubeconfig_keeps_its_secrets(
    tmp_path: Path, token: str, password: str, key: str, words: tuple[str, ...]
) -> None:
    user = {
        "token": token, "password": password, "username": "jane",
        "client-certificate-data": "bm90IHBlbQ==",
        "client-key-data": base64.b64encode(key.encode()).decode(),
        "exec": None,
    }  # fmt: skip
    path = written(tmp_path, user, "https://127.0.0.1:1")
    hidden(run_command(*words, "--kubeconfig", path, "-v"), token, password, key)


@pytest.mark.parametrize("field", ["token", "password", "client-key-data", "tokenFile"])
@pytest.mark.parametrize("value", [["a-secret-in-a-list"], {"a-secret-key": "x"}, "%%a-secret%%"])
def test_a_field_of_the_wrong_type_is_named_and_not_quoted(
    tmp_path: Path, field: str, value: Any
) -> None:
    path = written(tmp_path, {field: value})
    result = run_command("get", "pods", "--kubeconfig", path)
    assert result.code == 1
    if field == "tokenFile" and isinstance(value, str):  # the name of a file is no secret
        assert f"cannot read the token file {tmp_path}/{value}: No such file" in result.err
    else:
        hidden(result, "a-secret")


@QUICK
@given(SECRETS, st.sampled_from(WORDS))
@example("line\nbreak-in-a-token", ("get", "pods"))
def test_what_is_in_a_token_file_is_not_shown(
    tmp_path: Path, secret: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "token").write_text(secret, encoding="utf-8")
    path = written(tmp_path, {"tokenFile": "token"})
    hidden(run_command(*words, "--kubeconfig", path, "-v"), secret)


async def test_a_token_file_is_sent_and_not_shown(
    orchctl: Orchctl, refusals: HttpApi, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("super-secret-token\n")
    path = written(tmp_path, {"tokenFile": "token"}, refusals.url)
    result = await orchctl("get", "pods", "--kubeconfig", path, "-v")
    assert refusals.requests[-1].headers["Authorization"] == "Bearer super-secret-token"
    assert "401 in" in result.err
    hidden(result, "super-secret-token")


@pytest.fixture
def refusals(api: HttpApi) -> Iterator[HttpApi]:
    api.answers["GET", "/api/v1"] = Answer("no", 401)
    yield api


async def test_a_refusal_does_not_repeat_what_was_sent(orchctl: Orchctl, refusals: HttpApi) -> None:
    result = await orchctl("get", "pods", "--token", "super-secret-token", "-v")
    assert refusals.requests[-1].headers["Authorization"] == "Bearer super-secret-token"
    assert "401 in" in result.err
    hidden(result, "super-secret-token")


def test_credentials_in_an_address_are_refused_and_not_shown(tmp_path: Path) -> None:
    address = "http://jane:super-secret@127.0.0.1:1"
    result = run_command("get", "pods", "-s", address, "-v")
    assert (result.code, "--server holds credentials" in result.err) == (2, True)
    hidden(result, "super-secret")
    result = run_command("get", "pods", "--kubeconfig", written(tmp_path, {}, address))
    assert (result.code, "clusters[c].server holds credentials" in result.err) == (1, True)
    hidden(result, "super-secret")


def test_a_misspelt_option_does_not_show_its_value() -> None:
    hidden(run_command("get", "pods", "--tokne=super-secret"), "super-secret")
    hidden(run_command("--tokne=super-secret", "get", "pods"), "super-secret")

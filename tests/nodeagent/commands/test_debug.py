"""`nodeagent debug bundle` as it is run, and that nothing secret is ever shown: a law over all.

Secrets are put into every secret field, the right way and the wrong way; pages, views, errors, logs
and the archive are searched for them.
"""

from __future__ import annotations

import json
import logging
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.commands import debug
from nodeagent.commands.dispatch import dispatch
from nodeagent.config import show
from nodeagent.config.current import digest_of
from nodeagent.config.layers import ConfigError, read_layers
from nodeagent.config.load import effective
from nodeagent.config.origin import leaves
from nodeagent.config.types import NodeAgentConfiguration
from orch.component.diagnostics.findings import note
from tests.examples import examples

HEAD = {"apiVersion": "nodeagent.config.orch.io/v1beta1", "kind": "NodeAgentConfiguration"}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
SECRETS = st.text(LETTERS, min_size=9).map("zQ7{}".format)  # never the name of a field


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {one.name: (tar.extractfile(one) or tar).read() for one in tar}  # type: ignore[union-attr]


def test_one_archive_has_everything(
    tmp_path: Path, free_port: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path, log = tmp_path / "b.tar.gz", tmp_path / "agent.log"
    log.write_text("a line\n")
    flags = [
        f"--output={path}", f"--log-file={log}", f"--root-dir={tmp_path}/root",
        f"--lock-file={tmp_path}/lock", f"--port={free_port()}", f"--healthz-port={free_port()}",
        "--container-runtime-endpoint=",
    ]  # fmt: skip
    assert dispatch(["debug", "bundle", *flags]) == 0
    assert str(path) in capsys.readouterr().out
    found = {name.removeprefix("nodeagent-debug/"): body for name, body in members(path).items()}
    assert {"about.json", "configuration.yaml", "doctor.json", "log.txt"} <= set(found)
    assert json.loads(found["about.json"])["configurationProblem"] == ""
    assert json.loads(found["doctor.json"])["findings"]
    assert found["log.txt"] == b"a line\n"
    assert not (tmp_path / "root").exists() and not (tmp_path / "lock").exists()


def test_a_file_that_is_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_text("x")
    assert dispatch(["debug", "bundle", f"--output={path}"]) == 1
    assert capsys.readouterr().err == (
        f"nodeagent debug: error: cannot write {path}: File exists\n"
    )


# ---- nothing secret is shown


def documents(secret: str) -> Iterator[dict[str, Any]]:
    """The secret in every field that may hold one."""
    yield {"staticPodURLHeader": {"Authorization": [f"Bearer {secret}"]}}
    yield {"staticPodURLHeader": {"X-Token": ["a", secret]}}
    yield {"staticPodURL": f"https://user:{secret}@pods.example/list"}
    yield {"staticPodURL": f"https://pods.example/list?token={secret}"}


def mistaken(secret: str) -> Iterator[str]:
    """Files in which it stands the wrong way."""
    yield yaml.safe_dump({**HEAD, "staticPodURLHeader": {"Authorization": f"Bearer {secret}"}})
    yield yaml.safe_dump({**HEAD, "staticPodURLHeader": {"Authorization": [secret, 7]}})
    yield yaml.safe_dump({**HEAD, "staticPodURLHeader": [secret]})
    yield yaml.safe_dump({**HEAD, "staticPodURL": [f"https://u:{secret}@h/"]})
    for sign in "!*&@%`|>{[":
        yield yaml.safe_dump(HEAD) + f"staticPodURLHeader:\n  A: [{sign}{secret}]\n  B: [\n"
    yield yaml.safe_dump(HEAD) + f"staticPodURLHeader:\n  A: [{secret}\n"
    yield yaml.safe_dump(HEAD) + f'staticPodURLHeader:\n  A: ["{secret}]\n'
    yield yaml.safe_dump(HEAD) + f"staticPodURLHeader: {{A: [{secret}]}}\nport: x\n"


def texts_of(path: Path) -> Iterator[str]:
    """Every form in which a configuration is shown."""
    layers = read_layers(str(path), None)
    config = effective(layers)
    record = config.model_dump(mode="json")
    found = leaves(record, layers)
    yield show.as_yaml(found, origins=True)
    yield show.as_json(record)
    yield show.origins_as_json(found)
    yield json.dumps({"nodeagentconfig": record})
    yield f"{config!r} {config}" if not config.staticPodURL else ""
    yield digest_of(config)


@settings(max_examples=examples(25), deadline=None)
@given(secret=SECRETS)
def test_no_view_of_a_configuration_shows_a_secret(secret: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "agent.yaml")
        for document in documents(secret):
            path.write_text(yaml.safe_dump({**HEAD, **document}))
            assert not [text for text in texts_of(path) if secret in text]


@settings(max_examples=examples(25), deadline=None)
@given(secret=SECRETS)
def test_no_error_about_a_configuration_shows_a_secret(secret: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "agent.yaml")
        for text in mistaken(secret):
            path.write_text(text)
            with pytest.raises(ConfigError) as caught:
                effective(read_layers(str(path), None))
            assert secret not in str(caught.value), text


@pytest.mark.slow
@settings(
    max_examples=examples(5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(secret=SECRETS)
def test_no_file_of_the_archive_holds_a_secret(
    secret: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when a page, a finding or the log lets it slip."""

    async def pages(_target: object) -> list[tuple[str, bytes]]:
        return [("pages/metrics.txt", f"x{{a={secret!r}}} 1".encode())]

    monkeypatch.setattr(debug, "page_entries", pages)
    monkeypatch.setattr(debug, "examine", lambda *_: [note("x", f"saw {secret}", "hide it")])
    caplog.set_level(logging.DEBUG)
    with tempfile.TemporaryDirectory() as folder:
        config, log = Path(folder, "agent.yaml"), Path(folder, "log")
        for number, document in enumerate(documents(secret)):
            config.write_text(yaml.safe_dump({**HEAD, **document}))
            log.write_text(
                f"GET https://user:{secret}@pods.example/?token={secret} Bearer {secret}\n"
            )
            path = Path(folder, f"{number}.tar.gz")
            flags = [f"--output={path}", f"--log-file={log}", f"--config={config}"]
            assert dispatch(["debug", "bundle", *flags]) == 0
            shown = {name for name, body in members(path).items() if secret.encode() in body}
            assert shown == set()
    assert secret not in caplog.text


def test_every_secret_field_is_among_those_tried() -> None:
    """A new field of the type Secret needs a line in `documents`."""
    schema = NodeAgentConfiguration.model_fields
    declared = {name for name, field in schema.items() if "Secret" in str(field.annotation)}
    tried = {name for document in documents("s") for name in document}
    assert declared <= tried

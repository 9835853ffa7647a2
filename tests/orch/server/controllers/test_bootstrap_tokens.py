"""The first token of a cluster, and the end of those whose time is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orch.component.process.daemon import SetupError
from orch.server.controllers import bootstrap_tokens
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.document import Document
from orch.server.objects.options import WriteOptions
from orch.wire.bootstrap_tokens import secret_of
from tests.orch.server.conftest import NOW
from tests.orch.server.objects.places import made, place, read

TOKEN = "abcdef.0123456789abcdef"


async def put(backend: Backend, secret: Document) -> None:
    await create(backend, place("Secret", namespace="orch-system"), secret, WriteOptions())


async def test_a_token_goes_when_its_time_is_over(backend: Backend) -> None:
    await made(backend, "Namespace", {"metadata": {"name": "orch-system"}})
    soon, later = NOW + timedelta(minutes=1), NOW + timedelta(hours=1)
    await bootstrap_tokens.make_first(backend, TOKEN, soon)
    await bootstrap_tokens.make_first(backend, TOKEN, soon)  # at the next start
    for token, end in (("bbbbbb.0123456789abcdef", later), ("cccccc.0123456789abcdef", None)):
        await put(backend, secret_of(token, end))
    other = {"metadata": {"name": "bootstrap-token-x", "namespace": "orch-system"}}
    await put(backend, {**other, "stringData": {"expiration": "2000-01-01T00:00:00Z"}})
    then = replace(backend, now=lambda: NOW + timedelta(minutes=2))
    await bootstrap_tokens.expire_tokens(backend)
    kept = {name: read(backend, place("Secret", f"bootstrap-token-{name}", namespace="orch-system"))
            for name in ("abcdef", "bbbbbb", "cccccc", "x")}  # fmt: skip
    assert all(kept.values())
    await bootstrap_tokens.expire_tokens(then)
    kept = {name: read(backend, place("Secret", f"bootstrap-token-{name}", namespace="orch-system"))
            for name in kept}  # fmt: skip
    assert [name for name, one in kept.items() if one] == ["bbbbbb", "cccccc", "x"]
    await bootstrap_tokens.make_first(then, TOKEN, soon)
    assert read(backend, place("Secret", "bootstrap-token-abcdef", namespace="orch-system")) is None


def test_a_file_may_say_that_there_is_no_first_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("none\n")
    assert bootstrap_tokens.read_first(file) is None


@pytest.mark.parametrize("text", ["", TOKEN, f"{TOKEN} soon", "x 2026-01-01T00:00:00Z", "\xff"])
def test_a_file_that_holds_no_token_is_named_without_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(SetupError, match=r"has to be a token and the time") as caught:
        bootstrap_tokens.read_first(file)
    assert TOKEN not in str(caught.value)
    with pytest.raises(SetupError, match="cannot read the bootstrap token"):
        bootstrap_tokens.read_first(tmp_path / "absent")

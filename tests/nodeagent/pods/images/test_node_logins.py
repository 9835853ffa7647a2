"""K:pkg/credentialprovider/config_test.go, of the file in the agent's root directory."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from nodeagent.pods.images import keyring
from nodeagent.pods.images.node_logins import NodeLogins

HOST, IMAGE = "registry.example.com:5000", "registry.example.com:5000/team/app:1"


def written(path: Path, **passwords: str) -> None:
    """A file with a login for HOST for each user."""
    auths = {
        f"{HOST}{'/team' * number}": {
            "auth": base64.b64encode(f"{user}:{password}".encode()).decode()
        }
        for number, (user, password) in enumerate(passwords.items())
    }
    path.write_text(json.dumps({"auths": auths, "credsStore": "ignored"}))


async def found(logins: NodeLogins, image: str = IMAGE) -> list[tuple[str, str]]:
    return [(user, password.reveal()) for user, password in await logins.logins(image)]


async def test_the_file_is_read_for_each_pull(tmp_path: Path) -> None:
    logins, path = NodeLogins(str(tmp_path)), tmp_path / "config.json"
    assert await found(logins) == []
    written(path, host="1", team="2")
    assert await found(logins) == [("team", "2"), ("host", "1")]
    assert await found(logins, f"{HOST}/other") == [("host", "1")]
    assert await found(logins, "other.example.com/team/app") == []
    written(path, host="3")
    assert await found(logins) == [("host", "3")]
    path.unlink()
    assert await found(logins) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"s3cret", "config.json is not JSON"),
        (b"[]", "config.json has no map of registries"),
        (b'{"auths": {"registry.example.com:5000": {"auth": "s3cret!"}}}', "not base64 of user"),
        (b" " * keyring.CONTENT_BYTES + b"{}", "larger than"),
    ],
)
async def test_a_file_that_cannot_be_understood_is_logged_once_and_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, said: str
) -> None:
    caplog.set_level("INFO")
    logins, path = NodeLogins(str(tmp_path)), tmp_path / "config.json"
    path.write_bytes(content)
    for _ in range(2):
        assert await found(logins) == []
    [line] = caplog.messages
    assert said in line
    assert str(path) in line
    assert "s3cret" not in line
    written(path, host="1")
    assert await found(logins) == [("host", "1")]
    assert caplog.messages[1].startswith(f"{path} is read again")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
async def test_what_is_no_file_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: object
) -> None:
    assert callable(make)
    make(tmp_path / "config.json")
    assert await found(NodeLogins(str(tmp_path))) == []
    assert len(caplog.messages) == 1

from __future__ import annotations

from pathlib import Path

import pytest

from orch.component.process.daemon import SetupError
from orch.server.authn.credential_files import read_tokens
from orch.server.authn.tokens import Holder
from orch.wire.records.authentication import Identity

FILE = """\
t1,ann,1
t2, bob, 2, "devs, ops"

,nobody,3
t3,old,4
t3,new,5
"""


def test_each_line_is_a_token_and_the_last_of_two_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """K:token/tokenfile/tokenfile_test.go."""
    path = tmp_path / "tokens.csv"
    path.write_text(FILE)
    authenticate = read_tokens(path)
    assert authenticate("t1") == Holder(Identity("ann", (), "1"))
    assert authenticate("t2") == Holder(Identity("bob", ("devs", "ops"), "2"))
    assert authenticate("t3") == Holder(Identity("new", (), "5"))
    for unknown in ("", "t4", "T1"):
        assert authenticate(unknown) is None
    assert "line 4 has no token" in caplog.text
    assert "t3" not in caplog.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("secret-token,ann\n", "line 1: at least three columns"),
        ("t,ann,1\nsecret-token,,2\n", "line 2: the user is empty"),
        ("secret-token\u00fc,ann,1\n", "line 1: the token has characters outside ASCII"),
    ],
)
def test_a_line_that_cannot_be_understood_ends_the_start(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text(text)
    with pytest.raises(SetupError, match=problem) as caught:
        read_tokens(path)
    assert "secret-token" not in str(caught.value)


def test_a_file_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="No such file"):
        read_tokens(tmp_path / "missing.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe,a,b\n")
    with pytest.raises(SetupError):
        read_tokens(binary)

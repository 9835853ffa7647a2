"""Reading configuration files: which ones, in which order, and everything that can be wrong."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.config.layers import ConfigError, read_layers, set_value
from nodeagent.config.load import load_config
from tests.examples import examples

HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"


def drop_in(directory: Path, name: str, body: str = "") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + body)
    return path


def names(directory: Path) -> list[str]:
    documents = read_layers(None, str(directory)).drop_ins
    return [str(Path(document.source).relative_to(directory)) for document in documents]


def test_files_come_in_lexical_order_and_directories_where_their_name_sorts(tmp_path: Path) -> None:
    wanted = [".conf", ".hidden.conf", "10.conf", "20.d/a.conf", "20.d/b/c.conf", "30.conf"]
    for name in [*reversed(wanted), "30.conf.bak", "x.yaml", "conf", "Y.CONF"]:
        drop_in(tmp_path, name)
    assert names(tmp_path) == wanted


def test_linked_files_are_read_and_linked_directories_are_not(tmp_path: Path) -> None:
    directory, other = tmp_path / "conf.d", tmp_path / "other"
    drop_in(other, "x.conf")
    drop_in(directory, "10.conf")
    (directory / "20.conf").symlink_to(other / "x.conf")
    (directory / "30.conf").symlink_to(other)
    (directory / "loop").symlink_to(directory)
    assert names(directory) == ["10.conf", "20.conf"]


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    drop_in(tmp_path / "real", "10.conf")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert names(tmp_path / "link") == ["10.conf"]


def test_unreadable_files_are_errors_and_not_skipped(tmp_path: Path) -> None:
    link = tmp_path / "a.conf"
    link.symlink_to(link)
    with pytest.raises(ConfigError, match=r"a\.conf: Too many levels of symbolic links"):
        read_layers(None, str(tmp_path))
    link.unlink()
    link.symlink_to(tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"a\.conf: No such file"):
        read_layers(None, str(tmp_path))


def test_a_pipe_in_the_directory_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.conf")
    with pytest.raises(ConfigError, match=r"a\.conf: this is not a regular file"):
        read_layers(None, str(tmp_path))


def test_a_thousand_drop_ins_apply_in_order(tmp_path: Path) -> None:
    for number in range(1000):
        drop_in(tmp_path, f"{number:04}.conf", f"maxPods: {number + 1}\n")
    assert load_config(None, str(tmp_path)).maxPods == 1000


# A file that is no configuration, and what the error says beside the file's name.
BAD_FILES: dict[str, tuple[bytes, str]] = {
    "ten megabytes": (b"#" * (10 * 2**20 + 1), "larger than 10 MiB"),
    "deep": (b"[" * 2**20, "too deeply nested"),
    "wide": (b"[" + b"1," * 2**20, "too many"),
    "bomb": (
        b"a: &a [x, x, x, x, x, x, x, x, x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9))
            for c in range(ord("b"), ord("k"))
        ),
        "too many",
    ),
    "given twice": (HEAD.encode() + b"port: 1\nport: 1\n", ":4: port: the key is given twice"),
    "two documents": (HEAD.encode() + b"---\nport: 1\n", ":3: "),
    "a token, by mistake": (b"eyJhbGciOi.secret", "expected fields and values, not a string"),
    "not text": (b"\x00\xff\xfe", ""),
    "a key that is a list": (b"? [a]\n: b\n", "a key must be text"),
    "an object tag": (b"!!python/object:os.system {}", ""),
}


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.parametrize("place", ["main.yaml", "conf.d/10.conf"])
def test_a_bad_file_is_refused_by_name(tmp_path: Path, case: str, place: str) -> None:
    content, message = BAD_FILES[case]
    main = drop_in(tmp_path, "main.yaml")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / place).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(str(main), str(tmp_path / "conf.d"))
    assert str(tmp_path / place) in str(caught.value)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


MOST = 10 * 2**20
# Just below the limit of size: what is repeated after a beginning, and what the error says ("":
# it loads).
LARGE: dict[str, tuple[bytes, bytes, str]] = {
    "comments": (b"", b"# x\n", ""),
    "one value": (b"podLogsDir: /", b"x", ""),
    "lines of a value": (b"podLogsDir: |\n", b"  /x\n", ""),
    "one key": (b"", b"k", ":3: could not find expected"),
    "a value without end": (b'podLogsDir: "', b"x", ":3: found unexpected end of stream"),
    "a number": (b"port: ", b"1", ":3: the number is too long"),
    "items": (b"psiTriggers:\n", b"- a\n", ":399995: too many"),
    "keys": (b"staticPodURLHeader:\n", b" k: [v]\n", ":133334: too many"),
    "braces": (b"", b"{", ":3: could not find expected"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE)
def test_a_file_just_below_the_limit_takes_seconds_at_most(tmp_path: Path, case: str) -> None:
    begun, repeated, message = LARGE[case]
    head = HEAD.encode() + begun
    path = tmp_path / "main.yaml"
    path.write_bytes(head + repeated * ((MOST - len(head)) // len(repeated)))
    began_s = time.process_time()
    if message:
        with pytest.raises(ConfigError) as caught:
            load_config(str(path), None)
        assert f"{path}{message}" in str(caught.value)
        assert len(str(caught.value)) < 1000
    else:
        load_config(str(path), None)
    assert time.process_time() - began_s < 10


def test_a_byte_order_mark_and_json_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "main.json"
    path.write_bytes(
        b'\xef\xbb\xbf{"apiVersion":"nodeagent.config.orch.io/v1beta1",'
        b'"kind":"NodeAgentConfiguration","port":1234}'
    )
    assert load_config(str(path), None).port == 1234


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_load_or_are_refused_by_name(tmp_path: Path, raw: bytes, headed: bool) -> None:
    path = tmp_path / "main.yaml"
    path.write_bytes(HEAD.encode() + raw if headed else raw)
    try:
        load_config(str(path), None)
    except ConfigError as error:
        assert [line for line in str(error).splitlines() if str(path) not in line] == []


def test_a_map_adds_its_keys_and_anything_else_replaces() -> None:
    document = {"a": {"b": {"x": 1}}, "c": 3}
    set_value(document, ("a", "b"), {"y": 2})
    set_value(document, ("c", "d"), 4)
    set_value(document, ("a", "z"), [1])
    assert document == {"a": {"b": {"x": 1, "y": 2}, "z": [1]}, "c": {"d": 4}}

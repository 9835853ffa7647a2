from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orch.component.process.daemon import SetupError
from orch.server import flags
from orch.server.storage.etcd_storage import EtcdStorage
from orch.server.storage.flags import StorageFlags, make_storage
from orch.server.storage.sqlite import SqliteStorage

REQUIRED = ["--tls-cert-file=c", "--tls-private-key-file=k"]
HTTPS = "--etcd-servers=https://a:2379"


def parsed(*arguments: str) -> StorageFlags:
    return flags.parse([*REQUIRED, *arguments]).storage


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ([], "servers", ()),
        ([], "prefix", "/registry"),
        ([], "compaction_s", 300.0),
        (["--data-dir=/x"], "file", Path("/x/state.db")),
        (["--storage-file=/y/z.db"], "file", Path("/y/z.db")),
        (["--etcd-servers=http://a:1, http://b:2/"], "servers", ("http://a:1", "http://b:2")),
        ([HTTPS, "--etcd-cafile=ca"], "ca_file", Path("ca")),
        ([HTTPS, "--etcd-certfile=c", "--etcd-keyfile=k"], "key_file", Path("k")),
        (["--etcd-prefix=mine/"], "prefix", "/mine"),
        (["--etcd-compaction-interval=0"], "compaction_s", 0.0),
    ],
)
def test_each_flag_sets_its_value(arguments: list[str], field: str, value: Any) -> None:
    assert getattr(parsed(*arguments), field) == value


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--etcd-servers=http://a:1", "--storage-file=f"], "--storage-file"),
        ([HTTPS, "--etcd-certfile=c"], "--etcd-keyfile"),
        (["--etcd-servers=http://a:1", "--etcd-cafile=ca"], "--etcd-cafile"),
        (["--etcd-prefix=/"], "--etcd-prefix"),
    ],
)
def test_what_cannot_work_is_a_setup_error(arguments: list[str], named: str) -> None:
    with pytest.raises(SetupError, match=named):
        parsed(*arguments)


@pytest.mark.parametrize(
    "servers", ["a:2379", "http://a", "http://a:1/x", "http://a:1,https://b:2"]
)
def test_a_server_that_cannot_be_used_is_named(servers: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--etcd-servers={servers}")
    assert "--etcd-servers" in capsys.readouterr().err


def test_the_flags_choose_the_storage(tmp_path: Path) -> None:
    observed = lambda *_: None  # noqa: E731
    assert isinstance(make_storage(parsed(f"--data-dir={tmp_path}"), observed), SqliteStorage)
    assert isinstance(make_storage(parsed("--etcd-servers=http://a:1"), observed), EtcdStorage)

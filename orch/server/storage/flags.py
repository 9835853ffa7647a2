"""The flags of storage, the addresses of an etcd cluster, and the storage they choose.

etcd's libraries are loaded only when it is chosen: a server on a file starts without them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from orch.component.flags import program_flags
from orch.component.grpc_channel import Observe
from orch.component.process.daemon import SetupError
from orch.server.storage.base import Storage
from orch.server.storage.sqlite import SqliteStorage
from orch.server.storage.tally import Bounds


def parse_servers(servers: Sequence[str]) -> tuple[str, ...]:
    """The checked URLs; ValueError names the invalid one."""
    for server in servers:
        if "@" in server:  # not quoted: it is a secret
            raise ValueError("an address contains credentials: use a client certificate instead")
        if not _is_server(server):
            raise ValueError(f"{server!r} is not http://host:port or https://host:port")
    if len({urlsplit(server).scheme for server in servers}) > 1:
        raise ValueError("some servers are http and some https: use one for all")
    return tuple(server.rstrip("/") for server in servers)


def _is_server(text: str) -> bool:
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname and parts.port)
    except ValueError:
        return False
    plain = parts.path in ("", "/") and not (parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and named and plain


DEFAULT_DATA_DIR = Path("/var/lib/orch-apiserver")
STORAGE_FILE = "state.db"
DEFAULT_PREFIX = "/registry"
DEFAULT_COMPACTION_S = 300.0
_MIB = 1024 * 1024
# Everything is held in memory; the unit allows the process 4 GiB, and an agent 512 MiB.
DEFAULT_BOUNDS = Bounds(
    objects=50_000, bytes=128 * _MIB, store_bytes=1024 * _MIB, node_bytes=256 * _MIB
)


@dataclass(frozen=True, slots=True)
class StorageFlags:
    """A file, or etcd when `servers` is not empty. `compaction_s` 0: never."""

    file: Path
    servers: tuple[str, ...] = ()
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    prefix: str = DEFAULT_PREFIX
    compaction_s: float = DEFAULT_COMPACTION_S
    bounds: Bounds = DEFAULT_BOUNDS


def add_to(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data-dir", type=Path, default=DEFAULT_DATA_DIR, help=f"directory of {STORAGE_FILE}"
    )
    group.add_argument("--storage-file", type=Path, help="SQLite file to use instead")
    group.add_argument(
        "--etcd-servers", type=_servers, default=(), metavar="URL,…",
        help="store everything in this etcd cluster instead; several servers may share it",
    )  # fmt: skip
    group.add_argument("--etcd-cafile", type=Path, help="CA of etcd's certificates")
    group.add_argument("--etcd-certfile", type=Path, help="client certificate for etcd, PEM")
    group.add_argument("--etcd-keyfile", type=Path, help="its key, PEM")
    group.add_argument("--etcd-prefix", default=DEFAULT_PREFIX, help="prefix of all keys in etcd")
    group.add_argument(
        "--etcd-compaction-interval", type=program_flags.duration, default=DEFAULT_COMPACTION_S,
        metavar="DURATION", help="interval between compactions of etcd; 0: never",
    )  # fmt: skip
    default = DEFAULT_BOUNDS
    group.add_argument(
        "--max-namespace-objects", type=program_flags.whole_number, default=default.objects,
        metavar="N",
        help="maximum of objects in a namespace, and of each kind without one; 0: no limit",
    )  # fmt: skip
    group.add_argument(
        "--max-namespace-mib", type=program_flags.whole_number, default=default.bytes // _MIB,
        metavar="MIB", help="maximum of bytes in a namespace; 0: no limit",
    )  # fmt: skip
    group.add_argument(
        "--max-store-mib", type=program_flags.whole_number, default=default.store_bytes // _MIB,
        metavar="MIB", help="maximum of bytes in all, 1 KiB more for each object; 0: no limit",
    )  # fmt: skip
    group.add_argument(
        "--max-node-mib", type=program_flags.whole_number, default=default.node_bytes // _MIB,
        metavar="MIB",
        help="maximum of memory that the pods of a node take of its agent; 0: no limit",
    )  # fmt: skip


def flags_of(values: argparse.Namespace) -> StorageFlags:
    """SetupError for combinations that cannot work."""
    if values.etcd_servers and values.storage_file:
        raise SetupError("--etcd-servers and --storage-file exclude each other: give one")
    if bool(values.etcd_certfile) != bool(values.etcd_keyfile):
        raise SetupError("--etcd-certfile and --etcd-keyfile belong together: give both")
    secure = bool(values.etcd_servers) and values.etcd_servers[0].startswith("https:")
    for flag in ("etcd_cafile", "etcd_certfile"):
        if getattr(values, flag) and not secure:
            raise SetupError(f"--{flag.replace('_', '-')} is only for https:// etcd servers")
    prefix = "/" + values.etcd_prefix.strip("/")
    if prefix == "/":
        raise SetupError("--etcd-prefix must not be empty: the keys need a prefix of their own")
    return StorageFlags(
        file=values.storage_file or values.data_dir / STORAGE_FILE,
        servers=values.etcd_servers,
        ca_file=values.etcd_cafile,
        cert_file=values.etcd_certfile,
        key_file=values.etcd_keyfile,
        prefix=prefix,
        compaction_s=values.etcd_compaction_interval,
        bounds=Bounds(
            values.max_namespace_objects,
            values.max_namespace_mib * _MIB,
            values.max_store_mib * _MIB,
            values.max_node_mib * _MIB,
        ),
    )


def make_storage(flags: StorageFlags, observe: Observe) -> Storage:
    """The storage, not yet opened."""
    if not flags.servers:
        return SqliteStorage(flags.file)
    from orch.server.storage.etcd import EtcdAccess, EtcdClient
    from orch.server.storage.etcd_storage import EtcdStorage

    access = EtcdAccess(flags.servers, flags.ca_file, flags.cert_file, flags.key_file)
    client = EtcdClient(access, observe=observe)
    return EtcdStorage(client, flags.prefix, compacts=flags.compaction_s > 0)


def _servers(text: str) -> tuple[str, ...]:
    try:
        return parse_servers([server.strip() for server in text.split(",")])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

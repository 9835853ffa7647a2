"""Kubeconfig files: server, authority and credentials; read strictly, written with mode 0600.

Only fields that this service's programs use are read; credential plugins are refused rather than
ignored. Paths in a file are relative to that file.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orch.component.process.atomic_file import replace_file
from orch.component.process.daemon import SetupError
from orch.wire import raw


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Address and credentials of a server; data fields win over the files of the same name.

    `server` is `https://host:port` (or http, for tests); empty strings mean "none".
    """

    server: str
    ca_file: str = ""
    ca_data: bytes = b""
    cert_file: str = ""
    cert_data: bytes = b""
    key_file: str = ""
    key_data: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    insecure: bool = False
    tls_server_name: str = ""
    namespace: str = ""


SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def load_kubeconfig(
    path: str | Sequence[str], context: str | None = None, *, cluster: str = "", user: str = ""
) -> ClientConfig:
    """The named context of a file, or its current one; SetupError names the file and the field.

    Several files are merged (see `merged`). `cluster` and `user` name entries that override the
    context's own.
    """
    paths = [path] if isinstance(path, str) else path
    roots = [read_file(path, absolute=True) for path in paths]
    return _ConfigReader(os.pathsep.join(paths), merged(roots)).read(context, cluster, user)


def read_file(path: str, *, absolute: bool = False) -> dict[str, Any]:
    """A file's data, its paths as they are or `absolute`; SetupError when it is no mapping."""
    from orch.component import yaml_file  # not needed by a client given flags

    try:
        value = yaml_file.read_yaml_file(Path(path)).value
    except OSError as error:
        raise SetupError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    except yaml_file.YamlError as error:
        raise SetupError(f"the kubeconfig does not parse: {error}") from error
    if not isinstance(value, dict):
        raise SetupError(f"kubeconfig {path}: is not a mapping with clusters, users and contexts")
    return _with_absolute_paths(value, Path(path).resolve().parent) if absolute else value


def merged(roots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several files as one: the first with an entry wins."""
    result: dict[str, Any] = {}
    for root in roots:
        for key, value in root.items():
            known = result.get(key)
            if key in SECTIONS and isinstance(known, list) and isinstance(value, list):
                names = [entry.get("name") for entry in raw.records(result, key)]
                result[key] = [*known, *(e for e in value if raw.value(e, "name") not in names)]
            elif not known:
                result[key] = value
    return result


def _with_absolute_paths(root: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same data with the paths of its entries, which are relative to their file, absolute."""
    for section, kind in SECTIONS.items():
        for entry in raw.records(root, section):
            fields = entry.get(kind)
            if isinstance(fields, dict):
                given = {name: raw.text(fields, name) for name in _FILES}
                fields.update({k: str(folder / path) for k, path in given.items() if path})
    return root


class _ConfigReader:
    def __init__(self, path: str, root: Mapping[str, Any]) -> None:
        self.path = path
        self._root = root

    def read(self, wanted: str | None, cluster_name: str, user_name: str) -> ClientConfig:
        name = wanted or self._text(self._root, "current-context", "")
        if not name and not cluster_name:
            raise self._error("current-context", "is empty and no context was named")
        context = self._entry("contexts", "context", name) if name else {}
        where = f"contexts[{name}]"
        cluster_name = cluster_name or self._text(context, "cluster", where)
        user_name = user_name or self._text(context, "user", where)
        if not cluster_name:
            raise self._error(f"{where}.cluster", "is missing")
        cluster = self._entry("clusters", "cluster", cluster_name)
        user = self._entry("users", "user", user_name) if user_name else {}
        return self._config(
            cluster, f"clusters[{cluster_name}]", user, f"users[{user_name}]",
            self._text(context, "namespace", where),
        )  # fmt: skip

    def _config(
        self, cluster: Mapping[str, Any], at: str, user: Mapping[str, Any], user_at: str,
        namespace: str,
    ) -> ClientConfig:  # fmt: skip
        server = self._text(cluster, "server", at)
        if "@" in server:  # not quoted: it is a secret
            raise self._error(f"{at}.server", "holds credentials: they belong in the user's entry")
        if not server.startswith(("https://", "http://")):
            raise self._error(f"{at}.server", f"{server!r} is not an http(s) URL")
        for plugin in ("exec", "auth-provider"):
            if user.get(plugin):
                raise self._error(f"{user_at}.{plugin}", "credential plugins are not supported")
        insecure = cluster.get("insecure-skip-tls-verify", False)
        if not isinstance(insecure, bool):
            raise self._error(f"{at}.insecure-skip-tls-verify", "is not true or false")
        return ClientConfig(
            server=server.rstrip("/"),
            ca_file=self._text(cluster, "certificate-authority", at),
            ca_data=self._data(cluster, "certificate-authority-data", at),
            cert_file=self._text(user, "client-certificate", user_at),
            cert_data=self._data(user, "client-certificate-data", user_at),
            key_file=self._text(user, "client-key", user_at),
            key_data=self._data(user, "client-key-data", user_at),
            token=self._text(user, "token", user_at),
            token_file=self._text(user, "tokenFile", user_at),
            username=self._text(user, "username", user_at),
            password=self._text(user, "password", user_at),
            insecure=insecure,
            tls_server_name=self._text(cluster, "tls-server-name", at),
            namespace=namespace,
        )

    def _entry(self, section: str, key: str, name: str) -> Mapping[str, Any]:
        entries = self._root.get(section) or []
        if not isinstance(entries, list):
            raise self._error(section, "is not a list")
        for entry in entries:
            if isinstance(entry, dict) and entry.get("name") == name:
                value = entry.get(key) or {}
                if not isinstance(value, dict):
                    raise self._error(f"{section}[{name}].{key}", "is not a mapping")
                return value
        names = [str(entry.get("name")) for entry in entries if isinstance(entry, dict)]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f": did you mean {near[0]!r}?" if near else f": it has {', '.join(names) or 'none'}"
        raise self._error(section, f"has no entry named {name!r}{hint}")

    def _text(self, mapping: Mapping[str, Any], key: str, at: str) -> str:
        value = mapping.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._error(f"{at}.{key}".lstrip("."), "is not text")
        return value

    def _data(self, mapping: Mapping[str, Any], key: str, at: str) -> bytes:
        try:
            return base64.b64decode(self._text(mapping, key, at), validate=True)
        except (binascii.Error, ValueError):
            raise self._error(f"{at}.{key}", "is not base64") from None

    def _error(self, at: str, what: str) -> SetupError:
        return SetupError(f"kubeconfig {self.path}: {at} {what}".replace(":  ", ": "))


def write_kubeconfig(
    path: str, config: ClientConfig, *, name: str = "orch", key_beside: bool = False
) -> None:
    """Write a file with one cluster, user and context, all called `name`, with mode 0600.

    Data fields are embedded, file fields written as absolute paths, with `key_beside` but for the
    key, which is then looked for where this file is. An existing file is replaced in one step.
    """
    from orch.component import yaml_file  # slow to import

    cluster = {
        "server": config.server,
        "certificate-authority": _absolute(config.ca_file),
        "certificate-authority-data": _encoded(config.ca_data),
        "tls-server-name": config.tls_server_name,
        "insecure-skip-tls-verify": config.insecure,
    }
    user = {
        "client-certificate": _absolute(config.cert_file),
        "client-certificate-data": _encoded(config.cert_data),
        "client-key": Path(config.key_file).name if key_beside else _absolute(config.key_file),
        "client-key-data": _encoded(config.key_data),
        "token": config.token,
        "tokenFile": _absolute(config.token_file),
        "username": config.username,
        "password": config.password,
    }
    context = {"cluster": name, "user": name, "namespace": config.namespace}
    data = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": _given(cluster)}],
        "users": [{"name": name, "user": _given(user)}],
        "contexts": [{"name": name, "context": _given(context)}],
        "current-context": name,
    }
    replace_file(Path(path), f"{yaml_file.dump(data)}\n".encode())


def _absolute(name: str) -> str:
    return str(Path(name).absolute()) if name else ""


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}

"""Reading and writing the kubeconfig as data: its entries by name, everything else kept as it is.

Comments and the order of keys in a file are not kept when it is written.
"""

from __future__ import annotations

import argparse
import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orch.client.kubeconfig import SECTIONS
from orch.ctl import options, printing
from orch.ctl.failures import CommandFailed, did_you_mean

Data = dict[str, Any]
FILES = ("certificate-authority", "client-certificate", "client-key")  # each may be -data too


def read(args: argparse.Namespace, *, absolute: bool = False) -> Data:
    """The data of all files together, their paths as they are or `absolute`; CommandFailed."""
    from orch.client.kubeconfig import merged

    paths = options.kubeconfig_paths(args)
    if not any(map(os.path.exists, paths)):
        named = f" {paths[0]}" if paths else ""
        raise CommandFailed(
            f"there is no kubeconfig{named}: name one with --kubeconfig or $KUBECONFIG"
        )
    return merged([_read(path, absolute=absolute) for path in paths])


def opened(args: argparse.Namespace, section: str = "", name: str = "") -> tuple[str, Data]:
    """The file to change and its data: the one that holds the entry, else the first.

    A file that does not exist is an empty one, and begun by `write`.
    """
    default = os.path.expanduser(options.DEFAULT_FILES[0])
    files = [(path, _read(path)) for path in options.kubeconfig_paths(args) or [default]]
    holding = [file for file in files if section and name in names(file[1], section)]
    return (holding or files)[0]


def _read(path: str, *, absolute: bool = False) -> Data:
    from orch.client.kubeconfig import read_file

    if not os.path.exists(path):
        return {"apiVersion": "v1", "kind": "Config"}
    return read_file(path, absolute=absolute)


def embed(fields: Data, field: str, path: str) -> None:
    """Keep what is in a file in `field-data`, in the place of its path; CommandFailed."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    fields.pop(field, None)
    fields[f"{field}-data"] = base64.b64encode(content).decode()


def write(path: str, data: Mapping[str, Any]) -> None:
    """Replace the file in one step, for its owner alone; a link's target, not the link."""
    from orch.client.kubeconfig import replace_file

    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(real, f"{printing.as_yaml(data)}\n".encode())
    except OSError as error:
        raise CommandFailed(f"cannot write the kubeconfig {real}: {error.strerror}") from None


def names(data: Mapping[str, Any], section: str) -> list[str]:
    """The names of a section's entries."""
    listed = data.get(section)
    entries = listed if isinstance(listed, list) else []
    return [str(entry.get("name")) for entry in entries if isinstance(entry, dict)]


def entry(data: Mapping[str, Any], section: str, name: str) -> Data:
    """An entry's fields; CommandFailed when there is none of that name."""
    for one in data.get(section) or []:
        if isinstance(one, dict) and one.get("name") == name:
            found = one.get(SECTIONS[section])
            return found if isinstance(found, dict) else {}
    known = names(data, section)
    hint = did_you_mean(name, known) or (f": there are {', '.join(known)}" if known else "")
    raise CommandFailed(f"the kubeconfig has no {SECTIONS[section]} {name!r}{hint}")


def put(data: Data, section: str, name: str, fields: Data) -> bool:
    """Set an entry, in its place if it is there; True when it is new."""
    entries = data[section] = list(data.get(section) or [])
    for one in entries:
        if isinstance(one, dict) and one.get("name") == name:
            one[SECTIONS[section]] = fields
            return False
    entries.append({"name": name, SECTIONS[section]: fields})
    return True


def drop(data: Data, section: str, name: str) -> None:
    """Remove an entry; CommandFailed when there is none of that name."""
    entry(data, section, name)
    data[section] = [one for one in data[section] if one.get("name") != name]

"""Reading and writing the kubeconfig as data: its entries by name, everything else kept as it is.

Comments and the order of keys in a file are not kept when it is written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orch.component import yamlfile
from orch.ctl import options, printing
from orch.ctl.failures import CommandFailed, did_you_mean

SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
Data = dict[str, Any]


def path_of(args: argparse.Namespace) -> str:
    """The file in use, or where a new one goes; never ""."""
    return options.kubeconfig_path(args) or str(Path(options.DEFAULT_FILES[0]).expanduser())


def read(args: argparse.Namespace, *, required: bool = True) -> Data:
    """The file's data; of one that does not exist an empty one, if that is allowed."""
    path = path_of(args)
    if not Path(path).exists():
        if required:
            raise CommandFailed(
                f"there is no kubeconfig {path}: name one with --kubeconfig or $KUBECONFIG"
            )
        return {"apiVersion": "v1", "kind": "Config"}
    try:
        value = yamlfile.read_yaml_file(Path(path)).value
    except OSError as error:
        raise CommandFailed(f"cannot read the kubeconfig {path}: {error.strerror}") from None
    except yamlfile.YamlError as error:
        raise CommandFailed(f"the kubeconfig does not parse: {error}") from None
    if not isinstance(value, dict):
        raise CommandFailed(f"the kubeconfig {path} is not a mapping with clusters and users")
    return value


def write(args: argparse.Namespace, data: Mapping[str, Any]) -> None:
    """Replace the file in one step, for its owner alone; a link's target, not the link."""
    from orch.client.kubeconfig import replace_file

    path = Path(os.path.realpath(path_of(args)))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, f"{printing.as_yaml(data)}\n".encode())
    except OSError as error:
        raise CommandFailed(f"cannot write the kubeconfig {path}: {error.strerror}") from None


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

"""The layers of the configuration: main file, drop-ins and flags, unmerged.

Reads the files and checks apiVersion and kind. Must not merge or validate (`load` does), nor know
origins (`origin`).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeagent.config.reference import ALIASES
from orch.component.yaml_file import Document, FieldPath, YamlError, read_yaml_file
from orch.wire.names import AGENT_CONFIG_API_VERSION, AGENT_CONFIG_KIND
from orch.wire.patch.patch import type_name

# In the main file these are relative to it, so that a configuration can move as a folder.
_PATH_FIELDS: tuple[FieldPath, ...] = (
    ("staticPodPath",),
    ("podLogsDir",),
    ("tlsCertFile",),
    ("tlsPrivateKeyFile",),
    ("authentication", "x509", "clientCAFile"),
)


class ConfigError(Exception):
    """Problems of the configuration, one per line, with file and field."""


@dataclass(frozen=True, slots=True)
class FlagValue:
    """A flag on the command line: its name, the field it sets, the value."""

    flag: str
    path: FieldPath
    value: Any


@dataclass(frozen=True, slots=True)
class Layers:
    """Later layers override earlier ones; `main` is None when there is no main file."""

    main: Document | None
    drop_ins: tuple[Document, ...]
    flags: tuple[FlagValue, ...]

    @property
    def documents(self) -> tuple[Document, ...]:
        """The files, in the order they apply."""
        return (self.main, *self.drop_ins) if self.main else self.drop_ins

    def as_written(self, path: FieldPath, source: str) -> FieldPath:
        """The path under the name that the file `source` has for the field, ours or another."""
        lines = next((one.lines for one in self.documents if one.source == source), {})
        names = (name for name, ours in ALIASES.items() if path[:1] == (ours,))
        written = next((name for name in names if (name,) in lines), None)
        return path if written is None else (written, *path[1:])


def read_layers(
    path: str | None, config_dir: str | None, flags: tuple[FlagValue, ...] = ()
) -> Layers:
    """Read every file; ConfigError names the first that is unreadable or of another kind."""
    main = _read_main(Path(path)) if path else None
    drop_ins = tuple(map(_read, _drop_in_files(Path(config_dir)))) if config_dir else ()
    return Layers(main, drop_ins, flags)


def value_at(value: Any, path: FieldPath) -> Any:
    """The value at a path of a document; None when there is none."""
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def set_value(value: dict[str, Any], path: FieldPath, leaf: Any) -> None:
    """Set a leaf at a path of a document; a map adds its keys to an existing map."""
    *parents, last = path
    for part in parents:
        child = value.get(str(part))
        if not isinstance(child, dict):
            child = {}
            value[str(part)] = child
        value = child
    if isinstance(leaf, dict) and isinstance(value.get(str(last)), dict):
        value[str(last)].update(leaf)
    else:
        value[str(last)] = dict(leaf) if isinstance(leaf, dict) else leaf


def _read_main(path: Path) -> Document:
    document = _read(path)
    for field in _PATH_FIELDS:
        value = value_at(document.value, field)
        if isinstance(value, str) and value and not value.startswith("/"):
            set_value(document.value, field, str(path.absolute().parent / value))
    return document


def _read(path: Path) -> Document:
    try:
        document = _in_our_names(read_yaml_file(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except YamlError as error:
        raise ConfigError(str(error)) from None
    value = document.value
    if value is None:
        raise ConfigError(f"{path}: the file is empty; it needs apiVersion and kind")
    if not isinstance(value, dict):
        raise ConfigError(
            f"{document.place(())}: expected fields and values, not {type_name(value)}"
        )
    if problems := list(_wrong_kind(document, value)):
        raise ConfigError("\n".join(problems))
    return document


def _wrong_kind(document: Document, value: Mapping[str, Any]) -> Iterator[str]:
    for field, expected in (("apiVersion", AGENT_CONFIG_API_VERSION), ("kind", AGENT_CONFIG_KIND)):
        if field not in value:
            yield f"{document.place(())}: {field}: missing; write {field}: {expected}"
        elif value[field] != expected:
            place = document.place((field,))
            yield f"{place}: {field}: {value[field]!r:.80} is unknown; use {expected}"


def _in_our_names(document: Document) -> Document:
    """Fields that the reference names otherwise, under our names; ConfigError if both are there.

    The lines are known by both names.
    """
    if not isinstance(document.value, dict) or not ALIASES.keys() & document.value.keys():
        return document
    for name, ours in ALIASES.items():
        if name in document.value and ours in document.value:
            place = document.place((name,))
            raise ConfigError(f"{place}: {name}: this is {ours}, which the file has too; keep one")
    value = {ALIASES.get(name, name): child for name, child in document.value.items()}
    renamed = {
        (ALIASES.get(str(path[0]), path[0]), *path[1:]) if path else path: line
        for path, line in document.lines.items()
    }
    return Document(document.source, value, {**document.lines, **renamed})


def _drop_in_files(directory: Path) -> Iterator[Path]:
    """`*.conf` below a directory, in lexical order; symbolic links to directories are skipped.

    Unreadable files and dangling links are errors: settings must not be lost silently.
    """
    pending = [directory]
    while pending:
        path = pending.pop()
        try:
            if path == directory or (path.is_dir() and not path.is_symlink()):
                pending += sorted(path.iterdir(), key=lambda entry: entry.name, reverse=True)
            elif path.name.endswith(".conf") and not path.is_dir():
                if not stat.S_ISREG(path.stat().st_mode):
                    raise ConfigError(f"{path}: this is not a regular file")
                yield path
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from None

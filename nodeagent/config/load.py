"""From files and flags to one effective configuration.

Order: defaults < main file < drop-ins (`*.conf`, recursive, lexical) < flags. Documents are merged
as written and validated once, after all merging; every error names the file, the line and the
field that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nodeagent.config import types
from nodeagent.config.merge import merge_documents
from nodeagent.config.types import NodeAgentConfiguration
from orch.component.yamlfile import Document, FieldPath, YamlError, read_yaml_file, show_path
from orch.wire.names import AGENT_CONFIG_API_VERSION, AGENT_CONFIG_KIND

# Relative paths in the main file are relative to it, so that a configuration can move as a folder.
_PATH_FIELDS: tuple[FieldPath, ...] = (
    ("staticPodPath",),
    ("podLogsDir",),
    ("tlsCertFile",),
    ("tlsPrivateKeyFile",),
    ("authentication", "x509", "clientCAFile"),
)


class ConfigError(Exception):
    """One or more things wrong with the configuration; one line each, file and field named."""


@dataclass(frozen=True, slots=True)
class FlagValue:
    """A flag given on the command line: its name, the field it sets, the value."""

    flag: str
    path: FieldPath
    value: Any


def load_config(
    path: str | None, config_dir: str | None, flags: Sequence[FlagValue] = ()
) -> NodeAgentConfiguration:
    """Read, merge and validate everything; ConfigError lists all that is wrong."""
    main = _read_main(Path(path)) if path else Document("defaults", {})
    drop_ins = [_read(file) for file in _drop_in_files(Path(config_dir))] if config_dir else []
    base = _with_default_thresholds(main.value)
    merged = merge_documents(base, [document.value for document in drop_ins])
    for flag in flags:
        _set(merged, flag.path, flag.value)
    try:
        return NodeAgentConfiguration.model_validate(merged)
    except ValidationError as error:
        sources = [*drop_ins[::-1], main]
        raise ConfigError(_explain(error, sources, flags)) from None


def _read_main(path: Path) -> Document:
    document = _read(path)
    for field in _PATH_FIELDS:
        value = _get(document.value, field)
        if isinstance(value, str) and value and not value.startswith("/"):
            _set(document.value, field, str(path.absolute().parent / value))
    return document


def _read(path: Path) -> Document:
    try:
        document = read_yaml_file(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except YamlError as error:
        raise ConfigError(str(error)) from None
    value = document.value
    if value is None:
        raise ConfigError(f"{path}: the file is empty; it needs apiVersion and kind")
    if not isinstance(value, dict):
        raise ConfigError(f"{document.place(())}: expected fields and values, not {value!r:.40}")
    for field, expected in (("apiVersion", AGENT_CONFIG_API_VERSION), ("kind", AGENT_CONFIG_KIND)):
        if field not in value:
            raise ConfigError(f"{document.place(())}: {field}: missing; write {field}: {expected}")
        if value[field] != expected:
            place = document.place((field,))
            raise ConfigError(f"{place}: {field}: {value[field]!r} is not known; use {expected}")
    return document


def _drop_in_files(directory: Path) -> Iterator[Path]:
    """`*.conf` below a directory, in lexical order; symbolic links to directories are skipped."""
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror or error}") from None
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            yield from _drop_in_files(entry)
        elif entry.suffix == ".conf" and entry.is_file():
            yield entry


def _with_default_thresholds(base: dict[str, Any]) -> dict[str, Any]:
    """A drop-in's threshold merges into the defaults unless the main file sets its own map."""
    return {"evictionHard": dict(types.DEFAULT_EVICTION_HARD), **base}


def _get(value: Any, path: FieldPath) -> Any:
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def _set(value: dict[str, Any], path: FieldPath, leaf: Any) -> None:
    *parents, last = path
    for part in parents:
        child = value.get(str(part))
        if not isinstance(child, dict):
            child = {}
            value[str(part)] = child
        value = child
    if isinstance(leaf, Mapping) and isinstance(value.get(str(last)), dict):
        value[str(last)].update(leaf)
    else:
        value[str(last)] = leaf


def _explain(
    error: ValidationError, sources: Sequence[Document], flags: Sequence[FlagValue]
) -> str:
    return "\n".join(_explain_one(detail, sources, flags) for detail in error.errors())


def _explain_one(detail: Any, sources: Sequence[Document], flags: Sequence[FlagValue]) -> str:
    path: FieldPath = tuple(part for part in detail["loc"] if part != "[key]")
    message = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        message = "there is no such field"
    for flag in flags:
        if path[: len(flag.path)] == flag.path:
            return f"{flag.flag}: {message}"
    for document in sources:
        if path and path in document.lines:
            return f"{document.place(path)}: {show_path(path)}: {message}"
    place = sources[-1].source
    return f"{place}: {show_path(path)}: {message}" if path else f"{place}: {message}"

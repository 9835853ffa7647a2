"""Objects from files: `-f file`, `-f directory`, `-f -`; YAML of several documents, or JSON."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import CommandFailed
from orch.wire import raw

_SUFFIXES = (".yaml", ".yml", ".json")
_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file; `place` is `file:line`, for errors."""

    place: str
    record: dict[str, Any]

    @property
    def name(self) -> str:
        return raw.text(self.record, "metadata", "name")

    def require_name(self) -> str:
        """The name; CommandFailed names the place when there is none."""
        if not self.name:
            raise CommandFailed(f"{self.place}: metadata.name is missing: set it")
        return self.name

    @property
    def namespace(self) -> str:
        return raw.text(self.record, "metadata", "namespace")


def add_filename(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "-f", "--filename", action="append", default=[], required=required, metavar="FILE",
        help="objects from a file, a directory's files, or - for standard input (repeatable)",
    )  # fmt: skip
    parser.add_argument("-R", "--recursive", action="store_true", help="include subdirectories")


def named(args: argparse.Namespace) -> list[Manifest]:
    """The objects of the files that the options name, if any."""
    return read(args.filename, recursive=args.recursive) if args.filename else []


def read(names: Sequence[str], *, recursive: bool = False) -> list[Manifest]:
    """The objects of files, of the files of directories, and with `-` of standard input."""
    manifests = [
        m for name in names for source in _sources(name, recursive) for m in _objects(*source)
    ]
    if not manifests:
        raise CommandFailed(f"{', '.join(names)}: no object in it: name another file")
    return manifests


async def resource_of(manifest: Manifest, discovery: Discovery) -> Resource:
    """The server's resource for an object; CommandFailed names the place if there is none."""
    api_version, kind = raw.text(manifest.record, "apiVersion"), raw.text(manifest.record, "kind")
    try:
        return await discovery.of_kind(api_version, kind)
    except CommandFailed as error:
        raise CommandFailed(f"{manifest.place}: {error}") from None


def placed(manifest: Manifest, resource: Resource, namespace: str, *, asked: str) -> Manifest:
    """The object with its namespace set; one that contradicts `-n` (`asked`) is refused."""
    if not resource.namespaced:
        return manifest
    own = manifest.namespace
    if own and asked and own != asked:
        raise CommandFailed(f"{manifest.place}: the object is in namespace {own!r}, not {asked!r}")
    metadata = {**raw.mapping(manifest.record, "metadata"), "namespace": own or namespace}
    return Manifest(manifest.place, {**manifest.record, "metadata": metadata})


def _sources(name: str, recursive: bool) -> Iterator[tuple[str, str]]:
    """(name for errors, text) of every file that a name stands for."""
    if name == "-":
        yield "standard input", sys.stdin.read()
        return
    if name.startswith(("https://", "http://")):
        raise CommandFailed(f"{name}: addresses are not fetched: download it, and pass the file")
    path = Path(name)
    for file in _files(path, recursive) if path.is_dir() else [path]:
        yield str(file), read_text(file)


def read_text(file: Path) -> str:
    """The content of a file; CommandFailed when it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CommandFailed(f"cannot read {file}: {why}") from None


def _files(folder: Path, recursive: bool) -> Iterator[Path]:
    """The files with objects, in order; links to directories are not followed."""
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            if path.suffix in _SUFFIXES:
                yield path
        elif recursive and not path.is_symlink():
            yield from _files(path, recursive)


def _objects(source: str, text: str) -> Iterator[Manifest]:
    for place, value in _documents(source, text):
        if value is not None and not isinstance(value, dict):
            raise CommandFailed(f"{place}: an object must be a mapping with apiVersion and kind")
        is_list = raw.text(value, "kind") == "List"
        for record in raw.records(value, "items") if is_list else filter(None, [value]):
            yield _manifest(place, record)


def _manifest(place: str, record: Mapping[str, Any]) -> Manifest:
    for field in ("apiVersion", "kind"):
        if not raw.text(record, field):
            raise CommandFailed(f"{place}: {field} is missing: set it")
    return Manifest(place, dict(record))


def _documents(source: str, text: str) -> Iterator[tuple[str, Any]]:
    """(place, value) of every document, lines counted from the top of the file."""
    if text.lstrip().startswith("{"):
        yield f"{source}:1", _json(source, text)
        return
    from orch.component import yaml_file  # slow to import, and needed for files only

    begins = [0, *(match.start() for match in _SEPARATOR.finditer(text))]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        line = text.count("\n", 0, begin)
        try:
            document = yaml_file.parse_yaml("\n" * line + text[begin:end], source=source)
        except yaml_file.YamlError as error:
            raise CommandFailed(str(error)) from None
        yield document.place(()), document.value


def _json(source: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise CommandFailed(f"{source}:{line}: not valid JSON: {error}") from None
    except RecursionError:
        raise CommandFailed(f"{source}: nested too deeply") from None

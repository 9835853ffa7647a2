"""The effective configuration as YAML or JSON, with or without the origin of each leaf; pure.

The YAML is a valid configuration file with origins in comments; secrets appear as CLASSIFIED.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import Any

import yaml

from nodeagent.config.origin import Leaf
from orch.component.terminal import visible
from orch.component.yaml_file import FieldPath, show_path

_INDENT = "  "
_COMMENT_COLUMN = 44


def as_yaml(leaves: Sequence[Leaf], *, origins: bool) -> str:
    """One line per leaf, nested as in a file; a list takes one line."""
    return "".join(f"{line}\n" for line in _yaml_lines(leaves, origins))


def origins_as_json(leaves: Sequence[Leaf]) -> str:
    """A list of {field, path, value, origin: {kind, source?, line?}}."""
    records = [
        {
            "field": show_path(leaf.path),
            "path": list(leaf.path),
            "value": leaf.value,
            "origin": {key: value for key, value in asdict(leaf.origin).items() if value},
        }
        for leaf in leaves
    ]
    return as_json(records)


def _yaml_lines(leaves: Sequence[Leaf], origins: bool) -> Iterator[str]:
    open_at: FieldPath = ()
    for leaf in leaves:
        parents = leaf.path[:-1]
        pairs = zip(open_at, parents, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        for depth in range(common, len(parents)):
            yield f"{_INDENT * depth}{_scalar(parents[depth])}:"
        open_at = parents
        line = f"{_INDENT * len(parents)}{_scalar(leaf.path[-1])}: {_scalar(leaf.value)}"
        origin = visible(str(leaf.origin))
        yield f"{line:<{_COMMENT_COLUMN}}  # {origin}" if origins else line


def _scalar(value: Any) -> str:
    """A value on one line as YAML; ambiguous text is quoted."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, width=2**31 - 1)
    return str(text).removesuffix("\n").removesuffix("\n...")


class _Dumper(yaml.SafeDumper):
    """Keeps the order of keys, and text on one line."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    plain = text.isascii() and text.isprintable() and not _reads_as_number(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


def _reads_as_number(text: str) -> bool:
    """PyYAML quotes the numbers of YAML 1.1; files are read as 1.2, where `1e3` is a number too."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _represent_map(dumper: _Dumper, record: dict[str, Any]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", record.items())


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(dict, _represent_map)


def as_json(value: Any) -> str:
    """JSON that is valid YAML too and safe for terminals: control characters are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

"""Data as YAML text, in the style of `kubectl`: sorted keys, blocks for text of several lines.

Text that would be read back as something else stands in double quotes.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# What other readers take for a truth value or a number, beyond what PyYAML itself does.
_AMBIGUOUS = re.compile(
    r"[yYnN]|[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9_]+)?"
    r"|[-+]?0[xXoObB][0-9a-fA-F_]+"
)


class _Dumper(_BASE):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(dumper: Any, text: str) -> Any:
    tag = "tag:yaml.org,2002:str"
    if "\n" in text:
        style = "|"
    elif _AMBIGUOUS.fullmatch(text) or dumper.resolve(yaml.ScalarNode, text, (True, False)) != tag:
        style = '"'
    else:
        style = None
    return dumper.represent_scalar(tag, text, style=style)


_Dumper.add_representer(str, _represent)


def dump(value: Any) -> str:
    """The text, without the line break at its end."""
    text = str(yaml.dump(value, Dumper=_Dumper, allow_unicode=True, width=2**31 - 1))
    return text.removesuffix("\n")

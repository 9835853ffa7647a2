"""The field numbers of a Pod, read from the table in `protobufpods.txt`.

A Pod is read whole, its status too: what were skipped would be lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from orch.server import protobufwire as wire
from orch.server.protobufkinds import LABEL_SELECTOR, METADATA, OBJECT_META
from orch.server.protobufwire import Field, Message

_SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "": wire.text,
    "int": lambda value: wire.int64(value) or None,
    "int?": wire.int64,
    "flag": lambda value: wire.flag(value) or None,
    "flag?": wire.flag,
    "time": wire.time,
    "quantity": wire.quantity,
    "intOrString": wire.int_or_text,
}
_PAIRS: Mapping[str, Callable[[Any], Any]] = {"texts": wire.pair, "quantities": wire.quantity_pair}
_FIELD = re.compile(r"(\w*)=(\d+)(?::(\w+\??))?(\*?)")


@cache
def pod() -> Message:
    """The table of a Pod. Reads the package's file once."""
    lines = resources.files("orch.server").joinpath("protobufpods.txt").read_text("ascii")
    written = "\n".join(line for line in lines.splitlines() if not line.startswith("#"))
    fields = dict(re.findall(r"^(\w+): (.*(?:\n  .*)*)", written, re.MULTILINE))
    messages: dict[str, dict[int, Field]] = {name: {} for name in fields}
    known = {"LabelSelector": LABEL_SELECTOR, "ObjectMeta": OBJECT_META, **messages}
    for name, message in messages.items():
        message.update(_fields(fields[name], known))
    return {
        1: METADATA,
        2: Field("spec", wire.message(messages["PodSpec"])),
        3: Field("status", wire.message(messages["PodStatus"])),
    }


def _fields(written: str, messages: Mapping[str, Message]) -> Iterator[tuple[int, Field]]:
    for name, number, kind, many in _FIELD.findall(written):
        if kind in _PAIRS:
            yield int(number), Field(name, _PAIRS[kind], pairs=True)
        else:
            read = _SCALARS.get(f"{kind}?" if many else kind) or _SCALARS.get(kind)
            yield int(number), Field(name, read or wire.message(messages[kind]), many=bool(many))

"""From files and flags to one effective configuration.

Order: defaults < main file < drop-ins (`*.conf`, recursive, lexical) < flags. Documents are merged
as written and validated once, after all merging; every error names the file, the line and the
field that is wrong.

How configuration documents merge (spec.md, "Node agent configuration merging"); pure.

A later document's scalars override, structures and maps merge key by key, lists replace whole, and
null deletes the key: JSON merge patch (RFC 7386) on the documents as written, before any default is
applied, so that a file never resets what it does not mention.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from nodeagent.config import types
from nodeagent.config.layers import ConfigError as ConfigError
from nodeagent.config.layers import FlagValue as FlagValue
from nodeagent.config.layers import Layers, read_layers, set_value
from nodeagent.config.origin import Origin, nearest_origin
from nodeagent.config.types import NodeAgentConfiguration
from orch.component.yaml_file import FieldPath, show_path
from orch.wire.patch.patch import PatchError, apply_merge_patch


def merge_documents(base: dict[str, Any], documents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The base with every document applied in order; the result shares nothing with them."""
    merged: Any = apply_merge_patch(base, {})
    for document in documents:
        merged = apply_merge_patch(merged, document)
    return dict(merged)


def load_config(
    path: str | None, config_dir: str | None, flags: Sequence[FlagValue] = ()
) -> NodeAgentConfiguration:
    """Read, merge and validate everything; ConfigError lists all that is wrong."""
    return effective(read_layers(path, config_dir, tuple(flags)))


def effective(layers: Layers) -> NodeAgentConfiguration:
    """What the layers say together; ConfigError lists all that is wrong."""
    try:
        merged = _merge(layers)
        return NodeAgentConfiguration.model_validate(merged)
    except PatchError as error:
        raise ConfigError(f"the configuration cannot be merged: {error}") from None
    except ValidationError as error:
        details = error.errors(include_input=False, include_url=False)
        raise ConfigError("\n".join(_explain(detail, layers) for detail in details)) from None


def _merge(layers: Layers) -> dict[str, Any]:
    base = merge_documents({}, [layers.main.value] if layers.main else [])
    # A drop-in's threshold merges into the defaults unless the main file sets its own map.
    base.setdefault("evictionHard", dict(types.DEFAULT_EVICTION_HARD))
    merged = merge_documents(base, [document.value for document in layers.drop_ins])
    for flag in layers.flags:
        set_value(merged, flag.path, flag.value)
    own = merged.get("evictionHard")
    if merged.get("mergeDefaultEvictionSettings") is True and isinstance(own, dict):
        merged["evictionHard"] = {**types.DEFAULT_EVICTION_HARD, **own}
    return merged


def _explain(detail: Any, layers: Layers) -> str:
    """One line for one thing that pydantic found wrong: place, field, what to do."""
    path: FieldPath = tuple(part for part in detail["loc"] if part != "[key]")
    message = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        message = "there is no such field"
    if path:
        return _at(nearest_origin(path, layers), f"{show_path(path)}: {message}", message)
    first = message.split(" ", 1)[0]  # a rule about several fields names the first one first
    known = (first,) if first in NodeAgentConfiguration.model_fields else ()
    return _at(nearest_origin(known, layers), message, message)


def _at(origin: Origin, in_a_file: str, by_a_flag: str) -> str:
    if origin.kind == "flag":
        return f"{origin.source}: {by_a_flag}"
    if origin.kind == "file":
        return f"{origin}: {in_a_file}"
    return f"configuration: {in_a_file}"

"""Zone, region and instance type of the machine, as its provider names them.

The configuration comes first; a file written by the provider's tools fills in the rest.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from nodeagent.config.layers import ConfigError
from nodeagent.config.load import problem_of
from nodeagent.config.types import NodeAgentConfiguration, NodeProvider
from orch.component.yaml_file import YamlError, read_yaml_file, show_path


def node_provider(config: NodeAgentConfiguration) -> NodeProvider:
    """ConfigError with file, line and field when the file is missing or invalid."""
    own = config.nodeProvider
    if not config.nodeProviderFile:
        return own
    file = _read(Path(config.nodeProviderFile))
    return NodeProvider(
        zone=own.zone or file.zone,
        region=own.region or file.region,
        instanceType=own.instanceType or file.instanceType,
    )


def _read(path: Path) -> NodeProvider:
    try:
        document = read_yaml_file(path)
        return NodeProvider.model_validate(document.value or {})
    except OSError as error:
        raise ConfigError(f"nodeProviderFile: {path}: {error.strerror}") from None
    except YamlError as error:
        raise ConfigError(f"nodeProviderFile: {error}") from None
    except ValidationError as error:
        places = ((tuple(detail["loc"]), problem_of(detail)) for detail in error.errors())
        lines = (f"{document.place(path)}: {show_path(path)}: {text}" for path, text in places)
        raise ConfigError("\n".join(f"nodeProviderFile: {line}" for line in lines)) from None

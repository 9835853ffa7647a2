"""The plugins that know registries' passwords, as `--image-credential-provider-config` names them.

A file, or all `.json`, `.yaml` and `.yml` files of a directory in the order of their names, in the
reference's format (`CredentialProviderConfig` of kubelet.config.k8s.io/v1). Must not know how a
plugin is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from nodeagent.config.fields import ConfigModel, Duration
from nodeagent.config.load import problem_of
from orch.component import yaml_file
from orch.component.process.daemon import SetupError
from orch.component.yaml_file import Document, FieldPath, YamlError
from orch.wire.validation import qualified_name_problems

_SUFFIXES = (".json", ".yaml", ".yml")
_MANY = 100  # files, providers, patterns, arguments, variables


class PluginVariable(ConfigModel):
    name: str = Field(min_length=1, pattern="^[^=\0]+$")
    value: str = ""


class TokenAttributes(ConfigModel):
    """What a plugin is told of the service account of the pod that an image is pulled for."""

    serviceAccountTokenAudience: str = Field(min_length=1)
    cacheType: Literal["ServiceAccount", "Token"]
    requireServiceAccount: bool
    requiredServiceAccountAnnotationKeys: list[str] = Field(default=[], max_length=_MANY)
    optionalServiceAccountAnnotationKeys: list[str] = Field(default=[], max_length=_MANY)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        required = self.requiredServiceAccountAnnotationKeys
        if required and not self.requireServiceAccount:
            raise ValueError(
                "requiredServiceAccountAnnotationKeys need requireServiceAccount: true"
            )
        keys = [*required, *self.optionalServiceAccountAnnotationKeys]
        if twice := [key for index, key in enumerate(keys) if key in keys[:index]]:
            raise ValueError(f"the annotation {twice[0]!r} is named twice")
        if wrong := [key for key in keys if qualified_name_problems(key.lower())]:
            raise ValueError(f"{wrong[0]!r} is not the key of an annotation")
        return self


class CredentialProvider(ConfigModel):
    """`name` is the plugin's file in the directory of plugins."""

    name: str
    matchImages: list[str] = Field(min_length=1, max_length=_MANY)
    defaultCacheDuration: Duration
    apiVersion: Literal["credentialprovider.kubelet.k8s.io/v1"]
    args: list[str] | None = Field(None, max_length=_MANY)
    env: list[PluginVariable] | None = Field(None, max_length=_MANY)
    tokenAttributes: TokenAttributes | None = None

    @field_validator("name")
    @classmethod
    def _is_a_file_name(cls, name: str) -> str:
        if not name or name in (".", "..") or any(sign in name for sign in "/ \0"):
            raise ValueError(f"{name!r} is not the name of a file, without '/' and spaces")
        return name

    @field_validator("matchImages")
    @classmethod
    def _are_places(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            host = pattern.partition("/")[0]
            port = host.rpartition(":")[2] if ":" in host.rpartition("]")[2] else "0"
            if not host or "://" in pattern or not port.isdecimal():
                raise ValueError(
                    f"{pattern!r} is not HOST[:PORT][/PATH], where parts of HOST may have '*'"
                )
        return patterns


class CredentialProviderConfig(ConfigModel):
    apiVersion: Literal["kubelet.config.k8s.io/v1"]
    kind: Literal["CredentialProviderConfig"]
    providers: list[CredentialProvider] = Field(min_length=1, max_length=_MANY)


def read_providers(config: str, bin_dir: str) -> list[CredentialProvider]:
    """All plugins, each of which can be run; none where neither is given. SetupError.

    Errors name the file with its line, and the field. Blocking I/O.
    """
    if bool(config) != bool(bin_dir):
        raise SetupError(
            "--image-credential-provider-config and --image-credential-provider-bin-dir belong "
            "together: give both"
        )
    if not config:
        return []
    found: dict[str, CredentialProvider] = {}
    for document in _documents(Path(config)):
        for index, provider in enumerate(_parsed(document).providers):
            path: FieldPath = ("providers", index, "name")
            if provider.name in found:
                raise _problem(document, path, f"there is another provider {provider.name!r}")
            if problem := _unfit(Path(bin_dir, provider.name)):
                raise _problem(document, path, problem)
            found[provider.name] = provider
    return list(found.values())


def _documents(path: Path) -> Iterator[Document]:
    for file in _files(path):
        try:
            yield yaml_file.read_yaml_file(file)
        except OSError as error:
            raise SetupError(f"{file} cannot be read: {error.strerror}") from error
        except YamlError as error:
            raise SetupError(str(error)) from error


def _files(path: Path) -> Sequence[Path]:
    """SetupError for a directory without any, or with too many."""
    try:
        if not path.is_dir():
            return [path]
        names = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIXES))
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from error
    if not 0 < len(names) <= _MANY:
        raise SetupError(
            f"{path} has {len(names)} files of the names {', '.join(f'*{s}' for s in _SUFFIXES)}; "
            f"give one to {_MANY}"
        )
    return [path / name for name in names]


def _parsed(document: Document) -> CredentialProviderConfig:
    try:
        return CredentialProviderConfig.model_validate(document.value)
    except ValidationError as error:
        problem = error.errors()[0]
        raise _problem(document, tuple(problem["loc"]), problem_of(problem)) from None


def _problem(document: Document, path: FieldPath, message: str) -> SetupError:
    field = f"{yaml_file.show_path(path)}: " if path else ""
    return SetupError(f"{document.place(path)}: {field}{message}")


def _unfit(program: Path) -> str:
    """Why it cannot be run; "" if it can."""
    if not program.is_file():
        return f"there is no plugin {program}"
    return "" if os.access(program, os.X_OK) else f"the plugin {program} is not executable"

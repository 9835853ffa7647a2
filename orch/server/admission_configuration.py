"""The file of `--admission-control-config-file`, in the reference's format.

An AdmissionConfiguration, which holds the PodSecurityConfiguration or names its file. No other
plugin can be configured here, so another name is a mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from orch.component.flags.program_flags import read_file
from orch.component.process.daemon import SetupError
from orch.server.admission.pod_security import levels
from orch.server.admission.pod_security.guard import Settings
from orch.server.admission.pod_security.levels import LATEST, LevelVersion, PodPolicy
from orch.wire.validation import dns1123_label_problems, dns1123_subdomain_problems

_FLAG = "--admission-control-config-file"


def _without(problems_of: Callable[[str], tuple[str, ...]]) -> AfterValidator:
    def check(name: str) -> str:
        for problem in problems_of(name):
            raise ValueError(f"{name!r}: {problem}")
        return name

    return AfterValidator(check)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_Level = Annotated[str, AfterValidator(levels.parse_level)]
_Namespace = Annotated[str, _without(dns1123_label_problems)]
_RuntimeClass = Annotated[str, _without(dns1123_subdomain_problems)]
_Minor = Annotated[int, BeforeValidator(lambda text: levels.parse_version(str(text)))]


class PodSecurityDefaults(_Record):
    enforce: _Level = levels.PRIVILEGED
    enforce_minor: _Minor = Field(LATEST, alias="enforce-version")
    audit: _Level = levels.PRIVILEGED
    audit_minor: _Minor = Field(LATEST, alias="audit-version")
    warn: _Level = levels.PRIVILEGED
    warn_minor: _Minor = Field(LATEST, alias="warn-version")

    def policy(self) -> PodPolicy:
        return PodPolicy(
            LevelVersion(self.enforce, self.enforce_minor),
            LevelVersion(self.audit, self.audit_minor),
            LevelVersion(self.warn, self.warn_minor),
        )


class PodSecurityExemptions(_Record):
    usernames: list[Annotated[str, Field(min_length=1)]] = []
    namespaces: list[_Namespace] = []
    runtimeClasses: list[_RuntimeClass] = []


class PodSecurityConfiguration(_Record):
    apiVersion: Literal[
        "pod-security.admission.config.k8s.io/v1", "pod-security.admission.config.orch.io/v1"
    ]
    kind: Literal["PodSecurityConfiguration"]
    defaults: PodSecurityDefaults = PodSecurityDefaults()
    exemptions: PodSecurityExemptions = PodSecurityExemptions()

    def settings(self) -> Settings:
        exempt = self.exemptions
        return Settings(
            self.defaults.policy(),
            frozenset(exempt.usernames),
            frozenset(exempt.namespaces),
            frozenset(exempt.runtimeClasses),
        )


class Plugin(_Record):
    """`path` is that of a file with the configuration, relative to this file."""

    name: Literal["PodSecurity"]
    path: str = ""
    configuration: PodSecurityConfiguration | None = None


class AdmissionConfiguration(_Record):
    apiVersion: Literal["apiserver.config.k8s.io/v1", "apiserver.config.orch.io/v1"]
    kind: Literal["AdmissionConfiguration"]
    plugins: list[Plugin] = Field([], max_length=1)


def read_settings(path: Path | None) -> Settings:
    """Those of pod security, the defaults without a file; SetupError names what is wrong where."""
    if path is None:
        return Settings()
    for plugin in read_file(_FLAG, path, AdmissionConfiguration).plugins:
        if plugin.path and plugin.configuration:
            raise SetupError(f"{_FLAG}: {path}: plugins[0]: give a path or a configuration")
        if plugin.path:
            file = path.parent / plugin.path
            return read_file(_FLAG, file, PodSecurityConfiguration).settings()
        if plugin.configuration:
            return plugin.configuration.settings()
    return Settings()

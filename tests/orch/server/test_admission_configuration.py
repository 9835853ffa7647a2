from __future__ import annotations

from pathlib import Path

import pytest

from orch.component.process.daemon import SetupError
from orch.server.admission.pod_security.guard import Settings
from orch.server.admission.pod_security.levels import LevelVersion, PodPolicy
from orch.server.admission_configuration import read_settings

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
PLUGIN = "plugins:\n- name: PodSecurity\n"
SECURITY = (
    "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n"
    "defaults:\n  enforce: baseline\n  enforce-version: v1.30\n  warn: restricted\n"
    "exemptions:\n  usernames: [a]\n  namespaces: [b, c]\n  runtimeClasses: [d.e]\n"
)
WANTED = Settings(
    PodPolicy(LevelVersion("baseline", 30), LevelVersion(), LevelVersion("restricted")),
    frozenset(("a",)),
    frozenset(("b", "c")),
    frozenset(("d.e",)),
)


def written(directory: Path, text: str) -> Path:
    path = directory / "admission.yaml"
    path.write_text(text)
    return path


def embedded(security: str) -> str:
    lines = "".join(f"    {line}\n" for line in security.splitlines())
    return f"{HEAD}{PLUGIN}  configuration:\n{lines}"


def test_without_a_file_or_without_a_plugin_everything_is_privileged(tmp_path: Path) -> None:
    assert read_settings(None) == Settings()
    assert read_settings(written(tmp_path, HEAD)) == Settings()
    assert read_settings(written(tmp_path, HEAD + PLUGIN)) == Settings()


def test_the_configuration_is_in_the_file_or_beside_it(tmp_path: Path) -> None:
    assert read_settings(written(tmp_path, embedded(SECURITY))) == WANTED
    (tmp_path / "security.yaml").write_text(SECURITY.replace(".k8s.io/v1", ".orch.io/v1"))
    path = written(tmp_path, f"{HEAD}{PLUGIN}  path: security.yaml\n")
    assert read_settings(path) == WANTED


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("enforce: baseline", "enforce: strict", "defaults.enforce: Value error, must be one of"),
        ("v1.30", "1.30", 'defaults.enforce-version: Value error, must be "latest" or "v1.x"'),
        ("usernames: [a]", 'usernames: [""]', "exemptions.usernames[0]: "),
        ("[b, c]", "[b, C]", "exemptions.namespaces[1]: "),
        ("[d.e]", "[d_e]", "exemptions.runtimeClasses[0]: "),
        ("warn: restricted", "warning: restricted", "defaults.warning: "),
        ("config.k8s.io/v1\n", "config.k8s.io/v9\n", "configuration.apiVersion: "),
        ("name: PodSecurity", "name: EventRateLimit", "plugins[0].name: "),
        ("  configuration:", "  path: a\n  configuration:", "give a path or a configuration"),
        ("kind: AdmissionConfiguration", "kind: [", "admission.yaml:"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = embedded(SECURITY)
    assert old in text
    head, _, tail = text.rpartition(old)
    with pytest.raises(SetupError) as raised:
        read_settings(written(tmp_path, f"{head}{new}{tail}"))
    assert told in str(raised.value)
    assert str(raised.value).startswith("--admission-control-config-file: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"cannot read .*absent"):
        read_settings(tmp_path / "absent")

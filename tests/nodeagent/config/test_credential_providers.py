"""Configuration of plugins (K:pkg/credentialprovider/plugin/config_test.go, plugin_test.go)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.config.credential_providers import read_providers
from orch.component.process.daemon import SetupError

HEAD = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
ONE = """\
- name: ecr
  matchImages: ["*.dkr.ecr.*.amazonaws.com", "localhost:5000/team", "[::1]:5000"]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env:
  - {name: REGION, value: "eu"}
"""


TOKENS = "serviceAccountTokenAudience: vault, cacheType: Token, requireServiceAccount: true"
KEYS = "requiredServiceAccountAnnotationKeys: [a/b]"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the plugins ecr and gcr, and with a file that is none."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("ecr", "gcr", "text"):
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o644 if name == "text" else 0o755)
    return directory


def read(programs: Path, text: str) -> list[str]:
    file = programs.parent / "providers.yaml"
    file.write_text(text)
    return [provider.name for provider in read_providers(str(file), str(programs))]


def test_a_file_of_the_reference_s_is_read(programs: Path) -> None:
    assert read(programs, HEAD + ONE) == ["ecr"]
    file = programs.parent / "providers.yaml"
    [provider] = read_providers(str(file), str(programs))
    assert provider.defaultCacheDuration == 12 * 3600
    assert provider.args == ["get"]
    assert [(one.name, one.value) for one in provider.env or ()] == [("REGION", "eu")]


def test_what_a_plugin_is_told_of_accounts_is_read(programs: Path) -> None:
    text = HEAD + ONE.replace("  args", f"  tokenAttributes: {{{TOKENS}, {KEYS}}}\n  args")
    assert read(programs, text) == ["ecr"]
    file = programs.parent / "providers.yaml"
    [found] = [one.tokenAttributes for one in read_providers(str(file), str(programs))]
    assert found and found.requiredServiceAccountAnnotationKeys == ["a/b"]


def test_the_files_of_a_directory_are_read_in_the_order_of_their_names(programs: Path) -> None:
    directory = programs.parent / "conf"
    directory.mkdir()
    with pytest.raises(SetupError, match="has 0 files of the names"):
        read_providers(str(directory), str(programs))
    (directory / "20.json").write_text(HEAD + ONE)
    (directory / "10.yml").write_text(HEAD + ONE.replace("ecr", "gcr", 1))
    (directory / "README").write_text("not read")
    found = read_providers(str(directory), str(programs))
    assert [provider.name for provider in found] == ["gcr", "ecr"]
    (directory / "30.yaml").write_text(HEAD + ONE)
    with pytest.raises(SetupError, match=r"30.yaml:4: .*name: there is another provider 'ecr'"):
        read_providers(str(directory), str(programs))


def test_nothing_is_configured_by_default_and_never_half(programs: Path) -> None:
    assert read_providers("", "") == []
    for pair in (("x", ""), ("", "x")):
        with pytest.raises(SetupError, match="belong together"):
            read_providers(*pair)
    with pytest.raises(SetupError, match="/none cannot be read: No such file"):
        read_providers("/none", str(programs))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "yaml: .*"),
        (HEAD, "providers"),
        (HEAD + "- [", "yaml:[45]: "),
        (HEAD.replace("v1", "v2") + ONE, "yaml:1: apiVersion: "),
        (HEAD.replace("Provider", "") + ONE, "yaml:2: kind: "),
        (HEAD + ONE.replace("ecr", "gone", 1), "yaml:4: .*name: there is no plugin .*bin/gone"),
        (HEAD + ONE.replace("ecr", "text", 1), "name: the plugin .*bin/text is not executable"),
        (HEAD + ONE.replace("ecr", "a/b", 1), r"providers\[0\].name: 'a/b' is not the name of a"),
        (HEAD + ONE.replace("ecr", "..", 1), "'..' is not the name of a file"),
        *(
            (HEAD + ONE.replace("  args", f"  tokenAttributes: {{{given}}}\n  args"), said)
            for given, said in (
                ("", r"tokenAttributes.serviceAccountTokenAudience: "),
                (TOKENS.replace("Token,", "Pod,"), "tokenAttributes.cacheType: "),
                (TOKENS.replace("true", "false") + ", " + KEYS, "need requireServiceAccount: true"),
                (f"{TOKENS}, {KEYS}, {KEYS.replace('required', 'optional')}", "'a/b' is named twi"),
                (TOKENS + ", " + KEYS.replace("a/b", "a b"), "'a b' is not the key of an annota"),
            )
        ),
        (HEAD + ONE.replace("12h", "-1s"), "defaultCacheDuration: .*must not be negative"),
        (HEAD + ONE.replace("  defaultCacheDuration: 12h\n", ""), "defaultCacheDuration"),
        (HEAD + ONE.replace("io/v1\n  args", "io/v2\n  args"), r"\[0\].apiVersion: "),
        (HEAD + ONE.replace("localhost", "https://localhost"), "matchImages: 'https://localh"),
        (HEAD + ONE.replace("5000/", "*/"), r"is not HOST\[:PORT\]\[/PATH\]"),
        (HEAD + ONE.replace("  args", "  argz"), r"providers\[0\].argz"),
        (HEAD + ONE + ONE, "yaml:11: .*there is another provider 'ecr'"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_field(text: str, said: str, programs: Path) -> None:
    with pytest.raises(SetupError, match=said):
        read(programs, text)

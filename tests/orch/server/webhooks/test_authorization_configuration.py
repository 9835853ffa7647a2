"""Files that name authorizers, and what is wrong with those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.process.daemon import SetupError
from orch.server import flags
from orch.server.webhooks import authorization_configuration
from orch.server.webhooks.answers import ReviewServer

HEAD = "apiVersion: apiserver.config.orch.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
HOOK = (
    "- {type: Webhook, name: a, webhook: {timeout: 3s, subjectAccessReviewVersion: v1,"
    " failurePolicy: Deny, connectionInfo: {type: KubeConfigFile, kubeConfigFile: hook}}}\n"
)


def read(folder: Path, text: str) -> str:
    """The modes, or what is wrong."""
    write_kubeconfig(str(folder / "hook"), ClientConfig(server="https://example.com/review"))
    file = folder / "file"
    file.write_text(text)
    try:
        chosen = authorization_configuration.read(file)
    except SetupError as error:
        return str(error).replace(str(folder), "")
    return " ".join((*chosen.modes, *(f"{one.timeout_s:g}" for one in chosen.webhooks)))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (HEAD + "- {type: Node, name: n}\n- {type: RBAC, name: r}\n", "Node RBAC"),
        (HEAD + HOOK + HOOK.replace("name: a", "name: b"), "Webhook Webhook 3 3"),
        (HEAD + HOOK + HOOK, "authorizers: names must be unique: a, a"),
        (HEAD + "- {type: RBAC, name: a}\n- {type: RBAC, name: b}\n", "types must be unique"),
        (HEAD + "- {type: RBAC, name: A}\n", "name: 'A': a lowercase RFC 1123 subdomain"),
        (HEAD + "- {type: Webhook, name: a}\n", "webhook: is needed for the type Webhook"),
        (HEAD + HOOK.replace("Webhook", "RBAC"), "webhook: is needed for the type Webhook"),
        (HEAD + HOOK.replace("3s", "31s"), "timeout: Value error, must be above 0 s and at most"),
        (HEAD + HOOK.replace("3s", "3"), "timeout: Value error, is not a duration"),
        (HEAD + HOOK.replace(": v1", ": v1beta1"), "subjectAccessReviewVersion: Input should be"),
        (HEAD + HOOK.replace("Deny", "Deny, matchConditions: [{expression: 'true'}]"),
         "matchConditions: Value error, conditions in CEL are not evaluated here"),
        (HEAD + HOOK.replace("hook}", "gone}"), "cannot read the kubeconfig /gone"),
        (HEAD + HOOK.replace("timeout: 3s,", ""), "timeout: Field required"),
        (HEAD + HOOK.replace("KubeConfigFile,", "InClusterConfig,"), "Input should be"),
        (HEAD + " []", "authorizers: List should have at least 1 item"),
        (HEAD.replace("Auth", "auth") + HOOK, "kind: Input should be"),
        (": :", "/file"),
    ],
)  # fmt: skip
def test_a_file_is_read_strictly(tmp_path: Path, text: str, wanted: str) -> None:
    assert wanted in read(tmp_path, text)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--authorization-mode=RBAC,Webhook",), "belong together"),
        (("--authorization-webhook-config-file=x",), "belong together"),
        (("--authorization-config=x", "--authorization-mode=RBAC"), "takes the place of"),
    ],
)
def test_flags_that_contradict_one_another_are_refused(given: tuple[str, ...], why: str) -> None:
    with pytest.raises(SetupError, match=why):
        flags.parse(["--tls-cert-file=a", "--tls-private-key-file=b", *given])


def test_a_webhook_is_not_called_in_the_clear() -> None:
    with pytest.raises(SetupError, match="over https only"):
        ReviewServer(ClientConfig(server="http://example.com"), 1.0)

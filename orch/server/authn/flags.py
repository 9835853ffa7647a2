"""The flags of authentication and authorization."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from orch.component.flags import program_flags
from orch.component.process.daemon import SetupError
from orch.server.authz.authorizer import MODES, WEBHOOK

DEFAULT_MODES = ("Node", "RBAC")
DEFAULT_ISSUER = "https://orch.default.svc"
AUTHORIZED_S = 300.0
UNAUTHORIZED_S = 30.0
TOKEN_S = 120.0


@dataclass(frozen=True, slots=True)
class AuthFlags:
    """`audiences` are this server's names in tokens; the issuer unless configured."""

    modes: tuple[str, ...] = DEFAULT_MODES
    anonymous_health: bool = True
    token_file: Path | None = None
    password_file: Path | None = None
    issuer: str = DEFAULT_ISSUER
    audiences: tuple[str, ...] = (DEFAULT_ISSUER,)
    key_files: tuple[Path, ...] = ()
    signing_key_file: Path | None = None
    root_ca_file: Path | None = None
    token_webhook: Path | None = None
    token_webhook_s: float = TOKEN_S
    webhook: Path | None = None
    webhook_authorized_s: float = AUTHORIZED_S
    webhook_unauthorized_s: float = UNAUTHORIZED_S
    authorization_config: Path | None = None
    bootstrap_token_file: Path | None = None

    @property
    def gives_pods_tokens(self) -> bool:
        """Whether a pod can be given all that it needs to reach this server."""
        return self.signing_key_file is not None and self.root_ca_file is not None


def add_to(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--authorization-mode", type=_modes, default=DEFAULT_MODES, metavar="MODE,…",
        help=f"authorizers, in order: {', '.join(MODES)} (default Node,RBAC)",
    )  # fmt: skip
    _webhook_flags(group)
    group.add_argument(
        "--anonymous-health", action=argparse.BooleanOptionalAction, default=True,
        help="answer /healthz, /livez, /readyz and /version without credentials",
    )  # fmt: skip
    group.add_argument(
        "--token-auth-file", type=Path, metavar="CSV",
        help='static bearer tokens: token,user,uid,"group,…" per line',
    )  # fmt: skip
    group.add_argument(
        "--basic-auth-file", type=Path, metavar="CSV",
        help='passwords: hash,user,uid,"group,…" per line; see `orch-apiserver hash-password`',
    )  # fmt: skip
    group.add_argument(
        "--service-account-issuer", type=_issuer, default=DEFAULT_ISSUER, metavar="URL",
        help="issuer of service account tokens: the name of this cluster's API",
    )  # fmt: skip
    group.add_argument(
        "--api-audiences", type=_names, default=(), metavar="NAME,…",
        help="audiences of tokens for this server; default: the issuer",
    )  # fmt: skip
    group.add_argument(
        "--service-account-key-file", type=Path, action="append", default=[], metavar="PEM",
        help="key to verify service account tokens with; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--service-account-signing-key-file", type=Path, metavar="PEM",
        help="private key to sign them with; without it none are issued",
    )  # fmt: skip
    group.add_argument(
        "--root-ca-file", type=Path, metavar="PEM",
        help="CA by which pods know this server, the ConfigMap kube-root-ca.crt of every"
        " namespace; with it and the signing key, every pod gets a token",
    )  # fmt: skip
    group.add_argument(
        "--bootstrap-token-file", type=Path, metavar="FILE",
        help="the first token by which machines join, as `orch-apiserver init` writes it",
    )  # fmt: skip


def _webhook_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--authorization-config", type=Path, metavar="FILE",
        help="authorizers in order, an AuthorizationConfiguration in YAML, read again when it"
        " changes; instead of --authorization-mode",
    )  # fmt: skip
    group.add_argument(
        "--authorization-webhook-config-file", type=Path, metavar="KUBECONFIG",
        help="where to send the SubjectAccessReviews of the mode Webhook",
    )  # fmt: skip
    group.add_argument(
        "--authentication-token-webhook-config-file", type=Path, metavar="KUBECONFIG",
        help="where to send TokenReviews for tokens that are not known here",
    )  # fmt: skip
    for name, default, what in (
        ("authorization-webhook-cache-authorized-ttl", AUTHORIZED_S, "allowed requests"),
        ("authorization-webhook-cache-unauthorized-ttl", UNAUTHORIZED_S, "refused requests"),
        ("authentication-token-webhook-cache-ttl", TOKEN_S, "tokens"),
    ):
        group.add_argument(
            f"--{name}", type=program_flags.duration, default=default, metavar="DURATION",
            help=f"how long the webhook's answers about {what} are kept, at least a second",
        )  # fmt: skip


def flags_of(values: argparse.Namespace) -> AuthFlags:
    """SetupError for flags that do not go together."""
    modes, webhook = values.authorization_mode, values.authorization_webhook_config_file
    config = values.authorization_config
    if config and (webhook or modes != DEFAULT_MODES):
        raise SetupError(
            "--authorization-config takes the place of --authorization-mode and of"
            " --authorization-webhook-config-file: omit these"
        )
    if (WEBHOOK in modes) != bool(webhook):
        raise SetupError(
            "--authorization-webhook-config-file and --authorization-mode=…,Webhook belong"
            " together: give both"
        )
    return AuthFlags(
        token_webhook=values.authentication_token_webhook_config_file,
        token_webhook_s=values.authentication_token_webhook_cache_ttl,
        webhook=webhook,
        webhook_authorized_s=values.authorization_webhook_cache_authorized_ttl,
        webhook_unauthorized_s=values.authorization_webhook_cache_unauthorized_ttl,
        authorization_config=config,
        modes=values.authorization_mode,
        anonymous_health=values.anonymous_health,
        token_file=values.token_auth_file,
        password_file=values.basic_auth_file,
        issuer=values.service_account_issuer,
        audiences=values.api_audiences or (values.service_account_issuer,),
        key_files=tuple(values.service_account_key_file),
        signing_key_file=values.service_account_signing_key_file,
        root_ca_file=values.root_ca_file,
        bootstrap_token_file=values.bootstrap_token_file,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _issuer(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "tokens need the name of their issuer; give one, or omit the flag"
        )
    return text


def _modes(text: str) -> tuple[str, ...]:
    modes = _names(text)
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes or len(set(modes)) < len(modes):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of distinct modes out of {', '.join(MODES)}"
        )
    return modes

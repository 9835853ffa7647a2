"""The flags of authentication and authorization."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from orch.server.authz.authorizer import MODES

DEFAULT_MODES = ("Node", "RBAC")
DEFAULT_ISSUER = "https://orch.default.svc"


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


def add_to(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--authorization-mode", type=_modes, default=DEFAULT_MODES, metavar="MODE,…",
        help=f"authorizers, in order: {', '.join(MODES)} (default Node,RBAC)",
    )  # fmt: skip
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


def flags_of(values: argparse.Namespace) -> AuthFlags:
    return AuthFlags(
        modes=values.authorization_mode,
        anonymous_health=values.anonymous_health,
        token_file=values.token_auth_file,
        password_file=values.basic_auth_file,
        issuer=values.service_account_issuer,
        audiences=values.api_audiences or (values.service_account_issuer,),
        key_files=tuple(values.service_account_key_file),
        signing_key_file=values.service_account_signing_key_file,
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

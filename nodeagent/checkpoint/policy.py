"""The configuration's `checkpoint` section as the store's bounds."""

from __future__ import annotations

from nodeagent.checkpoint import encryption
from nodeagent.checkpoint.bounds import Bounds
from nodeagent.checkpoint.encryption import Encryption
from nodeagent.config.types import CheckpointPolicy
from nodeagent.node.pressure import parse_amount


def bounds_of(policy: CheckpointPolicy) -> Bounds:
    return Bounds(
        per_container=policy.maxPerContainer,
        per_pod=policy.maxPerPod,
        per_namespace=policy.maxPerNamespace,
        total=parse_amount(policy.maxTotal),
        age_s=policy.maxAge,
        pod_gone_s=_pod_gone_s(policy),
        min_free=parse_amount(policy.minFree),
    )


def encryption_of(policy: CheckpointPolicy) -> Encryption | None:
    """EncryptionError names what is wrong with the recipients."""
    wanted = policy.encryption
    return encryption.configured(wanted.recipients, wanted.recipientsFile)


def _pod_gone_s(policy: CheckpointPolicy) -> float | None:
    """None: archives of deleted pods stay like any other."""
    return {"Keep": None, "Expire": policy.deletedPodsMaxAge, "Delete": 0.0}[policy.deletedPods]

"""Which tokens' states a head needs, and a refusal where they are not there."""

from __future__ import annotations

from bertvision.core.errors import BadInput
from bertvision.heads.base import Head

WORDS = {"all": "every token", "cls": "the CLS token", "mean": "the mean over tokens"}


def reads(head: Head) -> str:
    """all, cls, mean, or none where it is the pooled CLS alone."""
    if head.shape.kind == "span" or not head.body.pointwise:
        return "all"
    return "none" if head.read == "pooled" else head.read


def check_served(head: Head, tokens: str) -> None:
    """Refuse a head that states of these tokens cannot serve: CLS is not the mean, and neither is all tokens."""
    needed = reads(head)
    if tokens in ("all", "context") or needed in ("none", tokens):
        return
    raise BadInput(
        f"head {head.spec} reads {WORDS[needed]}, and these states are {WORDS[tokens]} of each text "
        f"(--tokens {tokens}); make others with: bertvision extract TASK ... --tokens {needed} --to STORE"
    )

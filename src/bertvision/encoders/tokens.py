"""What a tokenizer makes of text, as one number."""

from __future__ import annotations

from typing import Any

from bertvision.core.files import hash_json

PROBE = ("Two  Caf\u00e9\u2013TESTS: don't, nai\u0308ve \u6771\u4eac \ufb01 3.5 [MASK]", "\tSECOND text \U0001f44d")


def tokenizer_hash(tokenizer: Any) -> str:
    """The vocabulary, and what it makes of a line that shows case, accents, signs, blanks and the order of a pair.

    A tokenizer's own description is no better: it changes when it is saved and loaded.
    """
    shown = tokenizer(*PROBE)
    return hash_json([tokenizer.backend_tokenizer.get_vocab(), dict(shown)])

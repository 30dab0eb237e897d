"""An encoder as files that travel: transformers' models do not survive being pickled into another process.

(What records their hidden states is set up when they are made, and not when they are unpickled.)
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from bertvision.encoders.loading import Encoder, load_encoder

Parcel = dict[str, bytes]


def packed(encoder: Encoder) -> Parcel:
    """The files of a saved encoder. What was tuned by a small method names its base, which stays where it is."""
    with TemporaryDirectory() as folder:
        encoder.save_pretrained(folder)
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def unpacked(parcel: Parcel) -> Encoder:
    """The inverse of :func:`packed`, anywhere."""
    with TemporaryDirectory() as folder:
        for name, content in parcel.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return load_encoder(folder)

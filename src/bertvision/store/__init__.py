"""Hidden states on disk: planned, fingerprinted, written once, read many times."""

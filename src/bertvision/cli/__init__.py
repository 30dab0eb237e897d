"""The command line: one function per command, with imports inside, so that --help and score start fast."""

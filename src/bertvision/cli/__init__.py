"""The command line: one function a command, imports inside, so that --help and score start at once."""

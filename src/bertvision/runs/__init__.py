"""A run folder: where things are, and reading it back."""

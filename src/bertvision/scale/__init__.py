"""Steps on more than one machine."""

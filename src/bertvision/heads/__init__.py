"""Heads: small networks on all layers' states. One idea a file, found by discovery."""

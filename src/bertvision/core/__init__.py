"""Shared foundations: records, settings, registries, errors, files. Does not import torch."""

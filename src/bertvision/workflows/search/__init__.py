"""Hyperparameter search over heads, their training and the tuning of the encoder, selecting on inner."""

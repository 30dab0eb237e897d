"""The stock transformers model: loading it, and asking it for its hidden states."""

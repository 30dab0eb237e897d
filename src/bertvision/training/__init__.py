"""Everything that runs torch over a dataset: tuning, extraction, fitting heads, prediction."""

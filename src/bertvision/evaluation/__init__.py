"""From predictions to scores: arrays in, numbers out; no torch."""

"""The steps: tune, extract, fit, predict, ensemble, evaluate. Plain functions; no step imports another."""

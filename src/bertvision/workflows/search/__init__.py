"""Search over heads, settings and tunings, chosen on inner."""

"""What everything else stands on: records, settings, errors, files; no torch when imported."""

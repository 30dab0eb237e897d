"""Results as tables and pictures in one self-contained HTML file."""

"""Every table and figure of the papers as one command: recipes and published numbers are data, in ``recipes/``."""

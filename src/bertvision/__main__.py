"""``python -m bertvision`` is the command line."""

from bertvision.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())

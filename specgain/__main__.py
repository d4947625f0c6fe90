"""`python -m specgain` is the command line."""

from specgain.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

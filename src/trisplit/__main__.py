"""`python -m trisplit` is the `trisplit` command."""

from trisplit.cli import main

if __name__ == "__main__":
    main()

"""`python -m rv` and the `rv` command."""

from rv.cli.app import main

if __name__ == "__main__":
    main()

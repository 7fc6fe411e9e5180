"""`python -m vectorsearch` is the `vectorsearch` command."""

from vectorsearch.cli import main

if __name__ == "__main__":
    main()

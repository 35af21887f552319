"""`python -m perdure.cli`: the same as the console script."""

from perdure.cli import main

if __name__ == "__main__":
    main()

"""python -m hms.boot: the command `hms` without its script."""

from hms.boot.cli import main

if __name__ == "__main__":
    main()

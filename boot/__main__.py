"""python -m boot: the command `hms` without its script."""

from boot.cli import main

if __name__ == "__main__":
    main()

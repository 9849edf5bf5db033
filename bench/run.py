"""Measure workloads beside their physical limit: `python -m bench.run W1 W2 --runs 5`."""

from bench.command import main

if __name__ == "__main__":
    main()

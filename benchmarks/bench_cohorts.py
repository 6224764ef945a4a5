"""The topic `cohorts` by itself: `mrsa-jax bench cohorts`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "cohorts", *sys.argv[1:]]))

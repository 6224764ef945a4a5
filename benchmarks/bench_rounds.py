"""The topic `rounds` by itself: `mrsa-jax bench rounds`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "rounds", *sys.argv[1:]]))

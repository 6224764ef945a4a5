"""The topic `attacks` by itself: `mrsa-jax bench attacks`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "attacks", *sys.argv[1:]]))

"""The topic `rank` by itself: `mrsa-jax bench rank`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "rank", *sys.argv[1:]]))

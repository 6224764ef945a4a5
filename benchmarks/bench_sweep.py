"""The topic `sweep` by itself: `mrsa-jax bench sweep`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "sweep", *sys.argv[1:]]))

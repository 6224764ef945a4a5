"""The topic `pads` by itself: `mrsa-jax bench pads`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "pads", *sys.argv[1:]]))

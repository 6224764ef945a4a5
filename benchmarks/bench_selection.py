"""The topic `selection` by itself: `mrsa-jax bench selection`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "selection", *sys.argv[1:]]))

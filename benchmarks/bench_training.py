"""The topic `training` by itself: `mrsa-jax bench training`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "training", *sys.argv[1:]]))

"""The topic `privacy` by itself: `mrsa-jax bench privacy`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "privacy", *sys.argv[1:]]))

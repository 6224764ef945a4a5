"""The topic `failures` by itself: `mrsa-jax bench failures`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "failures", *sys.argv[1:]]))

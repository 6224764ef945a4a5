"""The topic `secagg` by itself: `mrsa-jax bench secagg`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "secagg", *sys.argv[1:]]))

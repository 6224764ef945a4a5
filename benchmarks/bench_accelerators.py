"""The topic `accelerators` by itself: `mrsa-jax bench accelerators`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "accelerators", *sys.argv[1:]]))

"""The topic `startup` by itself: `mrsa-jax bench startup`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "startup", *sys.argv[1:]]))

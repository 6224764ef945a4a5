"""The topic `hetero` by itself: `mrsa-jax bench hetero`, with the same flags."""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "hetero", *sys.argv[1:]]))

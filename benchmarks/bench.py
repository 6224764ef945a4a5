"""`mrsa-jax bench` from a checkout.

`python benchmarks/bench.py rounds`, with the same flags.
"""

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))

"""Entry point of `mrsa-jax` and `python -m mrsa_jax`."""

from __future__ import annotations

import sys

from mrsa_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())

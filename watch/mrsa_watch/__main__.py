"""`python -m mrsa_watch` is `mrsa-watch`."""

import sys

from mrsa_watch._command import main

if __name__ == "__main__":
    sys.exit(main())

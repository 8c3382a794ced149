"""`python -m mapper` is the command `mapper`."""

import sys

from mapper.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m fedfairx`."""

import sys

from fedfairx.cli import main

sys.exit(main())

"""`python -m fedfairx`."""

import sys

from fedfairx.cli.main import main

sys.exit(main())

"""When the command began; imported before all that takes a while, so that it is the truth."""

import time

BEGAN = time.monotonic()

"""What all tests stand on."""

import os
import signal

from hypothesis import settings

# A shell's background jobs ignore SIGINT, and so would every program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What decides whether a change is taken in looks at the same examples each time; elsewhere they are new in every run.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

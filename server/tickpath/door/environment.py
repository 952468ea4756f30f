"""What the door's libraries read from the environment as they are imported."""

import os


def prepare() -> None:
    """To be called first."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start a thread for every core
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # a line for each stranger that speaks something else

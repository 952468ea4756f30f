"""The core process: sessions, admission, executors, lifecycle."""

import os

# Before anything imports numpy: the only linear algebra the core does itself is a short dot product per request,
# which must never be handed to a pool of threads (and an idle pool costs memory).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

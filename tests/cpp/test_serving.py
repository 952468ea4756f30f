"""The C++ client and a real server: every dtype, a real model, a server that is slow, drains, stops or is killed."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from tests.cpp.driver import Driver, output
from tests.onnx_models import one_node, save, slow
from tests.real_models import MODELS, real_model
from tests.serving import RunningServer, serve, write_zoo

from tickpath.client import Client
from tickpath.wire import ITEM_BYTES

DTYPES: Final = tuple(ITEM_BYTES)

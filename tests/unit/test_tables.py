"""Tables for people, on terminals that are too narrow for them."""

from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from tickpath.console.tables import latency_table, models_table
from tickpath.wire import ModelInfo, TensorInfo


def shown(table: object, width: int) -> str:
    console = Console(file=StringIO(), width=width, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table, crop=False)
    return capture.get()


@pytest.mark.parametrize("width", [10, 60, 200])
def test_no_name_and_no_number_is_shortened(width: int) -> None:
    text = shown(latency_table("Latency", {"send lateness": np.full(3, 123_456_789_000, np.int64)}), width)
    assert text.count("123,456,789") == 5
    assert "send lateness" in text
    assert "…" not in text


def test_the_list_of_buckets_gives_way() -> None:
    name = "order_book_window_" * 3
    window = TensorInfo(name, "float32", (1, 100, 40), 0, False)
    buckets = tuple(range(1, 33))
    text = shown(models_table([ModelInfo("a" * 64, "2025-10-26", 0, (window,), (window,), buckets)]), 80)
    assert "a" * 64 in text
    assert text.count(f"{name} float32[N,100,40]") == 2
    assert {str(bucket) for bucket in buckets} <= set(text.split())
    assert "…" not in text

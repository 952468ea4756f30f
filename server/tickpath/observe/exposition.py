"""Metric families as the text that scrapers read: Prometheus's own format, and OpenMetrics.

The library's writer checks and escapes each name and label again in every scrape, which is three quarters of what one
costs. Here what stands before a value is made once for each series; the values are the library's to the last digit.
What no family of ours has is not known here: units, samples with a time, native histograms, `_created`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

# 64 models have 24,000, of 600 bytes each. More are right too, and slower.
SERIES_KEPT: Final = 65_536
# From here on the format writes exponents.
_PLAIN_BELOW: Final = 1_000_000
_PLAIN_TYPES: Final = {"info": "gauge", "unknown": "untyped"}
_PLAIN_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """What writes the newest format that this Accept header names and the library has, and its content type."""
    try:
        of_library, content_type = choose_encoder(accept)
    except TypeError:  # what the library says to `version=nonsense`
        of_library, content_type = choose_encoder("")
    if content_type.endswith(("escaping=dots", "escaping=values")):  # nobody's default: these write names otherwise
        return of_library, content_type
    return (_open_metrics if content_type.startswith("application/openmetrics-text") else _plain), content_type


def _plain(families: Collector) -> bytes:
    lines: list[str] = []
    for family in families.collect():
        name = family.name + _PLAIN_SUFFIXES.get(family.type, "")
        lines.append(_head(name, _PLAIN_TYPES.get(family.type, family.type), family.documentation, False))
        lines += [f"{_series(s.name, tuple(s.labels.items()))} {_value(s.value)}\n" for s in family.samples]
    return "".join(lines).encode()


def _open_metrics(families: Collector) -> bytes:
    lines: list[str] = []
    for family in families.collect():
        lines.append(_head(family.name, family.type, family.documentation, True))
        lines += [
            f"{_series(s.name, tuple(s.labels.items()))} {_value(s.value)}{_exemplar(s.exemplar)}\n"
            for s in family.samples
        ]
    lines.append("# EOF\n")
    return "".join(lines).encode()


@lru_cache
def _head(name: str, kind: str, text: str, quotes: bool) -> str:
    """`quotes`: OpenMetrics escapes them here too."""
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {_escaped(text) if quotes else escaped}\n# TYPE {name} {kind}\n"


@lru_cache(SERIES_KEPT)
def _series(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    written = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(labels))
    return f"{name}{{{written}}}" if written else name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _value(value: float) -> str:
    if type(value) is int and 0 <= value < _PLAIN_BELOW:
        return f"{value}.0"
    return floatToGoString(value)  # type: ignore[no-any-return, no-untyped-call]  # the library's is not typed


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(exemplar.labels.items()))
    return f" # {{{labels}}} {_value(exemplar.value)} {exemplar.timestamp}"

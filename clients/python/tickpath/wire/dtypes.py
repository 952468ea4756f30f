"""The element types that travel, under numpy's names; always little-endian, always C order, bool as one byte 0 or 1."""

from typing import Final

ITEM_BYTES: Final[dict[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
}

"""What is wrong with a configuration, in words."""

import re
import reprlib
from collections.abc import Mapping
from typing import get_args

import msgspec


def in_words(
    problem: str,
    values: object,
    kind: type[msgspec.Struct],
    words: Mapping[str, str],
    tables: Mapping[str, type[msgspec.Struct]],
) -> str:
    """What msgspec says, with its patterns told in words, and what it leaves out: the value that came, the choices that
    there are. `kind`: what `values` should have been; `words`: by pattern; `tables`: structs by where they lie."""
    for pattern, told in words.items():
        problem = problem.replace(f"matching regex {pattern!r}", told)
    kind = next((inner for table, inner in tables.items() if table in problem), kind)
    if "unknown field" in problem:
        return f"{problem}; there are {', '.join(kind.__struct_fields__)}"
    if place := re.search(r"`\$((?:\.\w+|\[\d+\])+)`$", problem):
        steps = re.findall(r"\w+", place[1])
        if any("token" in step or step == "endpoint" for step in steps):  # a secret may have been put there
            return problem
        if problem.startswith("Invalid enum value"):
            return problem + _choices(kind, steps[-1])
        return f"{problem}; {_shown(_value_at(values, steps))} came"
    return problem


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"


def _value_at(values: object, steps: list[str]) -> object:
    for step in steps:
        if isinstance(values, dict):
            values = values[step]
        elif isinstance(values, list | tuple):
            values = values[int(step)]
    return values


def _choices(kind: type[msgspec.Struct], field: str) -> str:
    types = {found.encode_name: found.type for found in msgspec.structs.fields(kind)}
    return f"; there are {', '.join(map(repr, get_args(types.get(field))))}"

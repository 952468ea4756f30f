"""What of a recording is played, in which order, and when. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from tickpath.loadtest.schedule import NANOSECONDS, Replay
from tickpath.playback.dialogue import Wanted
from tickpath.playback.exchanges import Exchange, Exchanges

NO_MODEL: Final = "of a model that the recording does not tell, or of a feed opened before it began"
NOT_CHOSEN: Final = "of models that were not asked for"


class Choice(msgspec.Struct, frozen=True):
    """`models`: those that are played, by the recorded name, and what is to answer; empty: all, under their names.
    `from_ns`, `until_ns`: Unix time, None is no bound. `speed` None: as fast as answers come."""

    models: Mapping[str, Wanted] = {}
    from_ns: int | None = None
    until_ns: int | None = None
    speed: float | None = 1.0


class Plan(msgspec.Struct, frozen=True):
    """`indices` of exchanges in the order of their arrival, and their `offsets_ns` from the start; the `sessions` in
    which they came, in the order of their first ones; `left_out` says how many requests are not played, and why."""

    indices: NANOSECONDS
    offsets_ns: NANOSECONDS
    sessions: tuple[int, ...]
    left_out: Counter[str]


def make_plan(exchanges: Exchanges, choice: Choice) -> Plan:
    """All that was chosen, by the time at which it came."""
    left_out: Counter[str] = Counter()
    kept = [index for index, exchange in enumerate(exchanges) if _wanted(exchanges, exchange, choice, left_out)]
    times_ns = np.array([exchanges[index].unix_ns for index in kept], np.int64)
    # What came on one connection came in order, and stays so: the sort is stable.
    order = np.argsort(times_ns, kind="stable")
    indices, times_ns = np.array(kept, np.int64)[order], times_ns[order]
    offsets_ns = np.zeros(len(indices), np.int64)
    if len(indices) and choice.speed is not None:
        offsets_ns = Replay(times_ns, "the recording", choice.speed).offsets_ns()
    asking = (exchanges[index] for index in indices.tolist())
    sessions = tuple(dict.fromkeys(exchange.session for exchange in asking if exchange.length))
    return Plan(indices, offsets_ns, sessions, left_out)


def _wanted(exchanges: Exchanges, exchange: Exchange, choice: Choice, left_out: Counter[str]) -> bool:
    if choice.from_ns is not None and exchange.unix_ns < choice.from_ns:
        return False
    if choice.until_ns is not None and exchange.unix_ns >= choice.until_ns:
        return False
    if not exchange.is_request:  # the end of a session, or of a request; played where those are
        return True
    model = exchanges.model(exchange)
    if model is None:
        left_out[NO_MODEL] += 1
        return False
    if choice.models and model.name not in choice.models:
        left_out[NOT_CHOSEN] += 1
        return False
    return True

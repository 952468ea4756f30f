"""Notices what is new in the repository, once it has stopped changing."""

import asyncio
import logging
from collections.abc import Mapping
from typing import NoReturn

from tickpath.server.config import ConfigError
from tickpath.server.deployment import REFUSALS, Deployment, QuietError

log = logging.getLogger(__name__)


class Changes:
    """What each model's files were when they were looked at. Pure.

    A model is new when its content is the same twice in a row, so that nobody is still copying it, and not what it was
    when it was last told: so one that was refused is not tried again until it changes.
    """

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._seen = dict(digests)
        self._told = dict(digests)

    def new(self, digests: Mapping[str, str]) -> list[str]:
        """The models that are new now, by name, each told once."""
        settled = [name for name, digest in digests.items() if self._seen.get(name) == digest]
        new = [name for name in settled if self._told.get(name) != digests[name]]
        self._seen = dict(digests)
        self._told |= {name: digests[name] for name in new}
        return new

    def again(self, name: str) -> None:
        """What was told of this model came to nothing, through no fault of its files: it is new still."""
        self._told.pop(name, None)


async def watch(deployment: Deployment, period_s: float) -> NoReturn:
    """Look every `period_s` at what there is to serve, and reload what is new. While it is quiet, it waits."""
    changes = Changes(deployment.started_with)  # what has come since then is new
    wrong = ""  # what was wrong when it looked last: it is said once
    while True:
        await asyncio.sleep(period_s)
        if deployment.is_quiet:
            continue
        try:
            new, now_wrong = changes.new(await deployment.digests()), ""
        except ConfigError as error:
            new, now_wrong = [], str(error)
        if now_wrong and now_wrong != wrong:
            log.warning("watch: %s", now_wrong)
        wrong = now_wrong
        for name in new:
            try:
                await deployment.reload(name)
            except QuietError:  # while it waited for another change
                changes.again(name)
            except REFUSALS as error:
                log.warning("watch: %s", error)
            except Exception:  # a fault of ours, which must not be the end of watching
                log.exception("watch: a fault of the server refused a reload of %s", name)

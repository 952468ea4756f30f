"""What was refused for who asked, and how much: by cause, which are fixed words."""

from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from tickpath.observe.records import GlobalCell
from tickpath.observe.tally import Snapshot

CAUSES: Final = {
    "handshake": GlobalCell.HANDSHAKES_FAILED,
    "stranger": GlobalCell.REFUSED_STRANGERS,
    "sessions": GlobalCell.REFUSED_SESSIONS,
    "model": GlobalCell.REFUSED_RIGHTS,
    "rate": GlobalCell.REFUSED_RATE,
    "in_flight": GlobalCell.REFUSED_IN_FLIGHT,
}


def access_refused(snapshot: Snapshot) -> Metric:
    """Connections and requests."""
    family = CounterMetricFamily(
        "tickpath_access_refused_total",
        "Refused by TLS, identity, rights and quotas: connections (handshake, stranger, sessions) and requests.",
        labels=("cause",),
    )
    for cause, cell in CAUSES.items():
        family.add_metric((cause,), int(snapshot.totals[cell]))
    return family

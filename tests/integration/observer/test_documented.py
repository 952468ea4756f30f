"""docs/METRICS.md names every metric that an observer shows, and no other."""

import re
from pathlib import Path

from tests.integration.observer.observing import Observing

DOCUMENT = Path(__file__).parents[3] / "docs" / "METRICS.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) \| (.+) \|$", re.MULTILINE)


def test_every_metric_is_in_the_document_as_it_is(observer: Observing) -> None:
    told = {name: (kind, text, labels) for name, kind, labels, text in ROW.findall(DOCUMENT.read_text("utf-8"))}
    families = observer.scrape().families.values()
    shown = {family.name + ("_total" if family.type == "counter" else ""): family for family in families}
    assert told.keys() == shown.keys()
    for name, family in shown.items():
        kind, text, labels = told[name]
        assert (kind, text) == (family.type, family.documentation.rstrip(".")), name
        used = {label for sample in family.samples for label in sample.labels} - {"le"}
        # A machine without GPUs has no series of them.
        assert not family.samples or used == set(filter(None, labels.split(", "))), name

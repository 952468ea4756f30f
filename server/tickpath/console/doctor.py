"""`tickpath doctor`: a host, before a server is put onto it."""

import os
import sys

import click

from tickpath.console.endings import Failed
from tickpath.console.output import print_json, print_rich

EXAMPLES = """
Examples:

\b
tickpath doctor
tickpath doctor --cpu 3 --seconds 30
tickpath doctor --json --strict

Exit code: 0 nothing failed, 1 something did, or with --strict was warned of.
"""


@click.command(epilog=EXAMPLES)
@click.option("--cpu", type=click.IntRange(0), metavar="N", help="The core that `serve --cpu N` will stay on.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=5.0,
    show_default=True,
    help="How long to look for hiccups; 0: measure nothing.",
)
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(*, cpu: int | None, seconds: float, strict: bool, as_json: bool) -> int:
    """Say what of this host is felt in the tail, with remedies.

    Run it on the machine, as the user and in the control group in which the server will run. It changes nothing.
    """
    from rich.console import Console
    from rich.progress import track

    from tickpath.doctor.examination import looks
    from tickpath.doctor.finding import Verdict
    from tickpath.doctor.host import Host

    allowed = os.sched_getaffinity(0)
    if cpu is not None and cpu not in allowed:
        raise Failed(f"--cpu {cpu}: this process may use {sorted(allowed)}")
    host = Host(frozenset(allowed if cpu is None else {cpu}))
    progress = Console(stderr=True)
    steps = list(looks(host, seconds))
    seen = track(steps, "looking", console=progress, transient=True, disable=not sys.stderr.isatty())
    findings = [look() for look in seen]
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
    if as_json:
        import msgspec

        print_json({"findings": msgspec.to_builtins(findings), "counts": msgspec.to_builtins(counts)})
    else:
        from tickpath.console.tables import findings_table

        print_rich(findings_table(findings))
        click.echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(counts[Verdict.FAIL] > 0 or (strict and counts[Verdict.WARN] > 0))

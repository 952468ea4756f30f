"""What a check says."""

import enum

import msgspec


class Verdict(enum.StrEnum):
    """OK: nothing to do. WARN: a tail pays for it. FAIL: it makes a server fail, or its tail worthless. UNSEEN: this
    machine does not say."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNSEEN = "unseen"


class Finding(msgspec.Struct, frozen=True):
    """One line: what was looked at, what was found there, and what to do about it, empty where nothing is."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Verdict.OK, found)


def warn(check: str, found: str, remedy: str) -> Finding:
    """A tail pays for it."""
    return Finding(check, Verdict.WARN, found, remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    """No server should run like this."""
    return Finding(check, Verdict.FAIL, found, remedy)


def unseen(check: str, found: str) -> Finding:
    """The machine does not say."""
    return Finding(check, Verdict.UNSEEN, found)

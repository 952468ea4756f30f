"""Counts and rates as people read them."""


def counted(count: int, noun: str) -> str:
    """1 request, 2 requests."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rate_text(rate_hz: float) -> str:
    """Four digits, and never less than whole: 12,345, 264.6, 0.5."""
    whole = rate_hz >= 1000 or rate_hz == round(rate_hz)
    return f"{rate_hz:,.0f}" if whole else f"{rate_hz:.4g}"

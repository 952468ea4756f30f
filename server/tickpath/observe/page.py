"""The live page: one file without anything from elsewhere, and the headers under which a browser shows it."""

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from importlib.resources import files

from tickpath.observe.http import Response


@cache
def page() -> Response:
    """Read once: what a file on disk becomes later is not served."""
    html = files("tickpath.observe").joinpath("page.html").read_text("utf-8")
    # Only this style and this script, only this server, and in nobody's frame: were a name that comes from a model's
    # file ever to become markup, nothing in it would run.
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {' '.join(_hashes(html, 'style'))}",
            f"script-src {' '.join(_hashes(html, 'script'))}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    headers = (
        f"Content-Security-Policy: {policy}",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
    )
    return Response(HTTPStatus.OK, html.encode(), "text/html; charset=utf-8", headers)


def _hashes(html: str, tag: str) -> Iterable[str]:
    for content in re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL):
        digest = hashlib.sha256(content.encode()).digest()
        yield f"'sha256-{base64.b64encode(digest).decode()}'"

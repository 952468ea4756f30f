"""What several parts of the configuration are made of."""

from typing import Annotated, Final

import msgspec

# A file or a host. The system's names have no NUL in them; one at the start would be a socket without a file.
PLACE_PATTERN: Final = r"^[^\0]+\Z"
Place = Annotated[str, msgspec.Meta(pattern=PLACE_PATTERN)]
# Counts and bytes: more than any machine has of them, few enough for every number on the wire and in the loop.
Positive = Annotated[int, msgspec.Meta(gt=0, lt=2**40)]
# An hour: no client and no operator waits longer, and infinity is no number of seconds.
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]

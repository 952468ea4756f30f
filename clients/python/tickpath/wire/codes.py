"""The closed list of reasons for which a server refuses: one meaning each, never a new one under an old number."""

import enum


class Code(enum.IntEnum):
    """Why a request, or a whole session, was refused; docs/PROTOCOL.md says what a client should do about each."""

    BAD_FRAME = 1  # the length prefix is not one this server takes, or a frame took too long; the session closes
    BAD_MESSAGE = 2  # the frame's bytes are not a message of this protocol; the session closes
    UNKNOWN_MODEL = 3  # no model is served under this handle
    BAD_SHAPE = 4  # rows, number of inputs or byte count do not fit the model's specification
    BAD_DTYPE = 5  # an array's dtype is not the model's (clients refuse it before they send)
    BAD_VALUE = 6  # the right form, a value that is not allowed: NaN where refused, an id in flight, an unknown feed
    DEADLINE = 7  # budget_ns was, or would have been, over before the answer
    SUPERSEDED = 8  # a newer tick of the same feed came before this one ran
    OVERLOADED = 9  # a limit of Welcome.limits or the model's queue is reached; nothing was queued
    NOT_READY = 10  # the server or the model is loading, draining or has failed
    CANCELLED = 11  # the client took it back before it ran
    UNAUTHENTICATED = 12  # Hello is missing, late, or its token is not known
    FORBIDDEN = 13  # the token is known but may not do this
    FEED_GAP = 14  # a feed's sequence number is not the next one
    ENGINE_FAILED = 15  # the model ran and gave no answer that may be used; the message says why
    INTERNAL = 16  # a fault of the server; please report it

"""What a Result may carry beside its outputs: bits of its field `flags`, each with one meaning for ever."""

import enum


class Flag(enum.IntFlag):
    """What a client should know of an answer before it acts on it; docs/PROTOCOL.md says more. A reader passes over
    bits that it does not know."""

    INPUT_NON_FINITE = 1  # an input held a NaN, an infinity, or a bool other than 0 and 1
    OUTPUT_NON_FINITE = 2  # an output of this answer holds a NaN or an infinity
    OUTPUT_OUT_OF_BOUNDS = 4  # an output of this answer holds a value outside the bounds that the operator set
    LAST_ANSWER = 8  # not an answer to this request: the session's last one from this handle, `age_ns` old
    CPU_ANSWER = 16  # computed on the CPU, since the model's own device failed

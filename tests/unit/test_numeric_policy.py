"""A model's numeric policy, from its settings to what a lane answers."""

from collections.abc import Sequence
from time import monotonic_ns
from typing import Any

import numpy as np
import pytest
from tests.numpy_engine import NumpyEngine, tensor

from tickpath.engines import Array
from tickpath.server.admission import Refusal
from tickpath.server.config import ConfigError, ModelConfig, make_config
from tickpath.server.lane import Answer, Lane
from tickpath.server.numeric_config import NumericPolicy
from tickpath.server.numeric_policy import judge_outputs, misplaced_limits
from tickpath.wire import PREFIX_BYTES, Code, Flag, Infer, Result, decode_server_message

SPECS = [tensor("x", (1, 2))]
NAN, INF = np.nan, np.inf


def logarithm(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Of 0, and so of padding, it is an infinity; of what is negative, NaN; of NaN, 0: as if nothing were."""
    x = inputs[0].astype(np.float32)
    with np.errstate(all="ignore"):
        outputs[0][...] = np.where(np.isnan(x), np.float32(0), np.log(x))


def run(values: Sequence[float], rows: int = 1, **settings: Any) -> Answer | Refusal:
    lane = Lane(NumpyEngine(SPECS, [tensor("y", (1, 2))], logarithm), ModelConfig("m.onnx", **settings), (1, 4))
    now_ns = monotonic_ns()
    return lane.run(Infer(9, 0, rows, [memoryview(np.array(values, np.float32).tobytes())]), now_ns, now_ns)


def told(outcome: Answer | Refusal) -> Flag | Code:
    """The flags that the client sees, or the code; what is counted is the same."""
    if isinstance(outcome, Refusal):
        return outcome.code
    result = decode_server_message(memoryview(outcome.frame)[PREFIX_BYTES:])
    assert isinstance(result, Result)
    assert (result.flags, result.age_ns) == (outcome.flags, 0)
    return Flag(result.flags)


IN, OUT, BOUNDS = Flag.INPUT_NON_FINITE, Flag.OUTPUT_NON_FINITE, Flag.OUTPUT_OUT_OF_BOUNDS
NOTHING = Flag(0)


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        ([1, 2], {}, NOTHING),
        ([1, NAN], {}, Code.BAD_VALUE),
        ([1, INF], {"non_finite": "refuse"}, Code.BAD_VALUE),
        ([1, NAN], {"non_finite": "flag"}, IN),
        ([1, NAN], {"non_finite": "pass"}, NOTHING),
        # What the model makes of good inputs.
        ([1, -1], {}, NOTHING),
        ([1, 0], {"output_non_finite": "refuse"}, Code.ENGINE_FAILED),
        ([1, -1], {"output_non_finite": "flag"}, OUT),
        ([1, 1], {"output_non_finite": "refuse"}, NOTHING),
        # What it makes of others: hidden by the model, or not.
        ([1, NAN], {"non_finite": "flag", "output_non_finite": "refuse"}, IN),
        ([1, INF], {"non_finite": "flag", "output_non_finite": "flag"}, IN | OUT),
        ([1, INF], {"non_finite": "pass", "output_non_finite": "flag"}, OUT),
        # Bounds.
        ([1, 2], {"output_min": 0.5}, Code.ENGINE_FAILED),
        ([1, 2], {"output_max": 0.5, "out_of_bounds": "flag"}, BOUNDS),
        ([1, 2], {"output_max": 0.5, "out_of_bounds": "pass"}, NOTHING),
        ([1, 2], {"output_min": 0, "output_max": {"y": 1}}, NOTHING),
        ([1, 2], {"output_max": {"y": 0.5}}, Code.ENGINE_FAILED),
        ([1, -1], {"output_min": -1e9}, Code.ENGINE_FAILED),
        ([1, 0], {"output_max": 9, "out_of_bounds": "flag"}, NOTHING),
        ([1, 0], {"output_min": -9, "output_max": 9, "out_of_bounds": "flag"}, BOUNDS),
        # Both.
        (
            [1, 0],
            {"output_min": -9, "output_max": 9, "out_of_bounds": "flag", "output_non_finite": "flag"},
            BOUNDS | OUT,
        ),
        ([1, 0], {"output_min": -9, "output_non_finite": "flag"}, Code.ENGINE_FAILED),
        ([1, 0], {"output_min": -9, "out_of_bounds": "flag", "output_non_finite": "refuse"}, Code.ENGINE_FAILED),
    ],
    ids=str,
)
def test_what_becomes_of_a_request(values: Sequence[float], settings: dict[str, Any], expected: Flag | Code) -> None:
    assert told(run(values, **settings)) == expected


def test_a_refusal_names_the_output_and_the_settings() -> None:
    refused = run([1, 0], output_non_finite="refuse", output_min=-5)
    assert isinstance(refused, Refusal)
    for part in ("the answer is refused", "output 'y'", "a NaN or an infinity", "output_min", "; "):
        assert part in refused.message
    assert refused.flags == OUT | BOUNDS


def test_padding_is_nobodys() -> None:
    """Of the zeros behind the request's own rows this model makes infinities."""
    strict = {"output_non_finite": "refuse", "output_min": -9, "output_max": 9}
    for rows in (1, 2, 3, 4):
        assert told(run([1.5] * 2 * rows, rows, **strict)) == NOTHING
        assert told(run([1.5] * (2 * rows - 1) + [0], rows, **strict)) == Code.ENGINE_FAILED


def test_what_is_passed_is_not_counted() -> None:
    outcome = run([NAN, 0], non_finite="pass", output_min=1, out_of_bounds="pass")
    assert isinstance(outcome, Answer)
    assert outcome.flags == 0


def test_judging_is_pure() -> None:
    refusing = NumericPolicy(outputs="refuse", bounds="refuse")
    assert judge_outputs(refusing, None, None) == (0, "")
    assert judge_outputs(NumericPolicy(outputs="flag", bounds="flag"), "a", "b") == (OUT | BOUNDS, "")
    seen, why = judge_outputs(refusing, "a", "b")
    assert seen == OUT | BOUNDS
    assert "'a'" in why
    assert "'b'" in why


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, False),
        ({"non_finite": "flag"}, True),
        ({"output_non_finite": "flag"}, True),
        ({"out_of_bounds": "flag"}, False),
        ({"out_of_bounds": "flag", "output_max": {"y": 1}}, True),
        ({"output_min": 0}, False),
    ],
    ids=str,
)
def test_an_answer_may_carry_flags_only_where_some_are_asked_for(settings: dict[str, Any], flags: bool) -> None:
    assert ModelConfig("m.onnx", **settings).numeric.flags is flags


OUTPUTS = [tensor("p", (1, 2)), tensor("label", (1,), 0, np.int64), tensor("seen", (1,), 0, np.bool_)]


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (NumericPolicy(output_min=0), None),
        (NumericPolicy(output_min={"p": 0}, output_max={"label": 3}), None),
        (
            NumericPolicy(output_min={"q": 0}),
            "output_min names 'q', which is no output with numbers: there are label, p",
        ),
        (NumericPolicy(output_max={"seen": 0}), "output_max names 'seen'"),
        (NumericPolicy(output_min=1, output_max={"p": 0}), "output 'p' is to be 1 at least and 0 at most"),
    ],
)
def test_limits_fit_the_model(policy: NumericPolicy, says: str | None) -> None:
    found = misplaced_limits(policy, OUTPUTS)
    assert found is None if says is None else says in str(found)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"output_non_finite": "drop"}, ["'drop'", "output_non_finite", "'refuse', 'flag', 'pass'"]),
        ({"out_of_bounds": "clip"}, ["'clip'", "out_of_bounds"]),
        ({"output_min": NAN}, ["output_min", "nan"]),
        ({"output_max": {"p": INF}}, ["output_max", "<= 1e+300"]),
        ({"output_max": "1"}, ["output_max", "'1' came"]),
        ({"fallback": "retry"}, ["'retry'", "'none', 'last', 'cpu'"]),
        ({"fallback_age_max_s": 0}, ["fallback_age_max_s", "0 came"]),
        ({"fallback_age_max_s": 1e9}, ["fallback_age_max_s", "<= 3600"]),
    ],
)
def test_settings_that_are_none_are_named(settings: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config({"models": [{"path": "m.onnx", **settings}]})
    for part in says:
        assert part in str(refused.value)

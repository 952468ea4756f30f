"""What stands in for an answer that a model could not give: the session's last one, or the CPU's."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
import pytest
from tests.numpy_engine import NumpyEngine, tensor
from tests.onnx_models import one_node, save
from tests.repositories import scale

from tickpath.engines import Array, EngineFailedError, ModelRefusedError
from tickpath.engines.load import load
from tickpath.server.admission import Refusal
from tickpath.server.compute_time import ComputeTime
from tickpath.server.config import ModelConfig
from tickpath.server.cpu_source import SOURCE_FILE
from tickpath.server.fallback import LAST_BYTES_MAX, LastAnswers
from tickpath.server.lane import Answer, Failed, Lane
from tickpath.server.model import capture_standby, prepare_model
from tickpath.wire import PREFIX_BYTES, Code, Flag, Infer, Result, decode_server_message, encode_frame

SPECS = [tensor("x", (1, 3))], [tensor("y", (1, 3))]
STAMPS = (1, 2, 3, 4, 5, 6)
LATER = (11, 12, 13, 14, 15, 15)
LAST = ModelConfig("m.onnx", fallback="last")
SECOND_NS = 10**9


def result_of(outcome: Answer | Refusal) -> Result:
    assert isinstance(outcome, Answer), outcome
    result = decode_server_message(memoryview(outcome.frame)[PREFIX_BYTES:])
    assert isinstance(result, Result)
    return result


def asked(request_id: int, handle: int = 0, rows: int = 1) -> Infer:
    return Infer(request_id, handle, rows, [memoryview(bytes(12 * rows))])


def answer(request_id: int, output: bytes, version: str = "1") -> Answer:
    return Answer(encode_frame(Result(request_id, version, [memoryview(output)], STAMPS)), 0, 1, STAMPS)


def failed(flags: int = 0) -> Failed:
    return Failed(Code.ENGINE_FAILED, "it broke", flags, bucket_index=2, bucket=4, stamps=LATER)


def test_the_last_answer_stands_in_marked_with_its_age_and_its_version() -> None:
    last = LastAnswers()
    last.keep(asked(1), answer(1, b"old", "6"))
    last.keep(asked(2), answer(2, b"good", "7"))
    outcome = last.stand_in(asked(3), failed(), LAST, STAMPS[4] + 1234)
    result = result_of(outcome)
    assert (result.id, result.version, bytes(result.outputs[0])) == (3, "7", b"good")
    assert (result.flags, result.age_ns, result.stamps) == (Flag.LAST_ANSWER, 1234, LATER)
    assert isinstance(outcome, Answer)
    assert (outcome.bucket_index, outcome.bucket, outcome.stamps) == (2, 4, LATER)


def test_what_was_seen_of_the_request_is_told_and_what_was_seen_of_its_refused_output_only_counted() -> None:
    last = LastAnswers()
    last.keep(asked(1), answer(1, b"good"))
    seen = int(Flag.INPUT_NON_FINITE | Flag.OUTPUT_NON_FINITE)
    allowing = ModelConfig("m.onnx", fallback="last", fallback_for_refused=True)
    outcome = last.stand_in(asked(2), failed(seen), allowing, 10)
    assert result_of(outcome).flags == Flag.LAST_ANSWER | Flag.INPUT_NON_FINITE
    assert isinstance(outcome, Answer)
    assert outcome.flags == seen | Flag.LAST_ANSWER


def test_a_refused_output_stays_refused_unless_asked_otherwise() -> None:
    last = LastAnswers()
    last.keep(asked(1), answer(1, b"good"))
    refused = failed(int(Flag.OUTPUT_OUT_OF_BOUNDS))
    assert last.stand_in(asked(2), refused, LAST, 10) is refused
    assert result_of(last.stand_in(asked(2), failed(int(Flag.INPUT_NON_FINITE)), LAST, 10)).id == 2


def test_what_has_not_run_and_what_asks_for_no_other_answer_stays_refused() -> None:
    last = LastAnswers()
    last.keep(asked(1), answer(1, b"good"))
    late = Refusal(Code.DEADLINE, "too late")
    assert last.stand_in(asked(2), late, LAST, 10) is late
    broken = failed()
    for fallback in ("none", "cpu"):
        assert last.stand_in(asked(2), broken, ModelConfig("m.onnx", fallback=fallback), 10) is broken


@pytest.mark.parametrize("infer", [asked(2, handle=1), asked(2, rows=2)], ids=["another handle", "other rows"])
def test_only_the_same_handle_and_as_many_rows(infer: Infer) -> None:
    last = LastAnswers()
    last.keep(asked(1), answer(1, b"good"))
    outcome = last.stand_in(infer, failed(), LAST, 10)
    assert isinstance(outcome, Refusal)
    assert outcome.code is Code.ENGINE_FAILED
    rows = "1 row" if infer.rows == 1 else "2 rows"
    assert outcome.message == f"it broke; this session has no earlier answer of {rows} to stand in for it"


@pytest.mark.parametrize(("age_ns", "stands"), [(SECOND_NS, True), (SECOND_NS + 1, False)])
def test_nothing_older_than_is_allowed(age_ns: int, stands: bool) -> None:
    last = LastAnswers()
    last.keep(asked(1), answer(1, b"good"))
    outcome = last.stand_in(asked(2), failed(), LAST, STAMPS[4] + age_ns)
    assert isinstance(outcome, Answer) is stands
    if isinstance(outcome, Refusal):
        assert "the last answer is 1000000001 ns old, and may be 1000000000" in outcome.message


def test_the_oldest_go_where_there_are_too_many_bytes() -> None:
    last = LastAnswers()
    for handle in range(4):
        last.keep(asked(1 + handle, handle), answer(1 + handle, bytes(LAST_BYTES_MAX // 4)))
    last.keep(asked(9, 1), answer(9, bytes(LAST_BYTES_MAX // 4)))
    found = [last.stand_in(asked(10, handle), failed(), LAST, 10) for handle in range(4)]
    assert [isinstance(outcome, Answer) for outcome in found] == [False, True, True, True]
    assert result_of(found[1]).age_ns == 5
    last.keep(asked(11, 7), answer(11, bytes(LAST_BYTES_MAX - 200)))
    assert [isinstance(last.stand_in(asked(10, handle), failed(), LAST, 10), Answer) for handle in (1, 2, 3, 7)] == [
        False,
        False,
        False,
        True,
    ]


# -- on the CPU --


def fails_on_negatives(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    if (inputs[0].astype(np.float32) < 0).any():
        raise EngineFailedError("the device is gone")
    outputs[0][...] = 1.0


def device(folder: Path, factor: float = 3.0, **settings: Any) -> tuple[Lane, ModelConfig]:
    """A model on a device that fails now and then and answers 1, whose source on the CPU multiplies."""
    save(scale(factor), folder, SOURCE_FILE)
    config = ModelConfig(str(folder / "model.plan"), version="5", fallback="cpu", **settings)
    engine = NumpyEngine(*SPECS, fails_on_negatives)
    return Lane(engine, config, (1, 4), capture_standby(config, engine.spec, (1, 4), None)), config


def run(lane: Lane, values: Sequence[float], rows: int = 1, budget_ns: int = 0) -> Answer | Refusal:
    now_ns = monotonic_ns()
    data = memoryview(np.array(values, np.float32).tobytes())
    return lane.run(Infer(4, 0, rows, [data], budget_ns), now_ns, now_ns)


def test_the_cpu_answers_the_same_request_and_says_so(tmp_path: Path) -> None:
    lane, _ = device(tmp_path)
    assert result_of(run(lane, [1, 2, 3])).flags == 0
    for rows in (1, 3):
        outcome = run(lane, [-1, 2, 3] * rows, rows)
        result = result_of(outcome)
        assert np.frombuffer(result.outputs[0], np.float32).tolist() == [-3, 6, 9] * rows
        assert (result.id, result.version, result.flags, result.age_ns) == (4, "5", Flag.CPU_ANSWER, 0)
        assert isinstance(outcome, Answer)
        assert outcome.flags == Flag.CPU_ANSWER
        assert list(result.stamps) == sorted(result.stamps)
    assert result_of(run(lane, [1, 2, 3])).flags == 0


def test_where_the_cpu_has_no_good_answer_either_the_failure_is_told(tmp_path: Path) -> None:
    lane, _ = device(tmp_path, output_max=8, fallback_for_refused=True)
    assert result_of(run(lane, [-1, 2, 2])).flags == Flag.CPU_ANSWER
    refused = run(lane, [-1, 2, 3])
    assert isinstance(refused, Refusal)
    assert "the device is gone" in refused.message
    assert lane.standby is not None
    lane.standby.times = [ComputeTime(10**12), ComputeTime(10**12)]
    assert isinstance(run(lane, [-1, 2, 2], budget_ns=10**11), Refusal)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_cpu_stands_in_for_a_refused_output_if_that_is_allowed(tmp_path: Path, allowed: bool) -> None:
    lane, _ = device(tmp_path, output_min={"y": 2}, fallback_for_refused=allowed)
    outcome = run(lane, [1, 2, 3])
    assert isinstance(outcome, Answer) is allowed
    if isinstance(outcome, Answer):
        assert result_of(outcome).flags == Flag.CPU_ANSWER
        assert outcome.flags == Flag.CPU_ANSWER | Flag.OUTPUT_OUT_OF_BOUNDS


def test_the_standby_goes_with_its_lane(tmp_path: Path) -> None:
    lane, _ = device(tmp_path)
    assert lane.standby is not None
    lane.close()
    assert lane.standby.slots == []


@pytest.mark.parametrize("there", [True, False])
def test_a_standby_needs_the_source_of_this_very_model(tmp_path: Path, there: bool) -> None:
    if there:
        save(one_node("Neg", np.float32, ["N", 2]), tmp_path, SOURCE_FILE)
    config = ModelConfig(str(tmp_path / "model.plan"), fallback="cpu")
    says = "compile it again" if there else 'fallback = "cpu" needs the .onnx file it was compiled from'
    with pytest.raises(ModelRefusedError, match=says):
        capture_standby(config, NumpyEngine(*SPECS).spec, (1,), None)


def test_a_model_on_the_cpu_has_no_other_cpu(tmp_path: Path) -> None:
    config = ModelConfig(str(save(scale(2), tmp_path)), fallback="cpu")
    with pytest.raises(ModelRefusedError, match=r'this one runs on the CPU engine.*choose "last" or "none"'):
        prepare_model(config, None, 10**6)


def test_a_plan_that_runs_on_the_cpu_already_needs_no_standby(tmp_path: Path) -> None:
    on_cpu = load(save(scale(2), tmp_path))
    config = ModelConfig(str(tmp_path / "model.plan"), fallback="cpu", on_bad_plan="cpu")
    assert capture_standby(config, on_cpu.spec, (1,), None) is None


def test_what_is_too_large_to_be_kept_is_refused_at_load(tmp_path: Path) -> None:
    path = save(one_node("Neg", np.float32, ["N", LAST_BYTES_MAX // 32]), tmp_path)
    prepare_model(ModelConfig(str(path), fallback="last", buckets=(1, 4)), None, 10**7)
    with pytest.raises(ModelRefusedError, match=r'fallback = "last" keeps an answer.*262144 is the most'):
        prepare_model(ModelConfig(str(path), fallback="last"), None, 10**7)


def test_limits_are_checked_at_load(tmp_path: Path) -> None:
    path = save(scale(2), tmp_path)
    with pytest.raises(ModelRefusedError, match="output_min names 'z', which is no output with numbers: there are y"):
        prepare_model(ModelConfig(str(path), output_min={"z": 0}), None, 10**6)

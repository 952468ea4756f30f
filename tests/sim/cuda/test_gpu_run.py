"""The tests and measurements for GPU machines are ready to run: here the simulated driver takes the GPU's place."""

from pathlib import Path

from tests.sim.cuda.conftest import RunSimulated


def test_the_tests_for_a_gpu(run_simulated: RunSimulated) -> None:
    done = run_simulated("tests.sim.cuda.gpu_run", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_measurements_of_a_gpu(run_simulated: RunSimulated, tmp_path: Path) -> None:
    done = run_simulated("tests.sim.cuda.gpu_run", "bench", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (kept,) = tmp_path.iterdir()
    assert kept.read_text() == done.stdout
    assert done.stdout.count("whole request") == 6  # 2 buckets, 3 ways

"""A plan and its sidecar are there whole and together, or named for what they are."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.plans import make_sidecar

from tickpath.engines.compile.plan_file import BadPlanError, publish, read_plan, sidecar_path, write_whole

PLAN = bytes(range(256)) * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.plan"
    publish(path, PLAN, make_sidecar(PLAN))
    return path


def test_what_was_published_is_read(path: Path) -> None:
    plan = read_plan(path)
    assert (plan.content, plan.sidecar) == (PLAN, make_sidecar(PLAN))
    assert sorted(file.name for file in path.parent.iterdir()) == ["model.plan", "model.plan.json"]


def test_others_may_read_it(path: Path) -> None:
    assert {file.stat().st_mode & 0o777 for file in (path, sidecar_path(path))} == {0o644}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(lambda path: path.unlink(), "model.plan: the plan is not there", id="no plan"),
        pytest.param(
            lambda path: sidecar_path(path).unlink(), "the sidecar of model.plan is not there", id="no sidecar"
        ),
        pytest.param(lambda path: path.write_bytes(b""), "the plan is empty", id="empty"),
        pytest.param(lambda path: path.write_bytes(PLAN[:-1]), "has 4095 bytes, its sidecar says 4096", id="cut"),
        pytest.param(lambda path: path.write_bytes(PLAN[::-1]), "not the one that its sidecar describes", id="other"),
        pytest.param(lambda path: sidecar_path(path).write_bytes(b""), "the sidecar is empty", id="empty sidecar"),
        pytest.param(
            lambda path: sidecar_path(path).write_bytes(sidecar_path(path).read_bytes()[:-9]),
            "cut short",
            id="cut sidecar",
        ),
        pytest.param(
            lambda path: sidecar_path(path).write_text(sidecar_path(path).read_text().replace("1.7.1", "1.7.2")),
            "its seal does not fit",
            id="edited sidecar",
        ),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), "can't be read: Is a directory", id="folder"),
    ],
)
def test_what_is_bad_is_named(path: Path, damage: object, says: str) -> None:
    assert callable(damage)
    damage(path)
    with pytest.raises(BadPlanError, match=says) as refused:
        read_plan(path)
    assert "\n" not in str(refused.value)


def test_a_write_that_fails_changes_nothing(path: Path) -> None:
    sidecar_path(path).unlink()
    sidecar_path(path).mkdir()
    (sidecar_path(path) / "full").touch()
    before = path.stat()
    with pytest.raises(OSError, match=r"."):
        write_whole(sidecar_path(path), b"new")
    assert path.stat() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["model.plan", "model.plan.json"]


# Publishes its own plan again and again until it is told to stop, and says when it has begun.
BUILDER = """
import sys
from pathlib import Path
from tests.plans import make_sidecar
from tickpath.engines.compile.plan_file import publish
path, mine, stop = Path(sys.argv[1]), sys.argv[2].encode() * 100_000, Path(sys.argv[3])
publish(path, mine, make_sidecar(mine))
print("begun", flush=True)
while not stop.exists():
    publish(path, mine, make_sidecar(mine))
"""


def test_two_builders_at_once(path: Path) -> None:
    """Whoever reads meanwhile sees the whole of one of them, plan and sidecar."""
    stop = path.with_name("stop")
    command = [sys.executable, "-c", BUILDER, str(path)]
    root = Path(__file__).parents[2]
    builders = [
        subprocess.Popen([*command, name, str(stop)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root)
        for name in ("one", "two")
    ]
    try:
        for builder in builders:
            assert builder.stdout is not None
            assert builder.stdout.readline() == b"begun\n"
        seen = {read_plan(path).content[:3] for _ in range(200)}
    finally:
        stop.touch()
        said = [builder.communicate(timeout=20) for builder in builders]
    assert seen == {b"one", b"two"}
    assert said == [(b"", b""), (b"", b"")]
    assert sorted(file.name for file in path.parent.iterdir()) == ["model.plan", "model.plan.json", "stop"]

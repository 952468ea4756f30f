"""What a watched repository is said to have that is new."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tickpath.server.watch import Changes


def test_what_is_there_at_the_start_is_not_new() -> None:
    changes = Changes({"btc": "red"})
    assert [changes.new({"btc": "red"}) for _ in range(3)] == [[]] * 3


def test_a_model_is_new_once_it_has_stopped_changing_and_is_told_once() -> None:
    changes = Changes({"btc": "red"})
    looks = ["re", "gre", "green", "green", "green"]
    assert [changes.new({"btc": digest}) for digest in looks] == [[], [], [], ["btc"], []]


def test_one_that_comes_back_to_what_was_told_is_not_new() -> None:
    changes = Changes({"btc": "red"})
    assert [changes.new({"btc": digest}) for digest in ("green", "red", "red", "red")] == [[]] * 4


def test_models_come_and_go_beside_each_other() -> None:
    changes = Changes({"btc": "red"})
    assert changes.new({"btc": "red", "eth": "blue"}) == []
    assert changes.new({"btc": "green", "eth": "blue"}) == ["eth"]
    assert changes.new({"btc": "green"}) == ["btc"]
    assert changes.new({"btc": "green", "eth": "blue"}) == []
    assert changes.new({"btc": "green", "eth": "blue"}) == []  # as it was told before


def test_what_came_to_nothing_is_told_again() -> None:
    changes = Changes({"btc": "red", "eth": "red"})
    looks = [{"btc": "green", "eth": "blue"}] * 2
    assert [changes.new(look) for look in looks] == [[], ["btc", "eth"]]
    changes.again("eth")
    assert [changes.new(looks[0]) for _ in range(2)] == [["eth"], []]


@given(st.lists(st.sampled_from("rgb"), min_size=1, max_size=30))
def test_what_was_told_last_is_what_stays(looks: list[str]) -> None:
    """Whatever happened before: two looks at the same content are enough, and no two tellings are of the same."""
    changes = Changes({"btc": "r"})
    told = ["r", *(digest for digest in looks if changes.new({"btc": digest}))]
    assert all(one != other for one, other in pairwise(told))
    for _ in range(2):
        told += [looks[-1] for _ in changes.new({"btc": looks[-1]})]
    assert told[-1] == looks[-1]

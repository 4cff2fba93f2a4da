"""The benchmark's own arithmetic: medians, ratios, percentiles, and what the report makes of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Row, Series, percentile, shown
from bench.report import as_json, as_table

_positive = st.floats(min_value=0.001, max_value=1e9, allow_nan=False)
_rounds = st.lists(_positive, min_size=1, max_size=9)


def series(*rounds: float, name: str = "ours") -> Series:
    return Series(name, "events/s", rounds)


def test_one_disturbed_round_does_not_move_the_median():
    assert series(100, 101, 5, 99, 100).median == 100


def test_the_spread_is_the_distance_of_the_extremes_over_the_median():
    assert series(90, 100, 120).spread == pytest.approx(0.3)


def test_a_rate_is_compared_with_the_slowest_limit():
    row = Row("r", "w", series(50, 60), (series(100, 100, name="a"), series(80, 200, name="b")))

    assert row.tightest is not None
    assert row.tightest.name == "a"


def test_a_time_is_compared_with_the_longest_limit():
    row = Row("r", "w", series(3), (series(1, name="a"), series(2, name="b")), better="low", aim=2)

    assert row.ratio is not None
    assert (row.ratio.rounds, row.reached) == ((1.5,), True)


def test_the_ratio_pairs_rounds_that_ran_side_by_side():
    row = Row("r", "w", series(50, 10, 50), (series(100, 20, 100),), aim=0.5)

    assert row.ratio is not None
    assert row.ratio.rounds == (0.5, 0.5, 0.5)
    assert row.reached


@pytest.mark.parametrize(("better", "reached"), [("high", False), ("low", True)])
def test_which_way_is_good_decides_whether_the_aim_is_reached(better, reached):
    row = Row("r", "w", series(1), (series(2),), better=better, aim=0.6)

    assert row.reached is reached


def test_without_a_limit_there_is_no_ratio_and_no_verdict():
    row = Row("r", "w", series(1), aim=1.0)

    assert (row.tightest, row.ratio, row.reached) == (None, None, None)


@given(_rounds, st.floats(min_value=0, max_value=1))
def test_a_percentile_is_one_of_the_values_and_covers_its_share(values, share):
    found = percentile(values, share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_the_hundredth_of_a_hundred_values_is_the_last():
    values = [float(number) for number in range(1, 101)]

    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]


def test_no_values_have_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@given(_positive)
def test_a_shown_figure_is_within_half_a_percent(value):
    assert math.isclose(float(shown(value).replace(",", "")), value, rel_tol=0.005)


def test_the_report_names_ours_the_limits_the_ratio_and_the_aim():
    row = Row("memory", "writes", series(60, 62), (series(100, 100, name="raw"),), aim=0.6, notes=("a note",))

    table = as_table({"CPUs": 2}, [row])
    document = as_json({"CPUs": 2}, [row])

    for part in ("CPUs 2", "memory: writes", "ours", "raw", "0.61", "aim at least 0.6: reached", "a note"):
        assert part in table
    (found,) = document["rows"]
    assert (found["ratio"]["median"], found["reached"], found["aim"]) == (pytest.approx(0.61), True, 0.6)

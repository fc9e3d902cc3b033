"""A budget: what it calibrates, claims and makes is of one piece, and what no budget can have is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fedfairx.errors import InvalidInput, StateError
from fedfairx.privacy import Bounds, Budget, Centring, KeyedNoise, NoiseShare, calibrate, new_key

BOX = Centring.unit_box(3)
BUDGETS = [
    pytest.param({}, id="plain"),
    pytest.param({"bounds": Bounds(reward=2.0, gram_share=0.25), "mechanism": "tree"}, id="bounds"),
    pytest.param({"centring": BOX, "bounds": Bounds(adjacency="add-remove")}, id="centred"),
    pytest.param({"person_records": 3, "decide_from": "released"}, id="persons"),
    pytest.param({"public_schedule": False}, id="not private"),
]


def budget(**changes: Any) -> Budget:
    return Budget(**({"epsilon": 2.0, "releases": 9} | changes))


@pytest.mark.parametrize("changes", BUDGETS)
def test_the_privatizer_has_the_mechanism_and_claims_the_guarantee(changes: dict[str, Any]) -> None:
    made = budget(**changes)
    privatizer = made.privatizer(3, noise=KeyedNoise(new_key(), agent="a", run="r"))
    assert privatizer.mechanism == made.calibrate()
    assert privatizer.guarantee == made.guarantee()
    assert Budget.from_dict(made.to_dict()) == made


def test_noise_is_calibrated_to_what_is_summed() -> None:
    assert budget().calibrate().sensitivity == Bounds().sensitivity == 2.0
    assert budget(centring=BOX).calibrate().sensitivity == pytest.approx(0.5625)
    blanked = budget(centring=BOX, bounds=Bounds(adjacency="add-remove")).summed_bounds
    assert blanked == BOX.inner_bounds(adjacency="add-remove")


def test_a_mechanism_of_the_user_s_own_is_called_as_calibrate_is() -> None:
    def own(**asked: Any) -> Any:
        return calibrate("tree", **asked)

    made = budget(mechanism=own)
    assert made.calibrate().digest() == budget(mechanism="tree").calibrate().digest()
    with pytest.raises(InvalidInput, match="mechanism must be a name"):
        made.to_dict()


@pytest.mark.parametrize("mechanism", ["tree", "blt"])
def test_a_single_release_can_be_shared_by_members(mechanism: str) -> None:
    made = budget(releases=1, mechanism=mechanism, share=NoiseShare.among(5)).calibrate()
    assert made.share is not None
    assert made.share.step_exponent is not None
    assert made.share.records is not None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        ({"delta": 1.0}, "delta must be a finite number > 0 and < 1"),
        ({"releases": 0}, "releases must be a whole number >= 1"),
        ({"mechanism": "nothing"}, "mechanism must be one of"),
        ({"decide_from": "guesses"}, "decide_from must be one of"),
        ({"person_records": 0}, "person_records must be a whole number >= 1"),
    ],
)
def test_what_no_budget_can_have_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        budget(**changes)


def test_other_values_are_not_a_budget() -> None:
    with pytest.raises(StateError, match="not a budget"):
        Budget.from_dict({"epsilon": 1.0})

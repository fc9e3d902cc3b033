"""The sentence on a share: what it names, in which words, and that its numbers are those it was given."""

from __future__ import annotations

import pytest

from fedfairx.service.schemas import FeatureExplained
from fedfairx.service.share_sentence import OWN_RECORD, changed, percent, share_sentence, written

NB = "\u00a0"


def part(
    feature: str, value: object, others: float | None, change: float | None, unsure: float | None = None
):
    contribution = 0.0 if change is None else change
    return FeatureExplained(feature, value, others, contribution, change, unsure, unsure)


def sentence(*parts: FeatureExplained, share: float = 0.12, **more) -> str:
    given = {"whole": 1.0, "arms": 8, "unit": "log merit", "uncertainty": None, **more}
    return share_sentence(share, 0.125, parts, **given).replace(NB, " ")


def test_it_can_be_read_to_a_courier() -> None:
    text = sentence(
        part("rating", 4.8, 3.1, 0.333, 0.001),
        part("price", 40.0, 40.5, 0.001, 0.0),
        part("distance", 7.4, 5.0, -0.2, -0.003),
        part("vehicle", "van", 0.25, 0.011, 0.05),
    )
    assert text == (
        "12 % of this decision: about average. "
        "Its rating of 4.8 (1.7 more than the others) raised it by a third, "
        "its distance of 7.4 (2.4 more than the others) lowered it by a fifth; "
        "little is known yet about its vehicle (van), which raised it by 5 %."
    )


def test_yes_and_no_and_actions_without_features() -> None:
    assert "Its new (yes) raised it by a third." in sentence(part("new", True, 0.2, 0.333))
    own = part("expected reward", 0.48912, 0.36, 0.5, 0.1)
    assert "Its expected reward, 0.489 (0.13 more than the others) raised it by a half; " in sentence(own)
    assert sentence(own).endswith("little is known yet about it, which raised it by a tenth.")


def test_only_the_three_largest_are_named() -> None:
    text = sentence(*(part(f"x{k}", float(k), 0.5, 0.05 * (k + 1)) for k in range(5)))
    assert [f"x{k} of" in text for k in range(5)] == [False, False, True, True, True]
    assert text.index("x4 of") < text.index("x3 of") < text.index("x2 of")


def test_what_is_more_certain_lowers_a_share() -> None:
    text = sentence(part("rating", 3.0, 2.0, 0.1, -0.04))
    assert text.endswith(
        "; compared with the others, the model is surer about its rating of 3, which lowered it by 4 %."
    )


def test_uncertainty_that_is_not_split_is_of_the_action() -> None:
    one = part("rating", 3.0, 2.0, 0.1)
    assert sentence(one, uncertainty=0.25).endswith(
        "; little is known yet about it, which raised it by a quarter."
    )
    told = sentence(one, uncertainty=0.25, its="your")
    assert told.endswith("; little is known yet about you, which raised it by a quarter.")
    assert "known yet" not in sentence(one, uncertainty=0.01)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.125, "about average"),
        (0.25, "twice the average"),
        (0.5, "4 times the average"),
        (0.15, "20 % above the average"),
    ],
)
def test_a_share_is_compared_with_the_average(share: float, words: str) -> None:
    assert f": {words}." in sentence(share=share)
    assert ": 60 % below the average." in sentence(share=0.05)
    assert sentence(share=1e-5).startswith("Less than 0.1 % of this decision: less than 1 % of the average.")


def test_nothing_to_say_is_said() -> None:
    assert sentence(share=1.0, arms=1) == "100 % of this decision: there was no other action."
    faint = part("rating", 3.0, 3.01, 0.004)
    assert sentence(faint).endswith(" None of its features changed it by 2 %.")
    assert sentence(part("rating", 3.0, 2.0, 0.0)).endswith(" Nothing learnt so far tells the actions apart.")
    assert sentence().endswith(" It does not differ from the others.")


def test_merit_and_rewards_of_any_scale_where_shares_are_hidden() -> None:
    hidden = FeatureExplained("rating", 4.0, 3.0, 0.6931471805599453, None, None, None)
    assert "(1 more than the others) doubled merit." in sentence(hidden)
    small = FeatureExplained("rating", 4.0, 3.0, -0.00042, None, None, None)
    assert "lowered the expected reward by 0.00042." in sentence(small, unit="reward")
    large = FeatureExplained("price", 4.0, 3.0, 1234.0, None, None, None)
    text = sentence(small, large, unit="reward")
    assert "raised the expected reward by 1 234." in text
    assert "rating" not in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (0.33, "raised it by a third"),
        (0.34, "raised it by 34 %"),
        (-0.5, "lowered it by a half"),
        (0.949, "raised it by 95 %"),
        (1.0, "doubled it"),
        (1.6, "made it 2.6 times as large"),
        (998.0, "made it 999 times as large"),
        (1999.0, "made it more than 1 000 times as large"),
        (-0.999, "lowered it by more than 99 %"),
    ],
)
def test_changes_in_words(change: float, words: str) -> None:
    assert changed(change).replace(NB, " ") == words


def test_values_as_people_write_them() -> None:
    values = [4.8, True, False, "van", None, -2.5, 123456.7, 0.0]
    assert [written(value).replace(NB, " ") for value in values] == [
        *("4.8", "yes", "no", "van", "–", "−2.5", "123 457", "0")
    ]
    assert [percent(share).replace(NB, " ") for share in (0.123, 0.0234, 1.0)] == ["12 %", "2.3 %", "100 %"]


def test_an_own_record_is_of_rewards() -> None:
    for rewards, words in (
        (57.0, "Its own record of 57 rewards raised it by 12 %."),
        (1.0, "Its own record of 1 reward raised it by 12 %."),
        (0.0, "Its missing own record raised it by 12 %."),
        (12.345, "Its own record of 12.3 rewards raised it by 12 %."),  # they count less by age
    ):
        assert sentence(part(OWN_RECORD, rewards, None, 0.12)).endswith(words)
    assert "Its own record raised it" in sentence(part(OWN_RECORD, None, None, 0.12))

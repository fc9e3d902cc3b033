"""Requests and responses, as msgspec reads and writes them. Their docstrings enter the OpenAPI document.

A response that is a type of the library is written as it is. A response has a type of its own here where the
library has none, or has one with fields that some roles may not see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct

from fedfairx.core.slates import MOST
from fedfairx.evaluation.lift import Lift
from fedfairx.fairness.change_test import Change
from fedfairx.fairness.draw_test import Draws
from fedfairx.fairness.missing_test import Missing
from fedfairx.federation.exchange.member import Peer
from fedfairx.privacy.guarantee import Against
from fedfairx.service.settings import OF_AGENT, table
from fedfairx.util.config import NAME, NUMBER, SHARE, ends

Name = Annotated[str, Meta(**ends(str, NAME))]
#: Without NUL, which PostgreSQL can't store.
Person = Annotated[str, Meta(**ends(str, NAME), pattern=r"^[^\u0000]*$")]
Number = Annotated[float, Meta(**ends(float, NUMBER))]
Position = Annotated[int, Meta(ge=0, le=2**31)]
Share = Annotated[float, Meta(**ends(float, SHARE))]
Exposure = Annotated[float, Meta(ge=0)]
_FIRST = {"contains": {"const": 1}}
Slots = (
    Annotated[int, Meta(ge=1, le=MOST)] | Annotated[list[Share], Meta(min_length=1, extra_json_schema=_FIRST)]
)

#: Seconds since 1970, until the year 2100.
Time = Annotated[float, Meta(ge=0, le=4_102_444_800)]
#: A feature's number, boolean, or level of a category; null where the level is missing.
Value = Number | bool | Annotated[str, Meta(max_length=NAME.max_length)] | None
#: Features by name.
Values = dict[str, Value]


class Body(Struct, forbid_unknown_fields=True):
    """A request's body: unknown fields are refused, since a mistyped one would be silently ignored."""


class Action(Body):
    """One of the actions to choose from.

    id: Its name; unique in the request.
    features: Its own: by name if the service has named features, else numbers in order; left out if actions
        have none.
    group: Its group, whose exposure is measured too.
    """

    id: Name
    features: Values | list[Value] | None = None
    group: Name | None = None


Actions = Annotated[list[Action | Name], Meta(min_length=1)]
Rows = Annotated[list[Annotated[list[Number], Meta(min_length=1)]], Meta(min_length=1)]
_NUMBER = {"type": "number", "minimum": NUMBER.ge, "maximum": NUMBER.le}
_ROW = {"type": "array", "items": _NUMBER, "minItems": 1}
_ROWS = [{"type": "array", "items": _ROW, "minItems": 1}, {"type": "null"}]
#: `Rows` or null, to be read later: those of many decisions in one call, without an object for each number.
Unread = Annotated[Raw, Meta(extra_json_schema={"anyOf": _ROWS, "default": None})]


class DecisionRequest(Body, gc=False):  # what is read from JSON has no cycles
    """A request for a decision, with `actions`, or with `contexts` if actions have no names.

    If actions have no features, name some of them, or none to choose among all active ones.

    actions: The actions; one that has neither features nor group may be given by its id alone.
    context: The features that all actions share, by name, if the service has shared ones; without it, each
        action's features must have them.
    contexts: K rows of d numbers, one for each action.
    excluded: Actions that can't be taken now: ids, or rows of `contexts`.
    baseline: The action that you would take: an id, or a row of `contexts`; for several slots a list of
        different ones, in the order of slots.
    slots: How many actions to show, or the weight of every slot of a ranking, from 1 down to 0; by default as
        in the service's settings.
    """

    actions: Actions | None = None
    context: Values | None = None
    contexts: Unread | UnsetType = UNSET
    excluded: tuple[Name | Position, ...] = ()
    baseline: Name | Position | Annotated[list[Name | Position], Meta(min_length=1)] | None = None
    slots: Slots | None = None


class ShownAction(Struct):
    """An action in one of several slots.

    action: Its position in the request or, if that names no actions, in `action_ids`.
    action_id: Its id; null if `contexts` were given.
    slot: Its slot; 1 is the first.
    weight: The slot's weight.
    exposure: The expected weight of the action's slot, 0 where it is not shown, over decisions that take the
        baseline too; to evaluate another policy, divide by it.
    """

    action: Annotated[int, Meta(ge=0)]
    action_id: str | None
    slot: Annotated[int, Meta(ge=1)]
    weight: Share
    exposure: Exposure


class DecisionMade(Struct):
    """The action to take, and the policy that it was drawn from; or the actions in several slots.

    decision_id: Its id, for the reward.
    action: The action's position in the request or, if that names no actions, in `action_ids`; null if there
        are several slots.
    action_id: Its id; null if `contexts` were given, or if there are several slots.
    probability: The probability that this action was taken; null if there are several slots.
    policy: Each action's share by the fair policy; 0 for excluded ones; null if there are several slots.
    model_version: Grows whenever the model learns.
    mode: What chose the action: live, shadow or control.
    action_ids: The actions of `policy` or `exposure`, if actions have no features.
    shown: The actions in the order of slots, if there are several.
    exposure: The expected weight of each action's slot by the fair policy, if there are several slots; 0 for
        excluded ones.
    """

    decision_id: str
    action: Annotated[int, Meta(ge=0)] | None
    action_id: str | None
    probability: Share | None
    policy: list[Share] | None
    model_version: Annotated[int, Meta(ge=0)]
    mode: str
    action_ids: list[str] | UnsetType = UNSET
    shown: list[ShownAction] | UnsetType = UNSET
    exposure: list[Exposure] | UnsetType = UNSET


class DecisionBatch(Body):
    """Several decisions, all made by the same model version."""

    decisions: Annotated[list[DecisionRequest], Meta(min_length=1)]


class DecisionsMade(Struct):
    """Decisions in the order of the requests."""

    decisions: list[DecisionMade]


Rewards = Annotated[dict[Name, Number | None], Meta(min_length=1)]


class Reward(Body):
    """The reward of the action taken, or the rewards of actions in several slots.

    reward: The greater, the better.
    rewards: Rewards by action id, or by row of `contexts` as text, for some or all of the actions shown; null
        withdraws one that nobody saw.
    person: Whose record it is; needed where the records of a person are limited, and to delete them later.
    replace: Replace earlier rewards that were wrong; for admins only.
    """

    reward: Number | UnsetType = UNSET
    rewards: Rewards | UnsetType = UNSET
    person: Person | None = None
    replace: bool = False


class RewardOf(Body):
    """The reward of one decision, or its rewards by action.

    reward: Of the action taken.
    rewards: Of actions in several slots, by action id, or by row of `contexts` as text; null withdraws one
        that nobody saw.
    person: Whose record it is; needed where the records of a person are limited, and to delete them later.
    """

    decision_id: Name
    reward: Number | UnsetType = UNSET
    rewards: Rewards | UnsetType = UNSET
    person: Person | None = None


class RewardBatch(Body):
    """Several rewards: all are taken, or none.

    replace: Replace earlier rewards that were wrong; for admins only.
    """

    rewards: Annotated[list[RewardOf], Meta(min_length=1)]
    replace: bool = False


class WithdrawalBatch(Body):
    """Several decisions that were never shown: all are withdrawn, or none."""

    decision_ids: Annotated[list[Name], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]


class SlotSeen(Struct):
    """One of several slots of a decision.

    action: Its position among the actions that were not excluded.
    slot: 1 is the first.
    exposure: The expected weight of the action's slot, over decisions that take the baseline too.
    status: pending, rewarded, withdrawn or expired.
    reward: If it has come; not in lists.
    """

    action: int
    action_id: str | None
    group: str | None
    slot: int
    weight: Share
    exposure: Exposure
    status: str
    reward: float | UnsetType | None = UNSET


class DecisionSeen(Struct):
    """A decision without its contexts; `/v1/export` has them.

    Of a decision with several slots, what concerns one action is null.

    seq: Its position in the log.
    time: Seconds since 1970.
    action: Its position among the actions that were not excluded.
    probability: The probability that the action was taken.
    policy: Each action's share.
    status: pending, rewarded, withdrawn or expired; of several slots, pending until all have ended, then
        rewarded if any was.
    rolled_back: Whether the agent was rolled back to a time before it was made.
    shown: The actions in the order of slots, if there are several.
    exposure: The expected weight of each action's slot by the fair policy, if there are several slots.
    reward: If it has come; of several slots their sum, once all have ended; not in lists.
    """

    decision_id: str
    seq: int
    time: float
    action: int | None
    action_id: str | None
    group: str | None
    probability: Share | None
    policy: list[Share] | None
    action_ids: list[str] | None
    mode: str
    status: str
    model_version: int
    rolled_back: bool
    shown: list[SlotSeen] | UnsetType = UNSET
    exposure: list[Exposure] | UnsetType = UNSET
    reward: float | UnsetType | None = UNSET


class FeatureExplained(Struct):
    """What a feature adds to the share of an action, against the other actions of the decision.

    feature: Its name; "a × b" of a product of two, "x1" and so on without names, "expected reward" if actions
        have no features.
    value: The action's own value, as it was sent; a number outside of its range is an end of it, and a
        product has none.
    others: The mean of the other actions; of a level, the share of them that have the same.
    contribution: What is known of it adds this to log merit or, as `unit` says, to the expected reward.
    change: The share, divided by what it would be with the feature at the mean of the others, less 1; null if
        slots or the minimum share hide it, or if `unit` is "reward".
    uncertainty: What is not known of it yet adds this to log merit; null where it is not known by feature.
    uncertainty_change: The share, divided by what it would be without that, less 1.
    """

    feature: str
    value: float | str | bool | None
    others: float | None
    contribution: float
    change: float | None
    uncertainty: float | None
    uncertainty_change: float | None


class OwnRecordCounts(Struct):
    """An action's own record beside its features.

    rewards: How many it has; where they decay, the sum of their weights.
    weight: How far it counts, from 0 to 1; features stand in for the rest.
    """

    rewards: Annotated[float, Meta(ge=0)]
    weight: Share


class ActionExplained(Struct):
    """Why an action has its share, against the other actions of the decision.

    Contributions and uncertainty add up to `log_merit` or, as `unit` says, to the expected reward less the
    mean of the others'.

    action: Its position among the actions that were not excluded.
    action_id: Its id; null if `contexts` were given.
    share: Its share by the fair policy; of several slots, the expected weight of its slot.
    sentence: Why, in words.
    log_merit: Its log merit less the mean of the others'; null if slots or the minimum share hide it.
    features: What each feature adds, in the order of the schema, without those that all actions have alike.
    uncertainty: What is not known yet adds this to log merit; null if the rule has none, or if it is hidden.
    uncertainty_change: The share, divided by what it would be without that, less 1.
    record: Its own record then; null if names play no part, or if that is not known.
    """

    action: int
    action_id: str | None
    share: Exposure
    sentence: str
    log_merit: float | None
    features: list[FeatureExplained]
    uncertainty: float | None
    uncertainty_change: float | None
    record: OwnRecordCounts | None


class KnowledgeSeen(Struct):
    """On how much shares rest.

    rewards: Rewards, its own and those that messages of others are worth to it; where they decay, the sum of
        their weights.
    numbers: How many numbers the model has.
    enough: Rewards before which shares follow luck as much as merit.
    little: Whether there are fewer.
    """

    rewards: Annotated[int, Meta(ge=0)]
    numbers: Annotated[int, Meta(ge=0)]
    enough: Annotated[int, Meta(ge=0)]
    little: bool


class Explanation(Struct):
    """Why each action of a decision has its share, by the model of that time.

    unit: What contributions add up to: "log merit", together with the uncertainty, or "reward".
    average: The share of the average action.
    alike: Features that all actions have alike, which so change no share by themselves.
    knowledge: What the shares rested on; while it is little, sentences say that, and not what features do.
    statement: How to read it.
    """

    decision_id: str
    model_version: Annotated[int, Meta(ge=0)]
    merit: str
    rule: str
    unit: str
    average: Exposure
    alike: list[str]
    knowledge: KnowledgeSeen
    actions: list[ActionExplained]
    statement: str


class DecisionPage(Struct):
    """Decisions in the order in which they were made.

    next: The parameter `after` for the next page, which may follow on a page of few decisions or none if a
        name or a group was asked for; null on the last page.
    """

    decisions: list[DecisionSeen]
    next: int | None


class ActionSeen(Struct):
    """An action that was declared.

    status: active, or retired (no longer offered).
    """

    id: str
    status: str


class ActionList(Struct):
    """Declared actions, in the order in which they were added."""

    actions: list[ActionSeen]


class FeatureSeen(Struct):
    """A named feature.

    kind: number, category or boolean.
    range: Of a number; values outside are clipped.
    levels: Of a category; other values count as "other".
    shared: Whether all actions of a decision share it, in `context`.
    clipped: Its numbers outside of the range since this start of the service.
    unknown: Its values that are no level since this start.
    """

    name: str
    kind: str
    range: tuple[float, float] | None
    levels: list[str] | None
    shared: bool
    clipped: int | None
    unknown: int | None


class SchemaSeen(Struct):
    """The named features, and how contexts are made of them.

    products: Pairs of features that are multiplied, as price:city.
    intercept: Whether there is a constant column.
    version: Grows by 1 whenever something is appended.
    digest: SHA-256 of the schema.
    """

    features: list[FeatureSeen]
    products: list[str]
    intercept: bool
    version: int
    digest: str


class ExpectedReward(Struct):
    """An expected reward, and the ends of its interval."""

    value: float
    low: float
    high: float


class OwnRecordSeen(Struct):
    """What was learnt of an action by its name.

    rewards: How many it has; where they decay, the sum of their weights.
    weight: How far its own record counts, from 0 to 1; features, or the mean of all actions, stand in for the
        rest.
    effect: By how much its expected reward differs from that of others with the same features; null before
        its first reward.
    sd: The standard deviation of that under the model that decides.
    expected: Its expected reward with a 95 % interval as in the model, if actions have names alone; else
        null.
    """

    name: str
    rewards: Annotated[float, Meta(ge=0)]
    weight: Share
    effect: float | None
    sd: float | None
    expected: ExpectedReward | None


class Model(Struct):
    """What the service has learnt, and its settings.

    features: Named features, in order; empty if there are none.
    schema: What they are; null if there are none.
    actions: Actions that were declared, retired ones too.
    columns: What each number of `estimate`, `sd`, `low` and `high` is of: a feature, as price, city=Rome or
        price:city=Rome, "intercept", or an action where the rule is optimism and actions have no features.
    estimate: θ, the expected change of the reward with each feature, as it is scaled for the model.
    names: How many actions have an own record: those declared, and those whose name came again.
    records: The own records of those that were asked for, or of the first 100.
    differ: About how much people with the same features differ, as a standard deviation of their expected
        rewards; null until enough of them have rewards to know it.
    sd: The standard deviation of each under the model that decides.
    low: Where the interval begins in which each lies with a probability of 95 % under the model, within the
        reward range, averaged over what the sizes of noise and prior may be.
    high: Where it ends.
    observed: Rewards that were learnt; those of several slots count each.
    knowledge: What shares rest on.
    pending: Decisions that wait for a reward.
    slots: The weights of the slots of a decision that asks for no others; one of weight 1 is one action.
    half_life: After how many rewards, or after what time ("30d"), a record counts half; null if all count
        alike.
    mean_reward: The mean of all rewards; null before the first.
    lift: What live decisions earn more than controls, with a `control_share`; null before the first.
    """

    name: str
    rule: str
    merit: str
    dimension: int
    features: list[str]
    schema: SchemaSeen | None
    actions: list[str]
    intercept: bool
    columns: list[str]
    estimate: list[float]
    sd: list[Annotated[float, Meta(ge=0)]]
    low: list[float]
    high: list[float]
    observed: int
    knowledge: KnowledgeSeen
    pending: int
    model_version: int
    mode: str
    control_share: Share
    slots: list[Share]
    half_life: float | str | None
    change: Change
    mean_reward: float | None
    lift: Lift | None
    names: Annotated[int, Meta(ge=0)]
    records: list[OwnRecordSeen]
    differ: float | None


class Privacy(Struct):
    """The privacy guarantee of the agent's releases, and how much of the budget is spent.

    epsilon: null if there is no guarantee.
    releases: Releases that the budget allows; null if there is no budget.
    clipped: Records that were clipped to the bounds.
    """

    private: bool
    statement: str
    mechanism: str
    epsilon: float | None
    delta: float | None
    releases: int | None
    spent: int
    clipped: int


class Aggregated(Struct):
    """The rounds of secure aggregation, in which only the sum of all members' rows is seen.

    epoch: The epoch that this member is in, by the version of its roster; 0 before its first.
    round: The last round of that epoch whose time has come; 0 before the first.
    rounds: The number of rounds of an epoch.
    sent: The last round of which this member has made its row.
    opened: The last round whose total is known here; 0 before the first.
    next_time: When the next round begins, in seconds since 1970; null after the last.
    unconfirmed: Why this member has not accepted the roster, mostly whom its operator has to confirm;
        empty if it has.
    waits_for: Whom the next total waits for, and for what: key, acceptance, sign of life, row
        or partial.
    openers: The members that open totals.
    colluding: The number of members that may collude.
    honest: The number of members whose noise hides a record.
    records: The number of all members' records in the last total, without those of closed epochs.
    weight: The share of the other members' records that counts here; null before a total.
    reason: Why.
    claims: What is claimed, against whom.
    """

    epoch: Annotated[int, Meta(ge=0)]
    round: Annotated[int, Meta(ge=0)]
    rounds: int
    sent: Annotated[int, Meta(ge=0)]
    opened: Annotated[int, Meta(ge=0)]
    next_time: int | None
    unconfirmed: str
    waits_for: dict[str, str]
    openers: list[str]
    colluding: int
    honest: int
    records: Annotated[int, Meta(ge=0)]
    weight: float | None
    reason: str | None
    claims: tuple[Against, ...]


class Sync(Struct):
    """The exchange with the other members of a federation.

    federation: The id of the federation; null if the agent learns alone.
    roster: The version of the roster.
    released: The number of this agent's latest release; 0 before the first.
    releases: The number of releases that the federation's terms allow.
    next_round: The count of rewards at which the next release is due.
    waiting: Whether the latest release is still to be sent.
    trouble: Why nothing is sent or received now.
    over: Why nothing will be released any more.
    refusals: Refused messages since this start, by sender and reason; ? stands for non-members.
    peers: The other members, by name.
    certificates: When each certificate of this member expires, in seconds since 1970, by its file.
    aggregation: The rounds, with secure aggregation; null without.
    """

    name: str
    federation: str | None
    roster: int | None
    released: Annotated[int, Meta(ge=0)]
    releases: int | None
    next_round: int | None
    waiting: bool
    trouble: str | None
    over: str | None
    refusals: dict[str, dict[str, int]]
    peers: dict[str, Peer]
    certificates: dict[str, float]
    aggregation: Aggregated | None = None


class ReleaseSealed(Struct):
    """The agent's latest release, signed, for an engine that carries it to the other members.

    envelope: The signed release, in base64.
    """

    name: str
    number: Annotated[int, Meta(ge=1)]
    envelope: bytes


class PeersBrought(Body):
    """The latest envelopes of the members; this agent's envelope among them confirms that it was delivered.

    envelopes: Envelopes by member, in base64; under a member's name and .alive, its sign of life.
    """

    envelopes: dict[Name, bytes]


class PeersTaken(Struct):
    """Which envelopes were taken, and which were refused.

    taken: Members with a new release.
    refused: Members whose envelope was refused, with the reason; ? stands for senders that are no members.
    alive: This agent's signed sign of life, in base64, to be carried to the others under its name and .alive.
    """

    taken: list[str]
    refused: dict[str, str]
    alive: bytes


Difference = Annotated[float, Meta(ge=-1, le=1)]


class Interval(Struct):
    """A share with its confidence interval; `value` is null if nothing is known yet."""

    value: Difference | None
    low: Difference
    high: Difference


class LikelyVerdict(Struct):
    """What is likely of a share, by the model that makes it: it sees lag, exploration and the caller's own
    choices, and can't see that the model is wrong. Of all such verdicts at one time at most 5 % are wrong on
    average, if the model is right.

    verdict: likely below, likely above or in line, each with a probability of at least 95 %; or not known
        yet.
    below: The probability of a share below (1 - tolerance) of the entitled one, of what was shown and of what
        was given without the luck of the draw.
    in_line: The probability that both are between.
    above: The probability that both are more than 1/(1 - tolerance) of it.
    more_decisions: About how many more decisions it takes until there is a verdict; null if there is one, if
        nothing can be said, or if that takes more than a year.
    more_days: The same in days, at the rate of decisions so far.
    """

    verdict: str
    below: Share | None
    in_line: Share | None
    above: Share | None
    more_decisions: Annotated[int, Meta(ge=0)] | None
    more_days: Annotated[float, Meta(ge=0)] | None


class Exposed(Struct):
    """An action or a group, over the decisions in which it was available.

    decisions: How many these are.
    shown_times: How often it was shown; with several slots, a group may be shown more than once at a time.
    shown: Its share of what was shown; slots count by their weights.
    policy: The share that the policy gave it: the mean of its probabilities or, with several slots, of its
        expected weights among all weights.
    entitled: Its share in proportion to true merit, as far as slots allow.
    shortfall: Entitled minus shown.
    verdict: What is certain without a prior: within, above, below or too little data; with a half-life, or
        more than 200 features and names together, not judged.
    estimate: The mean of the entitled share under the model, with a 95 % credible interval, which is right
        if the model is, and which nothing certain rests on; null with a half-life.
    more_rewards: About how many more rewards it takes until the verdict is certain, often wrong by a factor
        of two; null if it is certain, if nothing can be said, or if that takes more than a year.
    likely: What is likely under the model; null with a half-life.
    left: Whether it is no longer among the actions, by how long it was absent.
    """

    name: str
    decisions: Annotated[int, Meta(ge=0)]
    shown_times: Annotated[int, Meta(ge=0)]
    shown: Interval
    policy: Difference | None
    entitled: Interval
    shortfall: Interval
    verdict: str
    estimate: Interval | None
    more_rewards: Annotated[int, Meta(ge=0)] | None
    likely: LikelyVerdict | None
    left: bool


class ExposureTable(Struct):
    """Shown and entitled shares. Their intervals hold at all times at once, with probability 1 - error.

    withdrawn: Decisions that were drawn and never shown; not counted.
    baseline: Decisions that took the caller's baseline; counted as shown.
    first: The time of the first decision, in seconds since 1970.
    bounded: Whether earlier decisions of the window were left out, because there are too many.
    gone: What is no longer in the log of this window, as a sentence; null if nothing is.
    summary: Who is likely treated unfairly, in one sentence.
    actions: The first 100 that were asked for, in the order of their first decisions, or another number of
        them.
    matching: How many were asked for.
    """

    actions: list[Exposed]
    matching: Annotated[int, Meta(ge=0)]
    groups: list[Exposed]
    draws: Draws
    decisions: int
    withdrawn: Annotated[int, Meta(ge=0)]
    baseline: Annotated[int, Meta(ge=0)]
    first: float | None
    last: float | None
    bounded: bool
    gone: str | None
    error: float
    tolerance: float
    claims: list[str]
    summary: str


class ArrivalRow(Struct, frozen=True):
    """What became of the decisions that showed an action or a group; withdrawn ones are not counted.

    waiting: Decisions whose reward may still come.
    expired: Decisions whose window is past.
    oldest_waiting: When the oldest one that waits was made, in seconds since 1970.
    missing: How many of its rewards are missing; null unless more are than of the others, beyond chance.
    """

    name: str
    decisions: Annotated[int, Meta(ge=0)]
    rewards: Annotated[int, Meta(ge=0)]
    waiting: Annotated[int, Meta(ge=0)]
    expired: Annotated[int, Meta(ge=0)]
    oldest_waiting: float | None
    missing: Missing | None


class ArrivalTable(Struct, frozen=True):
    """For how many decisions a reward came, of each action and group.

    missing: A sentence for each action and group of which more rewards are missing than of the others.
    tested: Decisions that were tested.
    age: The age, in seconds, by which a reward must have come so as not to be missing in the test; null while
        too few have come.
    error: The probability, at most, that anything is ever called missing if all rewards are missing alike.
    untested: Why nothing is tested, or not all is yet; empty if it is.
    read: Whether all that was in the log has been counted and tested.
    """

    actions: tuple[ArrivalRow, ...]
    groups: tuple[ArrivalRow, ...]
    missing: tuple[str, ...]
    tested: Annotated[int, Meta(ge=0)]
    age: float | None
    error: float
    untested: str
    read: bool

    def alarms(self) -> list[Missing]:
        return [row.missing for row in (*self.actions, *self.groups) if row.missing is not None]


if TYPE_CHECKING:

    class AgentSettings(Body): ...

else:
    _OF_AGENT = [each for each in table() if each.name in OF_AGENT]
    _DOC = "The settings of an agent, with `dimension`, `features` or `actions`; others have defaults."
    AgentSettings = defstruct(
        "AgentSettings",
        [(each.name, each.plain | UnsetType, UNSET) for each in _OF_AGENT],
        bases=(Body,),
        namespace={
            "__doc__": "\n".join([_DOC, "", *(f"{each.name}: {each.description}" for each in _OF_AGENT)])
        },
    )


class AgentSeen(Struct):
    """An agent of the service.

    name: Its name.
    status: Whether it makes decisions: active or archived.
    default: Whether requests that name no agent are for it.
    settings: As the request that made it gave them; null if it was made otherwise.
    """

    name: str
    status: str
    default: bool
    settings: AgentSettings | None


class AgentList(Struct):
    """The agents, the oldest first."""

    agents: list[AgentSeen]


class OperationSeen(Struct):
    """The requests of one operation since the start.

    refused: Answered with a status from 400 to 499.
    failed: Answered with a status from 500 on.
    median_seconds: Half of the last thousand were answered within this time.
    slow_seconds: 95 % of the last thousand were answered within this time.
    """

    operation: str
    requests: int
    refused: int
    failed: int
    median_seconds: float
    slow_seconds: float


class Status(Struct):
    """How the service runs.

    started: Seconds since 1970.
    waiting: Requests that wait to be written.
    database_bytes: Size of the database; null while it can't be reached.
    disk_free_bytes: Space left beside the database; null for PostgreSQL.
    operations: The most frequent first.
    """

    version: str
    started: float
    waiting: int
    database_bytes: int | None
    disk_free_bytes: int | None
    operations: list[OperationSeen]


class RollbackRequest(Body):
    """A rollback.

    to: The time to return to, in seconds since 1970.
    """

    to: Time


class Health(Struct):
    """Whether the service is alive, or ready."""

    status: str


class Problem(Struct, omit_defaults=True):
    """What went wrong, and what to do about it (RFC 9457).

    request_id: As in the header X-Request-Id and in the log; left out where no request was read.
    """

    type: str
    title: str
    status: int
    detail: str
    remedy: str
    instance: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET

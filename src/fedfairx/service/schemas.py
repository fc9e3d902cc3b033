"""What goes over the wire, as msgspec reads and writes it. Docstrings describe it in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

Name = Annotated[str, Meta(min_length=1, max_length=200)]
#: Without NUL, which PostgreSQL can't store.
Person = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\u0000]*$")]
Number = Annotated[float, Meta(ge=-1e100, le=1e100)]
Position = Annotated[int, Meta(ge=0, le=2**31)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Body(Struct, forbid_unknown_fields=True):
    """A request's body: unknown fields are refused, since a mistyped one would be silently ignored."""


class Action(Body):
    """One of the actions to choose from.

    id: Its name; different from the others'.
    features: Its numbers: by name where the service has named features, else in order; to be left out where
        actions have none.
    group: Its group, for which exposure is counted too.
    """

    id: Name
    features: dict[str, Number] | list[Number] | None = None
    group: Name | None = None


Actions = Annotated[list[Action | Name], Meta(min_length=1)]
Rows = Annotated[list[Annotated[list[Number], Meta(min_length=1)]], Meta(min_length=1)]


class DecisionRequest(Body):
    """Which action? Give `actions`, or `contexts` where they have no names.

    Where actions have no features give the names of some, or nothing: then it is among all that are active.

    actions: The actions; those that have neither features nor group by id alone.
    contexts: K rows of d numbers, one for each action.
    excluded: Actions that can't be taken now: ids, or rows of `contexts`.
    baseline: The action that you would take: an id, or a row of `contexts`.
    """

    actions: Actions | None = None
    contexts: Rows | None = None
    excluded: list[Name | Position] = []
    baseline: Name | Position | None = None


class DecisionMade(Struct):
    """The action to take, and the policy that it was drawn from.

    decision_id: Its id, for the reward.
    action: The action's position in the request; if that names none, in `action_ids`.
    action_id: Its id; null where `contexts` were given.
    probability: Probability with which this action was taken.
    policy: Each action's share by the fair policy; excluded ones have 0.
    model_version: Grows whenever the model learns.
    mode: live, shadow or control: what chose the action.
    action_ids: The actions of `policy`, where actions have no features.
    """

    decision_id: str
    action: Annotated[int, Meta(ge=0)]
    action_id: str | None
    probability: Share
    policy: list[Share]
    model_version: Annotated[int, Meta(ge=0)]
    mode: str
    action_ids: list[str] | UnsetType = UNSET


class DecisionBatch(Body):
    """Several decisions from one state of knowledge."""

    decisions: Annotated[list[DecisionRequest], Meta(min_length=1)]


class DecisionsMade(Struct):
    """In the order of the requests."""

    decisions: list[DecisionMade]


class Reward(Body):
    """What the action brought.

    reward: The greater, the better.
    person: Whose record it is, where a person's records are bounded.
    replace: Replace an earlier reward that was wrong; for admins alone.
    """

    reward: Number
    person: Person | None = None
    replace: bool = False


class RewardOf(Body):
    """The reward of one decision."""

    decision_id: Name
    reward: Number
    person: Person | None = None


class RewardBatch(Body):
    """Several rewards: all are taken, or none.

    replace: Replace an earlier reward that was wrong; for admins alone.
    """

    rewards: Annotated[list[RewardOf], Meta(min_length=1)]
    replace: bool = False


class WithdrawalBatch(Body):
    """Several decisions that were never shown: all are withdrawn, or none."""

    decision_ids: Annotated[list[Name], Meta(min_length=1)]


class DecisionSeen(Struct):
    """A decision without its contexts and its reward; `/v1/export` has them, for admins.

    seq: Its position in the log.
    time: Seconds since 1970.
    probability: Probability with which the action was taken; for admins, else null.
    policy: Each action's share; for admins, else null.
    status: pending, rewarded, withdrawn or expired.
    """

    decision_id: str
    seq: int
    time: float
    action: int
    action_id: str | None
    group: str | None
    probability: Share | None
    policy: list[Share] | None
    action_ids: list[str] | None
    mode: str
    status: str
    model_version: int


class DecisionPage(Struct):
    """Decisions in the order in which they were made.

    next: `after` of the next page; null on the last one.
    """

    decisions: list[DecisionSeen]
    next: int | None


class ActionSeen(Struct):
    """An action without features.

    status: active, or retired: no longer chosen from.
    """

    id: str
    status: str


class ActionList(Struct):
    """In the order in which they were added; none where requests bring actions with features."""

    actions: list[ActionSeen]


class Model(Struct):
    """What the service has learnt, and how it is set up.

    features: Named features, in order; empty where there are none.
    actions: Actions without features, retired ones too; empty where they have features.
    estimate: θ: a reward's expected change with each feature or, where actions have none, each one's expected
        reward; null but for admins.
    """

    name: str
    rule: str
    merit: str
    dimension: int
    features: list[str]
    actions: list[str]
    intercept: bool
    estimate: list[float] | None
    observed: int
    pending: int
    model_version: int
    mode: str
    control_share: Share


class Privacy(Struct):
    """What is promised about the agent's messages, and what is spent of it.

    epsilon: null where nothing is promised.
    releases: That the budget allows; null where there is none.
    clipped: Records that the bounds moved; in whole batches but for admins.
    """

    private: bool
    statement: str
    mechanism: str
    epsilon: float | None
    delta: float | None
    releases: int | None
    spent: int
    clipped: int


class PeerSeen(Struct):
    """What is held of another member.

    release: The number of its latest release; 0: none came yet.
    records: That are in it.
    came: When, in seconds since 1970; null if before this start.
    lag: Releases that it is behind this service.
    refused: Of its messages, since this start.
    weight: Share of its records that counts, 0 to 1: for admins; null before any came.
    reason: Why it counts so much: for admins.
    """

    release: Annotated[int, Meta(ge=0)]
    records: Annotated[int, Meta(ge=0)]
    came: float | None
    lag: Annotated[int, Meta(ge=0)]
    refused: Annotated[int, Meta(ge=0)]
    weight: float | None = None
    reason: str | None = None


class Sync(Struct):
    """What was sent to others, and what is held of theirs.

    federation: Its id; null where the agent learns alone.
    roster: The version that is held.
    released: The number of its latest release; 0 before the first.
    releases: That the federation's terms allow.
    next_round: The count of rewards at which it releases next.
    waiting: Whether its latest release is still to be sent.
    trouble: Why nothing is sent or taken now.
    over: Why nothing will be released any more.
    refusals: Refused messages since this start, by sender and reason; ?: of no member.
    peers: The others, by name.
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
    peers: dict[str, PeerSeen]


class ReleaseSealed(Struct):
    """The agent's own latest release, signed, for an engine that carries it to the others.

    envelope: In base64.
    """

    name: str
    number: Annotated[int, Meta(ge=1)]
    envelope: bytes


class PeersBrought(Body):
    """Others' latest envelopes; the agent's own among them says that the others have it.

    envelopes: By name, in base64.
    """

    envelopes: dict[Name, bytes]


class PeersTaken(Struct):
    """What became of them.

    taken: Who had something new.
    refused: Who was refused now, and why; ?: of no member.
    """

    taken: list[str]
    refused: dict[str, str]


Difference = Annotated[float, Meta(ge=-1, le=1)]


class Interval(Struct):
    """A share, and between which ones it surely is; `value` is null where nothing is known yet."""

    value: Difference | None
    low: Difference
    high: Difference


class Exposed(Struct):
    """An action or a group, over the decisions in which it was there.

    decisions: In which it was there.
    shown_times: In which it was shown.
    policy: The mean of the probabilities that it was given; null but for admins.
    entitled: Its share in proportion to true merit.
    shortfall: Entitled less shown.
    verdict: within, above, below or too little data.
    """

    name: str
    decisions: Annotated[int, Meta(ge=0)]
    shown_times: Annotated[int, Meta(ge=0)]
    shown: Interval
    policy: Difference | None
    entitled: Interval
    shortfall: Interval
    verdict: str


class Drawn(Struct):
    """Whether actions were drawn as the policy said.

    p_value: How probable it is, at most, that an honest log ever looks like this.
    """

    verdict: str
    p_value: Annotated[float, Meta(ge=0, le=1)]
    decisions: int


class ExposureTable(Struct):
    """Shown against entitled. All intervals hold at all times at once, with probability 1 - error.

    withdrawn: Drawn and never shown; not counted.
    baseline: That took the caller's own action; counted as shown.
    first: When the first of them was made, in seconds since 1970.
    bounded: Whether earlier ones of the window were left out, being too many.
    """

    actions: list[Exposed]
    groups: list[Exposed]
    draws: Drawn
    decisions: int
    withdrawn: Annotated[int, Meta(ge=0)]
    baseline: Annotated[int, Meta(ge=0)]
    first: float | None
    last: float | None
    bounded: bool
    error: float
    tolerance: float
    claims: list[str]


class Health(Struct):
    """Whether it lives, or is ready."""

    status: str


class Problem(Struct, omit_defaults=True):
    """What went wrong and what to do about it (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str
    instance: str | UnsetType = UNSET

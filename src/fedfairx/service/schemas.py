"""What goes over the wire, as msgspec reads and writes it; the OpenAPI document is made from these."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Person = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=r"^[^\u0000]*$")
]  # as PostgreSQL can keep it
Number = Annotated[float, Meta(ge=-1e100, le=1e100)]
MemberFolder = Annotated[int, Meta(ge=0, le=2**31)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Body(Struct, forbid_unknown_fields=True):
    """What is sent to us: unknown fields are refused, since a mistyped one would be silently ignored."""


class Action(Body):
    """One of the actions to choose from."""

    id: Annotated[
        str, Meta(min_length=1, max_length=200, description="Its name; different from the others'.")
    ]
    features: Annotated[
        dict[str, Number] | list[Number] | None,
        Meta(
            description="Its numbers: by name where the service has named features, else in order; to be "
            "left out where actions have none."
        ),
    ] = None
    group: Annotated[Name | None, Meta(description="What exposure is also counted by.")] = None


Actions = Annotated[list[Action | Name], Meta(min_length=1)]
Rows = Annotated[list[Annotated[list[Number], Meta(min_length=1)]], Meta(min_length=1)]


class DecisionRequest(Body):
    """Which action? Give `actions`, or `contexts` where they have no names.

    Where actions have no features give the names of some, or nothing: then it is among all that are active.
    """

    actions: Annotated[
        Actions | None,
        Meta(description="The actions; those that have neither features nor group by id alone."),
    ] = None
    contexts: Annotated[Rows | None, Meta(description="K rows of d numbers, one for each action.")] = None
    excluded: Annotated[
        list[Name | MemberFolder],
        Meta(description="Actions that can't be taken now: ids, or rows of `contexts`."),
    ] = []
    baseline: Annotated[
        Name | MemberFolder | None,
        Meta(description="The action that you would take: an id, or a row of `contexts`."),
    ] = None


class DecisionMade(Struct):
    """The action to take, and the policy that it was drawn from."""

    decision_id: Annotated[str, Meta(description="The reward refers to it.")]
    action: Annotated[
        int, Meta(ge=0, description="The action's place in the request; if that names none, in `action_ids`.")
    ]
    action_id: Annotated[str | None, Meta(description="Its id; null where `contexts` were given.")]
    probability: Annotated[Share, Meta(description="With which this action was taken.")]
    policy: Annotated[
        list[Share], Meta(description="Each action's share by the fair policy; excluded ones have 0.")
    ]
    model_version: Annotated[int, Meta(ge=0, description="Grows whenever the model learns.")]
    mode: Annotated[str, Meta(description="live, shadow or control: what chose the action.")]
    action_ids: Annotated[
        list[str] | UnsetType, Meta(description="Whose shares those are, where actions have no features.")
    ] = UNSET


class DecisionBatch(Body):
    """Several decisions from one state of knowledge."""

    decisions: Annotated[list[DecisionRequest], Meta(min_length=1)]


class DecisionsMade(Struct):
    """In the order of the requests."""

    decisions: list[DecisionMade]


Replace = Annotated[
    bool, Meta(description="In the place of a reward that was booked wrongly: for admins alone.")
]


class Reward(Body):
    """What the action brought."""

    reward: Annotated[Number, Meta(description="The greater, the better.")]
    person: Annotated[
        Person | None, Meta(description="Whose record it is, where a person's records are bounded.")
    ] = None
    replace: Replace = False


class RewardOf(Body):
    """The reward of one decision."""

    decision_id: Name
    reward: Number
    person: Person | None = None


class RewardBatch(Body):
    """Several rewards: all are taken, or none."""

    rewards: Annotated[list[RewardOf], Meta(min_length=1)]
    replace: Replace = False


class WithdrawalBatch(Body):
    """Several decisions that were never shown: all are withdrawn, or none."""

    decision_ids: Annotated[list[Name], Meta(min_length=1)]


class DecisionSeen(Struct):
    """A decision without its contexts and its reward; `/v1/export` has them, for admins."""

    decision_id: str
    seq: Annotated[int, Meta(description="Its place in the log.")]
    time: Annotated[float, Meta(description="Seconds since 1970.")]
    action: int
    action_id: str | None
    group: str | None
    probability: Annotated[Share | None, Meta(description="With which it was taken; null but for admins.")]
    policy: Annotated[list[Share] | None, Meta(description="Each action's share; null but for admins.")]
    action_ids: list[str] | None
    mode: str
    status: Annotated[str, Meta(description="pending, rewarded, withdrawn or expired.")]
    model_version: int


class DecisionPage(Struct):
    """Decisions in the order in which they were made."""

    decisions: list[DecisionSeen]
    next: Annotated[int | None, Meta(description="`after` of the next page; null on the last one.")]


class ActionSeen(Struct):
    """An action without features."""

    id: str
    status: Annotated[str, Meta(description="active, or retired: no longer chosen from.")]


class ActionList(Struct):
    """In the order in which they were added; none where requests bring actions with features."""

    actions: list[ActionSeen]


class Model(Struct):
    """What the service has learnt, and how it is set up."""

    name: str
    rule: str
    merit: str
    dimension: int
    features: Annotated[list[str], Meta(description="Named features, in order; empty where there are none.")]
    actions: Annotated[
        list[str],
        Meta(description="Actions without features, retired ones too; empty where they have features."),
    ]
    intercept: bool
    estimate: Annotated[
        list[float] | None,
        Meta(
            description="θ: a reward's expected change with each feature or, where actions have none, each "
            "one's expected reward; null but for admins."
        ),
    ]
    observed: int
    pending: int
    model_version: int
    mode: str
    control_share: Share


class Privacy(Struct):
    """What is promised about the agent's messages, and what is spent of it."""

    private: bool
    statement: str
    mechanism: str
    epsilon: Annotated[float | None, Meta(description="null where nothing is promised.")]
    delta: float | None
    releases: Annotated[int | None, Meta(description="That the budget allows; null where there is none.")]
    spent: int
    clipped: Annotated[
        int, Meta(description="Records that the bounds moved; in whole batches but for admins.")
    ]


class PeerSeen(Struct):
    """What is held of another member."""

    release: Annotated[int, Meta(ge=0, description="The number of its latest release; 0: none came yet.")]
    records: Annotated[int, Meta(ge=0, description="That are in it.")]
    came: Annotated[float | None, Meta(description="When, in seconds since 1970; null if before this start.")]
    lag: Annotated[int, Meta(ge=0, description="Releases that it is behind this service.")]
    refused: Annotated[int, Meta(ge=0, description="Of its messages, since this start.")]
    weight: Annotated[
        float | None,
        Meta(description="Share of its records that counts, 0 to 1: for admins; null before any came."),
    ] = None
    reason: Annotated[str | None, Meta(description="Why it counts so much: for admins.")] = None


class Sync(Struct):
    """What was sent to others, and what is held of theirs."""

    name: str
    federation: Annotated[str | None, Meta(description="Its id; null where the agent learns alone.")]
    roster: Annotated[int | None, Meta(description="The version that is held.")]
    released: Annotated[int, Meta(ge=0, description="The number of its latest release; 0 before the first.")]
    releases: Annotated[int | None, Meta(description="That the federation's terms allow.")]
    next_round: Annotated[int | None, Meta(description="The count of rewards at which it releases next.")]
    waiting: Annotated[bool, Meta(description="Whether its latest release is still to be sent.")]
    trouble: Annotated[str | None, Meta(description="Why nothing is sent or taken now.")]
    over: Annotated[str | None, Meta(description="Why nothing will be released any more.")]
    refusals: Annotated[
        dict[str, dict[str, int]],
        Meta(description="Refused messages since this start, by sender and reason; ?: of no member."),
    ]
    peers: Annotated[dict[str, PeerSeen], Meta(description="The others, by name.")]


class ReleaseSealed(Struct):
    """The agent's own latest release, signed, for an engine that carries it to the others."""

    name: str
    number: Annotated[int, Meta(ge=1)]
    envelope: Annotated[bytes, Meta(description="In base64.")]


class PeersBrought(Body):
    """Others' latest envelopes; the agent's own among them says that the others have it."""

    envelopes: Annotated[dict[Name, bytes], Meta(description="By name, in base64.")]


class PeersTaken(Struct):
    """What became of them."""

    taken: Annotated[list[str], Meta(description="Who had something new.")]
    refused: Annotated[dict[str, str], Meta(description="Who was refused now, and why; ?: of no member.")]


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

"""The guarantee of an agent's messages, in numbers and in a sentence that someone can sign."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedfairx.core.slates import ONE, Weights, as_weights
from fedfairx.errors import require
from fedfairx.privacy.accounting import epsilon_for
from fedfairx.privacy.bounds import Bounding, Bounds
from fedfairx.privacy.mechanisms.gaussian import Gaussian
from fedfairx.privacy.mechanisms.noise_share import NoiseShare

DecideFrom = Literal["own+released", "released", "released+local"]
#: What a private agent's decisions may use; the first is the default.
DECIDE_FROM: tuple[str, ...] = get_args(DecideFrom)

LARGE_DELTA = 1e-3

_STRICT = 'decide_from="released" is the strict mode, which covers that too'
#: Scope of the default in one sentence, for those who set up or join a federation.
NARROWER = (
    "the claim is for replacing one record of the log while the other records stay as recorded; what the "
    f"record changes in later decisions is not covered ({_STRICT})."
)
_NARROW = (
    "It is the narrower claim (the paper's Definition 2): one record of the log is replaced, and the other "
    "records stay as recorded; what the record changes in later decisions, which also use"
)
_SCOPE: dict[str, str] = {
    "released": (
        "It is the strict claim: decisions use released statistics alone, so one record changes one leaf "
        "and nothing after it, and the whole transcript of messages is covered, however anyone reacts to it."
    ),
    "released+local": f"{_NARROW} the agent's own fresh data without noise, is not covered ({_STRICT}).",
    "own+released": f"{_NARROW} all of the agent's own data without noise, is not covered ({_STRICT}).",
}


@dataclass(frozen=True, kw_only=True)
class Against:
    """What is claimed against some of those who may look.

    whom: against whom.
    mu: of Gaussian differential privacy.
    epsilon: at the δ of the guarantee.
    """

    whom: str
    mu: float
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The privacy of one agent's messages.

    >>> import fedfairx as ffx
    >>> guarantee = ffx.Budget(epsilon=2.0, delta=1e-6, releases=1000).guarantee()
    >>> guarantee.is_private, guarantee.remaining
    (True, 1000)

    Guarantees:
    - `epsilon`, `delta` and `mu` hold for all `releases` together, however many are `spent`.
    - With a `share` they hold for totals, against the hub and as many members as may collude; `against` has
      the claims for more of them, down to a single row without noise of others.
    - What is not private has μ = ∞ and says NOT PRIVATE, with every reason.
    - Simulated noise is named as such: the numbers are then those of keyed noise.
    """

    mechanism: str
    epsilon: float
    delta: float
    mu: float
    adjacency: str
    context_norm: float
    reward: float
    releases: int
    spent: int
    decide_from: DecideFrom
    simulated: bool = False
    reasons: tuple[str, ...] = ()
    centred: bool = False  # the limits are distances from a public point
    person_records: int | None = None  # largest number of records of one person that enter, if bounded
    runs: int = 1  # consecutive runs; `person_records` is for each of them
    slots: Weights = ONE  # of a decision, which is the unit if there are several
    largest_record: float = 1.0  # share of a decision's sensitivity that one of its records has at most
    share: NoiseShare | None = None  # of the noise, with secure aggregation
    record_norm: float | None = None  # that whole records are shrunk to, with r·y² for y², r the next
    gram_share: float = 1.0

    @property
    def is_private(self) -> bool:
        """Whether anything is promised."""
        return not self.simulated and not self.reasons and math.isfinite(self.mu)

    @property
    def person_mu(self) -> float | None:
        """kμ, the cost of changing all records of one person, where their number k is bounded.

        With several slots μ is that of a decision, and a record costs its share of it.

        With k in each of several runs it is √(Σ(kμᵢ)²) = kμ, since μ² is the sum of the μᵢ².
        """
        return None if self.person_records is None else self.person_records * self.largest_record * self.mu

    @property
    def each_run(self) -> str:
        """Words that follow `person_records` in a sentence if there were several runs."""
        return "" if self.runs == 1 else f" in each of {self.runs} runs"

    @property
    def person_epsilon(self) -> float | None:
        """ε for a person, at the same δ."""
        return None if self.person_mu is None else epsilon_for(self.delta, self.person_mu)

    @property
    def against(self) -> tuple[Against, ...]:
        """The claims of secure aggregation side by side, the strongest first; empty without it."""
        if self.share is None:
            return ()
        share, more = self.share, self.share.colluding + 1
        claims = [(f"the hub and up to {share.colluding} of {share.members} members together", 1.0)]
        if more < share.members - 1:
            whom = f"{more} members together, if one of the {more} that open totals is not among them"
            claims.append((whom, share.times_mu(more)))
        whom = f"all {more} that open totals together, all other members, or whoever breaks the encryption"
        claims.append((whom, share.worst_times_mu))
        return tuple(
            Against(whom=whom, mu=times * self.mu, epsilon=epsilon_for(self.delta, times * self.mu))
            for whom, times in claims
        )

    @property
    def remaining(self) -> int:
        """Releases left before `BudgetExhausted`."""
        return self.releases - self.spent

    @property
    def scope(self) -> str:
        """What the numbers cover and what they do not."""
        return _SCOPE[self.decide_from]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for whoever signs the claim."""
        if math.isfinite(self.mu) and self.delta > LARGE_DELTA:
            return (
                f"delta={self.delta:g} would permit publishing a fraction {self.delta:g} of the records "
                "outright; choose delta well below one over the number of records, such as 1e-6",
            )
        return ()

    def __str__(self) -> str:
        if self.reasons or math.isinf(self.mu):
            reasons = "; ".join(self.reasons) or "no noise is added"
            return f"NOT PRIVATE: {reasons}."
        blank = "adds nothing or lies at (x₀, y₀)," if self.centred else "adds nothing"
        unit, counts = "one record (x, y)", "one"
        if self.slots != ONE:
            counts = f"{len(self.slots)} records"
            weights = ", ".join(f"{weight:g}" for weight in self.slots)
            unit = f"one decision with the records (vx, y) of all its slots, of weights v = {weights},"
        change = {
            "replace": f"replacing {unit}",
            "add-remove": f"blanking {unit.rstrip(',')}, which then {blank} and still counts as {counts},",
        }[self.adjacency]
        x, y, point = ("x - x₀", "y - y₀", ", (x₀, y₀) a public point") if self.centred else ("x", "y", "")
        limits = f"‖{x}‖ ≤ {self.context_norm:g} and |{y}| ≤ {self.reward:g}"
        if self.record_norm is not None:
            times = "" if self.gram_share == 1.0 else f"{self.gram_share:g}·"
            square = f"{y}²" if y == "y" else f"({y})²"
            limits += f" and ‖{x}‖² + {times}{square} ≤ {self.record_norm**2:g}"
        limits += point
        what = "messages" if self.share is None else "totals of all members' messages"
        text = (
            f"All {self.releases} {what} together are "
            f"(ε={self.epsilon:.6g}, δ={self.delta:g})-differentially "
            f"private, and μ={self.mu:.6g} Gaussian-DP, for {change} with {limits} "
            f"(records are clipped to that); {self.spent} made, {self.remaining} left. "
            f"{self.scope}"
        )
        if self.share is not None:
            text += f" {self._in_shares(self.share)}"
        if self.person_records is not None:
            text += (
                f" For a person, of whom at most {self.person_records} records enter{self.each_run}, "
                f"all of them together: (ε={self.person_epsilon:.6g}, δ={self.delta:g}) and "
                f"μ={self.person_mu:.6g}, given which records are theirs."
            )
        if self.simulated:
            text = f"SIMULATED: the noise is seeded, so nothing is private here. With keyed noise: {text}"
        return " ".join([text, *(f"Warning: {warning}." for warning in self.warnings)])

    def _in_shares(self, share: NoiseShare) -> str:
        """Whom the claim holds against with secure aggregation, and what holds against more of them."""
        first, *others = self.against
        agreed = " All honest members decide so, by their terms." if self.decide_from == "released" else ""
        rest = "; ".join(f"against {each.whom}: ε={each.epsilon:.6g}, μ={each.mu:.6g}" for each in others)
        return (
            f"It holds against {first.whom}, since only totals are seen and each member adds noise of "
            f"1/{share.honest} of the variance. {rest[0].upper()}{rest[1:]}. Against c′ members in general: "
            f"μ·√({share.honest}/({share.members} − c′)).{agreed}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; an infinity becomes None."""
        person = None
        if self.person_records is not None:
            person = plain_values(self, "records", "mu", "epsilon", prefix="person_") | {"runs": self.runs}
        left_out = (
            "person_records",
            "runs",
            "share",
            *(("slots", "largest_record") if self.slots == ONE else ()),
            *(("record_norm", "gram_share") if self.record_norm is None else ()),
        )
        fields = [name for name in vars(self) if name not in left_out]
        values = plain_values(self, *fields, "is_private", "remaining", "scope", "warnings")
        if self.share is not None:
            against = [plain_values(each, "whom", "mu", "epsilon") for each in self.against]
            values["share"] = self.share.to_dict() | {"against": against}
        return values | {"person": person}


def require_decide_from(decide_from: str) -> None:
    """Refuse an unknown value of `decide_from`."""
    choices = ", ".join(DECIDE_FROM)
    require(decide_from in DECIDE_FROM, "decide_from", f"must be one of {choices}", decide_from)


def claim(
    mechanism: Gaussian,
    *,
    bounds: Bounding,
    spent: int = 0,
    decide_from: DecideFrom = "own+released",
    simulated: bool = False,
    public_schedule: bool = True,
    person_records: int | None = None,
) -> Guarantee:
    """Return the guarantee of a mechanism over records that `bounds` clip.

    If the mechanism has a public point, limits are distances from that point. Unbounded records and a
    schedule that depends on the data void the guarantee.

    >>> from fedfairx.privacy import Bounds, calibrate
    >>> blt = calibrate("blt", epsilon=2.0, delta=1e-6, releases=1000, sensitivity=Bounds().sensitivity)
    >>> round(claim(blt, bounds=Bounds()).epsilon, 6)
    2.0

    Guarantees:
    - ε is that of the noise added, which is less than requested if a mechanism adds more than needed.
    """
    reasons: tuple[str, ...] = () if bounds.is_private else ("records are not bounded",)
    if not public_schedule:
        reasons = (*reasons, "when it releases depends on data")
    epsilon, point = epsilon_for(mechanism.delta, mechanism.mu), mechanism.public_point
    if math.isclose(epsilon, mechanism.epsilon, rel_tol=1e-9):
        epsilon = mechanism.epsilon  # the requested one, without rounding
    limits = bounds.to_dict()
    norm, reward = limits.get("context_norm", math.inf), limits.get("reward", math.inf)
    whole = limits.get("record_norm")
    if point is not None:
        norm, reward, whole = point.context_radius, point.reward_radius, point.record_radius
    return Guarantee(
        mechanism=mechanism.name,
        epsilon=math.inf if reasons else epsilon,
        delta=mechanism.delta,
        mu=math.inf if reasons else mechanism.mu,
        adjacency=str(limits.get("adjacency", "none")),
        context_norm=float(norm),
        reward=float(reward),
        releases=mechanism.releases,
        spent=spent,
        decide_from=decide_from,
        simulated=simulated,
        reasons=reasons,
        centred=point is not None,
        person_records=person_records,
        slots=as_weights(limits.get("slots", ONE)),
        largest_record=bounds.largest_record if isinstance(bounds, Bounds) else 1.0,
        share=mechanism.share,
        record_norm=whole,
        gram_share=float(limits.get("gram_share", 1.0)),
    )


def plain_values(of: object, *names: str, prefix: str = "") -> dict[str, Any]:
    """Return attributes by name as values for JSON: a tuple becomes a list, an infinity or NaN None."""
    values = {name: getattr(of, prefix + name) for name in names}
    for name, value in values.items():
        if isinstance(value, tuple):
            values[name] = list(value)
        elif isinstance(value, float) and not math.isfinite(value):
            values[name] = None
    return values

"""Wrong versions of the code, each with the tests that must notice: `make mutants`.

A mutant is one text of one function replaced by another. It is put into a copy of the source tree, never into
the tree itself, and the tests named beside it run against that copy: first against the copy as it is, where
they must pass, then with the mutant, where one must fail. The exit code is not 0 if a mutant survives, or if
its old text is no longer there exactly once: then the table is behind the code (`test_mutants.py` says so).
"""

from __future__ import annotations

import argparse
import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fedfairx"
SECONDS = 900  # for the tests of one mutant


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in the function, class or constant `where`; `tests` are arguments of pytest.

    `where` is a name as `Agent.decide`, without its module: files may move. That of a template or
    of SQL is its file's.
    """

    what: str
    where: str
    old: str
    new: str
    tests: tuple[str, ...]
    compiled: bool = False  # False: the tests run as plain Python, which saves a minute of compiling


SETUP = ("tests/simulation/test_setup.py",)
NOISE_SHARES = ("tests/privacy/mechanisms/test_noise_share.py",)
TOTALS = ("tests/federation/test_in_process.py", "-k", "total")
WORLD = ("tests/simulation/test_scenario.py", "-k", "not private_run")
KERNEL = ("tests/simulation/test_kernel.py", "-k", "bounded or heteroscedastic or norms")
OBSERVING = ("tests/simulation/test_observe.py",)
HALVES = ("tests/simulation/test_synchronize.py", "-k", "halves")
POOL = ("tests/agent/test_pool.py",)
AGEING = (
    "tests/agent/test_half_life.py",
    "-k",
    "counts_half or release or (not postgresql and (refused_message or replaced))",
)
CHANGED = ("tests/fairness/test_change_test.py", "-k", "worst or least or weigh or apart")
CREDIBLE = ("tests/fairness/test_credible.py", "-k", "not often and not slots")
FORECAST = ("tests/fairness/test_forecast.py",)
CONTRIBUTIONS = ("tests/fairness/test_contributions.py",)
DURABLE = ("tests/agent/test_persistence.py", "-k", "sqlite or tmp or copy or older")
NEW_RUN = ("tests/agent/test_agent_private.py", "-k", "run or interrupted")
SCORES = ("tests/experiments/test_scores.py",)
RESULTS = ("tests/experiments/sweep/test_store.py",)
OFFERS = ("tests/experiments/test_offers.py",)
FLIGHTS = ("tests/experiments/test_flights.py", "-k", "not january_chose")
STAR = ("tests/experiments/test_star.py",)
SERVICE = ("tests/service/test_api.py", "-k", "sqlite")
DESCRIBED = ("tests/test_features.py",)
WITH_SCHEMA = ("tests/agent/test_schema.py", "-k", "not postgresql and not appended")
WRITE_QUEUE = ("tests/service/test_write_queue.py",)
DECISION_STEPS = ("tests/service/test_decision_steps.py",)
AGENTS = ("tests/service/test_agents.py", "-k")
DOORS = ("tests/service/test_auth.py", "-k", "sqlite")
GATE = ("tests/service/test_gate.py",)
CONNECTIONS = ("tests/service/test_connections.py",)
TWIN = ("tests/service/test_published.py", "-k", "twin and partner")
TWIN_PRIVATE = ("tests/service/test_published.py", "-k", "twin and private")
BATCHES = ("tests/service/test_published.py", "-k", "batch")
ENTERING = ("tests/service/pages/test_access.py",)
CERTIFICATE = ("tests/core/optimism/test_certificate.py", "-k", "statement or float or steep")

ALIVE = ("tests/federation/exchange/test_alive.py",)
HANGING = ("tests/federation/transport/test_nats.py", "-k", "hangs")
MIRROR = ("tests/federation/transport/test_nats_mirror.py",)
RESTORED = ("tests/federation/transport/test_nats_restored.py", "-k", "ahead")
KEYS = ("tests/federation/roster/test_signing_keys.py",)
SEEN = ("tests/federation/exchange/test_seen.py", "-k", "not postgresql")
ENVELOPE = ("tests/federation/exchange/test_envelope.py",)
ROSTER = ("tests/federation/roster/test_roster.py",)
MEMBER = ("tests/federation/exchange/test_member.py",)
PLAUSIBLE = ("tests/federation/roster/test_limits.py",)
SHARES = ("tests/federation/aggregation/test_shares.py",)
AGGREGATION_MESSAGES = ("tests/federation/aggregation/test_aggregation_messages.py",)
AGREEMENT = ("tests/federation/aggregation/test_agreement.py",)
SENDER = ("tests/federation/aggregation/test_sender.py",)
OPENER = ("tests/federation/aggregation/test_opener.py",)
TOTAL = ("tests/federation/aggregation/test_total.py",)
CLOSING = ("tests/federation/aggregation/test_settlement.py",)
AGGREGATION_RECORDS = ("tests/federation/aggregation/test_aggregation_records.py",)
SECURE_EPOCHS = ("tests/federation/exchange/test_secure_epochs.py", "-x")
SECURE_MEMBER = ("tests/federation/exchange/test_secure_member.py", "-m", "not long")
SECURE_SETUP = ("tests/federation/setup/test_secure_setup.py",)
ROUNDS = ("tests/federation/roster/test_rounds.py",)
PARTICIPANT = ("tests/federation/aggregation/test_participant.py", "-m", "not long")
FLOWER = ("tests/federation/transport/test_flower_app.py", "tests/federation/transport/test_flower_client.py")
SQLITE = ("tests/federation/transport/test_contract.py", "-k", "sqlite")
SEQUENCES = ("tests/fairness/test_confidence_sequences.py",)
REGION = ("tests/fairness/test_confidence_region.py",)
ENTITLED = ("tests/fairness/test_entitlement.py",)
QUADRATURE = "tests/core/test_quadrature.py"
EXPOSED = ("tests/service/test_exposure_cache.py", "-k", "own_rewards and sqlite")
DRAWN = ("tests/fairness/test_draw_test.py",)
TABLE = ("tests/fairness/test_exposure_table.py",)
SLOTS_SHOWN = ("tests/fairness/test_exposure_of_slots.py", "-m", "not long")

EVIDENCE = ("tests/evaluation/test_confidence_sequence.py", "-m", "not long")
LIFT = ("tests/evaluation/test_lift.py",)
EARNINGS = ("tests/service/test_earnings.py", "-k", "not postgresql")
SERVED_METRICS = ("tests/service/test_metrics.py", "-k", "not postgresql")
ESTIMATES = ("tests/evaluation/test_estimators.py",)
EVALUATED = ("tests/evaluation/test_evaluation.py", "-m", "not long")
LOGS = ("tests/evaluation/test_logs.py",)
DROPPED = (
    "tests/storage/test_erasure.py",
    "-k",
    "not postgresql and (old or recent or event or hidden or damaged)",
)
DELETED = ("tests/storage/test_erasure.py", "-k", "not postgresql and (actions or waits or sent)")
UNDONE = ("tests/storage/test_erasure.py", "-k", "not postgresql and (knew or return or numbers)")
HISTORY = ("tests/service/test_history.py", "-k", "not postgresql")
SEALS = ("tests/storage/test_seals.py", "-k", "not postgresql")
MIGRATED = ("tests/storage/test_migrations.py", "-k", "not postgresql")
SEVERAL = ("tests/storage/test_several_agents.py", "-k", "not postgresql")
REPLACED = ("tests/storage/test_replacement.py", "-k", "not postgresql and not optimism")
REPLACED_HTTP = ("tests/service/test_rewarding.py", "-k", "not postgresql")
LIMITS = ("tests/agent/test_reward_limits.py",)
ACTIONS = (
    "tests/agent/test_actions.py",
    "-k",
    "not postgresql and not an_agent_with_unit and not thousand",
)
PLACES = ("tests/fairness/test_featureless.py",)
SERVED_SLOTS = ("tests/service/test_served_slots.py", "-k", "not postgresql and not compiler")
SERVED_ACTIONS = ("tests/service/test_served_actions.py", "-k", "sqlite")

SLATES = ("tests/core/test_slates.py", "-k", "not thousand and not draws")
SLOTS = ("tests/agent/test_slots.py",)
REPLACED_SLOTS = ("tests/storage/test_replacement.py", "-k", "slots and not postgresql")
QUERIES = ("tests/storage/test_queries.py", "-k", "not postgresql")
PRIVATE_SLOTS = ("tests/privacy/test_private_slots.py", "-k", "not audit")

AUDIT = ("tests/audit/test_mistakes.py", "-k", "caught and (grid or positive or repeated or loaded)")
AUDIT_KEYS = ("tests/audit/test_mistakes.py", "-k", "caught and keys")
AUDIT_LAST = ("tests/audit/test_mistakes.py", "-k", "caught and release and beyond and not any")
AUDIT_DRAWS = ("tests/audit/test_noise_tests.py",)
AUDIT_TOTALS = ("tests/audit/test_whole_federation.py",)
AUDIT_PROTOCOL = ("tests/audit/test_protocol_checks.py",)

MUTANTS = (
    # Noise of an aggregate, when it is made, and what it changes.
    Mutant(
        "a bound on the noise forgets that a matrix has two ends",
        "noise_bounds",
        "2.0 * releases / failure",
        "releases / failure",
        ("tests/agent/test_aggregate.py", "-k", "proof"),
    ),
    Mutant(
        "one release more than the last is due",
        "Timetable.is_due",
        "made < self.most",
        "made <= self.most",
        ("tests/agent/test_schedules.py", "-k", "beyond"),
    ),
    Mutant(
        "a message leaves the model's version as it is",
        "Agent.model_version",
        "sum([release.number for release in self._exchange.latest.values()])",
        "0",
        ("tests/agent/test_exchange.py", "-k", "version"),
    ),
    # The audit.
    Mutant(
        "numbers off the grid pass",
        "Watched.compare",
        "(~near | (steps != np.rint(steps)))",
        "(~near)",
        AUDIT,
    ),
    Mutant(
        "numbers may be a grid step off",
        "Watched.compare",
        "<= 0.5 + _ROUNDING",
        "<= 1.5 + _ROUNDING",
        AUDIT,
    ),
    Mutant("a count may be too small", "Watched._note", "!= records", "> records", AUDIT),
    Mutant(
        "only the number of a repeated release is compared",
        "Watched.ask_again",
        "self.agent.release(number) != self.sent[number]",
        "self.agent.release(number).number != number",
        AUDIT,
    ),
    Mutant("no agent is saved", "_in_memory", "number == releases // 2 + 1:", "number > releases:", AUDIT),
    Mutant(
        "long streams are not followed to their end",
        "_in_memory",
        "subject.releases > releases",
        "subject.releases < releases",
        AUDIT_LAST,
    ),
    Mutant("few keys are compared", "_KEYS", "1 << 14", "1 << 4", AUDIT_KEYS),
    Mutant("one tail of two", "_tails", "/ _TAIL_SAMPLES) / 2)", "/ _TAIL_SAMPLES))", AUDIT_DRAWS),
    Mutant("a member's whole noise is expected", "AuditedConfig.own_sd", "self.honest)", "1)", AUDIT_TOTALS),
    Mutant("all rows are seen", "AuditedConfig.seen", "is None else asked", "is None else 0", AUDIT_TOTALS),
    Mutant("no member is away", "whole_federation", "number == _AWAY)", "number < 0)", AUDIT_TOTALS),
    Mutant(
        "half of a total is compared", "_Group.wrong", "!= expected).", "!= expected)[::2].", AUDIT_TOTALS
    ),
    Mutant("openers are asked for the same rows", "opened_once", "(2, others), ", "", AUDIT_PROTOCOL),
    Mutant(
        "no row is sent again",
        "hiding",
        "seen += [*made.decrypted(again)",
        "_ = [*made.decrypted(again)",
        AUDIT_PROTOCOL,
    ),
    Mutant(
        "one test's error rate for all views",
        "hiding",
        "error_rate / len(views)",
        "error_rate",
        AUDIT_PROTOCOL,
    ),
    Mutant("no bit of a key is changed", "_related", "_one_bit_changed(key)", "[key]", AUDIT_DRAWS),
    # Many arms, many decisions.
    Mutant(
        "V⁻¹ counts as diagonal whatever it is",
        "Model._is_diagonal",
        "bool(np.count_nonzero(self.learner.inverse) == self.dimension)",
        "True",
        (*ACTIONS[:2], "began_with"),
    ),
    Mutant(
        "V⁻¹ counts as diagonal after others came in",
        "Model._derive",
        "self.updates, self._diagonal = 0, None",
        "self.updates = 0",
        (*ACTIONS[:2], "began_with"),
    ),
    Mutant(
        "uniforms of many decisions come in another order",
        "Draws.take",
        "taken += self.ahead[: first - 1 if first else None : -1]",
        "taken += self.ahead[first:]",
        ("tests/agent/test_agent.py", "-k", "same_order"),
    ),
    Mutant(
        "many decisions are stored with the same seal before them",
        "Journal.append_decisions",
        "            head = digest\n",
        "",
        ("tests/agent/test_persistence.py", "-k", "many and not optimism"),
    ),
    # Several slots.
    Mutant(
        "blocks are pooled one too few",
        "_pool",
        "        if work.weights[blocks - 1] * math.exp(log_merit - last) < weight:\n",
        "        if work.weights[blocks - 1] * math.exp(log_merit - last) < 2.0 * weight:\n",
        SLATES,
    ),
    Mutant(
        "the penalty of a square is too small",
        "Mixture.add",
        "(np.log1p(-within) + within) * squares",
        "0.9 * (np.log1p(-within) + within) * squares",
        EVIDENCE,
    ),
    Mutant(
        "a rate is not lowered where a value may be far below",
        "Mixture.add",
        "_MOST / reach,",
        "_MOST / reach.min(),",
        EVIDENCE,
    ),
    Mutant(
        "a guess at a value knows the value",
        "Mixture.add",
        "np.concatenate([[0.0], np.cumsum(values)[:-1]])",
        "np.cumsum(values)",
        EVIDENCE,
    ),
    Mutant(
        "a control counts as a live decision",
        "LiftSoFar.add",
        "np.where(live, agent, -baseline)",
        "np.where(live, agent, -agent)",
        LIFT,
    ),
    Mutant(
        "a guess at a lift's reward knows the reward",
        "LiftSoFar.add",
        "np.concatenate([[0.0], np.cumsum(part)[:-1]])",
        "np.cumsum(part)",
        LIFT,
    ),
    Mutant(
        "a control can't be far below",
        "LiftSoFar.add",
        "-np.maximum(guess * agent, (1.0 - guess) * baseline)",
        "-guess * agent",
        LIFT,
    ),
    Mutant(
        "each side of a lift has the whole error",
        "LiftSoFar.answer",
        "error=0.5 * self._error",
        "error=self._error",
        LIFT,
    ),
    Mutant(
        "a lift is published for a single control",
        "LiftReader.update",
        "min(self._kinds) >= FOR_EACH",
        "min(self._kinds) >= 1",
        EARNINGS,
    ),
    Mutant(
        "a decision that waits for its reward is passed over",
        "LiftReader.update",
        "made.time > time.time() - self._wait",
        "made.time > time.time()",
        EARNINGS,
    ),
    Mutant(
        "the lower end of a lift is rounded up",
        "_coarse",
        "math.floor(lift.low / step)",
        "math.ceil(lift.low / step)",
        EARNINGS,
    ),
    Mutant(
        "a slow request is one of the fastest",
        "Metrics.answered",
        "-(-95 * len(seconds) // 100) - 1",
        "-(-94 * len(seconds) // 100) - 1",
        SERVED_METRICS,
    ),
    Mutant(
        "guesses are not cut",
        "series_of",
        "q = np.minimum(given, cut)",
        "q = given",
        ESTIMATES,
    ),
    Mutant(
        "a slot's weight is left out of its guess",
        "series_of",
        "(got - slots * q[rows, block.taken])",
        "(got - q[rows, block.taken])",
        ESTIMATES,
    ),
    Mutant(
        "ranked slots are complemented as sets are",
        "series_of",
        "ranked = (slots != 1.0).any(axis=1)",
        "ranked = (slots > 1.0).any(axis=1)",
        ESTIMATES,
    ),
    Mutant(
        "only rewards of 0 are thought of as the worst",
        "_extreme",
        "np.where(weights > 0, -weights * guesses, weights * (1.0 - low))",
        "-weights * guesses",
        ESTIMATES,
    ),
    Mutant(
        "the worst of several slots is that of one",
        "_extreme",
        "[:, : slots.shape[1]]",
        "[:, :1]",
        ESTIMATES,
    ),
    Mutant(
        "a regression is fitted on what it predicts",
        "guesses_of",
        "end = min(max(int(_GROWTH * first), first + 10), count)\n",
        "end = min(max(int(_GROWTH * first), first + 10), count)\n"
        "        for block in blocks:\n"
        "            fit.add(block, scale.inside(block))\n",
        EVALUATED,
    ),
    Mutant(
        "a replay learns before it decides",
        "_replay",
        "        found[number][row] = decision.exposure\n",
        "        agent.learn(decisions.shown(number, row), block.rewards[row], weights=weights)\n"
        "        found[number][row] = agent.policy(decisions.arms(number, row), slots=weights.tolist())\n",
        EVALUATED,
    ),
    Mutant(
        "a baseline is not counted in how likely an action was",
        "taken_from",
        "chances[rows] += kept * np.asarray(weights)",
        "chances[rows] += kept",
        LOGS,
    ),
    Mutant(
        "a swap's chance forgets what the arm has already",
        "fill_slots",
        "uniform_of(state) * (weight_of[giver] - weight) < moved",
        "uniform_of(state) * weight_of[giver] < moved",
        SLATES,
    ),
    Mutant(
        "who has given all still gives",
        "fill_slots",
        "            if spare <= moved:\n                waiting -= 1\n",
        "            if spare <= 0.5 * moved:\n                waiting -= 1\n",
        SLATES,
    ),
    Mutant(
        "a floor is a share of one slot",
        "raise_to_least",
        "min(share, 1.0 / arms) * total + rest",
        "min(share, 1.0 / arms) + rest",
        SLATES,
    ),
    Mutant(
        "equal merits are ranked by chance",
        "_worse",
        "mine == theirs and one > other",
        "mine == theirs and one < other",
        SLATES,
    ),
    Mutant(
        "a reward of the third place counts as one of the first",
        "Model.learn",
        "weight = 1.0 if slate is None else slate.weights[slot]",
        "weight = 1.0 if slate is None else slate.weights[0]",
        SLOTS,
    ),
    Mutant(
        "a decision ends with its first reward",
        "Agent._end_slots",
        "        if not slate.waiting:\n",
        "        if len(slate.waiting) < len(slate.shown):\n",
        SLOTS,
    ),
    Mutant(
        "a slot takes a second reward",
        "Agent._outcomes",
        "            if slot not in slate.waiting:\n",
        "            if slot not in range(len(slate.shown)):\n",
        SLOTS,
    ),
    Mutant(
        "after a restart slots wait that have their reward",
        "AgentStore._restore",
        "                    made.slate.end(outcome.slot - 1, outcome.reward, outcome.status)\n",
        "                    pass\n",
        SLOTS,
    ),
    Mutant(
        "the unit of privacy is one slot",
        "Bounds.sensitivity",
        "sum(self._sensitivity(weight * self.context_norm) for weight in self.slots)",
        "max(self._sensitivity(weight * self.context_norm) for weight in self.slots)",
        PRIVATE_SLOTS,
    ),
    Mutant(
        "a private record has no weight",
        "StreamPrivatizer._enter",
        "            x = weight * x\n",
        "            pass\n",
        PRIVATE_SLOTS,
    ),
    Mutant(
        "a private agent shows as many as it is asked to",
        "Agent._weights",
        "if fixed and weights != self._slots[: len(weights)]:",
        "if fixed and not weights:",
        PRIVATE_SLOTS,
    ),
    # Actions without features.
    Mutant(
        "agents of other actions take each other's sums",
        "Exchange.digest",
        "json.dumps([mechanism, *self.model.actions.names])",
        "json.dumps([mechanism])",
        ACTIONS,
    ),
    Mutant(
        "what a decision takes stays when actions are added",
        "Parts._resize_draws",
        "            self.draws.resize(self.model.uniforms_each)\n",
        "            pass\n",
        ACTIONS,
    ),
    Mutant(
        "what a decision takes stays when an agent is opened",
        "Draws.restore",
        "        self.each = each\n",
        "",
        ACTIONS,
    ),
    Mutant(
        "one that has released grows",
        "Agent._change_actions",
        "self.bound is not None or bool(self._exchange.latest)",
        "self.bound is not None",
        ACTIONS,
    ),
    Mutant(
        "exact sums of actions are not clipped",
        "NonPrivateSums.add_arm",
        "            self.add(context, reward, weight=weight)\n            return\n",
        "            pass\n",
        ACTIONS,
    ),
    Mutant(
        "the width of the others is left out",
        "entitled_units.squares",
        "np.square(widths * (1.0 - centre)) + _of_others(squares, alike)",
        "np.square(widths * (1.0 - centre))",
        PLACES,
    ),
    Mutant(
        "the gradient forgets the mean context",
        "gradient_of_units.gradient",
        "own.reshape(size, dimension) - both",
        "own.reshape(size, dimension)",
        PLACES,
    ),
    Mutant(
        "a retry is answered by what there is now",
        "answer_of_stored",
        "asked = named(stored.names or [], asked.slots)",
        'asked = named(["ann", "cid", "dora"], asked.slots)',
        SERVED_ACTIONS,
    ),
    # Rewards that are wrong.
    Mutant(
        "a wild reward is learnt",
        "Agent._reward",
        "            self._model.limits.check(value)\n",
        "            pass\n",
        LIMITS,
    ),
    Mutant(
        "a replaced reward stays in a snapshot",
        "replace",
        'journal.log.write("DELETE FROM snapshots WHERE agent = ? AND seq > ?", (journal.agent, ended.seq))',
        "pass",
        REPLACED,
    ),
    Mutant(
        "a reward is replaced that was released",
        "Agent._is_wrong",
        "        self._refuse_released(journal, found)\n",
        "",
        REPLACED,
    ),
    Mutant(
        "steps of the same transaction are missing when an agent is made anew",
        "Agent._replace_many",
        "                journal.log.settle()\n                store.restore()\n",
        "                store.restore()\n",
        REPLACED,
    ),
    Mutant(
        "an amended record is not clipped",
        "StreamPrivatizer.amend",
        "leaf[-self._summed :] += weight * x * (after - before)",
        "leaf[-self._summed :] += weight * x * (new - old)",
        REPLACED,
    ),
    Mutant(
        "records of a person beyond the bound enter",
        "StreamPrivatizer.add",
        "if not within:",
        "if False:",
        ("tests/privacy/privatizers/test_per_person.py",),
    ),
    Mutant(
        "what was refused is counted as a person's",
        "StreamPrivatizer.add",
        "self.persons.count(known, -1)",
        "pass",
        ("tests/privacy/privatizers/test_per_person.py",),
    ),
    Mutant(
        "a ledger whose persons were not counted",
        "StreamPrivatizer._bind_persons",
        "if self.persons.total() < here.total_count + here.leaf_count:",
        "if False:",
        ("tests/privacy/privatizers/test_per_person.py",),
    ),
    Mutant(
        "noise is calibrated to the records and not to the centred ones",
        "Budget.summed_bounds",
        "if self.centring is None:",
        "if True:",
        ("tests/privacy/test_budget.py",),
    ),
    Mutant(
        "the adjacency of centred records is forgotten",
        "Budget.summed_bounds",
        "adjacency=bounds.adjacency, gram_share=bounds.gram_share",
        "",
        ("tests/privacy/test_budget.py",),
    ),
    Mutant(
        "a claim for a schedule that looks at the data",
        "claim",
        "if not public_schedule:",
        "if False:",
        ("tests/privacy/test_guarantee.py",),
    ),
    Mutant(
        "a blank record is amended",
        "StreamPrivatizer._has_entered",
        "return held <= most or place <= most",
        "return True",
        REPLACED,
    ),
    Mutant(
        "writers replace rewards",
        "_taking",
        'if replace and request.scope["role"] != "admin":',
        "if False:",
        REPLACED_HTTP,
    ),
    Mutant(
        "a table goes on from sums with a replaced reward",
        "_Logged.sums",
        "replaced = replaced_between(journal, self._end, end)",
        "replaced = False",
        REPLACED_HTTP,
    ),
    # Messages between organisations.
    Mutant(
        "any signature will do",
        "SignedCodec._require_signed",
        "if not signed_by(public, text, signature):",
        "if False:",
        ENVELOPE,
    ),
    Mutant(
        "a key under which anybody can sign",
        "signed_by",
        "if public in SMALL_ORDER:",
        "if False:",
        KEYS,
    ),
    Mutant(
        "a member with such a key",
        "Roster.__post_init__",
        "require(key not in SMALL_ORDER,",
        "require(True,",
        KEYS,
    ),
    Mutant(
        "a convener with such a key",
        "Roster.__post_init__",
        "if self.convener in SMALL_ORDER:",
        "if False:",
        KEYS,
    ),
    Mutant(
        "a key of small order in another writing",
        "SMALL_ORDER",
        "(0, 1, _EIGHTH, _PRIME - _EIGHTH, _PRIME - 1, _PRIME, _PRIME + 1)",
        "(0, 1, _EIGHTH, _PRIME - _EIGHTH, _PRIME - 1)",
        KEYS,
    ),
    Mutant(
        "a lock that leads elsewhere",
        "_open",
        " | os.O_NOFOLLOW",
        "",
        ("tests/privacy/ledger/test_file_lock.py", "-k", "link"),
    ),
    Mutant(
        "a digest that does not know where records are centred",
        "Gaussian._digest",
        "if self.public_point is not None:",
        "if False:",
        ("tests/privacy/test_centring.py", "-k", "digest"),
    ),
    Mutant(
        "a privatizer's mechanism is not told the public point",
        "StreamPrivatizer.__init__",
        "self.mechanism = replace(mechanism, public_point=centring)",
        "self.mechanism = mechanism",
        ("tests/privacy/test_centring.py", "-k", "digest"),
    ),
    Mutant(
        "a message under another's name",
        "SignedCodec._require_signed",
        "if agent != name:",
        "if False:",
        ENVELOPE,
    ),
    Mutant("other terms", "SignedCodec.open", "if envelope.terms != self._agreed:", "if False:", ENVELOPE),
    Mutant(
        "statistics are not looked at",
        "accept",
        "limits(name, release, before)",
        "pass",
        ENVELOPE,
    ),
    Mutant(
        "an old roster brings back a key",
        "Roster.require_follows",
        "self.version < before.version",
        "False",
        ROSTER,
    ),
    Mutant(
        "a roster that anybody signed",
        "Roster.__post_init__",
        "if self.federation != federation_id(self.convener, self.nonce):",
        "if False:",
        ROSTER,
    ),
    Mutant(
        "a large moment beside a small Gram",
        "Limits._why_absurd",
        "if seen > (",
        "if seen > 1e6 * (",
        PLAUSIBLE,
    ),
    Mutant(
        "honest noise refused",
        "FALSE_REFUSAL",
        "FALSE_REFUSAL = 1e-9",
        "FALSE_REFUSAL = 0.999",
        PLAUSIBLE,
    ),
    Mutant(
        "the bound forgets the noise of the public point",
        "Limits._noise_of",
        "matrix *= 1.0 + 2.0 * far",
        "matrix *= 1.0",
        PLAUSIBLE,
    ),
    Mutant(
        "the last share is not what is left",
        "split",
        "as_ring(row) - taken",
        "as_ring(row) + taken",
        SHARES,
    ),
    Mutant(
        "a share of the wrong length is taken",
        "numbers_of",
        "if len(share) != share_bytes(entries, last=last):",
        "if False:",
        SHARES,
    ),
    Mutant(
        "a share can be sent again by another",
        "Epoch.label",
        "number, sender, opener)",
        "number, opener)",
        OPENER,
    ),
    Mutant(
        "a share can be sent again in a later round",
        "Epoch.label",
        "return typed(purpose, *where, number, sender, opener)",
        "return typed(purpose, *where, sender, opener)",
        OPENER,
    ),
    Mutant(
        "labels without the closings",
        "Epoch.label",
        "self.settlement, self.digest",
        "self.digest",
        CLOSING,
    ),
    Mutant(
        "an opener takes another's key for its own",
        "Epoch.__post_init__",
        "if len(set(self.openers.values())) < len(self.openers):",
        "if False:",
        AGREEMENT,
    ),
    Mutant(
        "too few members for the noise",
        "Epoch.__post_init__",
        "require(len(self.members) >= least,",
        "require(True,",
        AGGREGATION_MESSAGES,
    ),
    Mutant(
        "an opener uses a key again",
        "Epoch.require_follows",
        "if reused:",
        "if False:",
        AGREEMENT,
    ),
    Mutant(
        "a message of another epoch",
        "verified",
        "if message.epoch != epoch:",
        "if False:",
        AGGREGATION_MESSAGES,
    ),
    Mutant(
        "a message that nobody has signed",
        "verified",
        "if not signed_by(public,",
        "if False and not signed_by(public,",
        AGGREGATION_MESSAGES,
    ),
    Mutant(
        "two ways to write a message",
        "parse",
        "if msgspec.msgpack.encode(message) != body:",
        "if False:",
        AGGREGATION_MESSAGES,
    ),
    Mutant(
        "a member opens without being an opener",
        "read",
        "name not in epoch.openers",
        "False",
        AGGREGATION_MESSAGES,
    ),
    Mutant(
        "a list of rows that has everything",
        "Row.lists",
        "self.earlier[place] == digest",
        "True",
        AGGREGATION_MESSAGES,
    ),
    Mutant(
        "a round with two contents",
        "Sender.send",
        "if held.content != content:",
        "if False:",
        SENDER,
    ),
    Mutant(
        "rows before all have accepted",
        "Sender.send",
        "self._agreement.require_begun()",
        "pass",
        SENDER,
    ),
    Mutant(
        "a round that was passed over is sent",
        "Sender.send",
        "if number <= self.last:",
        "if False:",
        SENDER,
    ),
    Mutant(
        "a cloned machine repeats its seeds",
        "Sender._message",
        "self._random(KEY_BYTES), place, to_bytes(as_ring(row))",
        "self._random(KEY_BYTES)",
        SENDER,
    ),
    Mutant(
        "a sender goes on beside its clone",
        "Sender.compare",
        "if seen != known:",
        "if False:",
        SENDER,
    ),
    Mutant(
        "a write that failed is forgotten",
        "Sender._write",
        "self._sent = self._stores.sent(self._epoch.digest)",
        "pass",
        SENDER,
    ),
    Mutant(
        "a sum with a stranger in it",
        "Opener._open",
        "if {*rows} != {*self._epoch.members}:",
        "if not {*self._epoch.members} <= {*rows}:",
        OPENER,
    ),
    Mutant(
        "a round is opened twice",
        "Opener._open",
        "if number <= self.last:",
        "if False:",
        OPENER,
    ),
    Mutant(
        "a sender of two lives is opened",
        "Opener._share",
        "if not row.lists(self.last, opened):",
        "if False:",
        OPENER,
    ),
    Mutant(
        "rows of different rounds in one sum",
        "Opener._share",
        "if row.number != number:",
        "if False:",
        OPENER,
    ),
    Mutant(
        "an opener opens after its closing",
        "Opener.open",
        "if self._state.closing:",
        "if False:",
        OPENER,
    ),
    Mutant(
        "an opener opens before all have accepted",
        "Opener.open",
        "self._agreement.require_begun()",
        "pass",
        OPENER,
    ),
    Mutant(
        "an opener closes without its vault",
        "Opener.close",
        "self._private()",
        "pass",
        OPENER,
    ),
    Mutant(
        "a partial is published from one store",
        "Opener._state",
        "self._stores.open(self._epoch.digest, held)",
        "pass",
        OPENER,
    ),
    Mutant(
        "a round is completed for closings that were not accepted",
        "Opener.complete",
        "accepted[-1].settlement != settlement.digest",
        "False",
        CLOSING,
    ),
    Mutant(
        "a round is completed for other rows",
        "Opener.complete",
        "if tuple(digest(rows[name]) for name in self._epoch.members if name in rows) != settlement.rows:",
        "if False:",
        CLOSING,
    ),
    Mutant(
        "the vault is not asked for the last round",
        "Stores.opened",
        "for store in self._both",
        "for store in (self._records,)",
        OPENER,
    ),
    Mutant(
        "the vault is not told",
        "Stores._put_both",
        "for store in self._both:",
        "for store in self._both[:1]:",
        OPENER,
    ),
    Mutant(
        "a vault that others may read",
        "FileRecords.__init__",
        "require_private(self._path)",
        "pass",
        AGGREGATION_RECORDS,
    ),
    Mutant(
        "a total of different rows",
        "add_up",
        "len({(each.number, each.rows) for _, each in found.values()}) > 1",
        "False",
        TOTAL,
    ),
    Mutant(
        "a total without one opener",
        "add_up",
        "if missing:",
        "if False:",
        TOTAL,
    ),
    Mutant(
        "an absurd total is taken",
        "Totals._take_total",
        "if not self._plausible(total.values):",
        "if False:",
        TOTAL,
    ),
    Mutant(
        "an old total takes the place of a later",
        "Totals.take",
        "if partial.number <= self.number:",
        "if False:",
        TOTAL,
    ),
    Mutant(
        "what one opener has opened does not count as shown",
        "settle",
        "last = max(",
        "last = min(",
        CLOSING,
    ),
    Mutant(
        "another's partial in a closing",
        "read_closing",
        "read(closing.partial, Partial, epoch).name != closing.name",
        "False",
        CLOSING,
    ),
    Mutant(
        "a round of two sets of rows is completed",
        "Settlement.completable",
        "and self.rows is not None",
        "",
        CLOSING,
    ),
    Mutant(
        "a settlement without the missing openers",
        "Settlement.digest",
        "else None for name in self.epoch.openers",
        'else b"" for name in self.closings',
        CLOSING,
    ),
    Mutant(
        "the smaller of two ends of an epoch counts",
        "shown",
        "min(max(known), sent)",
        "min(min(known), sent)",
        AGREEMENT,
    ),
    Mutant(
        "one who was away counts only what it knew",
        "shown",
        "or any(not each.before for each in later)",
        "",
        AGREEMENT,
    ),
    Mutant(
        "a missing opener has opened nothing",
        "Agreement._after",
        "limit = None if settlement.missing else settlement.last",
        "limit = settlement.last",
        AGREEMENT,
    ),
    Mutant(
        "an opener that leaves need not agree",
        "Agreement.__init__",
        "{opener: before.members[opener] for opener in settlement.closings}",
        "{}",
        AGREEMENT,
    ),
    Mutant(
        "a convener exchanges a member's key",
        "Agreement.__init__",
        "for each in epoch.members if each in before.members",
        "for each in ()",
        AGREEMENT,
    ),
    Mutant(
        "two epochs of one number",
        "Agreement._after",
        "require(epoch.number > least,",
        "require(True,",
        AGREEMENT,
    ),
    Mutant(
        "a second founding",
        "Agreement._after",
        "if settlement is None:\n                raise",
        "if False:\n                raise",
        AGREEMENT,
    ),
    Mutant(
        "an opener forgets what it has completed",
        "Agreement._after",
        "or settlement.last < opened.number",
        "",
        CLOSING,
    ),
    Mutant(
        "a restored member carries what was shown",
        "Agreement._after",
        "sent.digests[number - 1] != row",
        "False",
        AGREEMENT,
    ),
    Mutant(
        "a member that runs twice goes on in the next epoch",
        "Agreement._after",
        "if halted:",
        "if False:",
        AGREEMENT,
    ),
    Mutant(
        "an epoch is passed over in which rows were sent",
        "Agreement._before",
        "if any(self.stores.sent(each.digest).digests for each in skipped):",
        "if False:",
        AGREEMENT,
    ),
    Mutant(
        "openers that nobody has confirmed",
        "_require_confirmed",
        "if unknown:",
        "if False:",
        AGREEMENT,
    ),
    Mutant(
        "members that nobody has confirmed",
        "_require_confirmed",
        "if known < least:",
        "if False:",
        AGREEMENT,
    ),
    Mutant(
        "sending in an epoch after a later one was accepted",
        "Agreement.require_begun",
        "if not self.current:",
        "if False:",
        AGREEMENT,
    ),
    Mutant(
        "a row that was refused is kept",
        "Participant._drop_refused",
        "del self._rows[number][name]",
        "pass",
        PARTICIPANT,
    ),
    Mutant(
        "an opener forgets the latest rows instead of the oldest",
        "Participant.keep_rows",
        "if name in rows)[:-most]",
        "if name in rows)[most:]",
        SECURE_MEMBER,
    ),
    Mutant(
        "an agent of secure aggregation sends its rows as they are",
        "require_seen",
        "if stream is not None and stream.mechanism.share is not None:",
        "if False:",
        SECURE_MEMBER,
    ),
    Mutant(
        "a row is that of another round",
        "SecureMember._make_row",
        "self.agent.past_release(due)",
        "self.agent.past_release(1)",
        SECURE_MEMBER,
    ),
    Mutant(
        "rows are made before all have accepted",
        "SecureMember._make_row",
        "if part is None or self._changing or not part.agreement.complete or part.sender.halted:",
        "if part is None or self._changing or part.sender.halted:",
        SECURE_MEMBER,
    ),
    Mutant(
        "a clock that is ahead passes over rounds",
        "SecureMember._make_row",
        "and not self._in_time",
        "and False",
        SECURE_MEMBER,
    ),
    Mutant(
        "an opener keeps few rows whatever the clocks",
        "SecureMember._rows_kept",
        "min(max(within, least), most)",
        "least",
        SECURE_MEMBER,
    ),
    Mutant(
        "openers are waited for where a row is of a round to come",
        "SecureMember._progress",
        "if not due <= rows.get(name, 0) <= future",
        "if rows.get(name, 0) < due",
        SECURE_MEMBER,
    ),
    Mutant(
        "a release is sent after a conflict",
        "Member._look_at_ours",
        "self._judge(message)\n            self._there = message",
        "self._judge(message)",
        MEMBER,
    ),
    Mutant(
        "a row has no count",
        "SecureMember._integers",
        "np.int64(release.count)",
        "np.int64(0)",
        SECURE_MEMBER,
    ),
    Mutant(
        "a total is in steps of the grid",
        "SecureMember._release_of",
        "steps * self._share.step",
        "steps",
        SECURE_MEMBER,
    ),
    Mutant(
        "every total is plausible",
        "SecureMember._plausible",
        "limits.check(TOTAL, opened)",
        "pass",
        SECURE_MEMBER,
    ),
    Mutant(
        "a halted member sends its row again",
        "SecureMember._publish",
        "(kind == ROW and self.halted is not None)",
        "False",
        SECURE_MEMBER,
    ),
    Mutant(
        "a total is learnt once and not again",
        "SecureMember._absorb",
        "total.number <= self._absorbed",
        "self._absorbed",
        SECURE_MEMBER,
    ),
    Mutant(
        "rounds are spaced evenly",
        "Rounds.times",
        "offset *= self.ratio",
        "offset += self.first",
        ROUNDS,
    ),
    Mutant(
        "a round comes a second late",
        "Rounds.number",
        "bisect_right(self.times, now)",
        "bisect_right(self.times, now - 1)",
        ROUNDS,
    ),
    Mutant(
        "a total may have no more noise than a row",
        "Limits._noise_of",
        "math.sqrt(self.rows) * ",
        "",
        ROUNDS,
    ),
    Mutant(
        "a total may have no more records than a row",
        "Terms.limits_of_totals",
        "members * int(self.share.records or 0)",
        "int(self.share.records or 0)",
        ROUNDS,
    ),
    Mutant(
        "a secure roster may have fewer members than its terms",
        "_require_secure",
        "members == share.members,",
        "True,",
        ROUNDS,
    ),
    Mutant(
        "a later secure roster may have fewer members than the claim needs",
        "_require_secure",
        "members >= h + c",
        "True",
        ROUNDS,
    ),
    Mutant(
        "a member's key may change with secure aggregation",
        "Roster.amended",
        "require(not changed,",
        "require(True,",
        ROUNDS,
    ),
    Mutant(
        "all leaves of a closed epoch are carried",
        "SecureMember._begin",
        "if each.first > last]",
        "]",
        SECURE_EPOCHS,
    ),
    Mutant(
        "no leaf of a closed epoch is carried",
        "SecureMember._begin",
        "leaves=leaves, ",
        "",
        SECURE_EPOCHS,
    ),
    Mutant(
        "the last total of an epoch is not taken before it ends",
        "SecureMember._begin",
        "mine.number > self._absorbed",
        "False",
        SECURE_EPOCHS,
    ),
    Mutant(
        "an opener that is behind completes nothing",
        "SecureMember._complete",
        "part.complete(settlement)",
        "pass",
        SECURE_EPOCHS,
    ),
    Mutant(
        "a newcomer does not learn from earlier epochs",
        "SecureMember._begin",
        "for proved in each.earlier]",
        "for proved in ()]",
        SECURE_EPOCHS,
    ),
    Mutant(
        "openers do not learn that an epoch has begun",
        "SecureMember._follow_begun",
        "if following.agreement.complete:",
        "if False:",
        SECURE_EPOCHS,
    ),
    Mutant(
        "an opener that was removed is waited for",
        "Ended.waits_for",
        "name in known and ",
        "",
        SECURE_EPOCHS,
    ),
    Mutant(
        "an epoch that an earlier roster has verified is not verified again",
        "SecureMember._take_roster",
        "self._epochs: dict[bytes, Epoch] = {}",
        'self._epochs: dict[bytes, Epoch] = getattr(self, "_epochs", {})',
        ("tests/federation/exchange/test_closings.py", "-k", "verified_once"),
    ),
    Mutant(
        "every definition of an epoch is kept",
        "SecureMember._epoch_in",
        "if len(self._epochs) > _EPOCHS:",
        "if False:",
        ("tests/federation/exchange/test_closings.py", "-k", "verified_once"),
    ),
    Mutant(
        "NaN is not clipped",
        "_finite",
        "np.isfinite(x).all()",
        "True",
        ("tests/privacy/test_bounds.py", "-m", "not long"),
    ),
    Mutant(
        "infinities are not clipped",
        "_finite",
        "np.isfinite(x).all()",
        "not np.isnan(x).any()",
        ("tests/privacy/test_bounds.py", "-m", "not long"),
    ),
    Mutant(
        "secrets of closed epochs are kept",
        "SecureMember._forget_secrets",
        "range(1, epoch.number)",
        "()",
        SECURE_EPOCHS,
    ),
    Mutant(
        "the noise of closed epochs is forgotten",
        "sds",
        "closed) for each",
        "0.0) for each",
        SECURE_EPOCHS,
    ),
    Mutant(
        "an agent's total lacks closed epochs",
        "Exchange._opened",
        "self.base.release.packed + packed",
        "packed",
        SECURE_EPOCHS,
    ),
    Mutant(
        "open records are not carried into the next epoch",
        "carry_over",
        "there.leaf + here.leaf, there.leaf_count + here.leaf_count",
        "there.leaf, there.leaf_count",
        SECURE_EPOCHS,
    ),
    Mutant(
        "a secure roster may have fewer openers",
        "_require_secure",
        "len(openers) == c + 1",
        "True",
        ROUNDS,
    ),
    Mutant(
        "members confirmed with another key count",
        "MemberFolder.confirmed",
        "if self.roster.members.get(name) == key]",
        "if name in self.roster.members]",
        SECURE_SETUP,
    ),
    Mutant(
        "anybody may sign what an operator has confirmed",
        "MemberFolder.confirmed",
        'if not signed_by(self.roster.members.get(self.name, ""), text, signature):',
        "if False:",
        SECURE_SETUP,
    ),
    Mutant(
        "members without openers' duties may write openers' keys",
        "own_keys",
        "AGGREGATION if opener else (ACCEPTED, ROW, CLOSING)",
        "AGGREGATION",
        SECURE_SETUP,
    ),
    Mutant(
        "a replayed release takes the place of a later one",
        "accept",
        "if release.number < number:",
        "if False:",
        MEMBER,
    ),
    Mutant(
        "who has left comes back older",
        "accept",
        "release.number < latest,",
        "False,",
        SEEN,
    ),
    Mutant(
        "who has left comes back altered",
        "accept",
        "release.number == latest and release.digest != digest,",
        "False,",
        SEEN,
    ),
    Mutant(
        "an older roster at a restart",
        "Seen.admit",
        "if roster.version < version:",
        "if False:",
        SEEN,
    ),
    Mutant(
        "another roster of the same version at a restart",
        "Seen.admit",
        "if roster.version == version and roster.digest != digest:",
        "if False:",
        SEEN,
    ),
    Mutant(
        "what is held was not seen",
        "Member._join",
        "            self._seen.keep(self.agent.held)\n",
        "",
        SEEN,
    ),
    Mutant(
        "a step that failed was seen all the same",
        "Seen.__init__",
        "            self._tables.log.restorers.append(self._read)  # after a step that failed\n",
        "",
        SEEN,
    ),
    Mutant(
        "an old copy goes on sending",
        "contradiction",
        "    if same:\n        return None\n",
        "    if True:\n        return None\n",
        MEMBER,
    ),
    Mutant(
        "what the transport lost is not sent again",
        "Member._look_at_ours",
        "        self._there = None\n        with",
        "        with",
        MEMBER,
    ),
    Mutant(
        "what it waited for counts as work",
        "repeat.live",
        "began = time.thread_time()\n            work()\n            took = time.thread_time() - began",
        "began = time.monotonic()\n            work()\n            took = time.monotonic() - began",
        ("tests/federation/exchange/test_background.py",),
    ),
    Mutant(
        "who must send nothing takes nothing either",
        "Member.exchange",
        "            finally:\n                self._take(messages, strict=False)\n",
        "            finally:\n                pass\n            self._take(messages, strict=False)\n",
        MEMBER,
    ),
    Mutant(
        "who has left stays in the sums",
        "Exchange.drop",
        "self.latest.items() if name not in names}",
        "self.latest.items()}",
        ROSTER,
    ),
    Mutant(
        "a trace of who has left stays in the weights",
        "Exchange.drop",
        "self._share({name: release for name, release in rest.items() if name == self.name}, arrived)",
        "pass",
        ROSTER,
    ),
    Mutant(
        "a release does not age with its receiver",
        "Exchange._aged",
        "aging.weight(arrived)",
        "1.0",
        AGEING,
    ),
    Mutant(
        "a release is as old as the first of its sender",
        "Exchange._arriving",
        "self.arrived | dict.fromkeys(names, aging.at)",
        "dict.fromkeys(names, aging.at) | self.arrived",
        AGEING,
    ),
    Mutant("sums that are sent do not decay", "Model.age", "self.sums.decay(factor)", "pass", AGEING),
    Mutant(
        "σ is learnt as if all counted",
        "AgentMemory.decay",
        "numbers[OBSERVED] * factor",
        "numbers[OBSERVED]",
        AGEING,
    ),
    Mutant(
        "a record counts a quarter after a half-life",
        "Aging.advance",
        "exp2(-passed",
        "exp2(-2 * passed",
        AGEING,
    ),
    Mutant(
        "a replayed step has the time of the replay",
        "AgentStore._restore",
        "self._replayed = step.time",
        "pass",
        AGEING,
    ),
    Mutant(
        "a refused message ages what is replayed", "Agent._age", 'self._append("age", "")', "pass", AGEING
    ),
    Mutant(
        "the volume before a change costs nothing",
        "log_evidence",
        "/ variance - both.volume)",
        "/ variance - late.volume)",
        CHANGED,
    ),
    Mutant(
        "moments of a change have no weights",
        "ChangeTest._look",
        "logs -= np.log(",
        "logs -= 0 * np.log(",
        CHANGED,
    ),
    Mutant(
        "the worst θ is taken for each part",
        "_Quadratic.least",
        "self.constant - (self.linear * best).sum(axis=-1)",
        "self.constant",
        CHANGED,
    ),
    Mutant(
        "a gap in what a stream has told is passed over",
        "Mirror._close_up",
        "while self.whole + 1 in self._ahead:",
        "while self._ahead and self.whole < max(self._ahead):",
        MIRROR,
    ),
    Mutant(
        "a stream that was put back is taken to have grown",
        "Mirror.same_stream",
        "same = made == self._stream and last >= known",
        "same = made == self._stream",
        MIRROR,
    ),
    Mutant(
        "a revision that is told twice is taken for an old one",
        "Mirror.receive",
        "if not grown:",
        "if False:",
        MIRROR,
    ),
    Mutant(
        "after a connection was lost, revisions go on counting",
        "NatsTransport._connect.again",
        '            self._client.options["reconnect_time_wait"] = _PAUSE\n            self._look_again()\n',
        '            self._client.options["reconnect_time_wait"] = _PAUSE\n            self._stale.set()\n',
        RESTORED,
    ),
    Mutant(
        "a sign of life that was withheld counts as of now",
        "SignsOfLife.take",
        "self.saw(name, min(float(signed), now))",
        "self.saw(name, now)",
        ALIVE,
    ),
    Mutant(
        "a clock that is ahead makes its owner live longer",
        "SignsOfLife.take",
        "self.saw(name, min(float(signed), now))",
        "self.saw(name, float(signed))",
        ALIVE,
    ),
    Mutant(
        "an old sign of life is shown again",
        "SignsOfLife.saw",
        "max(moment, self.last.get(name, 0.0))",
        "moment",
        ALIVE,
    ),
    Mutant(
        "peers are silent while we can't be heard ourselves",
        "SignsOfLife.silent",
        "return [] if self.ours is None else [name for name in names if self.age(name, self.ours) > SILENT]",
        "return list(names)",
        ALIVE,
    ),
    Mutant(
        "a sign of life is written at every exchange",
        "SignsOfLife.renew",
        "0.0 <= now - self.ours < RENEWED",
        "False",
        ALIVE,
    ),
    Mutant(
        "a sign of life of any clock",
        "SignsOfLife.take",
        "if signed > now + AHEAD:",
        "if False:",
        ALIVE,
    ),
    Mutant(
        "any certificate is renewed",
        "Identity.renew",
        "certificate.verify_directly_issued_by(self.certificate)",
        "pass",
        ("tests/federation/setup/test_renew.py",),
    ),
    Mutant(
        "a certificate is renewed for whoever sends it",
        "_certificates",
        "require_email(read_certificate(path), identity_of(path.parent.name, roster.federation))",
        "pass",
        ("tests/federation/setup/test_renew.py",),
    ),
    Mutant(
        "a hub that hangs is not noticed",
        "_UNANSWERED",
        "_UNANSWERED = 2",
        "_UNANSWERED = 20",
        HANGING,
    ),
    Mutant(
        "asyncio complains of the end of a connection",
        "_Protocol.eof_received",
        "return False",
        "return True",
        HANGING,
    ),
    Mutant(
        "a bucket with another history",
        "flaws",
        '"history": (config.max_msgs_per_subject, 1),',
        '"history": (1, 1),',
        ("tests/federation/transport/test_nats_bucket.py", "-k", "history"),
    ),
    Mutant(
        "two writers overwrite each other",
        "SqliteTransport.publish",
        "if held != replacing:",
        "if False:",
        SQLITE,
    ),
    Mutant(
        "a SuperNode chooses the name that it writes under",
        "take",
        "    board[name] = message\n",
        '    board[answer.get("name", name)] = message\n',
        FLOWER,
    ),
    Mutant(
        "an agent is asked before it has seen what others hold of it",
        "exchange",
        "    for told in portions(board):\n",
        '    ask(host, port, key, "GET", "/v1/release/latest")\n    for told in portions(board):\n',
        FLOWER,
    ),
    Mutant(
        "an exception's text gets to the SuperLink",
        "carry",
        """    except Exception:
        answer = {"trouble": "failed"}""",
        """    except Exception as error:
        answer = {"trouble": str(error)}""",
        FLOWER,
    ),
    # What is said of fairness.
    Mutant(
        "an interval for a fixed number of rounds",
        "share_interval.both",
        "(shown, rounds, -np.log(error))",
        "(shown, rounds, -np.log(error) - np.log(TILTS.size))",
        SEQUENCES,
    ),
    Mutant(
        "every action has the whole error",
        "spending",
        "return 1.0 / ((batch + 1.0) * (batch + 2.0) * size)",
        "return 1.0 + 0.0 * size",
        SEQUENCES,
    ),
    Mutant(
        "the region forgets that its centre is not the prior's",
        "region",
        "math.sqrt(spread + bias)",
        "math.sqrt(spread)",
        REGION,
    ),
    Mutant(
        "a direction that nobody looked into is known exactly",
        "region",
        "1.0 / np.sqrt(g), _UNSEEN)",
        "1.0 / np.sqrt(g), 0.0)",
        REGION,
    ),
    Mutant(
        "the linear bound without what it leaves out",
        "Tally.interval",
        "np.sqrt(np.square(self.gradient).sum(axis=1)) + self.bend",
        "np.sqrt(np.square(self.gradient).sum(axis=1))",
        ENTITLED,
    ),
    Mutant(
        "least merit against least merit",
        "_set_bounds.low",
        "low = own_small / np.maximum(own_small + others_large, tiny)",
        "low = own_small / np.maximum(own_small + others_small, tiny)",
        ENTITLED,
    ),
    Mutant(
        "the others' merit is a difference that cancels",
        "_of_others.others",
        "others: Array = before + after",
        "others: Array = np.maximum(values.sum(axis=1, keepdims=True) - values, 0.0)",
        ENTITLED,
    ),
    Mutant(
        "the table takes partners' records for the agent's own",
        "Model.own_sums",
        "            return self.sums.total",
        "            return self.learner.statistics.copy()",
        EXPOSED,
    ),
    Mutant(
        "of a private agent's own records those since its last release count alone",
        "ExposureCache._sums",
        "kept = None if agent.private else agent.own_sums()",
        "kept = agent._learner.fresh if agent.private else agent.own_sums()",
        EXPOSED,
    ),
    Mutant(
        "each look at the log counts all of it again",
        "_Logged.sums",
        "records(journal, dimension, first=first, end=end)",
        "records(journal, dimension, first=0, end=end)",
        EXPOSED,
    ),
    Mutant(
        "what a baseline took is tested instead of what was drawn",
        "DrawsSoFar.take",
        "chances = policy[rows, block.drawn]",
        "chances = policy[rows, block.taken]",
        DRAWN,
    ),
    Mutant(
        "a sharpened policy that does not sum to 1",
        "DrawsSoFar.take",
        "(_log_mean((power - 1.0) * logs, parts) - np.log(tilted)).sum()",
        "_log_mean((power - 1.0) * logs, parts).sum()",
        DRAWN,
    ),
    Mutant(
        "a reward from a lower slot counts as one from the first",
        "records",
        "yield block.weights[known][:, None] * contexts,",
        "yield contexts,",
        SLOTS_SHOWN,
    ),
    Mutant(
        "nobody is ever capped",
        "Tally.entitle",
        "free = bounds.merits.uncapped(block.weights)",
        "free = np.ones(len(block.weights), dtype=np.bool_)",
        SLOTS_SHOWN,
    ),
    Mutant(
        "least merit against least merit, for slots",
        "entitled_slots",
        "(low, merits.least, merits.most)",
        "(low, merits.least, merits.least)",
        SLOTS_SHOWN,
    ),
    Mutant(
        "every slot is tested as if it were the first",
        "DrawsSoFar.take",
        "got = block.weights / most[rows, block.drawn]",
        "got = np.ones_like(block.weights)",
        SLOTS_SHOWN,
    ),
    Mutant(
        "a group's weight is bounded by that of one action",
        "Sets.most",
        "place = np.minimum(sizes, weights.shape[1]) - 1",
        "place = 0 * sizes",
        SLOTS_SHOWN,
    ),
    Mutant(
        "overlapping intervals are called within",
        "_is_within",
        "return (low >= least * due_high) & (least * high <= due_low)",
        "return (low <= due_high) & (high >= due_low)",
        TABLE,
    ),
    Mutant(
        "shares of all rounds, whoever was there",
        "Tally.count",
        "self.rounds += np.bincount(once, minlength=size)",
        "self.rounds += len(codes)",
        TABLE,
    ),
    # The simulator's private runs.
    Mutant(
        "the noise of one agent for the sum of all",
        "_noise.once",
        "1.0 if each or share is not None else math.sqrt(scenario.agents)",
        "1.0",
        SETUP,
    ),
    Mutant(
        "with secure aggregation the noise of one agent for the sum of all",
        "_noise",
        "drawn += on_grid(other, share)",
        "pass",
        SETUP,
    ),
    Mutant(
        "with secure aggregation the simulator's noise is off the grid",
        "on_grid",
        "share.step * np.rint(row / share.step)",
        "row",
        SETUP,
    ),
    # Whole records that are shrunk.
    Mutant(
        "the sensitivity of shrunk records is that of a record alone",
        "Bounds._sensitivity",
        "min(norm2 + reward2, whole)",
        "min(norm2 + reward2, 0.5 * whole)",
        ("tests/privacy/test_bounds.py", "-k", "shrunk"),
    ),
    Mutant(
        "a record is shrunk without regard to the share of the noise",
        "Bounds.clip_many",
        "root = math.sqrt(self.gram_share)",
        "root = 1.0",
        ("tests/privacy/test_bounds.py", "-k", "shrunk"),
    ),
    Mutant(
        "a record that is short in x and in y is not shrunk",
        "Bounds.clip",
        "inside = inside and square + self.gram_share * reward**2 <= self.record_norm**2",
        "pass",
        ("tests/privacy/test_bounds.py", "-k", "shrunk"),
    ),
    Mutant(
        "the simulator shrinks only the context",
        "shrink",
        "privacy.reward_centre + scale * apart",
        "state.numbers[REWARD]",
        OBSERVING,
    ),
    # Shares of noise.
    Mutant(
        "each member's share of the noise is 1/h of the sd instead of the variance",
        "NoiseShare.noise",
        "1.0 / math.sqrt(self.honest)",
        "1.0 / self.honest",
        NOISE_SHARES,
    ),
    Mutant(
        "a member's noise is divided among all members, those that collude included",
        "NoiseShare.noise",
        "math.sqrt(self.honest)",
        "math.sqrt(self.members)",
        NOISE_SHARES,
    ),
    Mutant(
        "fewer members than are needed are accepted",
        "NoiseShare.__post_init__",
        "m >= h + c",
        "m >= h",
        NOISE_SHARES,
    ),
    Mutant(
        "more colluding members are claimed to learn as little as agreed",
        "NoiseShare.times_mu",
        "math.sqrt(self.honest / (self.members - colluding))",
        "1.0",
        NOISE_SHARES,
    ),
    Mutant(
        "the grid's step is twice too large",
        "step_exponent",
        "math.frexp(least_sd)[1] - 1 - GRID_BITS",
        "math.frexp(least_sd)[1] - GRID_BITS",
        NOISE_SHARES,
    ),
    Mutant(
        "the grid is made for the noise of all members instead of one",
        "Budget._on_grid",
        "exponent = step_exponent(own_sd * ",
        "exponent = step_exponent(made.base_sd * ",
        NOISE_SHARES,
    ),
    Mutant(
        "the range has no room for noise",
        "most_records",
        "/ share.members - TAIL * sd",
        "/ share.members",
        NOISE_SHARES,
    ),
    Mutant(
        "records beyond the agreed number enter",
        "StreamPrivatizer._enter",
        "here.total_count + here.leaf_count >= self._most_records",
        "here.leaf_count >= self._most_records",
        NOISE_SHARES,
    ),
    Mutant(
        "a row is moved back from the public point before rows are added",
        "StreamPrivatizer._make",
        "if self.centring is not None and self.mechanism.share is None:",
        "if self.centring is not None:",
        NOISE_SHARES,
    ),
    Mutant(
        "the digest does not cover the shares",
        "Gaussian._digest",
        "if self.share is not None:",
        "if False:",
        NOISE_SHARES,
    ),
    Mutant(
        "a total's noise is taken for that of one row",
        "sds",
        "math.sqrt(rows) * ",
        "",
        POOL,
    ),
    Mutant(
        "who decides from its own data counts its row twice",
        "Exchange._opened",
        "packed - row.packed, count - row.count, OTHERS",
        "packed, count, OTHERS",
        TOTALS,
    ),
    Mutant(
        "a strict agent adds its own row to the total",
        "Exchange._pool",
        "if not (self.secure and name == self.name)",
        "",
        TOTALS,
    ),
    Mutant(
        "a centred run's lower reward bound is that of the uncentred",
        "_privacy",
        "low if centring is None else centring.reward - centring.reward_radius,",
        "low,",
        SETUP,
    ),
    Mutant(
        "rewards are not clipped from below",
        "clip.reward",
        "smaller(larger(state.numbers[REWARD], privacy.reward_low), privacy.reward_high)",
        "smaller(state.numbers[REWARD], privacy.reward_high)",
        OBSERVING,
    ),
    Mutant(
        "contexts are clipped by their norm, not by their distance from the point",
        "clip",
        "offset = chosen[j] - centre[j]",
        "offset = chosen[j]",
        OBSERVING,
    ),
    Mutant(
        "own+released counts the others in full (simulator)",
        "weigh_others",
        "0.0, made + weight * (all_made - made), all_made)",
        "0.0, where_above(weight, 0.0, all_made, made), all_made)",
        HALVES,
    ),
    Mutant(
        "a lane that is diagonal turns with its neighbours",
        "jacobi",
        "where_above(off, enough * on, absolute(matrix[p, q]), 0.0)",
        "absolute(matrix[p, q])",
        ("tests/lanes/test_eigen.py",),
    ),
    Mutant(
        "eigenvalues are left with two digits",
        "NEARLY",
        "NEARLY = 1e-18",
        "NEARLY = 1e-4",
        ("tests/lanes/test_eigen.py",),
    ),
    Mutant(
        "a weight is no longer sought before all others are ruled out",
        "worth",
        "least * SURELY, less + noise",
        "least * SURELY, less + more",
        ("tests/core/test_pooling.py",),
    ),
    Mutant(
        "all lanes are floored where one needs it",
        "lift",
        "packed[entry] = where_above(definite, 0.0, packed[entry], s)",
        "packed[entry] = s",
        ("tests/core/test_pooling.py",),
    ),
    Mutant(
        "own+released counts the others in full (agent)",
        "Pool.beside_own",
        "own_count + weight * count",
        "own_count + count",
        POOL,
    ),
    Mutant(
        "a private agent decides from releases alone by default",
        "_ALL",
        'decide_from="own+released"',
        'decide_from="released"',
        ("tests/agent/test_options.py",),
    ),
    Mutant(
        "a budget is for the strict mode by default",
        "Budget.decide_from",
        'decide_from: DecideFrom = "own+released"',
        'decide_from: DecideFrom = "released"',
        ("tests/privacy/test_guarantee.py",),
    ),
    Mutant(
        "what joining gains is told without a warning",
        "Gain.warning",
        "if self.ratio <= 1.0 - SMALL",
        "if self.ratio <= 1.0",
        ("tests/federation/setup/test_joining_gain.py",),
    ),
    Mutant(
        "what joining gains is read at the δ of the table, whatever δ is",
        "expected_gain",
        "epsilon if same else epsilon_for(DELTA, times * mu_for(epsilon, delta))",
        "epsilon",
        ("tests/federation/setup/test_joining_gain.py",),
    ),
    Mutant(
        "the reward bound of every scenario is 1",
        "Scenario.bounds",
        "reward=max(abs(end) for end in self.reward_range)",
        "reward=1.0",
        WORLD,
    ),
    Mutant(
        "half of the rewards may lie outside the range",
        "BEYOND",
        "BEYOND = 0.01",
        "BEYOND = 0.5",
        WORLD,
    ),
    # Its worlds.
    Mutant(
        "presence is the chance that an arm is away",
        "Scenario.arms_per_round",
        "rng.binomial(self.arms - 1, self.presence,",
        "rng.binomial(self.arms - 1, 1.0 - self.presence,",
        WORLD,
    ),
    Mutant(
        "delays are cut off at their mean",
        "LONGEST_DELAY",
        "LONGEST_DELAY = 12 ",
        "LONGEST_DELAY = 1 ",
        WORLD,
    ),
    Mutant(
        "bounded noise with its half-width for its sd",
        "act",
        "world.noise_sd * math.sqrt(3.0) *",
        "world.noise_sd *",
        KERNEL,
    ),
    Mutant(
        "another heteroscedastic factor",
        "act",
        "(0.5 + absolute(mean))",
        "(1.0 + absolute(mean))",
        KERNEL,
    ),
    Mutant(
        "unit-norm contexts are not normalised",
        "draw_contexts",
        "        normalise_rows(contexts)\n",
        "        pass\n",
        KERNEL,
    ),
    # Agents.
    Mutant(
        "fresh records don't count",
        "Exchange._pool",
        "shared, count = shared + learner.fresh, count + model.local_count",
        "pass",
        ("tests/agent/test_agent.py", "-k", "fresh_records"),
    ),
    Mutant(
        "another agent of the same name is believed",
        "_check_own",
        "release != latest,",
        "False,",
        ("tests/agent/test_exchange.py",),
    ),
    Mutant(
        "clipping is never spoken of",
        "TOLERATED",
        "TOLERATED = 0.01",
        "TOLERATED = 1.0",
        ("tests/agent/test_clipping.py",),
    ),
    Mutant(
        "asking for a policy works in the agent's own memory",
        "Agent.policy",
        "self._weights(slots), self._model.learner.memory.copy()",
        "self._weights(slots), self._model.learner.memory",
        ("tests/agent/test_learn.py", "-k", "policy"),
    ),
    Mutant(
        "a smaller run replaces a larger report",
        "_kept.again",
        "again = set() if smaller else",
        "again =",
        ("tests/experiments/test_smoke.py", "-k", "silently"),
    ),
    # What leaves the log, and what is undone.
    Mutant(
        "a row without content is sound whatever the log says",
        "Journal._is_amended",
        "            return self.amendments(self.log.database.execute).covers(row[0], by_age)\n",
        "            return True\n",
        DROPPED,
    ),
    Mutant(
        "a row that was changed counts as one without content",
        "Journal._is_amended",
        "        if not is_blank(table, row):\n",
        "        if False:\n",
        DROPPED,
    ),
    Mutant(
        "a decision is dropped whose reward a replay still needs",
        "AgentStore._drop_some",
        "erasure.Old(said.whole_from, said.before, snapshots[0], said.until)",
        "erasure.Old(said.whole_from, said.before, self.log.end, said.until)",
        DROPPED,
    ),
    Mutant(
        "contexts are dropped behind one snapshot",
        "AgentStore._drop_some",
        "            if len(snapshots) < 2:\n",
        "            if False:\n",
        DROPPED,
    ),
    Mutant(
        "snapshots at unequal distances are kept",
        "Journal.write_snapshot",
        "key=lambda at: there[at + 1] - there[at - 1]",
        "key=lambda at: at",
        DROPPED,
    ),
    Mutant(
        "a snapshot that holds a deleted record stays",
        "Agent._rebuild",
        "WHERE agent = ? AND seq > ?",
        "WHERE agent = ? AND seq > ? + 1000",
        DELETED,
    ),
    Mutant(
        "a private agent's message does not count a deleted record",
        "AgentStore._replay",
        "                parts.model.local_count += 1  #",
        "                parts.model.local_count += 0  #",
        DELETED,
    ),
    Mutant(
        "a record in the open leaf stays in it",
        "StreamPrivatizer.blank",
        "                leaf += sign * part\n",
        "                leaf += 0.0 * part\n",
        DELETED,
    ),
    Mutant(
        "the records of others are deleted too",
        "Agent.delete_person",
        "if each.person not in (None, whose)}",
        "if False}",
        DELETED,
    ),
    Mutant(
        "a number of a release has two contents",
        "Agent._rebuild",
        "return None if sums is None or not sums.spent else self.release().number",
        "return None if sums is None or not sums.spent else self.released",
        DELETED,
    ),
    Mutant(
        "what was rolled back is learnt at the next opening",
        "AgentStore._replay",
        "            if step.reward is not None and not undone:\n",
        "            if step.reward is not None:\n",
        UNDONE,
    ),
    Mutant(
        "a rollback that was undone still counts",
        "amendments",
        "        if seq < end:  # else",
        "        if True:  # else",
        UNDONE,
    ),
    Mutant(
        "a rollback leaves numbers of releases to be used again",
        "AgentStore._replay",
        "            parts.model.sums.spent = int(step.body)",
        "            parts.model.sums.spent += 0",
        UNDONE,
    ),
    Mutant(
        "rewards that were undone are in tables",
        "records",
        " for row in rows if not said.is_undone(row[0]))",
        " for row in rows)",
        UNDONE,
    ),
    Mutant(
        "published sums change with the record that was deleted",
        "ExposureCache._update_published",
        "self._published is None or self._published.has_more(agent.dimension)",
        "True",
        HISTORY,
    ),
    # Seals.
    Mutant(
        "a row that was changed is read all the same",
        "Journal._check",
        "        if not sound and not self._is_amended(table, row):",
        "        if False:",
        SEALS,
    ),
    Mutant(
        "a missing row is not noticed",
        "Journal.checked",
        "if found.seal[:SIZE] != previous:",
        "if False:",
        SEALS,
    ),
    Mutant(
        "rows missing before a snapshot are not noticed",
        "Journal.snapshot",
        "if head != self.head(before=seq):",
        "if False:",
        SEALS,
    ),
    Mutant(
        "after a failure the chain goes on from a row that is not on disk",
        "Log._end",
        "                self.heads.clear()\n",
        "",
        SEALS,
    ),
    Mutant(
        "a reward that replaces another is read unchecked",
        "Journal._whole",
        "                self._check(newest, seal_outcome)\n",
        "",
        SEALS,
    ),
    Mutant(
        "the agents of a log share a chain",
        "Journal.append_decision",
        "log.heads.get(agent) or self.head()",
        "next(iter(log.heads.values()), None) or self.head()",
        SEVERAL,
    ),
    Mutant(
        "a reward is chained to another agent's row",
        "Journal._append",
        "self.log.heads.get(self.agent) or self.head()",
        "next(iter(self.log.heads.values()), None) or self.head()",
        SEVERAL,
    ),
    Mutant(
        "a damaged row is migrated",
        "_Sealing._check",
        "        if not sound:",
        "        if False:",
        MIGRATED,
    ),
    Mutant(
        "a replaced reward is migrated without its history",
        "_Sealing._outcome",
        "            reward = earlier.pop(0)\n",
        "            earlier.pop(0)\n",
        MIGRATED,
    ),
    # What is kept.
    Mutant(
        "a snapshot is said to hold numbers of steps that failed",
        "Journal.write_snapshot",
        "seq = log.end",
        "seq = log.numbers.next",
        DURABLE,
    ),
    Mutant(
        "after a failure the agent keeps what is not on disk",
        "Log._restore",
        "            for restore in self.restorers:\n                restore()",
        "            pass",
        DURABLE,
    ),
    Mutant(
        "a number of a step that failed is given again",
        "Log._read_end",
        "self.numbers.next, self.time = max(self.numbers.next, following)",
        "self.numbers.next, self.time = following",
        DURABLE,
    ),
    Mutant(
        "an opening goes on with the ids of the one before",
        "AgentStore.follow",
        "self.journal.begin_incarnation()",
        "(self.journal.origins.given or [(0, self.journal.begin_incarnation())])[-1][1]",
        DURABLE,
    ),
    Mutant(
        "a loaded agent has forgotten what an interrupted release holds",
        "Parts.restore",
        '_numbers(mark.sums, size, "marks") for mark in state.marks}',
        '_numbers(mark.sums, size, "marks") for mark in ()}',
        ("tests/agent/test_agent_private.py", "-k", "interrupted"),
    ),
    Mutant(
        "an older copy is taken for the latest",
        "check_mark",
        "if not known or end > log.end:",
        "if False:",
        DURABLE,
    ),
    # Results and verdicts.
    Mutant(
        "a verdict by the value, not by the interval",
        "below",
        'return "holds" if found.high < limit else "does not hold" if found.low > limit else "undecided"',
        'return "holds" if found.value < limit else "does not hold"',
        SCORES,
    ),
    Mutant(
        "a claim's verdict by the value",
        "claim_below",
        "below(found, limit)",
        "holds(found.value < limit)",
        SCORES,
    ),
    Mutant(
        "recorded rewards of the day itself count as earlier ones",
        "earlier",
        "group * last + day + 1, values",
        "group * last + day, values",
        FLIGHTS,
    ),
    Mutant(
        "a window of earlier days begins a day too soon",
        "earlier",
        "np.maximum(day - days, 0)",
        "np.maximum(day - days - 1, 0)",
        FLIGHTS,
    ),
    Mutant(
        "contexts of flights are scaled by the whole year",
        "contexts",
        "mean, sd = raw[january].mean(axis=0), raw[january].std(axis=0)",
        "mean, sd = raw.mean(axis=0), raw.std(axis=0)",
        FLIGHTS,
    ),
    Mutant(
        "agents learn a decision of the day before they make the next",
        "shares",
        """            made = agent.decide_many([offers.contexts[each] for each in rows])
""",
        """            made = []
            for each in rows:
                made += agent.decide_many([offers.contexts[each]])
                agent.learn(offers.contexts[each], offers.rewards[each].tolist())
""",
        OFFERS,
    ),
    Mutant(
        "one hindsight model for all agents",
        "hindsight",
        "rows = owner == agent",
        "rows = owner >= 0",
        OFFERS,
    ),
    Mutant(
        "an agent is asked as often as there are decisions",
        "asked",
        "kept = order[place < each]",
        "kept = order[place >= 0]",
        OFFERS,
    ),
    Mutant(
        "reward regret is against the mean of the arms",
        "_measured",
        "offers.largest(offers.rewards)",
        "offers.total(offers.rewards) / np.diff(offers.first)",
        OFFERS,
    ),
    Mutant(
        "what a member gains is taken over the mean of all",
        "by_member",
        "alone.by_agent[: len(own.seeds), :, -1]",
        "alone.by_agent[: len(own.seeds), :, -1].mean(axis=1, keepdims=True)",
        FLIGHTS,
    ),
    Mutant(
        "the airport that loses least is judged",
        "_joining_claims",
        "max(each, key=lambda found: found.high)",
        "min(each, key=lambda found: found.high)",
        FLIGHTS,
    ),
    Mutant(
        "contexts of classes are scaled by all grades",
        "contexts",
        "np.linalg.norm(whole[first], axis=1)",
        "np.linalg.norm(whole, axis=1)",
        STAR,
    ),
    Mutant(
        "a class is offered for what others in it did",
        "choices",
        'groupby([*ALIKE_IN, "class_"], as_index=False)',
        'groupby([*ALIKE_IN[:3], "class_"], as_index=False)',
        STAR,
    ),
    Mutant(
        "changed values of a results file are believed",
        "read_file",
        'same = meta["values"] == _digest_of_values(outcome)',
        "same = True",
        RESULTS,
    ),
    Mutant(
        "changed metadata of a results file are believed",
        "read_metadata",
        "if schema == SCHEMA and digest != _digest(meta):",
        "if False:",
        RESULTS,
    ),
    # Exposure by expected merit.
    Mutant(
        "what is not known adds nothing to merit",
        "put_log_merit",
        "fma(0.5 * steepness * variance, width, mean)",
        "fma(0.0 * steepness * variance, width, mean)",
        ("tests/core/test_expected_merit.py", "-k", "closed_form"),
    ),
    Mutant(
        "quadrature looks where the posterior is, and not where merit is",
        "_reach",
        "math.sqrt(2.0 * (most - least + NEGLIGIBLE))",
        "math.sqrt(2.0 * NEGLIGIBLE)",
        (QUADRATURE, "-k", "users_own"),
    ),
    Mutant(
        "every panel of a quadrature fits",
        "_outwards",
        "error <= TOLERANCE * (total + value)",
        "error >= 0.0",
        (QUADRATURE, "-k", "kinks and 1"),
    ),
    Mutant(
        "a peak that the search missed is integrated without its scale",
        "_outwards",
        "if restart and largest > FAR_ABOVE:",
        "if restart and largest > FAR_ABOVE * math.inf:",
        (QUADRATURE, "-k", "search_misses"),
    ),
    Mutant(
        "a logistic merit loses its lower tail",
        "_sigmoid",
        "(1.0 if x > 0.0 else small) / (1.0 + small)",
        "0.5 * (1.0 + math.tanh(0.5 * x))",
        ("tests/core/test_merit_kernels.py", "-k", "lower_tail"),
    ),
    Mutant(
        "what the prior does not explain is all taken for noise",
        "learnt_sizes",
        "larger(squares - explained, 0.0)",
        "squares",
        ("tests/core/test_marginal_likelihood.py", "-k", "likeliest or far_off"),
    ),
    Mutant(
        "the prior's size stays as it was assumed",
        "learnt_sizes",
        "        found = where_above(likely, best, ridge, found)\n",
        "",
        ("tests/core/test_marginal_likelihood.py", "-k", "likeliest or far_off"),
    ),
    Mutant(
        "the prior's mean is forgotten",
        "less_mean",
        "s = fma(-packed[place(dimension, i, j)], mean[j], s)",
        "pass",
        ("tests/core/test_marginal_likelihood.py", "-k", "likeliest"),
    ),
    Mutant(
        "who decides from releases alone learns the noise from rewards",
        "_minds",
        "learning=decide_from != RELEASED",
        "learning=decide_from != -1",
        ("tests/simulation/test_believing.py", "-k", "same_noise"),
    ),
    Mutant(
        "the Gram's noise does not multiply θ",
        "doubt",
        "noise_sd * noise_sd * (1.0 + size) / variance",
        "noise_sd * noise_sd / variance",
        ("tests/core/test_noise_filter.py", "-k", "eigenbasis or doubt"),
    ),
    Mutant(
        "sums are lifted where nobody synchronises",
        "lift_totals",
        "            if sharing.counts[first + l] >= 0.0:",
        "            if True:",
        ("tests/simulation/test_synchronize.py", "-k", "lifted"),
    ),
    Mutant(
        "own exact statistics are forgotten beside the others'",
        "add_own",
        "shared[k] = shared[k] + own[k]",
        "shared[k] = shared[k] + 0.0",
        ("tests/simulation/test_believing.py", "-k", "same_noise"),
    ),
    Mutant(
        "λ never follows the noise",
        "learn_sizes",
        "    numbers[RIDGE] = where_above(due, 0.0, ridge, numbers[RIDGE])\n",
        "",
        ("tests/simulation/test_believing.py", "-k", "without_privacy"),
    ),
    # Partners who differ.
    Mutant(
        "when all partners contradict beyond doubt, their weights are not numbers",
        "believed_power",
        "total == 0.0",
        "total < 0.0",
        ("tests/agent/test_partners_table.py", "-k", "nobody"),
    ),
    Mutant(
        "own rewards don't tell whether a partner is right",
        "believed_power",
        "evidence.prior_weights[k] * math.exp(evidence.weights[k] - best)",
        "evidence.prior_weights[k]",
        ("tests/core/test_partners.py", "-k", "density or opposite"),
    ),
    Mutant(
        "what a partner says counts as own rewards that it explains",
        "log_evidence",
        "0.5 * (both - peer) / variance",
        "0.5 * both / variance",
        ("tests/core/test_partners.py", "-k", "density or opposite"),
    ),
    Mutant(
        "all are fully trusted before the first reward",
        "PRIOR_WEIGHTS",
        "PRIOR_WEIGHTS[0] = 0.5",
        "PRIOR_WEIGHTS[0], PRIOR_WEIGHTS[-1] = 0.0, 0.5 + 0.5 / (LEVELS - 1)",
        ("tests/core/test_partners.py", "-k", "beforehand"),
    ),
    Mutant(
        "a partner's noise is taken for what it says",
        "believed_power",
        "    if noise_sd > 0.0:\n",
        "    if False:\n",
        ("tests/core/test_partners.py", "-k", "filtered"),
    ),
    Mutant(
        "all of the simulator's partners count alike in the sum",
        "judge_lane",
        "power = work.powers[j] / largest",
        "power = 1.0 if work.powers[j] > 0.0 else 0.0",
        ("tests/simulation/test_synchronize.py", "-k", "differ"),
    ),
    Mutant(
        "only the partner whose release is new is judged, and it is not",
        "Exchange._share",
        "if name in latest and latest[name].number == before[name].number",
        "if name in latest",
        ("tests/agent/test_partners_table.py", "-k", "new"),
    ),
    Mutant(
        "a reward of any size is taken before there are others",
        "FIRST",
        "FIRST = 1000.0",
        "FIRST = 1e100",
        ("tests/agent/test_reward_limits.py",),
    ),
    # One private run after another.
    Mutant(
        "records are in the open leaves of both runs",
        "carry_over",
        "old.ledger.add(None, replace(here, leaf=np.zeros_like(here.leaf), leaf_count=0))",
        "pass",
        ("tests/privacy/privatizers/test_consecutive.py",),
    ),
    Mutant(
        "a new run sends exact sums",
        "check_next_run.fits",
        "fits = not exact and after.decide_from",
        "fits = after.decide_from",
        NEW_RUN,
    ),
    Mutant(
        "a new run has simulated noise",
        "check_next_run.kept",
        "kept = after.is_private or not before.is_private",
        "kept = True",
        NEW_RUN,
    ),
    Mutant(
        "a release is taken to hold all that was observed",
        "Exchange._held",
        "return self.model.local_count - self.privatizer.waiting",
        "return self.model.local_count",
        NEW_RUN,
    ),
    # The certificate of the optimistic problem.
    Mutant(
        "what is beyond a float is taken for the largest that is not",
        "_chords.half",
        "half = where_above(power, STEEPEST, math.inf, exp(smaller(power, STEEPEST)))",
        "half = exp(smaller(power, STEEPEST))",
        CERTIFICATE,
    ),
    Mutant(
        "χ halved",
        "_chords",
        "return 0.25 * (1.0 + half) * (1.0 + half),",
        "return 0.125 * (1.0 + half) * (1.0 + half),",
        CERTIFICATE,
    ),
    Mutant(
        "the third-order term dropped",
        "certify.extra",
        "extra = c * c * c * distance * skew * square",
        "extra = 0.0 * distance * skew * square",
        CERTIFICATE,
    ),
    Mutant(
        "the limit doubled",
        "_limit",
        "return 0.5 * region.radius[0]",
        "return 1.0 * region.radius[0]",
        CERTIFICATE,
    ),
    Mutant(
        "the coarse form's third-order term dropped",
        "certify_coarsely.bracket",
        "bracket = bracket + c * c * distance * phi * spread * sqrt(spread * scatter)",
        "bracket = bracket + 0.0 * distance * phi * spread * sqrt(spread * scatter)",
        CERTIFICATE,
    ),
    Mutant(
        "the coarse form takes the last arm's half-width for the largest",
        "certify_coarsely",
        "widest = larger(widest, square)",
        "widest = square",
        CERTIFICATE,
    ),
    Mutant(
        "the φ-term dropped",
        "certify",
        "share = chance * (chi + c * phi * gap)",
        "share = chance * chi",
        CERTIFICATE,
    ),
    Mutant(
        "a radius that all lanes share is looked for in each",
        "take_decision",
        "radius[0, lane_of(region.radius, lane)]",
        "radius[0, lane]",
        ("tests/core/optimism/test_solver.py", "-k", "neighbours or held"),
    ),
    # The service.
    Mutant(
        "a second reward is taken for the first one again, whatever it is",
        "_lacks",
        "if stored.reward != reward:",
        "if False:",
        SERVICE,
    ),
    Mutant(
        "one reward is taken for the sum of several",
        "lacking",
        "if stored.slots:",
        "if False:",
        SERVED_SLOTS,
    ),
    Mutant(
        "a private service shows as many actions as a request asks for",
        "_slots",
        "if fixed and weights != own:",
        "if False:",
        SERVED_SLOTS,
    ),
    Mutant(
        "withdrawing a decision twice is refused if one of its slots was rewarded",
        "ServedAgent.withdraw.lack",
        "(stored.status, *(slot.status for slot in stored.slots))",
        "(stored.status,)",
        SERVED_SLOTS,
    ),
    Mutant(
        "a service shares after as many rewards as rounds, however many slots a round has",
        "Membership.__init__",
        "(slots * terms.times.rounds(terms.plan))",
        "terms.times.rounds(terms.plan)",
        (SERVED_SLOTS[0], "-k", "agreed"),
    ),
    Mutant(
        "the sum of several rewards stays when one is replaced",
        "sum_again",
        "    if rows:\n",
        "    if False:\n",
        REPLACED_SLOTS,
    ),
    Mutant(
        "a reward that replaces another is amended without the weight of its slot",
        "StreamPrivatizer.amend",
        "weight * x * (after - before)",
        "x * (after - before)",
        REPLACED_SLOTS,
    ),
    Mutant(
        "what was withdrawn counts among the records of a person",
        "turn_of",
        "AND status = 'rewarded' ",
        "",
        REPLACED_SLOTS,
    ),
    Mutant(
        "a reward of a slot replaces that of the first",
        "replace",
        "slot=ended.slot, turn=turn",
        "slot=min(ended.slot, 1), turn=turn",
        REPLACED_SLOTS,
    ),
    Mutant(
        "an agent that has learnt from numbers without names gets names",
        "remembered",
        "    if settings.features:\n        raise",
        "    if False:\n        raise",
        SERVICE,
    ),
    Mutant(
        "every level of a category counts in the largest norm",
        "Schema._divisor",
        "math.sqrt(len(self._terms))",
        "math.sqrt(len(self._natural))",
        DESCRIBED,
    ),
    Mutant(
        "a later version scales earlier columns anew",
        "Schema._divisor",
        "if self.before is None else",
        "if True else",
        DESCRIBED,
    ),
    Mutant(
        "a later version puts its columns among the earlier ones",
        "Schema._keys",
        "return (*old, *(key for key in self._natural if key not in kept))",
        "return tuple(self._natural)",
        DESCRIBED,
    ),
    Mutant(
        "numbers above their range are not clipped",
        "Schema._contexts",
        "np.minimum(np.maximum(scaled, 0.0), 1.0)",
        "np.maximum(scaled, 0.0)",
        DESCRIBED,
    ),
    Mutant(
        "a shared number that is clipped counts for every action",
        "Schema._contexts",
        "1 if name in once else many",
        "many",
        DESCRIBED,
    ),
    Mutant(
        "products of categories share columns",
        "Schema._contexts",
        "codes[layout.first] * layout.stride",
        "codes[layout.first]",
        DESCRIBED,
    ),
    Mutant(
        "an unknown value is the first level",
        "_codes",
        "table[OTHER] if code < 0",
        "0 if code < 0",
        DESCRIBED,
    ),
    Mutant(
        "a later version may change a range",
        "_check_extension",
        "old.range == new.range and ",
        "",
        DESCRIBED,
    ),
    Mutant(
        "a later version may share what was not shared",
        "_check_extension",
        "if not kept or set(before.shared) != {name for name in before.names if name in later.shared}:",
        "if not kept:",
        DESCRIBED,
    ),
    Mutant(
        "a pending decision gets new columns before the old ones",
        "Decision.grow",
        "(0, dimension - old)",
        "(dimension - old, 0)",
        WITH_SCHEMA,
    ),
    Mutant(
        "a pending decision stays shorter than a later version",
        "Parts.extend_schema",
        "made.grow(schema.width)",
        "pass",
        WITH_SCHEMA,
    ),
    Mutant(
        "a pending decision from before a snapshot stays shorter than a later version",
        "AgentStore._restore",
        "made.grow(parts.model.dimension)",
        "pass",
        WITH_SCHEMA,
    ),
    Mutant(
        "an agent that shares its statistics gets columns",
        "Agent.extend_schema",
        "require(not fixed, ",
        "require(True, ",
        WITH_SCHEMA,
    ),
    Mutant(
        "bounds of contexts that are not negative are for any reward",
        "Bounds.for_range",
        "nonnegative and least >= 0.0",
        "nonnegative",
        WITH_SCHEMA,
    ),
    Mutant(
        "bounds are narrower than a schema's contexts",
        "Bounds.for_range",
        "context_norm=norm, reward=reward",
        "reward=reward",
        WITH_SCHEMA,
    ),
    Mutant(
        "a member has another schema than the terms",
        "Terms._arms",
        "require(same, ",
        "require(True, ",
        ("tests/federation/roster/test_roster.py", "-k", "schema"),
    ),
    Mutant(
        "columns that come later were the first ones",
        "_widened",
        "(0, dimension - contexts.shape[2])",
        "(dimension - contexts.shape[2], 0)",
        ("tests/fairness/test_exposure_table.py", "-k", "later"),
    ),
    Mutant(
        "weights of a learnt log are one more feature",
        "learnt",
        'event.kind == "learn weighted"',
        "False",
        ("tests/service/test_feature_table.py", "-k", "sqlite and later"),
    ),
    Mutant(
        "a key answers its decision to another request",
        "_again",
        "if stored is None or stored.digest != wish.digest:",
        "if stored is None:",
        SERVICE,
    ),
    Mutant(
        "the baseline's share is left out of the propensity",
        "DecisionNote.propensity",
        "self.control_share * kept)",
        "0.0 * kept)",
        SERVICE,
    ),
    Mutant(
        "an action is found where it was only drawn",
        "Journal.filters",
        """f'%"shown":[%,{action},%'""",
        'f"%,{action},%"',
        QUERIES,
    ),
    Mutant(
        "an action is not found in the last slot",
        "Journal.filters",
        'f"%,{action}]}}"',
        '""',
        QUERIES,
    ),
    Mutant(
        "the baseline gives every action of its list the first slot",
        "DecisionNote.propensity",
        "kept = dict(zip(rows, weights, strict=True)).get(action, 0.0)",
        "kept = 1.0 if action in rows else 0.0",
        SERVED_SLOTS,
    ),
    Mutant(
        "what a ranked baseline showed is stored as drawn",
        "Slate.to_json",
        "if self.drawn is not self.shown:",
        "if False:",
        SERVED_SLOTS,
    ),
    Mutant(
        "the contexts of what was drawn are learnt under the names of a baseline",
        "Agent._decide",
        "context_of(rows, arm, dimension) for arm in shown",
        "context_of(rows, arm, dimension) for arm in drawn",
        SERVED_SLOTS,
    ),
    Mutant(
        "the mistake of one agent fails the steps of others",
        "WriteQueue._do_each",
        "isinstance(done, StorageUnavailable)",
        "True",
        WRITE_QUEUE,
    ),
    Mutant(
        "a key that is limited to agents is for all",
        "may_use",
        "agent in agents",
        "True",
        (*AGENTS, "limited and not postgresql"),
    ),
    Mutant(
        "a session has no limits of its key",
        "check",
        "agents=key.agents",
        "agents=None",
        (*AGENTS, "session and not postgresql"),
    ),
    Mutant(
        "an agent in use is closed",
        "Agents._closable",
        "served.users or ",
        "",
        (*AGENTS, "(idle or many_in_use) and not postgresql"),
    ),
    Mutant(
        "an agent that is closed when idle has no snapshot",
        "AgentStore._before_close",
        "if self.journal.unsaved:",
        "if False:",
        (*AGENTS, "idle and not postgresql"),
    ),
    Mutant(
        "an archived agent decides",
        "ServedAgent._refuse_archived",
        "if self.archived:",
        "if False:",
        (*AGENTS, "archived and not postgresql"),
    ),
    Mutant(
        "decisions whose window ended while their agent was closed wait on",
        "Agents._open_now",
        "await served.expire()",
        "pass",
        (*AGENTS, "expired_while and not postgresql"),
    ),
    Mutant(
        "settings that differ are taken for the same",
        "Agents._run_with",
        "if key not in OF_RUNNING:",
        "if False:",
        (*AGENTS, "conflict and not postgresql"),
    ),
    Mutant(
        "a window stays changed although it could not be stored",
        "ServedAgent.run_with",
        "self.agent.set_window(*before)",
        "pass",
        (*AGENTS, "run_can_be_changed and not postgresql"),
    ),
    Mutant(
        "a mistake with one agent stops the writes of all",
        "WriteQueue._count_failure",
        "if isinstance(error, StorageUnavailable):",
        "if True:",
        WRITE_QUEUE,
    ),
    Mutant(
        "an agent that is refused stays in the log",
        "Agent.open",
        "                    agent.set_window(window, default_reward)  # an agent",
        "                    # an agent",
        (*AGENTS, "conflict and not postgresql"),
    ),
    Mutant(
        "a closed agent goes on writing",
        "Journal._require_open",
        "if self.closed:",
        "if False:",
        DURABLE,
    ),
    Mutant(
        "a failed commit is acknowledged",
        "WriteQueue._run",
        "            return error\n        return outcomes",
        "            return outcomes\n        return outcomes",
        WRITE_QUEUE,
    ),
    Mutant(
        "any site may ask a service without keys",
        "Authenticator.check",
        'raise ProblemError("host", "The Host must be localhost while there is no key.")',
        "pass",
        DOORS,
    ),
    Mutant(
        "the last key revoked opens the door",
        "Authenticator.look",
        "self.any_key = self.any_key or bool(found)",
        "self.any_key = any(key.revoked is None for key in found)",
        DOORS,
    ),
    Mutant(
        "a header without end is read",
        "Connection.data_received",
        "            if self._part > most:\n",
        "            if False:\n",
        CONNECTIONS,
    ),
    Mutant(
        "a whole header may have any length",
        "Connection.data_received",
        "if self._part + size > most and self._length() > most:",
        "if False:",
        CONNECTIONS,
    ),
    Mutant(
        "half a request is held for ever",
        "Connection.look",
        "elif waits is not None and now - self._since >= self._seconds[waits]:",
        "elif waits == BODY and now - self._since >= self._seconds[waits]:",
        CONNECTIONS,
    ),
    Mutant(
        "half a body is held for ever",
        "Connection.waits_for",
        "return BODY if cycle.more_body else None",
        "return None",
        CONNECTIONS,
    ),
    Mutant(
        "the newest of too many connections end",
        "Connection._make_room",
        "waiting.sort(key=lambda each: (each.cycle is not None, each._made))",
        "waiting.sort(key=lambda each: -each._made)",
        CONNECTIONS,
    ),
    Mutant(
        "who is served is ended for whoever comes",
        "Connection._make_room",
        "if each.waits_for() is not None or each.flow.write_paused]",
        "]",
        CONNECTIONS,
    ),
    Mutant(
        "a credible interval of 96 %",
        "Estimates.interval",
        "ordered[:, place - 1], ordered[:, -place]",
        "ordered[:, place - 2], ordered[:, 1 - place]",
        CREDIBLE,
    ),
    Mutant(
        "draws are around zero",
        "Posterior.draws",
        "self.mean[:, None] + moves]",
        "moves]",
        CREDIBLE,
    ),
    Mutant(
        "stretches of time are merged",
        "Block.distinct",
        "weights, self.stretch[:, None]]",
        "weights, 0 * self.stretch[:, None]]",
        CREDIBLE,
    ),
    Mutant(
        "a forecast takes the shape of the past for the future",
        "Forecast.__init__",
        "weighted.T @ weighted",
        "10 * weighted.T @ weighted",
        FORECAST,
    ),
    Mutant(
        "a forecast takes shown shares to be known",
        "Forecast.rewards",
        "more = seen.rounds / so_far",
        "more = 100 * seen.rounds / so_far",
        FORECAST,
    ),
    Mutant(
        "uncertainty counts twice",
        "contributions",
        "spread = 0.5 * merit.steepness**2",
        "spread = merit.steepness**2",
        CONTRIBUTIONS,
    ),
    Mutant(
        "a minimum share is taken for merit",
        "_log_merits",
        "(policy - minimum_share * sum(weights)) / rest",
        "policy / rest",
        CONTRIBUTIONS,
    ),
    Mutant(
        "the estimates of readers have all digits",
        "coarse_estimates",
        "return np.round(means / step) * step,",
        "return means,",
        ("tests/service/test_published.py", "-k", "rounded_to_what"),
    ),
    Mutant(
        "the head on a report is not the log's",
        "length_and_head",
        "last[1][SIZE:].hex()",
        "last[1][:SIZE].hex()",
        QUERIES,
    ),
    Mutant(
        "a search goes on where its last page began",
        "matching",
        "at, over = numbers[-1], False",
        "over = False",
        QUERIES,
    ),
    Mutant(
        "a reader sees the estimate that decides",
        "estimates",
        "if exact:\n        mean,",
        "if True:\n        mean,",
        TWIN,
    ),
    Mutant(
        "a reader sees policies, in tenths of a percent",
        "seen",
        "policy=stored.policy.tolist() if exact else None,",
        "policy=stored.policy.round(3).tolist(),",
        TWIN,
    ),
    Mutant(
        "a reader sees each clipped record",
        "clipped",
        "return count if exact else count - count % batch_of(agent.dimension)",
        "return count",
        TWIN_PRIVATE,
    ),
    Mutant(
        "a reader's entitlements move with each reward",
        "ExposureCache._make",
        "            sums = published.sums.gram, published.sums.moment\n",
        "            sums = self._sums()\n",
        TWIN,
    ),
    Mutant(
        "a batch that is not whole is published",
        "Published.update",
        "            if rewards.size == batch_of(dimension):\n",
        "            if True:\n",
        BATCHES,
    ),
    Mutant(
        "a reader's table goes beyond its batch",
        "ExposureCache._make",
        "end = end if published.end is None else min(end, published.end)",
        "pass",
        BATCHES,
    ),
    Mutant(
        "who has a copy of the cookie stays when its owner signs out",
        "leave",
        '    service.auth.sessions.end(request.cookies.get(cookie(request), ""))\n',
        "",
        ENTERING,
    ),
    Mutant(
        "a revoked key keeps its sessions",
        "Authenticator.look",
        "self.sessions.keep({key.id for key in found if key.revoked is None})",
        "self.sessions.keep({key.id for key in found})",
        ENTERING,
    ),
    Mutant(
        "a session lasts until the next look for keys",
        "Sessions.key_of",
        "return None if key is None or self.clock() >= until else key",
        "return None if key is None else key",
        ENTERING,
    ),
    Mutant(
        "services on one host share a cookie",
        "cookie",
        'return f"fedfairx-{port}"',
        'return "fedfairx-80"',
        ENTERING,
    ),
    Mutant(
        "a full disk is ready",
        "_probe",
        'f"UPDATE fedfairx SET version = version {change}"',
        '"SELECT 1"',
        ("tests/service/test_unavailable.py", "-k", "full"),
    ),
    Mutant(
        "a page of another site may write",
        "EndpointApp.__call__",
        'if operation.method != "GET":',
        "if False:",
        GATE,
    ),
    Mutant(
        "a body need not say that it is JSON",
        "body_of.kind",
        'kind = header_of(request, b"content-type") or ""',
        'kind = header_of(request, b"content-type") or JSON',
        GATE,
    ),
    Mutant(
        "errors may be kept by whoever is on the way",
        "_problem",
        "    response.raw_headers.extend(HEADERS)\n",
        "",
        GATE,
    ),
    Mutant(
        "a spreadsheet computes what a caller has named so",
        "_cell",
        "isinstance(value, str) and value.startswith(RISKY)",
        "False",
        SERVICE,
    ),
    # Mistakes of the kind that an engineer makes: ends, signs, copies, locks, defaults, caches.
    Mutant(
        "bets on one action stake 1 instead of a half",
        "DrawsSoFar.answer",
        "np.log(0.5 * weights / FAVOURS.size)",
        "np.log(weights / FAVOURS.size)",
        ("tests/fairness/test_draw_test.py", "-k", "stake"),
    ),
    Mutant(
        "bets on a power of the policy stake 1 instead of a half",
        "DrawsSoFar.answer",
        "self.powers - math.log(2 * POWERS.size)",
        "self.powers - math.log(POWERS.size)",
        ("tests/fairness/test_draw_test.py", "-k", "stake"),
    ),
    Mutant(
        "a rare action is as rare everywhere as at the centre",
        "entitled",
        "_bend(moves, high), merits)",
        "_bend(moves, share), merits)",
        ("tests/fairness/test_entitlement.py", "-k", "leaves_out"),
    ),
    Mutant(
        "a rare action without features is as rare everywhere as at the centre",
        "entitled_units",
        "_bend(moves, high), merits)",
        "_bend(moves, share), merits)",
        ("tests/fairness/test_entitlement.py", "-k", "leaves_out"),
    ),
    Mutant(
        "shown shares of actions and of groups take half of the error each",
        "_SHOWN_SHARE",
        "0.25",
        "0.5",
        ("tests/fairness/test_exposure_table.py", "-k", "spent_once"),
    ),
    Mutant(
        "the page to sign swaps the ends of a shortfall",
        "parts.html",
        "{{ row.shortfall.low | points }} to {{ row.shortfall.high | points }}",
        "{{ row.shortfall.high | points }} to {{ row.shortfall.low | points }}",
        ("tests/service/pages/test_page_data.py", "-k", "to_sign"),
    ),
    Mutant(
        "a shortfall is as wide as the entitlement alone",
        "Row.shortfall",
        "due.low - shown.high, due.high - shown.low",
        "due.low - shown.value, due.high - shown.value",
        ("tests/fairness/test_exposure_table.py", "-k", "shortfall"),
    ),
    Mutant(
        "the control share is the share of live decisions",
        "_draw_mode",
        "random.random() < settings.control_share",
        "random.random() > settings.control_share",
        ("tests/service/test_api.py", "-k", "is_the_share"),
    ),
    Mutant(
        "a table is reused for another end",
        "ExposureCache.look",
        "self._kept.pop((since, until, exact), None)",
        "next((each for (s, _, e), each in self._kept.items() if (s, e) == (since, exact)), None)",
        ("tests/service/test_exposure_cache.py", "-k", "of_its_own"),
    ),
    Mutant(
        "the last interval of a chart is not counted again",
        "DecisionCounters.by_time",
        "over = max(min(len(self._made), count) - 1, 0)",
        "over = min(len(self._made), count)",
        ("tests/service/test_exposure_cache.py", "-k", "counted_again"),
    ),
    Mutant(
        "sds of noise are added without being squared",
        "sum_sd",
        "math.sqrt(sum(sd**2 for sd in sds(mechanism, releases, rows, closed)))",
        "sum(sds(mechanism, releases, rows, closed))",
        ("tests/agent/test_pool.py", "-k", "adds_up"),
    ),
    Mutant(
        "sds of the noise of partners who differ are added without being squared",
        "Judge.together",
        "float(np.linalg.norm(powers * np.array([noise_sd[name] for name in releases])))",
        "float((powers * np.array([noise_sd[name] for name in releases])).sum())",
        ("tests/agent/test_partners_table.py", "-k", "noise_of_several"),
    ),
    Mutant(
        "noise that was learnt may be negative",
        "learnt_sizes",
        "larger(squares - explained, 0.0)",
        "(squares - explained)",
        ("tests/core/test_marginal_likelihood.py", "-k", "negative"),
    ),
    Mutant(
        "partners that were never heard are left out",
        "Membership.peers",
        "for name in sorted(self.place.roster.members) if name != own}",
        "for name in sorted(known) if name != own}",
        ("tests/service/test_membership.py", "-k", "passed"),
    ),
    Mutant(
        "records of partners who differ are not counted",
        "Exchange._pool",
        "float(model.observed + theirs)",
        "float(model.observed)",
        ("tests/agent/test_partners_table.py", "-k", "odd_partner"),
    ),
    Mutant(
        "a clock that goes back takes stored times with it",
        "Log.now",
        "            self.clock_went_back += 1\n            return self.time\n",
        "            self.clock_went_back += 1\n            return now\n",
        ("tests/agent/test_persistence.py", "-k", "go_back and sqlite"),
    ),
    Mutant(
        "a clock that goes back keeps a table",
        "ExposureCache.look",
        "time.monotonic() - kept.when > max(FRESH",
        "time.time() - kept.when > max(FRESH",
        ("tests/service/test_exposure_cache.py", "-k", "keeps_no_old"),
    ),
    Mutant(
        "what is more than a group is dropped",
        "WriteQueue._take",
        "self._waiting[:MOST], self._waiting[MOST:]",
        "self._waiting[:MOST], []",
        ("tests/service/test_write_queue.py", "-k", "several_groups"),
    ),
    Mutant(
        "a step runs in the event loop beside others",
        "WriteQueue.do",
        " and len(self.requests) == 1",
        "",
        WRITE_QUEUE,
    ),
    Mutant(
        "a refused step in the event loop counts as a failure of the storage",
        "WriteQueue._do_here",
        " or not isinstance(error, FedFairXError)",
        " or True",
        WRITE_QUEUE,
    ),
    Mutant(
        "a step runs in the event loop after a slow one",
        "WriteQueue.do",
        "self._took < SHORT",
        "True",
        WRITE_QUEUE,
    ),
    Mutant(
        "the event loop waits for another process's transaction",
        "SqliteDatabase.insert",
        "BRIEFLY if briefly else PATIENCE",
        "PATIENCE",
        ("tests/storage/test_at_once.py",),
    ),
    Mutant(
        "nothing waits for another process any more",
        "SqliteDatabase.begin",
        "            self._wait(BRIEFLY if briefly else PATIENCE)\n",
        "",
        ("tests/storage/test_at_once.py",),
    ),
    Mutant(
        "a lock that was removed is not noticed where one row is written",
        "SqliteDatabase.insert",
        " or now >= self._checked + RECENTLY",
        "",
        ("tests/storage/test_failing.py", "-k", "lock_that_was_removed"),
    ),
    Mutant(
        "the event loop waits for a snapshot",
        "WriteQueue._free_for",
        "not owner.journal.long_after() and ",
        "",
        WRITE_QUEUE,
    ),
    Mutant(
        "a failed step counts as one that was committed",
        "Log._end",
        "touched, self.touched = self.touched, set()",
        "touched = self.touched",
        ("tests/storage/test_several_agents.py", "-k", "concerns"),
    ),
    Mutant(
        "a single row goes into a transaction that was left open",
        "SqliteDatabase.insert",
        " or self._writer.in_transaction",
        "",
        ("tests/storage/test_failing.py", "-k", "left_open and sqlite"),
    ),
    Mutant(
        "two rows are written as if there were one",
        "Log._flush",
        "self.written == 1 and",
        "",
        ("tests/storage/test_at_once.py",),
    ),
    Mutant(
        "another process that writes is a failure of the storage",
        "WriteQueue._do_here",
        "        except Busy:  # it was undone, and can wait in the queue\n            raise\n",
        "",
        WRITE_QUEUE,
    ),
    Mutant(
        "decisions of a group go to the wrong requests",
        "PlainDecisions.together",
        "np.concatenate([step.contexts for step in steps])",
        "np.concatenate([step.contexts for step in steps[::-1]])",
        DECISION_STEPS,
    ),
    Mutant(
        "what a request excludes is offered",
        "_Plain",
        ", forbid_unknown_fields=True",
        "",
        DECISION_STEPS,
    ),
    Mutant(
        "a refused step fails those that are taken with it",
        "_take_steps",
        "        except FedFairXError:\n            pass\n",
        "        except FedFairXError as error:\n            return [error] * len(steps)\n",
        DECISION_STEPS,
    ),
    Mutant(
        "contexts of a batch are mixed up",
        "read_matrices",
        ".reshape(count, rows, columns)",
        ".reshape(rows, count, columns).swapaxes(0, 1)",
        DECISION_STEPS,
    ),
    Mutant(
        "numbers of 17 digits are read to the last bit but one",
        "_divided",
        "least if least == most else 0.0",
        "quotient",
        ("tests/core/test_json_numbers.py",),
    ),
    Mutant(
        "numbers near the middle of two are guessed",
        "_divided",
        "least if least == most else 0.0",
        "least",
        ("tests/core/test_json_numbers.py",),
    ),
    Mutant(
        "rows may have different lengths",
        "_read",
        "if found > column and column != columns:",
        "if False:",
        ("tests/core/test_json_numbers.py",),
    ),
    Mutant(
        "the notes of many decisions are those of the first",
        "Journal.append_decisions",
        "if place == 0 or called is not last or note is not noted:",
        "if place == 0:",
        DURABLE,
    ),
    Mutant(
        "many decisions bring no snapshot nearer",
        "Journal.append_decisions",
        "self.unsaved += count",
        "pass",
        ("tests/agent/test_persistence.py", "-k", "bring_a_snapshot"),
    ),
    Mutant(
        "a snapshot has null for what is not a number",
        "_as_json",
        "if decode(content) == body:",
        "if True:",
        ("tests/storage/test_several_agents.py", "-k", "not_a_number and sqlite"),
    ),
    Mutant(
        "a response to HEAD has a body",
        "Connection.send_whole",
        ' or scope["method"] == "HEAD"',
        "",
        ("tests/service/test_whole_responses.py",),
    ),
    Mutant(
        "a connection that is to be closed stays open",
        "Connection.send_whole",
        "cycle.keep_alive and not (",
        "not (",
        ("tests/service/test_whole_responses.py",),
    ),
    Mutant(
        "middleware does not see what is sent",
        "FastRouter.__call__",
        "scope.pop(WHOLE, None)",
        "pass",
        ("tests/service/test_whole_responses.py",),
    ),
    Mutant(
        "one more may wait than is allowed",
        "WriteQueue.do",
        "len(self._waiting) >= self._limit",
        "len(self._waiting) > self._limit",
        ("tests/service/test_write_queue.py", "-k", "too_many"),
    ),
    Mutant(
        "after a failure there is no pause",
        "WriteQueue.available",
        "self.failed + PAUSE",
        "self.failed - PAUSE",
        ("tests/service/test_write_queue.py", "-k", "failed_commit"),
    ),
    Mutant(
        "threads count the same steps twice",
        "DecisionCounters.by_status",
        "with self._lock:",
        "if True:",
        ("tests/service/test_exposure_cache.py", "-k", "count_once"),
    ),
    Mutant(
        "a request that takes as long as an edge is in the next bucket",
        "Metrics.request",
        "bisect_left(EDGES, seconds)",
        "bisect_left(EDGES, seconds) + (seconds in EDGES)",
        ("tests/service/test_api.py", "-k", "bucket"),
    ),
    Mutant(
        "a reader sees the probability of what was taken",
        "seen",
        "probability=stored.propensity if exact else None",
        "probability=stored.propensity",
        ("tests/service/test_published.py", "-k", "before_the_first"),
    ),
    Mutant(
        "the last month has no end",
        "windows",
        "before.timestamp(), month.timestamp())",
        "before.timestamp())",
        ("tests/service/pages/test_periods.py", "-k", "fixed_times"),
    ),
    Mutant(
        "an export has no end",
        "export",
        "until=query.until",
        "until=None",
        ("tests/service/test_api.py", "-k", "exports_agree and sqlite"),
    ),
    Mutant(
        "any host whose name begins with localhost is this machine",
        "is_loopback",
        'host.lower() == "localhost"',
        'host.lower().startswith("localhost")',
        ("tests/service/test_auth.py", "-k", "machine_alone and sqlite"),
    ),
    Mutant(
        "a revoked key stays in the cache",
        "Authenticator.look",
        "        self._accepted.clear()\n",
        "",
        ("tests/service/test_auth.py", "-k", "come_and_go and sqlite"),
    ),
    Mutant(
        "the upper end of a reader's interval is rounded down",
        "_coarse_share",
        "math.ceil(share.high * DIGITS)",
        "math.floor(share.high * DIGITS)",
        ("tests/service/test_published.py", "-k", "rounding"),
    ),
    Mutant(
        "sums of a log that could not be read to its end are kept",
        "_Logged.sums",
        "self._sums.copy(dimension)",
        "self._sums",
        ("tests/service/test_exposure_cache.py", "-k", "read_again and sqlite or weights and sqlite"),
    ),
    Mutant(
        "rewards of unknown range vary twice as much as they can",
        "_half_range",
        "0.5 * (high - low)",
        "(high - low)",
        ("tests/service/test_exposure_cache.py", "-k", "half_of_their"),
    ),
    Mutant(
        "an impossible draw is forgotten with the next block",
        "DrawsSoFar.take",
        "self.impossible |= bool",
        "self.impossible = bool",
        ("tests/fairness/test_draw_test.py", "-k", "not_forgotten"),
    ),
    Mutant(
        "rounds of the same actions in other groups are merged",
        "Block.distinct",
        "[self.contexts, self.names, self.groups, weights, self.stretch[:, None]]",
        "[self.contexts, self.names, weights, self.stretch[:, None]]",
        ("tests/fairness/test_featureless.py", "-k", "change_its_group"),
    ),
    Mutant(
        "a block of a log counts twice",
        "gather",
        "_block(waiting.pop(shape))",
        "_block(waiting[shape])",
        ("tests/fairness/test_exposure_table.py", "-k", "is_cut"),
    ),
    Mutant(
        "a reward of what was withdrawn is learnt",
        "records",
        "np.isfinite(block.rewards) & (block.taken >= 0)",
        "np.isfinite(block.rewards)",
        ("tests/fairness/test_exposure_table.py", "-k", "withdrawn_is_not"),
    ),
    Mutant(
        "the region of θ has the whole error",
        "exposure",
        "error=error * _MERIT_SHARE",
        "error=error",
        ("tests/fairness/test_exposure_table.py", "-k", "spent_once"),
    ),
    Mutant(
        "sums that are given count twice",
        "_given",
        "return gram, moment, 0",
        "return 2.0 * gram, moment, 0",
        ("tests/fairness/test_exposure_table.py", "-k", "itself"),
    ),
    Mutant(
        "who is shown more than the least due is above",
        "verdict",
        "shown.low > entitled.high",
        "shown.low > entitled.low",
        ("tests/fairness/test_exposure_table.py", "-k", "verdicts"),
    ),
    Mutant(
        "what was not seen has its weight",
        "_block.seen",
        "np.where(shown >= 0, weights, 0.0).sum(axis=1) / total",
        "np.where(shown >= 0, weights, weights).sum(axis=1) / total",
        ("tests/fairness/test_exposure_table.py", "-k", "not_shown_but"),
    ),
    Mutant(
        "the wider of two bounds is taken",
        "Tally.interval",
        "low = np.maximum(low, (self.middle - reach) / weight)",
        "low = np.minimum(low, (self.middle - reach) / weight)",
        ("tests/fairness/test_entitlement.py", "-k", "nearly_as_narrow"),
    ),
    Mutant(
        "evidence for a change is forgotten",
        "ChangeTest._look",
        "if whole > self._largest:",
        "if True:",
        ("tests/fairness/test_change_test.py", "-k", "weigh or alarm_stays"),
    ),
    Mutant(
        "a change is found one batch late",
        "ChangeTest.add",
        "= self.found.rewards, self._total",
        "= self.found.rewards + rewards.size, self._total",
        ("tests/fairness/test_change_test.py", "-k", "alarm_stays"),
    ),
    Mutant(
        "lifting changes the release that is kept",
        "lift",
        "lifted = packed.copy()",
        "lifted = packed",
        ("tests/agent/test_pool.py", "-k", "lifting"),
    ),
    Mutant(
        "weighing changes the release that is kept",
        "weigh",
        "weighed = packed.copy()",
        "weighed = packed",
        ("tests/agent/test_pool.py", "-k", "lifting"),
    ),
    Mutant(
        "nothing is released in the last round",
        "Timetable.is_due",
        "t <= self.horizon",
        "t < self.horizon",
        ("tests/agent/test_options.py", "-k", "not_public"),
    ),
    Mutant(
        "a slot that expires makes a rewarded decision an expired one",
        "Slate.end",
        'if self.status != "rewarded" and status != "withdrawn":',
        'if status != "withdrawn":',
        ("tests/agent/test_slots.py", "-k", "earn_the_default"),
    ),
    Mutant(
        "slots of any weight are learnt",
        "as_row_weights",
        "(given <= 1.0)",
        "(given <= 1e9)",
        ("tests/agent/test_slots.py", "-k", "log_is_learnt"),
    ),
    Mutant(
        "records that were clipped before count",
        "ClippingWatch.__init__",
        "self._before = privatizer.clipped",
        "self._before = 0",
        ("tests/agent/test_clipping.py", "-k", "earlier_life"),
    ),
    Mutant(
        "long contexts are measured by their squares",
        "ScaleWatch.look",
        "self._limit**2",
        "self._limit",
        ("tests/agent/test_input_warnings.py", "-k", "no_surprise"),
    ),
    Mutant(
        "both ends of an interval have the whole error",
        "Series.estimate",
        "error=0.5 * error",
        "error=error",
        ("tests/evaluation/test_estimators.py", "-k", "half_of_the"),
    ),
    Mutant(
        "SNIPS has the whole error at each end",
        "self_normalised",
        "0.5 * error",
        "error",
        ("tests/evaluation/test_estimators.py", "-k", "snips"),
    ),
    Mutant(
        "only what is never shown is unsupported",
        "_value",
        "share[share > len(decisions) * block.policy]",
        "share[block.policy == 0]",
        ("tests/evaluation/test_evaluation.py", "-k", "never_shows"),
    ),
    Mutant(
        "effective decisions are not squared",
        "_value",
        "float(weights.sum()) ** 2 / squares",
        "float(weights.sum()) / squares",
        ("tests/evaluation/test_evaluation.py", "-k", "weight_one"),
    ),
    Mutant(
        "decisions keep the numbers of those left out",
        "_complete",
        "np.searchsorted(every, block.positions)",
        "block.positions",
        ("tests/evaluation/test_evaluation.py", "-k", "left_out"),
    ),
    Mutant(
        "a control decision is one of a shadow",
        "taken_from",
        'kept = 1.0 if mode == "shadow"',
        'kept = 1.0 if mode != "live"',
        ("tests/evaluation/test_logs.py", "-k", "with_a_baseline"),
    ),
    Mutant(
        "a group counts once for each of its actions",
        "_mean_shares",
        "there += np.bincount(codes[once], total[once], size)",
        "there += np.bincount(codes[known], total[known], size)",
        ("tests/evaluation/test_evaluation.py", "-k", "shares_of_actions"),
    ),
    Mutant(
        "a writer sees what an admin does",
        "sees_exact",
        '== "admin"',
        'in ("admin", "writer")',
        ("tests/service/test_published.py", "-k", "before_the_first"),
    ),
    Mutant(
        "decisions before a window are taken for some that it leaves out",
        "ExposureCache._make",
        "last_of(journal, 1, first=first, end=start) > first",
        "last_of(journal, 1, first=first, end=start) >= first",
        ("tests/service/test_exposure_cache.py", "-k", "no_decisions"),
    ),
    Mutant(
        "an agent's shares are those of other slots",
        "shares_of",
        "block.names[row].tobytes() + weights.tobytes()",
        "block.names[row].tobytes()",
        ("tests/evaluation/test_evaluation.py", "-k", "other_slots"),
    ),
    Mutant(
        "guesses of actions without features forget that a lower slot earns less",
        "_Means.add",
        "weights**2",
        "weights",
        ("tests/evaluation/test_evaluation.py", "-k", "first_slot"),
    ),
    Mutant(
        "the largest weight is that of the last block",
        "_value",
        "largest = max(largest, float(each.max()))",
        "largest = float(each.max())",
        ("tests/evaluation/test_evaluation.py", "-k", "largest_weight"),
    ),
    Mutant(
        "a page of decisions that is just full leads to an empty one",
        "matching",
        "    if len(found) > limit:",
        "    if len(found) >= limit:",
        ("tests/service/pages/test_pages.py", "-k", "just_full"),
    ),
    Mutant(
        "the first decision of a batch has another key than one alone",
        "Wish.key_of",
        'self.key if place == 0 else f"{self.key} {place}"',
        'f"{self.key} {place}"',
        ("tests/service/test_served_actions.py", "-k", "retry and sqlite"),
    ),
    Mutant(
        "a baseline is taken for a row of all actions, excluded ones too",
        "_input",
        "[rows.index(row) for row in baseline]",
        "baseline",
        ("tests/service/test_api.py", "-k", "not_excluded"),
    ),
    Mutant(
        "of a name that is twice in a query the last counts",
        "query_of",
        "name in given or ",
        "",
        ("tests/service/test_api.py", "-k", "pages_of and sqlite"),
    ),
    Mutant(
        "more actions without features than may be are decided about",
        "AmongAll.among",
        "        _check_count(len(names), self.most)\n",
        "",
        ("tests/service/test_served_actions.py", "-k", "more_than_may_be"),
    ),
    Mutant(
        "a probe that succeeded counts after a failure",
        "WriteQueue.probe",
        "self.failed < self._probed > time.monotonic() - PROBED",
        "self._probed > time.monotonic() - PROBED",
        ("tests/service/test_write_queue.py", "-k", "outlive"),
    ),
    Mutant(
        "a slot that nobody saw counts as a reward",
        "ServedAgent.reward",
        "sum(reward is not None for reward in taken)",
        "sum(1 for reward in taken)",
        ("tests/service/test_served_slots.py", "-k", "nobody_saw"),
    ),
    Mutant(
        "a merit of one's own never falls",
        "_merit_range",
        "np.log(np.maximum(values - moves, merit.minimum_merit))",
        "np.log(values)",
        ("tests/fairness/test_entitlement.py", "-k", "ones_own_is"),
    ),
    Mutant(
        "what a group can have at most is that of its last decision",
        "Tally.count",
        "np.maximum.at(self.most, once, sets.most(block.weights)[sets.first])",
        "self.most[once] = sets.most(block.weights)[sets.first]",
        ("tests/fairness/test_exposure_table.py", "-k", "order_of_a_log"),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "words", nargs="*", help="only mutants with one of these in their place or their name"
    )
    words = parser.parse_args().words
    chosen = [m for m in MUTANTS if not words or any(word in f"{m.where} {m.what}" for word in words)]
    found = [(mutant, try_out(mutant)) for mutant in chosen]
    failed = [mutant for mutant, verdict in found if verdict != "killed"]
    print(f"{len(found) - len(failed)} of {len(found)} killed")
    return 1 if failed or not found else 0


def try_out(mutant: Mutant) -> str:
    """'killed', or what is wrong; also printed."""
    began = time.perf_counter()
    verdict = _verdict(mutant)
    print(f"{verdict:>8}  {mutant.where}: {mutant.what} ({time.perf_counter() - began:.0f} s)", flush=True)
    return verdict


def _verdict(mutant: Mutant) -> str:
    found = places(mutant)
    if len(found) != 1:
        return f"STALE (its old text is there {len(found)} times)"
    if run_tests(mutant.tests, mutant.compiled) != 0:
        return "BROKEN (its tests fail without it)"
    path, at = found[0]
    text = path.read_text(encoding="utf-8")
    changed = text[:at] + mutant.new + text[at + len(mutant.old) :]
    code = _run({str(path.relative_to(PACKAGE)): changed}, mutant.tests, mutant.compiled)
    return {0: "SURVIVED", 1: "killed"}.get(code, f"BROKEN (pytest ends with {code})")


def places(mutant: Mutant) -> list[tuple[Path, int]]:
    """Files and offsets at which the old text stands within what `where` names."""
    found = []
    for path, names in _definitions().items():
        if mutant.where not in names:
            continue
        text = path.read_text(encoding="utf-8")
        starts = [0, *(match.end() for match in re.finditer("\n", text))]
        for first, last in names[mutant.where]:
            end = starts[last] if last < len(starts) else len(text)
            at = text.find(mutant.old, starts[first - 1], end)
            while at >= 0:
                found.append((path, at))
                at = text.find(mutant.old, at + 1, end)
    return found


@functools.cache
def _definitions() -> dict[Path, dict[str, list[tuple[int, int]]]]:
    """First and last lines of every function, class and constant of every file, by qualified name.

    A template of a page, or a file of SQL, has the name of its file.
    """
    found = {
        path: {path.name: [(1, path.read_text(encoding="utf-8").count("\n") + 1)]}
        for path in sorted([*PACKAGE.rglob("*.html"), *PACKAGE.rglob("*.sql")])
    }
    for path in sorted(PACKAGE.rglob("*.py")):
        names: dict[str, list[tuple[int, int]]] = {}
        _collect(ast.parse(path.read_text(encoding="utf-8")), "", names)
        found[path] = names
    return found


def _collect(parent: ast.AST, prefix: str, names: dict[str, list[tuple[int, int]]]) -> None:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            names.setdefault(prefix + node.name, []).append((first, node.end_lineno or first))
            _collect(node, f"{prefix}{node.name}.", names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name):
                lines = node.lineno, node.end_lineno or node.lineno
                names.setdefault(prefix + target.id, []).append(lines)


@functools.cache
def run_tests(tests: tuple[str, ...], compiled: bool) -> int:
    """pytest's exit code on the code as it is."""
    return _run({}, tests, compiled)


def _run(changes: dict[str, str], tests: tuple[str, ...], compiled: bool) -> int:
    """pytest's exit code on a copy of the source tree with these files changed; 1 is a failed test."""
    with tempfile.TemporaryDirectory(prefix="fedfairx-mutant-") as folder:
        package = Path(folder) / "src" / "fedfairx"
        shutil.copytree(ROOT / "src" / "fedfairx", package, ignore=shutil.ignore_patterns("__pycache__"))
        for file, text in changes.items():
            (package / file).write_text(text, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        if compiled:
            environment["NUMBA_CACHE_DIR"] = folder
        else:  # plain Python warns where compiled code divides by zero on purpose
            environment["NUMBA_DISABLE_JIT"] = "1"
            command += ["-W", "ignore::RuntimeWarning"]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return 1  # it hangs, which is noticed too
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())

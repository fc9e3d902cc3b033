"""The document says what the service does: schemathesis holds one against the other."""

from __future__ import annotations

import copy
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from fedfairx.evaluation.lift import Lift
from fedfairx.fairness import Draws
from fedfairx.fairness.change_test import Change
from fedfairx.federation.exchange.member import Peer
from fedfairx.privacy.guarantee import Against
from fedfairx.service import schemas
from fedfairx.service.routes import OPERATIONS
from fedfairx.storage import Deletion, Rollback
from service_helpers import Running

pytestmark = pytest.mark.process

SEED = 1  # with others, more cases are drawn that are dropped again
LISTED = [operation for operation in OPERATIONS if operation.path != "/metrics"]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Running]]:
    """One whose actions have features, and one whose actions have names alone."""
    flags = (("--dimension", "2"), ("--actions", "ann,ben"))
    made = [Running(str(tmp_path_factory.mktemp("openapi") / "agent.db"), *each) for each in flags]
    yield made
    for each in made:
        each.stop()


@pytest.fixture(scope="module")
def document(services: list[Running]) -> dict[str, Any]:
    """What both say of themselves."""
    one, other = (httpx.get(f"{each.url}/v1/openapi.json", verify=False) for each in services)
    assert one.content == other.content
    found: dict[str, Any] = one.json()
    return found


@pytest.fixture(scope="module")
def schema(document: dict[str, Any]) -> Any:
    import schemathesis  # takes seconds, which `make check` need not wait for

    return schemathesis.openapi.from_dict(document)


def test_the_document_lists_every_operation(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    listed = {(method.upper(), path) for path, found in document["paths"].items() for method in found}
    of_agents = [operation.of_agent for operation in LISTED if not operation.whole]
    assert listed == {(operation.method, operation.path) for operation in [*LISTED, *of_agents]}
    names = [operation["operationId"] for found in document["paths"].values() for operation in found.values()]
    assert len(set(names)) == len(names)
    for found in document["paths"].values():
        for operation in found.values():
            assert operation["summary"]
            assert operation["responses"]


def test_no_text_of_a_field_is_cut(document: dict[str, Any]) -> None:
    """The document takes one sentence of what a docstring says of a field: there must be no second."""
    found = document["components"]["schemas"]
    fields = [(name, each) for name, one in found.items() for each in one["properties"].items()]
    told = [(name, field, one["description"]) for name, (field, one) in fields if "description" in one]
    assert len(told) > 60
    types = vars(schemas) | {each.gives.__name__: each.gives for each in LISTED if each.gives is not None}
    for name, field, text in told:
        whole = " ".join((types[name].__doc__ or "").split()).lower().replace("none", "null")
        rest = whole.partition(f"{field}: ")[2].partition(text.lower())[2]
        assert re.match(r"$| [a-z_]+(, [a-z_]+)*: | >>> ", rest), (name, field, rest)


@pytest.mark.parametrize("kind", [Against, Change, Deletion, Draws, Lift, Peer, Rollback])
def test_a_type_of_the_library_is_described_whole(document: dict[str, Any], kind: type) -> None:
    """Every field is in every answer, whatever defaults it has in Python."""
    found = document["components"]["schemas"][kind.__name__]
    names = [field.name for field in fields(kind)]
    assert sorted(found["required"]) == sorted(found["properties"]) == sorted(names)
    texts = [each["description"] for each in found["properties"].values() if "description" in each]
    assert len(texts) > len(names) / 2
    assert not [text for text in texts if "None" in text or text[0].islower()]
    assert not [name for name, each in found["properties"].items() if "default" in each]


@pytest.mark.parametrize("operation", LISTED, ids=lambda one: one.name)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_schemathesis_finds_nothing(services: list[Running], schema: Any, operation: Any, mode: str) -> None:
    """All of its checks on good and bad requests; they come from a fixed seed, so a failure can be repeated.

    But one: no schema tells how many numbers describe an action, or that ids differ.
    """
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    if mode == "negative" and not (operation.takes or operation.parameters):
        pytest.skip("nothing that could be wrong")
    cases = schema[operation.path][operation.method].as_strategy(generation_mode=GenerationMode(mode))

    @seed(SEED)
    @settings(
        max_examples=min(40, settings.default.max_examples // 6),  # 4, and 40 in `make test-all`
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def run(case: Any) -> None:
        for each in services:  # to make a case takes longer than to try it
            case.call_and_validate(base_url=each.url, excluded_checks=[positive_data_acceptance])

    run()


def narrowed(document: dict[str, Any], *, dimension: int | None) -> dict[str, Any]:
    """The document for an agent whose actions have so many numbers, or none and names."""
    document = copy.deepcopy(document)
    schemas = document["components"]["schemas"]
    request, action = schemas["DecisionRequest"], schemas["Action"]["properties"]
    request["properties"]["context"] = {"type": "null"}
    settings = schemas["AgentSettings"]  # of agents that are members of no federation
    del settings["properties"]["partners"]
    kinds = ("actions", "dimension", "features")
    settings["not"]["anyOf"].append({"properties": dict.fromkeys(kinds, False)})
    if dimension is None:
        request["properties"]["contexts"] = action["features"] = {"type": "null"}
        return document
    rows = request["properties"]["contexts"]["anyOf"][0]
    rows["items"] |= {"minItems": dimension, "maxItems": dimension}
    action["features"] = {"type": "array", **rows["items"]}
    schemas["Action"]["required"] = ["id", "features"]
    request["properties"]["actions"]["anyOf"][0]["items"] = {"$ref": "#/components/schemas/Action"}
    neither = {"properties": {name: {"type": "null"} for name in ("actions", "contexts")}}
    request["not"] = {"anyOf": [request["not"], neither]}
    return document


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [2, None], ids=["numbers", "names"])
def test_schemathesis_finds_nothing_in_minutes(
    services: list[Running], document: dict[str, Any], tmp_path: Path, dimension: int | None
) -> None:
    """All of its checks and phases, also calls that follow from others, on what one agent's document says."""
    service = services[0 if dimension else 1]
    (tmp_path / "openapi.json").write_text(json.dumps(narrowed(document, dimension=dimension)))
    command = [sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", service.url]
    left = "positive_data_acceptance,use_after_free"  # ours is in its place; who withdraws deletes nothing
    command += ["--checks", "all", "--exclude-checks", left]
    command += ["--max-time", "210", "--continue-on-failure", "--seed", "1", "--generation-database", "none"]
    command += ["--suppress-health-check", "all", "--warnings", "off"]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "openapi_checks",
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[1] / "support"), *sys.path)),
    }
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_integers_may_be_written_with_a_point(services: list[Running]) -> None:
    """They are integers to JSON Schema."""
    url = f"{services[1].url}/v1/decisions"
    for slots, status in (("1.0", 201), ("1e0", 201), ("1.5", 422), ("1e999", 422), ("NaN", 400)):
        made = httpx.post(url, content=f'{{"slots": {slots}}}', headers={"content-type": "application/json"})
        assert made.status_code == status, made.text


@pytest.mark.parametrize(
    ("name", "body", "fits"),
    [
        ("Reward", {"reward": 1}, True),
        ("Reward", {"rewards": {"a": 1}}, True),
        ("Reward", {}, False),
        ("Reward", {"reward": 1, "rewards": {"a": 1}}, False),
        ("DecisionRequest", {}, True),
        ("DecisionRequest", {"actions": ["a"], "contexts": None}, True),
        ("DecisionRequest", {"actions": ["a"], "contexts": [[1]]}, False),
        ("WithdrawalBatch", {"decision_ids": ["a", "a"]}, False),
        ("AgentSettings", {"actions": ["a"], "slots": [1, 0.5]}, True),
        ("AgentSettings", {"actions": ["a"], "slots": [0.5]}, False),
        ("AgentSettings", {"actions": ["a"], "dimension": 3}, False),
        ("AgentSettings", {"actions": ["a"], "delta": 0.1}, False),
        ("AgentSettings", {"actions": ["a"], "delta": 0.1, "epsilon": 1}, True),
        ("AgentSettings", {"actions": ["a"], "half_life": "30d"}, True),
        ("AgentSettings", {"actions": ["a"], "half_life": "soon"}, False),
        ("AgentSettings", {"actions": ["a"], "merit": "doubling:0.1"}, True),
        ("AgentSettings", {"actions": ["a"], "merit": "affine:offset=0.1,slope=2"}, True),
        ("AgentSettings", {"actions": ["a"], "merit": "best"}, False),
        ("AgentSettings", {"features": {"price": [0, 10], "city": ["Rome", "Oslo"]}}, True),
        ("AgentSettings", {"features": {"price": [0]}}, False),
    ],
)
def test_what_goes_together_is_in_the_document(
    document: dict[str, Any], name: str, body: dict[str, Any], fits: bool
) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    assert jsonschema.Draft202012Validator(schema).is_valid(body) == fits


def test_a_client_can_be_generated_from_the_document(
    services: list[Running], document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    (tmp_path / "config.yml").write_text("post_hooks: []")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json"]
    command += ["--output-path", "generated_client", "--meta", "none", "--config", "config.yml"]
    made = subprocess.run([*command, "--fail-on-warning"], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout
    monkeypatch.syspath_prepend(tmp_path)
    client: Any = importlib.import_module("generated_client")
    models: Any = importlib.import_module("generated_client.models")
    decide, reward = (
        importlib.import_module(f"generated_client.api.default.{name}") for name in ("decide", "reward")
    )
    service = services[1]
    with client.Client(base_url=service.url, verify_ssl=False) as connection:
        decision = decide.sync(client=connection, body=models.DecisionRequest(actions=["ann", "ben"]))
        assert decision.action_id in ("ann", "ben")
        answer = reward.sync_detailed(decision.decision_id, client=connection, body=models.Reward(reward=1.0))
        assert answer.status_code == 204
    found = httpx.get(f"{service.url}/v1/decisions/{decision.decision_id}", verify=False).json()
    assert found["status"] == "rewarded"

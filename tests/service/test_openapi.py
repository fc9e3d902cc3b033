"""The document says what the service does: schemathesis holds one against the other."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
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

"""The files in `deploy/`: valid by their schemas, true to the code, and the image's steps run.

There is no Docker here: `Image` reads the Dockerfile and runs its steps in a folder, with its paths below it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml
from check_jsonschema.cli import main as check_jsonschema

from fedfairx.cli.main import parser
from fedfairx.service.metrics import EDGES, METRICS
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.settings import PREFIX, Settings, table
from member_service import founded, member_of, rounds
from servers import missing
from service_helpers import asking, decide, until

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose.*.yaml"))
MANIFEST = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
RULES = DEPLOY / "prometheus" / "fedfairx.rules.yml"
POD = next(each for each in MANIFEST if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]


# --- schemas ---


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_compose_files_fit_the_specification(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        check_jsonschema(["--builtin-schema", "vendor.compose-spec", str(file)])
    assert done.value.code == 0, capsys.readouterr().out


@pytest.mark.parametrize("resource", MANIFEST, ids=lambda each: each["kind"])
def test_the_manifest_fits_kubernetes(resource: Any) -> None:
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    broken = json.loads(json.dumps(resource)) | {"speck": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


# --- the code ---


def commands() -> Iterator[str]:
    """Every `fedfairx …` that a file runs, and those that its comments and README.md tell to run."""
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            for found in re.findall(r"\bfedfairx (?:serve|keys|federate|warm)[^`\"\n&]*", file.read_text()):
                yield found.strip(" '#.")
    yield "fedfairx " + " ".join(json.loads(Image.read().command)[1:])


def test_commands_exist_with_their_flags() -> None:
    found = set(commands())
    assert len(found) >= 5
    for command in found:
        parser().parse_args(shlex.split(command)[1:])


def test_settings_exist() -> None:
    known = {f"{PREFIX}{each.name.upper()}" for each in table()}
    for file in (DEPLOY / "Dockerfile", DEPLOY / "kubernetes.yaml", *COMPOSE):
        assert set(re.findall(rf"\b{PREFIX}[A-Z_]+", file.read_text())) <= known, file.name


def test_probes_exist_and_need_no_key() -> None:
    """And the process has more time to end than its requests have."""
    service = POD["containers"][0]
    probes = [service[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")]
    assert probes == ["/readyz", "/readyz", "/healthz"]
    free = {operation.path for operation in OPERATIONS if operation.role is None}
    assert {*probes, *re.findall(r"8000(/\w+)", (DEPLOY / "Dockerfile").read_text())} <= free
    assert POD["terminationGracePeriodSeconds"] > Settings().shutdown_seconds


def test_nobody_is_root() -> None:
    image = Image.read()
    assert image.user == "10001"
    assert POD["securityContext"]["runAsUser"] == int(image.user)
    for container in (*POD["initContainers"], *POD["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


# --- alerts ---


def exported(text: str) -> set[str]:
    """The metrics that there are, also those that have no number yet."""
    return set(re.findall(r"^(?:# TYPE )?(fedfairx_\w+?)(?:\{.*\})? \S+$", text, re.MULTILINE))


def described_as_they_are(text: str) -> None:
    """The registry, and so the reference, has every metric, and each with its labels."""
    there = set(re.findall(r"^# TYPE fedfairx_(\w+)", text, re.MULTILINE))
    assert METRICS.keys() == there | {"federation_next_round_seconds"}  # once all members have accepted
    for name, labels in re.findall(r"^fedfairx_(\w+)\{(.*)\} \S+$", text, re.MULTILINE):
        if name.startswith("request_seconds"):  # a histogram's sum and count have no edge
            name, labels = "request_seconds", f'{labels},le=""'
        assert {*re.findall(r'(\w+)="', labels)} == {*METRICS[name].labels}, name
    for name in re.findall(r"^fedfairx_(\w+) \S+$", text, re.MULTILINE):
        assert not METRICS[name].labels, name


@pytest.mark.long
def test_alerts_are_about_metrics_that_there_are(tmp_path: Path) -> None:
    """Also each alert has a test, and every value of a label is one that the service writes."""
    rules = yaml.safe_load(RULES.read_text())
    alerts = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    with asking(str(tmp_path / "alone" / "agent.db"), control_share=0.4) as client:
        body = {"contexts": [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], "baseline": 0}
        made = [decide(client, **body) for _ in range(1)]
        batch = client.post("/v1/decisions/batch", json={"decisions": [body] * 149}).json()["decisions"]
        rewards = [{"decision_id": one["decision_id"], "reward": 0.5} for one in (*made, *batch)]
        assert client.post("/v1/rewards", json={"rewards": rewards}).status_code == 204
        alone = client.get("/metrics").text
    base = founded(tmp_path / "federation")
    with member_of(base / "org1") as client:
        rounds(client, 1)
        client.put("/v1/peers", json={"envelopes": {"nobody": "AAAA"}})
        member = client.get("/metrics").text
    names = ("org1", "org2", "org3")
    base = founded(tmp_path / "secure", names=names, aggregation="secure", schedule=None)
    with member_of(base / "org1") as client:
        secure = client.get("/metrics").text
    known = exported(alone) | exported(member) | exported(secure) | {"up"}
    described_as_they_are(alone + member + secure)
    named = {name for expr in alerts.values() for name in re.findall(r"\bfedfairx_\w+", expr)}
    assert named <= known
    tests = yaml.safe_load(RULES.with_name("fedfairx.test.yml").read_text())["tests"]
    tried = {case["alertname"] for test in tests for case in test["alert_rule_test"]}
    assert tried == alerts.keys()
    text = RULES.read_text()
    assert set(re.findall(r'operation="(\w+)"', text)) <= {operation.name for operation in OPERATIONS}
    for kind in re.findall(r'kind="(\w+)"', text):
        assert f'fedfairx_problems_total{{kind="{kind}"}}' in alone
    assert 0.25 in EDGES  # the limit of FedfairxSlow is the edge of a bucket


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["check", "rules", "fedfairx.rules.yml"],
        ["test", "rules", "fedfairx.test.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_promtool(words: list[str]) -> None:
    if shutil.which("promtool") is None:
        missing("promtool (Debian's package prometheus)")
    done = subprocess.run(["promtool", *words], cwd=RULES.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@pytest.mark.process
def test_promtool_accepts_the_metrics(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        missing("promtool (Debian's package prometheus)")
    with asking(str(tmp_path / "agent.db")) as client:
        decide(client)
        text = client.get("/metrics").text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- the image ---


class Image:
    """The steps of the Dockerfile."""

    def __init__(self, steps: list[tuple[str, str]]) -> None:
        self.steps = steps

    @classmethod
    def read(cls) -> Image:
        text = (DEPLOY / "Dockerfile").read_text()
        lines = [line for line in text.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
        return cls([(word, rest) for word, _, rest in (line.partition(" ") for line in lines)])

    def last(self, word: str) -> str:
        return [rest for each, rest in self.steps if each == word][-1]

    @property
    def user(self) -> str:
        return self.last("USER")

    @property
    def command(self) -> str:
        return self.last("CMD")

    def probe(self) -> list[str]:
        words: list[str] = json.loads(self.last("HEALTHCHECK").partition("CMD ")[2])
        return words

    def build(self, root: Path) -> dict[str, str]:
        """Run the steps below a folder, as this user; the environment of what runs in the image."""
        kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_"))}
        environment = kept | {"HOME": str(root / "home"), "PATH": os.environ["PATH"]}
        work = root
        for word, rest in self.steps:
            rest = re.sub(r"(?<![\w.])/(src|opt|data)\b", rf"{root}/\1", rest)
            if word == "WORKDIR":
                work = Path(rest)
                work.mkdir(parents=True, exist_ok=True)
            elif word == "ENV":
                for pair in shlex.split(rest):
                    name, _, value = pair.partition("=")
                    environment[name] = value.replace("$PATH", environment["PATH"])
            elif word == "COPY" and "--from" not in rest:
                *sources, target = rest.split()
                for source in sources:
                    if (DEPLOY.parent / source).is_dir():
                        shutil.copytree(DEPLOY.parent / source, work / target)
                    else:
                        shutil.copy(DEPLOY.parent / source, work / target)
            elif word == "RUN":
                if "useradd" in rest:  # it would change this machine
                    Path(root / "data").mkdir(mode=0o700)
                    continue
                rest = re.sub(r"^python ", f"{sys.executable} ", rest)
                subprocess.run(["sh", "-c", rest], cwd=work, env=environment, check=True)
        return environment


@pytest.mark.slow
@pytest.mark.process
def test_the_image_is_built_and_serves(tmp_path: Path) -> None:
    """Its steps in a clean folder: install, compile, create a key, serve, probe, decide, stop."""
    image = Image.read()
    environment = image.build(tmp_path)
    assert environment["FEDFAIRX_DATA"] == str(tmp_path / "data")
    refused = _run(json.loads(image.command), environment | {"FEDFAIRX_DIMENSION": "3"})
    assert "host must be loopback while there is no key" in refused.stderr
    _serve(image, environment | {"FEDFAIRX_DIMENSION": "3"}, {"contexts": [[0.1, 0.2, 0.3]] * 2}, tmp_path)
    named = {"FEDFAIRX_ACTIONS": "ann,ben", "FEDFAIRX_EPSILON": "2", "FEDFAIRX_DATA": str(tmp_path / "other")}
    _serve(image, environment | named, {}, tmp_path)


def _run(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, capture_output=True, text=True, cwd=environment["HOME"])


def _serve(image: Image, environment: dict[str, str], body: dict[str, Any], folder: Path) -> None:
    """Run the image's command: it compiles nothing, and its probe says when it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment |= {"FEDFAIRX_PORT": port}
    (folder / "admin-key").write_text(key := f"{'0a' * 6}.{'k' * 43}")
    create = ["fedfairx", "keys", "create", "--role", "admin", "--key-file", str(folder / "admin-key")]
    for _ in range(2):  # as at every start of a container
        done = _run(create, environment)
        assert done.returncode == 0, done.stderr
    with (folder / "log").open("w") as log:
        serving = subprocess.Popen(json.loads(image.command), env=environment, stderr=log, cwd=folder)
    try:
        probe = [word.replace("8000", port) for word in image.probe()]
        until(lambda: _run(probe, environment).returncode == 0 or serving.poll() is not None, seconds=120)
        headers, url = {"authorization": f"Bearer {key}"}, f"http://127.0.0.1:{port}/v1/decisions"
        assert httpx.post(url, json=body).status_code == 401
        assert httpx.post(url, json=body, headers=headers).status_code == 201
    finally:
        serving.terminate()
        serving.wait(60)
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert lines[0]["message"].startswith("fedfairx serves on http://0.0.0.0:")  # nothing was compiled
    assert serving.returncode == -signal.SIGTERM  # uvicorn repeats the signal once it has closed everything
    assert _run(probe, environment).returncode != 0

"""The files in `deploy/`: valid by their schemas, true to the code, and the image's steps run.

`Image` reads the Dockerfile and runs its steps in a folder, with its paths below it. Where there are Buildah
and a base image, or debootstrap to make one, the image itself is built, and a member runs in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml
from check_jsonschema.cli import main as check_jsonschema
from packaging.requirements import Requirement

from fedfairx.cli.main import parser
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import create_federation
from fedfairx.service.metrics import EDGES, METRICS
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.settings import PREFIX, Settings, table
from member_service import founded, member_of, rounds
from nats_server import NatsServer, free_port
from servers import missing
from service_helpers import asking, decide, until

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose.*.yaml"))
MANIFESTS = {
    file.name: list(yaml.safe_load_all(file.read_text())) for file in sorted(DEPLOY.glob("kubernetes*.yaml"))
}
MANIFEST = MANIFESTS["kubernetes.yaml"]
RULES = DEPLOY / "prometheus" / "fedfairx.rules.yml"
PODS = [
    each["spec"]["template"]["spec"]
    for manifest in MANIFESTS.values()
    for each in manifest
    if "template" in each["spec"]
]


# --- schemas ---


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_compose_files_fit_the_specification(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        check_jsonschema(["--builtin-schema", "vendor.compose-spec", str(file)])
    assert done.value.code == 0, capsys.readouterr().out


@pytest.mark.parametrize("resource", MANIFEST, ids=lambda each: each["kind"])
def test_manifests_fit_kubernetes(resource: Any) -> None:
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
    for file in (DEPLOY / "Dockerfile", *map(DEPLOY.joinpath, MANIFESTS), *COMPOSE):
        assert set(re.findall(rf"\b{PREFIX}[A-Z_]+", file.read_text())) <= known, file.name


@pytest.mark.parametrize("pod", PODS, ids=list(MANIFESTS))
def test_probes_exist_and_need_no_key(pod: Any) -> None:
    """And the process has more time to end than its requests have."""
    service = pod["containers"][0]
    probes = [service[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")]
    assert probes == ["/healthz", "/readyz", "/healthz"]  # one that waits must not be killed
    free = {operation.path for operation in OPERATIONS if operation.role is None}
    assert {*probes, *re.findall(r"8000(/\w+)", (DEPLOY / "Dockerfile").read_text())} <= free
    _, before = service.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ("sleep", "0"))
    assert pod["terminationGracePeriodSeconds"] > Settings().shutdown_seconds + int(before)


@pytest.mark.parametrize("pod", PODS, ids=list(MANIFESTS))
def test_nobody_is_root(pod: Any) -> None:
    image = Image.read()
    assert image.user == "10001"
    assert pod["securityContext"]["runAsUser"] == int(image.user)
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_member_in_a_container_can_write_its_database_and_its_vault() -> None:
    """Its folder is read-only there. A new volume is the user's only if the image has the folder."""
    compose = yaml.safe_load((DEPLOY / "compose.federation.yaml").read_text())
    (made,) = re.findall(
        r"install -d -o fedfairx -g fedfairx -m 700 (.*)", (DEPLOY / "Dockerfile").read_text()
    )
    (data,) = re.findall(r"FEDFAIRX_DATA=(\S+)", (DEPLOY / "Dockerfile").read_text())
    members = [each for name, each in compose["services"].items() if name.startswith("org")]
    assert len(members) == 3
    for member in members:
        mounts = {place: (source, mode) for source, place, *mode in (m.split(":") for m in member["volumes"])}
        assert mounts["/member"][1] == ["ro"]
        written = {data, member["environment"]["FEDFAIRX_VAULT"]}
        assert written == {*made.split()} == {*mounts} - {"/member"}
        assert all(mounts[place][0] in compose["volumes"] and not mounts[place][1] for place in written)


def test_kubernetes_leaves_the_mode_of_the_vault() -> None:
    """By default the group may read the files of a volume when a pod starts again; a vault is its owner's."""
    (pod,) = (each["spec"]["template"]["spec"] for each in MANIFEST if each["kind"] == "StatefulSet")
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    (place,) = (each["value"] for each in pod["containers"][0]["env"] if each["name"] == "FEDFAIRX_VAULT")
    assert place in {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}


def test_prometheus_asks_where_kubernetes_serves() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    service = next(each for each in MANIFEST if each["kind"] == "Service")
    (port,) = service["spec"]["ports"]
    assert target == f"{service['metadata']['name']}:{port['port']}"
    (pod,) = (each for each in MANIFEST if each["kind"] == "StatefulSet")
    (inside,) = pod["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert (port["targetPort"], inside["containerPort"]) == (inside["name"], Settings().port)
    assert service["metadata"]["annotations"]["prometheus.io/port"] == str(Settings().port)


def test_alerts_are_about_every_job_of_prometheus() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (jobs,) = set(re.findall(r"job=~?\"([^\"]*)\"", RULES.read_text()))
    for job in (*prometheus["scrape_configs"], {"job_name": "fedfairx-of-a-second-database"}):
        assert re.fullmatch(jobs, job["job_name"])


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
    operations = "|".join(re.findall(r'operation=~?"([\w|]+)"', text))
    assert set(operations.split("|")) <= {operation.name for operation in OPERATIONS}
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
    ids=" ".join,
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


def pinned(name: str) -> dict[str, str]:
    """The versions of a file that `make pins` writes; each has hashes."""
    text = (DEPLOY / name).read_text()
    found = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}\b", text, re.MULTILINE))
    assert len(found) == len(re.findall(r"^[^\s#]", text, re.MULTILINE))
    return found


def test_packages_of_the_image_are_pinned_as_the_project_allows() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    installed = [
        *project["project"]["dependencies"],
        *extras["service"],
        *extras["postgres"],
        *extras["nats"],
    ]
    for file, wanted in (
        ("requirements.txt", installed),
        ("build-requirements.txt", project["build-system"]["requires"]),
    ):
        versions = pinned(file)
        for requirement in map(Requirement, wanted):
            assert requirement.specifier.contains(versions[requirement.name]), requirement


def test_the_image_installs_nothing_without_a_hash() -> None:
    pip = [
        rest for word, rest in Image.read().steps if word == "RUN" and re.search(r"pip (install|wheel)", rest)
    ]
    assert len(pip) == 4
    assert all("--require-hashes" in step or "--no-deps" in step for step in pip)
    (wheel,) = (step for step in pip if "pip wheel" in step)
    assert "--no-build-isolation" in wheel  # which would download its own


DIGESTED = [DEPLOY / name for name in ("Dockerfile", "compose.service.yaml", "compose.federation.yaml")]


def images(text: str) -> list[str]:
    """The images of others that a file of `deploy/` starts from."""
    found = re.findall(r"^(?:FROM|\s+(?:-\s+)?image:) (?:&\S+ )?([^\s*]\S*)", text, re.MULTILINE)
    return [each for each in found if each.partition(":")[0] != "fedfairx"]


def test_images_are_pinned_by_digest() -> None:
    found = {path: images(path.read_text()) for path in DEPLOY.rglob("*") if path.is_file()}
    pinned = {path for path, each in found.items() if each}
    assert pinned == {*DIGESTED}
    for each in (image for path in pinned for image in found[path]):
        assert re.fullmatch(r"[a-z]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", each)


@pytest.mark.process
def test_one_command_renews_digests(tmp_path: Path) -> None:
    """It asks for each image's tag once, and writes nothing if there is no answer."""
    (tmp_path / "deploy").mkdir()
    for path in (*DIGESTED, DEPLOY.parent / "Makefile"):
        shutil.copy(path, tmp_path / path.relative_to(DEPLOY.parent))
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$*" >> asked\necho "sha256:$(echo "$4" | sha256sum | cut -c -64)"\n')
    docker.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    make = ["make", "digests"]
    subprocess.run(make, cwd=tmp_path, env=environment, check=True, capture_output=True)
    named = {each.partition("@")[0] for path in DIGESTED for each in images(path.read_text())}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [
        f"buildx imagetools inspect {each} --format {{{{.Manifest.Digest}}}}" for each in sorted(named)
    ]
    for path in DIGESTED:
        text = (tmp_path / "deploy" / path.name).read_text()
        for each in images(text):
            name, _, digest = each.partition("@")
            assert digest == f"sha256:{hashlib.sha256(f'{name}{chr(10)}'.encode()).hexdigest()}"
    renewed = [(tmp_path / "deploy" / path.name).read_text() for path in DIGESTED]
    docker.write_text("#!/bin/sh\nexit 1\n")
    assert subprocess.run(make, cwd=tmp_path, env=environment, capture_output=True).returncode != 0
    assert [(tmp_path / "deploy" / path.name).read_text() for path in DIGESTED] == renewed


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
    (tmp_path / "other").mkdir(mode=0o700)
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


# --- the image by Buildah ---

CERTIFICATES = "/etc/ssl/certs"  # of authorities that this machine trusts, for downloads


class Buildah:
    """Buildah with images and containers of its own; all that runs has this machine's network."""

    def __init__(self, folder: Path) -> None:
        self._words = ["buildah", "--root", f"{folder}/images", "--runroot", f"{folder}/run"]

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self._words, *words], capture_output=True, text=True, cwd=DEPLOY.parent)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def base(self, name: str, folder: Path) -> str:
        """Get the base image from a registry; else make one from Debian's packages, by its tag alone."""
        pulled = subprocess.run(
            [*self._words, "pull", "-q", f"docker.io/library/{name}"], capture_output=True
        )
        if pulled.returncode == 0:
            return name
        name = name.partition("@")[0]
        if shutil.which("debootstrap") is None:
            pytest.skip(f"no registry has {name} for this machine, and there is no debootstrap to make it")
        packages = "--include=python3,python3-venv,ca-certificates"
        command = ["debootstrap", "--variant=minbase", packages, "bookworm", str(folder)]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(
                f"no registry has {name} for this machine, nor a mirror of Debian: {made.stdout[-300:]}"
            )
        (folder / "usr" / "bin" / "python").symlink_to("python3")
        container = self("from", "scratch")
        self("add", "-q", container, str(folder), "/")
        self("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", container)
        self("commit", "-q", container, f"docker.io/library/{name}")
        self("rm", container)
        return name

    def run(self, container: str, mounts: list[str], environment: dict[str, str], *words: str) -> list[str]:
        """The command that runs words in a container, as the image's user."""
        options = [f"--volume={mount}" for mount in mounts]
        options += [f"--env={name}={value}" for name, value in environment.items()]
        return [*self._words, "run", "--isolation=chroot", *options, container, "--", *words]


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder for images: other temporary ones may be in memory, or allow no devices."""
    folder = Path(tempfile.mkdtemp(prefix="fedfairx-image-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.process
def test_an_opener_runs_in_the_image_with_its_folder_read_only(tmp_path: Path, on_disk: Path) -> None:
    """As compose.federation.yaml runs it, with secure aggregation and a real hub."""
    if shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("there is no Buildah here, or it is not run by root, and this test needs it")
    buildah, image = Buildah(on_disk / "buildah"), Image.read()
    named, dockerfile = image.steps[0][1].split()[0], on_disk / "Dockerfile"
    there = buildah.base(named, on_disk / "root")
    dockerfile.write_text((DEPLOY / "Dockerfile").read_text().replace(named, there))
    trusted = [f"--volume={path}:{path}:ro" for path in (CERTIFICATES, "/etc/resolv.conf")]
    buildah("bud", "--isolation=chroot", "--pull-never", "--format=docker", *trusted, "-t", "fedfairx",
            "-f", str(dockerfile), "--ignorefile", "deploy/Dockerfile.dockerignore", ".")  # fmt: skip
    container = buildah("from", "fedfairx")
    hub_port, port, base = free_port(), free_port(), tmp_path / "federation"
    members = dict.fromkeys(("org1", "org2", "org3"))
    hourly = Rounds(begin=int(time.time()), first=3600, ratio=1, count=10)
    terms = Terms(dimension=3, agents=3, horizon=100, epsilon=2.0, aggregation="secure", rounds=hourly)
    create_federation(base, terms, members, hosts=["127.0.0.1"], port=hub_port, confirm=True)
    compose = yaml.safe_load((DEPLOY / "compose.federation.yaml").read_text())["services"]["org1"]
    (tmp_path / "admin-key").write_text(f"{'0a' * 6}.{'k' * 43}")
    mounts = [f"{base}/org1:/member:ro", f"{tmp_path}/admin-key:/run/secrets/admin-key:ro"]
    for name in ("data", "vault"):
        (tmp_path / name).mkdir(mode=0o700)
        mounts.append(f"{tmp_path / name}:/{name}")
    for path in (
        base,
        base / "org1",
        *(base / "org1").iterdir(),
        *map(tmp_path.joinpath, ("admin-key", "data", "vault")),
    ):
        os.chown(path, int(image.user), int(image.user))
    tmp_path.chmod(0o755)
    environment = {"FEDFAIRX_PORT": str(port)}
    refused = subprocess.run(
        buildah.run(container, mounts, environment, *compose["command"]), capture_output=True, text=True
    )
    assert refused.returncode == 2, refused.stderr
    assert "vault must be a folder that this opener can write to (Read-only file system)" in refused.stderr
    hub = NatsServer.of(base / "hub" / "nats-server.conf", hub_port).start()
    environment |= compose["environment"]
    with (tmp_path / "log").open("w") as log:
        words = buildah.run(container, mounts, environment, *compose["command"])
        running = subprocess.Popen(words, stderr=log, start_new_session=True)
    try:
        hub.make_bucket_in(base / "hub")
        probe = [word.replace("8000", str(port)) for word in image.probe()]
        asked = buildah.run(container, mounts, {}, *probe)
        until(lambda: subprocess.run(asked, capture_output=True).returncode == 0, seconds=60)
        headers = {"authorization": f"Bearer {(tmp_path / 'admin-key').read_text()}"}
        url = f"http://127.0.0.1:{port}/v1/sync"
        until(lambda: httpx.get(url, headers=headers).json()["trouble"] is None, seconds=30)
        vault = tmp_path / "vault" / "org1.vault"
        assert (vault.stat().st_uid, vault.stat().st_mode & 0o777) == (int(image.user), 0o600)
        check = buildah.run(
            container, mounts, compose["environment"], "fedfairx", "federate", "check", "/member"
        )
        done = subprocess.run(check, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + (tmp_path / "log").read_text()
        assert "ok     org1: can open totals with org1.vault" in done.stdout
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(60)
        hub.kill()
        buildah("rm", "--all")
        buildah("rmi", "--all", "--force")

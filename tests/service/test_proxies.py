"""What happens behind a proxy that knows nothing but the address of the service, with a key and without.

docs/howto/deploy-a-service.md has the table. A proxy that is not installed is skipped.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from test_auth import bearer, new_key

from nats_server import free_port
from servers import missing
from service_helpers import Running, until

pytestmark = pytest.mark.process
OUTSIDE = "fair.example.org"  # the host that callers name


def nginx(folder: Path, port: int, service: str, more: str = "") -> list[str]:
    places = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    server = f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{service}; {more} }} }}"
    head = f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}"
    (folder / "conf").write_text(f"{head} http {{ access_log off; {places} {server} }}")
    return ["nginx", "-c", f"{folder}/conf"]


def nginx_by_http_1_1(folder: Path, port: int, service: str) -> list[str]:
    return nginx(folder, port, service, "proxy_http_version 1.1;")


def apache2(folder: Path, port: int, service: str) -> list[str]:
    modules = "\n".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so"
        for name in ("mpm_event", "authz_core", "proxy", "proxy_http")
    )
    files = f"ServerRoot {folder}\nPidFile {folder}/pid\nErrorLog {folder}/log\nMutex file:{folder}"
    user = "User www-data\nGroup www-data" if os.geteuid() == 0 else ""
    (folder / "conf").write_text(
        f"{files}\nServerName {OUTSIDE}\nListen 127.0.0.1:{port}\n{modules}\n{user}\nProxyPass / http://{service}/\n"
    )
    return ["apache2", "-f", f"{folder}/conf", "-DFOREGROUND"]


def haproxy(folder: Path, port: int, service: str) -> list[str]:
    (folder / "conf").write_text(
        "defaults\n mode http\n timeout connect 5s\n timeout client 9s\n timeout server 9s\n"
        f"frontend outside\n bind 127.0.0.1:{port}\n default_backend fair\n"
        f"backend fair\n server fair {service}\n"
    )
    return ["haproxy", "-db", "-f", f"{folder}/conf"]


def caddy(folder: Path, port: int, service: str) -> list[str]:
    (folder / "conf").write_text(
        f"{{\n admin off\n auto_https off\n}}\nhttp://:{port} {{\n reverse_proxy {service}\n}}\n"
    )
    return ["caddy", "run", "--adapter", "caddyfile", "--config", f"{folder}/conf"]


Proxy = Callable[[Path, int, str], list[str]]
PROXIES: list[Proxy] = [nginx, nginx_by_http_1_1, apache2, haproxy, caddy]
#: Proxies behind which a caller who names this host can't be told from a program on this machine.
NOT_TOLD = {(nginx_by_http_1_1, OUTSIDE), (nginx_by_http_1_1, "localhost"), (haproxy, "localhost")}


@contextmanager
def before(service: str, proxy: Proxy, folder: Path) -> Iterator[str]:
    """The address of a proxy before a service."""
    folder.mkdir(mode=0o755)
    port = free_port()
    words = proxy(folder, port, service.removeprefix("http://"))
    if shutil.which(words[0]) is None:
        if words[0] == "nginx":
            missing("nginx")
        pytest.skip(f"{words[0]} is not installed here")
    home = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    running = subprocess.Popen(words, env=home, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def listens() -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens, seconds=30)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)


@pytest.mark.parametrize("proxy", PROXIES, ids=lambda each: each.__name__)
def test_what_a_proxy_passes_on(tmp_path: Path, proxy: Proxy) -> None:
    running = Running(str(tmp_path / "data" / "agent.db"), "--dimension", "3")
    try:
        with before(running.url, proxy, tmp_path / "proxy") as url, httpx.Client(base_url=url) as http:
            for host in (OUTSIDE, "localhost"):
                told = (proxy, host) not in NOT_TOLD
                headers = {"host": host}
                assert http.get("/healthz", headers=headers).status_code == 200
                for answer in (
                    http.get("/v1/export", headers=headers),
                    http.put("/v1/agents/evil", headers=headers, json={"dimension": 2}),
                    http.get("/", headers=headers),
                ):
                    assert (answer.status_code == 403) == told, (proxy.__name__, host)
            if proxy is nginx:
                problem = http.get("/v1/export").json()
                assert "HTTP/1.1 while there is no key" in problem["detail"]
                assert "fedfairx keys create --role admin" in problem["remedy"]
            key = new_key(str(tmp_path / "data" / "agent.db"), "admin")
            until(lambda: http.get("/v1/export", headers={"host": "localhost"}).status_code == 401)
            for host in (OUTSIDE, "localhost"):
                assert http.get("/v1/export", headers={"host": host}).status_code == 401
                admitted = http.get("/v1/export", headers={"host": host} | bearer(key))
                assert admitted.status_code == 200
    finally:
        running.stop()


def test_the_first_minute_is_one_command(tmp_path: Path) -> None:
    """No key is needed by who asks directly, and the start says when one is."""
    running = Running(str(tmp_path / "data" / "agent.db"), "--dimension", "3")
    try:
        assert httpx.get(f"{running.url}/v1/export").status_code == 200
        assert "`fedfairx keys create --role admin --data" in running.said
        assert "makes one, before any proxy" in running.said
    finally:
        running.stop()

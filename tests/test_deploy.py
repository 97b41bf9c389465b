"""What `deploy/` says of the application is so: settings, ports, paths, users and times."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from proxy import config as configs
from proxy.app import create_app
from proxy.config.schema import Config
from proxy.stores.urls import Backend, parse
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import body, user
from tests.proxy.proxied import post
from tests.proxy.replicas import Replica

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CONFIGS = (DEPLOY / "config.yaml", KUBERNETES / "config.yaml")
IMAGE_USER = int(re.findall(r"^USER (\d+):", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0])


def documents(path: Path) -> Iterator[dict[str, Any]]:
    yield from (each for each in yaml.safe_load_all(path.read_text()) if each is not None)


MANIFESTS = {
    (each["kind"], each["metadata"]["name"]): each
    for path in KUBERNETES.glob("*.yaml")
    if path.name not in ("kustomization.yaml", "config.yaml")
    for each in documents(path)
}
KUSTOMIZATION = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
BALANCER = (DEPLOY / "haproxy.cfg").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
POD = MANIFESTS["Deployment", "trimtab"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
PROXIES = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "trimtab"}


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


# -- the configurations


@pytest.fixture(params=CONFIGS, ids=["compose", "kubernetes"])
def config(request: pytest.FixtureRequest) -> Config:
    return configs.load(request.param)


def test_a_configuration_is_one_of_several_machines(config: Config) -> None:
    assert parse(config.state).backend in (Backend.REDIS, Backend.CLUSTER)
    assert config.state_key_env, "each machine would make a key of its own while the store is down"
    assert config.server.host == "0.0.0.0"
    assert config.server.workers == 1
    assert config.audit.path == ("-",), "the file system is read-only"
    assert configs.unset_variables(config, {"TRIMTAB_STATE_KEY": "a key"}) == ()


async def test_what_is_asked_of_the_application_is_there(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready although the store is not to be reached: a restart of it takes no proxy out of service."""
    away = config.model_copy(update={"state": f"redis://127.0.0.1:{_free_port()}/0"})
    app = create_app(away, {"TRIMTAB_STATE_KEY": "a key"})
    transport = httpx2.ASGITransport(app)
    paths = {CONTAINER[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    paths |= {POD["metadata"]["annotations"]["prometheus.io/path"], "/readyz"}
    paths |= set(re.findall(r"option httpchk GET (\S+)", BALANCER))

    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://trimtab.test") as client,
    ):
        assert {path: (await client.get(path)).status_code for path in paths} == dict.fromkeys(paths, 200)
    async with httpx2.AsyncClient(transport=transport, base_url="http://trimtab.test") as client:
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200


# -- Kubernetes


def test_every_manifest_is_applied() -> None:
    there = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    generated = {file for each in KUSTOMIZATION["configMapGenerator"] for file in each["files"]}

    assert there == {*KUSTOMIZATION["resources"], *generated}
    assert [each["name"] for each in KUSTOMIZATION["images"]] == [CONTAINER["image"]]


def test_the_pod_reads_the_configuration_that_is_generated() -> None:
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    volumes = {each["name"]: each for each in POD["spec"]["volumes"]}
    mounts = {each["mountPath"]: volumes[each["name"]] for each in CONTAINER["volumeMounts"]}
    command, _, path = CONTAINER["args"]

    assert command == "serve"
    assert mounts[str(Path(path).parent)]["configMap"]["name"] == generated["name"]
    assert Path(path).name in generated["files"]


def test_ports_and_probes_are_those_of_the_application() -> None:
    config = configs.load(KUBERNETES / "config.yaml")
    (port,) = CONTAINER["ports"]
    service = MANIFESTS["Service", "trimtab"]["spec"]

    assert port["containerPort"] == config.server.port == int(POD["metadata"]["annotations"]["prometheus.io/port"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert CONTAINER[probe]["httpGet"]["port"] == port["name"]
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/healthz", "draining is no reason to be killed"
    assert [each["targetPort"] for each in service["ports"]] == [port["name"]]


def test_a_pod_has_the_time_to_drain() -> None:
    config = configs.load(KUBERNETES / "config.yaml")
    (_, before) = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]

    assert int(before) >= CONTAINER["readinessProbe"]["periodSeconds"]
    assert POD["spec"]["terminationGracePeriodSeconds"] >= int(before) + config.server.drain_s + 10


def test_a_pod_may_do_nothing_but_serve() -> None:
    for name in ("trimtab", "trimtab-valkey"):
        spec = MANIFESTS["Deployment", name]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        own = container["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)
        assert own["capabilities"] == {"drop": ["ALL"]}
    assert POD["spec"]["securityContext"]["runAsUser"] == IMAGE_USER


def test_the_state_key_comes_from_a_secret() -> None:
    config = configs.load(KUBERNETES / "config.yaml")
    (variable,) = CONTAINER["env"]

    assert variable["name"] == config.state_key_env
    assert set(variable["valueFrom"]) == {"secretKeyRef"}
    secret = variable["valueFrom"]["secretKeyRef"]
    created = f"kubectl create secret generic {secret['name']} --from-literal={secret['key']}="
    assert created in (KUBERNETES / "kustomization.yaml").read_text()
    assert created in (DEPLOY / "README.md").read_text()


def test_the_store_is_where_the_configuration_looks_for_it() -> None:
    state = configs.load(KUBERNETES / "config.yaml").state
    host, port = re.findall(r"redis://([^:/]+):(\d+)", state)[0]
    service = MANIFESTS["Service", host]["spec"]
    store = MANIFESTS["Deployment", host]["spec"]["template"]
    (ports,) = store["spec"]["containers"][0]["ports"]

    assert [(each["port"], each["targetPort"]) for each in service["ports"]] == [(int(port), ports["name"])]
    assert ports["containerPort"] == int(port)


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler"])
def test_selectors_find_their_pods(kind: str) -> None:
    labels = {
        name: each["spec"]["template"]["metadata"]["labels"]
        for (of, name), each in MANIFESTS.items()
        if of == "Deployment"
    }
    checked = [each for (of, _), each in MANIFESTS.items() if of == kind]

    assert checked
    for each in checked:
        spec, name = each["spec"], each["metadata"]["name"]
        if kind == "HorizontalPodAutoscaler":
            assert spec["scaleTargetRef"]["name"] in labels
            assert spec["minReplicas"] >= 2
            assert "replicas" not in MANIFESTS["Deployment", name]["spec"], "the autoscaler's business"
            continue
        selector = spec.get("podSelector", spec.get("selector"))
        assert (selector.get("matchLabels") or selector).items() <= labels[name].items()


# -- compose


def test_two_proxies_are_composed_with_what_they_need() -> None:
    config = configs.load(DEPLOY / "config.yaml")

    assert len(PROXIES) == 2
    for service in PROXIES.values():
        command, option, path = service["command"]
        mounted = dict(each.split(":")[:2] for each in service["volumes"])
        assert (command, option) == ("serve", "--config")
        assert mounted == {"./config.yaml": path}
        assert (DEPLOY / service["build"] / "Dockerfile").exists()
        assert service["expose"] == [str(config.server.port)]
        assert list(service["environment"]) == [config.state_key_env]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert seconds(service["stop_grace_period"]) >= config.server.drain_s + 10
    host = re.findall(r"redis://([^:/]+)", config.state)[0]
    assert host in COMPOSE["services"]


def test_every_file_that_is_mounted_is_there() -> None:
    mounted = [each.split(":")[0] for service in COMPOSE["services"].values() for each in service.get("volumes", ())]

    assert mounted
    assert [each for each in mounted if not (DEPLOY / each).is_file()] == []


def test_the_balancer_and_prometheus_know_both_proxies() -> None:
    port = configs.load(DEPLOY / "config.yaml").server.port
    wanted = {f"{name}:{port}" for name in PROXIES}
    balanced = re.findall(r"^    server \w+ (\S+)$", BALANCER, re.MULTILINE)
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]

    assert set(balanced) == wanted
    assert {target for each in job["static_configs"] for target in each["targets"]} == wanted


def test_the_balancer_waits_longer_than_the_proxies() -> None:
    config = configs.load(DEPLOY / "config.yaml")
    times = {side: int(found) for side, found in re.findall(r"timeout (client|server) (\d+)s", BALANCER)}

    assert set(times) == {"client", "server"}
    assert min(times.values()) > max(upstream.idle_timeout_s for upstream in config.upstreams.values())
    assert int(re.findall(r"hard-stop-after (\d+)s", BALANCER)[0]) >= config.server.drain_s
    assert seconds(COMPOSE["services"]["balancer"]["stop_grace_period"]) > config.server.drain_s


# -- the balancer at work, where it is installed


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def balanced(folder: Path, replicas: list[Replica]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of HAProxy under haproxy.cfg, in front of these proxies."""
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if haproxy is None:
        pytest.skip("no haproxy on this machine")
    port = _free_port()
    text = BALANCER.replace("bind :8080", f"bind 127.0.0.1:{port}").replace("resolvers docker init-addr", "init-addr")
    for name, replica in zip(PROXIES, replicas, strict=True):
        text = text.replace(f"{name}:8080", f"127.0.0.1:{replica.port}")
    (folder / "haproxy.cfg").write_text(text)
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([haproxy, "-f", str(folder / "haproxy.cfg")], stdout=log, stderr=log)  # noqa: ASYNC220
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client:
            async with asyncio.timeout(10):
                while True:
                    try:
                        await client.get("/healthz")
                        break
                    except httpx2.TransportError:
                        await asyncio.sleep(0.05)
            yield client
    finally:
        process.kill()
        process.wait()


async def test_a_proxy_that_stops_costs_no_request_and_no_stream(tmp_path: Path, upstream: FakeUpstream) -> None:
    go_on = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        if not exchange.json.get("stream"):
            await exchange.answer(b'{"choices": []}', 200, ("Content-Type", "application/json"))
            return
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(b"data: {}\n\n")
        await go_on.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.chunk(b"")

    upstream.handler = answer
    settings = f"server: {{drain_s: 20}}\nstate: 'sqlite:///{tmp_path}/state.db'"
    made = [Replica(tmp_path / name, settings, upstream=upstream.url, command=("--workers", "1")) for name in PROXIES]
    try:
        await asyncio.gather(*(replica.start() for replica in made))
        async with balanced(tmp_path, made) as client:
            assert (await client.get("/metrics")).status_code == 404
            stream = client.stream("POST", "/v1/chat/completions", content=body([user("hello")], stream=True))
            async with stream as response:
                pieces = response.aiter_raw()
                async with asyncio.timeout(5):
                    assert await anext(pieces) == b"data: {}\n\n", "at once, and not when the stream has ended"
                assert made[0].process is not None
                made[0].process.terminate()
                answers = [(await post(client, body([user(f"hello {n}")]))).status_code for n in range(300)]
                go_on.set()
                assert b"".join([piece async for piece in pieces]) == b"data: [DONE]\n\n"
        assert answers == [200] * 300
    finally:
        for replica in made:
            replica.stop()

"""cdigen uses a kubeconfig, or refuses the kubeconfig in one line with the unsupported key."""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.abilities import cannot_run
from support.kubernetes.api_server import ApiServer
from support.kubernetes.certificates import made
from support.kubernetes.cluster_model import cluster_of
from support.kubernetes.gpu_memory_pods import node_object
from support.waiting import PATIENCE_S

from cdigen.kubeapi.calls import UNKNOWN, Call
from cdigen.kubeapi.client import ApiStatusError, Client
from cdigen.kubeapi.credentials import MAX_KUBECONFIG, ApiServerConfig, from_kubeconfig, in_cluster
from cdigen.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE = Call(method="GET", path="/api/v1/nodes/node1")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(cluster_of(node_object())) as found:
        yield found


def config(
    folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None, *, current: str | None = "c"
) -> str:
    """Write a kubeconfig with CLUSTER, USER and other entries; return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [
            {"name": "other", "context": {"cluster": "nowhere", "user": "unused"}},
            {
                "name": "c",
                "context": {"cluster": "k", "namespace": "team", **({"user": "u"} if user else {})},
            },
        ],
        "clusters": [
            {"name": "nowhere", "cluster": {"server": "https://203.0.113.1"}},
            {"name": "k", "cluster": {"server": "https://[::1]:6443/prefix/", **cluster}},
        ],
        "users": [{"name": "unused", "user": {"exec": {}}}, {"name": "u", "user": user}],
    }
    (folder / "config").write_text(json.dumps(document))
    return str(folder / "config")


def status_of(found: ApiServerConfig) -> int:
    client = Client(found, timeout_s=PATIENCE_S)
    try:
        return client.send(NODE).status
    finally:
        client.close()


def secured(server: ApiServer, files: tuple[str, str], clients: str | None = None) -> str:
    """Make SERVER use TLS, with client certificates of the CA CLIENTS if it is set; return the URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return f"https://127.0.0.1:{server.server_address[1]}"


def encoded(path: str) -> str:
    return base64.b64encode(Path(path).read_bytes()).decode()


def joined(files: tuple[str, str]) -> str:
    return "".join(Path(file).read_text() for file in files)


def test_the_current_context_is_used(tmp_path: Path) -> None:
    found = from_kubeconfig(config(tmp_path, {"insecure-skip-tls-verify": True}, {"token": "abc"}))
    assert (found.host, found.port, found.prefix) == ("::1", 6443, "/prefix")
    assert (found.token(), found.namespace) == ("abc", "team")
    assert found.tls is not None
    assert found.tls().verify_mode == ssl.CERT_NONE


def test_a_server_without_tls_is_used(server: ApiServer, tmp_path: Path) -> None:
    assert status_of(from_kubeconfig(str(server.kubeconfig(tmp_path / "config")))) == 200


def test_a_server_with_an_ipv6_address_is_used(tmp_path: Path) -> None:
    if not socket.has_dualstack_ipv6():
        cannot_run("there is no IPv6")

    class Six(ApiServer):
        address_family = socket.AF_INET6

        def server_bind(self) -> None:
            self.server_address = ("::1", 0)
            super().server_bind()

    try:
        server = Six(cluster_of(node_object()))
    except OSError:
        cannot_run("there is no IPv6 loopback")
    with server:
        address = f"http://[::1]:{server.server_address[1]}"
        assert status_of(from_kubeconfig(config(tmp_path, {"server": address}, {"token": "secret"}))) == 200


def test_certificates_in_files_and_in_inline_data_are_used(server: ApiServer, tmp_path: Path) -> None:
    own, client = made(tmp_path, "server"), made(tmp_path, "client")
    address = secured(server, own, clients=client[0])
    named = config(
        tmp_path,
        {"server": address, "certificate-authority": "server.crt"},
        {"token": "secret", "client-certificate": "client.crt", "client-key": "client.key"},
    )
    assert status_of(from_kubeconfig(named)) == 200
    inline = config(
        tmp_path,
        {"server": address, "certificate-authority-data": encoded(own[0])},
        {
            "token": "secret",
            "client-certificate-data": encoded(client[0]) + "\n",
            "client-key-data": encoded(client[1]),
        },
    )
    found = from_kubeconfig(inline)
    for file in (*own, *client):
        Path(file).unlink()
    assert status_of(found) == 200


def test_a_replaced_client_certificate_is_used(server: ApiServer, tmp_path: Path) -> None:
    own, old, new = (made(tmp_path, name) for name in ("server", "old", "new"))
    address = secured(server, own, clients=new[0])
    pair = tmp_path / "current.pem"
    pair.write_text(joined(old))
    both = {"token": "secret", "client-certificate": str(pair), "client-key": str(pair)}
    found = from_kubeconfig(
        config(tmp_path, {"server": address, "certificate-authority": "server.crt"}, both)
    )
    assert status_of(found) == 0
    pair.write_text(joined(new))
    assert status_of(found) == 200


def test_a_certificate_for_another_name_needs_tls_server_name_or_insecure_skip_tls_verify(
    server: ApiServer, tmp_path: Path
) -> None:
    address = secured(server, made(tmp_path, "server", "DNS:api.example"))
    cluster = {"server": address, "certificate-authority": "server.crt"}
    assert status_of(from_kubeconfig(config(tmp_path, cluster, {"token": "secret"}))) == 0
    cluster["tls-server-name"] = "api.example"
    assert status_of(from_kubeconfig(config(tmp_path, cluster, {"token": "secret"}))) == 200
    del cluster["tls-server-name"]
    skipping = cluster | {"insecure-skip-tls-verify": True}
    assert status_of(from_kubeconfig(config(tmp_path, skipping, {"token": "secret"}))) == 200


def test_a_token_file_has_precedence_over_a_token_and_is_read_again(
    server: ApiServer, tmp_path: Path
) -> None:
    (tmp_path / "t").write_text("old\n")
    cluster = {"server": f"http://127.0.0.1:{server.server_address[1]}"}
    found = from_kubeconfig(config(tmp_path, cluster, {"token": "x", "tokenFile": "t"}))
    assert status_of(found) == 401
    (tmp_path / "t").write_text("secret\n")
    assert status_of(found) == 200


def test_a_pod_uses_its_service_account(server: ApiServer, tmp_path: Path) -> None:
    address = secured(server, made(tmp_path, "ca"))
    (tmp_path / "namespace").write_text("gpus\n")
    (tmp_path / "token").write_text("secret")
    port = address.rpartition(":")[2]
    found = in_cluster(
        str(tmp_path), {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    )
    assert found.namespace == "gpus"
    assert status_of(found) == 200


@pytest.mark.parametrize(
    ("cluster", "user", "problem"),
    [
        ({}, {"exec": {"command": "aws"}}, "'exec' is not supported"),
        ({}, {"auth-provider": {"name": "gcp"}}, "'auth-provider' is not supported"),
        ({}, {"username": "a", "password": "b"}, "'username' is not supported"),
        ({}, {"token": "a", "as": "admin"}, "'as' is not supported"),
        ({"proxy-url": "http://proxy:3128"}, {"token": "a"}, "'proxy-url' is not supported"),
        ({"server": "api.example:6443"}, {"token": "a"}, "not an http:// or https:// URL"),
        ({"server": "https://x:99999"}, {"token": "a"}, "Port out of range"),
        ({"certificate-authority": "nothing.crt"}, {"token": "a"}, "No such file"),
        ({"certificate-authority-data": "%%%"}, {"token": "a"}, "certificate-authority-data: "),
        ({"certificate-authority-data": "aGVsbG8="}, {"token": "a"}, "certificate-authority: "),
        ({"insecure-skip-tls-verify": True}, {"client-certificate-data": "aGVsbG8="}, "needs both"),
        ({"insecure-skip-tls-verify": True}, {"token": "a\nb"}, "has invalid characters"),
    ],
)
def test_the_error_for_an_unsupported_or_invalid_key_names_the_key(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        from_kubeconfig(config(tmp_path, cluster, user))
    assert problem in error.value.message
    assert str(tmp_path) in error.value.message


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "current-context: c", "a: [\n b", "a: !!python/name:os.x"]
)
def test_an_invalid_kubeconfig_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        from_kubeconfig(str(file))
    assert str(file) in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize("current", [None, "", "third"])
def test_a_missing_context_is_an_error(tmp_path: Path, current: str | None) -> None:
    with pytest.raises(ConfigError, match=r"contexts"):
        from_kubeconfig(config(tmp_path, {}, {"token": "a"}, current=current))


def test_a_replaced_kubeconfig_is_read_again(server: ApiServer, tmp_path: Path) -> None:
    file = server.kubeconfig(tmp_path / "rotated")
    client = Client(from_kubeconfig(str(file)), timeout_s=PATIENCE_S)
    call = Call(method="GET", path="/api/v1/nodes")
    assert client.send(call).is_done
    server.token = "another"
    assert client.send(call).status == 401
    file.write_text("torn: [")
    assert client.send(call).status == 401
    server.kubeconfig(file)
    assert client.send(call).is_done
    server.token = "a third"
    server.kubeconfig(file)
    with pytest.raises(ApiStatusError):
        client.lines("/api/v1/nodes?watch=1&resourceVersion=0", 5.0)
    lines: Any = client.lines("/api/v1/nodes?watch=1&resourceVersion=0", 5.0)
    with closing(lines):
        assert next(lines)
    client.close()


def test_a_kubeconfig_with_a_new_server_is_used(server: ApiServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    file = server.kubeconfig(tmp_path / "moved")
    text = file.read_text()
    file.write_text(text.replace(str(server.server_address[1]), str(port)))
    client = Client(from_kubeconfig(str(file)), timeout_s=PATIENCE_S)
    call = Call(method="POST", path="/api/v1/namespaces/default/pods", body={"metadata": {"name": "x"}})
    assert client.send(call).status == UNKNOWN
    file.write_text(text)
    assert client.send(call).status == UNKNOWN  # after this failure, the client reads the kubeconfig again
    assert client.send(call).is_done
    client.close()


BOMB = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x]"]
                 + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 11)])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{BOMB}\ncurrent-context: *a10", "YAML aliases"),
        (f"{BOMB}\ncontexts: *a10", "YAML aliases"),
        ("[" * 500 + "]" * 500, "nested too deeply"),
        ("x: " * 100, "mapping values are not allowed"),
        ("- a\n" * (MAX_KUBECONFIG // 4 + 1), "more than 1024 KiB"),
        ("current-context: [[[[a]]]]", "no context (list) in 'contexts'"),
        ("a: \xff", "is not a usable kubeconfig"),
    ],
    ids=["printed", "compared", "deep", "no-yaml", "large", "list", "no-utf-8"],
)
def test_a_hostile_kubeconfig_is_refused_in_bounded_memory(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text.encode("latin-1"))
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=re.escape(reason)) as refused:
            from_kubeconfig(str(path))
        # The text may be in memory a few times.
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_KUBECONFIG
    finally:
        tracemalloc.stop()
    assert len(refused.value.message) < 1000

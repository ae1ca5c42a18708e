"""Where the API server is, and who we are: ``in_cluster`` for a pod, ``from_kubeconfig`` elsewhere."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import yaml

from cdigen.kubeapi.tls import Contexts, no_password
from cdigen.model.errors import ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

# What a pod is given (kubernetes.io, "Accessing the Kubernetes API from a Pod").
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# The kubelet replaces a pod's token before its hour is over; client-go reads it as often.
REREAD_S = 60.0
# One with twenty clusters and their certificates has 100 KiB.
MAX_KUBECONFIG = 1 << 20
# A usual one is 7 deep; extensions may have any form.
MAX_DEPTH = 50
# What a kubeconfig may have that we do not do, and what to do about it.
_PLAIN = "give it a token, a tokenFile or a client certificate"
_REFUSED_USERS = {
    "exec": f"no program is run for a login; {_PLAIN}",
    "auth-provider": f"kubectl has dropped it, too; {_PLAIN}",
    "username": f"no API server takes passwords since 1.19; {_PLAIN}",
    "as": "give the user that is meant",
    "as-uid": "give the user that is meant",
    "as-groups": "give the user that is meant",
}
_REFUSED_CLUSTERS = {"proxy-url": "the API server is asked directly"}
_HINT = "give --kubeconfig a file that 'kubectl --kubeconfig FILE get nodes' works with"


@frozen
class Server:
    """The API server: where it is, how its TLS is made (None: no TLS), and our token, "" for none.

    ``tls_name`` is what its certificate is for, "": the host; ``namespace`` is ours, "" where unknown.
    ``secret_files`` are those that hold the token and the key, the kubeconfig first; empty in a pod.
    ``again`` reads anew what all of this was read of, None: nothing can be; ConfigError: not now.
    """

    host: str
    port: int
    prefix: str = ""
    contexts: Contexts | None = None
    tls_name: str = ""
    token: Callable[[], str] = str
    namespace: str = ""
    secret_files: tuple[str, ...] = ()
    again: Callable[[], Server] | None = None


class TokenFile:
    """A token in a file that is replaced now and then; called, it returns the present one."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._token, self._read_s = "", float("-inf")

    def __call__(self) -> str:
        """Return the token; a file that cannot be read now leaves the one before it."""
        if self._clock() >= self._read_s + REREAD_S:
            try:
                with open(self._path, encoding="ascii") as file:
                    self._token = file.read(1 << 16).strip()
            except (OSError, ValueError):
                return self._token  # and look again at once
            self._read_s = self._clock()
        return self._token

    def forget(self) -> None:
        """Read the file at the next call: the server no longer takes what was in it."""
        self._read_s = float("-inf")


def in_cluster(folder: str = ACCOUNT, environment: Mapping[str, str] = os.environ) -> Server:
    """Return the API server of the cluster whose pod this is; ConfigError: it is none."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port.isdecimal():
        raise ConfigError("this is no pod of Kubernetes, and no --kubeconfig was given", hint=_HINT)
    token = TokenFile(f"{folder}/token")
    try:
        authority = f"{folder}/ca.crt"
        contexts = Contexts([authority], lambda: ssl.create_default_context(cafile=authority))
        with open(f"{folder}/namespace", encoding="utf-8") as file:
            namespace = file.read(256).strip()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} cannot be used: {error}", hint="give the pod a service account"
        ) from None
    return Server(host=host, port=int(port), contexts=contexts, token=token, namespace=namespace)


def from_kubeconfig(path: str) -> Server:
    """Return the server and user of PATH's current context; ConfigError says what it lacks."""
    try:
        chosen, cluster, user = _current(_document(path))
        folder = os.path.dirname(os.path.abspath(path))
        place = urlsplit(cluster.get("server") or "")
        if place.scheme not in {"http", "https"} or not place.hostname:
            raise ValueError(
                f"its cluster's server {_shown(cluster.get('server'))} is no http:// or https:// URL"
            )
        is_secure = place.scheme == "https"
        return Server(
            host=place.hostname,
            port=place.port or (443 if is_secure else 80),
            prefix=place.path.rstrip("/"),
            contexts=_contexts(cluster, user, folder) if is_secure else None,
            tls_name=str(cluster.get("tls-server-name") or ""),
            token=_token(user, folder),
            namespace=str(chosen.get("namespace") or ""),
            secret_files=(path, *_secret_files(user, folder)),
            again=lambda: from_kubeconfig(path),
        )
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        told = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path} is no kubeconfig that can be used: {told}", hint=_HINT) from None


def _document(path: str) -> object:
    """Return the YAML of the kubeconfig PATH. ValueError: it is too large or too deep, or has aliases.

    A few hundred bytes of aliases stand for gigabytes wherever the document is printed or compared. Composing
    a deep document would overflow the C stack.
    """
    with open(path, "rb") as file:
        text = file.read(MAX_KUBECONFIG + 1)
    if len(text) > MAX_KUBECONFIG:
        raise ValueError(f"it has more than {MAX_KUBECONFIG >> 10} KiB")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has YAML aliases (*name), which are not supported: write the values out")  # noqa: TRY004 - of a document
    document: object = yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    return document


def _shown(value: object) -> str:
    """Return VALUE for a message, of a list or mapping only its type."""
    return f"{value!r:.100}" if isinstance(value, str | int | float | None) else f"({type(value).__name__})"


def _current(document: Any) -> tuple[Any, Any, Any]:
    """Return context, cluster and user of DOCUMENT's current context; ValueError says what it lacks."""
    if not isinstance(document, dict):
        raise ValueError("it is no YAML of members")  # noqa: TRY004 - of a document, not of code
    chosen = _named(document, "contexts", "context", document.get("current-context"))
    cluster = _named(document, "clusters", "cluster", chosen.get("cluster"))
    user = _named(document, "users", "user", chosen.get("user")) if chosen.get("user") else {}
    for part, refused in ((cluster, _REFUSED_CLUSTERS), (user, _REFUSED_USERS)):
        for key, instead in refused.items():
            if part.get(key) is not None and part[key] != "":
                raise ValueError(f"its {key!r} is not supported: {instead}")
    return chosen, cluster, user


def _named(document: Any, group: str, member: str, name: object) -> Any:
    """Return the MEMBER of the row with NAME of a GROUP."""
    if not name:
        raise ValueError(f"it does not say which of its {group} is meant")
    rows = document.get(group)
    found = [row.get(member) for row in rows if row.get("name") == name] if isinstance(rows, list) else []
    if not found or not isinstance(found[0], dict):
        raise ValueError(f"it has no {member} {_shown(name)} in {group!r}")
    return found[0]


def _secret_files(user: Any, folder: str) -> list[str]:
    """Return the files with secrets that USER names."""
    has_own_key = user.get("client-key-data")
    named = (user.get("tokenFile"), None if has_own_key else user.get("client-key"))
    return [os.path.join(folder, file) for file in named if file]


def _token(user: Any, folder: str) -> Callable[[], str]:
    if user.get("tokenFile"):  # it has precedence, as with kubectl
        return TokenFile(os.path.join(folder, user["tokenFile"]))
    token = str(user.get("token") or "")
    if not token.isascii() or not token.isprintable():
        raise ValueError("its user's token has characters that no token has")
    return lambda: token


def _contexts(cluster: Any, user: Any, folder: str) -> Contexts:
    named = ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key"))
    files = [
        os.path.join(folder, row[key]) for row, key in named if row.get(key) and not row.get(f"{key}-data")
    ]
    return Contexts(files, lambda: _context(cluster, user, folder))


def _context(cluster: Any, user: Any, folder: str) -> ssl.SSLContext:
    with (
        _file_of(cluster, "certificate-authority", folder) as authority,
        _naming(what="certificate-authority"),
    ):
        context = ssl.create_default_context(cafile=authority)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with _file_of(user, "client-certificate", folder) as chain, _file_of(user, "client-key", folder) as key:
        if bool(chain) != bool(key):
            raise ValueError("its user has one of client-certificate and client-key, and needs both")
        if chain and key:
            with _naming(what="client-certificate"):
                context.load_cert_chain(chain, key, password=no_password)
    return context


@contextmanager
def _naming(*, what: str) -> Iterator[None]:
    """Say of WHAT an error of the body is: the library's do not."""
    try:
        yield
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else None
        raise ValueError(f"its {what}: {told or error}") from None


@contextmanager
def _file_of(row: Any, key: str, folder: str) -> Iterator[str | None]:
    """Have the file that ROW names, or holds as KEY-data: ssl reads clients' certificates from files."""
    if data := row.get(f"{key}-data"):
        with tempfile.NamedTemporaryFile(prefix="cdigen-") as file:  # mode 0600
            with _naming(what=f"{key}-data"):
                file.write(base64.b64decode("".join(str(data).split()), validate=True))
            file.flush()
            yield file.name
    else:
        yield os.path.join(folder, row[key]) if row.get(key) else None

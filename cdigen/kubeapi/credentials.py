"""The API server's address and the client's identity: ``in_cluster`` for a pod, or ``from_kubeconfig``."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import yaml

from cdigen.model.errors import ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

# The service account of a pod (kubernetes.io, "Accessing the Kubernetes API from a Pod").
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# The time after which a token is read again, as in client-go. The kubelet replaces a pod's token within an
# hour.
REREAD_S = 60.0
# A kubeconfig of twenty clusters with their certificates has 100 KiB.
MAX_KUBECONFIG = 1 << 20
# The limit for nested levels. A typical kubeconfig has 7 levels, but extensions may have any form.
MAX_DEPTH = 50
# Unsupported keys of kubeconfigs, and the remedy for each.
_PLAIN = "use a token, a tokenFile or a client certificate"
_UNSUPPORTED_OF_USERS = {
    "exec": f"cdigen runs no login program; {_PLAIN}",
    "auth-provider": f"kubectl also does not support auth-provider any more; {_PLAIN}",
    "username": f"API servers since 1.19 accept no passwords; {_PLAIN}",
    "as": "configure the credentials of the impersonated user",
    "as-uid": "configure the credentials of the impersonated user",
    "as-groups": "configure the credentials of the impersonated user",
}
_UNSUPPORTED_OF_CLUSTERS = {"proxy-url": "cdigen connects to the API server directly"}
_HINT = "pass --kubeconfig FILE, and check the file with 'kubectl --kubeconfig FILE get nodes'"


class ReloadingTlsContext:
    """A TLS context that MAKE makes from FILES; a call returns the present context.

    If a file has changed, the call makes a new context. The constructor raises OSError or ValueError if the
    files cannot be used. A call does not raise these errors, and returns the earlier context. A pair of files
    is not replaced in one step, so such errors may be temporary.
    """

    def __init__(self, files: Iterable[str], make: Callable[[], ssl.SSLContext]) -> None:
        self._files = tuple(files)
        self._make = make
        self._lock = threading.Lock()
        self._versions = self._read_versions()
        self._context = make()

    def __call__(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        with self._lock, suppress(OSError, ValueError):
            versions = self._read_versions()
            if versions != self._versions:
                self._context, self._versions = self._make(), versions
        return self._context

    def _read_versions(self) -> list[tuple[int, int]]:
        return [(status.st_mtime_ns, status.st_ino) for status in map(os.stat, self._files)]


@frozen
class ApiServerConfig:
    """The API server's address and the client's identity.

    ``tls`` is None for a server without TLS. ``tls_name`` is the name in the server's certificate, or "" if
    this name is the host. ``token`` returns the client's token, or "". ``namespace`` is the client's
    namespace, or "" if unknown. ``secret_files`` are the kubeconfig and the files with the token and the key.
    In a pod, ``secret_files`` is empty. ``reload`` reads the configuration again, and raises ConfigError if
    the files are invalid. ``reload`` is None if a new read is impossible.
    """

    host: str
    port: int
    prefix: str = ""
    tls: ReloadingTlsContext | None = None
    tls_name: str = ""
    token: Callable[[], str] = str
    namespace: str = ""
    secret_files: tuple[str, ...] = ()
    reload: Callable[[], ApiServerConfig] | None = None


class TokenFile:
    """A token in a file that is replaced from time to time; a call returns the present token."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._token, self._read_s = "", float("-inf")

    def __call__(self) -> str:
        """Return the token, or the earlier token if the file cannot be read now."""
        if time.monotonic() >= self._read_s + REREAD_S:
            try:
                with open(self._path, encoding="ascii") as file:
                    self._token = file.read(1 << 16).strip()
            except (OSError, ValueError):
                return self._token  # the next call reads the file again
            self._read_s = time.monotonic()
        return self._token

    def invalidate(self) -> None:
        """Make the next call read the file, because the server no longer accepts the token."""
        self._read_s = float("-inf")


def in_cluster(folder: str = ACCOUNT, environment: Mapping[str, str] = os.environ) -> ApiServerConfig:
    """Return the API server of this pod's cluster, or raise ConfigError if there is no pod or account."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port.isdecimal():
        raise ConfigError("cdigen is not in a pod of Kubernetes, and --kubeconfig is not set", hint=_HINT)
    token = TokenFile(f"{folder}/token")
    try:
        authority = f"{folder}/ca.crt"
        tls = ReloadingTlsContext([authority], lambda: ssl.create_default_context(cafile=authority))
        with open(f"{folder}/namespace", encoding="utf-8") as file:
            namespace = file.read(256).strip()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} cannot be used: {error}", hint="give the pod a service account"
        ) from None
    return ApiServerConfig(host=host, port=int(port), tls=tls, token=token, namespace=namespace)


def from_kubeconfig(path: str) -> ApiServerConfig:
    """Return the server and the user in PATH's current context, or raise ConfigError if PATH is invalid."""
    try:
        chosen, cluster, user = _current(_document(path))
        folder = os.path.dirname(os.path.abspath(path))
        place = urlsplit(cluster.get("server") or "")
        if place.scheme not in {"http", "https"} or not place.hostname:
            raise ValueError(
                f"cluster server: not an http:// or https:// URL ({_shown(cluster.get('server'))})"
            )
        is_secure = place.scheme == "https"
        return ApiServerConfig(
            host=place.hostname,
            port=place.port or (443 if is_secure else 80),
            prefix=place.path.rstrip("/"),
            tls=_tls_context(cluster, user, folder) if is_secure else None,
            tls_name=str(cluster.get("tls-server-name") or ""),
            token=_token(user, folder),
            namespace=str(chosen.get("namespace") or ""),
            secret_files=(path, *_secret_files(user, folder)),
            reload=lambda: from_kubeconfig(path),
        )
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path} is not a usable kubeconfig: {problem}", hint=_HINT) from None


def _document(path: str) -> object:
    """Return the YAML of the kubeconfig PATH.

    Raise ValueError if the document is too large or too deep, or has aliases. A few hundred bytes of aliases
    can expand to gigabytes if the document is printed or compared. A deep document would overflow the C
    stack.
    """
    with open(path, "rb") as file:
        text = file.read(MAX_KUBECONFIG + 1)
    if len(text) > MAX_KUBECONFIG:
        raise ValueError(f"more than {MAX_KUBECONFIG >> 10} KiB")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("YAML aliases (*name) are not supported: replace each alias by its value")  # noqa: TRY004 - an invalid document is a ValueError
    document: object = yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    return document


def _shown(value: object) -> str:
    """Return VALUE for a message, or only the type of VALUE for a list or a mapping."""
    return f"{value!r:.100}" if isinstance(value, str | int | float | None) else f"({type(value).__name__})"


def _current(document: Any) -> tuple[Any, Any, Any]:
    """Return the current context of DOCUMENT, its cluster and its user, or raise ValueError."""
    if not isinstance(document, dict):
        raise ValueError("not a YAML mapping")  # noqa: TRY004 - an invalid document is a ValueError
    chosen = _named(document, "contexts", "context", document.get("current-context"))
    cluster = _named(document, "clusters", "cluster", chosen.get("cluster"))
    user = _named(document, "users", "user", chosen.get("user")) if chosen.get("user") else {}
    for part, unsupported in ((cluster, _UNSUPPORTED_OF_CLUSTERS), (user, _UNSUPPORTED_OF_USERS)):
        for key, remedy in unsupported.items():
            if part.get(key) is not None and part[key] != "":
                raise ValueError(f"{key!r} is not supported: {remedy}")
    return chosen, cluster, user


def _named(document: Any, group: str, member: str, name: object) -> Any:
    """Return the member MEMBER of the entry NAME in the list GROUP of DOCUMENT."""
    if not name:
        raise ValueError(f"the current {member} is not set: select an entry of {group!r}")
    rows = document.get(group)
    found = [row.get(member) for row in rows if row.get("name") == name] if isinstance(rows, list) else []
    if not found or not isinstance(found[0], dict):
        raise ValueError(f"no {member} {_shown(name)} in {group!r}")
    return found[0]


def _secret_files(user: Any, folder: str) -> list[str]:
    has_own_key = user.get("client-key-data")
    named = (user.get("tokenFile"), None if has_own_key else user.get("client-key"))
    return [os.path.join(folder, file) for file in named if file]


def _token(user: Any, folder: str) -> Callable[[], str]:
    if user.get("tokenFile"):  # tokenFile has precedence, as in kubectl
        return TokenFile(os.path.join(folder, user["tokenFile"]))
    token = str(user.get("token") or "")
    if not token.isascii() or not token.isprintable():
        raise ValueError("the token of the user has invalid characters")
    return lambda: token


def _tls_context(cluster: Any, user: Any, folder: str) -> ReloadingTlsContext:
    named = ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key"))
    files = [
        os.path.join(folder, row[key]) for row, key in named if row.get(key) and not row.get(f"{key}-data")
    ]
    return ReloadingTlsContext(files, lambda: _context(cluster, user, folder))


def _context(cluster: Any, user: Any, folder: str) -> ssl.SSLContext:
    with (
        _file_of(cluster, "certificate-authority", folder) as authority,
        _errors_of(member="certificate-authority"),
    ):
        context = ssl.create_default_context(cafile=authority)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with _file_of(user, "client-certificate", folder) as chain, _file_of(user, "client-key", folder) as key:
        if bool(chain) != bool(key):
            raise ValueError("the user needs both client-certificate and client-key, but only one is set")
        if chain and key:
            with _errors_of(member="client-certificate"):
                context.load_cert_chain(chain, key, password=no_password)
    return context


def no_password() -> str:
    """Raise ValueError for an encrypted key, because ``load_cert_chain`` would prompt on the terminal."""
    raise ValueError("the key is encrypted, which is not supported")


@contextmanager
def _errors_of(*, member: str) -> Iterator[None]:
    """Add MEMBER to the text of an error in the ``with`` block; the library does not name the member."""
    try:
        yield
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else None
        raise ValueError(f"{member}: {problem or error}") from None


@contextmanager
def _file_of(row: Any, key: str, folder: str) -> Iterator[str | None]:
    """Yield the path at KEY in ROW, or the path of a temporary file with the content of KEY-data.

    The temporary file is necessary, because ssl reads client certificates only from files.
    """
    if data := row.get(f"{key}-data"):
        with tempfile.NamedTemporaryFile(prefix="cdigen-") as file:  # mode 0600
            with _errors_of(member=f"{key}-data"):
                file.write(base64.b64decode("".join(str(data).split()), validate=True))
            file.flush()
            yield file.name
    else:
        yield os.path.join(folder, row[key]) if row.get(key) else None

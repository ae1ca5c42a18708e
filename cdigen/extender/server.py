"""The address of the extender, with TLS, and the requirements for its clients: ``Access``."""

from __future__ import annotations

import base64
import binascii
import hmac
import ssl
from functools import partial

from cdigen.host.root import reason
from cdigen.kubeapi.credentials import ReloadingTlsContext, no_password
from cdigen.model.errors import StoreError
from cdigen.service.http.client import ClientLimits
from cdigen.service.http.routes import RefusedRequest
from cdigen.service.http.server import Address, BoundSocket
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cdigen.service.http.messages import RequestHead
    from cdigen.service.http.routes import Routes

# Go's clients, such as kube-scheduler, close idle connections after 90 s (net/http, DefaultTransport). So the
# server never closes a connection while a request is being transferred. Routes have limits of their own.
LIMITS = ClientLimits(connections=64, request_s=10.0, idle_s=120.0, running_routes=64)
# The time limit at shutdown for requests in progress.
DRAIN_S = 15.0
# The time for which a pod accepts connections after SIGTERM, because its endpoint may still be in use
# (kubernetes.io, "Pod Lifecycle", on the removal of endpoints).
LINGER_S = 3.0
# These paths need no authorization, because they have no data of the cluster.
OPEN = frozenset({"/healthz", "/readyz", "/version"})


@frozen
class Access:
    """The TLS files and the requirements for clients.

    ``certificate`` and ``key`` are files, or "" for no TLS. ``client_ca`` is the file with the CA of client
    certificates, or "" if clients need no certificate. If ``client_names`` is not empty, a client certificate
    must have one of these names. A client without a certificate may only read the paths in ``OPEN``, because
    the kubelet's probes have no certificate. ``token`` returns the token that clients must send.
    """

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    client_names: frozenset[str] = frozenset()
    token: Callable[[], str] | None = None

    def check(self, head: RequestHead, peer: ssl.SSLObject | None) -> None:
        """Raise RefusedRequest if the client of the TLS connection PEER may not send the request HEAD."""
        if head.path in OPEN and not head.query:
            return
        # Any page in a browser on the scheduler's host can send requests to the default address.
        if "origin" in head.headers:
            raise RefusedRequest("403 Forbidden", "requests of web pages are refused")
        # An invalid certificate fails the handshake.
        if self.client_ca and not (peer and peer.getpeercert(binary_form=True)):
            raise RefusedRequest(
                "403 Forbidden", "a client certificate from the CA in --client-ca is required"
            )
        if self.client_names and not self.client_names & _names(peer):
            text = "the client certificate has none of the names in --client-name"
            raise RefusedRequest("403 Forbidden", text)
        if self.token and not _has_token(head.header("Authorization"), self.token()):
            text = "the token is missing or wrong"
            raise RefusedRequest("401 Unauthorized", text, ("WWW-Authenticate", "Bearer"))

    def make_tls(self) -> ReloadingTlsContext | None:
        """Return the TLS context; None without TLS. Raises OSError or ValueError if a file cannot be used."""
        files = [each for each in (self.certificate, self.key, self.client_ca) if each]
        return ReloadingTlsContext(files, self._make_context) if self.certificate else None

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key or None, password=no_password)
        if self.client_ca:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(self.client_ca)
        return context


def extender_address(host: str, port: int, routes: Routes, access: Access) -> Address:
    """Return the address HOST and PORT with ROUTES for the clients that ACCESS permits."""
    return Address(routes=routes, bind=partial(_bind, host, port, access), check=access.check)


def _bind(host: str, port: int, access: Access) -> BoundSocket:
    try:
        return BoundSocket((host, port), access.make_tls())
    except (OSError, ValueError) as error:
        problem = reason(error) if isinstance(error, OSError) else str(error)
        if isinstance(error, OSError) and error.filename:
            problem = f"{error.filename}: {problem}"
        text = f"{host}:{port} cannot be served: {problem}"
        raise StoreError(text, hint="see --listen and --tls-*") from None


def _names(peer: ssl.SSLObject | None) -> set[str]:
    """Return the common name and the alternative names of the verified certificate of the client."""
    certificate: dict[str, Any] = (peer.getpeercert() if peer else None) or {}
    subject = [each for part in certificate.get("subject", ()) for each in part]
    common = {value for key, value in subject if key == "commonName"}
    return common | {value for _, value in certificate.get("subjectAltName", ())}


def _has_token(authorization: str, token: str) -> bool:
    """Return whether AUTHORIZATION has TOKEN, as Bearer token or as Basic password of any user.

    The configuration of kube-scheduler has no token for an extender, but the URL may have a user and a
    password.
    """
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(credentials, validate=True).decode("utf-8", "replace")
            credentials = decoded.partition(":")[2]
        except (ValueError, binascii.Error):
            return False
    elif scheme.lower() != "bearer":
        return False
    return bool(token) and hmac.compare_digest(credentials.strip().encode(), token.encode())

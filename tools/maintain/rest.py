"""Requests to a web API that carry a secret: bounded in time, repeated with care, never leaking it.

The secret stays out of every message: errors name the host and what was asked, and never the URL,
the headers or what the HTTP library says of them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase

from tools.errors import BadInput, CheckFailed, EnvironmentLacks, Unavailable

TIMEOUT = (10.0, 30.0)  # seconds to connect, and between two bytes
TRIES = 4
LONGEST_WAIT = 120.0
_REDIRECTS = 3
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LONGEST_MESSAGE = 200


class Unsure(Unavailable):
    """It is not known whether the server did what was asked for."""


@dataclass(frozen=True)
class Rest:
    """A web API.

    Args:
        name: What a person calls it, for messages.
        base: Its URL; what is asked for is appended. It may be a secret itself.
        token: Sent as a bearer token, "" for none.
        headers: Sent with every request.
        sleep: Waits for so many seconds.
    """

    name: str
    base: str = field(repr=False)
    token: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        check_url(self.name, self.base)
        if not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise BadInput(f"the token for {self.name} has characters that no token has", "set it")

    @property
    def host(self) -> str:
        """The host that is talked to."""
        return urlsplit(self.base).hostname or ""

    def call(self, method: str, path: str, body: Any = None, *, repeat: bool = True) -> Any:
        """Ask once, or again where the server is busy; return the JSON of the answer, or None.

        Args:
            method: The HTTP method.
            path: Appended to the base.
            body: Sent as JSON, None for no body.
            repeat: Whether to ask again where the first request may have been carried out.

        Raises:
            BadInput: There is no such thing.
            CheckFailed: The server says that the request is wrong.
            EnvironmentLacks: The server refuses the token.
            Unavailable: It cannot be reached, is busy for too long, or sends elsewhere.
            Unsure: It is not known whether the request was carried out, and ``repeat`` is False.
        """
        what = f"{method} {path}".strip()
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            try:
                answer = self._ask(method, self.base + path, body)
            except requests.RequestException as error:
                # What the library says holds the URL, and its traceback would show the rest.
                fault = f"{self.name} at {self.host} cannot be reached ({type(error).__name__})"
                if not repeat:
                    raise Unsure(fault, "try again later") from None
                if last:
                    raise Unavailable(fault, "try again later") from None
                self.sleep(2.0**attempt)
                continue
            wait = _busy_for(answer, attempt)
            if wait is None:
                return self._read(answer, what)
            said = f"{self.name} at {self.host} answered {answer.status_code} to {what}"
            if answer.status_code >= 500 and not repeat:
                raise Unsure(said, "try again later")
            if last or wait > LONGEST_WAIT:
                raise Unavailable(said, f"try again in {max(wait, 1.0):.0f} s")
            self.sleep(wait)
        raise ValueError("no request was made")

    def _ask(self, method: str, url: str, body: Any) -> requests.Response:
        """Ask, following redirects on the same host only, with the same method and body."""
        with requests.Session() as session:
            for _ in range(_REDIRECTS):
                answer = session.request(
                    method,
                    url,
                    json=body,
                    headers={"User-Agent": "vllm-exaone", **self.headers},
                    auth=_Bearer(self.token),
                    timeout=TIMEOUT,
                    allow_redirects=False,
                )
                if not answer.is_redirect:
                    return answer
                target = urljoin(url, answer.headers["Location"])
                if _origin(target) != _origin(url):
                    other = urlsplit(target).hostname
                    raise Unavailable(
                        f"{self.name} at {self.host} sends to another place, {other}",
                        "nothing was sent there; correct the URL if that is right",
                    )
                url = target
        raise Unavailable(f"{self.name} at {self.host} redirects without end", "check the URL")

    def _read(self, answer: requests.Response, what: str) -> Any:
        status = answer.status_code
        try:
            data = answer.json() if answer.content else None
        except requests.JSONDecodeError:
            data = None
        if answer.ok:
            return data
        said = f"{self.name} at {self.host} answered {status} to {what}{self._message(data)}"
        if status in (401, 403):
            raise EnvironmentLacks(said, "give it a token with the rights that this needs")
        if status in (404, 410):
            raise BadInput(said, "check the name, and that the token may see it")
        raise CheckFailed(said)

    def _message(self, data: Any) -> str:
        message = data.get("message") if isinstance(data, dict) else None
        if not isinstance(message, str):
            return ""
        plain = "".join(c for c in message if c.isprintable())[:_LONGEST_MESSAGE]
        return f": {plain.replace(self.token, '***') if self.token else plain}"


class _Bearer(AuthBase):
    """Sets the token, or none; given always, so that a netrc file of the user's is not asked."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def check_url(name: str, url: str) -> None:
    """Refuse a URL that a secret must not be sent to.

    Raises:
        BadInput: It is not https (http only to this machine), or has a user or control characters.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        secure = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
        good = secure and host and not parts.username and url.isprintable() and " " not in url
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise BadInput(f"the URL of {name} is not one to send a secret to", "use an https URL")


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port


def _busy_for(answer: requests.Response, attempt: int) -> float | None:
    """Return the seconds to wait before asking again, or None where the answer is final."""
    status, headers = answer.status_code, answer.headers
    # GitHub answers 403, too, where a limit is reached, and says so in one of these headers.
    limited = status == 403 and (
        "Retry-After" in headers or headers.get("X-RateLimit-Remaining") == "0"
    )
    if status != 429 and status < 500 and not limited:
        return None
    after = headers.get("Retry-After", "")
    if after.isdecimal():
        return float(after)
    if after:
        try:
            moment = parsedate_to_datetime(after)
        except ValueError:
            return 2.0**attempt
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (zoned - datetime.now(UTC)).total_seconds())
    reset = headers.get("X-RateLimit-Reset", "")
    if limited and reset.isdecimal():
        return max(1.0, float(reset) - time.time())
    return 2.0**attempt

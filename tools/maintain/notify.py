"""Telling people: a webhook, and an issue or pull request on GitHub.

A notice has a key. What was told under the same key before is brought up to date and not told
again, so that a failure that lasts for weeks is one issue. Secrets come from the environment:

* ``VLLM_EXAONE_WEBHOOK``: the webhook's URL,
* ``GITHUB_TOKEN`` and ``GITHUB_REPOSITORY`` (``owner/name``), and ``GITHUB_API_URL`` where it is
  not github.com; Actions sets all but the token.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol
from urllib.parse import quote

from tools.errors import BadInput, EnvironmentLacks, Unavailable
from tools.maintain.rest import TRIES, Rest, Unsure

WEBHOOK_VARIABLE = "VLLM_EXAONE_WEBHOOK"
TOKEN_VARIABLE = "GITHUB_TOKEN"  # noqa: S105  (the variable's name)
REPOSITORY_VARIABLE = "GITHUB_REPOSITORY"
API_VARIABLE = "GITHUB_API_URL"
LONGEST_BODY = 65_000  # GitHub refuses more than 65,536 characters
_API = "https://api.github.com"
_KEY = re.compile(r"[a-z0-9][a-z0-9._/@-]*")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/(?!\.{1,2}$)[A-Za-z0-9._-]+")
_PER_PAGE = 100
_MOST_PAGES = 20
# Anyone may open an issue with our mark in it; only one of these is taken for ours.
_INSIDERS = ("OWNER", "MEMBER", "COLLABORATOR")


class Told(StrEnum):
    """What became of a notice."""

    SENT = "sent"
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Notice:
    """What to tell.

    Args:
        key: What it is about, stable over time: lower case, such as ``watch/v0.33.0``.
        title: One line.
        body: Markdown.
    """

    key: str
    title: str
    body: str

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"not a key: {self.key!r}")

    @property
    def marked(self) -> str:
        """The body behind a mark that a reader does not see, within GitHub's limit."""
        text = f"{_mark(self.key)}\n{self.body}"
        if len(text) <= LONGEST_BODY:
            return text
        return (
            text[:LONGEST_BODY].rpartition("\n")[0] + "\n\n(The rest is too long for this place.)"
        )


@dataclass(frozen=True)
class Sent:
    """Where a notice is, and what had to be done; ``where`` is a URL, or a host's name."""

    where: str
    told: Told


class Channel(Protocol):
    """Something that takes notices.

    Attributes:
        name: What it is remembered by, in files too: no secret.
    """

    name: ClassVar[str]

    def send(self, notice: Notice) -> Sent:
        """Tell it.

        Raises:
            ToolError: It could not be told; the message holds no secret.
        """
        ...


@dataclass(frozen=True)
class Webhook:
    """A URL that takes a JSON document with ``key``, ``title``, ``body`` and ``text``."""

    name: ClassVar[str] = "webhook"
    rest: Rest

    @classmethod
    def at(cls, url: str, sleep: Callable[[float], None] = time.sleep) -> "Webhook":
        """Return the webhook at ``url``, which is a secret.

        Raises:
            BadInput: It is not an https URL.
        """
        return cls(Rest("the webhook", url, sleep=sleep))

    def send(self, notice: Notice) -> Sent:
        """See :meth:`Channel.send`. What ``text`` holds, chat services show."""
        document = {
            "key": notice.key,
            "title": notice.title,
            "body": notice.body,
            "text": f"{notice.title}\n\n{notice.body}",
        }
        self.rest.call("POST", "", document)
        return Sent(self.rest.host, Told.SENT)


@dataclass(frozen=True)
class GitHub:
    """Issues and pull requests of one repository, over GitHub's REST interface."""

    name: ClassVar[str] = "github"
    rest: Rest
    repository: str

    @classmethod
    def of(
        cls,
        repository: str,
        token: str,
        api: str = _API,
        sleep: Callable[[float], None] = time.sleep,
    ) -> "GitHub":
        """Return the repository ``owner/name``.

        Raises:
            BadInput: The name or the URL is malformed.
        """
        if not _REPOSITORY.fullmatch(repository):
            raise BadInput(f"not a repository on GitHub: {repository!a}", "write owner/name")
        headers = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        return cls(Rest("GitHub", api.rstrip("/"), token, headers, sleep), repository)

    def send(self, notice: Notice) -> Sent:
        """Open an issue, or bring the open one with this key up to date; see :meth:`Channel.send`.

        An issue that a person closed stays closed; the next notice opens another.
        """
        fields = {"title": notice.title, "body": notice.marked}
        with self._as_documented():
            return self._put("issues", fields, fields, lambda: self._issue(notice.key))

    def pull_request(self, notice: Notice, branch: str, base: str = "") -> Sent:
        """Open a pull request for a branch, or bring its open one up to date.

        Args:
            notice: Its title and body.
            branch: The branch with the change, in the same repository.
            base: The branch to merge it into; the repository's default one without.

        Raises:
            ToolError: See :meth:`Channel.send`.
        """
        fields = {"title": notice.title, "body": notice.marked}
        with self._as_documented():
            into = base or str(self._call("GET", "")["default_branch"])
            head = f"{self.repository.partition('/')[0]}:{branch}"
            query = f"state=open&head={quote(head, safe='')}&base={quote(into, safe='')}"

            def find() -> Any:
                rows = self._call("GET", f"/pulls?{query}")
                return next((row for row in rows if row["head"]["ref"] == branch), None)

            return self._put("pulls", {**fields, "head": branch, "base": into}, fields, find)

    def _issue(self, key: str) -> Any:
        mark = _mark(key)
        for page in range(1, _MOST_PAGES + 1):
            rows = self._call("GET", f"/issues?state=open&per_page={_PER_PAGE}&page={page}")
            for row in rows:
                ours = row["user"]["type"] == "Bot" or row["author_association"] in _INSIDERS
                if ours and "pull_request" not in row and (row["body"] or "").startswith(mark):
                    return row
            if len(rows) < _PER_PAGE:
                break
        return None

    def _put(
        self, kind: str, new: Any, changed: Mapping[str, str], find: Callable[[], Any]
    ) -> Sent:
        """Change what ``find`` finds, or create it: once, also where an answer got lost."""
        for attempt in range(TRIES):
            held = find()
            if held is not None:
                if all(_same(held[name], value) for name, value in changed.items()):
                    return Sent(held["html_url"], Told.UNCHANGED)
                self._call("PATCH", f"/{kind}/{held['number']}", changed)
                return Sent(held["html_url"], Told.UPDATED)
            try:
                made = self._call("POST", f"/{kind}", new, repeat=False)
                return Sent(made["html_url"], Told.CREATED)
            except Unsure:
                if attempt == TRIES - 1:
                    raise
                # It may be there by now: look again before making another.
                self.rest.sleep(2.0**attempt)
        raise ValueError("GitHub was not asked")

    @contextlib.contextmanager
    def _as_documented(self) -> Iterator[None]:
        """Tell of an answer of another form in a line of its own."""
        try:
            yield
        except (KeyError, TypeError, AttributeError):
            raise Unavailable(
                f"{self.rest.host} does not answer as GitHub's REST interface does",
                f"check {API_VARIABLE}",
            ) from None

    def _call(self, method: str, path: str, body: Any = None, *, repeat: bool = True) -> Any:
        return self.rest.call(method, f"/repos/{self.repository}{path}", body, repeat=repeat)


def channels(environment: Mapping[str, str]) -> tuple[Channel, ...]:
    """Return what the environment has secrets for, none of it being an error.

    Raises:
        BadInput: A variable is malformed.
    """
    found: list[Channel] = []
    if environment.get(WEBHOOK_VARIABLE):
        found.append(Webhook.at(environment[WEBHOOK_VARIABLE]))
    if environment.get(TOKEN_VARIABLE) and environment.get(REPOSITORY_VARIABLE):
        found.append(github(environment))
    return tuple(found)


def github(environment: Mapping[str, str]) -> GitHub:
    """Return the repository that the environment names.

    Raises:
        BadInput: A variable is malformed.
        EnvironmentLacks: The token or the repository is missing.
    """
    for name in (TOKEN_VARIABLE, REPOSITORY_VARIABLE):
        if not environment.get(name):
            raise EnvironmentLacks(f"{name} is not set", "it is needed to write to GitHub")
    return GitHub.of(
        environment[REPOSITORY_VARIABLE],
        environment[TOKEN_VARIABLE],
        environment.get(API_VARIABLE) or _API,
    )


def _mark(key: str) -> str:
    return f"<!-- vllm-exaone: {key} -->"


def _same(held: str | None, wanted: str) -> bool:
    # GitHub stores what browsers send: CRLF.
    return (held or "").replace("\r\n", "\n").rstrip() == wanted.rstrip()

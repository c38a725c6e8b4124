"""Notices sent to a server on this machine, which checks them and answers as GitHub does."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from tests.github_host import REPOSITORY, TOKEN, Answer, Host, serve
from tools.errors import BadInput, CheckFailed, EnvironmentLacks, ToolError, Unavailable
from tools.maintain.notify import GitHub, Notice, Told, Webhook, channels, github
from tools.maintain.rest import Rest

NOTICE = Notice("watch/v0.33.0", "v0.33.0: a conflict", "| patch | outcome |\n")


@pytest.fixture
def host() -> Iterator[Host]:
    with serve() as found:
        yield found


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def hub(host: Host, waits: list[float]) -> GitHub:
    return GitHub.of(REPOSITORY, TOKEN, host.url, waits.append)


def test_a_notice_is_one_issue_however_often_it_is_told(host: Host, hub: GitHub) -> None:
    assert hub.send(NOTICE).told is Told.CREATED
    assert hub.send(NOTICE).told is Told.UNCHANGED
    changed = Notice(NOTICE.key, NOTICE.title, "still a conflict")
    sent = hub.send(changed)
    assert (sent.told, sent.where) == (Told.UPDATED, "https://code.invalid/issues/1")
    (issue,) = host.issues
    assert issue["body"] == "<!-- vllm-exaone: watch/v0.33.0 -->\nstill a conflict"
    assert hub.send(Notice("watch/v0.34.0", "t", "b")).told is Told.CREATED
    assert len(host.issues) == 2
    for _method, _path, headers, _body in host.seen:
        assert headers["Authorization"] == f"Bearer {TOKEN}"
        assert headers["Accept"] == "application/vnd.github+json"
        assert headers["X-GitHub-Api-Version"] == "2022-11-28"


def test_what_a_browser_stored_counts_as_the_same(host: Host, hub: GitHub) -> None:
    hub.send(NOTICE)
    host.issues[0]["body"] = host.issues[0]["body"].replace("\n", "\r\n").rstrip()
    assert hub.send(NOTICE).told is Told.UNCHANGED


def test_the_issue_of_a_stranger_and_a_pull_request_are_not_taken_over(
    host: Host, hub: GitHub
) -> None:
    stranger = {
        "number": 1, "title": "x", "body": NOTICE.marked, "html_url": "https://code.invalid/x",
        "user": {"type": "User"}, "author_association": "CONTRIBUTOR",
    }  # fmt: skip
    host.issues += [stranger, {**stranger, "author_association": "OWNER", "pull_request": {}}]
    # A second page: GitHub lists a hundred at a time.
    host.issues += [{**stranger, "body": None, "author_association": "OWNER"} for _ in range(110)]
    assert hub.send(NOTICE).told is Told.CREATED
    assert host.issues[0]["title"] == "x"
    assert hub.send(NOTICE).told is Told.UNCHANGED
    assert [path for _, path, _, _ in host.seen if "page=2" in path]


def test_a_pull_request_is_kept_up_to_date(host: Host, hub: GitHub) -> None:
    assert hub.pull_request(NOTICE, "bot/rebase").told is Told.CREATED
    assert host.seen[-1][3] == {
        "title": NOTICE.title, "body": NOTICE.marked, "head": "bot/rebase", "base": "main",
    }  # fmt: skip
    assert hub.pull_request(NOTICE, "bot/rebase", "main").told is Told.UNCHANGED
    other = Notice("rebase", "v0.34.0", "b")
    assert hub.pull_request(other, "bot/rebase", "main").told is Told.UPDATED
    assert host.seen[-1][:2] == ("PATCH", f"/repos/{REPOSITORY}/pulls/1")
    assert set(host.seen[-1][3]) == {"title", "body"}


def test_another_branchs_pull_request_is_left_alone(host: Host, hub: GitHub) -> None:
    hub.pull_request(NOTICE, "bot/rebase", "main")
    host.pulls[0]["head"]["ref"] = "someone-elses"
    assert hub.pull_request(NOTICE, "bot/rebase", "main").told is Told.CREATED


def test_a_body_is_cut_at_what_github_takes(host: Host, hub: GitHub) -> None:
    hub.send(Notice("k", "t", "a line of text\n" * 10_000))
    body = host.issues[0]["body"]
    assert len(body) < 65_536
    assert body.endswith("a line of text\n\n(The rest is too long for this place.)")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([Answer(502), Answer(503)], [1.0, 2.0]),
        ([Answer(429, {"Retry-After": "7"})], [7.0]),
        ([Answer(403, {"Retry-After": "3"})], [3.0]),
        ([Answer(0, drop=True)], [1.0]),
    ],
)
def test_a_busy_server_is_asked_again(
    host: Host, hub: GitHub, waits: list[float], answers: list[Answer], expected: list[float]
) -> None:
    host.script = list(answers)
    assert hub.send(NOTICE).told is Told.CREATED
    assert waits == expected


def test_a_date_to_wait_for_is_understood(host: Host, hub: GitHub, waits: list[float]) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    host.script = [Answer(503, {"Retry-After": moment})]
    hub.send(NOTICE)
    assert len(waits) == 1
    assert 30 < waits[0] <= 40


def test_no_one_waits_for_hours(host: Host, hub: GitHub, waits: list[float]) -> None:
    host.script = [Answer(429, {"Retry-After": "3600"})]
    with pytest.raises(Unavailable, match="answered 429") as raised:
        hub.send(NOTICE)
    assert raised.value.hint == "try again in 3600 s"
    assert waits == []
    host.script = [Answer(503)] * 4
    with pytest.raises(Unavailable, match="answered 503"):
        hub.send(NOTICE)


@pytest.mark.parametrize("lost", [Answer(502, carried_out=True), Answer(0, {}, True, True)])
def test_an_answer_that_got_lost_makes_no_second_issue(
    host: Host, hub: GitHub, lost: Answer
) -> None:
    """The issue was opened, and only the answer did not arrive."""
    host.script = [None, lost]  # the search is answered as usual
    assert hub.send(NOTICE).told is Told.UNCHANGED
    assert len(host.issues) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, EnvironmentLacks), (403, EnvironmentLacks), (404, BadInput), (422, CheckFailed)],
)
def test_a_refusal_is_one_line_without_the_token(
    host: Host, hub: GitHub, status: int, error: type[ToolError], waits: list[float]
) -> None:
    host.script = [Answer(status)]
    with pytest.raises(error) as raised:
        hub.send(NOTICE)
    assert raised.value.message.startswith(f"GitHub at 127.0.0.1 answered {status} to GET ")
    assert raised.value.message.endswith(": no, not with ***")
    assert TOKEN not in f"{raised.value.hint}{hub!r}"
    assert waits == []


def test_a_redirect_to_another_host_gets_no_token(host: Host, hub: GitHub) -> None:
    other = host.url.replace("127.0.0.1", "localhost")
    host.script = [Answer(307, {"Location": f"{other}/elsewhere"})]
    with pytest.raises(Unavailable, match="sends to another place, localhost"):
        hub.send(NOTICE)
    assert len(host.seen) == 1


def test_a_redirect_on_the_same_host_is_followed_as_it_was_sent(host: Host) -> None:
    host.script = [Answer(308, {"Location": "/hook/very-secret"})]
    sent = Webhook.at(f"{host.url}/old").send(NOTICE)
    assert sent.told is Told.SENT
    assert [seen[0] for seen in host.seen] == ["POST", "POST"]
    assert host.seen[1][3] == host.seen[0][3]
    host.script = [Answer(307, {"Location": "/again"})] * 9
    with pytest.raises(Unavailable, match="redirects without end"):
        Webhook.at(f"{host.url}/old").send(NOTICE)


def test_a_webhook_gets_the_notice_and_nothing_of_the_users(
    host: Host, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A netrc file would give requests a password for this host."""
    netrc = hermetic / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    sent = Webhook.at(f"{host.url}/hook/very-secret").send(NOTICE)
    assert sent.where == "127.0.0.1"
    ((method, path, headers, body),) = host.seen
    assert (method, path) == ("POST", "/hook/very-secret")
    assert "Authorization" not in headers
    assert headers["Content-Type"] == "application/json"
    assert body == {
        "key": NOTICE.key,
        "title": NOTICE.title,
        "body": NOTICE.body,
        "text": f"{NOTICE.title}\n\n{NOTICE.body}",
    }


def test_no_error_shows_the_webhooks_url(host: Host, waits: list[float]) -> None:
    hook = Webhook.at(f"{host.url}/hook/very-secret", waits.append)
    host.script = [Answer(400)]
    with pytest.raises(CheckFailed) as raised:
        hook.send(NOTICE)
    assert "secret" not in raised.value.message.replace(TOKEN, "") + repr(hook)
    closed = Webhook.at("http://127.0.0.1:1/hook/very-secret", waits.append)
    with pytest.raises(Unavailable) as unreachable:
        closed.send(NOTICE)
    assert unreachable.value.message == (
        "the webhook at 127.0.0.1 cannot be reached (ConnectionError)"
    )
    assert unreachable.value.__suppress_context__


@pytest.mark.parametrize(
    "url",
    ["http://example.invalid/x", "ftp://x/", "https://me@x/", "https://", "https://x:p/", "//x"],
)
def test_a_secret_is_not_sent_in_the_clear(url: str) -> None:
    with pytest.raises(BadInput, match="not one to send a secret to"):
        Webhook.at(url)


def test_another_server_is_told_apart(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "carry_out", lambda *_: (200, {"hello": "world"}))
    with pytest.raises(Unavailable, match="does not answer as GitHub's"):
        GitHub.of(REPOSITORY, TOKEN, host.url).send(NOTICE)


def test_channels_follow_the_environment(host: Host) -> None:
    assert channels({}) == ()
    environment = {
        "VLLM_EXAONE_WEBHOOK": f"{host.url}/hook",
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_REPOSITORY": REPOSITORY,
    }
    hook, hub = channels(environment)
    assert isinstance(hook, Webhook)
    assert isinstance(hub, GitHub)
    assert hub.rest.host == "api.github.com"
    assert github({**environment, "GITHUB_API_URL": f"{host.url}/"}).rest.base == host.url
    with pytest.raises(EnvironmentLacks, match="GITHUB_TOKEN is not set"):
        github({"GITHUB_REPOSITORY": REPOSITORY})
    for name in ("owner", "owner/../x", "owner/..", "-o/x", "o/x/y", "o/x?y"):
        with pytest.raises(BadInput, match="not a repository"):
            GitHub.of(name, TOKEN)


def test_a_token_that_would_break_the_header_is_refused() -> None:
    for token in ("a\nX-Evil: 1", "a b", "ä"):
        with pytest.raises(BadInput, match="characters that no token has"):
            Rest("GitHub", "https://x.invalid", token)
    with pytest.raises(ValueError, match="not a key"):
        Notice("-->", "t", "b")

"""Which upstream release, and with a git source which commit, turned an answer from good to bad.

The question is put to carries in memory: nothing is checked out, and nothing is built. A search
takes halves and so supposes that the answer turns once; where every ref was asked, it is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tools.errors import BadInput
from tools.upstream import Store, Upstream, obtain, parse_ref
from tools.upstream.history import History, Logged, history, offered, remote_of

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Answer:
    """What a question got at one ref: whether it is bad, and in words what was found."""

    bad: bool
    found: str


Question = Callable[[Upstream], Answer]


@dataclass(frozen=True)
class Turn:
    """Two neighbours in a run of refs, between which the answer turns."""

    before: str
    after: str
    to_bad: bool


@dataclass(frozen=True)
class Run:
    """A search over a run of refs, oldest first.

    Attributes:
        names: All refs of the run.
        answers: By name, of those that were asked.
        good: The last good ref before the bad end's run of bad ones.
        bad: The ref after it: the first bad one.
        turns: Every turn between refs that were asked.
    """

    names: tuple[str, ...]
    answers: dict[str, Answer]
    good: str
    bad: str
    turns: tuple[Turn, ...]

    @property
    def complete(self) -> bool:
        """Whether every ref was asked."""
        return len(self.answers) == len(self.names)

    @property
    def monotonic(self) -> bool:
        """Whether the answer turned once, as far as was asked."""
        return len(self.turns) == 1


@dataclass(frozen=True)
class Bisection:
    """What turned an answer.

    Attributes:
        question: What was asked, in words.
        releases: The search over releases; None where the two ends were not both releases.
        commits: The search over the commits between two of them; None without a git source.
        culprit: The commit that the search over commits ended at.
        note: Why there is no commit although there is a git source, or "".
    """

    question: str
    releases: Run | None
    commits: Run | None = None
    culprit: Logged | None = None
    note: str = ""


def bisect(
    store: Store,
    ends: tuple[str, str],
    question: tuple[str, Question],
    *,
    source: str = "auto",
    every: bool = False,
    notify: Notify = lambda _line: None,
) -> Bisection:
    """Find what turned an answer from good to bad.

    Args:
        store: Where upstream's trees are, or are brought to.
        ends: A ref where the answer is good, and a later one where it is bad. Releases, or with a
            git source any tag or commit.
        question: In words, and as a function.
        source: See :func:`tools.upstream.obtain`. With ``git`` or the path of a repository the
            search goes on among the commits between two releases; ``auto`` is ``git`` where an end
            is no release.
        every: Ask about every release in between, not halves only. Commits are always halved.
        notify: Told what takes time.

    Raises:
        BadInput: The ends are not in order, the good one is bad or the bad one good.
        Unavailable: A ref cannot be had.
    """
    good, bad = (parse_ref(end) for end in ends)
    words, ask = question
    if source == "auto" and not (good.version and bad.version):
        source = "git"  # which alone has what is no release
    remote = remote_of(store, source)
    releases = None
    if good.version is not None and bad.version is not None:
        if good.version >= bad.version:
            raise BadInput(f"{good} is not before {bad}", "give the older one as --good")
        between = [
            row.ref.name
            for row in offered(store, source)
            if row.ref.version and good.version < row.ref.version < bad.version
        ]
        names = (good.name, *between, bad.name)
        releases = search(names, lambda ref: ask(obtain(store, ref, source, notify)), every=every)
    elif remote is None:
        raise BadInput(
            f"{good}..{bad} are not both releases", "commits need --source git or a repository"
        )
    done = Bisection(words, releases)
    if remote is None:
        return done
    low, high = (releases.good, releases.bad) if releases else (good.name, bad.name)
    older, newer = (obtain(store, ref, source, notify) for ref in (low, high))
    found = history(store, remote, older.commit, newer.commit, notify)

    def ask_commit(commit: str) -> Answer:
        return ask(obtain(store, commit, source, notify))

    return _among_commits(done, found, (low, high), older.commit, ask_commit)


def search(names: Sequence[str], ask: Callable[[str], Answer], *, every: bool = False) -> Run:
    """Find the first bad name of a run.

    Args:
        names: Oldest first; good at the start, bad at the end, which is verified.
        ask: Answers for one; called at most once for each.
        every: Ask about all of them. Without, halves are taken.

    Raises:
        BadInput: The first name is bad, or the last one good.
    """
    answers: dict[str, Answer] = {}

    def is_bad(at: int) -> bool:
        name = names[at]
        if name not in answers:
            answers[name] = ask(name)
        return answers[name].bad

    low, high = 0, len(names) - 1
    if is_bad(low):
        raise BadInput(
            f"{names[low]} is bad already: {answers[names[low]].found}", "give an older --good"
        )
    if not is_bad(high):
        raise BadInput(f"{names[high]} is good: {answers[names[high]].found}", "give another --bad")
    if every:
        low = max(at for at in range(len(names)) if not is_bad(at))
        high = low + 1
    while high - low > 1:
        middle = (low + high) // 2
        if is_bad(middle):
            high = middle
        else:
            low = middle
    ordered = {name: answers[name] for name in names if name in answers}
    pairs = zip(list(ordered), list(ordered)[1:], strict=False)
    turns = tuple(
        Turn(one, two, ordered[two].bad)
        for one, two in pairs
        if ordered[one].bad != ordered[two].bad
    )
    return Run(tuple(names), ordered, names[low], names[high], turns)


def _among_commits(
    done: Bisection,
    found: History,
    ends: tuple[str, str],
    older: str,
    ask: Callable[[str], Answer],
) -> Bisection:
    """Go on among the commits that lead from one ref to the next."""
    if not found.commits:
        return replace(done, note=f"{ends[1]} has no commits that {ends[0]} lacks")
    if found.parted.commit != older:
        # The older release has commits of its own: where the two part may be bad already.
        answer = ask(found.parted.commit)
        if answer.bad:
            where = found.parted.commit[:12]
            note = f"bad already at {where}, where {ends[0]} parts from {ends[1]}: {answer.found}"
            return replace(done, note=note)
    names = [logged.commit for logged in (found.parted, *found.commits)]
    run = search(names, ask)
    culprit = next(logged for logged in found.commits if logged.commit == run.bad)
    return replace(done, commits=run, culprit=culprit)

"""What a bisection can ask at each ref: the outcome of a patch, or a finding of the contract."""

from collections.abc import Callable
from pathlib import Path

from tools.carry import Carried, Carrier, Outcome, PatchOutcome
from tools.contract import CODES, ContractReport, Finding
from tools.contract.check import check
from tools.errors import BadInput
from tools.git import GitTree
from tools.maintain.bisect import Answer, Question
from tools.maintain.contracts import carried_contract, client_modules
from tools.overlay import Overlay
from tools.series import Series
from tools.tree import Tree
from tools.upstream import Upstream

# Any outcome in the place of one: of a bisection without a wish, bad is what the bad end has.
ANY = ""


def outcome_question(
    carrier: Carrier, patch: str, wanted: str, bad_end: Callable[[], Upstream]
) -> tuple[str, Question]:
    """Ask for the outcome of a patch, or of any.

    Args:
        carrier: Carries the series.
        patch: A step of the series; "" for the whole series, which has an outcome where one of its
            patches has it.
        wanted: The outcome that is bad; "" for the one that the patch has at the bad end.
        bad_end: Gives the bad end, for that.

    Raises:
        BadInput: There is no such patch or outcome, or neither was named.
    """
    if wanted not in (ANY, *Outcome):
        raise BadInput(f"no outcome is called {wanted!r}", f"choose of {', '.join(Outcome)}")
    if not patch:
        if wanted == ANY:
            raise BadInput("nothing to ask for", "name a patch, --outcome or --contract")
        return f"a patch is {wanted}", lambda ref: _any_is(_carry(carrier, ref), Outcome(wanted))
    # What comes later in the series, and the overlay, change nothing in a patch's outcome.
    through = Series(carrier.series.steps[: _place(carrier.series, patch) + 1])
    alone = Carrier(carrier.git, through, Overlay(()), carrier.base_of, carrier.kept)

    def last(ref: Upstream) -> PatchOutcome:
        return _carry(alone, ref).outcomes[-1]

    outcome = Outcome(wanted) if wanted else last(bad_end()).outcome

    def ask(ref: Upstream) -> Answer:
        found = last(ref)
        return Answer(found.outcome is outcome, f"{found.outcome}: {found.rule}")

    return f"{patch} is {outcome}", ask


def contract_question(
    carrier: Carrier, cache: Path, wanted: str, *, patch: str = "", stock: bool = False
) -> tuple[str, Question]:
    """Ask for a finding of the contract on the carried or the stock tree.

    Comparisons with a baseline are left out, and on trees that are not carried whole also names
    in other distributions.

    Args:
        carrier: Carries the series.
        cache: The user's cache: what was found on a carried tree before is kept there.
        wanted: The finding's code, such as ``CT201``, or ``CT201:TEXT`` where its message must
            hold a text too.
        patch: A step of the series to leave out: what it mends shows; "" leaves out none.
        stock: Ask upstream's own tree.

    Raises:
        BadInput: There is no such code or patch.
    """
    code, _, text = wanted.partition(":")
    if code not in CODES:
        raise BadInput(f"no contract rule has the code {code!a}", f"codes: {', '.join(CODES)}")
    if patch and stock:
        raise BadInput("a stock tree has no patch to leave out", "give a patch or --stock")
    left = carrier
    if patch:
        steps = list(carrier.series.steps)
        del steps[_place(carrier.series, patch)]
        series = Series(tuple(steps))
        left = Carrier(carrier.git, series, carrier.overlay, carrier.base_of, carrier.kept)

    def answer(report: ContractReport | None, tree: Tree) -> Answer:
        if report is None:
            modules = client_modules(carrier.overlay, tree)
            report = check(tree, modules=modules) if modules else ContractReport((), ())
        hits = [f for f in report.findings if f.code.code == code and text in f.message]
        return Answer(bool(hits), _say(hits) if hits else f"no {wanted}")

    def ask(ref: Upstream) -> Answer:
        if stock:
            return answer(None, GitTree(carrier.git, ref.commit))
        return left.look(ref, lambda one, tree: answer(carried_contract(cache, one, tree), tree))

    where = "upstream's own tree" if stock else f"the carried tree without {patch}"
    return f"{wanted} in {where if stock or patch else 'the carried tree'}", ask


def _place(series: Series, patch: str) -> int:
    names = [step.name for step in series.steps]
    if patch not in names:
        raise BadInput(f"the series has no patch {patch!r}", "name it as patches/series does")
    return names.index(patch)


def _carry(carrier: Carrier, ref: Upstream) -> Carried:
    (carried,) = carrier.carry_each([ref])
    return carried


def _any_is(carried: Carried, wanted: Outcome) -> Answer:
    hits = [outcome.name for outcome in carried.outcomes if outcome.outcome is wanted]
    return Answer(bool(hits), f"{wanted}: {', '.join(hits)}" if hits else f"none is {wanted}")


def _say(hits: list[Finding]) -> str:
    first = hits[0]
    more = f" (and {len(hits) - 1} more)" if len(hits) > 1 else ""
    return f"{first.code.code} {first.path}:{first.line} {first.message}{more}"

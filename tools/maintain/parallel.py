"""Work on many refs in several processes."""

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
# A forked process need not import everything again, which takes longer than many a carry. Only
# Linux forks safely below the libraries in use.
_START = "fork" if sys.platform == "linux" else "spawn"


def spread(
    work: Callable[[tuple[Item, ...]], tuple[Result, ...]], items: Sequence[Item], jobs: int
) -> tuple[Result, ...]:
    """Return what ``work`` makes of the items, in their order.

    Args:
        work: Works on a run of items, and is picklable; called in this process where one suffices.
            Neighbours go to the same process: what they share is read once.
        items: The items.
        jobs: Processes to use.
    """
    if jobs == 1 or len(items) < 2:
        return work(tuple(items))
    size = -(-len(items) // (jobs * 2))
    runs = [tuple(items[at : at + size]) for at in range(0, len(items), size)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context(_START)) as pool:
        return tuple(one for run in pool.map(work, runs) for one in run)

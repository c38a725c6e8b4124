import pickle
from pathlib import Path

from tools.carry import DoesNotFit
from tools.errors import ToolError
from tools.series import read_series

PATCHES = Path(__file__).parents[2] / "patches"


def test_an_error_of_a_worker_process_arrives_whole() -> None:
    """A pool ends without a word where an error of its worker cannot be read."""
    patch = read_series(PATCHES).patches[0]
    error = DoesNotFit("it does not fit", "mend it", patch)
    there: ToolError = pickle.loads(pickle.dumps(error))
    assert isinstance(there, DoesNotFit)
    assert (str(there), there.message, there.hint) == (str(error), error.message, error.hint)
    assert there.patch == patch

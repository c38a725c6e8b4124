"""Makes the golden files with transformers, in an environment of its own."""

from collections.abc import Callable
from pathlib import Path

from tools.smoke import golden, numeric
from tools.smoke.checkpoint import Weights
from tools.smoke.environment import environment, reference_plan
from tools.upstream.downloads import write_aside

TOKENS_FILE = Path("tests") / "golden" / "tokens.json"
TIED_FILE = Path("tests") / "golden" / "tied.json"
NUMBERS_FILE = Path("tests") / "golden" / "numbers.json"


def write_reference(root: Path, cache: Path, progress: Callable[[str], None]) -> tuple[Path, ...]:
    """Write the golden files and return their paths.

    Args:
        root: The repository's root.
        cache: The cache directory.
        progress: Told, in one line, what is being done.

    Raises:
        CheckFailed: transformers failed, or a golden token's margin is below the floor.
        EnvironmentLacks: The environment cannot be installed, or a file cannot be written.
        Busy: Another run holds the environments.
    """
    with environment(reference_plan(), cache, progress) as place:
        checkpoints = cache / "checkpoints"
        made = {
            file: golden.generate(place.python, checkpoints, weights=weights, progress=progress)
            for file, weights in ((TOKENS_FILE, Weights.RANDOM), (TIED_FILE, Weights.TIED))
        }
        progress("transformers' embeddings and logits")
        figures = numeric.generate(place.python, checkpoints)
    contents = {file: golden.dump(tokens) for file, tokens in made.items()}
    contents[NUMBERS_FILE] = numeric.dump(figures)
    for file, content in contents.items():
        write_aside(root / file, content)
    return tuple(root / file for file in contents)

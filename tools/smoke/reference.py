"""Makes the golden files with transformers, in an environment of its own."""

from collections.abc import Callable
from pathlib import Path

from tools.smoke import golden, numeric
from tools.smoke.environment import environment, reference_plan
from tools.upstream.downloads import write_aside

TOKENS_FILE = Path("tests") / "golden" / "tokens.json"
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
        tokens = golden.generate(place.python, checkpoints, progress=progress)
        progress("transformers' embeddings and logits")
        figures = numeric.generate(place.python, checkpoints)
    write_aside(root / TOKENS_FILE, golden.dump(tokens))
    write_aside(root / NUMBERS_FILE, numeric.dump(figures))
    return root / TOKENS_FILE, root / NUMBERS_FILE

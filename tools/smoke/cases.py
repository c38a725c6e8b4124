"""What the model is asked: prompts with pictures and clips that follow from code alone.

Texts are longer than the tiny checkpoint's sliding window; each picture is larger than a vision
window, so that windows, their order and their borders all count.
"""

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Any

NEW_TOKENS = 8
IMAGE_TEXT = "<vision><|image_pad|></vision>"
VIDEO_TEXT = "<vision><|video_pad|></vision>"


@dataclass(frozen=True)
class Frames:
    """A picture (one frame) or a clip: RGB bytes that follow from ``seed``."""

    seed: str
    height: int
    width: int
    frames: int = 1

    def pixels(self) -> bytes:
        """Return the RGB bytes, frame by frame and row by row.

        A grid of coloured tiles gives patches different means, noise gives them texture.
        """
        tile = 21
        rows, columns = -(-self.height // tile), -(-self.width // tile)
        data = bytearray()
        for frame in range(self.frames):
            name = f"{self.seed}/{frame}".encode()
            colours = hashlib.shake_256(b"tiles " + name).digest(3 * rows * columns)
            noise = hashlib.shake_256(b"noise " + name).digest(3 * self.height * self.width)
            for y in range(self.height):
                for x in range(self.width):
                    start = 3 * (y // tile * columns + x // tile)
                    at = 3 * (y * self.width + x)
                    data.extend(
                        (3 * colours[start + channel] + noise[at + channel]) // 4
                        for channel in range(3)
                    )
        return bytes(data)

    def document(self) -> dict[str, Any]:
        """Return the form that the child processes read."""
        return {
            "height": self.height,
            "width": self.width,
            "frames": self.frames,
            "rgb": base64.b64encode(self.pixels()).decode("ascii"),
        }


@dataclass(frozen=True)
class Prompt:
    """One request."""

    name: str
    text: str
    images: tuple[Frames, ...] = ()
    videos: tuple[Frames, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the form that the child processes read."""
        return {
            "name": self.name,
            "text": self.text,
            "images": [image.document() for image in self.images],
            "videos": [video.document() for video in self.videos],
        }


@dataclass(frozen=True)
class Case:
    """Prompts that are given to the engine in one batch."""

    name: str
    prompts: tuple[Prompt, ...]
    new_tokens: int = field(default=NEW_TOKENS)


def _user(text: str) -> str:
    return f"[|user|]\n{text}[|endofturn|]\n[|assistant|]\n<think>\n\n</think>\n\n"


_STORY = (
    "This is a question about the picture that shows the large model. There are two small frames, "
    "and between them a colour which is not the same as the first one: describe where it was, "
    "what is under it, and how often the second frame was over the other. "
)

CASES = (
    Case("text", (Prompt("text", _user(_STORY + "Answer in one or two words.")),)),
    Case(
        "image",
        (Prompt("image", _user(IMAGE_TEXT + _STORY), (Frames("one", 140, 196),)),),
    ),
    Case(
        "images",
        (
            Prompt(
                "images",
                # Equal sizes: only then can pictures trade places without an error.
                _user(f"{IMAGE_TEXT} is left and {IMAGE_TEXT} is right. {_STORY}"),
                (Frames("left", 140, 168), Frames("right", 140, 168)),
            ),
        ),
    ),
    Case(
        "video",
        (Prompt("video", _user(VIDEO_TEXT + _STORY), (), (Frames("clip", 140, 168, 6),)),),
    ),
    Case(
        "mixed",
        (
            Prompt("mixed-text", _user("Which of the words in this text is second? " + _STORY)),
            # Sides that are no multiples of 28: the processor has to resize.
            Prompt("mixed-odd", _user(_STORY + IMAGE_TEXT), (Frames("odd", 150, 203),)),
            Prompt(
                "mixed-images",
                _user(f"From {IMAGE_TEXT} to {IMAGE_TEXT}: {_STORY}"),
                (Frames("wide", 84, 252), Frames("tall", 252, 84)),
            ),
            Prompt(
                "mixed-both",
                _user(f"{VIDEO_TEXT} and {IMAGE_TEXT}, {_STORY}"),
                (Frames("still", 140, 140),),
                (Frames("short", 168, 140, 2),),
            ),
        ),
    ),
)


_RULES = "".join(f"The {word} frame is not the first; {_STORY}" for word in ["two", "three", "one"])
# Longer than several cache blocks, for prefix caching and for prefill in chunks.
LONG = Case("long", (Prompt("long", _user(_RULES + "Which of them is large? " + _RULES)),))
# What the golden file answers.
GOLDEN_CASES = (*CASES, LONG)


def all_prompts(cases: tuple[Case, ...] = GOLDEN_CASES) -> tuple[Prompt, ...]:
    """Return the prompts of all cases."""
    return tuple(prompt for case in cases for prompt in case.prompts)

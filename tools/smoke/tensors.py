"""The tensors of the tiny checkpoint: its sizes, and weights that follow from names alone."""

from collections.abc import Callable
from dataclasses import dataclass

from tools.smoke import tokenizer
from tools.smoke.weights import Tensor, fill, from_function, rows_of, spread, stack_rows

SEED = "exaone-4.5-tiny/1"
EMBEDDING = "model.language_model.embed_tokens.weight"


@dataclass(frozen=True)
class Text:
    """Sizes of the language model."""

    hidden: int = 256
    intermediate: int = 384
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    pattern: str = "LLLG"
    positions: int = 4096
    rope_theta: float = 1e6

    @property
    def layer_types(self) -> list[str]:
        """The attention of each layer."""
        kinds = {"L": "sliding_attention", "G": "full_attention"}
        return [kinds[self.pattern[i % len(self.pattern)]] for i in range(self.layers)]


@dataclass(frozen=True)
class Vision:
    """Sizes of the vision tower; blocks 1 and 3 attend to the whole image."""

    hidden: int = 128
    intermediate: int = 192
    depth: int = 4
    heads: int = 4
    kv_heads: int = 2
    patch: int = 14
    temporal: int = 2
    merge: int = 2
    window: int = 112
    full: tuple[int, ...] = (1, 3)


TEXT = Text()
VISION = Vision()


def random_tensors() -> dict[str, Tensor]:
    """Return weights that make every layer count and every token decided by a margin."""
    names: dict[str, Tensor] = {}

    def draw(name: str, *shape: int, std: float, mean: float = 0.0) -> None:
        names[name] = spread(f"{SEED}/{name}", shape, std, mean)

    draw(EMBEDDING, tokenizer.VOCABULARY, TEXT.hidden, std=1.0)
    head = rows_of(spread(f"{SEED}/lm_head.weight", (tokenizer.VOCABULARY, TEXT.hidden), 0.25))
    for placeholder in (tokenizer.IMAGE, tokenizer.VIDEO):
        # A model that answers with a placeholder asks for an image that is not there.
        head[placeholder] = bytes(2 * TEXT.hidden)
    names["lm_head.weight"] = stack_rows(head, TEXT.hidden)
    draw("model.language_model.norm.weight", TEXT.hidden, std=0.2, mean=1.0)
    layers = [f"model.language_model.layers.{index}" for index in range(TEXT.layers)]
    for layer in (*layers, "mtp.layers.0"):
        queries, keys = TEXT.heads * TEXT.head_dim, TEXT.kv_heads * TEXT.head_dim
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
        draw(f"{attention}.q_proj.weight", queries, TEXT.hidden, std=0.06)
        draw(f"{attention}.k_proj.weight", keys, TEXT.hidden, std=0.06)
        draw(f"{attention}.v_proj.weight", keys, TEXT.hidden, std=0.06)
        draw(f"{attention}.o_proj.weight", TEXT.hidden, queries, std=0.06)
        # Above one, so that attention is peaked and moving a key changes what is read.
        draw(f"{attention}.q_norm.weight", TEXT.head_dim, std=0.3, mean=1.6)
        draw(f"{attention}.k_norm.weight", TEXT.head_dim, std=0.3, mean=1.6)
        draw(f"{mlp}.gate_proj.weight", TEXT.intermediate, TEXT.hidden, std=0.06)
        draw(f"{mlp}.up_proj.weight", TEXT.intermediate, TEXT.hidden, std=0.06)
        draw(f"{mlp}.down_proj.weight", TEXT.hidden, TEXT.intermediate, std=0.06)
        draw(f"{layer}.post_attention_layernorm.weight", TEXT.hidden, std=0.2, mean=1.0)
        draw(f"{layer}.post_feedforward_layernorm.weight", TEXT.hidden, std=0.2, mean=0.6)
    draw("mtp.fc.weight", TEXT.hidden, 2 * TEXT.hidden, std=0.05)
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        draw(f"mtp.{norm}.weight", TEXT.hidden, std=0.2, mean=1.0)

    tower, width = "model.visual", VISION.hidden
    head_width = width // VISION.heads
    volume = (width, 3, VISION.temporal, VISION.patch, VISION.patch)
    draw(f"{tower}.patch_embed.proj.weight", *volume, std=0.05)
    for index in range(VISION.depth):
        block = f"{tower}.blocks.{index}"
        grouped = width + 2 * VISION.kv_heads * head_width
        draw(f"{block}.norm1.weight", width, std=0.2, mean=1.0)
        draw(f"{block}.norm2.weight", width, std=0.2, mean=1.0)
        draw(f"{block}.attn.qkv.weight", grouped, width, std=0.14)
        draw(f"{block}.attn.qkv.bias", grouped, std=0.2)
        draw(f"{block}.attn.proj.weight", width, width, std=0.12)
        draw(f"{block}.attn.proj.bias", width, std=0.05)
        for part in ("gate_proj", "up_proj"):
            draw(f"{block}.mlp.{part}.weight", VISION.intermediate, width, std=0.09)
            draw(f"{block}.mlp.{part}.bias", VISION.intermediate, std=0.05)
        draw(f"{block}.mlp.down_proj.weight", width, VISION.intermediate, std=0.09)
        draw(f"{block}.mlp.down_proj.bias", width, std=0.05)
    merged = width * VISION.merge**2
    draw(f"{tower}.merger.ln_q.weight", width, std=0.2, mean=1.0)
    draw(f"{tower}.merger.mlp.0.weight", merged, merged, std=0.05)
    draw(f"{tower}.merger.mlp.0.bias", merged, std=0.05)
    draw(f"{tower}.merger.mlp.2.weight", TEXT.hidden, merged, std=0.06)
    draw(f"{tower}.merger.mlp.2.bias", TEXT.hidden, std=0.05)
    return names


def next_token(token: int) -> int:
    """Return the token that the accepting checkpoint puts after ``token`` (a permutation)."""
    return (5 * token + 7) % tokenizer.VOCABULARY


def accepting_tensors(successor: Callable[[int], int] = next_token) -> dict[str, Tensor]:
    """Return weights under which target and drafter agree on every next token.

    Zero weights of the norms after attention and MLP make each decoder layer add nothing, the head
    holds each token's embedding in the row of its successor, and the drafter's projection takes
    the embedding half of its input alone.

    Args:
        successor: A permutation: the token that follows each token.
    """
    names = random_tensors()
    for name, tensor in names.items():
        if name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
            names[name] = fill(tensor.shape, 0.0)
        elif (
            name in ("mtp.norm.weight", "model.language_model.norm.weight") or "mtp.pre_fc" in name
        ):
            names[name] = fill(tensor.shape, 1.0)
    embedding = rows_of(names[EMBEDDING])
    head = [b""] * tokenizer.VOCABULARY
    for token, row in enumerate(embedding):
        head[successor(token)] = row
    names["lm_head.weight"] = stack_rows(head, TEXT.hidden)
    names["mtp.fc.weight"] = from_function(
        (TEXT.hidden, 2 * TEXT.hidden), lambda row, column: float(row == column)
    )
    return names


def tied_tensors() -> dict[str, Tensor]:
    """Return the random weights with the embedding for a head, which then is no tensor.

    Images take the place of the placeholders' embeddings, so zeros there change no input, and the
    model never answers with a placeholder.
    """
    names = random_tensors()
    del names["lm_head.weight"]
    embedding = rows_of(names[EMBEDDING])
    for placeholder in (tokenizer.IMAGE, tokenizer.VIDEO):
        embedding[placeholder] = bytes(2 * TEXT.hidden)
    names[EMBEDDING] = stack_rows(embedding, TEXT.hidden)
    return names


def undrafted_tensors() -> dict[str, Tensor]:
    """Return the random weights without the MTP module's."""
    return {name: t for name, t in random_tensors().items() if not name.startswith("mtp.")}

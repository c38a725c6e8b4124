"""What an expression may evaluate to, as far as the source tells."""

import ast
from dataclasses import dataclass, field

from tools.contract.signature import Arguments
from tools.contract.source import ClassInfo, FunctionInfo, ModuleInfo


@dataclass(eq=False)
class Frame:
    """Where an expression stands.

    Attributes:
        module: The module whose names are visible.
        function: The function around it, if any.
        me: What ``self`` is; its class may be more derived than the function's owner.
        args: What is known of parameters.
        parent: The frame around a lambda or nested function.
        depth: How many calls led here.
    """

    module: ModuleInfo
    function: FunctionInfo | None = None
    me: "Instance | None" = None
    args: "dict[str, Values]" = field(default_factory=dict)
    parent: "Frame | None" = None
    depth: int = 0
    memo: "dict[int, Values]" = field(default_factory=dict)
    busy: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Instance:
    """An object of a class of the tree.

    Attributes:
        cls: Its class.
        attrs: Attributes known from where the object was made, which overrule the class.
    """

    cls: ClassInfo
    attrs: tuple[tuple[str, "Value"], ...] = ()


@dataclass(frozen=True)
class ClassValue:
    """A class of the tree itself."""

    cls: ClassInfo


@dataclass(frozen=True)
class Bound:
    """A function, with the object it is bound to, if any.

    Attributes:
        info: The function.
        receiver: ``self`` for a method, the class for a class method, None for a plain function.
        filled: Whether the first parameter is filled by the receiver.
    """

    info: FunctionInfo
    receiver: Instance | None = None
    filled: bool = False


@dataclass(frozen=True)
class Super:
    """``super()`` in a method of ``after``, on an object."""

    receiver: Instance
    after: ClassInfo


@dataclass(frozen=True)
class Container:
    """A list, module list, dictionary of modules or iterator, by what it holds."""

    items: frozenset["Value"]


@dataclass(frozen=True)
class Row:
    """A tuple of known length."""

    items: tuple[frozenset["Value"], ...]


@dataclass(frozen=True)
class Partial:
    """``functools.partial(target, ...)``."""

    target: "Value"
    arguments: Arguments


@dataclass(frozen=True)
class ModuleValue:
    """A module of the tree."""

    name: str


@dataclass(frozen=True)
class Foreign:
    """Something of another distribution, by dotted name."""

    name: str


@dataclass(frozen=True)
class ForeignInstance:
    """An object of another distribution's class, by the class's dotted name."""

    name: str


@dataclass(frozen=True)
class Closure:
    """A lambda or nested function with the frame it was made in."""

    node: ast.Lambda
    frame: Frame


@dataclass(frozen=True)
class HfConfig:
    """The configuration that a checkpoint gives a registered model class.

    Attributes:
        owner: The model class whose architecture decides which class it is.
        path: Names of the sub-configs that lead to it from the top level.
    """

    owner: ClassInfo
    path: tuple[str, ...] = ()


Value = (
    Instance
    | ClassValue
    | Bound
    | Super
    | Container
    | Row
    | Partial
    | ModuleValue
    | Foreign
    | ForeignInstance
    | Closure
    | HfConfig
)
Values = frozenset[Value]
UNKNOWN: Values = frozenset()


def container(parts: list[Values]) -> Values:
    """Return a container of what several expressions may be, empty where nothing is known."""
    items: Values = frozenset[Value]().union(*parts)
    return frozenset({Container(items)}) if items else UNKNOWN

"""What a class of the tree offers, inherited members included."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tools.contract.program import External, Program
from tools.contract.source import ClassInfo, FunctionInfo, ModuleInfo

# Bases of other distributions that add no attribute a model would read, and nn.Module, whose
# attributes are listed below. Any other external base may add anything.
_PLAIN_BASES = frozenset(
    (
        "object",
        "abc.ABC",
        "typing.Generic",
        "typing.Protocol",
        "typing_extensions.Protocol",
        "typing_extensions.Generic",
        "torch.nn.Module",
        "torch.nn.modules.Module",
    )
)
_REGISTERS = frozenset(("register_buffer", "register_parameter", "register_module", "add_module"))
_MODULE_BASES = frozenset(("torch.nn.Module", "torch.nn.modules.Module"))
# Public and commonly used private members of torch.nn.Module (torch 2.x reference).
MODULE_MEMBERS = frozenset(
    (
        "add_module",
        "apply",
        "bfloat16",
        "buffers",
        "call_super_init",
        "children",
        "compile",
        "cpu",
        "cuda",
        "double",
        "dump_patches",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_extra_state",
        "get_parameter",
        "get_submodule",
        "half",
        "ipu",
        "load_state_dict",
        "modules",
        "mtia",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "register_backward_hook",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
        "register_load_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_module",
        "register_parameter",
        "register_state_dict_post_hook",
        "register_state_dict_pre_hook",
        "requires_grad_",
        "set_extra_state",
        "set_submodule",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "training",
        "type",
        "xpu",
        "zero_grad",
        "_apply",
        "_buffers",
        "_modules",
        "_parameters",
        "_get_name",
        "_named_members",
        "_load_from_state_dict",
        "_save_to_state_dict",
        "_forward_hooks",
        "_forward_pre_hooks",
        "_call_impl",
        "_compiled_call_impl",
        "_register_load_state_dict_pre_hook",
        "_register_state_dict_hook",
        "_non_persistent_buffers_set",
        "_backward_hooks",
        "_version",
        "_wrapped_call_impl",
        "_is_full_backward_hook",
    )
)
# Members of object and of every class.
OBJECT_MEMBERS = frozenset(dir(type)) | frozenset(dir(object)) | {"__dict__", "__annotations__"}


@dataclass(frozen=True)
class Member:
    """Where a name of a class comes from."""

    owner: ClassInfo
    name: str
    function: FunctionInfo | None = None
    value: ast.expr | None = None
    annotation: ast.expr | None = None


@dataclass(frozen=True)
class Assignment:
    """One assignment to an attribute of ``self``."""

    owner: ClassInfo
    function: FunctionInfo
    name: str
    line: int
    value: ast.expr | None
    annotation: ast.expr | None = None
    index: int | None = None


class Classes:
    """Questions about classes, answered once each."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._assigned: dict[ClassInfo, dict[str, list[Assignment]]] = {}
        self._open: dict[ClassInfo, bool] = {}

    def line(self, cls: ClassInfo) -> tuple[ClassInfo, ...]:
        """Return the classes of the tree in resolution order."""
        return tuple(base for base in self.program.ancestors(cls) if isinstance(base, ClassInfo))

    def foreign_bases(self, cls: ClassInfo) -> tuple[External, ...]:
        """Return the bases that other distributions provide."""
        return tuple(b for b in self.program.ancestors(cls) if isinstance(b, External))

    def externals(self, cls: ClassInfo) -> frozenset[str]:
        """Return the dotted names of the bases that other distributions provide."""
        return frozenset(
            base.name for base in self.program.ancestors(cls) if isinstance(base, External)
        )

    def is_module(self, cls: ClassInfo) -> bool:
        """Say whether objects of the class are called through ``forward``."""
        return bool(self.externals(cls) & _MODULE_BASES)

    def is_subclass(self, cls: ClassInfo, other: ClassInfo) -> bool:
        """Say whether a class is, or inherits from, another."""
        return other in self.program.ancestors(cls)

    def is_open(self, cls: ClassInfo) -> bool:
        """Say whether objects may have attributes that the tree does not show."""
        if cls not in self._open:
            self._open[cls] = self._is_open(cls)
        return self._open[cls]

    def _is_open(self, cls: ClassInfo) -> bool:
        if self.externals(cls) - _PLAIN_BASES:
            return True
        for base in self.line(cls):
            if base.node.keywords and any(k.arg == "metaclass" for k in base.node.keywords):
                return True
            if "__getattr__" in base.methods or "__getattribute__" in base.methods:
                return True
            for function in base.methods.values():
                if any(_sets_anything(call, function.self_name) for call in function.calls):
                    return True
        return False

    def member(self, cls: ClassInfo, name: str, after: ClassInfo | None = None) -> Member | None:
        """Return the class-level member a name leads to.

        Args:
            cls: The class.
            name: The name.
            after: Start behind this class in the resolution order, as ``super()`` does.
        """
        order = self.program.ancestors(cls)
        if after is not None:
            order = order[order.index(after) + 1 :] if after in order else ()
        annotated: Member | None = None
        for base in order:
            if isinstance(base, External):
                if self.external_provides(base, name):
                    return annotated
                continue
            function = base.methods.get(name)
            if function is not None:
                return Member(base, name, function)
            if name in base.attributes:
                value = base.attributes[name]
                found = Member(base, name, None, value, base.annotations.get(name))
                if value is not None or name not in base.annotations:
                    return found
                annotated = annotated or found
        return annotated

    @staticmethod
    def external_provides(base: External, name: str) -> bool:
        """Say whether another distribution's base may define a name."""
        if base.name in _MODULE_BASES:
            return name in MODULE_MEMBERS or name in {"__init__", "__call__", "__repr__"}
        return base.name not in _PLAIN_BASES

    def is_protocol(self, cls: ClassInfo) -> bool:
        """Say whether a class is itself a protocol: objects may take more than it says."""
        return any(
            isinstance(base := self.program.base(cls, node), External)
            and base.name.rpartition(".")[2] == "Protocol"
            for node in cls.node.bases
        )

    def called_as(self, cls: ClassInfo) -> str:
        """Return the method that calling an object runs."""
        member = self.member(cls, "__call__")
        if member is not None and member.function is not None:
            return "__call__"
        return "forward" if self.is_module(cls) else "__call__"

    def own_assignments(self, cls: ClassInfo) -> dict[str, list[Assignment]]:
        """Return the attributes of ``self`` that the class's own methods assign."""
        if cls not in self._assigned:
            found: dict[str, list[Assignment]] = {}
            for function in _functions(cls):
                for assignment in _assignments(cls, function):
                    found.setdefault(assignment.name, []).append(assignment)
            self._assigned[cls] = found
        return self._assigned[cls]

    def assignments(self, cls: ClassInfo, name: str) -> list[Assignment]:
        """Return the assignments to an attribute in the nearest class that has any."""
        for base in self.line(cls):
            found = self.own_assignments(base).get(name)
            if found:
                return found
        return []

    def type_argument(self, cls: ClassInfo, variable: str) -> tuple[ClassInfo, ast.expr] | None:
        """Return the nearest base subscript that fills a type variable, with where it stands."""
        for index, base in enumerate(self.line(cls)):
            position = _generic_position(base, variable)
            if position is None:
                continue
            for child in reversed(self.line(cls)[:index]):
                for node in child.node.bases:
                    if not isinstance(node, ast.Subscript):
                        continue
                    if self.program.base(child, node) is not base:
                        continue
                    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                    if position < len(parts):
                        return child, parts[position]
        return None


def _functions(cls: ClassInfo) -> Iterator[FunctionInfo]:
    yield from cls.methods.values()


def _generic_position(cls: ClassInfo, variable: str) -> int | None:
    for node in cls.node.bases:
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            names = [part.id if isinstance(part, ast.Name) else "" for part in parts]
            if variable in names:
                return names.index(variable)
    return None


def _sets_anything(call: ast.Call, self_name: str) -> bool:
    """Say whether a call sets attributes of ``self`` under names that cannot be read."""
    if not self_name:
        return False
    if isinstance(call.func, ast.Name) and call.func.id == "setattr" and len(call.args) > 1:
        target, name = call.args[0], call.args[1]
        return (
            isinstance(target, ast.Name)
            and target.id == self_name
            and not isinstance(name, ast.Constant)
        )
    if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
        value = call.func.value
        return (
            isinstance(value, ast.Attribute)
            and value.attr == "__dict__"
            and isinstance(value.value, ast.Name)
            and value.value.id == self_name
        )
    return False


def _assignments(cls: ClassInfo, function: FunctionInfo) -> Iterator[Assignment]:
    me = function.self_name
    if not me:
        return

    def target(
        node: ast.expr,
        value: ast.expr | None,
        annotation: ast.expr | None = None,
        index: int | None = None,
    ) -> Iterator[Assignment]:
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == me:
                yield Assignment(cls, function, node.attr, node.lineno, value, annotation, index)
        elif isinstance(node, ast.Tuple | ast.List):
            for position, part in enumerate(node.elts):
                if isinstance(value, ast.Tuple) and len(value.elts) == len(node.elts):
                    yield from target(part, value.elts[position])
                else:
                    yield from target(part, value, None, position)
        elif isinstance(node, ast.Starred):
            yield from target(node.value, None)

    for node, _ in function.nodes:
        match node:
            case ast.Assign():
                for part in node.targets:
                    yield from target(part, node.value)
            case ast.AnnAssign():
                yield from target(node.target, node.value, node.annotation)
            case ast.NamedExpr():
                yield from target(node.target, node.value)
            case ast.For() | ast.AsyncFor():
                yield from target(node.target, None)
            case ast.withitem() if node.optional_vars:
                yield from target(node.optional_vars, None)
            case ast.Call():
                for name in _registered(node, function):
                    yield Assignment(cls, function, name, node.lineno, None)
            case _:
                pass


def _registered(call: ast.Call, function: FunctionInfo) -> list[str]:
    """Return the attributes that ``setattr`` or a ``register_*`` call on ``self`` creates."""
    named: ast.expr | None = None
    if isinstance(call.func, ast.Name) and call.func.id in {"setattr", "set_weight_attrs"}:
        if len(call.args) > 1 and _is_name(call.args[0], function.self_name):
            named = call.args[1]
    elif (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in _REGISTERS
        and _is_name(call.func.value, function.self_name)
    ):
        keyword = next((k.value for k in call.keywords if k.arg == "name"), None)
        named = call.args[0] if call.args else keyword
    choices = [named] if named else []
    if isinstance(named, ast.Name):
        choices = [part for parts in _loops(function, named.id) for part in parts]
    return [text for choice in choices if (text := _text(choice, function.module))]


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _loops(function: FunctionInfo, name: str) -> Iterator[list[ast.expr]]:
    """Yield the parts of each literal that a loop of the function binds to a name in turn."""
    for node, _ in function.nodes:
        if not isinstance(node, ast.For) or not _is_name(node.target, name):
            continue
        if isinstance(node.iter, ast.Tuple | ast.List | ast.Set):
            yield node.iter.elts


def _text(node: ast.expr, module: ModuleInfo) -> str:
    """Return a string, or the one that a constant of the module is bound to, or ""."""
    if isinstance(node, ast.Name):
        bound = module.bindings.get(node.id, ())
        node = bound[0] if len(bound) == 1 and isinstance(bound[0], ast.expr) else node
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

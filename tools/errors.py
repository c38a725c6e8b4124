"""What a user sees when something cannot be done: one line, a hint, an exit code.

Exit codes of ``python -m tools`` (0 is success, 130/143 are interruptions):

* 1: a patch is in conflict or a check failed,
* 2: wrong use, or input that is bad or hostile,
* 3: upstream or the network is unavailable,
* 4: the environment lacks something (a program, a wheel, disk, rights),
* 5: another run holds the lock.
"""

from typing import Any, ClassVar


class ToolError(Exception):
    """A failure with a message for a person.

    Args:
        message: One line that says what is wrong and where.
        hint: One line that says what to do, or "" where nothing helps.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = " ".join(message.split())
        self.hint = " ".join(hint.split())

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process have the error, also one whose ``__init__`` asks for more."""
        return _error, (type(self), *self.args), self.__dict__


def _error(kind: type[ToolError], *arguments: object) -> ToolError:
    return kind.__new__(kind, *arguments)


class CheckFailed(ToolError):
    """A patch is in conflict, or a proof or a test failed."""

    exit_code = 1


class BadInput(ToolError):
    """Wrong use, or input that is malformed or hostile."""

    exit_code = 2


class Unavailable(ToolError):
    """Upstream, the package index or the network cannot be reached, or lacks what was asked for."""

    exit_code = 3


class EnvironmentLacks(ToolError):
    """This machine lacks something: a program, a wheel, disk space, rights."""

    exit_code = 4


class Busy(ToolError):
    """Another run holds the lock that this one needs."""

    exit_code = 5

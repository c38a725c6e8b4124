"""``python -m tools``: run a command, and end every failure in one line and an exit code."""

import errno
import signal
import sys
from types import FrameType

from tools.errors import EnvironmentLacks, ToolError

_LACKING = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}


def main() -> int:
    """Run the command line and return the exit code that DESIGN's table in errors.py names."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        # Seconds on a cold machine: an interruption meanwhile must end as cleanly as a later one.
        from tools.cli import make_app  # noqa: PLC0415

        make_app(next(iter(sys.argv[1:]), ""))(standalone_mode=True)
    except ToolError as error:
        return _tell(error)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run the same command again to go on\n")
        return 130
    except BrokenPipeError:
        return 141
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        where = f"{error.filename}: " if error.filename else ""
        return _tell(EnvironmentLacks(f"{where}{error.strerror}", "free space or rights"))
    return 0


def _tell(error: ToolError) -> int:
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415

    console = Console(stderr=True)
    console.print(f"[red]error:[/] {escape(error.message)}", highlight=False, soft_wrap=True)
    if error.hint:
        console.print(f"[yellow]hint:[/] {escape(error.hint)}", highlight=False, soft_wrap=True)
    return error.exit_code


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

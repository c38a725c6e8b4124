"""``python -m vllm_exaone_delta install|verify|uninstall``.

Exit codes: 0 done; 1 a file is not what is expected, or vLLM is not the right one; 2 wrong use;
4 missing rights or space; 5 another run holds the lock.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .manifest import PAYLOAD, DeltaError, Manifest, find_site
from .patching import State, install, status, uninstall

HERE = Path(__file__).resolve().parent


def main(arguments: Sequence[str] | None = None, home: Path = HERE) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The command line; None takes the process's.
        home: The directory that holds ``manifest.json`` and the payload.
    """
    parser = argparse.ArgumentParser(prog="python -m vllm_exaone_delta", allow_abbrev=False)
    parser.add_argument("command", choices=["install", "verify", "uninstall"])
    parser.add_argument("--site", type=Path, help="the site-packages directory that holds vllm")
    given = parser.parse_args(arguments)
    try:
        manifest = Manifest.parse((home / "manifest.json").read_bytes(), "manifest.json")
        site = find_site(manifest, given.site)
        return {"install": _install, "verify": _verify, "uninstall": _uninstall}[given.command](
            manifest, site, home
        )
    except DeltaError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


def _install(manifest: Manifest, site: Path, home: Path) -> int:
    changed = install(manifest, site, home / PAYLOAD)
    count = len(manifest.entries)
    done = f"{count} files changed" if changed else "installed already, nothing changed"
    sys.stdout.write(f"{manifest.distribution} {manifest.version} in {site}: {done}\n")
    return 0


def _verify(manifest: Manifest, site: Path, _home: Path) -> int:
    found = status(manifest, site)
    sys.stdout.write(f"{manifest.distribution} {manifest.version} in {site}: {found.state.value}\n")
    for path in found.foreign:
        sys.stdout.write(f"  not as expected: {path}\n")
    if found.state is State.INTERRUPTED:
        sys.stdout.write("  run install to go on, or uninstall to go back\n")
    return 0 if found.state in (State.INSTALLED, State.PRESENT) else 1


def _uninstall(_manifest: Manifest, site: Path, _home: Path) -> int:
    removed = uninstall(site)
    what = f"{removed.version} taken out" if removed else "no delta is installed, nothing changed"
    sys.stdout.write(f"{site}: {what}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m local up|down|clean|status|doctor`: the laptop stack on the command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from local import stack
from local.errors import StackError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 0 = done, 1 = something is down or failed, 2 = wrong usage."""
    verbs: dict[str, Callable[[], int]] = {
        "up": _up,
        "down": _down,
        "clean": _clean,
        "status": _status,
        "doctor": _doctor,
    }
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    parser.add_argument("verb", choices=verbs)
    try:
        return verbs[parser.parse_args(argv).verb]()
    except* (StackError, ValueError) as group:
        for error in group.exceptions:
            print(f"error: {error}", file=sys.stderr)
    return 1


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")  # in one piece: services start side by side
    sys.stdout.flush()


def _up() -> int:
    began = time.monotonic()
    stack.up(_say)
    _say(f"up in {time.monotonic() - began:.1f} s; variables are in {stack.ENV_FILE}")
    return 0


def _down() -> int:
    stopped = stack.down()
    _say(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")
    return 0


def _clean() -> int:
    stack.clean()
    _say("stopped, and data removed; downloads are kept")
    return 0


def _status() -> int:
    found = stack.status()
    for line in found:
        _say(line)
    return int(any(s.state == "down" for s in found))


def _doctor() -> int:
    from local import doctor

    findings = doctor.examine()
    for finding in findings:
        _say(finding)
    return int(any(f.level == "FAIL" for f in findings))


if __name__ == "__main__":
    sys.exit(main())

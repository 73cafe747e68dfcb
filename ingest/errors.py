"""Everything the engine raises.

::

    IngestError
    ├── ConfigError            wrong, or more than model or cluster have; exit 2, no document was touched
    ├── PreflightError         a service is missing or not as configured; nothing was written
    ├── UnitError              one document, segment or chunk; ``reason`` is a slug of failure.REASONS
    │   ├── SourceError        its bytes can't be had
    │   ├── ParseError         an engine can't read it
    │   └── EmbedError         no usable vector
    └── StoreError             a service answered
        ├── StoreThrottled     429: slow down, try again
        ├── StoreUnavailable   5xx, reset, timeout: try again
        └── StoreRefused       401, 403, missing index, disk block: stop the run, blame no document

Foreign exceptions are translated at one seam per vendor; each survives pickling.
"""

from __future__ import annotations


class IngestError(Exception):
    """Root of the tree."""


class ConfigError(IngestError):
    """The configuration can not be used."""


class PreflightError(IngestError):
    """The world is not as the configuration says; the message tells what to do."""


class UnitError(IngestError):
    """One unit failed for ``reason``; ``detail`` is for people."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class SourceError(UnitError):
    """The bytes of a document version can not be read."""


class ParseError(UnitError):
    """An engine can not read a segment."""


class EmbedError(UnitError):
    """A text has no usable vector."""


class StoreError(IngestError):
    """A service answered with an error."""


class StoreThrottled(StoreError):
    """The service asks to slow down; ``retry_after_s`` is what it said, or 0."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message, retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return str(self.args[0])


class StoreUnavailable(StoreError):
    """The service can not be reached or is not well; the same call may pass later."""


class StoreRefused(StoreError):
    """The service will not take it, whatever the document: the run stops and no document is blamed."""


def exit_code_of(error: BaseException) -> int:
    """What a verb ends with that did not come to its end: 2 configuration, 5 a service, 130 interrupted, else 1."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, ConfigError):
        return 2
    return 5 if isinstance(error, (PreflightError, StoreError)) else 1

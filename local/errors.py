"""What can go wrong with the laptop stack.

StackError
├── PortTaken          another process listens on a port that a service needs
├── StartFailed        a service ended, or did not answer in time
├── ChecksumMismatch   a downloaded artifact is not the one in the lock list
├── DownloadFailed     an artifact could not be fetched
└── RuntimeMissing     no Java runtime that can run the asked OpenSearch line
"""

from __future__ import annotations


class StackError(Exception):
    """Any failure of the laptop stack, with a message that says what to do."""


class PortTaken(StackError):
    """A port that a service needs is held by a process that is not ours."""


class StartFailed(StackError):
    """A service ended or stayed silent; the message carries the tail of its log."""


class ChecksumMismatch(StackError):
    """A downloaded artifact differs from the committed lock list."""


class DownloadFailed(StackError):
    """An artifact of the lock list could not be fetched."""


class RuntimeMissing(StackError):
    """No Java runtime can run the asked OpenSearch line."""

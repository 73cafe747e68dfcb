"""``python -m jobs VERB``, the same program as ``ingest VERB``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from ingest import __version__
from ingest.errors import IngestError, exit_code_of
from ingest.observe import configure_logging

VERBS = {
    "backfill": "bring the index in line with the bucket",
    "doctor": "check bucket, index, model and ledger; says what to do",
    "config": "print the resolved configuration and its fingerprints",
    "plan": "what a backfill would take: pages, chunks, hours, index size, cost; from a sample, writes nothing",
    "status": "how far the runs are: documents by state, rate, time left, what failed",
    "show": "the life of one document: segments, engines, failures, chunks, history",
    "report": "the report of a run again, as text or as a page to look at",
    "redrive": "run failed units again, and nothing else",
    "reconcile": "put what dead runs left back into the queue",
    "pause": "let all runs of the alias wait",
    "resume": "let them go on",
    "search": "look something up in the index",
    "submit": "run a verb as a Ray job, show its output, give back its exit code",
}
EPILOG = """exit codes:
  0  everything is as it should be
  1  unexpected error
  2  wrong usage or configuration; no document was touched
  3  partial: some documents are not or not wholly served; the report names them
  4  failed: nothing is served
  5  a service is missing, failed for long or refuses; nothing was blamed on a document
  130  interrupted; run the same command again to go on

examples:
  ingest doctor   --config my.yaml
  ingest backfill --config my.yaml --prefix manuals/ --report report.json
  ingest status   --config my.yaml --watch
  ingest show     --config my.yaml manuals/printer.pdf
  ingest redrive  --config my.yaml --branch transient --dry-run
  ingest search   --config my.yaml "how do I rotate the logs" --as public
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code."""
    configure_logging()
    parser = argparse.ArgumentParser("ingest", description=__doc__, epilog=EPILOG, formatter_class=_Raw)
    parser.add_argument("--version", action="version", version=f"ingest {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    chosen = next((word for word in (argv if argv is not None else sys.argv[1:]) if word in VERBS), None)
    for name, summary in VERBS.items():
        sub = verbs.add_parser(name, help=summary, description=summary, epilog=EPILOG, formatter_class=_Raw)
        if name == chosen:  # only the chosen verb's imports are paid
            module = importlib.import_module(f"jobs.{name}")
            module.arguments(sub)
            sub.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    return guarded(args)


class _Raw(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    pass


def guarded(args: argparse.Namespace) -> int:
    """The verb's exit code, errors translated to the documented ones."""
    if getattr(args, "report", None):
        Path(args.report).unlink(missing_ok=True)  # an old one must not be taken for this one's
    try:
        return int(args.run(args))
    except IngestError as error:
        return _say(error, exit_code_of(error))
    except KeyboardInterrupt as error:
        return _say("interrupted; run the same command again to go on", exit_code_of(error))


def _say(error: object, code: int) -> int:
    print(f"ingest: {error}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

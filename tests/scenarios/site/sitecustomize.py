"""On the path of the scenarios' Ray head: brings faults into the processes of a job that asks for them."""

import os

if os.environ.get("INGEST_FAULTS"):
    from tests.scenarios import hooks

    hooks.install()

"""Looks something up in the index, the way a reader would."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import asdict

from ingest.embed import open_embedder
from ingest.index.client import connect
from ingest.index.search import Hit, Query, search
from jobs import options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("query", help="what to look for")
    parser.add_argument(
        "--as", dest="principals", action="append", default=[], help="who asks; default source.principals"
    )
    parser.add_argument("-k", type=int, default=5, help="hits")
    parser.add_argument("--mode", choices=("dense", "lexical", "hybrid"), default="dense", help="how to rank")


def run(args: argparse.Namespace) -> int:
    """Prints the hits and returns 0."""
    config = options.load(args)
    vector = open_embedder(config.embed).embed([config.embed.query_prefix + args.query])[0]
    principals = args.principals or list(config.source.principals)
    query = Query(tuple(principals), config.source.tenant, args.query, vector, args.k, args.mode)
    hits = search(connect(config.index), config.index.alias, query)
    head = f"{len(hits)} hits for {args.query!r} as {', '.join(principals) or 'nobody'} in {config.index.alias}"
    found = {"query": args.query, "principals": principals, "hits": [asdict(hit) for hit in hits]}
    options.emit(args, found, "\n\n".join([head, *map(_shown, hits)]))
    return 0


def _shown(hit: Hit) -> str:
    pages = f"page {hit.page_from}" if hit.page_from == hit.page_to else f"pages {hit.page_from}-{hit.page_to}"
    body = textwrap.indent(textwrap.shorten(hit.text, 240, placeholder=" …"), "       ")
    return f"{hit.score:.3f}  {hit.doc_key}, {pages}\n{body}"

"""Looks something up in the index, the way a reader would."""

from __future__ import annotations

import argparse
import textwrap

from ingest.embed import open_embedder
from ingest.index.client import connect
from ingest.index.search import Query, search
from jobs import options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    parser.add_argument("query", help="what to look for")
    parser.add_argument("--as", dest="principals", action="append", default=[], help="who asks; nobody finds nothing")
    parser.add_argument("-k", type=int, default=5, help="hits")
    parser.add_argument("--mode", choices=("dense", "lexical", "hybrid"), default="dense", help="how to rank")


def run(args: argparse.Namespace) -> int:
    """Prints the hits and returns 0."""
    config = options.load(args)
    vector = open_embedder(config.embed).embed([config.embed.query_prefix + args.query])[0]
    principals = args.principals or list(config.source.principals)
    query = Query(tuple(principals), config.source.tenant, args.query, vector, args.k, args.mode)
    hits = search(connect(config.index), config.index.alias, query)
    print(f"{len(hits)} hits for {args.query!r} as {', '.join(principals) or 'nobody'} in {config.index.alias}")
    for hit in hits:
        pages = f"page {hit.page_from}" if hit.page_from == hit.page_to else f"pages {hit.page_from}-{hit.page_to}"
        print(f"\n{hit.score:.3f}  {hit.doc_key}, {pages}")
        print(textwrap.indent(textwrap.shorten(hit.text, 240, placeholder=" …"), "       "))
    return 0

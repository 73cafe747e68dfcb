"""Looks something up in the index, the way a reader would."""

from __future__ import annotations

import argparse
import sys
import textwrap
from dataclasses import asdict

from ingest.config import Config
from ingest.embed import embedder_fingerprint, open_embedder
from ingest.embed.choice import is_same_model, model_name
from ingest.errors import PreflightError, StoreRefused
from ingest.index import generations
from ingest.index.client import Cluster, connect
from ingest.index.search import Hit, Query, search
from jobs import options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add_config(parser)
    options.add_output(parser)
    parser.add_argument("query", type=_words, help="what to look for")
    parser.add_argument(
        "--as", dest="principals", action="append", default=[], help="who asks; default source.principals"
    )
    parser.add_argument("-k", type=_hits, default=5, help="hits, 1 to 10000")
    parser.add_argument("--mode", choices=("dense", "lexical", "hybrid"), default="dense", help="how to rank")


def _words(text: str) -> str:
    """Anything but nothing: an empty query has a vector, and its hits mean nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _hits(text: str) -> int:
    """Between 1 and what a k-NN query may ask for."""
    number = int(text)
    if not 1 <= number <= 10_000:
        raise argparse.ArgumentTypeError("must be from 1 to 10000")
    return number


def run(args: argparse.Namespace) -> int:
    """Prints the hits and returns 0."""
    config = options.load(args)
    cluster, vector = connect(config.index), None
    if args.mode != "lexical":
        if doubt := require_same_model(cluster, config):
            print(f"ingest: {doubt}", file=sys.stderr, flush=True)
        vector = open_embedder(config.embed).embed([config.embed.query_prefix + args.query])[0]
    principals = args.principals or list(config.source.principals)
    query = Query(tuple(principals), config.source.tenant, args.query, vector, args.k, args.mode)
    hits = search(cluster, config.index.alias, query)
    head = f"{len(hits)} hits for {args.query!r} as {', '.join(principals) or 'nobody'} in {config.index.alias}"
    found = {"query": args.query, "principals": principals, "hits": [asdict(hit) for hit in hits]}
    options.emit(args, found, "\n\n".join([head, *map(_shown, hits)]))
    return 0


def require_same_model(cluster: Cluster, config: Config) -> str:
    """Raises PreflightError where the alias serves vectors of another model; a doubt that remains, or "".

    The index keeps its embedder's whole fingerprint and no parts. The same one under any backend and dtype is found by
    trying them; under the same name, other weights and another passage prefix can't be told apart.
    """
    alias = config.index.alias
    try:
        indices = generations.targets(cluster, alias) or [alias]
        served = {str(generations.meta(cluster, index).get("embedder", "")) for index in indices}
    except StoreRefused as error:  # who may only search may not read mappings; where no index is, the search says so
        return f"the model behind {alias} can't be asked for and was not compared with embed.model ({error})"
    others = sorted(name for name in served if name and not is_same_model(config.embed, name))
    if not others:
        return ""
    own = embedder_fingerprint(config.embed)
    differ = f"{alias} serves vectors of {', '.join(others)}, and this configuration computes {own}"
    if {model_name(name) for name in others} == {model_name(own)}:
        return f"{differ}: another passage prefix, or other weights under the same name, whose hits mean nothing"
    raise PreflightError(
        f"{differ}: hits across two models mean nothing. Search with the configuration that built the index or with "
        "--mode lexical, or let the alias serve this model: ingest backfill --promote"
    )


def _shown(hit: Hit) -> str:
    pages = f"page {hit.page_from}" if hit.page_from == hit.page_to else f"pages {hit.page_from}-{hit.page_to}"
    body = textwrap.indent(textwrap.shorten(hit.text, 240, placeholder=" …"), "       ")
    return f"{hit.score:.3f}  {hit.doc_key}, {pages}\n{body}"

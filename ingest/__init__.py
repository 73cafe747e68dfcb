"""Rebuilds a document-search index in bulk from versioned S3 objects."""

__version__ = "0.1.0"

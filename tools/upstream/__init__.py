"""Upstream: refs, the store, and the sources that trees come from."""

from tools.upstream.refs import Ref, RefKind, parse_ref
from tools.upstream.sources import ReleaseRow, Upstream, list_releases, obtain
from tools.upstream.store import Store

__all__ = [
    "Ref",
    "RefKind",
    "ReleaseRow",
    "Store",
    "Upstream",
    "list_releases",
    "obtain",
    "parse_ref",
]

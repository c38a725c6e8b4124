"""Outcomes as plain data, for ``--json`` and for the pages made of them."""

from typing import Any

from tools.carry import Carried, PatchOutcome
from tools.merge import Conflict, Edit, Site
from tools.upstream import ReleaseRow


def site_data(site: Site) -> dict[str, Any]:
    """Return a place in a file: ``path``, ``name`` ("" is the module) and 1-based ``line``."""
    return {"path": site.path, "name": site.qualname, "line": site.line}


def edit_data(edit: Edit) -> dict[str, Any]:
    """Return one edit: what it does, where it was written and where it landed."""
    return {
        "kind": edit.kind,
        "written": site_data(edit.written),
        "landed": site_data(edit.landed),
        "present": edit.present,
    }


def conflict_data(conflict: Conflict) -> dict[str, Any]:
    """Return one conflict, with both sites where upstream has one."""
    return {
        "reason": conflict.reason,
        "written": site_data(conflict.written),
        "target": site_data(conflict.target) if conflict.target else None,
    }


def outcome_data(outcome: PatchOutcome) -> dict[str, Any]:
    """Return one patch's outcome."""
    return {
        "patch": outcome.name,
        "file": outcome.file,
        "sha256": outcome.digest,
        "outcome": outcome.outcome.value,
        "rule": outcome.rule,
        "commit": outcome.commit,
        "edits": [edit_data(edit) for edit in outcome.edits],
        "conflicts": [conflict_data(conflict) for conflict in outcome.conflicts],
    }


def carried_data(carried: Carried) -> dict[str, Any]:
    """Return a whole carry."""
    upstream = carried.upstream
    return {
        "ref": upstream.ref.name,
        "source": upstream.source,
        "kind": upstream.kind,
        "upstream": upstream.commit,
        "commit": carried.commit,
        "tree": carried.tree,
        "patches": [outcome_data(outcome) for outcome in carried.outcomes],
        "overlay": [
            {
                "target": row.file.target,
                "sha256": row.file.digest,
                "laid": row.laid,
                "why": row.why,
            }
            for row in carried.overlay
        ],
    }


def tags_data(rows: tuple[ReleaseRow, ...]) -> list[dict[str, Any]]:
    """Return upstream's releases."""
    return [
        {
            "tag": row.tag,
            "uploaded": row.uploaded.isoformat() if row.uploaded else None,
            "sdist": row.sdist,
            "wheel": row.wheel,
            "in_store": row.in_store,
        }
        for row in rows
    ]

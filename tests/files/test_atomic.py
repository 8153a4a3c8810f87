"""An output is whole or absent, and nothing that is not an output is ever moved or removed."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vlcpctl.core.errors import OutputExists, UsageError
from vlcpctl.files import staging
from vlcpctl.files.atomic import (
    already_made,
    check_output_path,
    new_directory,
    new_file,
    new_part,
    rewritten_directory,
    rewritten_file,
)
from vlcpctl.files.manifest import is_artifact, kind_of, read_manifest, write_manifest
from vlcpctl.files.staging import Staging, read_path


def _make(final: Path, content: str = "one", identity: dict[str, object] | None = None) -> None:
    with new_directory(final, "task.json") as directory:
        (directory / "data").write_text(content)
        write_manifest(directory, "task", identity or {"seed": 0}, content, {"name": content})


def _write_file(final: Path) -> None:
    with new_file(final, is_artifact) as temporary:
        temporary.write_text("ours")


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _fail_after_writing(path: Path) -> None:
    path.write_text("half")
    raise KeyError


STEPS = ("mkdir", "rename", "replace", "link", "unlink", "rmdir", "fsync", "open")


def _killed_at(step: int, work: Callable[[], None]) -> bool:
    """Do the work in a child that is killed before its step of this number; whether it was.

    A step is a call of the system that changes a name or waits for the disk.
    """
    pid = os.fork()
    if pid == 0:
        left = [step]

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*given: object, **named: object) -> object:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **named)

            return call

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        staging._exchange = counted(staging._exchange)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def exchanges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system can exchange two names; where it cannot, two renames do."""
    if not request.param:
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    return bool(request.param)


def test_what_is_replaced_is_kept_where_globs_do_not_see_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    final = tmp_path / "a b"
    _make(final, "one")
    assert _names(tmp_path) == ["a b"]
    _make(final, "two")
    kept = tmp_path / ".a b.vlcpctl/replaced/a b"
    assert f"the previous output is kept in {kept}" in capfd.readouterr().err
    assert read_manifest(final, "task")["content"] == "two"
    assert read_manifest(kept, "task")["content"] == "one"
    assert [name for name in _names(tmp_path) if name[0] != "."] == ["a b"]
    _make(final, "three")
    assert read_manifest(kept, "task")["content"] == "two"


def test_an_error_leaves_nothing_and_the_old_one_intact(tmp_path: Path) -> None:
    final = tmp_path / "a"
    _make(final, "one")
    with pytest.raises(KeyError), new_directory(final, "task.json") as directory:
        _fail_after_writing(directory / "data")
    assert _names(tmp_path) == ["a"]
    assert read_manifest(final, "task")["content"] == "one"


def _kept(final: Path) -> str | None:
    kept = Staging(final).replaced / "data"
    return kept.read_text() if kept.exists() else None


def test_a_kill_leaves_the_old_or_the_new_directory(tmp_path: Path, exchanges: bool) -> None:
    for step in range(1, 99):
        final = tmp_path / str(step) / "a"
        final.parent.mkdir()
        _make(final, "one")
        _make(final, "two")
        was_killed = _killed_at(step, lambda at=final: _make(at, "three"))
        found = read_path(final / "data").read_text()
        assert (final / "data").read_text() == found  # the reader has completed the swap
        assert found == "two" or (found, _kept(final)) == ("three", "two")
        assert already_made(final, "task", {"seed": 0}, force=False)
        _make(final, "four")
        assert (found, read_manifest(final, "task")["content"]) == (_kept(final), "four")
        assert _names(tmp_path / str(step) / ".a.vlcpctl") == ["made-by-vlcpctl", "replaced"]
        if not was_killed:
            break
    assert step > 20


def test_a_kill_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    def write(final: Path, text: str) -> None:
        with new_file(final, lambda _: True) as temporary:
            temporary.write_text(text)

    for step in range(1, 99):
        final, kept = tmp_path / str(step) / "a", tmp_path / str(step) / ".a.vlcpctl/replaced/a"
        final.parent.mkdir()
        write(final, "one")
        write(final, "two")
        was_killed = _killed_at(step, lambda at=final: write(at, "three"))
        found = final.read_text()
        assert found == "two" or (found, kept.read_text()) == ("three", "two")
        write(final, "four")
        assert (kept.read_text(), final.read_text()) == (found, "four")
        if not was_killed:
            break
    assert step > 8


def _rewrite(final: Path, content: str) -> None:
    with rewritten_directory(final) as directory:
        (directory / "data").write_text(content)
        write_manifest(directory, "task", {"seed": 0}, content, {"name": content})


def test_nothing_is_kept_of_what_is_rewritten_even_after_a_kill(
    tmp_path: Path, exchanges: bool
) -> None:
    for step in range(1, 99):
        final = tmp_path / str(step) / "a"
        final.parent.mkdir()
        _make(final, "one")
        _make(final, "two")
        was_killed = _killed_at(step, lambda at=final: _rewrite(at, "three"))
        assert read_manifest(final, "task")["content"] in {"two", "three"}
        with Staging(final).locked():
            pass
        left = {path.read_text() for path in final.parent.rglob("data")}
        assert left in ({"one", "two"}, {"one", "three"})
        _rewrite(final, "four")
        assert {path.read_text() for path in final.parent.rglob("data")} == {"one", "four"}
        assert _kept(final) == "one"
        if not was_killed:
            break
    assert step > 20


def test_a_file_is_rewritten_without_keeping_the_old_one(tmp_path: Path) -> None:
    final = tmp_path / "a"
    final.write_text("one")
    with rewritten_file(final) as temporary:
        temporary.write_text("two")
    assert (final.read_text(), _names(tmp_path)) == ("two", ["a"])
    with pytest.raises(KeyError), rewritten_file(final) as temporary:
        _fail_after_writing(temporary)
    assert (final.read_text(), _names(tmp_path)) == ("two", ["a"])


def test_where_nothing_can_be_written_readers_read_through_a_swap_killed_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "a"
    _make(final, "one")
    hidden = Staging(final)
    hidden.ready.parent.mkdir(parents=True)
    hidden.marker.touch()
    final.rename(hidden.ready)
    (tmp_path / "latest").symlink_to("a")
    with monkeypatch.context() as read_only:
        read_only.setattr(Staging, "finish_swap", lambda _: None)
        assert read_path(tmp_path / "latest") == hidden.ready
        assert read_path(final / "data").read_text() == "one"
    assert kind_of(final) == "task"
    assert (final / "data").read_text() == "one"
    assert _names(tmp_path) == ["a", "latest"]


def test_a_directory_of_an_image_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OverlayFS does with what is in a lower layer."""
    _make(tmp_path / "a")
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if source == tmp_path / "a":
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OutputExists, match="volume"), new_directory(tmp_path / "a", "task.json"):
        raise AssertionError
    assert _names(tmp_path) == ["a"]


def test_where_there_are_no_locks_writers_leave_each_others_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with new_directory(tmp_path / "a", "task.json") as directory:
        theirs = directory.with_name("writing-host-1")
        theirs.mkdir()
        write_manifest(directory, "task", {}, "one", {})
    _make(tmp_path / "a", "two")
    assert theirs.is_dir()
    assert read_manifest(tmp_path / "a", "task")["content"] == "two"


def test_the_same_command_is_recognised_and_another_one_named(tmp_path: Path) -> None:
    final = tmp_path / "a"
    assert not already_made(final, "task", {"seed": 0}, force=False)
    _make(final, identity={"seed": 0, "pair": (1, 2)})
    assert already_made(final, "task", {"seed": 0, "pair": [1, 2]}, force=False)
    with pytest.raises(OutputExists, match="seed was 0 and is now 1"):
        already_made(final, "task", {"seed": 1, "pair": [1, 2]}, force=False)
    assert not already_made(final, "task", {"seed": 1, "pair": [1, 2]}, force=True)
    with pytest.raises(OutputExists, match="is not a checkpoint"):
        already_made(final, "checkpoint", {"seed": 0}, force=False)


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_that_is_no_artifact_is_refused(tmp_path: Path, force: bool) -> None:
    """A `summary.json` of somebody else's makes no report of it."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "summary.json").write_text('{"mine": true}')
    with pytest.raises(OutputExists, match="is not a result of vlcpctl"):
        already_made(theirs, "report", {}, force=force)
    with pytest.raises(OutputExists, match="is not a result of vlcpctl"):
        _make(theirs)
    (tmp_path / "file").write_text("theirs")
    with pytest.raises(OutputExists, match="is a file"):
        already_made(tmp_path / "file", "report", {}, force=force)
    assert _names(tmp_path) == ["file", "theirs"]


def test_an_empty_directory_is_free(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert not already_made(tmp_path / "a", "task", {"seed": 0}, force=False)
    _make(tmp_path / "a")
    assert read_manifest(tmp_path / "a", "task")["content"] == "one"
    assert _names(tmp_path) == ["a"]


def _write_any_file(final: Path) -> None:
    with new_file(final, lambda _: True) as temporary:
        temporary.write_text("new")


@pytest.mark.parametrize(
    ("target", "write"),
    [
        ("made", _make),
        ("made", lambda link: already_made(link, "task", {"seed": 0}, force=True)),
        ("empty", _make),
        ("empty", lambda link: already_made(link, "task", {"seed": 0}, force=False)),
        ("rows", _write_any_file),
    ],
)
def test_a_link_and_what_it_leads_to_are_not_replaced(
    tmp_path: Path, target: str, write: Callable[[Path], object]
) -> None:
    _make(tmp_path / "made")
    (tmp_path / "empty").mkdir()
    _write_any_file(tmp_path / "rows")
    link = tmp_path / "link"
    link.symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputExists, match=rf"symbolic link.*or give {tmp_path / target}"):
        write(link)
    assert sorted(tmp_path.rglob("*")) == before
    assert link.readlink() == Path(target)
    assert (tmp_path / "rows").read_text() == "new"


def test_a_finished_output_is_found_through_a_link(tmp_path: Path) -> None:
    _make(tmp_path / "a")
    (tmp_path / "link").symlink_to("a")
    assert already_made(tmp_path / "link", "task", {"seed": 0}, force=False)


def test_a_mount_point_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "a")
    with pytest.raises(OutputExists, match=r"mount point.*choose a path in it"):
        already_made(tmp_path / "a", "task", {}, force=False)


def test_a_directory_that_comes_while_another_is_written_stays(tmp_path: Path) -> None:
    def write(final: Path) -> None:
        with new_directory(final, "task.json") as directory:
            write_manifest(directory, "task", {}, "one", {})
            (final / "theirs").mkdir(parents=True)

    with pytest.raises(OutputExists):
        write(tmp_path / "a")
    assert _names(tmp_path) == ["a"]


def test_names_that_a_user_may_have_given_are_left_alone(tmp_path: Path) -> None:
    """Earlier versions moved outputs to NAME.old and removed NAME.partial and .NAME.new."""
    final = tmp_path / "a"
    theirs = [tmp_path / name for name in ("a.old", "a.partial", ".a.new", ".a.tmp-host-1")]
    for path in theirs:
        path.mkdir()
        (path / "theirs").write_text("theirs")
    _make(final, "one")
    read_manifest(final, "task")
    _make(final, "two")
    Staging(final).drop_partial()
    assert all((path / "theirs").read_text() == "theirs" for path in theirs)


@pytest.mark.parametrize("inside", ["ready/a", "replaced", "partial"])
def test_a_directory_named_like_a_staging_directory_is_refused(tmp_path: Path, inside: str) -> None:
    (tmp_path / ".a.vlcpctl" / inside).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    staging_directory = Staging(tmp_path / "a")
    for write in (
        lambda: _make(tmp_path / "a"),
        lambda: _write_file(tmp_path / "a"),
        lambda: staging_directory.keep(staging_directory.partial),
    ):
        with pytest.raises(OutputExists, match="was not made by vlcpctl"):
            write()
    staging_directory.finish_swap()
    staging_directory.drop_partial()
    staging_directory.close()
    assert read_path(tmp_path / "a") == tmp_path / "a"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_named_like_a_staging_directory_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / ".a.vlcpctl"
    theirs.write_text("theirs")
    for write in (_make, _write_file):
        with pytest.raises(OutputExists, match="was not made by vlcpctl"):
            write(tmp_path / "a")
    assert theirs.read_text() == "theirs"


def test_what_dead_processes_were_writing_is_removed(tmp_path: Path) -> None:
    assert _killed_at(9, lambda: _make(tmp_path / "a"))
    staging_directory = tmp_path / ".a.vlcpctl"
    assert [name.split("-")[0] for name in _names(staging_directory)] == ["made", "writing"]
    for name in ("writing-another-host-1", "part-0-of-2"):
        (staging_directory / name).mkdir()
    _make(tmp_path / "a")
    assert _names(tmp_path) == ["a"]


@pytest.mark.parametrize("given", ["", ".", "..", "/", "~", "sub/..", "-", "link"])
def test_places_that_hold_other_things_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    here = tmp_path / "home" / "here"
    here.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(here)
    (here / "link").symlink_to("nowhere")
    with pytest.raises(UsageError):
        check_output_path(Path(given).expanduser())


def test_an_output_that_is_or_contains_an_input_is_refused(tmp_path: Path) -> None:
    given = tmp_path / "run" / "00"
    given.mkdir(parents=True)
    with pytest.raises(UsageError, match="contains the input"):
        check_output_path(tmp_path / "run", [given])
    with pytest.raises(UsageError, match="is also an input"):
        check_output_path(given, [given])
    check_output_path(tmp_path / "run" / "01", [given])


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    final = tmp_path / "rows"
    with pytest.raises(KeyError), new_file(final, is_artifact) as temporary:
        _fail_after_writing(temporary)
    assert list(tmp_path.iterdir()) == []
    with new_file(final, is_artifact) as temporary:
        temporary.write_text("whole")
    assert final.read_text() == "whole"
    assert _names(tmp_path) == ["rows"]


def test_only_a_file_of_the_same_command_is_replaced_and_it_is_kept(tmp_path: Path) -> None:
    final = tmp_path / "rows"
    final.write_text("theirs")
    with (
        pytest.raises(OutputExists, match="not written by this command"),
        new_file(final, lambda _: False),
    ):
        raise AssertionError
    with new_file(final, lambda _: True) as temporary:
        temporary.write_text("ours")
    assert final.read_text() == "ours"
    assert (tmp_path / ".rows.vlcpctl/replaced/rows").read_text() == "theirs"
    with pytest.raises(OutputExists, match="is a directory"), new_file(tmp_path, lambda _: True):
        raise AssertionError


def test_processes_of_one_number_on_two_hosts_do_not_share_a_file(tmp_path: Path) -> None:
    """A cache on a network file system: what is written is named after more than the process."""
    with new_part(tmp_path / "entry") as one, new_part(tmp_path / "entry") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "entry").read_text() == "one"
    assert _names(tmp_path) == ["entry"]


OVERLAY = """
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr merged || exit 99
vlcpctl sample emoji9 --size 16 --views 1 --limit 40 -o sample.parquet || exit 98
vlcpctl split sample.parquet --by iid --tasks 2 -o merged/new || exit 1
vlcpctl split sample.parquet --by iid --tasks 3 -o merged/new --force || exit 2
vlcpctl split sample.parquet --by iid --tasks 3 -o merged/old --force
"""


@pytest.mark.slow
def test_in_a_container_outputs_of_the_image_are_refused_and_others_replaced(
    tmp_path: Path,
) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    _make(tmp_path / "lower" / "old")
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", OVERLAY],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    if done.returncode == 99:
        pytest.skip(f"no overlay can be mounted: {done.stderr}")
    assert (done.returncode, "volume" in done.stderr.splitlines()[-1]) == (4, True), done.stderr

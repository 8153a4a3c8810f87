"""An output is whole or absent, and nothing that is not an output is ever moved or removed."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.marks import mostly_slow

from vlcpctl.core.errors import OutputExists
from vlcpctl.files import locks, outputs
from vlcpctl.files.finished import already_made
from vlcpctl.files.manifest import is_artifact, kind_of, read_manifest, write_manifest
from vlcpctl.files.outputs import (
    Output,
    new_directory,
    new_file,
    new_part,
    output_at,
    output_of,
    place_of,
    read_path,
    rewriting,
)


def make(out: Path, content: str = "one", identity: dict[str, object] | None = None) -> None:
    with new_directory(out, is_artifact) as directory:
        (directory / "data").write_text(content)
        write_manifest(directory, "task", identity or {"seed": 0}, content, {"name": content})


def write(out: Path, text: str = "new") -> None:
    with new_file(out, lambda _: True) as temporary:
        temporary.write_text(text)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def kept(out: Path) -> str | None:
    path = Output(out).replaced
    path = path / "data" if path.is_dir() else path
    return path.read_text() if path.exists() else None


# Kills, before each call of the system that changes a name or waits for the disk

STEPS = ("mkdir", "rename", "replace", "link", "unlink", "rmdir", "fsync", "open")


def killed_at(step: int, work: Callable[[], None]) -> bool:
    """Do the work in a child that is killed before its step of this number; whether it was."""
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
        outputs._exchange = counted(outputs._exchange)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.fixture(params=mostly_slow(["exchange", "two renames"], kept=["exchange"]))
def _exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the system can exchange two names; where it cannot, two renames do."""
    if request.param != "exchange":
        monkeypatch.setattr(outputs, "_exchange", lambda one, other: False)


@pytest.mark.usefixtures("_exchange")
def test_a_kill_leaves_the_old_or_the_new_directory(tmp_path: Path) -> None:
    for step in range(1, 99):
        out = tmp_path / str(step) / "a"
        make(out, "one")
        make(out, "two")
        was_killed = killed_at(step, partial(make, out, "three"))
        found = read_path(out / "data").read_text()  # the reader completes the swap
        assert found == "two" or (found, kept(out)) == ("three", "two")
        assert already_made(out, "task", {"seed": 0}, force=False)
        make(out, "four")
        assert (found, read_manifest(out, "task")["content"]) == (kept(out), "four")
        assert names(tmp_path / str(step) / ".a.vlcpctl") == ["made-by-vlcpctl", "replaced"]
        if not was_killed:
            break
    assert step > 20


def test_a_kill_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    for step in range(1, 99):
        out = tmp_path / str(step) / "a"
        write(out, "one")
        write(out, "two")
        was_killed = killed_at(step, partial(write, out, "three"))
        found = out.read_text()
        assert found == "two" or (found, kept(out)) == ("three", "two")
        write(out, "four")
        assert (kept(out), out.read_text()) == (found, "four")
        if not was_killed:
            break
    assert step > 8


@pytest.mark.usefixtures("_exchange")
@pytest.mark.parametrize("is_file", [False, True])
def test_nothing_is_left_of_what_is_rewritten_even_after_a_kill(
    tmp_path: Path, is_file: bool
) -> None:
    def texts(out: Path) -> set[str]:
        return {
            path.read_text()
            for path in out.parent.rglob("*")
            if path.is_file() and path.name != "made-by-vlcpctl"
        }

    def rewrite(out: Path, content: str) -> None:
        with rewriting(out) as temporary:
            if not is_file:
                temporary.mkdir()
            (temporary if is_file else temporary / "data").write_text(content)

    for step in range(1, 99):
        out = tmp_path / str(step) / "a"
        out.parent.mkdir()
        rewrite(out, "two")
        was_killed = killed_at(step, partial(rewrite, out, "three"))
        with Output(out).locked():
            pass
        assert texts(out) in ({"two"}, {"three"})
        rewrite(out, "four")
        assert texts(out) == {"four"}
        assert names(out.parent) == ["a"]
        if not was_killed:
            break
    assert step > 8


def test_what_dead_processes_were_writing_is_removed(tmp_path: Path) -> None:
    assert killed_at(9, partial(make, tmp_path / "a"))
    hidden = tmp_path / ".a.vlcpctl"
    assert [name.split("-")[0] for name in names(hidden)] == ["made", "writing"]
    for name in ("writing-another-host-1", "part-0-of-2"):
        (hidden / name).mkdir()
    make(tmp_path / "a")
    assert names(tmp_path) == ["a"]


# What is written


def test_what_is_replaced_is_kept_where_globs_do_not_see_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a b"
    make(out, "one")
    assert names(tmp_path) == ["a b"]
    make(out, "two")
    assert str(tmp_path / ".a b.vlcpctl/replaced/a b") in capfd.readouterr().err
    assert (read_manifest(out, "task")["content"], kept(out)) == ("two", "one")
    assert [name for name in names(tmp_path) if name[0] != "."] == ["a b"]
    make(out, "three")
    assert kept(out) == "two"


def test_an_error_leaves_nothing_and_the_old_one_intact(tmp_path: Path) -> None:
    make(tmp_path / "a", "one")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise KeyError

    with pytest.raises(KeyError), new_directory(tmp_path / "a", is_artifact) as directory:
        fail(directory / "data")
    with pytest.raises(KeyError), new_file(tmp_path / "new" / "b", is_artifact) as file:
        fail(file)
    assert names(tmp_path) == ["a"]
    assert read_manifest(tmp_path / "a", "task")["content"] == "one"


def test_an_empty_directory_is_free(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert not already_made(tmp_path / "a", "task", {"seed": 0}, force=False)
    make(tmp_path / "a")
    assert names(tmp_path) == ["a"]


def test_processes_of_one_number_on_two_hosts_do_not_share_a_file(tmp_path: Path) -> None:
    """A cache on a network file system: what is written is named after more than the process."""
    with new_part(tmp_path / "entry") as one, new_part(tmp_path / "entry") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "entry").read_text() == "one"
    assert names(tmp_path) == ["entry"]


def test_the_same_command_is_recognised_and_another_one_named(tmp_path: Path) -> None:
    out = tmp_path / "a"
    assert not already_made(out, "task", {"seed": 0}, force=False)
    make(out, identity={"seed": 0, "pair": (1, 2)})
    (tmp_path / "link").symlink_to("a")
    for path in (out, tmp_path / "link"):
        assert already_made(path, "task", {"seed": 0, "pair": [1, 2]}, force=False)
    with pytest.raises(OutputExists, match="seed was 0 and is now 1"):
        already_made(out, "task", {"seed": 1, "pair": [1, 2]}, force=False)
    assert not already_made(out, "task", {"seed": 1, "pair": [1, 2]}, force=True)
    with pytest.raises(OutputExists, match="is not a checkpoint"):
        already_made(out, "checkpoint", {"seed": 0}, force=False)


# What is refused


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_artifact_is_refused(tmp_path: Path, force: bool) -> None:
    """A `summary.json` of somebody else's makes no report of it."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "summary.json").write_text('{"mine": true}')
    (tmp_path / "file").write_text("theirs")
    (tmp_path / "empty").touch()
    for name in ("theirs", "file", "empty"):
        with pytest.raises(OutputExists):
            already_made(tmp_path / name, "report", {}, force=force)
        with pytest.raises(OutputExists):
            make(tmp_path / name)
    with pytest.raises(OutputExists), new_file(tmp_path / "file", lambda _: False):
        raise AssertionError
    with pytest.raises(OutputExists), new_file(tmp_path / "theirs", lambda _: True):
        raise AssertionError
    assert names(tmp_path) == ["empty", "file", "theirs"]


@pytest.mark.parametrize(
    ("target", "act"),
    [
        ("made", make),
        ("made", lambda link: already_made(link, "task", {"seed": 0}, force=True)),
        ("empty", make),
        ("empty", lambda link: already_made(link, "task", {"seed": 0}, force=False)),
        ("rows", write),
        ("nothing", make),
    ],
)
def test_a_link_and_what_it_leads_to_are_not_replaced(
    tmp_path: Path, target: str, act: Callable[[Path], object]
) -> None:
    make(tmp_path / "made")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "rows")
    link = tmp_path / "link"
    link.symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputExists, match=rf"symbolic link.*or give {tmp_path / target}"):
        act(link)
    assert sorted(tmp_path.rglob("*")) == before
    assert link.readlink() == Path(target)


def test_a_mount_point_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "a")
    with pytest.raises(OutputExists, match=r"mount point.*a path in it"):
        already_made(tmp_path / "a", "task", {}, force=False)


def test_a_directory_of_an_image_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OverlayFS does with what is in a lower layer."""
    make(tmp_path / "a")
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if source == tmp_path / "a":
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OutputExists, match="volume"), new_directory(tmp_path / "a", is_artifact):
        raise AssertionError
    assert names(tmp_path) == ["a"]


def test_a_directory_that_comes_while_another_is_written_stays(tmp_path: Path) -> None:
    def act() -> None:
        with new_directory(tmp_path / "a", is_artifact) as directory:
            write_manifest(directory, "task", {}, "one", {})
            (tmp_path / "a" / "theirs").mkdir(parents=True)

    with pytest.raises(OutputExists):
        act()
    assert names(tmp_path) == ["a"]
    assert kind_of(tmp_path / "a") is None


@pytest.mark.parametrize("inside", ["ready", "replaced", "partial", None])
def test_what_is_named_like_a_hidden_directory_is_refused(
    tmp_path: Path, inside: str | None
) -> None:
    hidden = tmp_path / ".a.vlcpctl"
    (hidden / inside).mkdir(parents=True) if inside else hidden.write_text("theirs")
    before = sorted(tmp_path.rglob("*"))
    for act in (make, write, lambda out: Output(out).drop_partial(keeps=True)):
        with pytest.raises(OutputExists, match="was not made by vlcpctl"):
            act(tmp_path / "a")
    Output(tmp_path / "a").drop_partial()
    assert read_path(tmp_path / "a") == tmp_path / "a"
    assert sorted(tmp_path.rglob("*")) == before


def test_where_there_are_no_locks_writers_leave_each_others_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(locks._State, "has_warned", False)
    with new_directory(tmp_path / "a", is_artifact) as directory:
        theirs = directory.with_name("writing-host-1")
        theirs.mkdir()
        write_manifest(directory, "task", {}, "one", {})
    make(tmp_path / "a", "two")
    assert theirs.is_dir()
    assert read_manifest(tmp_path / "a", "task")["content"] == "two"
    assert capsys.readouterr().err.count("does not support locks") == 1


# Where an output and its hidden directory are


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory real/deep, with the link `link` to it in the current directory."""
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/deep")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "real" / "deep"


@pytest.mark.parametrize(
    "spelling", ["link/out", "link/./out", "link/../deep/out", "real/deep/out"]
)
def test_all_paths_to_an_output_have_one_hidden_directory(linked: Path, spelling: str) -> None:
    assert Output(Path(spelling)).hidden == linked / ".out.vlcpctl"
    assert Output(Path(spelling)).place == linked / "out"
    assert Output(Path("link")).place == linked.parent.parent / "link"
    assert place_of(Path("link/..")) == linked.parent


@pytest.mark.parametrize("spelling", ["link", "real/deep", "link/../deep"])
def test_a_directory_that_is_changed_in_place_has_its_lock_inside(
    linked: Path, spelling: str
) -> None:
    output = Output(Path(spelling), inside=True)
    with output.locked(), Output(linked / "out").locked():
        assert (linked / ".vlcpctl" / "made-by-vlcpctl").is_file()
        for hidden, place in ((".vlcpctl", linked), (".out.vlcpctl", linked / "out")):
            found = output_at(linked / hidden)
            assert found is not None
            assert found.place == place
    assert not list(linked.iterdir())
    assert output_of(linked / ".vlcpctl") == linked
    assert output_at(linked) is None

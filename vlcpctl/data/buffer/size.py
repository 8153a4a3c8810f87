"""The size of a buffer, from the options --size, --of and --add."""

from __future__ import annotations

from dataclasses import dataclass

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import parse_number
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.task import Task
from vlcpctl.files.manifest import MANIFESTS

OF_STREAM = "stream"
_LARGEST = 2**63 - 1  # a manifest with a larger number could not be read again
_MOST_DIGITS = 100  # zeros in front included; int() refuses thousands


@dataclass(frozen=True, kw_only=True)
class BufferSize:
    """Exactly one of: a number of items, a share of every task, a number added with every task."""

    count: int | None = None
    share: float | None = None  # in (0, 1]
    add: int | None = None
    text: int | str  # as recorded in manifests and rows, such as 10000, "5%" or "+100"
    of: int | None = None  # the number of images that a percentage refers to
    is_of_stream: bool = False  # and whether these are all that the stream has now

    @property
    def kind(self) -> str:
        """What the number counts, in words; recorded in the manifest and shown in messages."""
        if self.add is not None:
            return "a number added with every task"
        return "a share of every task" if self.count is None else "a number of items"


def parse_size(size: str | None, of: str | None, add: int | None, task: Task) -> BufferSize:
    """Parse the options into a size.

    Raises UsageError if they are malformed or contradict each other, or if `--of stream` is given
    for a task outside a stream.
    """
    if add is not None:
        if size is not None or of is not None:
            raise UsageError("--add cannot be combined with --size or --of: it evicts nothing")
        return BufferSize(add=add, text=f"+{add}")
    if size is None:
        raise UsageError(
            "--size is missing; give a number of images or a share, such as 10000 or 5%"
        )
    if not size.endswith("%"):
        if of is not None:
            raise UsageError(
                f"--of has no effect with --size {size}: it applies only to a size in percent"
            )
        count = _whole_number(size)
        return BufferSize(count=count, text=count)
    share = _share(size)
    if of is None:
        return BufferSize(share=share, text=size)
    stream_images = _stream_images(task) if of == OF_STREAM else _whole_number(of, "--of")
    count = max(1, round(share * stream_images))
    return BufferSize(count=count, text=size, of=stream_images, is_of_stream=of == OF_STREAM)


def _whole_number(text: str, option: str = "--size") -> int:
    if not (text.isascii() and text.isdigit()) or not text.strip("0"):
        what = "5%" if option == "--size" else OF_STREAM
        raise UsageError(f"{option} is {text!r}; write a whole number such as 10000, or {what}")
    if len(text) > _MOST_DIGITS or int(text) > _LARGEST:
        raise UsageError(f"{option} {text} is too large; at most {_LARGEST} is possible")
    return int(text)


def _share(text: str) -> float:
    try:
        percent = parse_number(text[:-1])
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise UsageError(f"--size is {text!r}; a percentage must be above 0% and at most 100%")
    return percent / 100


def _stream_images(task: Task) -> int:
    """Number of training images in the whole stream that contains the task's directory."""
    directory = task.path.resolve().parent
    if not (directory / MANIFESTS["stream"]).is_file():
        raise UsageError(
            f"--of stream: {task.path} is not inside a stream directory; "
            "give the number of training images instead, such as --of 100000"
        )
    tasks = read_stream(directory).tasks
    return sum(one.splits["train"].images for one in tasks if "train" in one.splits)

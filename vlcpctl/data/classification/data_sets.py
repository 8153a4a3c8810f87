"""Classification data sets: labelled tasks and CLIP_benchmark folders, with classes and prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.words import shown
from vlcpctl.data.classification.benchmarks import find_benchmark, usual_name
from vlcpctl.data.classification.labelled_images import FolderData, ImagesOfSplit, open_folder
from vlcpctl.data.classification.prompts import DEFAULT_TEMPLATES, TemplatesFile, prompts_of
from vlcpctl.data.tasks.class_names import name_of
from vlcpctl.data.tasks.facts import EXPORT, read_stream
from vlcpctl.data.tasks.task import Task, open_stream, open_task
from vlcpctl.files.manifest import MANIFESTS, kind_of
from vlcpctl.files.stores import is_stored, stored

CLASSES = ("all", "task")


@dataclass(frozen=True)
class TaskData:
    """A task or buffer directory; its classes are the images' labels.

    Prompts have the names of the classes: two classes of one name have the same prompts.
    """

    task: Task
    classes: Sequence[str]

    @property
    def name(self) -> str:
        """The name in evaluation rows."""
        return self.task.slug

    def prompts(self, given: TemplatesFile | None) -> list[list[str]]:
        """See `FolderData`."""
        names = [name_of(label) for label in self.classes]
        if given is None:
            return prompts_of(names, DEFAULT_TEMPLATES, self.name)
        return prompts_of(names, given.of(self.name), given.path)

    def content(self, *splits: str) -> str:
        """The task's content id."""
        return self.task.content

    def check(self, split: str) -> None:
        """See `FolderData`."""
        self.task.require(split)

    def images(self, split: str) -> ImagesOfSplit:
        """The labelled images of a split. Raises BadInput if they cannot be read."""
        return ImagesOfSplit(self.task.split(split), self.classes)


DataSet = TaskData | FolderData  # of images with one of several named classes each


def open_data_sets(words: Sequence[str], data: Path | None, classes: str) -> list[DataSet]:
    """Open data sets, each given as a task directory, a folder, or a name to look for in `data`.

    With `classes` "all" a task is classified among the classes of its whole stream, with "task"
    among its own. Raises UsageError if an option has no effect or two data sets have one name,
    BadInput if a data set cannot be found or read.
    """
    if data is not None and all(Path(word).exists() for word in words):
        raise UsageError(f"--data {data} has no effect: every data set is given as a path")
    found = [_open(word, data) for word in words]
    tasks = [one for one in found if isinstance(one, Task)]
    if classes == "task" and not tasks:
        raise UsageError("--classes task has no effect: none of the data sets is a task")
    whole: list[DataSet] = [
        TaskData(one, _labels(one, classes, tasks)) if isinstance(one, Task) else one
        for one in found
    ]
    again = [name for name, count in Counter(one.name for one in whole).items() if count > 1]
    if again:
        raise UsageError(f"two data sets are named {again[0]}; give them in separate commands")
    return whole


def _open(word: str, data: Path | None) -> Task | FolderData:
    path = Path(word)
    if not path.exists():
        return open_folder(*find_benchmark(word, data))
    # An exported data set may have CLIP_benchmark's layout.
    if kind_of(path) not in {None, EXPORT}:
        return open_task(path)
    return open_folder(path, usual_name(path.absolute().name))


def _labels(task: Task, classes: str, given: Sequence[Task]) -> list[str]:
    tasks = _stream_of(task, given) if classes == "all" else [task]
    labels = sorted({label for one in tasks for label in one.manifest.labels})
    if not labels:
        raise BadInput(
            f"{task.path} has no class labels; 'vlcpctl split' adds them with --label-column or "
            "--labels-from"
        )
    return labels


def _stream_of(task: Task, given: Sequence[Task]) -> list[Task]:
    """All tasks of the task's stream: those beside it, or else those given.

    Raises BadInput if neither are all tasks of the stream.
    """
    stream = task.manifest.stream
    if stream is None:
        return [task]
    if is_stored(task.path):
        _list_stream(task.path.parent)
    # A link to a task is looked up beside the task, and a stream may consist of links to tasks.
    for beside in (task.path.resolve().parent, task.path.absolute().parent):
        has_manifest = (beside / MANIFESTS["stream"]).is_file()
        if has_manifest and read_stream(beside).id == stream:
            return open_stream(beside)
    same = (one for one in given if one.manifest.stream == stream)
    stream_tasks = {one.step: one for one in same if one.step is not None}  # a buffer has no step
    wanted = task.manifest.tasks_in_stream or 0
    if len(stream_tasks) < wanted:
        raise BadInput(
            f"{task.path} is not inside its stream directory, so --classes all cannot find the "
            f"other classes; give all {wanted} tasks, or --classes task"
        )
    return list(stream_tasks.values())


def _list_stream(directory: Path) -> None:
    """List the manifests of a stream in an object store, of which one task is known so far."""
    with suppress(BadInput):  # the task is not inside its stream
        stored(shown(str(directory / MANIFESTS["stream"])))
        for entry in read_stream(directory).tasks:
            stored(shown(str(directory / entry.path / MANIFESTS["task"])))

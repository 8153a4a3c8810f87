"""Classification data sets: labelled tasks and CLIP_benchmark folders, with classes and prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.words import shown
from vlcpctl.data.classification import benchmarks
from vlcpctl.data.classification.benchmarks import find_benchmark, usual_name
from vlcpctl.data.classification.class_folder import (
    CLASS_NAMES,
    TEMPLATES,
    ClassFolder,
    open_class_folder,
)
from vlcpctl.data.classification.labelled_images import ImagesOfSplit, LabelledImages
from vlcpctl.data.classification.prompts import DEFAULT_TEMPLATES, TemplatesFile, prompts_of
from vlcpctl.data.tasks.class_names import name_of
from vlcpctl.data.tasks.facts import EXPORT, StreamManifest, read_stream
from vlcpctl.data.tasks.task import Task, open_stream, open_task
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import MANIFESTS, kind_of
from vlcpctl.files.stores import is_stored, stored

CLASSES = ("all", "task")


class DataSet(Protocol):
    """A data set of images with one of several named classes each."""

    @property
    def name(self) -> str:
        """The data set's name in evaluation rows."""

    @property
    def classes(self) -> Sequence[str]:
        """The class names, in the order of the labels."""

    def prompts(self, given: TemplatesFile | None) -> list[list[str]]:
        """The prompts of each class, from the given templates or else the data set's own.

        Raises BadInput if the templates do not fit the data set.
        """

    def content(self, *splits: str) -> str:
        """The content id of the data; of data without one, that of its classes and these splits.

        Raises BadInput if a file cannot be read.
        """

    def check(self, split: str) -> None:
        """Raise BadInput if the data set does not have the split."""

    def images(self, split: str) -> LabelledImages:
        """The labelled images of a split. Raises BadInput if they cannot be read."""


@final
@dataclass(frozen=True)
class TaskData:
    """A task or buffer directory; its classes are the images' labels.

    Prompts have the names of the classes: two classes of one name have the same prompts.
    """

    task: Task
    classes: Sequence[str]

    @property
    def name(self) -> str:
        return self.task.slug

    def prompts(self, given: TemplatesFile | None) -> list[list[str]]:
        """See `DataSet`."""
        names = [name_of(label) for label in self.classes]
        if given is None:
            return prompts_of(names, DEFAULT_TEMPLATES, self.name)
        return prompts_of(names, given.of(self.name), given.path)

    def content(self, *splits: str) -> str:
        """See `DataSet`."""
        return self.task.content

    def check(self, split: str) -> None:
        """See `DataSet`."""
        self.task.require(split)

    def images(self, split: str) -> LabelledImages:
        """See `DataSet`."""
        return ImagesOfSplit(self.task.split(split), self.classes)


@final
@dataclass(frozen=True)
class FolderData:
    """A data set in a folder in CLIP_benchmark's layout."""

    name: str
    folder: ClassFolder
    classes: Sequence[str]

    def prompts(self, given: TemplatesFile | None) -> list[list[str]]:
        """See `DataSet`."""
        if given is not None:
            return prompts_of(self.classes, given.of(self.name), given.path)
        own = self.folder.templates()
        if own is not None:
            return prompts_of(self.classes, own, self.folder.path / TEMPLATES)
        usual = (
            benchmarks.imagenet_templates()
            if self.name == benchmarks.IMAGENET
            else DEFAULT_TEMPLATES
        )
        return prompts_of(self.classes, usual, self.name)

    def content(self, *splits: str) -> str:
        """See `DataSet`; the images and labels are known by the digests of their tars."""
        found = {split: self.folder.digests(split) for split in splits}
        return content_id({"classes": list(self.classes), "splits": found})

    def check(self, split: str) -> None:
        """See `DataSet`."""
        self.folder.tars(split)

    def images(self, split: str) -> LabelledImages:
        """See `DataSet`."""
        return self.folder.images(split, len(self.classes))


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
        benchmark = find_benchmark(word, data)
        return _folder(benchmark.name, benchmark.path)
    # An exported data set may have CLIP_benchmark's layout.
    if kind_of(path) not in {None, EXPORT}:
        return open_task(path)
    return _folder(usual_name(path.absolute().name), path)


def _folder(name: str, path: Path) -> FolderData:
    folder = open_class_folder(path)
    classes = folder.class_names()
    if classes is None and name == benchmarks.IMAGENET:
        classes = benchmarks.imagenet_class_names()
    if not classes or not all(classes):
        what = f"has no {CLASS_NAMES}" if classes is None else f"has an empty line in {CLASS_NAMES}"
        raise BadInput(f"{path} {what}; write one class per line, in the order of the labels")
    return FolderData(name, folder, classes)


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
        if has_manifest and _is_stream(read_stream(beside), stream):
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


def _is_stream(manifest: StreamManifest, content: str) -> bool:
    return manifest.id == content

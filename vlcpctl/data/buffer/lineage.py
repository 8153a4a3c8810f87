"""Warnings about a buffer update that may not be intended: they are printed and recorded."""

from __future__ import annotations

from collections.abc import Iterator

from vlcpctl.core.errors import some_names
from vlcpctl.data.buffer.manifest import BufferRequest
from vlcpctl.data.tasks.neighbours import stream_entries


def update_warnings(request: BufferRequest) -> Iterator[str]:
    """One line for everything about --previous that may not be intended."""
    previous, task = request.previous, request.task
    if previous is None:
        return
    held, size = previous.buffer, request.size
    grows = (size.count or 0) > (held.count or 0) or (size.share or 0) > (held.share or 0)
    images = sum(held.seen.values())
    # A buffer with room for all images may have fewer because it was rewritten.
    has_evicted = not (previous.manifest.is_rewritten and (held.count or 0) >= images)
    if grows and previous.counts["train"] < images and has_evicted:
        yield (
            f"{previous.path} was smaller: the items of earlier tasks that it evicted are not "
            "restored"
        )
    step = task.step or 0
    same_stream = previous.manifest.stream == task.manifest.stream
    entries = stream_entries(task)
    seen = [not set(one.ids).isdisjoint(held.seen) for one in entries]
    skipped = [one.slug for one, is_seen in zip(entries[:step], seen, strict=False) if not is_seen]
    later = [entries[place].slug for place in range(step + 1, len(entries)) if seen[place]]
    if skipped:
        what = "was not updated with" if same_stream else "is of another stream and lacks"
        yield f"--previous {what} {some_names(skipped)}, earlier in the stream than {task.slug}"
    elif not entries and same_stream and len(held.seen) < step:
        # Without the stream beside the task, only the number of tasks can be compared.
        count = len(held.seen)
        yield (
            f"--previous was updated with {count} of the tasks before {task.slug}, which is task "
            f"{step} of the stream (counted from 0)"
        )
    if later:
        yield f"--previous contains pairs of {some_names(later)}, later in the stream"

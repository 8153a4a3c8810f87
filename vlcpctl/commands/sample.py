"""`vlcpctl sample`: write a built-in data set as image-text pairs."""

from __future__ import annotations

from typing import Annotated

import typer

from vlcpctl.commands import options

DATA_SETS = {
    "emoji9": "1,861 emoji in nine groups: drawn views with captions from their names and keywords"
}


def _list(wanted: bool) -> None:
    if wanted:
        for name, what in DATA_SETS.items():
            typer.echo(f"{name}\t{what}")
        raise typer.Exit


def run(
    name: Annotated[str, typer.Argument(help="Which data set; --list prints those there are.")],
    out: options.Out,
    views: Annotated[
        int, typer.Option("--views", min=1, help="Training views of each emoji.")
    ] = 12,
    test_views: Annotated[
        int, typer.Option("--test-views", min=0, help="Test views of each emoji.")
    ] = 1,
    size: Annotated[
        int, typer.Option("--size", min=16, max=256, help="Side of an image, in pixels.")
    ] = 64,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Only this many emoji, from the groups in turn."),
    ] = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
    list_: Annotated[  # noqa: ARG001 - answered by its callback
        bool,
        typer.Option("--list", is_eager=True, callback=_list, help="Print the data sets and exit."),
    ] = False,
) -> None:
    """Write a built-in data set as image-text pairs in one Parquet file.

    The same options make the same bytes. Column 'split' says which views are for testing,
    'group' makes the tasks, 'subgroup' the classes.

    vlcpctl sample emoji9 -o pairs.parquet --views 12 --size 32

    vlcpctl split pairs.parquet -o stream --by column:group --split-column split
    """
    options.start(quiet=quiet)
    from vlcpctl.core.console import emit, say
    from vlcpctl.core.errors import UsageError, unknown_name
    from vlcpctl.data.emoji9.pairs import Settings, already_sampled, write_pairs

    if name not in DATA_SETS:
        raise UsageError(unknown_name("data set", name, DATA_SETS))
    settings = Settings(views=views, test_views=test_views, size=size, seed=seed, limit=limit)
    if already_sampled(out, settings, force=force):
        say(f"sample: {out} is there already")
    else:
        count = write_pairs(out, settings)
        say(f"sample: {count} pairs")
    emit(out)

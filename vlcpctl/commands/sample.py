"""`vlcpctl sample`: write a built-in data set as image-text pairs."""

from __future__ import annotations

from typing import Annotated

import typer

from vlcpctl.commands import options

DATA_SETS = {
    "emoji9": "1,861 emoji in nine groups: drawn views with captions from names and keywords"
}


def _list(wanted: bool) -> None:
    if wanted:
        for name, what in DATA_SETS.items():
            typer.echo(f"{name}\t{what}")
        raise typer.Exit


def run(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Data set to write; --list prints the names.")
    ],
    out: options.Out,
    views: Annotated[
        int,
        typer.Option(
            "--views",
            min=1,
            max=10_000,
            metavar="N",
            help="Training views per emoji.",
            rich_help_panel=options.DATA,
        ),
    ] = 12,
    val_views: Annotated[
        int,
        typer.Option(
            "--val-views",
            min=0,
            max=10_000,
            metavar="N",
            help="Validation views per emoji.",
            rich_help_panel=options.DATA,
        ),
    ] = 0,
    test_views: Annotated[
        int,
        typer.Option(
            "--test-views",
            min=0,
            max=10_000,
            metavar="N",
            help="Test views per emoji.",
            rich_help_panel=options.DATA,
        ),
    ] = 1,
    size: Annotated[
        int,
        typer.Option(
            "--size",
            min=16,
            max=256,
            metavar="PIXELS",
            help="Side of the square images.",
            rich_help_panel=options.DATA,
        ),
    ] = 64,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            metavar="N",
            help="Use only N emoji, taken from the groups in turn (default: all).",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    groups: Annotated[
        str,
        typer.Option(
            "--groups",
            metavar="NAMES",
            help='Groups to use, separated by commas, as in "Food & Drink,Flags" (default: all).',
            rich_help_panel=options.DATA,
        ),
    ] = "",
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
    list_: Annotated[  # noqa: ARG001 - answered by its callback
        bool,
        typer.Option(
            "--list",
            is_eager=True,
            callback=_list,
            help="Print the data sets and exit.",
            rich_help_panel=options.DATA,
        ),
    ] = False,
) -> None:
    """Write a built-in data set as image-text pairs in one Parquet file.

    The same options give the same bytes. The column 'split' marks train, val and test views,
    'group' is meant for tasks and 'subgroup' for classes. More views of one split leave those of
    the others as they are.

    Examples:
      vlcpctl sample emoji9 -o pairs.parquet --views 12 --size 32
      vlcpctl split pairs.parquet -o stream --by column:group --split-column split
    """
    options.start(quiet=quiet)
    from vlcpctl.core.console import emit, say
    from vlcpctl.core.errors import UsageError, unknown_name
    from vlcpctl.data.emoji9.pairs import PairSettings, already_sampled, write_pairs

    if name not in DATA_SETS:
        raise UsageError(unknown_name("data set", name, DATA_SETS))
    settings = PairSettings(
        views=views,
        val_views=val_views,
        test_views=test_views,
        size=size,
        seed=seed,
        limit=limit,
        groups=tuple(sorted({one.strip() for one in groups.split(",")})) if groups else (),
    )
    if already_sampled(out, settings, force=force):
        say(f"sample: {out} is already finished")
    else:
        count = write_pairs(out, settings)
        say(f"sample: {count} pairs")
    emit(out)

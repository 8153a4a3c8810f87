"""`vlcpctl sample`: write a built-in data set as image-text pairs."""

from __future__ import annotations

from vlcpctl.commands.shared import Result, Shared
from vlcpctl.core.options import DATA, Names, argument, like, option


class Sample(Result):
    """Write a built-in data set as image-text pairs in one Parquet file.

    The same options give the same bytes. The column 'split' marks train, val and test views,
    'group' is meant for tasks and 'subgroup' for classes. More views of one split leave those of
    the others as they are.

    Examples:
      vlcpctl sample emoji9 -o pairs.parquet --views 12 --size 32
      vlcpctl split pairs.parquet -o stream --by column:group --split-column split
    """

    name: str = argument(
        "NAME",
        "Data set to write: emoji9, drawn views of 1,861 emoji in nine groups, with captions",
        kw_only=False,
        choices=("emoji9",),
    )
    views: int = option(
        "Training views per emoji", "N", DATA, default=12, within="[1, 10000]", usual=True
    )
    val_views: int = option("Validation views per emoji", "N", DATA, default=0, within="[0, 10000]")
    test_views: int = option("Test views per emoji", "N", DATA, default=1, within="[0, 10000]")
    size: int = option(
        "Side of the square images", "PIXELS", DATA, default=64, within="[16, 256]", usual=True
    )
    limit: int | None = option(
        "Use only N emoji, taken from the groups in turn",
        "N",
        DATA,
        otherwise="all",
        within="[1, inf)",
        usual=True,
    )
    groups: Names = option(
        'Groups to use, separated by commas, as in "Food & Drink,Flags"',
        "NAMES",
        DATA,
        otherwise="all",
        usual=True,
    )
    seed: int = like(Shared, "seed", default=0, usual=True)

    def execute(self) -> None:
        from vlcpctl.core.console import emit, say
        from vlcpctl.data.emoji9.pairs import PairSettings, already_sampled, write_pairs

        settings = PairSettings(
            views=self.views,
            val_views=self.val_views,
            test_views=self.test_views,
            size=self.size,
            seed=self.seed,
            limit=self.limit,
            groups=tuple(sorted({one.strip() for one in (self.groups or "").split(",")} - {""})),
        )
        if already_sampled(self.out, settings, force=self.force):
            say(f"sample: {self.out} is already finished")
        else:
            count = write_pairs(self.out, settings)
            say(f"sample: {count} pairs")
        emit(self.out)

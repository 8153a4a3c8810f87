"""The guide to many GPUs: the program takes its command lines."""

from __future__ import annotations

import re

from support.recipe_lines import RECIPES, options_of, train_request

from vlcpctl.jobs.script import CommandLine, parse
from vlcpctl.training.checks import check_processes


def lines_of_guide() -> list[CommandLine]:
    """The lines of vlcpctl in the guide, also those that torchrun starts."""
    text = (RECIPES.parent / "docs" / "guides" / "cluster.md").read_text(encoding="utf-8")
    text = text.partition("## Several GPUs")[2].partition("\n## ")[0]
    shell = "".join(re.findall(r"```(?:sh|console)\n(.*?)```", text, flags=re.DOTALL))
    shell = shell.replace("\\\n", " ")
    found = []
    for line in shell.splitlines():
        for start in ("-m vlcpctl ", "vlcpctl "):
            if start in line:
                found += parse(line.split(start, 1)[1])
                break
    return found


def test_every_line_of_the_guide_is_one_that_the_program_takes() -> None:
    lines = lines_of_guide()
    assert len(lines) == 7
    for line in lines:
        given = {name: value for name, value in options_of(line).items() if value is not None}
        if line.words[0] != "train-step":
            continue  # its options are known, as options_of has found
        request = train_request(given)
        if request.nproc > 1:
            check_processes(request)

"""Shell completion through the protocol of typer's scripts: words in, candidates out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vlcpctl import cli
from vlcpctl.commands import COMMANDS, command_class
from vlcpctl.core.options import options_of
from vlcpctl.methods import TABLE

Complete = Callable[..., list[str]]
HEAVY = ("torch", "pyarrow", "open_clip", "PIL", "rich", "transformers")


@pytest.fixture
def answer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[dict[str, str]], str]:
    """What the program prints when a shell runs it with these variables; never on stderr."""

    def run(variables: dict[str, str]) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["vlcpctl"])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capfd.readouterr()
        assert (stop.value.code or 0, printed.err) == (0, "")
        return printed.out.rstrip("\n")

    return run


@pytest.fixture
def bash(answer: Callable[[dict[str, str]], str]) -> Complete:
    """What bash is offered for the last of these words, which it cuts at = and :."""

    def run(*words: str) -> list[str]:
        line = ["vlcpctl", *words]
        variables = {"COMP_WORDS": "\n".join(line), "COMP_CWORD": str(len(line) - 1)}
        return answer({"_VLCPCTL_COMPLETE": "complete_bash", **variables}).splitlines()

    return run


ALL = list(TABLE)
QUEUE = [str(vars(TABLE["ctp"]())["queue"])]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([""], list(COMMANDS)),
        (["help", ""], list(COMMANDS)),
        (["train-step", "--me"], ["--method", "--method-file"]),
        (["train-step", "--method", "ctp", "--me"], ["--method-file"]),
        (["train-step", "--set", "ctp.m=1", "--se"], ["--set", "--seed"]),
        (["--debug", "check", "--nea"], ["--near-duplicates"]),
        (["train-step", "--method", ""], ALL),
        (["update", "-m", "inc"], ["incclip"]),
        (["train-step", "--method", "ctp+d"], ["ctp+der", "ctp+derpp", "ctp+dha"]),
        (["train-step", "--method", "der+ctp+de"], ["der+ctp+derpp"]),
        (["train-step", "--method", "ctpp+d"], []),
        (["train-step", "--set", "ewc."], ["ewc.strength=", "ewc.variant="]),
        (["train-step", "-m", "ewc+dha", "--set", "c"], []),
        # What bash cuts at = and :. A second item keeps it from adding a space to the first.
        (["train-step", "--set", "ewc.variant", "="], ["paper", "ctp"]),
        (["train-step", "--set", "ctp.keep_queue", "=", "t"], ["true"]),
        (["train-step", "--set", "ctp.queue", "="], QUEUE),
        (["train-step", "--method", "=", "inc"], ["incclip"]),
        (["train-step", "--method", "="], ALL),
        (["train-step", "--keep", "best", ":", "val_l"], ["val_loss"]),
        (["split", "--by", "col"], ["column:", "column:..."]),
        (["split", "--by", "iid", "--ord"], ["--order"]),
        (["distill", "--crop", ""], ["none", "center", "random"]),
        (["train-step", "--preset", "modx"], ["modx", "modx-finetune"]),
        (["train-step", "--model", "albef-m"], ["albef-micro"]),
        (["train-step", "--scale-per-step", ""], ["paper"]),
        (["buffer", "--policy", "r"], ["reservoir", "ring", "random"]),
        (["eval-zeroshot", "--workers", ""], ["auto"]),
        (["forgetting-report", "--table", "ctp-1"], ["ctp-1"]),
        (["forgetting-report", "--allow-mixed", "limit,s"], ["limit,seed"]),
        (["forgetting-report", "--fail-if", "worst_drop", ":"], ["lt:", "le:", "gt:", "ge:"]),
        (["export", "--to", "hf"], ["hf", "hf-model"]),
        (["train-step", "--log", ""], ["tensorboard:", "wandb:"]),
        (["sample", ""], ["emoji9"]),
        (["batch", "--to", ""], ["snakemake", "sbatch"]),
        (["train-step", "--run", ""], []),
        (["train-step", "--lr", ""], []),
    ],
    ids=" ".join,
)
def test_bash_is_offered(bash: Complete, words: list[str], wanted: list[str]) -> None:
    assert bash(*words) == wanted


def test_paths_are_left_to_the_shell(
    bash: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10-mine").mkdir()
    assert bash("train-step", "") == []
    assert bash("train-step", "--previous", "") == []
    assert bash("eval-zeroshot", "") == []
    assert bash("eval-zeroshot", "cif") == []
    assert bash("eval-zeroshot", "food") == ["food101"]
    assert bash("eval-zeroshot", "nowhere/food") == []
    assert bash("update", "--init", "") == []
    assert bash("update", "--init", "op") == ["open_clip:", "open_clip:..."]


def test_mistakes_offer_nothing_and_print_nothing(
    bash: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLCPCTL_TRAIN_STEP_LRR", "1")
    monkeypatch.setenv("VLCPCTL_TRAIN_STEP_METHOD", "ewc")  # which decides what is offered
    assert bash("train-step", "--set", "") == ["ewc.strength=", "ewc.variant="]
    assert bash("trian-step", "--me") == []
    assert bash("train-step", "--nonsense", "--lr", "x", "--mod") == ["--model"]
    assert bash("train-step", "--method", "nothing") == []


@pytest.mark.parametrize(
    ("shell", "line", "part"),
    [
        ("zsh", "train-step -m=si --method=ctp+mo", """_arguments '*: :(("--method=ctp+modx"))'"""),
        ("zsh", "train-step --keep ", r'"best\\:val_loss"'),
        ("zsh", "train-step ", "_files"),
        ("fish", "--debug train-step --method=ctp+mo", "--method=ctp+modx"),
    ],
)
def test_other_shells_get_values_with_help(
    answer: Callable[[dict[str, str]], str], shell: str, line: str, part: str
) -> None:
    words = {"_TYPER_COMPLETE_ARGS": f"vlcpctl {line}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert part in answer({"_VLCPCTL_COMPLETE": f"complete_{shell}", **words})


def test_choices_are_those_of_the_code() -> None:
    """Commands write them at their fields: a TAB and --help should not import what has them."""
    from vlcpctl.data.buffer.policies import POLICIES as BUFFER_POLICIES
    from vlcpctl.data.buffer.policies import VARIANTS as BUFFER_VARIANTS
    from vlcpctl.data.classification.data_sets import CLASSES
    from vlcpctl.data.splitting.labels import FORMS
    from vlcpctl.data.splitting.rules import KINDS
    from vlcpctl.data.tasks.index import SPLITS
    from vlcpctl.evaluation.search.galleries import DUPLICATES
    from vlcpctl.export.clip_benchmark import TYPES
    from vlcpctl.metrics.average_precision import VARIANTS

    def forms(table: dict[str, str]) -> set[str]:
        return {text.partition(":")[0] + ":" * (":" in text) for text in table.values()}

    wanted = {
        "buffer policy": BUFFER_POLICIES,
        "buffer variant": BUFFER_VARIANTS,
        "eval-zeroshot classes": CLASSES,
        "eval-zeroshot split": SPLITS,
        "eval-retrieval duplicates": DUPLICATES,
        "eval-retrieval map_variant": VARIANTS,
        "export dataset_type": TYPES,
        "export split": SPLITS,
        "forgetting-report undefined": ("error", "pass"),
        "split by": forms(KINDS),
        "split labels_from": forms(FORMS) - {"COLUMN"},
    }
    for name, names in wanted.items():
        command, field = name.split()
        row, _ = options_of(command_class(command))[field]
        assert set(row.choices or row.offers) == set(names), name


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("zsh", "train-step --method ctp+"),
        pytest.param("bash", "forgetting-report --table ", marks=pytest.mark.slow),
    ],
)
def test_a_tab_imports_nothing_heavy(shell: str, line: str) -> None:
    code = f"""
import sys
sys.argv = ["vlcpctl"]
from vlcpctl.cli import main
try:
    main()
finally:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.__stderr__)
"""
    words = f"vlcpctl {line}"
    variables = {
        "_VLCPCTL_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": words,
        "COMP_WORDS": words.replace(" ", "\n"),
        "COMP_CWORD": str(words.count(" ")),
    }
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
    )
    assert ended.stdout.strip() not in {"", "_files"}
    assert ended.stderr.splitlines()[-1] == "[]"

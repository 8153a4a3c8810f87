"""Shell completion: what a TAB offers as the value of an option, and how shells get it.

typer's scripts run the program with the words so far in environment variables. Where nothing is
offered, the shell completes paths. Only light modules are imported: a TAB should not wait. The
names in `FIXED` are therefore written here; a test compares them with the code that checks them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer._click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    split_arg_string,
)
from typer._completion_classes import BashComplete, FishComplete, ZshComplete

from vlcpctl.commands.paths import is_path

_SPLITS = ("train", "val", "test", "query", "gallery")
_GALLERIES = ("own", "merged", "both")
# By option, or by command and option where commands differ.
FIXED: dict[str, tuple[str, ...]] = {
    "--device": ("auto", "cpu", "cuda"),
    "--split": _SPLITS,
    "--train-split": _SPLITS,
    "--gallery": _GALLERIES,
    "--policy": ("reservoir", "ring", "herding", "kmeans", "random"),
    "--variant": ("paper", "ctp"),
    "--map-variant": ("eq11", "ctp", "min-rn"),
    "--duplicates": ("unite", "separate"),
    "--backend": ("auto", "faiss", "torch"),
    "--classes": ("all", "task"),
    "--solver": ("lbfgs", "sgd"),
    "--between": ("neighbours", "all"),
    "--undefined": ("error", "pass"),
    "--by": ("column:", "iid", "classes", "source", "time:", "all:"),
    "--order": ("reverse", "shuffle"),
    "--to": ("clip-benchmark", "img2dataset", "hf", "imagefolder", "hf-model"),
    "--labels-from": ("timm:", "checkpoint:", "open_clip:"),
    "eval-retrieval --protocol": ("cross-modal", "multi-modal"),
    "eval-probe --protocol": ("logistic", "modx"),
}
_ALTERNATIVE = re.compile(r"([a-z][a-z0-9_-]*[:=]?)[A-Z,]*")


def offer_values(command: str, parameters: Iterable[Any]) -> None:
    """Let typer's parameters of a command offer their values to shells."""
    for parameter in parameters:
        parameter.shell_complete = partial(_items, command, parameter)


def values(command: str, parameter: Any, context: Any, incomplete: str) -> list[str]:
    """The values of an option or argument that start with `incomplete`.

    Empty if any value is allowed, or if a path is more likely than a name.
    """
    name = max(parameter.opts, key=len)
    if _is_rather_a_path(command, name, parameter, incomplete):
        return []
    source = SOURCES.get(f"{command} {name}") or SOURCES.get(name)
    if source is not None:
        offered = source(context, incomplete)
    else:
        offered = _fixed(command, name, parameter)
    return [one for one in offered if one.startswith(incomplete)]


def _is_rather_a_path(command: str, name: str, parameter: Any, incomplete: str) -> bool:
    """Whether to leave an argument or option that takes paths and names to the shell."""
    if parameter.param_type_name == "argument" and command not in {"methods", "sample"}:
        return not incomplete or _starts_an_entry(incomplete)
    takes_path = is_path(parameter.name, None) and name not in {"--model", "--table", "--log"}
    return takes_path and not incomplete


def _starts_an_entry(path: str) -> bool:
    directory, name = os.path.split(path)
    try:
        return any(one.name.startswith(name) for one in Path(directory).iterdir())
    except OSError:
        return False


def _items(command: str, parameter: Any, context: Any, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(one) for one in values(command, parameter, context, incomplete)]


def _fixed(command: str, name: str, parameter: Any) -> Sequence[str]:
    """Names written above, those of train-step's settings, or those in the metavar."""
    found = FIXED.get(f"{command} {name}") or FIXED.get(name)
    if found is not None:
        return found
    if command in {"train-step", "distill", "update"}:
        from vlcpctl.training.config.settings import CHOICES

        if parameter.name in CHOICES:
            return CHOICES[parameter.name]
    if "|" not in (parameter.metavar or ""):
        return ()
    matches = (_ALTERNATIVE.fullmatch(one) for one in parameter.metavar.split("|"))
    return [match[1] for match in matches if match]


def _method_names(_context: Any, _incomplete: str) -> Iterable[str]:
    from vlcpctl.methods import TABLE

    return TABLE


def _joined_methods(_context: Any, incomplete: str) -> Iterator[str]:
    """Names of methods, after those before the last + of `incomplete`."""
    from vlcpctl.methods import TABLE

    before = incomplete.split("+")[:-1]
    known = TABLE if TABLE.keys() >= set(before) else ()
    return ("+".join([*before, name]) for name in known if name not in before)


def _joined_fields(_context: Any, incomplete: str) -> Iterator[str]:
    from vlcpctl.report.comparability import FIELDS

    before = incomplete.split(",")[:-1]
    return (",".join([*before, name]) for name in FIELDS if name not in before)


def _presets(_context: Any, _incomplete: str) -> Iterable[str]:
    from vlcpctl.training.config.presets import PRESETS

    return PRESETS


def _assignments(context: Any, incomplete: str) -> list[str]:
    """METHOD.PARAMETER= of the methods of --method, or of all; values once only one is left."""
    from vlcpctl.methods import TABLE

    named = [one for one in (context.params.get("method") or "").split("+") if one in TABLE]
    parameters = {
        f"{name}.{field.name}=": field
        for name in named or TABLE
        for field in dataclasses.fields(TABLE[name])
    }
    found = [one for one in parameters if one.startswith(incomplete) or incomplete.startswith(one)]
    if len(found) != 1:
        return found
    (only,) = found
    field = parameters[only]
    default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    choices = ("true", "false") if isinstance(field.default, bool) else field.metadata["choices"]
    return [only + value for value in choices or (default,)]


def _tables(_context: Any, _incomplete: str) -> Iterable[str]:
    from vlcpctl.report.published.definition import shipped_names

    return shipped_names()


def _models(_context: Any, _incomplete: str) -> list[str]:
    """The models of the package and of open_clip, whose import would take seconds."""
    from vlcpctl.models.configuration import PACKAGED

    library = importlib.util.find_spec("open_clip")
    places = (library and library.submodule_search_locations) or ()
    directories = [PACKAGED, *(Path(place) / "model_configs" for place in places)]
    return sorted(file.stem for directory in directories for file in directory.glob("*.json"))


def _caps(_context: Any, _incomplete: str) -> Iterator[str]:
    from vlcpctl.data.sources.limits import Caps

    return (f"{field.name.replace('_', '-')}=" for field in dataclasses.fields(Caps))


def _metrics(_context: Any, _incomplete: str) -> list[str]:
    from vlcpctl.metrics.definitions import DEFINITIONS

    return [*DEFINITIONS, "rm", "acc1"]


def _conditions(_context: Any, incomplete: str) -> list[str]:
    """METRIC: of --fail-if, then METRIC:OP: for the metric that is written."""
    from vlcpctl.report.facts.language import DROPS
    from vlcpctl.report.gates.grammar import OPERATORS

    metric, colon, _ = incomplete.partition(":")
    if colon:
        return [f"{metric}:{operator}:" for operator in OPERATORS]
    return [f"{one}:" for one in [*DROPS, *_metrics(None, "")]]


def _data_sets(_context: Any, _incomplete: str) -> list[str]:
    from vlcpctl.data.classification.benchmarks import BENCHMARKS, GROUPS

    return [*BENCHMARKS, *GROUPS]


def _samples(_context: Any, _incomplete: str) -> Iterable[str]:
    from vlcpctl.commands.sample import DATA_SETS

    return DATA_SETS


SOURCES: dict[str, Callable[[Any, str], Iterable[str]]] = {
    "--method": _joined_methods,
    "methods names": _method_names,
    "--preset": _presets,
    "--set": _assignments,
    "--model": _models,
    "--table": _tables,
    "--allow-mixed": _joined_fields,
    "--cap": _caps,
    "--best": _metrics,
    "--fail-if": _conditions,
    "--guard-classes": _data_sets,
    "eval-zeroshot data_sets": _data_sets,
    "eval-probe data_sets": _data_sets,
    "sample name": _samples,
}


class _Bash(BashComplete):
    """bash cuts words at = and :, and completes only what follows the last of them."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ["COMP_WORDS"])
        return _without_debug(glued(words, int(os.environ["COMP_CWORD"])))

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = _with_more(super().get_completions(args, incomplete), incomplete)
        _, _, value = _option_and_value(incomplete)
        cut = max(value.rfind("="), value.rfind(":")) + 1
        return [CompletionItem(one.value[cut:], help=one.help) for one in items]


class _Zsh(ZshComplete):
    """zsh completes a whole word, also one such as --method=ctp."""

    def get_completion_args(self) -> tuple[list[str], str]:
        return _without_debug(super().get_completion_args())

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return _whole_words(super().get_completions(args, incomplete), incomplete)

    def format_completion(self, item: CompletionItem) -> str:
        """As typer writes it, but for rich's markup: rich takes 0.15 s to import."""
        return ":".join(f'"{_escaped_for_zsh(text)}"' for text in (item.value, item.help) if text)


class _Fish(FishComplete):
    """fish completes a whole word, also one such as --method=ctp."""

    def get_completion_args(self) -> tuple[list[str], str]:
        return _without_debug(super().get_completion_args())

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return _whole_words(super().get_completions(args, incomplete), incomplete)

    def format_completion(self, item: CompletionItem) -> str:
        """As typer writes it, but for rich's markup: rich takes 0.15 s to import."""
        return "\t".join(re.sub(r"\s", " ", text) for text in (item.value, item.help) if text)


SHELLS: tuple[type[ShellComplete], ...] = (_Bash, _Zsh, _Fish)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Within the block, completion is that of this module, and prints nothing to the terminal.

    A mistake in the words so far offers nothing: it is reported when the command is run.
    """
    for shell in SHELLS:
        add_completion_class(shell, shell.name)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    except typer.Exit:
        sys.exit(0)


def glued(words: Sequence[str], current: int) -> tuple[list[str], str]:
    """The words before the one at `current`, and that one, as they were before bash cut them.

    >>> glued(["vlcpctl", "split", "--by", "column", ":", "gr"], 5)
    (['split', '--by'], 'column:gr')
    >>> glued(["vlcpctl", "train-step", "--replay", "=", "union", "--me"], 5)
    (['train-step', '--replay=union'], '--me')
    """
    whole: list[str] = []
    was_cut = False
    for word in words[1 : current + 1]:
        is_cut = bool(word) and set(word) <= {"=", ":"}
        if whole and (is_cut or (was_cut and not word.startswith("-"))):
            whole[-1] += word
        else:
            whole.append(word)
        was_cut = is_cut
    return (whole, "") if current >= len(words) else (whole[:-1], whole[-1] if whole else "")


def _without_debug(found: tuple[list[str], str]) -> tuple[list[str], str]:
    """The words without --debug, which is allowed anywhere and no option of a command."""
    words, incomplete = found
    return [word for word in words if word != "--debug"], incomplete


def _whole_words(items: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    option, equals, _ = _option_and_value(incomplete)
    found = _with_more(items, incomplete)
    return [CompletionItem(option + equals + one.value, help=one.help) for one in found]


def _option_and_value(incomplete: str) -> tuple[str, str, str]:
    """--method, = and ct of --method=ct; of other words only the last is not empty."""
    is_both = incomplete.startswith("-") and "=" in incomplete
    return incomplete.partition("=") if is_both else ("", "", incomplete)


def _with_more(items: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """The items, --debug, and a second item for a single one that does not end a word.

    Shells add a space to a single item: `--by column:` would be `--by column: `.
    """
    if len(incomplete) > 1 and "--debug".startswith(incomplete):
        items = [*items, CompletionItem("--debug", help="Print the traceback of an error.")]
    if len(items) == 1 and items[0].value.endswith((":", "=")):
        items = [*items, CompletionItem(f"{items[0].value}...")]
    return items


def _escaped_for_zsh(text: str) -> str:
    """Text for typer's script, which evaluates it between double quotes."""
    for character, escape in (
        ('"', '""'),
        ("'", "''"),
        ("$", "\\$"),
        ("`", "\\`"),
        (":", "\\\\:"),
    ):
        text = text.replace(character, escape)
    return text

"""Shell completion: what a TAB offers, and the answers to the shells that ask for it.

typer's scripts run the program with the words so far in environment variables. Where nothing is
offered, the shell completes paths. Only light modules are imported: a TAB should not wait. The
names in `FIXED` are therefore written here; a test compares them with the code that checks them.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from vlcpctl.commands.options import with_wait_values
from vlcpctl.commands.paths import is_path
from vlcpctl.commands.values import variable_of

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
    "--classes": ("all", "task"),
    "--between": ("neighbours", "all"),
    "--undefined": ("error", "pass"),
    "--by": ("column:", "iid", "classes", "source", "time:", "all:"),
    "--order": ("reverse", "shuffle"),
    "--to": ("clip-benchmark", "hf", "hf-model", "onnx"),
    "--labels-from": ("timm:", "checkpoint:", "open_clip:"),
    "eval-retrieval --protocol": ("cross-modal", "multi-modal"),
    "eval-probe --protocol": ("logistic", "modx"),
}
_ALTERNATIVE = re.compile(r"([a-z][a-z0-9_-]*[:=]?)[A-Z,]*")


def answer(shell: str, program: Any) -> tuple[str | None, int]:
    """What to print for a shell that runs typer's script for it, if anything, and the exit code.

    `program` is typer's group of commands, with the one in the words loaded. A mistake in the words
    so far offers nothing: it is reported when the command is run.
    """
    words, incomplete = _words_of(shell)
    option, equals, value = "", "", incomplete
    if incomplete.startswith("-") and "=" in incomplete:
        option, equals, value = incomplete.partition("=")
    items = _offered(program, [*words, option] if option else words, value)
    if len(incomplete) > 1 and "--debug".startswith(incomplete):
        items.append(("--debug", "Print the traceback of an error."))
    if len(items) == 1 and items[0][0].endswith((":", "=")):
        # Shells add a space to a single item: `--by column:` would be `--by column: `.
        items.append((f"{items[0][0]}...", ""))
    if shell == "bash":  # it completes only what follows the last = or :
        cut = max(value.rfind("="), value.rfind(":")) + 1
        return "\n".join(item[cut:] for item, _ in items), 0
    if shell == "fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return None, 0 if items else 1  # 1: complete files
    lines = [_line(shell, option + equals + item, text) for item, text in items]
    if shell == "zsh":
        return "_arguments '*: :((" + "\n".join(lines) + "))'" if items else "_files", 0
    return "\n".join(lines), 0


def _line(shell: str, item: str, text: str) -> str:
    """One line for zsh, fish or PowerShell, with what is offered and the text about it."""
    if shell == "zsh":
        return ":".join(f'"{_escaped_for_zsh(one)}"' for one in (item, text) if one)
    if shell == "fish":
        return "\t".join(re.sub(r"\s", " ", one) for one in (item, text) if one)
    return f"{item}:::{text or ' '}"


def _words_of(shell: str) -> tuple[list[str], str]:
    """The words before the cursor, without the program, and the one at it."""
    if shell == "bash":
        words, incomplete = glued(_split(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"]))
    else:
        line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
        words = _split(line)[1:]
        in_word = not line.endswith(" ")
        if shell not in {"zsh", "fish"}:  # PowerShell leaves out the space at the end of the line
            in_word = bool(os.environ.get("_TYPER_COMPLETE_WORD_TO_COMPLETE"))
        incomplete = words.pop() if words and in_word else ""
    # --debug is allowed anywhere and no option of a command.
    return [word for word in words if word != "--debug"], incomplete


def _split(line: str) -> list[str]:
    """The words of a line that may end within quotes."""
    found = shlex.shlex(line, posix=True)
    found.whitespace_split, found.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(found)
    except ValueError:
        words.append(found.token)
    return words


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


def _offered(program: Any, words: Sequence[str], incomplete: str) -> list[tuple[str, str]]:
    """What may stand for `incomplete` after these words, with texts: commands, options, values."""
    at = next((place for place, word in enumerate(words) if not word.startswith("-")), None)
    name = None if at is None else words[at]
    command = program if name is None else program.commands.get(name)
    if command is None:
        return []
    context = typer.Context(
        command,
        info_name=name,
        resilient_parsing=True,
        help_option_names=program.context_settings["help_option_names"],
    )
    own = with_wait_values(words if at is None else words[at + 1 :])
    given, _, order = command.make_parser(context).parse_args(args=list(own))
    parameters = command.get_params(context)
    for one in parameters:
        if one.param_type_name == "option" and name is not None:
            given.setdefault(one.name, os.environ.get(variable_of(one, name)))
    if incomplete.startswith("-") and "--" not in own:
        unused = [one for one in parameters if one.multiple or one not in order]
        named = [(opt, one.help) for one in unused for opt in (*one.opts, *one.secondary_opts)]
        return [(opt, text) for opt, text in named if opt.startswith(incomplete)]
    if name is None:
        commands = program.commands.items()
        named = [(one, command.get_short_help_str()) for one, command in commands]
        return [(one, text) for one, text in named if one.startswith(incomplete)]
    parameter = _incomplete(parameters, own, given)
    found = values(context, parameter, given, incomplete) if parameter else []
    return [(one, "") for one in found]


def _incomplete(parameters: Sequence[Any], words: Sequence[str], given: Mapping[str, Any]) -> Any:
    """The option whose value follows these words, or the argument that does; else None."""
    last = words[-1] if words else ""
    for one in parameters:
        if one.param_type_name == "option" and not one.is_flag and last in one.opts:
            return one
    for one in parameters:
        if one.param_type_name == "argument" and (one.nargs < 0 or given.get(one.name) is None):
            return one
    return None


def values(context: Any, parameter: Any, given: Mapping[str, Any], incomplete: str) -> list[str]:
    """The values of an option or argument that start with `incomplete`.

    `given` has the words of the command line by the parameters' names. Empty if any value is
    allowed, or if a path is more likely than a name.
    """
    command, name = context.info_name, max(parameter.opts, key=len)
    if _is_rather_a_path(command, name, parameter, incomplete):
        return []
    source = SOURCES.get(f"{command} {name}") or SOURCES.get(name)
    if source is not None:
        found = source(given, incomplete)
    else:
        declared = parameter.shell_complete(context, incomplete)
        found = (
            FIXED.get(f"{command} {name}")
            or FIXED.get(name)
            or [one.value for one in declared if one.type == "plain"]
            or _alternatives(parameter.metavar or "")
        )
    return [one for one in found if one.startswith(incomplete)]


def _alternatives(metavar: str) -> list[str]:
    """The names in a metavar such as `auto|N`.

    >>> _alternatives("auto|N"), _alternatives("tensorboard:DIR|wandb:PROJECT")
    (['auto'], ['tensorboard:', 'wandb:'])
    """
    matches = (_ALTERNATIVE.fullmatch(one) for one in metavar.split("|") if "|" in metavar)
    return [match[1] for match in matches if match]


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


def _method_names(_given: Mapping[str, Any], _incomplete: str) -> Iterable[str]:
    from vlcpctl.methods import TABLE

    return TABLE


def _joined_methods(_given: Mapping[str, Any], incomplete: str) -> Iterator[str]:
    """Names of methods, after those before the last + of `incomplete`."""
    from vlcpctl.methods import TABLE

    before = incomplete.split("+")[:-1]
    known = TABLE if TABLE.keys() >= set(before) else ()
    return ("+".join([*before, name]) for name in known if name not in before)


def _joined_fields(_given: Mapping[str, Any], incomplete: str) -> Iterator[str]:
    from vlcpctl.report.comparable import FIELDS

    before = incomplete.split(",")[:-1]
    return (",".join([*before, name]) for name in FIELDS if name not in before)


def _presets(_given: Mapping[str, Any], _incomplete: str) -> Iterable[str]:
    from vlcpctl.training.config.presets import PRESETS

    return PRESETS


def _assignments(given: Mapping[str, Any], incomplete: str) -> list[str]:
    """METHOD.PARAMETER= of the methods of --method, or of all; values once only one is left."""
    from vlcpctl.methods import TABLE

    named = [one for one in (given.get("method") or "").split("+") if one in TABLE]
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


def _tables(_given: Mapping[str, Any], _incomplete: str) -> Iterable[str]:
    from vlcpctl.report.papers import shipped_names

    return shipped_names()


def _models(_given: Mapping[str, Any], _incomplete: str) -> list[str]:
    """The models of the package and of open_clip, whose import would take seconds."""
    from vlcpctl.models.configuration import PACKAGED

    library = importlib.util.find_spec("open_clip")
    places = (library and library.submodule_search_locations) or ()
    directories = [PACKAGED, *(Path(place) / "model_configs" for place in places)]
    return sorted(file.stem for directory in directories for file in directory.glob("*.json"))


def _caps(_given: Mapping[str, Any], _incomplete: str) -> Iterator[str]:
    from vlcpctl.data.sources.limits import Caps

    return (f"{field.name.replace('_', '-')}=" for field in dataclasses.fields(Caps))


def _metrics(_given: Mapping[str, Any], _incomplete: str) -> list[str]:
    from vlcpctl.metrics.definitions import DEFINITIONS

    return [*DEFINITIONS, "rm", "acc1"]


def _conditions(_given: Mapping[str, Any], incomplete: str) -> list[str]:
    """METRIC: of --fail-if, then METRIC:OP: for the metric that is written."""
    from vlcpctl.report.facts import DROPS
    from vlcpctl.report.gates import OPERATORS

    metric, colon, _ = incomplete.partition(":")
    if colon:
        return [f"{metric}:{operator}:" for operator in OPERATORS]
    return [f"{one}:" for one in [*DROPS, *_metrics({}, "")]]


def _data_sets(_given: Mapping[str, Any], _incomplete: str) -> list[str]:
    from vlcpctl.data.classification.benchmarks import BENCHMARKS, GROUPS

    return [*BENCHMARKS, *GROUPS]


def _samples(_given: Mapping[str, Any], _incomplete: str) -> Iterable[str]:
    from vlcpctl.commands.sample import DATA_SETS

    return DATA_SETS


SOURCES: dict[str, Callable[[Mapping[str, Any], str], Iterable[str]]] = {
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

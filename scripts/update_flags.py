"""Add a release to the catalogue of vLLM's flags, or compare it with what is there, by reading a published wheel.

    pip download --no-deps --only-binary :all: vllm==0.34.0
    python scripts/update_flags.py vllm-0.34.0-*.whl             adds 0.34.0 to tuner/facts/data/vllm/flags.json
    python scripts/update_flags.py --check vllm-0.33.0-*.whl     tells where the catalogue says something else of 0.33.0

Nothing of the wheel is imported or run: members are parsed (ast), and what the argument parser would be made of is
worked out the way vllm/engine/arg_utils.py does it from the annotations of the configuration classes. What people know
better (notes, replacements, choices that the engine checks later) stays as it stands in the catalogue.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import Version

CATALOGUE = Path(__file__).parents[1] / "tuner" / "facts" / "data" / "vllm" / "flags.json"
ARG_UTILS = "vllm.engine.arg_utils"
SERVERS = tuple(f"vllm.entrypoints.{folder}.cli_args" for folder in ("common", "launchers", "openai"))
"""Where the server's own options stood: since 0.33.0, 0.29.0, and before."""
CHECKED_LATER = "choices_by"
"""Key of entries whose choices are not the parser's: the engine, or the platform, checks them."""
MOST_IMPORTS = 10
BUILTINS = {"bool", "int", "float", "str", "dict", "list", "set", "tuple"}
GENERICS = {"List": "list", "Sequence": "list", "Set": "set", "Tuple": "tuple", "Dict": "dict", "Mapping": "dict"}
NUMBERS = {"PositiveInt": "int", "NonNegativeInt": "int", "PositiveFloat": "float", "NonNegativeFloat": "float"}


class Hint(NamedTuple):
    """One part of a union: a built-in's name, `none`, `literal`, `dataclass` or `class`; values of a literal."""

    kind: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Option:
    """One option of the command line as the parser would hold it."""

    kind: str
    names: tuple[str, ...] = ()
    choices: tuple[Any, ...] | None = None
    default: str | None = None
    negatable: bool = False


@dataclass
class Module:
    """One parsed member."""

    name: str
    tree: ast.Module
    is_package: bool
    stars: list[str] = field(default_factory=list)
    """Modules of which everything is imported."""

    @cached_property
    def definitions(self) -> dict[str, ast.stmt | tuple[str, str]]:
        """Top-level names: a class, an assignment, or (module, name) for what is imported."""
        found: dict[str, ast.stmt | tuple[str, str]] = {}
        for statement in self._statements(self.tree.body):
            match statement:
                case ast.ClassDef(name=name):
                    found[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    found[name] = statement
                case ast.ImportFrom():
                    source = self._source(statement)
                    self.stars += [source for alias in statement.names if alias.name == "*"]
                    found |= {alias.asname or alias.name: (source, alias.name) for alias in statement.names}
                case _:
                    pass
        return found

    def _statements(self, body: list[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in body:
            yield statement
            if isinstance(statement, (ast.If, ast.Try)):
                yield from self._statements([*statement.body, *statement.orelse])

    def _source(self, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        parts = self.name.split(".")
        kept = parts[: len(parts) - statement.level + self.is_package]
        return ".".join([*kept, *([statement.module] if statement.module else [])])


class Wheel:
    """The Python members of a wheel."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = set(archive.namelist())
        self._modules: dict[str, Module | None] = {}

    @cached_property
    def version(self) -> str:
        """The release, from the metadata."""
        name = next(name for name in sorted(self._names) if re.fullmatch(r"vllm\w*-[^/]*\.dist-info/METADATA", name))
        text = self._archive.read(name).decode()
        found = re.search(r"^Version: (\S+)$", text, re.MULTILINE)
        return Version(found[1] if found else "").public

    def module(self, name: str) -> Module | None:
        """Return a module by its dotted name, or None when the wheel has none."""
        if name not in self._modules:
            path = name.replace(".", "/")
            member = next((one for one in (f"{path}.py", f"{path}/__init__.py") if one in self._names), None)
            tree = ast.parse(self._archive.read(member)) if member else None
            is_package = member is not None and member.endswith("__init__.py")
            self._modules[name] = Module(name, tree, is_package) if tree is not None else None
        return self._modules[name]

    def find(self, module: Module, name: str, depth: int = 0) -> tuple[Module, ast.stmt] | None:
        """Return the statement that defines a name, and where it stands, through any number of imports."""
        found = module.definitions.get(name)
        if found is not None and not isinstance(found, tuple):
            return module, found
        places = [found] if found is not None else [(star, name) for star in module.stars]
        for source_name, inner in places if depth < MOST_IMPORTS else ():
            source = self.module(source_name)
            place = self.find(source, inner, depth + 1) if source is not None else None
            if place is not None:
                return place
        return None

    def constant(self, node: ast.expr, module: Module) -> ast.expr:
        """Return what a name stands for, when it is a name of a value; otherwise the node itself."""
        place = self.find(module, node.id) if isinstance(node, ast.Name) else None
        value = place[1].value if place is not None and isinstance(place[1], (ast.Assign, ast.AnnAssign)) else None
        return value if value is not None else node

    def hints(self, node: ast.expr, module: Module) -> list[Hint]:
        """Return the parts of an annotation."""
        match node:
            case ast.Constant(value=None):
                return [Hint("none")]
            case ast.Constant(value=str() as text):
                return self.hints(ast.parse(text, mode="eval").body, module)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return [*self.hints(left, module), *self.hints(right, module)]
            case ast.Subscript(value=ast.Name(id=name), slice=inside):
                return self._subscript(name, inside, module)
            case ast.Name(id=name):
                return self._named(name, module)
            case _:
                return [Hint("class")]

    def _subscript(self, name: str, inside: ast.expr, module: Module) -> list[Hint]:
        parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
        match name:
            case "Literal":
                return [Hint("literal", tuple(value for part in parts for value in self._literal(part, module)))]
            case "Optional":
                return [*self.hints(inside, module), Hint("none")]
            case "Union":
                return [hint for part in parts for hint in self.hints(part, module)]
            case "Annotated" | "SkipValidation":
                return self.hints(parts[0], module)
            case _:
                generic = GENERICS.get(name, name)
                if generic not in BUILTINS:
                    return [Hint("class")]
                inner = self.hints(parts[0], module) if generic in ("list", "set") else []
                values = tuple(value for hint in inner for value in hint.values)
                return [Hint(generic, () if any(hint.kind == "str" for hint in inner) else values)]

    def _literal(self, node: ast.expr, module: Module) -> list[Any]:
        if isinstance(node, ast.Constant):
            return [node.value]
        return [value for hint in self.hints(node, module) for value in hint.values]

    def _named(self, name: str, module: Module) -> list[Hint]:
        name = GENERICS.get(name, NUMBERS.get(name, name))
        if name in BUILTINS:
            return [Hint(name)]
        found = self.find(module, name)
        match found:
            case (where, ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value)):
                return self.hints(value, where)
            case (_, ast.ClassDef() as definition):
                return [Hint(_class_kind(definition))]
            case _:
                return [Hint("class")]

    def fields(self, module: Module, definition: ast.ClassDef) -> dict[str, tuple[Module, ast.AnnAssign]]:
        """Return the annotated fields of a class and of those it derives from."""
        found: dict[str, tuple[Module, ast.AnnAssign]] = {}
        for base in definition.bases:
            place = self.find(module, base.id) if isinstance(base, ast.Name) else None
            if place is not None and isinstance(place[1], ast.ClassDef):
                found |= self.fields(place[0], place[1])
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[statement.target.id] = (module, statement)
        return found


@dataclass
class Reader:
    """Works out the options from the functions that register them."""

    wheel: Wheel
    options: dict[str, Option] = field(default_factory=dict)

    def run(self) -> dict[str, Option]:
        """Return the options of `vllm serve` by their long name, without dashes."""
        engine = self.wheel.module(ARG_UTILS)
        server = next((found for name in SERVERS if (found := self.wheel.module(name)) is not None), None)
        if engine is None or server is None:
            raise SystemExit("this wheel has no vllm/engine/arg_utils.py or no cli_args.py of a server")
        self.human = {"max_model_len", *_human_names(engine.tree)}
        self._frontend(server)
        for module, owner in ((server, None), (engine, "EngineArgs"), (engine, "AsyncEngineArgs")):
            for function in _functions(module.tree, owner, {"make_arg_parser", "add_cli_args"}):
                self._function(module, function)
        own = engine.definitions.get("EngineArgs")
        fields = self.wheel.fields(engine, own) if isinstance(own, ast.ClassDef) else {}
        for name, option in self.options.items():
            stated = fields.get(name.replace("-", "_"))
            if option.default is None and stated is not None:
                self.options[name] = replace(option, default=_default(stated[1].value))
        return self.options

    def _frontend(self, module: Module) -> None:
        """Register each field of FrontendArgs, with what its methods change."""
        definition = module.definitions.get("FrontendArgs")
        if not isinstance(definition, ast.ClassDef):
            return
        fields = self.wheel.fields(module, definition)
        made = {name: self._of_field(where, node) for name, (where, node) in fields.items()}
        for node in ast.walk(module.tree):
            match node:
                case ast.Assign(
                    targets=[
                        ast.Subscript(
                            value=ast.Subscript(value=ast.Name(), slice=ast.Constant(value=str() as name)),
                            slice=ast.Constant(value=str() as key),
                        )
                    ],
                    value=value,
                ) if name in made:
                    made[name] = _changed(made[name], key, value)
                case _:
                    pass
        self.options |= {name.replace("_", "-"): replace(option, names=()) for name, option in made.items()}

    def _function(self, module: Module, function: ast.FunctionDef) -> None:
        known: dict[str, Option | tuple[Module, ast.ClassDef]] = {}
        changes: dict[str, list[tuple[str, ast.expr]]] = {}
        for node in _in_order(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    source = self._source(value, module, known, changes)
                    if source is not None:
                        known[name] = source
                case ast.Assign(
                    targets=[ast.Subscript(value=target, slice=ast.Constant(value=str() as key))], value=value
                ):
                    if isinstance(target, ast.Name):
                        option = known.get(target.id)
                        if isinstance(option, Option):
                            known[target.id] = _changed(option, key, value)
                    elif isinstance(target, ast.Subscript):
                        changes.setdefault(ast.unparse(target), []).append((key, value))
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Subscript(value=ast.Subscript() as target, slice=ast.Constant(value="choices")),
                        attr="remove",
                    ),
                    args=[value],
                ):
                    gone = self.wheel.constant(value, module)
                    changes.setdefault(ast.unparse(target), []).append(("choices.remove", gone))
                case ast.Call(func=ast.Attribute(attr="add_argument")):
                    self._add(node, module, known, changes)
                case ast.For(target=ast.Tuple(), iter=ast.List(elts=rows)):
                    self.options |= {name: Option("str") for row in rows for name in _flags_in(row)}
                case _:
                    pass

    def _source(
        self,
        node: ast.expr,
        module: Module,
        known: dict[str, Option | tuple[Module, ast.ClassDef]],
        changes: dict[str, list[tuple[str, ast.expr]]],
    ) -> Option | tuple[Module, ast.ClassDef] | None:
        """Return what `get_kwargs(Class)`, one of its fields, or a dictionary around one of them stands for."""
        match node:
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=name)]):
                place = self.wheel.find(module, name)
                return (place[0], place[1]) if place is not None and isinstance(place[1], ast.ClassDef) else None
            case ast.Subscript(value=inner, slice=ast.Constant(value=str() as key)):
                owner = self._source(inner, module, known, changes)
                if isinstance(owner, tuple):
                    entry = self.wheel.fields(*owner).get(key)
                    option = self._of_field(*entry) if entry is not None else None
                    for what, value in changes.get(ast.unparse(node), []):
                        option = _changed(option, what, value) if option is not None else None
                    return option
                return None
            case ast.Name(id=name):
                return known.get(name)
            case ast.Dict(keys=keys, values=values):
                return self._merged(zip(keys, values, strict=True), module, known, changes)
            case _:
                return None

    def _merged(
        self,
        pairs: Any,  # noqa: ANN401  (an iterator of key or None, and value)
        module: Module,
        known: dict[str, Option | tuple[Module, ast.ClassDef]],
        changes: dict[str, list[tuple[str, ast.expr]]],
    ) -> Option | None:
        option: Option | None = None
        for key, value in pairs:
            if key is None:
                source = self._source(value, module, known, changes)
                option = source if isinstance(source, Option) else option
            elif isinstance(key, ast.Constant) and option is not None:
                option = _changed(option, str(key.value), value)
        return option

    def _add(
        self,
        call: ast.Call,
        module: Module,
        known: dict[str, Option | tuple[Module, ast.ClassDef]],
        changes: dict[str, list[tuple[str, ast.expr]]],
    ) -> None:
        words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        names = [word for word in words if word.startswith("-")]
        if not names:
            return
        option = Option("str")
        for keyword in call.keywords:
            if keyword.arg is None:
                source = self._source(keyword.value, module, known, changes)
                option = source if isinstance(source, Option) else option
        for keyword in call.keywords:
            if keyword.arg == "choices" and isinstance(keyword.value, ast.Call):
                values = self.wheel.hints(keyword.value.args[0], module)[0].values
                option = replace(option, choices=tuple(values) or None)
            elif keyword.arg is not None:
                option = _changed(option, keyword.arg, keyword.value)
        long = next(name for name in names if name.startswith("--"))
        self.options[long.removeprefix("--")] = replace(option, names=tuple(name for name in names if name != long))

    def _of_field(self, module: Module, node: ast.AnnAssign) -> Option:
        """Do what `_compute_kwargs` of vllm/engine/arg_utils.py does with a field's annotation."""
        hints = self.wheel.hints(node.annotation, module)
        kinds = {hint.kind for hint in hints}
        name = node.target.id if isinstance(node.target, ast.Name) else ""
        values = next((hint.values for hint in hints if hint.values), ())
        option = Option(_kind(kinds, values, human=name in self.human), default=_default(node.value))
        if option.kind == "bool":
            return replace(option, negatable=True)
        return replace(option, choices=values) if values and "str" not in kinds else option


def _kind(kinds: set[str], values: tuple[Any, ...], *, human: bool) -> str:
    """Return the kind of a field by the parts of its annotation, in the order in which the engine asks for them."""
    tests = (
        ("json", "dataclass" in kinds),
        ("str", kinds == {"bool", "str", "none"}),
        ("bool", "bool" in kinds),
        ("list", bool(kinds & {"list", "set", "tuple"})),
        ("int" if values and isinstance(values[0], int) else "str", bool(values)),
        ("human_int" if human else "int", "int" in kinds),
        ("float", "float" in kinds),
        ("json", "dict" in kinds and "str" not in kinds),
    )
    return next((kind for kind, holds in tests if holds), "str")


def _class_kind(definition: ast.ClassDef) -> str:
    decorators = {ast.unparse(one).split("(")[0].rpartition(".")[2] for one in definition.decorator_list}
    bases = [ast.unparse(base).split("[")[0] for base in definition.bases]
    return "dataclass" if decorators & {"config", "dataclass"} else "dict" if "dict" in bases else "class"


def _functions(tree: ast.Module, owner: str | None, names: set[str]) -> list[ast.FunctionDef]:
    bodies = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner] or [tree.body]
    return [node for body in bodies for node in body if isinstance(node, ast.FunctionDef) and node.name in names]


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is inside a node in the order in which it stands."""
    for child in ast.iter_child_nodes(node):
        yield child
        yield from _in_order(child)


def _human_names(tree: ast.Module) -> set[str]:
    """Return the fields that take `8k`: a set of names, or the names that a branch asks for."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="human_readable_int_args" | "human_readable_ints")], value=source):
                found |= _texts(source)
            case ast.If(test=source, body=body) if any("= human_readable_int" in ast.unparse(one) for one in body):
                found |= _texts(source) if "name" in ast.unparse(source) else set()
            case _:
                pass
    return found


def _flags_in(row: ast.expr) -> set[str]:
    return {text.removeprefix("--") for text in _texts(row) if text.startswith("--")}


def _texts(node: ast.expr) -> set[str]:
    constants = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _changed(option: Option, key: str, value: ast.expr) -> Option:
    """Return the option with one keyword of `add_argument` set.

    A default of the field stays: `default=None` in its place only says that the engine decides later.
    """
    text = ast.unparse(value)
    if key == "default":
        return option if option.default is not None else replace(option, default=text)
    if key == "choices.remove":
        kept = [one for one in option.choices or () if not (isinstance(value, ast.Constant) and value.value == one)]
        return replace(option, choices=tuple(kept) or None)
    if key == "choices" and isinstance(value, (ast.List, ast.Tuple)):
        return replace(option, choices=tuple(one.value for one in value.elts if isinstance(one, ast.Constant)))
    tests = (
        ("action", "BooleanOptionalAction" in text, "bool"),
        ("action", "store_" in text, "bool"),
        ("action", "append" in text, "list"),
        ("type", "json.loads" in text, "json"),
        ("type", "human_readable_int" in text, "human_int"),
        ("type", text in ("int", "float", "str") and option.kind != "list", text),
        ("nargs", text in ("'+'", "'*'"), "list"),
    )
    kind = next((kind for name, holds, kind in tests if name == key and holds), None)
    if kind is None:
        return option
    return replace(option, kind=kind, negatable=kind == "bool" and "BooleanOptionalAction" in text)


def _default(node: ast.expr | None) -> str | None:
    """Return the source of a default; of `Field(default=x, ...)` the x."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Field", "field"):
        stated = next((keyword.value for keyword in node.keywords if keyword.arg == "default"), None)
        stated = stated or (node.args[0] if node.args else None)
        if stated is not None:
            return ast.unparse(stated)
    return None if node is None else ast.unparse(node)


def read_environment(wheel: Wheel) -> set[str]:
    """Return the names of the variables that vllm/envs.py reads."""
    module = wheel.module("vllm.envs")
    node = module.definitions.get("environment_variables") if module is not None else None
    table = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    keys = table.keys if isinstance(table, ast.Dict) else []
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def latest(history: list[list[Any]]) -> Any:  # noqa: ANN401  (choices, kinds and defaults share the form)
    """Return the newest value of a history."""
    return history[-1][1] if history else None


def differences(catalogue: dict[str, Any], options: dict[str, Option], version: str) -> list[str]:
    """Say where the catalogue and a wheel disagree about names, kinds, choices and forms of this release."""
    at = Version(version)
    alive = {name: entry for name, entry in catalogue["flags"].items() if _alive(entry, at)}
    lines = [f"{name}: only in the catalogue" for name in sorted(alive.keys() - options.keys())]
    lines += [f"{name}: only in the wheel" for name in sorted(options.keys() - alive.keys())]
    for name in sorted(alive.keys() & options.keys()):
        entry, option = alive[name], options[name]
        then = {key: [one for one in entry.get(key, []) if Version(one[0]) <= at] for key in ("kinds", "choices")}
        choices = latest(then["choices"])
        if (latest(then["kinds"]) or entry["kinds"][0][1]) != option.kind:
            lines.append(f"{name}: kind {latest(then['kinds'])}, in the wheel {option.kind}")
        if CHECKED_LATER not in entry and set(choices or ()) != set(option.choices or ()):
            lines.append(f"{name}: choices {choices}, in the wheel {list(option.choices or ())}")
        negatable = bool(entry.get("negatable")) and at >= Version(entry.get("negatable_since", "0"))
        if option.kind == "bool" and negatable != option.negatable:
            lines.append(f"{name}: --no-{name} only in the {'catalogue' if negatable else 'wheel'}")
    return lines


def _alive(entry: dict[str, Any], at: Version) -> bool:
    since, until = entry.get("since"), entry.get("until")
    return (not since or Version(since) <= at) and (not until or at <= Version(until))


def add_release(catalogue: dict[str, Any], options: dict[str, Option], environment: set[str], version: str) -> None:
    """Lay a release on top of the catalogue: new flags begin with it, flags that are gone ended with the one before.

    The newest release of the catalogue is read again.

    Raises:
        SystemExit: the catalogue has a newer one.

    """
    if catalogue["versions"][-1] == version:
        _forget(catalogue, version)
    before = catalogue["versions"][-1]
    if Version(version) <= Version(before):
        raise SystemExit(f"the catalogue goes to {before}; compare {version} with --check")
    catalogue["versions"].append(version)
    _carry_over(catalogue["flags"], set(options), version, before)
    _carry_over(catalogue["env"], environment, version, before)
    for name, option in options.items():
        entry = catalogue["flags"][name]
        choices = list(option.choices) if option.choices else None
        now = {"kinds": option.kind, "defaults": option.default, "choices": choices}
        for key, value in now.items():
            if key == "choices" and CHECKED_LATER in entry:
                continue
            history = entry.setdefault(key, [])
            if (not history and key != "choices") or not _same(latest(history), value):
                history.append([version, value])
        if not entry.get("choices"):
            entry.pop("choices", None)
        if option.kind == "bool" and option.negatable:
            entry["negatable"] = True
        if option.names:
            entry["aliases"] = sorted({*entry.get("aliases", []), *option.names})


def _same(old: Any, new: Any) -> bool:  # noqa: ANN401  (whatever a history holds)
    """Whether two values are the same; the order of choices says nothing."""
    return set(old) == set(new) if isinstance(old, list) and isinstance(new, list) else bool(old == new)


def _forget(catalogue: dict[str, Any], version: str) -> None:
    """Take back what the newest release brought; notes and replacements stay."""
    catalogue["versions"].remove(version)
    before = catalogue["versions"][-1]
    for part in ("flags", "env"):
        for name, entry in list(catalogue[part].items()):
            if entry.get("since") == version:
                del catalogue[part][name]
                continue
            if entry.get("until") == before:
                del entry["until"]
            for key in ("kinds", "defaults", "choices"):
                if key in entry and not (key == "choices" and CHECKED_LATER in entry):
                    entry[key] = [point for point in entry[key] if point[0] != version]


def _carry_over(entries: dict[str, Any], present: set[str], version: str, before: str) -> None:
    for name, entry in entries.items():
        if name not in present and _alive(entry, Version(version)):
            entry["until"] = before
        elif name in present and "until" in entry:
            del entry["until"]  # it came back
    for name in present - entries.keys():
        entries[name] = {"since": version}


def catalogue_text(catalogue: dict[str, Any]) -> str:
    """Return the file: one line a flag, so that a new release is a readable change."""
    blocks = []
    for key, value in catalogue.items():
        if key in ("flags", "env"):
            lines = [f"  {json.dumps(name)}: {json.dumps(value[name], ensure_ascii=False)}" for name in sorted(value)]
            blocks.append(f' "{key}": {{\n' + ",\n".join(lines) + "\n }")
        else:
            blocks.append(f' "{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def main(arguments: list[str] | None = None) -> int:
    """Add the wheel's release, or compare it; 1 when they differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    asked = parser.parse_args(arguments)
    catalogue = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    with zipfile.ZipFile(asked.wheel) as archive:
        wheel = Wheel(archive)
        options, environment, version = Reader(wheel).run(), read_environment(wheel), wheel.version
    if asked.check:
        lines = differences(catalogue, options, version)
        agreed = f"{version}: {len(options)} flags, all as in the wheel\n"
        sys.stdout.write("".join(f"{line}\n" for line in lines) or agreed)
        return 1 if lines else 0
    add_release(catalogue, options, environment, version)
    CATALOGUE.write_text(catalogue_text(catalogue), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

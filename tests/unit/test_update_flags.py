"""The catalogue's reader: what a parser would be made of, from the text of a wheel alone."""

from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts import update_flags
from scripts.update_flags import Option, Reader, Wheel

pytestmark = pytest.mark.unit

SETUP = """
from __future__ import annotations
import vllm.config.cache
raise SystemExit("a wheel must not be run")
"""
CACHE = '''
from typing import Annotated, Literal
from pydantic import Field
from .shared import *
HIGHEST = 2
CacheDType = Literal["auto", "fp8"]
WiderDType = Literal["any", CacheDType]

@config
class Nested:
    x: int = 1

@config(frozen=True)
class CacheConfig(Base):
    """Never looked at."""
    cache_dtype: CacheDType = "auto"
    wider: WiderDType | None = None
    level: Literal[0, 1, 2] = 0
    loose: Literal["a", "b"] | str = "a"
    fraction: float = Field(default=0.9, gt=0, le=1)
    blocks: Annotated[int, Field(ge=1)] | None = None
    prefix: bool = True
    maybe: bool | None = None
    flag_or_text: bool | str | None = None
    sizes: list[int] | None = None
    traces: list[Literal["model", "all"]] | None = None
    texts: list[str | int] = Field(default_factory=list)
    extra: dict[str, int] = Field(default_factory=dict)
    either: dict[str, int] | str = "cpu"
    nested: Nested = Field(default_factory=Nested)
    outside: torch.dtype = "auto"
    quoted: "int | None" = None
    starred: Starred = "x"
    memory_bytes: int | None = None
'''
SHARED = """
Starred = Literal["x", "y"]

@config
class Base:
    inherited: PositiveInt = 4
"""
ARG_UTILS = """
from vllm.config.cache import HIGHEST, CacheConfig
Choices = Literal["p", "q"]

def _compute_kwargs(cls):
    human_readable_int_args = {"memory_bytes"}

class EngineArgs:
    loner: int = 5

    @staticmethod
    def add_cli_args(parser):
        cache_kwargs = get_kwargs(CacheConfig)
        group = parser.add_argument_group(title="x")
        if not "serve" in sys.argv:
            group.add_argument("--inherited", **cache_kwargs["inherited"])
        for_all = [group.add_argument("--dtype", "-d", **cache_kwargs["cache_dtype"])]
        group.add_argument("--wider", **cache_kwargs["wider"])
        cache_kwargs["level"]["choices"].remove(HIGHEST)
        group.add_argument("--level", "-l", **cache_kwargs["level"])
        group.add_argument("--loose", **cache_kwargs["loose"])
        group.add_argument("--fraction", **cache_kwargs["fraction"])
        group.add_argument("--blocks", **{**cache_kwargs["blocks"], "default": None})
        group.add_argument("--prefix", **cache_kwargs["prefix"])
        group.add_argument("--maybe", **cache_kwargs["maybe"])
        group.add_argument("--flag-or-text", **cache_kwargs["flag_or_text"])
        group.add_argument("--sizes", **cache_kwargs["sizes"])
        group.add_argument("--traces", **cache_kwargs["traces"])
        group.add_argument("--texts", **cache_kwargs["texts"])
        group.add_argument("--extra", **cache_kwargs["extra"])
        group.add_argument("--either", **cache_kwargs["either"])
        cache_kwargs["nested"]["type"] = optional_type(json.loads)
        group.add_argument("--nested", **cache_kwargs["nested"])
        group.add_argument("--outside", **cache_kwargs["outside"])
        group.add_argument("--quoted", **cache_kwargs["quoted"])
        starred = cache_kwargs["starred"]
        starred["type"] = lambda s: s.lower()
        group.add_argument("--starred", **starred)
        group.add_argument("--memory-bytes", **cache_kwargs["memory_bytes"])
        group.add_argument("--loner", type=int, help="x")
        group.add_argument("--plain", choices=["m", "n"], default="m")
        group.add_argument("--got", choices=get_args(Choices))
        group.add_argument("--store", action="store_true", default=False)
        group.add_argument("--pair", action=argparse.BooleanOptionalAction, default=None)
        for arg, type in [("--old-one", str), ("--old-two", bool)]:
            group.add_argument(arg, type=type)
        group.add_argument("positional", type=str)
        return parser

class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--enable-log-requests", action=argparse.BooleanOptionalAction, default=False)
        return parser
"""
CLI_ARGS = """
from vllm.engine.arg_utils import AsyncEngineArgs

@config
class BaseFrontendArgs:
    chat_template: str | None = None
    lora_modules: list[Module] | None = None

@config
class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    origins: list[str] = field(default_factory=list)
    middleware: list[str] = field(default_factory=lambda: [])

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["origins"]["type"] = json.loads
        frontend_kwargs["middleware"]["action"] = "append"
        frontend_kwargs["middleware"]["type"] = str
        return frontend_kwargs

def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--api-server-count", "-asc", type=int, default=None)
    parser.add_argument("--config", help="a file")
    return parser
"""
ENVS = 'environment_variables: dict = {\n    "VLLM_A": lambda: 1,\n    "VLLM_B": lambda: 2,\n}\n'
EXPECTED = {
    "inherited": Option("int", default="4"),
    "dtype": Option("str", ("-d",), ("auto", "fp8"), "'auto'"),
    "wider": Option("str", choices=("any", "auto", "fp8"), default="None"),
    "level": Option("int", ("-l",), (0, 1), "0"),
    "loose": Option("str", default="'a'"),
    "fraction": Option("float", default="0.9"),
    "blocks": Option("int", default="None"),
    "prefix": Option("bool", default="True", negatable=True),
    "maybe": Option("bool", default="None", negatable=True),
    "flag-or-text": Option("str", default="None"),
    "sizes": Option("list", default="None"),
    "traces": Option("list", choices=("model", "all"), default="None"),
    "texts": Option("list", default="Field(default_factory=list)"),
    "extra": Option("json", default="Field(default_factory=dict)"),
    "either": Option("str", default="'cpu'"),
    "nested": Option("json", default="Field(default_factory=Nested)"),
    "outside": Option("str", default="'auto'"),
    "quoted": Option("int", default="None"),
    "starred": Option("str", choices=("x", "y"), default="'x'"),
    "memory-bytes": Option("human_int", default="None"),
    "loner": Option("int", default="5"),
    "plain": Option("str", choices=("m", "n"), default="'m'"),
    "got": Option("str", choices=("p", "q")),
    "store": Option("bool", default="False"),
    "pair": Option("bool", default="None", negatable=True),
    "old-one": Option("str"),
    "old-two": Option("str"),
    "enable-log-requests": Option("bool", default="False", negatable=True),
    "chat-template": Option("str", default="None"),
    "lora-modules": Option("list", default="None"),
    "host": Option("str", default="None"),
    "origins": Option("json", default="field(default_factory=list)"),
    "middleware": Option("list", default="field(default_factory=lambda: [])"),
    "api-server-count": Option("int", ("-asc",), default="None"),
    "config": Option("str"),
}


def make_wheel(path: Path, *, server: str = "common", version: str = "9.9.0+cu129", **changes: str) -> Path:
    members = {
        "vllm/__init__.py": SETUP, "vllm/config/__init__.py": SETUP, "vllm/config/cache.py": CACHE,
        "vllm/config/shared.py": SHARED, "vllm/engine/arg_utils.py": ARG_UTILS, "vllm/envs.py": ENVS,
        f"vllm/entrypoints/{server}/cli_args.py": CLI_ARGS,
        f"vllm-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**members, **changes}.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize("server", ["common", "launchers", "openai"])
def test_reads_what_the_parser_would_be_made_of(tmp_path: Path, server: str) -> None:
    with zipfile.ZipFile(make_wheel(tmp_path / "vllm.whl", server=server)) as archive:
        wheel = Wheel(archive)
        assert Reader(wheel).run() == EXPECTED
        assert update_flags.read_environment(wheel) == {"VLLM_A", "VLLM_B"}
        assert wheel.version == "9.9.0"


def test_a_wheel_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other/__init__.py", "")
    with zipfile.ZipFile(path) as archive, pytest.raises(SystemExit, match="has no vllm"):
        Reader(Wheel(archive)).run()


CATALOGUE: dict[str, Any] = {
    "schema_version": 1,
    "versions": ["1.0", "1.1"],
    "flags": {
        "stays": {"since": "1.0", "kinds": [["1.0", "int"]], "defaults": [["1.0", "1"]]},
        "goes": {"since": None, "kinds": [["1.0", "int"]], "defaults": [["1.0", "1"]], "note": "kept"},
        "went": {"since": None, "until": "1.0", "kinds": [["1.0", "int"]], "defaults": [["1.0", "1"]]},
        "known": {"since": "1.0", "kinds": [["1.0", "str"]], "choices": [["1.0", ["a"]]], "defaults": [["1.0", "'a'"]],
                  "choices_by": "engine"},
    },
    "env": {"A": {"since": "1.0"}},
    "env_notes": {},
}
NEXT = {
    "stays": Option("human_int", default="1"),
    "new": Option("bool", ("-n",), default="False", negatable=True),
    "known": Option("str", default="'a'"),
    "chosen": Option("str", choices=("a", "b"), default="'a'"),
}


def with_next(version: str = "1.2") -> dict[str, Any]:
    catalogue = copy.deepcopy(CATALOGUE)
    update_flags.add_release(catalogue, NEXT, {"A", "B"}, version)
    return catalogue


def test_a_release_is_laid_on_top() -> None:
    catalogue = with_next()
    flags = catalogue["flags"]
    assert catalogue["versions"] == ["1.0", "1.1", "1.2"]
    assert flags["stays"]["kinds"] == [["1.0", "int"], ["1.2", "human_int"]]
    assert flags["stays"]["defaults"] == [["1.0", "1"]]
    assert (flags["goes"]["until"], flags["goes"]["note"], flags["went"]["until"]) == ("1.1", "kept", "1.0")
    assert flags["new"] == {"since": "1.2", "kinds": [["1.2", "bool"]], "defaults": [["1.2", "False"]], "negatable": True,
                            "aliases": ["-n"]}
    assert flags["chosen"]["choices"] == [["1.2", ["a", "b"]]]
    assert flags["known"]["choices"] == [["1.0", ["a"]]]
    assert catalogue["env"] == {"A": {"since": "1.0"}, "B": {"since": "1.2"}}
    assert update_flags.differences(catalogue, NEXT, "1.2") == []


def test_the_newest_release_can_be_read_again() -> None:
    once = with_next()
    again = copy.deepcopy(once)
    update_flags.add_release(again, NEXT, {"A", "B"}, "1.2")
    assert again == once


def test_an_older_release_is_only_compared() -> None:
    with pytest.raises(SystemExit, match="the catalogue goes to"):
        update_flags.add_release(copy.deepcopy(CATALOGUE), NEXT, set(), "1.0.5")


def test_differences_name_each_flag() -> None:
    wheel = {"stays": Option("float"), "goes": Option("bool", negatable=True), "more": Option("str")}
    lines = update_flags.differences(CATALOGUE, wheel, "1.1")
    assert [line.split(":")[0] for line in lines] == ["known", "more", "goes", "goes", "stays"]
    assert "kind int, in the wheel float" in lines[-1]


def test_the_file_is_written_as_it_stands() -> None:
    text = update_flags.CATALOGUE.read_text(encoding="utf-8")
    assert update_flags.catalogue_text(json.loads(text)) == text


def test_the_command_compares_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    file = tmp_path / "flags.json"
    file.write_text(json.dumps({**CATALOGUE, "flags": {}, "env": {}}))
    monkeypatch.setattr(update_flags, "CATALOGUE", file)
    wheel = str(make_wheel(tmp_path / "vllm.whl"))
    assert update_flags.main(["--check", wheel]) == 1
    assert "dtype: only in the wheel" in capsys.readouterr().out
    assert update_flags.main([wheel]) == 0
    assert update_flags.main(["--check", wheel]) == 0
    assert "9.9.0: 35 flags, all as in the wheel" in capsys.readouterr().out

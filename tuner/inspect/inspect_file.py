"""One file: what kind it is, what it starts, and everything that the rules have to say about it. Never raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tuner.errors import EngineError, LlmtuneError
from tuner.facts.flags import flag_table
from tuner.inspect import lint_container, lint_server
from tuner.inspect.arguments import Arguments, newest
from tuner.inspect.issue import Issue, Report, ordered
from tuner.inspect.lint_compose import lint_compose
from tuner.inspect.lint_config import config_server, is_vllm_config, lint_config
from tuner.inspect.lint_environment import SECRET_VALUE, engine_variable, environment, variable
from tuner.inspect.lint_fit import lint_fit, say_memory, say_rules
from tuner.inspect.lint_form import lint_compose_form, lint_pod_form
from tuner.inspect.lint_kubernetes import lint_kubernetes
from tuner.inspect.lint_python import lint_python
from tuner.inspect.lint_scaling import lint_scaling, lint_values
from tuner.inspect.lint_script import lint_install_at_start, lint_script, lint_unpinned
from tuner.inspect.lint_trtllm import (
    SAID_OF_THE_YAML,
    config_of,
    is_trtllm_yaml,
    lint_trtllm_script,
    lint_trtllm_server,
    lint_trtllm_yaml,
    options_of,
    trtllm_arguments,
    version_of,
)
from tuner.inspect.lint_unit import lint_unit
from tuner.inspect.read_compose import is_compose, read_compose
from tuner.inspect.read_dockerfile import is_dockerfile, read_dockerfile
from tuner.inspect.read_kubernetes import is_manifest, read_pods
from tuner.inspect.read_other import embedded_servers, helm_servers, kserve_servers
from tuner.inspect.read_scripts import read_env_file, read_script, read_unit, unit_servers
from tuner.inspect.server import Server
from tuner.inspect.tree import Documents, Tree, read_documents
from tuner.inspect.view import Context, View, view_of

Sibling = Callable[[str], str | None]
"""Gives the text of a file beside the checked one, or None."""
_INTEREST = re.compile(
    r"vllm|trtllm|tensorrt|llama|sglang|HF_TOKEN|HUGGING_FACE|kind:|services:|hf_[A-Za-z0-9]{20}|max[-_]num|kv_cache|api_server",
    re.IGNORECASE,
)
_YAML = (".yaml", ".yml", ".json")
_YAML_KEY = re.compile(r"^(?:services|apiVersion|kind):(?:\s|$)", re.MULTILINE)
_TRTLLM_NAME = re.compile(r"trt|llm[-_]api|extra[-_]llm")
_MOST_SHELL, _MOST_SERVERS, _MOST_TWICE = 150_000, 100, 20
_TRTLLM_VERSION = re.compile(r"tensorrt[-_]llm(?:==| )(\d+\.\d+\.\d+(?:rc\d+)?)", re.IGNORECASE)
_IGNORE = re.compile(r"#.*\bllmtune: ignore(?:\[([^\]]*)\])?")
_UNIT_SECTION = re.compile(r"^\[(?:Unit|Service)\]", re.MULTILINE)


def check_text(name: str, text: str, context: Context, sibling: Sibling = lambda _: None) -> tuple[Issue, ...]:
    """Check one file's text; `name` is shown in the issues, and its ending is a hint at the kind."""
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    inspection = _Inspection(name, text, context, sibling)
    inspection.run()
    lines = text.split("\n")
    return ordered([issue for issue in inspection.report.issues if not _ignored(issue, lines)])


def of_interest(name: str, text: str) -> bool:
    """Whether anything in the file's text, or its name, points to an engine or to a file that may start one."""
    return bool(_INTEREST.search(text) or _TRTLLM_NAME.search(name.rsplit("/", 1)[-1].lower()))


def _ignored(issue: Issue, lines: list[str]) -> bool:
    """Whether the issue's line says `llmtune: ignore`, for all rules or for this one."""
    line = lines[issue.line - 1] if issue.line <= len(lines) else ""
    said = _IGNORE.search(line)
    return said is not None and (said[1] is None or issue.rule in re.split(r"[,\s]+", said[1]))


def _softened(issue: Issue, view: View) -> Issue:
    """Take an error as a warning where somebody's own image, or a release not known here, may see it otherwise."""
    image = view.server.image
    own = image is not None and not image.is_official and view.server.entry == "image"
    open_tag = image is not None and "$" in (image.tag or "") and not view.is_stated
    by_image = own and issue.rule in ("flag-unknown", "argument-stray")
    if issue.severity == "error" and (
        by_image or (open_tag and issue.rule in ("flag-unknown", "flag-removed", "flag-value"))
    ):
        return issue.model_copy(update={"severity": "warning"})
    return issue


_FOR_ANY_ENGINE: tuple[lint_server.Rule, ...] = (
    lint_server.image_is_pinned,
    lint_server.model_exists,
    lint_server.token_is_given,
    lint_container.gpus_match,
    lint_container.shared_memory,
    lint_container.caches_last,
    lint_container.restarts_end,
    lint_container.time_to_start,
)


class _Inspection:
    def __init__(self, name: str, text: str, context: Context, sibling: Sibling) -> None:
        self.name, self.text, self.context, self.sibling = name, text, context, sibling
        self.report = Report(name)
        self._servers = 0

    def run(self) -> None:
        base = self.name.rsplit("/", 1)[-1].lower()
        if not self.text.strip():
            self.report.note(1, "empty", "the file is empty")
        elif base.endswith(".env") or base.startswith(".env"):
            self._env()
        elif not of_interest(self.name, self.text):
            if base.endswith(_YAML):
                self._unreadable(read_documents(self.text), self.text)
            self._nothing()
        elif base.endswith(_YAML):
            self._yaml_file()
        elif base.endswith(".py"):
            if not lint_python(self.text, self._version(), self.report):
                self._nothing()
        elif is_dockerfile(base):
            self._dockerfile()
        elif base.endswith(".service") or (_UNIT_SECTION.search(self.text) and "ExecStart" in self.text):
            self._unit()
        elif base.endswith((".sh", ".bash", ".sbatch")) or self.text.startswith("#!"):
            self._shell()
        else:
            self._sniff()
        self._tokens()

    def _sniff(self) -> None:
        """Take the kind from what the text looks like."""
        documents = read_documents(self.text)
        is_map = any(tree.is_map and len(tree.items()) > 0 for tree in documents.trees) and not documents.problems
        if is_map or _YAML_KEY.search(self.text):
            self._yaml_file()
            return
        values, problems = read_env_file(self.text)
        if values and not problems:
            self._env()
        else:
            self._shell()

    def _yaml_file(self) -> None:
        self._yaml(self.text, 0)
        if not self._servers:
            self._nothing()

    def _unreadable(self, documents: Documents, text: str) -> None:
        """Say which documents cannot be read. Templates and what a script writes may become readable, a file not."""
        is_final = text == self.text and "{{" not in text and "{%" not in text
        for problem in documents.problems:
            say = self.report.error if is_final else self.report.warning
            say(problem.line, "unreadable", f"{problem.message}; this document was not checked")

    def _yaml(self, text: str, offset: int) -> None:
        """Check the documents of a YAML file, or of one that a script writes from line `offset` on."""
        if "{{" in text and re.search(r"^\s*\{\{-? *(?:if|range|with|include|end)\b", text, re.MULTILINE):
            self.report.note(1, "template", "this is a template; render it (helm template) and check the result")
        documents = read_documents("\n" * offset + text)
        self._unreadable(documents, text)
        for twice in documents.twice[:_MOST_TWICE]:
            self.report.warning(twice.line, "key-twice", twice.message, "keep one")
        trees = documents.trees
        if any(is_manifest(tree) for tree in trees):
            lint_pod_form(trees, self.report)
            self._kubernetes(trees)
        for server in kserve_servers(trees, self.name):
            self._server(server)
        for tree in trees:
            self._document(tree)
        if not any(is_manifest(tree) for tree in trees):
            lint_scaling(trees, self._version(), self.report)

    def _document(self, tree: Tree) -> None:
        """Check a YAML document that is no Kubernetes object."""
        if is_compose(tree) or (tree.at("services").exists and "compose" in self.name.rsplit("/", 1)[-1].lower()):
            lint_compose_form(tree, self.report)
            self._compose(tree)
        elif is_manifest(tree):
            return
        elif is_trtllm_yaml(tree) or self._looks_like_trtllm(tree):
            lint_trtllm_yaml(tree, self.context.version, self.report)
        elif is_vllm_config(tree):
            self._config(tree)
        else:
            lint_values(tree, self.report)
            for server in [*helm_servers(tree, self.name), *embedded_servers(tree, self.name)]:
                self._server(server)

    def _looks_like_trtllm(self, tree: Tree) -> bool:
        name = self.name.rsplit("/", 1)[-1].lower()
        return bool(_TRTLLM_NAME.search(name)) and (tree.is_list or tree.is_map)

    def _version(self) -> str:
        return self.context.version or self.context.assumed or newest("vllm")

    def _compose(self, tree: Tree) -> None:
        services: list[tuple[str, Tree, View]] = []
        for name, service, server in read_compose(tree, self.name):
            view = self._server(server)
            if view is not None:
                services.append((name, service, view))
        lint_compose(tree, services, self.report)

    def _kubernetes(self, trees: list[Tree]) -> None:
        pods = [(pod, self._server(pod.server)) for pod in read_pods(trees, self.name)]
        known = [(pod, view) for pod, view in pods if view is not None]
        lint_kubernetes(trees, known, self.report)
        version = next((view.version for _, view in known if view.is_stated), self._version())
        lint_scaling(trees, version, self.report)

    def _config(self, tree: Tree) -> None:
        try:
            lint_config(tree, self._version(), self.report)
        except EngineError as error:
            self.report.note(1, "version-old", f"{error.message}: flags were not checked")
        self._server(config_server(tree, self.name))

    def _shell(self) -> None:
        text = self.text
        if len(text) > _MOST_SHELL:
            text = text[:_MOST_SHELL]
            self.report.warning(text.count("\n") + 1, "unreadable", "the file is long; only what is above was checked")
        read = read_script(text, self.name)
        views = [view for server in read.servers if (view := self._server(server)) is not None]
        lint_script(read, views, self.report)
        lint_trtllm_script(read, self.report)
        for document in read.documents:
            if _INTEREST.search(document.text) and re.search(r"^\s*[\w.-]+:(?:\s|$)", document.text, re.MULTILINE):
                self._yaml(document.text, document.line - 1)
        if not read.servers:
            self._nothing()

    def _dockerfile(self) -> None:
        read = read_dockerfile(self.text, self.name)
        for line in read.unpinned:
            lint_unpinned(line, self.report)
        if read.server is not None:
            self._server(read.server)
        elif not read.unpinned:
            self._nothing()

    def _unit(self) -> None:
        unit = read_unit(self.text)
        views = [view for server in unit_servers(unit, self.name) if (view := self._server(server)) is not None]
        lint_unit(unit, views, self.report)
        if not self._servers:
            self._nothing()

    def _env(self) -> None:
        values, problems = read_env_file(self.text)
        for problem in problems:
            self.report.note(problem.line, "unreadable", problem.message)
        for name, word in values.items():
            variable(name, word, self.report)
            try:
                if name == "VLLM_PORT":
                    self.report.warning(
                        word.line,
                        "env-port",
                        "VLLM_PORT is the first of vLLM's internal ports, not the port of the API",
                        "give your own variable another name",
                    )
                elif not (name.startswith("VLLM_") and self._own_variable(name)):
                    engine_variable(name, word, self._version(), self.report, certain=False)
            except EngineError as error:
                self.report.note(word.line, "version-old", f"{error.message}: variables were not checked")
                return

    def _own_variable(self, name: str) -> bool:
        """Whether a variable may serve the file that reads this one, e.g. VLLM_IMAGE in a Compose file."""
        return bool(re.search(r"IMAGE|TAG|VERSION|BIND|PUBLISH|CONTAINER|MEMORY_LIMIT|REPLICAS|CPUS|HOST_PORT", name))

    def _server(self, server: Server) -> View | None:
        """Apply the rules for one server; None when it is not vLLM's, or one too many."""
        self._servers += 1
        if self._servers > _MOST_SERVERS:
            if self._servers == _MOST_SERVERS + 1:
                self.report.warning(
                    server.line, "unreadable", f"more than {_MOST_SERVERS} servers: the rest is skipped"
                )
            return None
        if server.engine == "trtllm":
            return self._trtllm(server)
        if server.engine != "vllm":
            for name, word in server.env.items():
                variable(name, word, self.report)
            other = View(server, Arguments(), self._version(), is_stated=False, context=self.context, text=self.text)
            lint_server.image_is_pinned(other, self.report)
            lint_container.restarts_end(other, self.report)
            return None
        view, problem = view_of(server, self.context, self.text)
        if problem is not None:
            self.report.note(server.line, "version-old", problem)
        else:
            self._doubt("vllm", view, server.line)
        self.report.issues += [_softened(issue, view) for issue in view.arguments.issues]
        for rule in (*lint_server.RULES, *lint_container.RULES):
            rule(view, self.report)
        try:
            if problem is None:
                environment(view, self.report)
                lint_fit(view, self.report)
            else:
                for name, word in server.env.items():
                    variable(name, word, self.report)
        except LlmtuneError as error:
            self.report.note(server.line, "unchecked", error.message)
        lint_install_at_start(view, self.report)
        return view

    def _doubt(self, engine: str, view: View, line: int) -> None:
        """Say where the release that the file or the user names was never read here."""
        doubt = flag_table(engine, view.version).doubt if view.is_stated else None
        if doubt is not None:
            self.report.note(line, "version-new", doubt)

    def _trtllm(self, server: Server) -> View | None:
        options = options_of(server)
        named = options.get("--config") or options.get("--extra_llm_api_options")
        tree = None
        if named is not None and not named.open:
            text = self.sibling(named.text)
            trees = read_documents(text).trees if text is not None else []
            tree = trees[0] if trees else None
        if tree is None:
            inside = [found for found in self._heredoc_trees() if is_trtllm_yaml(found)]
            tree = inside[0] if inside else None
        if version_of(server, self.context) is None and (named_in := _TRTLLM_VERSION.search(self.text)):
            self.context = replace(self.context, version=named_in[1])
        lint_trtllm_server(server, self.context, tree, self.text, self.report)
        for name, word in server.env.items():
            variable(name, word, self.report)
        if server.entry == "trtllm-build":
            return None
        version = version_of(server, self.context)
        view = View(
            server,
            trtllm_arguments(options, tree),
            version or newest("trtllm"),
            is_stated=version is not None,
            context=self.context,
            text=self.text,
        )
        for rule in _FOR_ANY_ENGINE:
            rule(view, self.report)
        with suppress(EngineError):
            self._doubt("trtllm", view, server.line)
            config = config_of(options, tree, view.version)
            say_rules(view, config, self.report, but=SAID_OF_THE_YAML)
            say_memory(view, config, self.report)
        lint_install_at_start(view, self.report)
        return view

    def _heredoc_trees(self) -> list[Tree]:
        if "<<" not in self.text:
            return []
        read = read_script(self.text[:_MOST_SHELL], self.name)
        return [tree for document in read.documents for tree in read_documents(document.text).trees]

    def _nothing(self) -> None:
        if not self.report.issues:
            self.report.note(1, "nothing-found", "no command here starts an inference server")

    def _tokens(self) -> None:
        """Say where tokens stand that no rule has seen, comments included."""
        said = {issue.line for issue in self.report.issues if issue.rule == "secret-in-clear"}
        for match in SECRET_VALUE.finditer(self.text):
            line = self.text.count("\n", 0, match.start()) + 1
            if line not in said:
                self.report.error(
                    line, "secret-in-clear", "a token stands here in clear", "revoke it, and take it out of the file"
                )
                said.add(line)

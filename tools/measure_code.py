"""Measure a package tree: sizes, imports, repeated names, and with --walk which functions one CSV run calls."""

from __future__ import annotations

import argparse
import ast
import csv
import importlib
import inspect
import io
import json
import math
import os
import statistics
import string
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import Any

LONG_FUNCTION, SHORT_HELPER = 50, 5
LEFT_OUT = ("cli", "__main__")
"""Root entries whose work is to import all others; their edges say nothing about the rest."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Edges = dict[str, set[str]]
Measures = dict[str, Any]


@dataclass
class Module:
    """One parsed file; imports are kept by where they stand: at module level, in a function, or for types only."""

    name: str
    path: Path
    is_package: bool
    source: str
    tree: ast.Module
    imports: dict[str, list[ast.Import | ast.ImportFrom]] = field(default_factory=lambda: defaultdict(list))

    @property
    def parent(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())


def read_package(root: Path) -> dict[str, Module]:
    """Every Python file under the folder by its dotted name."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        source = path.read_text(encoding="utf-8")
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, path, is_package, source, ast.parse(source))
        for kind, node in imports_in(modules[name].tree, "module"):
            modules[name].imports[kind].append(node)
    return modules


def imports_in(node: ast.AST, kind: str) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    """Import statements below a node, each with the kind of place it stands in."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield kind, node
    elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for statement in node.body:
            yield from imports_in(statement, "types")
        for statement in node.orelse:
            yield from imports_in(statement, kind)
    else:
        inner = "function" if isinstance(node, Function) and kind == "module" else kind
        for child in ast.iter_child_nodes(node):
            yield from imports_in(child, inner)


def bindings(module: Module, modules: dict[str, Module], kinds: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """What a module imports from its own package: (local name, module, name in that module or empty)."""
    for node in (node for kind in kinds for node in module.imports[kind]):
        if isinstance(node, ast.Import):
            yield from ((a.asname or a.name, a.name, "") for a in node.names if a.name in modules)
            continue
        base = node.module or ""
        if node.level:
            package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
            base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
        for alias in node.names:
            inside = f"{base}.{alias.name}" in modules
            if inside or base in modules:
                target, name = (f"{base}.{alias.name}", "") if inside else (base, alias.name)
                yield alias.asname or alias.name, target, name


def import_edges(modules: dict[str, Module], *kinds: str) -> Edges:
    return {m.name: {target for _, target, _ in bindings(m, modules, kinds)} - {m.name} for m in modules.values()}


def cycles_collapsed(edges: Edges) -> dict[str, tuple[str, ...]]:
    """The group of each module: itself, or all modules of the import cycle that it stands in."""
    reach: Edges = {}
    for start in edges:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = edges[waiting.pop()] - seen
            seen |= new
            waiting += new
        reach[start] = seen
    return {m: tuple(sorted({m} | {n for n in reach[m] if m in reach[n]})) for m in edges}


def longest_chain(edges: Edges) -> list[tuple[str, ...]]:
    """The longest path of imports from importer to imported; a cycle counts as one module."""
    group = cycles_collapsed(edges)
    between: dict[tuple[str, ...], set[tuple[str, ...]]] = {g: set() for g in sorted(set(group.values()))}
    for source in edges:
        between[group[source]] |= {group[target] for target in edges[source]} - {group[source]}
    best: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for node in TopologicalSorter(between).static_order():
        below = [best[target] for target in sorted(between[node])]
        best[node] = [node, *max(below, key=len, default=[])]
    return max((best[node] for node in between), key=len)


def rank(values: list[int], share: float) -> int:
    """Nearest-rank percentile."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else 0


def median(values: list[int]) -> float:
    return statistics.median(values) if values else 0


def span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def measure_sizes(modules: dict[str, Module], root: Path) -> Measures:
    """Files, lines, functions and classes."""
    files = [m.lines for m in modules.values() if not m.is_package]
    nodes = [node for m in modules.values() for node in ast.walk(m.tree)]
    lengths = [span(node) for node in nodes if isinstance(node, Function)]
    lines = sum(m.lines for m in modules.values())
    imports = sum(span(node) for m in modules.values() for found in m.imports.values() for node in found)
    alone = [(n, n.value) for n in nodes if isinstance(n, ast.Expr)]
    strings = [n for n, value in alone if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    entries = {m.name.split(".")[1] for m in modules.values() if "." in m.name} - {"__main__"}
    at_root = {m.path.stem for m in modules.values() if m.path.parent == root} - {"__init__", "__main__"}
    return {
        "files": len(modules),
        "files without __init__": len(files),
        "lines of Python": lines,
        "lines of imports": imports,
        "lines of imports, percent": round(100 * imports / max(lines, 1), 1),
        "file length, median (without __init__)": median(files),
        "file length, 90th percentile": rank(files, 0.9),
        "file length, max": max(files, default=0),
        "functions (methods and nested ones included)": len(lengths),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "function length, mean": round(statistics.fmean(lengths), 2) if lengths else 0,
        "function length, median": median(lengths),
        "function length, 90th percentile": rank(lengths, 0.9),
        "function length, max": max(lengths, default=0),
        f"functions over {LONG_FUNCTION} lines": sum(length > LONG_FUNCTION for length in lengths),
        "modules in the root": len(at_root),
        "entries in the root (modules and packages)": len(entries),
        "comment-only lines": sum(comment_lines(m.source) for m in modules.values()),
        "docstring lines (of attributes too)": sum(span(n) for n in strings),
    }


def comment_lines(source: str) -> int:
    found = (t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT)
    return sum(token.line.lstrip().startswith("#") for token in found)


def entry_edges(modules: dict[str, Module], *kinds: str) -> set[tuple[str, str]]:
    """Distinct (importing, imported) pairs of root entries, the command line left out on both sides."""
    named = [(s.split(".")[1:2], t.split(".")[1:2]) for s, ts in import_edges(modules, *kinds).items() for t in ts]
    pairs = {(source[0], target[0]) for source, target in named if source and target}
    return {(s, t) for s, t in pairs if s != t and s not in LEFT_OUT and t not in LEFT_OUT}


def measure_imports(modules: dict[str, Module], chosen: list[str]) -> Measures:
    """The longest chain, cycles, and edges between root entries."""
    at_import = import_edges(modules, "module")
    chain = longest_chain(at_import)
    edges = entry_edges(modules, "module", "function")
    lazy = {g for g in cycles_collapsed(import_edges(modules, "module", "function")).values() if len(g) > 1}
    measures: Measures = {
        "longest import chain, modules (module level)": len(chain),
        "longest import chain": [" + ".join(group) for group in chain],
        "module cycles (module level)": len({g for g in cycles_collapsed(at_import).values() if len(g) > 1}),
        "module cycles with function-level imports": len(lazy),
        "modules in these cycles": sum(map(len, lazy)),
        "function-level imports of the package (module pairs)": sum(
            map(len, import_edges(modules, "function").values())
        ),
        "edges between root entries (function-level included, cli and __main__ excluded)": len(edges),
        "edges between root entries with TYPE_CHECKING too": len(entry_edges(modules, "module", "function", "types")),
        "pairs of root entries that import each other": sum((t, s) in edges for s, t in edges) // 2,
    }
    for name in chosen:
        inside = [m for m in modules.values() if m.name.split(".")[1:2] == [name]]
        measures[f"{name}: files, lines"] = f"{len(inside)}, {sum(m.lines for m in inside)}"
    if chosen:
        measures["edges among the named entries"] = sum(s in chosen and t in chosen for s, t in edges)
    return measures


def one_caller_helpers(modules: dict[str, Module]) -> dict[str, int]:
    """Private module-level functions that the package refers to once, by name or as module.name, and their lines."""
    used: Counter[tuple[str, str]] = Counter()
    for module in modules.values():
        local = {name: (target, what) for name, target, what in bindings(module, modules, module.imports)}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                used[local.get(node.id, (module.name, node.id))] += 1
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                target, what = local.get(ast.unparse(node.value), ("", ""))
                if target and not what:
                    used[target, node.attr] += 1
    private = [(m.name, f) for m in modules.values() for f in m.tree.body if isinstance(f, Function)]
    private = [(name, f) for name, f in private if f.name.startswith("_") and not f.name.startswith("__")]
    return {f"{name}.{f.name}": span(f) for name, f in private if used[name, f.name] == 1}


def repeated(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names that stand in more than one place, from (name, place)."""
    places = Counter(name for name, _ in set(pairs))
    return sorted(name for name, count in places.items() if count > 1)


def measure_names(modules: dict[str, Module]) -> Measures:
    """One-caller helpers, and names with more than one meaning."""
    helpers = one_caller_helpers(modules)
    top = [(node, m.name) for m in modules.values() for node in m.tree.body]
    functions = [(n.name, place) for n, place in top if isinstance(n, Function) and not n.name.startswith("_")]
    lists = {
        "module names in more than one package": repeated((m.name.split(".")[-1], m.parent) for m in modules.values()),
        "public function names in more than one module": repeated(functions),
        "class names in more than one module": repeated((n.name, m) for n, m in top if isinstance(n, ast.ClassDef)),
    }
    measures: Measures = {
        "one-caller helpers": len(helpers),
        "one-caller helpers, lines": sum(helpers.values()),
        f"one-caller helpers of at most {SHORT_HELPER} lines": sum(n <= SHORT_HELPER for n in helpers.values()),
    }
    for label, names in lists.items():
        measures |= {label: len(names), f"{label}, list": names}
    return measures


def measure(root: Path, chosen: list[str]) -> Measures:
    modules = read_package(root)
    if not modules:
        raise SystemExit(f"error: no Python files in {root.name}")
    return measure_sizes(modules, root) | measure_imports(modules, chosen) | measure_names(modules)


class Recorder:
    """A profile function that notes which functions of the package are called, and from where in the package.

    Module-level code and class bodies are not functions, and what they call happens at import: both are
    left out. Comprehensions are part of the function that they stand in.
    """

    def __init__(self, root: Path) -> None:
        self.prefix = f"{root}{os.sep}"
        self.on = False
        self.files: dict[str, None] = {}
        self.functions: set[tuple[str, str, int]] = set()
        self.calls: set[tuple[tuple[str, str, int], tuple[str, str, int]]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        called = self.function(frame) if self.on and event == "call" else None
        if called is None:
            return
        caller, above = None, frame.f_back
        while above is not None:
            if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(self.prefix):
                return
            caller = caller or self.function(above)
            above = above.f_back
        self.files.setdefault(called[0])
        self.functions.add(called)
        if caller:
            self.calls.add((caller, called))

    def function(self, frame: FrameType) -> tuple[str, str, int] | None:
        code = frame.f_code
        if not code.co_filename.startswith(self.prefix) or not code.co_flags & inspect.CO_OPTIMIZED:
            return None
        if code.co_name.startswith("<") and code.co_name != "<lambda>":
            return None
        return code.co_filename.removeprefix(self.prefix), code.co_qualname, code.co_firstlineno


def walk(root: Path, folder: Path) -> Measures:
    """Trace one run on a tiny CSV, from the parsed command line on."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "BERTVISION_PROGRESS": "0"}
    sys.path.insert(0, str(root.parent))
    package = importlib.import_module(root.name)
    if Path(package.__file__ or "").resolve().parent != root:
        raise SystemExit(f"error: another {root.name} was imported than the one to measure")
    said = io.StringIO()
    with redirect_stderr(said):
        make_encoder(folder / "encoder")
    texts = make_csv(folder / "rows.csv")
    command = importlib.import_module(f"{root.name}.__main__").main
    recorder, encoded = Recorder(root), count_texts()
    parse = argparse.ArgumentParser.parse_args

    def parse_then_record(*given: Any, **named: Any) -> Any:
        parsed = parse(*given, **named)
        recorder.on = True
        return parsed

    words = ["run", "text", "--train", str(folder / "rows.csv"), "--encoder", str(folder / "encoder")]
    words += ["--out", str(folder / "run"), "--heads", "probe", "learned-pool", "--seeds", "0", "--epochs", "1"]
    argparse.ArgumentParser.parse_args = parse_then_record  # type: ignore[method-assign]
    with redirect_stdout(said), redirect_stderr(said):
        threading.setprofile(recorder)
        sys.setprofile(recorder)
        code = command([*words, "--set", "fit.epochs=2"])
        sys.setprofile(None)
        threading.setprofile(None)
    argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign]
    if code:
        raise SystemExit(f"error: the run to trace ended with {code}: {said.getvalue()}")
    times = [encoded[text] for text in texts]
    between = {(caller[0], called[0]) for caller, called in recorder.calls if caller[0] != called[0]}
    return {
        "walk of a CSV row: distinct files": len(recorder.files),
        "walk: distinct functions": len(recorder.functions),
        "walk: function-to-function calls, distinct": len(recorder.calls),
        "walk: of these from one file to another": sum(caller[0] != called[0] for caller, called in recorder.calls),
        "walk: file-to-file pairs": len(between),
        "walk: modules imported at its end": sum(name.split(".")[0] == root.name for name in sys.modules),
        "walk: rows of the CSV": len(texts),
        "walk: encodings of the rows' texts by the tokenizer": sum(times),
        "walk: encodings of one text, mean": round(statistics.fmean(times), 2),
        "walk: encodings of one text, max": max(times),
        "walk: files in order of first entry": list(recorder.files),
    }


def count_texts() -> Counter[str]:
    """How often each text is given to a fast tokenizer from now on."""
    from transformers import PreTrainedTokenizerFast

    counts: Counter[str] = Counter()
    encode: Callable[..., Any] = PreTrainedTokenizerFast._encode_plus

    def counted(self: Any, text: Any, text_pair: Any = None, **options: Any) -> Any:
        for given in (text, text_pair):
            counts.update([given] if isinstance(given, str) else (one for one in given or () if isinstance(one, str)))
        return encode(self, text, text_pair, **options)

    PreTrainedTokenizerFast._encode_plus = counted
    return counts


def make_csv(path: Path) -> list[str]:
    """Sixty different texts with two labels."""
    texts = [f"the {('bad', 'good')[i % 2]} old town {'and ' * (i % 5)}{i}" for i in range(60)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *((text, text.split()[1]) for text in texts)])
    return texts


def make_encoder(folder: Path) -> None:
    """A random BERT of 2 layers and width 16 with a tokenizer of a few words and letters."""
    import tokenizers
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    letters = string.ascii_lowercase + string.digits
    words = [*special, *string.punctuation, *letters, *(f"##{letter}" for letter in letters), "the", "town", "good"]
    vocabulary = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[SEP]", "[CLS]")]
    backend.post_processor = tokenizers.processors.BertProcessing(*ends)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    tokenizer = transformers.BertTokenizerFast(tokenizer_object=backend, **names)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=512, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def as_markdown(measures: Measures, verbose: bool) -> str:
    """A table of the numbers; lists follow below it, the long ones of the walk only when asked for."""
    table = [f"| {name} | {value} |" for name, value in measures.items() if not isinstance(value, list)]
    lists = [(name, value) for name, value in measures.items() if isinstance(value, list)]
    shown = [(name, value) for name, value in lists if verbose or not name.startswith("walk")]
    below = [f"\n{name}: {', '.join(f'`{one}`' for one in value) or 'none'}" for name, value in shown]
    return "\n".join(["| measure | value |", "|---|---:|", *table, *below])


def main(arguments: list[str] | None = None) -> int:
    """Print the measures of one tree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("src", nargs="?", type=Path, metavar="SRC", help="package folder; default: the one in src")
    parser.add_argument("--walk", action="store_true", help="also trace 'run text' on a tiny CSV")
    parser.add_argument("--json", action="store_true", help="JSON in place of Markdown, all lists included")
    parser.add_argument("--twelve", nargs="+", default=[], metavar="NAME", help="root entries to also count alone")
    parser.add_argument("--verbose", action="store_true", help="list the files of the walk in order of first entry")
    options = parser.parse_args(arguments)
    default = sorted((Path(__file__).resolve().parents[1] / "src").glob("*/__init__.py"))
    root = (options.src or default[0].parent).resolve()
    measures = measure(root, options.twelve)
    if options.walk:
        with tempfile.TemporaryDirectory() as folder:
            measures |= walk(root, Path(folder))
    print(json.dumps(measures, indent=2) if options.json else as_markdown(measures, options.verbose))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
